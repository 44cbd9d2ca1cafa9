"""A clock that a test owns: it starts at a fixed instant and moves only as the test says."""

from __future__ import annotations

import threading
from typing import Final, final

START: Final = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z."""


@final
class SteppingClock:
    """A clock that steps each time it is read, so that two readings differ and a run repeats.

    Args:
        start: the first reading, as an instant.
        step: how many microseconds lie between two readings; 0 is a clock that stands still.

    Attributes:
        now: the next reading.
    """

    def __init__(self, start: int = START, *, step: int = 1) -> None:
        self.now = start
        self.step = step
        self._lock = threading.Lock()

    def __call__(self) -> int:
        """The present reading."""
        with self._lock:
            reading = self.now
            self.now += self.step
            return reading

    def tick(self, seconds: float = 1) -> int:
        """Move on, or back where ``seconds`` is negative; the next reading."""
        with self._lock:
            self.now += round(seconds * 1_000_000)
            return self.now
