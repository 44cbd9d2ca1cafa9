"""A lane that follows its store: rows in, facts and revision out, a few changed rows at a time.

A lane is a sequence of segments of whole nodes, cut where the digest's chunks are cut, so that a changed node costs its
segment and the root, not the lane. A ``Lane`` never changes; an updated one shares the untouched segments. Whatever the
updates were, it equals the lane that is built from its rows afresh.

A segment has 128 facts on average. A hostile writer who avoids cuts (see ``digest``) makes a segment, and so the
price of an update, as large as the lane; the answer stays right.
"""

from __future__ import annotations

import gc
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain
from operator import itemgetter
from typing import Final, final

from promptkeel.errors import ScannerError
from promptkeel.forks import after_fork
from promptkeel.instants import EARLIEST, LATEST
from promptkeel.lane.digest import encode_facts, format_revision, is_cut, root_digest
from promptkeel.lane.facts import RowFacts, check_declared, check_prefix, read_rows
from promptkeel.lane.order import OrderKey, row_key, row_order, scope_root, sort_rows
from promptkeel.model import BlockFact, BlockRevision, Unreadable
from promptkeel.store.base import LaneRow, LaneUpdate, NodeKey

_REBUILD_FROM: Final = 64
_REBUILD_SHARE: Final = 8
_RECENT_FROM: Final = 256
_RECENT_SHARE: Final = 16


class _Pauses:
    """How many pauses there are, and whether the first of them found the collector at work."""

    __slots__ = ("depth", "lock", "was_enabled")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth = 0
        self.was_enabled = False


class _CollectorPause:
    """Keeps the cyclic garbage collector from walking a lane's tuples again and again while they are made.

    Nested and concurrent pauses share one count; the last to end restores what the first one found.
    """

    def __init__(self) -> None:
        self._pauses = _Pauses()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        pauses = self._pauses
        with pauses.lock:
            if pauses.depth == 0:
                pauses.was_enabled = gc.isenabled()
                gc.disable()
            pauses.depth += 1
        try:
            yield
        finally:
            with pauses.lock:
                pauses.depth -= 1
                if pauses.depth == 0 and pauses.was_enabled:
                    gc.enable()

    def begin_anew(self) -> None:
        """In a forked child: the threads whose pauses these were, and the lock that one may have held, are not here."""
        before, self._pauses = self._pauses, _Pauses()
        if before.depth and before.was_enabled:
            gc.enable()


_collector_paused = _CollectorPause()
after_fork(_collector_paused, _CollectorPause.begin_anew)


_updated: Final = itemgetter(6)


def _newest(rows: Sequence[LaneRow]) -> int | None:
    known: list[int | None] = list(map(_updated, rows))
    try:
        return _newest_in_range(known)  # type: ignore[arg-type]
    except TypeError:
        return _newest_in_range([instant for instant in known if instant is not None])


def _newest_in_range(instants: list[int]) -> int | None:
    newest = max(instants, default=None)
    if newest is None or EARLIEST <= newest <= LATEST:
        return newest
    return max([instant for instant in instants if EARLIEST <= instant <= LATEST], default=None)


@final
class _Segment:
    """Whole nodes in lane order, from one cut to the next; never changed once made."""

    __slots__ = ("chunks", "counts", "facts", "last", "newest", "rows", "unreadable")

    def __init__(
        self,
        rows: list[LaneRow],
        facts: tuple[BlockFact, ...],
        counts: list[int] | None,
        chunks: bytes,
        unreadable: tuple[tuple[LaneRow, Unreadable], ...],
    ) -> None:
        self.rows = rows
        self.facts = facts
        self.counts = counts
        self.chunks = chunks
        self.unreadable = unreadable
        self.last: OrderKey = row_order(rows[-1])
        self.newest = _newest(rows)


@final
class _Stretch:
    """The contents of one or more segments while they are being changed."""

    __slots__ = ("counts", "facts", "rows", "unreadable")

    def __init__(self, segments: Iterable[_Segment] = ()) -> None:
        self.rows: list[LaneRow] = []
        self.facts: list[BlockFact] = []
        self.counts: list[int] = []
        self.unreadable: list[tuple[LaneRow, Unreadable]] = []
        for segment in segments:
            self.append(segment)

    def append(self, segment: _Segment) -> None:
        """Add a segment at the end."""
        self.rows += segment.rows
        self.facts += segment.facts
        self.counts += [1] * len(segment.rows) if segment.counts is None else segment.counts
        self.unreadable += segment.unreadable

    def remove(self, row: LaneRow) -> None:
        """Take one row out."""
        position = bisect_left(self.rows, row_order(row), key=row_order)
        start = sum(self.counts[:position])
        del self.facts[start : start + self.counts[position]]
        del self.rows[position], self.counts[position]
        self.unreadable = [entry for entry in self.unreadable if entry[0] is not row]

    def insert(self, row: LaneRow, facts: Sequence[BlockFact], unreadable: Iterable[Unreadable]) -> None:
        """Put one row in its place."""
        position = bisect_left(self.rows, row_order(row), key=row_order)
        start = sum(self.counts[:position])
        self.facts[start:start] = facts
        self.rows.insert(position, row)
        self.counts.insert(position, len(facts))
        added = [(row, entry) for entry in unreadable]
        if added:
            self.unreadable = sorted(self.unreadable + added, key=lambda entry: row_order(entry[0]))

    def ends_at_cut(self) -> bool:
        """Whether the next segment stands on its own."""
        return not self.rows or (self.counts[-1] > 0 and is_cut(self.facts[-1]))

    def segments(self) -> list[_Segment]:
        """The contents cut into segments."""
        counts = None if self.counts.count(1) == len(self.counts) else self.counts
        return _cut(self.rows, RowFacts(self.facts, encode_facts(self.facts), counts, self.unreadable))


