"""What an automatic prefix cache holds: a tree of segments, each with when it was last used. Explicit state, no I/O.

Inside a segment, tokens are taken to be spread evenly over its characters: two segments that begin alike share that
part of their tokens.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, final

import attrs

from promptkeel.providers.segments import Segment

Key = tuple[bytes, str, str, str, int]
"""What stands before a segment, and what it is: only segments with the same one can begin alike."""


@final
@attrs.define(eq=False)
class _Node:
    siblings: Key
    content: str
    tokens: int
    used: float
    ready: float


@final
class PrefixTree:
    """Segments that are kept, each behind the ones that it stood behind.

    Args:
        ttl: for how many seconds after its last use a segment is kept; None: for as long as there is room.
        capacity: how many tokens there is room for; None: no bound. What was used longest ago goes first, from the
            end of a request to its beginning. What segments share with their siblings counts for each of them.
    """

    def __init__(self, ttl: float | None, capacity: int | None) -> None:
        self._ttl: Final = ttl
        self._capacity: Final = capacity
        self._size = 0
        # Oldest use first; within a request the last segment first, so that the first one here has none behind it.
        self._nodes: OrderedDict[tuple[Key, str], _Node] = OrderedDict()
        self._contents: dict[Key, list[str]] = {}

    def shared(self, keys: Sequence[Key], segments: Sequence[Segment], tokens: Sequence[int], at: float) -> int:
        """How many tokens from the beginning of a request on are kept."""
        self._expire(at)
        shared = 0
        for key, segment, count in zip(keys, segments, tokens, strict=True):
            node = self._nodes.get((key, segment.content))
            if node is None or node.ready > at:
                return shared + self._begun(key, segment.content, count, at)
            shared += count
        return shared

    def keep(
        self,
        keys: Sequence[Key],
        segments: Sequence[Segment],
        tokens: Sequence[int],
        at: float,
        ready: float,
    ) -> None:
        """Keep a request, usable from ``ready`` on; what is kept already is used again."""
        for key, segment, count in reversed(list(zip(keys, segments, tokens, strict=True))):
            place = key, segment.content
            node = self._nodes.get(place)
            if node is None:
                self._nodes[place] = _Node(key, segment.content, count, at, ready)
                bisect.insort(self._contents.setdefault(key, []), segment.content)
                self._size += count
            else:
                node.used = at
                node.ready = min(node.ready, ready)
                self._nodes.move_to_end(place)
        while self._capacity is not None and self._size > self._capacity:
            self._drop()

    def _begun(self, key: Key, content: str, tokens: int, at: float) -> int:
        """How many tokens of a segment that is not kept itself are the beginning of one that is."""
        contents = self._contents.get(key)
        if not contents or not content:
            return 0
        place = bisect.bisect_left(contents, content)
        # What begins alike stands together: the nearest usable one on each side begins most alike.
        longest = 0
        for candidates in (range(place - 1, -1, -1), range(place, len(contents))):
            for index in candidates:
                if self._nodes[key, contents[index]].ready <= at:
                    longest = max(longest, _alike(contents[index], content))
                    break
        return tokens * longest // len(content)

    def _expire(self, at: float) -> None:
        while self._ttl is not None and self._nodes:
            if at < next(iter(self._nodes.values())).used + self._ttl:
                return
            self._drop()

    def _drop(self) -> None:
        _, node = self._nodes.popitem(last=False)
        contents = self._contents[node.siblings]
        del contents[bisect.bisect_left(contents, node.content)]
        if not contents:
            del self._contents[node.siblings]
        self._size -= node.tokens


def _alike(one: str, other: str) -> int:
    """How many characters two texts share from the beginning on."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
