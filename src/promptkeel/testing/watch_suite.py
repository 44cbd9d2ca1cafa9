"""The part of the store's suite about watching: each news is a lane's present revision, and the newest comes last."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest

from promptkeel.store.base import WATCH
from promptkeel.testing.calling import Called
from promptkeel.testing.harness import needs
from promptkeel.testing.lane_suite import LaneSuite
from promptkeel.testing.samples import ACME, ADA, node

PATIENCE: Final = 10.0
"""Seconds after which a watch that says nothing has failed."""


def within(patience: float, call: Callable[[], Any]) -> Any:
    """What a call answers; a failure where it answers too late."""
    answers: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()

    def work() -> None:
        try:
            answers.put((call(), None))
        except Exception as error:  # noqa: BLE001 - raised below, in the thread that asked
            answers.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        answer, error = answers.get(timeout=patience)
    except queue.Empty:
        pytest.fail(f"the watch said nothing for {patience:g} seconds")
    if error is not None:
        raise error
    return answer


class WatchSuite(LaneSuite):
    """``watch(scope, label_prefix)``: an iterator of revisions, asynchronous or not."""

    __test__ = False

    def _news(self, watch: Any) -> str:
        following = getattr(watch, "__anext__", None) or watch.__next__
        return str(within(PATIENCE, lambda: self._caller.call(following)).revision)

    @needs(WATCH)
    def test_fresh_a_watch_begins_with_the_present_revision(self, store: Called) -> None:
        """Of an empty lane, and of one that is not."""
        for number in range(2):
            watch = store.wrapped.watch(ADA, "SOUL:")
            assert self._news(watch) == self.revision(store.wrapped, ADA, "SOUL:")
            store.put(node(f"n{number}"))

    @needs(WATCH)
    def test_fresh_a_watch_tells_each_later_revision(self, store: Called) -> None:
        """What a scan finds after each change, and of several changes the newest."""
        watch = store.wrapped.watch(ADA, "SOUL:")
        seen = [self._news(watch)]
        for number, scope in enumerate((ADA, ACME)):
            store.put(node(f"n{number}", scope=scope))
            seen.append(self._news(watch))
            assert seen[-1] == self.revision(store.wrapped, ADA, "SOUL:")
        store.retract(ADA, "n0")
        store.erase(ACME, "n1")
        store.put(node("n2", "SOUL:other"))
        seen.append(self._news(watch))
        assert seen[-1] == self.revision(store.wrapped, ADA, "SOUL:")
        assert len(set(seen)) == len(seen)

    @needs(WATCH)
    def test_fresh_a_watch_sees_the_writes_of_another_handle(self, store: Called) -> None:
        """Whoever commits."""
        other = self.second_handle(store)
        watch = store.wrapped.watch(ADA, "SOUL:")
        self._news(watch)
        other.put(node())
        assert self._news(watch) == self.revision(store.wrapped, ADA, "SOUL:")
