"""Which earlier request each request continues: conversations, their branches, and starts beside each other.

A request continues the one with which its messages have most in common; of several the newest. One whose messages it
holds whole goes before, unless another is that one's own continuation, and most of it is there too: then it was edited.
Where the log names sessions, only a request of the same one is continued. What continues nothing is a
start, and is held against the newest request with the same beginning.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Final, final

import attrs

from promptkeel.forensics.divergence import shared_places
from promptkeel.forensics.reading import Record
from promptkeel.forensics.requests import Kept, Place

_KEPT: Final = 4096
"""So many requests are remembered, newest first."""
_CHARACTERS: Final = 128 * 1024 * 1024
"""And so much text."""
_TAIL: Final = 4
"""By so many of its last places a request is found again."""
_PER_PLACE: Final = 6
_COMPARED: Final = 8
_KEYS: Final = 400_000
_CLOSE: Final = 0.8
"""Such a share of what the shorter of two requests says must be in both, where equal bytes count twice."""


@final
@attrs.frozen(order=False, eq=False)
class Origin:
    """What a request continues.

    Attributes:
        request: the earlier request.
        is_start: whether only the beginning of it is shared.
    """

    request: Kept
    is_start: bool


@final
class Threads:
    """The requests that later ones may continue, in bounded memory."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self._characters = 0
        self._index: dict[tuple[object, ...], deque[int]] = {}

    def origin(self, places: tuple[Place, ...], record: Record) -> Origin | None:
        """What a request continues; None where nothing of it was seen before.

        Args:
            places: the request's places.
            record: the request.
        """
        request = record.request
        if request.handle is not None:
            for number in self._found([("response", request.handle), ("handle", request.handle)]):
                return Origin(self._kept[number], is_start=False)
        continued = self._best(places, self._candidates(places, record), record.session)
        if continued is not None:
            return Origin(continued, is_start=False)
        keys = [(*key, request.format, request.model) for key in _beginnings(places)]
        starts = [self._kept[number] for number in self._found(keys)]
        best = max(starts, key=lambda kept: (_beginning(places, kept), kept.number), default=None)
        return None if best is None else Origin(best, is_start=True)

    def keep(self, kept: Kept) -> None:
        """Remember a request."""
        record, request = kept.record, kept.record.request
        self._kept[kept.number] = kept
        self._characters += kept.fresh
        for sense in _tails(kept.places):
            self._add(("tail", sense, request.format), kept.number)
        for key in _beginnings(kept.places):
            self._add((*key, request.format, request.model), kept.number)
        if record.session is not None:
            self._add(("session", record.session, request.format), kept.number)
        if record.response_id is not None:
            self._add(("response", record.response_id), kept.number)
        if request.handle is not None:
            self._add(("handle", request.handle), kept.number)
        while len(self._kept) > _KEPT or (self._characters > _CHARACTERS and len(self._kept) > 1):
            _, oldest = self._kept.popitem(last=False)
            self._characters -= oldest.fresh
        if len(self._index) > _KEYS:
            self._index = {key: found for key, found in self._index.items() if any(n in self._kept for n in found)}

    def _add(self, key: tuple[object, ...], number: int) -> None:
        self._index.setdefault(key, deque(maxlen=_PER_PLACE)).append(number)

    def _found(self, keys: Iterable[tuple[object, ...]]) -> Iterator[int]:
        """The numbers of remembered requests under any of the keys, the newest of each key first."""
        for key in keys:
            for number in reversed(self._index.get(key, ())):
                if number in self._kept:
                    yield number

    def _candidates(self, places: tuple[Place, ...], record: Record) -> list[Kept]:
        session, wire_format = record.session, record.request.format
        votes = Counter(self._found({("tail", place.sense, wire_format): None for place in _messages(places)}))
        if session is not None:
            votes.update(set(self._found([("session", session, wire_format)])))
        found = [number for number, _ in sorted(votes.items(), key=lambda each: (-each[1], -each[0]))]
        candidates = [self._kept[number] for number in found]
        candidates = [each for each in candidates if each.record.session in (session, None) or session is None]
        newest = max(candidates, key=lambda each: each.number, default=None)
        chosen = candidates[:_COMPARED]
        return chosen if newest is None or newest in chosen else [*chosen, newest]

    def _best(self, places: tuple[Place, ...], candidates: list[Kept], session: str | None) -> Kept | None:
        new = _messages(places)
        scored = [_Candidate(kept, new) for kept in candidates]
        whole = max((each for each in scored if each.is_whole), key=_Candidate.rank, default=None)
        enough = sum(_weight(place) for place in new)
        best = max((each for each in scored if each.is_close(enough, session)), key=_Candidate.rank, default=None)
        if whole is None or best is None or best.is_whole:
            return None if best is None else best.kept
        # Another one has more in common: the same conversation, edited, or another one that says the same things.
        is_edit = best.shared >= len(whole.messages) and best.common - best.begun >= best.rest
        return best.kept if is_edit else whole.kept


