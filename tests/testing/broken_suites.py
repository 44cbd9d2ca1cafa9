"""The kit's suite on each broken store, and on the wrapper that breaks nothing; run by ``test_broken_stores``.

It is no test module of its own: nearly everything here fails at something.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import Phase, settings

from promptkeel.testing import StoreSuite
from testing.broken_stores import BROKEN, Wrapper

settings.register_profile(
    "broken", max_examples=10, phases=[Phase.generate], derandomize=True, database=None, deadline=None
)
settings.load_profile("broken")


def suite_of(kind: type[Wrapper]) -> type[StoreSuite]:
    def new_store(self: Any) -> Wrapper:
        return kind(self.clock)

    def open_again(self: Any, store: Wrapper) -> Wrapper:
        return store.again()

    members = {"new_store": new_store, "open_again": open_again, "many": 60, "__module__": __name__}
    return type(f"Test{kind.__name__}", (StoreSuite,), members)


if "PROMPTKEEL_BROKEN_SUITES" in os.environ:
    for each in (Wrapper, *BROKEN):
        globals()[f"Test{each.__name__}"] = suite_of(each)
