"""Where a request's cache marks go: a pure plan from positions and a provider's rules.

What a mark is set on is decided in this order, so that whatever is added at the end of a conversation never moves a
mark in front of it:

1. marks of the caller's own stay where they can, and are counted;
2. at most ``marks - 2`` marks stand in the base (tools, system, and what adapters put before the caller's messages): at
   its end, then where text that all requests share ends, then where a tenant's ends;
3. one mark stands at the newest position of the history;
4. one more is a bridge, where the newest is further from what the request before wrote than the provider looks back.

Where the count does not suffice, the earliest of the caller's marks go. TTLs never increase along a prefix: an earlier
mark is raised to the longest of the later ones. A plan of a planned request is the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol, final

import attrs

from promptkeel.providers.rules import ModelRules
from promptkeel.providers.segments import Kind, Mark, Section

Durability = Literal["deployment", "tenant", "conversation"]
NoteKind = Literal["below-minimum", "too-many", "moved", "not-here", "raised", "out-of-lookback", "no-ttl"]
_BASE_END: Final[tuple[Durability, ...]] = ("deployment", "tenant")


class Position(Protocol):
    """One position of a prefix."""

    @property
    def section(self) -> Section:
        """Where it stands."""

    @property
    def kind(self) -> Kind:
        """What it is."""

    @property
    def tokens(self) -> int:
        """How many it has, or a lower bound; 0 for one that is empty or white space."""

    @property
    def durability(self) -> Durability:
        """Which requests share the prefix up to here."""

    @property
    def is_base(self) -> bool:
        """Whether it stands before the caller's messages."""

    @property
    def mark(self) -> Mark | None:
        """The mark that the caller put there."""

    @property
    def changes(self) -> bool:
        """Whether it is expected to be different in the next request."""


@final
@attrs.frozen(order=False)
class Note:
    """Something that an operator should know about a plan.

    Attributes:
        kind: what it is about.
        position: which position, where it is about one.
        text: one line.
        tokens: how many tokens that costs at this request, where it is known.
    """

    kind: NoteKind
    position: int | None
    text: str
    tokens: int = 0


@final
@attrs.frozen(order=False)
class MarkPlan:
    """The marks of a request.

    Attributes:
        marks: every position that bears one, the caller's own among them.
        removed: positions whose mark of the caller's has to go.
        notes: what the operator should know.
    """

    marks: Mapping[int, Mark]
    removed: tuple[int, ...] = ()
    notes: tuple[Note, ...] = ()


def plan_marks(
    positions: Sequence[Position],
    rules: ModelRules,
    *,
    written: Sequence[int] | None = None,
    ttls: Mapping[Durability, int] | None = None,
    automatic: Mark | None = None,
) -> MarkPlan:
    """The marks of a request.

    Args:
        positions: in the order of the provider's prefix.
        rules: of the model.
        written: the positions behind which the request before this one wrote, where they are the same positions here.
        ttls: for how many seconds what each kind of requests shares is to be kept; what is left out, the default.
        automatic: a mark that the provider sets on the last position by itself; it takes one of the count.
    """
    return _Planner(positions, rules, written or (), ttls or {}, automatic).plan()


