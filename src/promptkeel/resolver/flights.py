"""Flights: calls that need the same read at the same heads share one.

The first to join leads and does the work; the others wait for it. A leader that is cancelled hands over: those who
waited join again, and one of them leads. The key holds the heads that the caller has probed, so that no call joins a
read that began before a change it must see.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar, cast, final

from promptkeel.forks import after_fork
from promptkeel.steps import THREADS, Signal, Steps, Wait, Where

T = TypeVar("T")


class _Flight(Generic[T]):
    __slots__ = ("error", "landed", "leader", "result", "signal")

    def __init__(self) -> None:
        self.leader = threading.get_ident()
        self.signal = Signal()
        self.landed = False
        self.error: Exception | None = None
        self.result: T | None = None


@final
class Flights(Generic[T]):
    """The flights of one resolver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Hashable, _Flight[T]] = {}
        # A fork leaves the threads that lead behind: the child begins without flights and with a lock of its own.
        after_fork(self, Flights._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._open = {}

    def join(self, key: Hashable, work: Callable[[], Steps[T]]) -> Steps[T]:
        """The answer of ``work``, done once for everyone who joins under the same key in the same event loop."""
        where = yield Where()
        key = (where, key)
        while True:
            with self._lock:
                flight = self._open.get(key)
                leads = flight is None
                if flight is None:
                    flight = self._open[key] = _Flight()
            if leads:
                return (yield from self._lead(key, flight, work))
            if where is THREADS and flight.leader == threading.get_ident():
                # An observer of the flight asks again: it would wait for itself.
                return (yield from work())
            yield Wait(flight.signal)
            if flight.error is not None:
                raise flight.error
            if flight.landed:
                return cast("T", flight.result)

    def _lead(self, key: Hashable, flight: _Flight[T], work: Callable[[], Steps[T]]) -> Steps[T]:
        try:
            flight.result = yield from work()
            flight.landed = True
            return flight.result
        except Exception as error:
            flight.error = error
            raise
        finally:
            with self._lock:
                del self._open[key]
            flight.signal.set()