def _cut(rows: list[LaneRow], stated: RowFacts) -> list[_Segment]:
    """Rows that begin after a cut, as segments."""
    records, counts = stated.records, stated.counts
    ends = None if counts is None else list(accumulate(counts))
    segments: list[_Segment] = []
    chunks: list[bytes] = []
    fact = row = chunk_start = 0
    reported = iter(stated.unreadable)
    entry = next(reported, None)
    for cut in (*records.cuts(), None):
        chunk_end = len(records) if cut is None else cut
        if chunk_end > chunk_start:
            chunks.append(records.chunk(chunk_start, chunk_end))
            chunk_start = chunk_end
        if cut is None:
            next_row = len(rows)
        elif ends is None:
            next_row = cut
        else:
            position = bisect_left(ends, cut)
            if ends[position] != cut:
                continue
            next_row = position + 1
        if next_row == row:
            continue
        unreadable: list[tuple[LaneRow, Unreadable]] = []
        last = rows[next_row - 1]
        while entry is not None and row_order(entry[0]) <= row_order(last):
            unreadable.append(entry)
            entry = next(reported, None)
        segments.append(
            _Segment(
                rows[row:next_row],
                tuple(stated.facts[fact:chunk_end]),
                None if counts is None else counts[row:next_row],
                b"".join(chunks),
                tuple(unreadable),
            )
        )
        chunks.clear()
        row, fact = next_row, chunk_end
    return segments


