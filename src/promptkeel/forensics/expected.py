"""What a cache with marks holds of each prefix, and since when: what forensics asks "could this have been read?"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import attrs

from promptkeel.forensics.requests import Kept

_DAY: Final = 86_400.0
_MOST: Final = 500_000


@final
@attrs.define(eq=False)
class Entry:
    """A prefix that was written.

    Attributes:
        ready: from when on it can be read, in seconds.
        expires: until when.
        ttl: for how long a reading keeps it.
    """

    ready: float
    expires: float
    ttl: float


@final
class Ledger:
    """Which prefixes were written at marks, as far as the requests tell."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}

    def entry(self, name: int) -> Entry | None:
        """What was written of a prefix; None where nothing was."""
        return self._entries.get(name)

    def write(self, kept: Kept, at: float, ready: float) -> None:
        """Take what a request writes at its marks, and prolong what it reads."""
        lookback = kept.rules.lookback
        for place, ttl in kept.marks:
            if kept.sums[place + 1] < kept.rules.minimum:
                continue
            first = 0 if lookback is None else max(0, place - lookback + 1)
            for index in range(place, first - 1, -1):
                entry = self._entries.get(kept.names[index])
                if entry is not None and entry.ready <= at < entry.expires:
                    entry.expires = at + entry.ttl
                    break
            entry = self._entries.get(kept.names[place])
            if entry is None or at >= entry.expires:
                self._entries[kept.names[place]] = Entry(ready, at + ttl, ttl)
            elif entry.ready > at:
                entry.ready, entry.expires = min(entry.ready, ready), max(entry.expires, at + ttl)
        if len(self._entries) > _MOST:
            self._entries = {name: each for name, each in self._entries.items() if at < each.expires + _DAY}


def reaches(marks: Sequence[tuple[int, int]], place: int, lookback: int | None) -> bool:
    """Whether any of a request's marks finds what was written at one of its places."""
    return any(place <= mark and (lookback is None or mark - place < lookback) for mark, _ in marks)
