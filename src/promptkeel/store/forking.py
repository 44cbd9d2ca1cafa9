"""A gate that a fork closes: nobody is inside foreign code, with its locks held, when a process is copied.

A child has only the thread that forked. A lock that any other thread held is held in the child for ever, those of a C
library included, which nothing can make fresh. So whoever is about to be long in such code goes through the gate, and a
fork waits until they are out; it waits for a while only, since a fork that never comes is as bad.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

FORK_PATIENCE: Final = 5.0
"""Seconds that a fork waits, at most, for each of those who are inside."""


@final
class ForkGate:
    """Open until a fork begins; then closed until it is over."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: Counter[int] = Counter()
        self._is_closed = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Be inside. A thread that is inside already never waits."""
        me = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed or self._inside[me])
            self._inside[me] += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside[me] -= 1
                if not self._inside[me]:
                    del self._inside[me]
                    self._changed.notify_all()

    def shut(self) -> None:
        """Let nobody in any more, and wait until the other threads are out, or patience is."""
        me = threading.get_ident()
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: not self._inside.keys() - {me}, FORK_PATIENCE)

    def open(self) -> None:
        """Let those in who wait."""
        with self._changed:
            self._is_closed = False
            self._changed.notify_all()
