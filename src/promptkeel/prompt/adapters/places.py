"""The positions of a request's prefix, as the planner of marks sees them, and the parts that its marks go to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

import attrs

from promptkeel.prompt.adapters.asked import Asked
from promptkeel.prompt.breakpoints import MarkPlan, plan_marks
from promptkeel.prompt.layout import Durability
from promptkeel.providers.segments import Kind, Mark, Section


@final
class Place(NamedTuple):
    """One position of a prefix.

    Attributes:
        section: where it stands.
        kind: what it is.
        tokens: how many it has, counted until a prefix is long enough to be kept, and by its length from there on.
        durability: which requests share the prefix up to here.
        is_base: whether it stands before the caller's messages.
        mark: the mark that it has already.
        message: the index of its message among all that are sent; -1 in tools and system.
        part: its index there.
        changes: whether it is expected to be different in the next request.
    """

    section: Section
    kind: Kind
    tokens: int
    durability: Durability
    is_base: bool
    mark: Mark | None
    message: int
    part: int
    changes: bool = False


@final
@attrs.frozen(order=False)
class Planned:
    """The marks of a request, and where they stand.

    Attributes:
        plan: what the planner said.
        places: the positions that it speaks of.
        base: how many of them stand before the caller's messages.
    """

    plan: MarkPlan
    places: list[Place]
    base: int

    def changed(self) -> Iterator[tuple[Place, Mark | None]]:
        """The positions whose mark is not what it was, from the last to the first, each with its mark."""
        for index in self.plan.removed:
            if self.places[index].mark is not None:
                yield self.places[index], None
        for index in sorted(self.plan.marks, reverse=True):
            mark = self.plan.marks[index]
            if mark != self.places[index].mark:
                yield self.places[index], mark


@final
class Places:
    """The positions of one request while they are collected.

    Args:
        asked: what the request is made of.
    """

    def __init__(self, asked: Asked) -> None:
        self.found: list[Place] = []
        self._asked = asked
        self._counter = asked.counter
        self._uncounted = 2 * asked.rules.minimum

    def add(
        self,
        section: Section,
        kind: Kind,
        tokens: int,
        durability: Durability,
        message: int = -1,
        part: int = 0,
        mark: Mark | None = None,
    ) -> None:
        """Add a position of the base."""
        self._uncounted -= tokens
        self.found.append(Place(section, kind, tokens, durability, is_base=True, mark=mark, message=message, part=part))

    def add_system(self) -> None:
        """Add the sections of the channel ``system``, where they have a place of their own."""
        for part, section in enumerate(self._asked.layout.of("system")):
            self.add("system", "text", self._asked.tokens_of(section.text), section.durability, part=part)

    def add_part(self, kind: Kind, content: object, message: int, part: int, mark: Mark | None = None) -> None:
        """Add a position of a message of the caller's."""
        if self._uncounted > 0:
            text = (
                content
                if isinstance(content, str)
                else json.dumps(content, ensure_ascii=False, default=repr, skipkeys=True)
            )
            tokens = self._counter(text) if text.strip() else 0
            self._uncounted -= tokens
        elif isinstance(content, str):
            # Nothing depends on the rest of a long history being counted well.
            tokens = (len(content) + 3) >> 2 if content and not content.isspace() else 0
        else:
            tokens = 1
        self.found.append(
            Place("messages", kind, tokens, "conversation", is_base=False, mark=mark, message=message, part=part)
        )

    def mark_last(self, mark: Mark) -> None:
        """Say that the position added last has a mark of the caller's."""
        if self.found:
            self.found[-1] = self.found[-1]._replace(mark=mark)

    def plan(
        self,
        end: int,
        written: int | None,
        *,
        automatic: Mark | None = None,
        unmarkable: frozenset[Kind] = frozenset(),
        remark: bool = False,
    ) -> Planned:
        """The marks of the request.

        Args:
            end: the index of the first message that no cache is to keep.
            written: the index of the message that the request before this one ended with; None where there is none.
            automatic: a mark that the provider sets by itself.
            unmarkable: kinds that this format has no mark for, beyond those of the rules.
            remark: whether what was written is found only where its mark stands again.
        """
        rules = self._asked.rules
        beyond = 0
        while self.found and self.found[-1].message >= end:
            beyond += self.found.pop().mark is not None
        places = self.found
        if unmarkable or beyond:
            rules = attrs.evolve(rules, marks=max(0, rules.marks - beyond), unmarkable=rules.unmarkable | unmarkable)
        at = [] if written is None else _last_markable(places, written, rules.unmarkable)
        planned = places
        if remark and at and places[at[0]].mark is None:
            planned = list(places)
            planned[at[0]] = places[at[0]]._replace(mark=Mark())
        plan = plan_marks(planned, rules, written=at, ttls=self._asked.ttls, automatic=automatic)
        return Planned(plan, places, sum(place.is_base for place in places))


def kind_of(block: Mapping[str, Any], kinds: Mapping[str, Kind]) -> Kind:
    """What a block is, by its ``type``."""
    found = block.get("type")
    return kinds.get(found, "other") if isinstance(found, str) else "other"


def _last_markable(places: Sequence[Place], message: int, unmarkable: frozenset[Kind]) -> list[int]:
    """The position of a message's end that could bear a mark, or of one before it; nothing where there is none."""
    for index in range(len(places) - 1, -1, -1):
        place = places[index]
        if place.message <= message and place.tokens and place.kind not in unmarkable and not place.is_base:
            return [index]
    return []


def previous_end(messages: Sequence[Any], answers: Callable[[Any], bool]) -> int | None:
    """The index of the message that the request before this one ended with, if the model has answered one at all."""
    index = len(messages)
    while index and answers(messages[index - 1]):
        index -= 1  # what the model has begun to say, and is to go on with
    while index and not answers(messages[index - 1]):
        index -= 1
    while index and answers(messages[index - 1]):
        index -= 1
    return index - 1 if index else None
