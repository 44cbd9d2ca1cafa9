"""The last known good of the blocks that declare it: in this process, for this very scope, until it is forgotten."""

from __future__ import annotations

import sys
import threading
from typing import Final, final

import attrs

from promptkeel.forks import after_fork
from promptkeel.resolver.cache import BoundedCache
from promptkeel.resolver.values import ResolvedBlock

_BYTES: Final = 16 * 1024 * 1024

Key = tuple[str, str]
"""The path of a scope and the name of a block."""


@final
@attrs.frozen(eq=False)
class Good:
    """A block as it was read.

    Attributes:
        block: the block.
        at: when the read began, in seconds of a clock that never goes back.
    """

    block: ResolvedBlock
    at: float


@final
class LastKnownGood:
    """What was last read of each block; bounded by the bytes of its text."""

    def __init__(self) -> None:
        self._found: BoundedCache[Key, Good] = BoundedCache(_BYTES, _weigh)
        self._lock = threading.Lock()
        self.epoch = 0
        after_fork(self, LastKnownGood._unlock)

    def _unlock(self) -> None:
        self._lock = threading.Lock()

    def get(self, path: str, name: str) -> Good | None:
        """What is kept of a block."""
        return self._found.get((path, name))

    def offer(self, path: str, block: ResolvedBlock, at: float, epoch: int) -> None:
        """Keep a block, unless a read that began later was kept or everything was forgotten since ``epoch``."""
        with self._lock:
            if epoch != self.epoch:
                return
            present = self._found.get((path, block.name))
            if present is None or present.at <= at:
                self._found.put((path, block.name), Good(block, at))

    def forget(self) -> None:
        """Forget everything, and what reads that are under way will offer."""
        with self._lock:
            self.epoch += 1
            self._found.clear()


def _weigh(good: Good) -> int:
    return sys.getsizeof(good.block.text) + 200
