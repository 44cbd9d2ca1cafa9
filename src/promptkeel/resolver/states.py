"""What to do next about one scope's lanes: a pure state machine.

Each function looks at values that the driver has read and names the next state; none reads anything itself.

    probe ──equal token─────────────────▶ Fresh
      │ moved                               ▲
      ├──short read──no lane touched────────┤ (stamped anew)
      │    │    └────some touched──followed─┤ changed blocks rendered anew
      │    └ not short                      │
      ├──heads──equal───────────────────────┤ (stamped anew)
      │          moved ▶ Touched ──read─────┤
      └──nothing kept──▶ Missing ──read whole─▶ Fresh
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import attrs

from promptkeel.lane import Lane
from promptkeel.render import RenderedBlock
from promptkeel.resolver.heads import StoredHead
from promptkeel.store.base import CatchUp, Heads, LaneRequest, LaneUpdate

Kept = Lane | StoredHead
"""What is kept of one block that the store holds."""

LaneBuilder = Callable[[int, Kept | None, LaneUpdate], Kept]
"""Makes what is kept at a position from what was, if anything, and an update."""

INLINE_FACTS: Final = 400
"""Rendering up to this many facts is short enough for the caller's own thread; more goes to a worker."""


@final
@attrs.frozen(eq=False)
class KeptLanes:
    """The lanes of one scope as they were last verified.

    Attributes:
        ticket: the number of the probe that the read began with; a result never replaces one with a later ticket.
        token: what that probe answered.
        heads: what the lanes were read at.
        lanes: in the order of the declared lanes.
        rendered: the blocks made of them.
    """

    ticket: int
    token: object
    heads: Heads
    lanes: tuple[Kept, ...]
    rendered: tuple[RenderedBlock, ...]


@final
@attrs.frozen
class Fresh:
    """What is kept is what the store holds."""

    kept: KeptLanes


@final
@attrs.frozen
class Moved:
    """Something was committed somewhere: compare the heads."""

    kept: KeptLanes


@final
@attrs.frozen
class Touched:
    """Something visible changed: ask what, for these lanes."""

    kept: KeptLanes
    requests: tuple[LaneRequest, ...]


@final
@attrs.frozen
class Missing:
    """Nothing is kept: read these lanes whole."""

    requests: tuple[LaneRequest, ...]


def after_probe(kept: KeptLanes | None, token: object, prefixes: tuple[str, ...]) -> Fresh | Moved | Missing:
    """The state once the store has been probed."""
    if kept is None:
        return Missing(tuple(LaneRequest(prefix) for prefix in prefixes))
    return Fresh(kept) if kept.token == token else Moved(kept)


def after_heads(
    kept: KeptLanes, heads: Heads, prefixes: tuple[str, ...], *, ticket: int, token: object
) -> Fresh | Touched:
    """The state once the heads have been compared."""
    if kept.heads == heads:
        return Fresh(KeptLanes(ticket, token, kept.heads, kept.lanes, kept.rendered))
    return Touched(kept, requests_since(kept, prefixes))


def requests_since(kept: KeptLanes, prefixes: tuple[str, ...]) -> tuple[LaneRequest, ...]:
    """What to ask of the store to bring what is kept up to date."""
    return tuple([LaneRequest(prefix, kept.heads) for prefix in prefixes])


def is_untouched(update: CatchUp) -> bool:
    """Whether what changed concerns none of the lanes."""
    return not any(change.touched or change.whole for change in update.lanes)


def caught_up(lanes: tuple[Kept | None, ...], update: CatchUp, build: LaneBuilder) -> tuple[Kept, ...]:
    """The lanes brought up to date; a lane that nothing touched is the very same object."""
    return tuple(
        build(position, None if change.whole else lane, change)
        if change.whole or change.touched or lane is None
        else lane
        for position, (lane, change) in enumerate(zip(lanes, update.lanes, strict=True))
    )


def changed_positions(before: KeptLanes | None, lanes: tuple[Kept, ...]) -> tuple[int, ...]:
    """Which lanes' blocks must be rendered anew: those whose revision moved."""
    if before is None:
        return tuple(range(len(lanes)))
    return tuple(
        position
        for position, (old, new) in enumerate(zip(before.lanes, lanes, strict=True))
        if old is not new and old.revision != new.revision
    )


def is_inline(lanes: tuple[Kept, ...], positions: tuple[int, ...]) -> bool:
    """Whether rendering these lanes is short enough for the caller's own thread."""
    return sum(lanes[position].count for position in positions) <= INLINE_FACTS


def newer(present: KeptLanes | None, offered: KeptLanes) -> KeptLanes:
    """The one of the two whose read began later: a slow old read never replaces a newer result."""
    return offered if present is None or offered.ticket >= present.ticket else present
