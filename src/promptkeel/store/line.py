"""A line of threads for a few places: first come, first served, for as long as it moves.

A semaphore lets newcomers overtake those who wait, and a wait with a fixed end fails where very many calls come at once
though each is short. Here a place is handed to the one who has waited longest, and only a line that stands still is
given up.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, final

_SLICES: Final = 10
"""In how many parts a wait is cut: while the whole process stands still, as for a garbage collection, one passes."""


@final
class Line:
    """So many places, and who waits for one.

    Args:
        places: how many may be taken at once.
    """

    def __init__(self, places: int) -> None:
        self._lock = threading.Lock()
        self._free = places
        self._waiting: deque[threading.Lock] = deque()
        self._left = 0

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def enter(self, patience: float) -> bool:
        """Take a place, to be given back with ``leave``; False where for so many seconds nobody left one."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
            seen = self._left
        try:
            slices = _SLICES
            while not turn.acquire(timeout=patience / _SLICES):
                slices, seen = (slices - 1, seen) if seen == self._left else (_SLICES, self._left)
                if not slices:
                    return not self._withdraw(turn)
        except BaseException:
            if not self._withdraw(turn):
                self.leave()
            raise
        return True

    def _withdraw(self, turn: threading.Lock) -> bool:
        """Leave the line without a place; False where the turn has come already."""
        with self._lock:
            try:
                self._waiting.remove(turn)
            except ValueError:
                return False
        return True

    def leave(self) -> None:
        """Give a place back: to the one who has waited longest."""
        with self._lock:
            self._left += 1
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1
