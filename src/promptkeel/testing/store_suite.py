"""The suite for a ``GraphStore``: all its parts, and random programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from promptkeel.model import MemoryNode
from promptkeel.testing.graph_suite import GraphSuite
from promptkeel.testing.harness import Edit, patient
from promptkeel.testing.machine import StoreMachine
from promptkeel.testing.time_suite import TimeSuite
from promptkeel.testing.watch_suite import WatchSuite
from promptkeel.testing.write_suite import WriteSuite


class StoreSuite(WriteSuite, GraphSuite, TimeSuite, WatchSuite):
    """Every promise of a store, one test each; give ``new_store``, and ``open_again`` where the data outlives a handle.

    ::

        class TestMyStore(StoreSuite):
            def new_store(self):
                return MyStore(self.folder / "memory.db", clock=self.clock)

            def open_again(self, store):
                return MyStore(store.file, clock=self.clock)

    Attributes:
        machine_settings: Hypothesis settings for the random programs; None takes the current profile's.
    """

    __test__ = False
    machine_settings: ClassVar[settings | None] = None

    def new_scanner(self, nodes: Sequence[MemoryNode]) -> Any:
        """A new store with these nodes in it."""
        store = self.fresh_store()
        for node in nodes:
            store.put(node)
        return store.wrapped

    def test_random_programs_agree_with_the_model(self) -> None:
        """Writes, edits, reopenings and reads in any order: ``StoreMachine``."""
        suite = self

        class Machine(StoreMachine):
            event_loop = suite.event_loop

            def new_store(self) -> Any:
                suite.folder, suite.clock = self.folder, self.clock
                return suite.new_store()

            def open_again(self, store: Any) -> Any:
                return suite.open_again(store)

            def edit_behind(self, store: Any, edit: Edit) -> None:
                suite.edit_behind(store, edit)

            def has(self, hook: str) -> bool:
                return suite.has(hook)

        Machine.__qualname__ = f"{type(suite).__name__}.Machine"
        run_state_machine_as_test(Machine, settings=self.machine_settings or patient())
