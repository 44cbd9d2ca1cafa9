"""Where a request parts from the one that it continues: every change in the order of the prefix, with its cause.

Changes are told by bytes alone. Whether one costs anything is left to ``attribution``.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, final

import attrs

from promptkeel.forensics.causes import Cause
from promptkeel.forensics.requests import Kept, Place
from promptkeel.forensics.volatile import differences

_MOST: Final = 4_000_000
"""Pairs of places that are aligned at most; beyond, only what begins and ends alike is."""
_MEDIA: Final = ("image", "document")
_REORDERED: Final = {"tools": Cause.TOOLS_REORDERED, "system": Cause.SYSTEM_REORDERED,
                     "messages": Cause.HISTORY_REORDERED}  # fmt: skip
_CHANGED: Final = {"tools": Cause.TOOLS_CHANGED, "system": Cause.SYSTEM_EDITED, "messages": Cause.HISTORY_EDITED}


@final
@attrs.frozen(order=False)
class Change:
    """One place where a request says something else than the one before it.

    Attributes:
        cause: what kind of change it is.
        index: at which place of the request; the count of its places for its end.
        offset: how many characters of the place come before it.
        before: the place of the earlier request; None where there is none.
        before_offset: how many characters of that come before it.
    """

    cause: Cause
    index: int
    offset: int = 0
    before: int | None = None
    before_offset: int = 0


@final
@attrs.frozen(order=False)
class Divergence:
    """Everything in which a request differs from the one before it.

    Attributes:
        shared: how many places begin alike.
        changes: in the order of the prefix.
        pairs: for each place that the earlier request holds too, in the same or in another form, that one's place.
        has_answer: whether the request holds the answer to the earlier one.
        replaces_end: whether the end of the earlier request is not in this one.
    """

    shared: int
    changes: tuple[Change, ...]
    pairs: Mapping[int, int]
    has_answer: bool
    replaces_end: bool


def shared_places(one: Sequence[Place], other: Sequence[Place]) -> int:
    """How many places of two requests begin alike."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a is not b and (a.exact != b.exact or a.segment.section != b.segment.section):
            break
        count += 1
    return count


def diverge(before: Kept, after: Kept, *, is_start: bool = False) -> Divergence:
    """How a request differs from an earlier one.

    Args:
        before: the earlier request.
        after: the request.
        is_start: whether it begins a conversation of its own: then only bytes that are volatile, and how they are
            spelled, are changes; all else is its own.
    """
    shared = shared_places(before.places, after.places)
    work = _Comparison(before, after)
    work.pair_up(range(shared), range(shared))
    for section in ("tools", "system"):
        if not work.compare_lead(section, is_start=is_start):
            break
    else:
        if not is_start:
            work.compare_messages()
    work.compare_key_orders()
    # Where nothing of the earlier request's messages is left, only what leads to them is expected.
    last = max(work.pairs, default=-1)
    has_answer = any(place.segment.role in ("assistant", "model") for place in after.places[max(shared, last + 1) :])
    changes = sorted(work.changes, key=lambda change: (change.index, change.offset))
    return Divergence(
        shared, tuple(changes), work.pairs, has_answer, bool(before.places) and
        (len(before.places) - 1) not in set(work.pairs.values()),
    )  # fmt: skip


