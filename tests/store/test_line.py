"""A line hands its places to those who came first, loses none, and is given up only where it stands still."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from promptkeel.store.line import Line


def started(line: Line, work: Callable[[], None]) -> threading.Thread:
    """A thread that is in the line, behind those that were there."""
    before = line.waiting
    thread = threading.Thread(target=work)
    thread.start()
    while line.waiting == before and thread.is_alive():
        time.sleep(0.001)
    return thread


def test_places_are_handed_on_in_the_order_of_arrival():
    line = Line(1)
    assert line.enter(60)
    served = []

    def call(number: int) -> None:
        assert line.enter(60)
        served.append(number)
        line.leave()

    threads = [started(line, lambda number=number: call(number)) for number in range(20)]
    assert served == []
    line.leave()
    for thread in threads:
        thread.join()
    assert served == list(range(20))


def test_no_more_enter_than_there_are_places_and_none_is_lost():
    line = Line(3)
    inside, most = [], []

    def call() -> None:
        for _ in range(200):
            assert line.enter(60)
            inside.append(None)
            most.append(len(inside))
            inside.pop()
            line.leave()

    threads = [threading.Thread(target=call) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) <= 3
    assert all(line.enter(0) for _ in range(3))
    assert not line.enter(0)


def test_a_line_that_stands_still_is_given_up_and_who_gave_up_is_not_in_it():
    line = Line(1)
    assert line.enter(0)
    assert not line.enter(0.02)
    assert line.waiting == 0
    line.leave()
    assert line.enter(0)


def test_an_interrupted_wait_leaves_the_line(monkeypatch: pytest.MonkeyPatch):
    line = Line(1)
    assert line.enter(0)

    class Interrupted:
        def acquire(self, timeout: float = -1) -> bool:
            if timeout >= 0:
                raise KeyboardInterrupt
            return True

    real = threading.Lock
    monkeypatch.setattr(threading, "Lock", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        line.enter(60)
    monkeypatch.setattr(threading, "Lock", real)
    assert line.waiting == 0
    line.leave()
    assert line.enter(0)
