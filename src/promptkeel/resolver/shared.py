"""What many scopes have in common: how a level above them moved from one head to the next, read once for all of them.

Heads say which rows a level holds. Where of a scope's whole chain one level has moved, what changed is the same for
every scope below it that comes from the same head: a write at an organisation is read once, not once for each user.
Where the log no longer tells what changed, as after an erasure, all that the level holds is shared instead. Nothing is
shared where more than that moved, or where the level had moved on when it was read: each scope then reads for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, final

from promptkeel.lane import row_key
from promptkeel.resolver.cache import BoundedCache
from promptkeel.resolver.flights import Flights
from promptkeel.steps import Call, Steps
from promptkeel.store.base import CatchUp, Head, Heads, LaneUpdate, NodeKey

SHARED_ROWS: Final = 100_000
"""So many rows and touched nodes are kept."""


class Followed(Protocol):
    """What follows a lane of the store."""

    def keys_at(self, path: str) -> list[NodeKey]:
        """The nodes of it that are at exactly this scope."""


Move = tuple[Head, Head]
"""A level's head before and after."""

_Found = tuple[LaneUpdate, ...] | None


def moved_above(before: Heads, now: Heads) -> Move | None:
    """The one level above the scope itself that has moved; None where it is not one, or not the only one."""
    moves = [(past, present) for past, present in zip(before.levels, now.levels, strict=True) if past != present]
    if len(moves) != 1 or before.schema != now.schema or moves[0][1].scope == now.scope:
        return None
    return moves[0]


def common(before: Heads, move: Move, update: CatchUp) -> _Found:
    """The lanes' differences, where they are the same for every scope below the level that moved.

    One that is ``whole`` holds the rows of that level alone, all of them.
    """
    past, present = move
    expected = [present if head == past else head for head in before.levels]
    if list(update.heads.levels) != expected or update.heads.schema != before.schema:
        return None
    lanes = [
        LaneUpdate([row for row in lane.rows if row[3] == present.scope], whole=True) if lane.whole else lane
        for lane in update.lanes
    ]
    if any(row[3] != present.scope for lane in lanes for row in lane.rows):
        return None
    return tuple(lanes)


def applied(found: tuple[LaneUpdate, ...], lanes: Sequence[Followed], path: str) -> tuple[LaneUpdate, ...]:
    """The shared differences as differences of a scope's own lanes; ``path`` is that of the level that moved."""
    return tuple(
        LaneUpdate(update.rows, tuple({*lane.keys_at(path), *map(row_key, update.rows)})) if update.whole else update
        for update, lane in zip(found, lanes, strict=True)
    )


@final
class SharedDifferences:
    """The differences that one resolver has read, by the heads that they lead from and to."""

    def __init__(self) -> None:
        self._kept: BoundedCache[Move, tuple[_Found]] = BoundedCache(SHARED_ROWS, _weigh)
        self._flights: Flights[_Found] = Flights()

    def find(self, before: Heads, move: Move, read: Callable[[], CatchUp]) -> Steps[_Found]:
        """What changed with a move of one level; None where it cannot be shared.

        Args:
            before: the heads at which the caller last read.
            move: the only move since.
            read: reads the difference for the caller's scope; called in a worker.
        """
        kept = self._kept.get(move)
        if kept is not None:
            return kept[0]
        return (yield from self._flights.join(move, lambda: self._read(before, move, read)))

    def _read(self, before: Heads, move: Move, read: Callable[[], CatchUp]) -> Steps[_Found]:
        update: CatchUp = yield Call(read)
        found = common(before, move, update)
        # That it cannot be shared is kept too: otherwise each scope would read it twice.
        self._kept.put(move, (found,))
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()


def _weigh(kept: tuple[_Found]) -> int:
    return 1 + sum(len(lane.rows) + len(lane.touched) for lane in kept[0] or ())