@final
class Lane:
    """The nodes of one label prefix at one scope: their facts in order, and the revision.

    Attributes:
        prefix: the label prefix.
        profile_fields: the declared fields, by name.
        count: how many nodes were read.
        revision: identifies the facts, in every process.
    """

    __slots__ = ("_facts", "_lasts", "_recent", "_rows", "_segments", "count", "prefix", "profile_fields", "revision")

    def __init__(
        self,
        prefix: str,
        profile_fields: tuple[str, ...],
        segments: list[_Segment],
        rows: Mapping[str, Mapping[str, LaneRow]],
        recent: dict[NodeKey, LaneRow | None],
    ) -> None:
        self.prefix = prefix
        self.profile_fields = profile_fields
        self._segments = segments
        self._lasts = [segment.last for segment in segments]
        self._rows = rows
        self._recent = recent
        self._facts: tuple[BlockFact, ...] | None = None
        self.count = sum(map(len, [segment.rows for segment in segments]))
        newest = max([segment.newest for segment in segments if segment.newest is not None], default=None)
        facts = sum(map(len, [segment.facts for segment in segments]))
        digest = root_digest(facts, [segment.chunks for segment in segments])
        self.revision = format_revision(self.count, newest, digest)

    @classmethod
    def build(cls, rows: Iterable[LaneRow], *, prefix: str, profile_fields: Iterable[str] = ()) -> Lane:
        """The lane of these rows, given in any order.

        Raises:
            ScannerError: a label has not the prefix, or a node is there twice.
            InvalidDeclarationError: the prefix or the fields cannot be that.
        """
        prefix, fields = check_declared(prefix, profile_fields)
        return cls._build(rows, prefix, fields)

    @classmethod
    def _build(cls, rows: Iterable[LaneRow], prefix: str, fields: tuple[str, ...]) -> Lane:
        with _collector_paused():
            ordered = sort_rows(rows)
            stated = read_rows(ordered, prefix, fields)
            lane = cls(prefix, fields, _cut(ordered, stated), _index(ordered), {})
            lane._facts = tuple(stated.facts)
        return lane

    def updated(self, update: LaneUpdate) -> Lane:
        """The lane after an update; this one stays as it is.

        Raises:
            ScannerError: as for ``build``.
        """
        if update.whole:
            return self._build(update.rows, self.prefix, self.profile_fields)
        added: dict[NodeKey, LaneRow] = {}
        for row in update.rows:
            check_prefix(row[0], self.prefix)
            added[row_key(row)] = row
        before = {key: self._find(key) for key in {*update.touched, *added}}
        changed = [key for key, old in before.items() if old != added.get(key)]
        if not changed:
            return self
        if len(changed) > max(_REBUILD_FROM, self.count // _REBUILD_SHARE):
            rows = {row_key(row): row for row in self._ordered_rows()}
            for key in changed:
                rows.pop(key, None)
            rows.update((key, added[key]) for key in changed if key in added)
            return self._build(rows.values(), self.prefix, self.profile_fields)
        removals = [old for key in changed if (old := before[key]) is not None]
        additions = sort_rows(added[key] for key in changed if key in added)
        segments = self._edit(removals, additions)
        recent: dict[NodeKey, LaneRow | None] = {**self._recent, **{key: added.get(key) for key in changed}}
        if len(recent) > max(_RECENT_FROM, self.count // _RECENT_SHARE):
            rows_now = list(chain.from_iterable(segment.rows for segment in segments))
            return Lane(self.prefix, self.profile_fields, segments, _index(rows_now), {})
        return Lane(self.prefix, self.profile_fields, segments, self._rows, recent)

    def _find(self, key: NodeKey) -> LaneRow | None:
        if key in self._recent:
            return self._recent[key]
        root, node_id = key
        return self._rows.get(root, {}).get(node_id)

    def _ordered_rows(self) -> Iterator[LaneRow]:
        return chain.from_iterable(segment.rows for segment in self._segments)

    def keys_at(self, path: str) -> list[NodeKey]:
        """The nodes of the lane that are at exactly this scope."""
        return [row_key(row) for row in self._ordered_rows() if row[3] == path]

    def _edit(self, removals: Sequence[LaneRow], additions: Sequence[LaneRow]) -> list[_Segment]:
        """The segments with some rows out and others in; what is not touched is shared."""
        edits: dict[int, list[tuple[LaneRow, Sequence[BlockFact] | None, list[Unreadable]]]] = {}
        for row in removals:
            edits.setdefault(self._segment_of(row), []).append((row, None, []))
        for row in additions:
            stated = read_rows([row], self.prefix, self.profile_fields)
            edit = (row, stated.facts, [entry for _, entry in stated.unreadable])
            edits.setdefault(self._segment_of(row), []).append(edit)
        segments: list[_Segment] = []
        position = 0
        for index in sorted(edits):
            if index < position:
                continue
            segments += self._segments[position:index]
            stretch = _Stretch()
            position = index
            while position < max(len(self._segments), index + 1):
                if position < len(self._segments):
                    stretch.append(self._segments[position])
                for row, facts, unreadable in edits.get(position, ()):
                    if facts is None:
                        stretch.remove(row)
                    else:
                        stretch.insert(row, facts, unreadable)
                position += 1
                if stretch.ends_at_cut():
                    break
            segments += stretch.segments()
        segments += self._segments[position:]
        return segments

    def _segment_of(self, row: LaneRow) -> int:
        """The position of the segment that holds a row or would take it in."""
        return min(bisect_left(self._lasts, row_order(row)), max(len(self._segments) - 1, 0))

    @property
    def facts(self) -> tuple[BlockFact, ...]:
        """The facts in lane order."""
        if self._facts is None:
            self._facts = tuple(chain.from_iterable(segment.facts for segment in self._segments))
        return self._facts

    @property
    def unreadable(self) -> tuple[Unreadable, ...]:
        """What could not be read, in lane order."""
        return tuple(entry for segment in self._segments for _, entry in segment.unreadable)

    def to_revision(self) -> BlockRevision:
        """The lane as a block's revision."""
        return BlockRevision(
            content="\n".join([fact[0] for fact in self.facts]),
            revision=self.revision,
            facts=self.facts,
            count=self.count,
            unreadable=self.unreadable,
        )

    def __repr__(self) -> str:
        return f"<Lane {self.prefix!r} {self.revision}>"


def _index(rows: Sequence[LaneRow]) -> dict[str, dict[str, LaneRow]]:
    """The rows by scope root and id.

    Raises:
        ScannerError: a node is there twice.
    """
    ids = map(itemgetter(2), rows)
    roots = {path: scope_root(path) for path in set(map(itemgetter(3), rows))}
    index: dict[str, dict[str, LaneRow]] = {}
    for root in set(roots.values()):
        within = {path for path, its_root in roots.items() if its_root == root}
        if len(within) == len(roots):
            index[root] = dict(zip(ids, rows, strict=False))
        else:
            those = [row for row in rows if row[3] in within]
            index[root] = dict(zip(map(itemgetter(2), those), those, strict=True))
    if sum(map(len, index.values())) != len(rows):
        raise ScannerError("the store answered with the same node twice")
    return index