@final
class _Candidate:
    """An earlier request, against the messages of a later one."""

    def __init__(self, kept: Kept, new: list[Place]) -> None:
        self.kept: Final = kept
        self.messages: Final = _messages(kept.places)
        self.shared: Final = shared_places(self.messages, new)
        self.is_whole: Final = 0 < self.shared == len(self.messages)
        self.begun: Final = sum(2 * _weight(place) for place in new[: self.shared])
        self.rest: Final = sum(_weight(place) for place in self.messages[self.shared :])
        self.common: Final = self.begun + _common(self.messages[self.shared :], new[self.shared :])

    def is_close(self, weight: int, session: str | None) -> bool:
        """Whether they have enough in common for one to continue the other.

        Args:
            weight: of the messages of the later request.
            session: its session; within one, anything in common is enough.
        """
        if session is not None and session == self.kept.record.session:
            return self.common > 0
        own = self.rest + self.begun // 2
        return self.common > 0 and self.common >= _CLOSE * min(weight, own)

    def rank(self) -> tuple[int, int, int]:
        """How much there is in common, in tokens; in places from the beginning on; and how new it is."""
        return self.common, self.shared, self.kept.number


def _messages(places: tuple[Place, ...]) -> list[Place]:
    return [place for place in places if place.segment.section == "messages"]


def _tails(places: tuple[Place, ...]) -> list[int]:
    messages = _messages(places)
    return list(dict.fromkeys(each.sense for each in (*messages[:1], *messages[-_TAIL:])))


def _beginnings(places: tuple[Place, ...]) -> list[tuple[object, ...]]:
    """What the start of a conversation is found by: its whole lead, its tools, its first place, in exact and sense."""
    lead = [place for place in places if place.segment.section != "messages"]
    tools = [place for place in lead if place.segment.section == "tools"]
    keys: list[tuple[object, ...]] = []
    if lead:
        keys.append(("lead", *(place.exact for place in lead)))
        keys.append(("lead-sense", *sorted(place.sense for place in lead)))
    if tools:
        keys.append(("tools", *sorted(place.sense for place in tools)))
    if places:
        keys.append(("first", places[0].exact))
    return keys


def _beginning(places: tuple[Place, ...], kept: Kept) -> int:
    """How much of its lead a start has in common with an earlier request, in tokens."""
    lead = Counter(place.sense for place in kept.places if place.segment.section != "messages")
    common = 0
    for place in places:
        if place.segment.section == "messages":
            break
        if lead[place.sense]:
            lead[place.sense] -= 1
            common += 1 + place.tokens
    return common + shared_places(places, kept.places)


def _common(old: list[Place], new: list[Place]) -> int:
    """How much of two requests' messages is the same, in tokens: once in sense, and once more in its bytes."""
    senses, bytes_ = Counter(place.sense for place in old), Counter(place.exact for place in old)
    common = 0
    for place in new:
        if senses[place.sense]:
            senses[place.sense] -= 1
            common += _weight(place)
        if bytes_[place.exact]:
            bytes_[place.exact] -= 1
            common += _weight(place)
    return common


def _weight(place: Place) -> int:
    """What a place counts for: pictures are sent in many conversations."""
    return 1 if place.segment.kind in ("image", "document") else 1 + place.tokens
