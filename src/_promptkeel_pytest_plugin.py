"""The pytest plugin of ``promptkeel.testing``.

It is a module of its own, outside the package, because pytest imports it at the start of every run of everyone who has
the ``testing`` extra: neither promptkeel nor Hypothesis is imported until a test asks for a fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from promptkeel.testing import SteppingClock


@pytest.fixture
def promptkeel_clock() -> SteppingClock:
    """A clock for ``open`` and ``open_store``: it starts at 2026-01-01T00:00:00Z and steps by one microsecond."""
    from promptkeel.testing.clock import SteppingClock

    return SteppingClock()
