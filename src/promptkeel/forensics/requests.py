"""A request as forensics keeps it: its places with tokens and two hashes, one of the bytes and one of their sense.

Equal places are one object, so that a conversation costs its text once however often it is sent. Hashes are of this
process.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Sequence
from typing import Final, final

import attrs

from promptkeel.forensics.reading import Record
from promptkeel.forensics.volatile import loose
from promptkeel.providers.counting import tokens_of
from promptkeel.providers.rules import ModelRules
from promptkeel.providers.segments import Segment, WireRequest
from promptkeel.tokens import TokenCounter

_MESSAGES_ONLY: Final = frozenset({
    "tool_choice", "toolChoice", "thinking", "output_config", "effort",
})  # fmt: skip
"""Settings that void what is kept of the messages alone, on caches with marks."""


@final
@attrs.frozen(order=False, eq=False)
class Place:
    """A segment, seen once.

    Attributes:
        segment: the segment.
        exact: a hash of its bytes, kind and role.
        sense: a hash of the same without what is volatile and how it is spelled.
        tokens: about how many it has.
    """

    segment: Segment
    exact: int
    sense: int
    tokens: int


@final
@attrs.frozen(order=False, eq=False)
class Kept:
    """A request of the log, and what may be asked of it later.

    Attributes:
        number: which request of the log it is.
        record: the log's record, without its segments, which are in ``places``.
        rules: what its provider does with the prompts of its model.
        places: its positions.
        messages: the index of the message of each.
        sums: the tokens before each place, and all of them last, in the provider's own count where that is known.
        names: a name for the prefix that ends at each place, together with the settings that it depends on.
        marks: the marked places whose marks count, each with its seconds.
        dropped: marked places whose marks are too many.
        begins: where the messages begin.
        fresh: the characters that no request before it holds.
    """

    number: int
    record: Record
    rules: ModelRules
    places: tuple[Place, ...]
    messages: array[int]
    sums: array[int]
    names: array[int]
    marks: tuple[tuple[int, int], ...]
    dropped: tuple[tuple[int, int], ...]
    begins: int
    fresh: int

    @property
    def total(self) -> int:
        """All tokens of the prompt."""
        return self.sums[-1]


@final
class Places:
    """Makes places of segments, each once.

    Args:
        counter: counts tokens where the provider's own count does not say.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter: Final = counter
        self._known: weakref.WeakValueDictionary[Segment, Place] = weakref.WeakValueDictionary()

    def of(self, segments: Sequence[Segment]) -> tuple[tuple[Place, ...], int]:
        """The places of segments, and how many characters of them are new."""
        places, fresh = [], 0
        for given in segments:
            # Where a message stands is no part of what it says.
            segment = given if given.message < 1 else attrs.evolve(given, message=0)
            place = self._known.get(segment)
            if place is None:
                place = self._new(segment)
                self._known[segment] = place
                fresh += len(segment.content)
            places.append(place)
        return tuple(places), fresh

    def _new(self, segment: Segment) -> Place:
        head = segment.section == "messages", segment.kind, segment.role
        # The same text with a mark and without one is counted and compared once.
        bare = segment if segment.mark is None else attrs.evolve(segment, mark=None)
        known = self._known.get(bare) if bare is not segment else None
        if known is not None:
            return Place(segment, known.exact, known.sense, known.tokens)
        content = segment.content
        return Place(
            segment,
            hash((head, content)),
            hash((head, loose(content) if content else "")),
            tokens_of(segment, self._counter) if content else 0,
        )


def sums_of(places: Sequence[Place], total: int | None, before: Kept | None, shared: int) -> array[int]:
    """The tokens before each place, and all of them last.

    Args:
        places: the places.
        total: the provider's count of all of them; None where it is not known.
        before: a request that begins alike, in the same count.
        shared: how many places begin alike.
    """
    counts = [place.tokens for place in places]
    start, first = 0, 0
    if total is not None and before is not None and before.record.usage is not None:
        first, start = shared, before.sums[shared]
        if start > total or (shared == len(places) and start != total):
            first, start = 0, 0
    sums = array("q", [0] if first == 0 or before is None else before.sums[: first + 1])
    estimated = sum(counts[first:])
    rest = estimated if total is None else total - start
    done = 0
    for count in counts[first:]:
        done += count
        sums.append(start + (done if total is None else done * rest // estimated if estimated else 0))
    if total is not None:
        sums[-1] = total if len(sums) > 1 else 0
    return sums


def names_of(record: Record, places: Sequence[Place], begins: int) -> array[int]:
    """A name for the prefix that ends at each place."""
    whole = [each for each in record.request.settings if each[0] not in _MESSAGES_ONLY]
    rest = [each for each in record.request.settings if each[0] in _MESSAGES_ONLY]
    name = hash((record.request.model, tuple(sorted(whole)), record.gateway))
    names = array("q")
    for index, place in enumerate(places):
        if index == begins:
            name = hash((name, tuple(sorted(rest))))
        if place.segment.content:
            name = hash((name, place.segment.section, place.exact))
        names.append(name)
    return names


def is_of_messages(setting: str, rules: ModelRules) -> bool:
    """Whether a setting decides only about what is kept of the messages."""
    return rules.scheme == "marks" and setting in _MESSAGES_ONLY


def marks_of(request: WireRequest, rules: ModelRules) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The marked places whose marks count, and those whose marks are too many, each with its seconds."""
    if rules.scheme != "marks":
        return [], []
    default = rules.ttls[0]
    found = {
        index: default if segment.mark.ttl is None else segment.mark.ttl
        for index, segment in enumerate(request.segments)
        if segment.mark is not None and segment.kind not in rules.unmarkable
    }
    if request.automatic is not None:
        bearing = [index for index, each in enumerate(request.segments) if each.kind not in rules.unmarkable]
        for index in bearing[-1:]:
            found.setdefault(index, default if request.automatic.ttl is None else request.automatic.ttl)
    ordered = sorted(found.items())
    count = max(len(ordered) - rules.marks, 0)
    return ordered[count:], ordered[:count]
