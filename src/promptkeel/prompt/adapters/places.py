"""The positions of a request's prefix, as the planner of marks sees them, and where a chosen mark goes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple, final

from promptkeel.prompt.layout import Durability
from promptkeel.providers.rules import ModelRules
from promptkeel.providers.segments import Kind, Mark, Section
from promptkeel.tokens import TokenCounter


@final
class Place(NamedTuple):
    """One position of a prefix.

    Attributes:
        section: where it stands.
        kind: what it is.
        tokens: how many it has, counted until a prefix is long enough to be kept, and by its length from there on.
        durability: which requests share the prefix up to here.
        message: the index of its message among all that are sent; -1 in tools and system.
        part: its index there.
        mark: the mark that it has already.
    """

    section: Section
    kind: Kind
    tokens: int
    durability: Durability
    message: int
    part: int
    mark: Mark | None


@final
class Places:
    """The positions of one request while they are collected.

    Args:
        rules: of the model.
        counter: what counts tokens.
    """

    def __init__(self, rules: ModelRules, counter: TokenCounter) -> None:
        self.found: list[Place] = []
        self._counter = counter
        self._uncounted = 2 * rules.minimum
        self._narrowest: Durability = "deployment"

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
        """Add a position whose tokens are known."""
        self._uncounted -= tokens
        self.found.append(Place(section, kind, tokens, durability, message, part, mark))

    def add_part(self, kind: Kind, content: object, message: int, part: int, mark: Mark | None) -> None:
        """Add a position of a message of the caller's."""
        if isinstance(content, str):
            tokens = self._counter(content) if self._uncounted > 0 else (len(content) + 3) >> 2
        else:
            # Nothing depends on the rest of a long history being counted well.
            tokens = self._counter(json.dumps(content, default=repr)) if self._uncounted > 0 else 1
        self._uncounted -= tokens
        self.found.append(Place("messages", kind, tokens, "conversation", message, part, mark))


def chosen(places: Sequence[Place], rules: ModelRules) -> tuple[dict[int, int | None], tuple[str, ...]]:
    """The positions that get a mark, each with its TTL in seconds, and notes."""
    room = rules.marks - sum(place.mark is not None for place in places)
    found: dict[int, int | None] = {}
    wanted: list[int] = []
    total = 0
    long_enough = []
    for index, place in enumerate(places):
        total += place.tokens
        if place.tokens and place.kind not in rules.unmarkable and total >= rules.minimum:
            long_enough.append(index)
    for durability in ("deployment", "tenant"):
        of = [index for index in long_enough if places[index].durability == durability]
        if of:
            wanted.append(of[-1])
    base = [index for index in long_enough if places[index].message < 0]
    for index in (*long_enough[-1:], *base[-1:], *wanted):
        if room > 0 and index not in found and places[index].mark is None:
            found[index] = None
            room -= 1
    return found, ()
