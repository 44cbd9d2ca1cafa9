"""What a resolver keeps between calls, and how much of it.

Rendered blocks are kept by (scope, block, lane revision, policy) and bounded by the bytes of their text; the lanes
that a scope was read into are bounded by their facts. What was not used since the last round of eviction goes first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar, final

from promptkeel.forks import after_fork

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Slot(Generic[V]):
    __slots__ = ("used", "value", "weight")

    def __init__(self, value: V, weight: int) -> None:
        self.value = value
        self.weight = weight
        self.used = True


@final
class BoundedCache(Generic[K, V]):
    """A map whose values' weights sum to at most a limit. A hit costs one lookup and takes no lock.

    Args:
        limit: the greatest sum of weights; a value heavier than this is not kept.
        weigh: the weight of a value.
    """

    def __init__(self, limit: int, weigh: Callable[[V], int]) -> None:
        self._limit = limit
        self._weigh = weigh
        self._slots: dict[K, _Slot[V]] = {}
        self._lock = threading.Lock()
        self.weight = 0
        after_fork(self, BoundedCache._unlock)

    def _unlock(self) -> None:
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """The value, or None."""
        slot = self._slots.get(key)
        if slot is None:
            return None
        slot.used = True
        return slot.value

    def put(self, key: K, value: V) -> None:
        """Keep a value, and let others go to make room."""
        with self._lock:
            self._put(key, value)

    def settle(self, key: K, choose: Callable[[V | None], V]) -> V:
        """Replace the value by what ``choose`` makes of the present one, with nobody in between."""
        with self._lock:
            slot = self._slots.get(key)
            value = choose(None if slot is None else slot.value)
            if slot is None or slot.value is not value:
                self._put(key, value)
            return value

    def _put(self, key: K, value: V) -> None:
        weight = self._weigh(value)
        self._drop(key)
        if weight > self._limit:
            return
        self._slots[key] = _Slot(value, weight)
        self.weight += weight
        while self.weight > self._limit:
            self._evict(key)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._slots = {}
            self.weight = 0

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[K]:
        return iter(tuple(self._slots))

    def _drop(self, key: K) -> None:
        slot = self._slots.pop(key, None)
        if slot is not None:
            self.weight -= slot.weight

    def _evict(self, keep: K) -> None:
        # Second chance: what was used since the last round moves to the end, the first that was not goes.
        for _ in range(len(self._slots)):
            key, slot = next(iter(self._slots.items()))
            if key != keep and not slot.used:
                break
            slot.used = False
            del self._slots[key]
            self._slots[key] = slot
        else:
            key = next(key for key in self._slots if key != keep)
        self._drop(key)
