"""A stream of lines into a store: one transaction, or one for every chunk of lines and resumable.

All or nothing by default. With a chunk, each transaction also writes a mark: how many lines and bytes of the stream it
ends behind, their hash, and which of those lines were refused. After a crash the next import of the same name checks
the hash, tries the refused lines again and goes on behind the mark; a stream that does not begin with those bytes, or
that is read in another way, is imported from its start. The mark goes with the last chunk. Some hundred lines are
read at once, so that a store can look for what they say together; memory is bounded by them and, with a chunk, by the
numbers of the refused lines. An edge that stands before its ends waits, in memory, until everything else is taken.

Refused lines are told one by one and the others are taken, unless the import is strict. A line of a file of refused
lines stands for the line that was refused, so that such a file is mended and imported again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, Final, final

import attrs

from promptkeel.errors import ExchangeError, InvalidInputError
from promptkeel.exchange.entries import Authored, Entry, LineFormat, Statement, rejected_text
from promptkeel.exchange.reading import Line, LineReader, hash_of_prefix
from promptkeel.exchange.taking import MissingEndError, take
from promptkeel.steps import Call, Steps
from promptkeel.store.base import Engine, NodeKey
from promptkeel.store.decisions import perform
from promptkeel.store.facade import StoreCore
from promptkeel.store.operations import Decide, Mark, Transaction

_EVERY: Final = 500
"""Progress is told after as many lines."""
_TOGETHER: Final = 500
"""So many lines are looked for together."""
_KEPT: Final = 100
"""As many refused lines are in the report itself."""
_DONE: Final = ("inserted", "updated", "confirmed", "linked", "unchanged")
_HINT: Final = "; mend its 'text', or write the mended line in its place"


@final
@attrs.frozen(order=False)
class Rejected:
    """A line that was not taken.

    Attributes:
        line: its number, counted from 1.
        reason: why.
        text: what it says; bytes that are not UTF-8 are spelled as escapes.
    """

    line: int
    reason: str
    text: str = attrs.field(repr=False)


@final
@attrs.frozen(order=False, kw_only=True)
class ImportReport:
    """What an import did; with ``dry_run``, what it would do. A strict import that was refused did nothing.

    Attributes:
        inserted: new nodes.
        updated: nodes and edges that were overwritten; only where that was asked for.
        confirmed: statements that were there, said again by someone else or at another time.
        linked: new edges.
        unchanged: nodes and edges that were there, or have been and were corrected or retracted since.
        rejected: lines that were not taken.
        lines: lines read, blank ones too.
        resumed: lines that an earlier, interrupted import had committed.
        committed: whether the lines that were taken are in the store.
        dry_run: whether nothing was to be written.
        first_rejected: the first of the rejected lines.
        would_have: of a refused strict import, what it would have done without the rejected lines, by outcome.
    """

    inserted: int = 0
    updated: int = 0
    confirmed: int = 0
    linked: int = 0
    unchanged: int = 0
    rejected: int = 0
    lines: int = 0
    resumed: int = 0
    committed: bool = True
    dry_run: bool = False
    first_rejected: tuple[Rejected, ...] = ()
    would_have: Mapping[str, int] = attrs.field(factory=dict)


def _ignore(_: object) -> None:
    """Nobody listens."""


@final
@attrs.frozen(order=False, kw_only=True)
class ImportSettings:
    """How an import goes.

    Attributes:
        name: what the stream is called; an interrupted import is resumed under the same name.
        chunk: commit after as many lines; None is one transaction for all.
        replace: whether a line overwrites a node or an edge that says something else.
        force_erased: whether a line brings a node back that was erased.
        authored: whether revisions of authored blocks are taken; a file of memory brings none.
        strict: whether one refused line refuses them all.
        dry_run: say what would be done, and do nothing.
        on_rejected: called with each refused line.
        on_progress: called with the number of bytes read, now and then, on the thread that writes.
    """

    name: str = "-"
    chunk: int | None = None
    replace: bool = False
    force_erased: bool = False
    authored: bool = False
    strict: bool = False
    dry_run: bool = False
    on_rejected: Callable[[Rejected], object] = _ignore
    on_progress: Callable[[int], object] = _ignore

    def __attrs_post_init__(self) -> None:
        if self.chunk is not None and (type(self.chunk) is not int or self.chunk < 1):
            raise InvalidInputError(f"must be a whole number of at least 1, not {self.chunk!r}", field="chunk")
        if self.chunk is not None and self.strict:
            raise InvalidInputError("a strict import is one transaction; leave out either", field="chunk")

    @property
    def mark_key(self) -> str:
        """Where the store keeps how far an import of this name has come."""
        return "import:" + hashlib.sha256(self.name.encode(errors="surrogatepass")).hexdigest()[:32]


def import_steps(
    store: StoreCore,
    stream: BinaryIO,
    format: LineFormat,  # noqa: A002 - the word that callers use
    settings: ImportSettings | None = None,
) -> Steps[ImportReport]:
    """Import every line of a seekable stream of bytes.

    Raises:
        ExchangeError: the stream cannot be read, or is no UTF-8 text at all.
        StoreError: the store cannot be written; what earlier chunks committed stays.
    """
    settings = ImportSettings() if settings is None else settings
    if not stream.seekable():
        raise ExchangeError("the stream cannot be read twice; copy it to a file first")
    importing = _Importing(stream, format, settings)
    yield Call(importing.begin, store.engine)
    while not importing.ended:
        try:
            yield from store.apply((Decide(importing.take_lines),), dry_run=settings.dry_run)
        except _RefusedError:
            return importing.report(committed=False, refused=True)
    return importing.report(committed=not settings.dry_run)


def rejects_all(stream: BinaryIO, format: LineFormat, *, authored: bool = False) -> bool:  # noqa: A002 - as above
    """Whether an empty store would take no line of a stream at all, which is then read to its end.

    Args:
        stream: the file.
        format: how its lines are read.
        authored: whether revisions of authored blocks are taken.

    Raises:
        ExchangeError: the stream cannot be read, or is no UTF-8 text at all.
    """
    stream.seek(0)
    reader = LineReader(stream)
    while (line := reader.next()) is not None:
        if line.is_blank:
            continue
        try:
            entries = _read(format, line)
        except (ExchangeError, InvalidInputError):
            continue
        kinds = (Statement, Authored) if authored else (Statement,)
        if any(isinstance(entry, kinds) for entry in entries):  # an edge needs both of its ends
            return False
    return reader.offset > 0


def _read(line_format: LineFormat, line: Line) -> tuple[Entry, ...]:
    text = line.decode()
    rejected = rejected_text(text)
    return line_format.parse(text if rejected is None else rejected)


class _RefusedError(Exception):
    """Rolls a strict import back."""


@final
class _Importing:
    """One import: where it is in the stream, and what it has counted."""

    def __init__(self, stream: BinaryIO, line_format: LineFormat, settings: ImportSettings) -> None:
        self._stream = stream
        self._format = line_format
        self._settings = settings
        self._chunk = None if settings.dry_run else settings.chunk
        self._reader = LineReader(stream)
        self._counts: Counter[str] = Counter()
        self._refused: list[int] = []
        self._waiting: list[Line] = []
        self._first: list[Rejected] = []
        # What was taken in another way has to be taken again.
        how = (line_format, settings.replace, settings.force_erased, settings.authored)
        self._how = hashlib.sha256(repr(how).encode(errors="surrogatepass")).hexdigest()[:16]
        self._resumed = 0
        self._again: frozenset[int] = frozenset()
        self._marked = False
        self.ended = False

    def begin(self, engine: Engine) -> None:
        """Find where to begin: behind what an interrupted import has committed, or at the start."""
        mark = engine.mark(self._settings.mark_key)
        self._marked = mark is not None
        if mark is not None and self._chunk is not None:
            found = _read_mark(mark)
            if found is not None and self._continues(found):
                self._resumed = found["lines"]
                self._again = frozenset(found["rejected"])
        self._stream.seek(0)

    def _continues(self, mark: dict[str, Any]) -> bool:
        is_alike: bool = mark["how"] == self._how
        return is_alike and hash_of_prefix(self._stream, mark["bytes"]) == str(mark["sha256"])

    def take_lines(self, transaction: Transaction, now: int) -> None:
        """Take the lines of one transaction."""
        taken = 0
        while not self.ended and (self._chunk is None or taken < self._chunk):
            lines = self._next_lines(_TOGETHER if self._chunk is None else min(_TOGETHER, self._chunk - taken))
            taken += len(lines)
            said = [self._entries(line) for line in lines]
            transaction.expect(*_keys_of(said))
            for line, entries in zip(lines, said, strict=True):
                self._take_line(transaction, line, entries, now)
        if self.ended:
            waiting, self._waiting = sorted(self._waiting, key=self._turn), []
            for line in waiting:
                self._take_line(transaction, line, self._entries(line), now, waits=False)
            self._settings.on_progress(self._reader.offset)
        if self._refused and self._settings.strict:
            raise _RefusedError
        self._put_mark(transaction, now)

    def _next_lines(self, count: int) -> list[Line]:
        """The next lines to be taken, at most so many; fewer at the end."""
        lines: list[Line] = []
        while len(lines) < count:
            line = self._reader.next()
            if line is None:
                self.ended = True
                break
            if line.number % _EVERY == 0:
                self._settings.on_progress(self._reader.offset)
            if not line.is_blank and (line.number > self._resumed or line.number in self._again):
                lines.append(line)
        return lines

    def _entries(self, line: Line) -> tuple[Entry, ...] | Exception:
        """What a line says, or why it says nothing."""
        try:
            return _read(self._format, line)
        except (ExchangeError, InvalidInputError) as error:
            return error

    def _turn(self, line: Line) -> float:
        """The order in which lines that waited are taken: histories from their first revision on, then edges."""
        numbers = [entry.number for entry in _read(self._format, line) if isinstance(entry, Authored)]
        return min(numbers, default=math.inf)

    def _take_line(
        self,
        transaction: Transaction,
        line: Line,
        entries: tuple[Entry, ...] | Exception,
        now: int,
        *,
        waits: bool = True,
    ) -> None:
        if isinstance(entries, Exception):
            self._refuse(line, entries)
            return
        try:
            self._counts.update(
                take(
                    transaction,
                    entries,
                    now,
                    replace=self._settings.replace,
                    force_erased=self._settings.force_erased,
                    authored=self._settings.authored,
                    is_last=not waits,
                )
            )
        except MissingEndError as error:
            if waits:
                self._waiting.append(line)
            else:
                self._refuse(line, error)
        except (ExchangeError, InvalidInputError) as error:
            self._refuse(line, error)

    def _refuse(self, line: Line, error: Exception) -> None:
        self._refused.append(line.number)
        text = rejected_text(line.shown())
        reason = str(error) if text is None else str(error) + _HINT
        rejected = Rejected(line.number, reason, line.shown() if text is None else text)
        if len(self._first) < _KEPT:
            self._first.append(rejected)
        self._settings.on_rejected(rejected)

    def _put_mark(self, transaction: Transaction, now: int) -> None:
        value = None
        if not self.ended and self._reader.lines > self._resumed:
            place = {"lines": self._reader.lines, "bytes": self._reader.offset, "sha256": self._reader.sha256}
            again = self._refused + [line.number for line in self._waiting]
            value = json.dumps({**place, "how": self._how, "rejected": again})
        if self.ended and not self._marked:
            return
        if value is not None or self.ended:
            perform(transaction, Mark(self._settings.mark_key, value), now)
            self._marked = True

    def report(self, *, committed: bool, refused: bool = False) -> ImportReport:
        """What was counted."""
        counted = {name: self._counts[name] for name in _DONE}
        return ImportReport(
            **({} if refused else counted),
            would_have=counted if refused else {},
            rejected=len(self._refused),
            lines=self._reader.lines,
            resumed=self._resumed,
            committed=committed,
            dry_run=self._settings.dry_run,
            first_rejected=tuple(sorted(self._first, key=lambda rejected: rejected.line)),
        )


def _keys_of(said: Iterable[tuple[Entry, ...] | Exception]) -> tuple[list[NodeKey], list[tuple[str, str, str]]]:
    """The nodes and labels that lines are going to be compared with."""
    statements = [
        entry
        for entries in said
        if not isinstance(entries, Exception)
        for entry in entries
        if isinstance(entry, Statement)
    ]
    return (
        [(each.node.scope.root, each.node.id) for each in statements],
        [(each.node.scope.root, each.node.scope.path, each.node.label) for each in statements if not each.identified],
    )


def _read_mark(mark: str) -> dict[str, Any] | None:
    """A mark's content; None where another program wrote something else there."""
    try:
        found = json.loads(mark)
        place = {"lines": int(found["lines"]), "bytes": int(found["bytes"]), "sha256": str(found["sha256"])}
        return {**place, "how": found["how"], "rejected": [int(number) for number in found["rejected"]]}
    except (ValueError, TypeError, KeyError):
        return None