@final
class _Comparison:
    def __init__(self, before: Kept, after: Kept) -> None:
        self._before: Final = before
        self._after: Final = after
        self.changes: list[Change] = []
        self.pairs: dict[int, int] = {}

    def pair_up(self, before: Iterable[int], after: Iterable[int]) -> None:
        self.pairs.update(zip(after, before, strict=False))

    def compare_lead(self, section: str, *, is_start: bool) -> bool:
        """Compare the tools or the system blocks; whether what comes behind them is to be compared too."""
        old, new = _section(self._before.places, section), _section(self._after.places, section)
        a, b = self._before.places, self._after.places
        if _exact(a, old) == _exact(b, new):
            self.pair_up(old, new)
            return True
        first = new.start + shared_places(a[old.start : old.stop], b[new.start : new.stop])
        is_same = Counter(_sense(a, old)) == Counter(_sense(b, new))
        if is_start and not is_same:
            return False
        if section == "tools" and not is_same:
            at = old.start + first - new.start
            self.changes.append(Change(Cause.TOOLS_CHANGED, first, 0, at if at < old.stop else None))
            names = {_name(a[index]): index for index in old}
            self.pairs.update({index: names[_name(b[index])] for index in new if _name(b[index]) in names})
            return True
        known = len(self.changes)
        order = self._order(old, new)
        if order is None or order == list(old):
            self._align(old, new, section)
        else:
            self._reordered(order, old, new, section)
        if is_start and any(change.cause in (Cause.COUNTER, _CHANGED[section]) for change in self.changes[known:]):
            # Between conversations, a number is whose they are rather than a count.
            del self.changes[known:]
            for index in [each for each in self.pairs if each >= first]:
                del self.pairs[index]
            return False
        return True

    def compare_messages(self) -> None:
        old, new = _section(self._before.places, "messages"), _section(self._after.places, "messages")
        a, b = self._before.places, self._after.places
        shared = shared_places(a[old.start : old.stop], b[new.start : new.stop])
        self.pair_up(range(old.start, old.start + shared), range(new.start, new.start + shared))
        old, new = range(old.start + shared, old.stop), range(new.start + shared, new.stop)
        if not old or not new:
            return
        if self._is_last_message(old.start) and a[old.start].sense != b[new.start].sense:
            # The newest message of the request before is not kept in the history: nothing behind it could be.
            return
        same = range(new.start, min(new.start + len(old), new.stop))
        order = self._order(old, same)
        if order is not None and order != list(old):
            self._reordered(order, old, same, "messages")
            return
        self._align(self._without_tail(old, new), new, "messages")

    def compare_key_orders(self) -> None:
        """Find objects whose keys came in another order, which canonical JSON hides."""
        before, after = dict(self._before.record.key_orders), dict(self._after.record.key_orders)
        if before == after:
            return
        groups: dict[tuple[str, int], list[int]] = {}
        for index, place in enumerate(self._after.places):
            groups.setdefault((place.segment.section, self._after.messages[index]), []).append(index)
        for group, indices in groups.items():
            others = [self.pairs.get(index) for index in indices]
            if group not in after or not self._is_same(indices, others):
                continue
            first = others[0]
            theirs = None if first is None else before.get((group[0], self._before.messages[first]))
            if theirs is not None and theirs != after[group]:
                self.changes.append(Change(Cause.KEY_ORDER, indices[0], 0, first))

    def _is_same(self, indices: Sequence[int], others: Sequence[int | None]) -> bool:
        """Whether places hold the same bytes as the ones that they are paired with, in the same order."""
        return all(
            other is not None
            and other - index == (others[0] or 0) - indices[0]
            and self._after.places[index].exact == self._before.places[other].exact
            for index, other in zip(indices, others, strict=True)
        )

    def _is_last_message(self, index: int) -> bool:
        return self._before.messages[index] == self._before.messages[-1]

    def _without_tail(self, old: range, new: range) -> range:
        """The places of the earlier request without what its newest message alone held, in whatever form."""
        newest = self._after.messages[-1]
        exact = {self._after.places[index].exact for index in new}
        sense = {self._after.places[index].sense for index in new if self._after.messages[index] != newest}
        stop = old.stop
        while stop > old.start and self._is_last_message(stop - 1):
            place = self._before.places[stop - 1]
            if place.exact in exact or place.sense in sense:
                break
            stop -= 1
        return range(old.start, stop) if not self._is_last_message(old.start) else old

    def _reordered(self, order: list[int], old: range, new: range, section: str) -> None:
        """Places in another order: each stands for the one that stood there, and may be edited besides."""
        moved = next(index for index, was, own in zip(new, order, old, strict=True) if was != own)
        self.changes.append(Change(_REORDERED[section], moved, 0, old.start + moved - new.start))
        for index, was, own in zip(new, order, old, strict=True):
            self._edited(was, index, section, at=own)

    def _order(self, old: range, new: range) -> list[int] | None:
        """The earlier place that each place was, where each was one: in the same sense, or much alike."""
        if len(old) != len(new):
            return None
        a, b = self._before.places, self._after.places
        free, order = list(old), []
        for index in new:
            same = [before for before in free if a[before].sense == b[index].sense]
            found = same or [before for before in free if _alike(a[before], b[index])]
            if not found:
                return None
            own = old.start + index - new.start
            order.append(own if own in found else found[0])
            free.remove(order[-1])
        return order

    def _align(self, old: range, new: range, section: str) -> None:
        a, b = self._before.places, self._after.places
        operations = _operations(_sense(a, old), _sense(b, new))
        matched = [j2 for kind, _, _, _, j2 in operations if kind == "equal"]
        end = matched[-1] if matched else 0
        is_moved, is_told = self._is_moved(operations, old, new, end), False
        is_history = section == "messages"
        left: tuple[list[int], list[int]] = ([], [])
        for kind, i1, i2, j1, j2 in operations:
            was, now = range(old.start + i1, old.start + i2), range(new.start + j1, new.start + j2)
            if kind == "equal":
                for index, before in zip(now, was, strict=True):
                    self._edited(before, index, section)
                continue
            if is_history and j1 >= end:
                self._tail(was, now, section)
            elif is_moved:
                if not is_told:
                    self.changes.append(Change(_REORDERED[section], now.start, 0, was.start if was else None))
                    is_told = True
                left[0].extend(was)
                left[1].extend(now)
            else:
                self._replaced(was, now, section)
        self.pair_up(*left)

    def _is_moved(self, operations: Sequence[tuple[str, int, int, int, int]], old: range, new: range, end: int) -> bool:
        """Whether what is left out in one place comes in another."""
        gone: Counter[int] = Counter()
        come: Counter[int] = Counter()
        for kind, i1, i2, j1, j2 in operations:
            if kind != "equal":
                gone.update(self._before.places[old.start + index].sense for index in range(i1, i2))
                if j1 < end:
                    come.update(self._after.places[new.start + index].sense for index in range(j1, j2))
        both = sum((gone & come).values())
        return both > 0 and 2 * both >= sum(come.values())

    def _replaced(self, was: range, now: range, section: str) -> None:
        if section != "messages":
            self._pair_edited(was, now, section)
            return
        kinds = {self._before.places[index].segment.kind for index in was}
        at = was.start if was else None
        if not now:
            cause = Cause.REASONING_REMOVED if kinds == {"reasoning"} else Cause.HISTORY_TRIMMED
            self.changes.append(Change(cause, now.start, 0, at))
        elif len(was) >= len(now) + 2:
            self.changes.append(Change(Cause.HISTORY_COMPACTED, now.start, 0, at))
        else:
            self._pair_edited(was, now, section)

    def _pair_edited(self, was: range, now: range, section: str) -> None:
        for before, index in zip(was, now, strict=False):
            self._edited(before, index, section)
        if len(was) != len(now):
            least = min(len(was), len(now))
            before_at = was.start + least if least < len(was) else None
            self.changes.append(Change(_CHANGED[section], now.start + least, 0, before_at))

    def _tail(self, was: range, now: range, section: str) -> None:
        """The ends of both: an edit where they are alike, else an answer that was given anew, or a branch."""
        for before, index in zip(was, now, strict=False):
            if not _alike(self._before.places[before], self._after.places[index]):
                return
            self._edited(before, index, section)

    def _edited(self, before: int, index: int, section: str, *, at: int | None = None) -> None:
        """Tell how two places differ, and pair them, or the later one with the place that it stands at."""
        old, new = self._before.places[before], self._after.places[index]
        self.pairs[index] = before if at is None else at
        if old.exact == new.exact:
            return
        if new.segment.kind in _MEDIA and old.segment.kind == new.segment.kind:
            self.changes.append(Change(Cause.MEDIA_REENCODED, index, 0, before))
            return
        changed = _CHANGED[section]
        for spot in differences(old.segment.content, new.segment.content):
            self.changes.append(Change(spot.cause or changed, index, spot.after, before, spot.before))


