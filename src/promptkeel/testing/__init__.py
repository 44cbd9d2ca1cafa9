"""The kit that stores are checked with: other people's, and the ones that ship.

``StoreSuite`` and ``LaneSuite`` are pytest base classes with a test for each promise; ``StoreMachine`` runs random
programs against ``model.ModelStore``; ``strategies`` draws the values. What a store does not declare
is skipped by name.
"""

from promptkeel.errors import MissingExtraError

try:
    import hypothesis  # noqa: F401 - only to see that the extra is there
    import pytest
except ImportError:
    raise MissingExtraError("testing") from None

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "graph_suite",
            "lane_suite",
            "machine",
            "model",
            "store_suite",
            "time_suite",
            "watch_suite",
            "write_suite",
        )
    )
)

from promptkeel.testing import model, strategies  # noqa: E402 - assertions in the suites explain themselves
from promptkeel.testing.clock import SteppingClock  # noqa: E402
from promptkeel.testing.harness import Delete, Edit, Move, Relabel  # noqa: E402
from promptkeel.testing.lane_suite import LaneSuite  # noqa: E402
from promptkeel.testing.machine import StoreMachine  # noqa: E402
from promptkeel.testing.model import ModelStore  # noqa: E402
from promptkeel.testing.store_suite import StoreSuite  # noqa: E402

__all__ = [
    "Delete",
    "Edit",
    "LaneSuite",
    "ModelStore",
    "Move",
    "Relabel",
    "SteppingClock",
    "StoreMachine",
    "StoreSuite",
    "model",
    "strategies",
]