@final
class _Planner:
    def __init__(
        self,
        positions: Sequence[Position],
        rules: ModelRules,
        written: Sequence[int],
        ttls: Mapping[Durability, int],
        automatic: Mark | None,
    ) -> None:
        self._positions = positions
        self._rules = rules
        self._ttls = ttls
        self._automatic = automatic
        self._notes: list[Note] = []
        self._marks: dict[int, Mark] = {}
        self._usable, self._until = _usable(positions, rules)
        self._written = [index for index in written if 0 <= index < len(positions)]

    def plan(self) -> MarkPlan:
        rules, positions = self._rules, self._positions
        given = {index: place.mark for index, place in enumerate(positions) if place.mark is not None}
        if not rules.marks:
            return MarkPlan({}, tuple(given), self._refused(given))
        room = rules.marks - (self._automatic is not None)
        own = self._kept(given, room)
        wanted_base = self._wanted_base()
        room_in_base = max(0, min(rules.marks - 2, room) - sum(positions[index].is_base for index in own))
        self._marks = dict(own)
        for index in wanted_base:
            if index not in self._marks and room_in_base and len(self._marks) < room:
                self._marks[index] = Mark(self._ttls.get(positions[index].durability))
                room_in_base -= 1
        self._mark_history(own, room)
        self._check_lookback()
        self._raise()
        removed = tuple(index for index in given if index not in self._marks)
        return MarkPlan(dict(sorted(self._marks.items())), removed, tuple(self._notes))

    def _refused(self, given: Mapping[int, Mark]) -> tuple[Note, ...]:
        return tuple(
            Note("too-many", index, f"position {index} has a mark, which this model does not take") for index in given
        )

    def _kept(self, given: Mapping[int, Mark], room: int) -> dict[int, Mark]:
        """The caller's marks, moved to where they may stand, the latest ones where there are too many."""
        moved: dict[int, Mark] = {}
        for index, mark in given.items():
            place = index
            if not self._may_stand(index):
                place = self._before(index)
                if place < 0 or self._positions[place].section != self._positions[index].section:
                    self._note("not-here", index, "a mark cannot stand here, nor on anything before it in its section")
                    continue
                if place not in given:
                    self._note("moved", index, f"a mark cannot stand here and was moved to position {place}")
            moved.setdefault(place, mark)
        base = [index for index in moved if self._positions[index].is_base]
        history = [index for index in moved if not self._positions[index].is_base]
        # At least one is left to the history, which is what every next request reads.
        has_history = any(not place.is_base for place in self._positions)
        kept = base[-max(1, room - has_history) :] if base else []
        kept_history = history[-(room - len(kept)) :] if room > len(kept) else []
        for index in moved:
            if index not in kept and index not in kept_history:
                self._note("too-many", index, f"a mark was taken away: {self._rules.marks} are the most")
        return {index: moved[index] for index in (*kept, *kept_history)}

    def _may_stand(self, index: int) -> bool:
        place = self._positions[index]
        return place.tokens > 0 and not place.changes and place.kind not in self._rules.unmarkable

    def _before(self, index: int) -> int:
        while index >= 0 and not self._may_stand(index):
            index -= 1
        return index

    def _wanted_base(self) -> list[int]:
        base = [index for index in self._usable if self._positions[index].is_base]
        if not base:
            ends = [index for index, place in enumerate(self._positions) if place.is_base and place.tokens]
            if ends:
                self._note(
                    "below-minimum",
                    ends[-1],
                    f"the base has about {self._until[ends[-1]]} tokens, and this model keeps no prefix of less than "
                    f"{self._rules.minimum}: no mark",
                )
            return []
        wanted = [base[-1]]
        for durability in _BASE_END:
            ends = [index for index in base if self._positions[index].durability == durability]
            if ends and ends[-1] not in wanted:
                wanted.append(ends[-1])
        return wanted

    def _mark_history(self, own: Mapping[int, Mark], room: int) -> None:
        history = [index for index in self._usable if not self._positions[index].is_base]
        if not history or self._automatic is not None:
            return
        newest = history[-1]
        mine = [index for index in own if not self._positions[index].is_base]
        ttl = self._ttls.get("conversation")
        if newest not in self._marks:
            if len(self._marks) >= room and mine:
                earliest = mine.pop(0)
                del self._marks[earliest]
                self._note("too-many", earliest, f"a mark was taken away: {self._rules.marks} are the most")
            if len(self._marks) < room:
                self._marks[newest] = Mark(ttl)
        bridge = self._bridge(newest)
        if bridge is not None and bridge not in self._marks and len(self._marks) < room:
            self._marks[bridge] = Mark(ttl)

    def _bridge(self, newest: int) -> int | None:
        """The furthest position from which what was written is still found, where the newest is too far from it."""
        reach = self._rules.lookback
        written = [index for index in self._written if index <= newest]
        if reach is None or not written or newest - written[-1] < reach:
            return None
        last = written[-1]
        bridges = [index for index in self._usable if last <= index < last + reach]
        return bridges[-1] if bridges else None

    def _check_lookback(self) -> None:
        reach = self._rules.lookback
        if reach is None or not self._written:
            return
        marks = [*self._marks, *([len(self._positions) - 1] if self._automatic is not None else [])]
        found = [index for index in self._written if any(index <= mark < index + reach for mark in marks)]
        best = max(found, default=-1)
        lost = self._until[self._written[-1]] - (self._until[best] if best >= 0 else 0)
        if best < self._written[-1] and lost:
            self._note(
                "out-of-lookback",
                self._written[-1],
                f"what the request before wrote is more than {reach} positions before any mark: about {lost} tokens "
                "are not read from the cache",
                lost,
            )

    def _raise(self) -> None:
        """No mark is kept for less long than a later one."""
        default = self._rules.ttls[0] if self._rules.ttls else 0
        longest = 0 if self._automatic is None else self._automatic.ttl or default
        for index in sorted(self._marks, reverse=True):
            ttl = self._marks[index].ttl
            if ttl is not None and ttl not in self._rules.ttls:
                kept = min((each for each in self._rules.ttls if each >= ttl), default=max(self._rules.ttls, default=0))
                self._note("no-ttl", index, f"this model does not keep a prefix for {ttl} seconds: {kept} in its place")
                ttl = kept or None
                self._marks[index] = Mark(ttl)
            if (ttl or default) < longest:
                self._note("raised", index, f"kept for {longest} seconds, as long as a later mark")
                self._marks[index] = Mark(longest)
            longest = max(longest, ttl or default)

    def _note(self, kind: NoteKind, position: int, text: str, tokens: int = 0) -> None:
        self._notes.append(Note(kind, position, text, tokens))


def _usable(positions: Sequence[Position], rules: ModelRules) -> tuple[list[int], list[int]]:
    """The positions that a mark may stand on, and how many tokens there are up to each position."""
    usable, until, total = [], [], 0
    unmarkable, minimum = rules.unmarkable, rules.minimum
    for index, place in enumerate(positions):
        tokens = place.tokens
        total += tokens
        until.append(total)
        if place.changes:
            # Whatever is behind it changes with it.
            until.extend([total] * (len(positions) - index - 1))
            break
        if tokens and total >= minimum and place.kind not in unmarkable:
            usable.append(index)
    return usable, until