def _section(places: Sequence[Place], section: str) -> range:
    inside = [index for index, place in enumerate(places) if place.segment.section == section]
    if inside:
        return range(inside[0], inside[-1] + 1)
    before = {"tools": (), "system": ("tools",), "messages": ("tools", "system")}[section]
    start = sum(place.segment.section in before for place in places)
    return range(start, start)


def _exact(places: Sequence[Place], indices: range) -> list[int]:
    return [places[index].exact for index in indices]


def _sense(places: Sequence[Place], indices: range) -> list[int]:
    return [places[index].sense for index in indices]


def _operations(old: list[int], new: list[int]) -> list[tuple[str, int, int, int, int]]:
    if len(old) * len(new) <= _MOST:
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        return [(kind, i1, i2, j1, j2) for kind, i1, i2, j1, j2 in matcher.get_opcodes()]
    least = min(len(old), len(new))
    start = next((index for index in range(least) if old[index] != new[index]), least)
    end = next((index for index in range(least - start) if old[-1 - index] != new[-1 - index]), least - start)
    operations = [("equal", 0, start, 0, start), ("replace", start, len(old) - end, start, len(new) - end),
                  ("equal", len(old) - end, len(old), len(new) - end, len(new))]  # fmt: skip
    return [each for each in operations if each[1] < each[2] or each[3] < each[4]]


def _name(place: Place) -> str:
    """What tells a tool from others: its name, in whatever format."""
    content = place.segment.content
    at = content.find('"name":')
    return content[at : content.find('"', at + 8) + 1] if at >= 0 else content


def _alike(one: Place, other: Place) -> bool:
    """Whether two places are likely one that was edited."""
    if (one.segment.kind, one.segment.role) != (other.segment.kind, other.segment.role):
        return False
    if one.segment.kind in _MEDIA or one.sense == other.sense:
        return True
    matcher = difflib.SequenceMatcher(
        None, one.segment.content[:4000].split(), other.segment.content[:4000].split(), autojunk=False
    )
    return matcher.ratio() > 0.5
