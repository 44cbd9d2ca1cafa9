"""Python's own ``sqlite3`` module, spoken to as apsw is: as much of ``apsw.Connection`` as a store uses.

A store opened with ``driver=sqlite3`` uses the library that this module is linked with, and no other: then the sqlite3
connections of the same program, SQLAlchemy's among them, see its locks. Errors are those of apsw with the same result
codes, so that what catches them need not know which library is in use; apsw itself opens no file then.

What the module cannot do is said here too. It reads no bytes of a file: the pages are taken out whole, up to
``MOST_READ`` of them, and beyond that an erasure waits for ``settle_receipts``. It copies a file in one call, and
reports progress at its end.
"""

from __future__ import annotations

import functools
import re
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self, cast, final
from urllib.parse import quote

import apsw

from promptkeel.errors import StoreUnavailableError
from promptkeel.store.sqlite_companions import Identity, identity_of

OLDEST: Final = (3, 40, 0)
"""The oldest library whose SQL the schema is written in."""
MOST_READ: Final = 1 << 28
"""Bytes of a file that are looked through for what was erased."""

_NUMBERED: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\?(\d*)""")
_PLAIN: Final = (
    ("TEXT", str, "SELECT key FROM meta WHERE key = 'format'"),
    ("ANY", int, "SELECT value FROM meta WHERE key = 'delta_floor'"),
    ("INTEGER", int, "SELECT seq FROM heads LIMIT 1"),
)
"""The declared types of what a store reads, and how each is when nobody has converted it."""
_UNDECODABLE: Final = "Could not decode to UTF-8"
_CLOSED: Final = "Cannot operate on a closed database"
_ABANDONED: Final[dict[Identity, list[sqlite3.Connection]]] = {}
"""Connections whose closing would write a log into a file that it does not belong to any more, by that file."""


def check_library() -> None:
    """Refuse a library that does not know the SQL of the schema.

    Raises:
        StoreUnavailableError: Python is linked with an older one.
    """
    if sqlite3.sqlite_version_info < OLDEST:
        raise StoreUnavailableError(
            f"this Python is linked with SQLite {sqlite3.sqlite_version}, and a store needs "
            f"{'.'.join(map(str, OLDEST))} or later: leave driver=sqlite3 out, or use another Python"
        )


def connect(path: Path, *, create: bool) -> apsw.Connection:
    """A new connection to a file.

    Raises:
        apsw.CorruptError: the library still has a write-ahead log of it that is gone.
    """
    if _ABANDONED and identity_of(path) in _ABANDONED:
        raise apsw.CorruptError(
            "its write-ahead log was replaced, and this Python cannot let go of the one before: end this process"
        )
    with _in_words_of_apsw():
        raw = sqlite3.connect(
            _address(path, mode="rwc" if create else "rw"),
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=0,
        )
    return over(raw)


def over(raw: sqlite3.Connection) -> apsw.Connection:
    """A connection of the sqlite3 module, to be used as one of apsw is."""
    return cast("apsw.Connection", StandardConnection(raw))


def application_id(path: Path) -> int:
    """What the header in the file itself says, read without locks and beside any write-ahead log.

    Raises:
        apsw.NotADBError: it is no database.
    """
    with _in_words_of_apsw():
        raw = sqlite3.connect(_address(path, mode="ro") + "&immutable=1", uri=True)
        try:
            found: int = raw.execute("PRAGMA application_id").fetchone()[0]
        finally:
            raw.close()
    return found


def converted_type(connection: apsw.Connection) -> str | None:
    """A declared type whose values the program has had converted on this connection; None where there is none."""
    for name, plain, text in _PLAIN:
        if name in sqlite3.converters:
            found = connection.execute(text).fetchone()
            if found is not None and type(found[0]) is not plain:
                return name
    return None


def _address(path: Path, *, mode: str) -> str:
    return f"file:{quote(str(path.absolute()))}?mode={mode}"


@final
class StandardConnection:
    """As much of ``apsw.Connection`` as a store uses. Each statement commits by itself, unless SQL says otherwise."""

    row_trace: None = None
    exec_trace: None = None

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.raw = raw
        self._must_not_close = False
        self._pages: bytes | None = None

    def execute(self, text: str, arguments: Sequence[Any] = ()) -> _Cursor:
        """Execute a statement, or several of them without arguments."""
        with _in_words_of_apsw():
            cursor = self._cursor()
            for statement in _statements(text):
                cursor.execute(_named(statement), _numbered(statement, arguments))
            return _Cursor(cursor)

    def executemany(self, text: str, arguments: Sequence[Sequence[Any]]) -> None:
        """Execute a statement once for each of the arguments."""
        with _in_words_of_apsw():
            self._cursor().executemany(_named(text), [_numbered(text, each) for each in arguments])

    def _cursor(self) -> sqlite3.Cursor:
        # Only cursors that the connection makes have the caller's row factory.
        return sqlite3.Cursor(self.raw)

    def pragma(self, name: str, value: object = None) -> Any:
        """What a pragma answers; with a value, after setting it."""
        return self.execute(f"PRAGMA {name}" if value is None else f"PRAGMA {name} = {value}").get

    def set_busy_timeout(self, milliseconds: int) -> None:
        """How long to wait for another's lock."""
        self.pragma("busy_timeout", milliseconds)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        with _in_words_of_apsw():
            return self.raw.in_transaction

    def changes(self) -> int:
        """How many rows the last statement changed."""
        changed: int = self.execute("SELECT changes()").get
        return changed

    def config(self, option: int, value: int) -> int:
        """Set an option of the connection, or with -1 ask for it."""
        if option == apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE and not _has_options():
            self._must_not_close = bool(value)
            return value
        if not _has_options():
            # Nothing in this Python can have switched it off.
            return 1
        raw: Any = self.raw
        with _in_words_of_apsw():
            if value >= 0:
                raw.setconfig(option, bool(value))
            return int(raw.getconfig(option))

    def wal_checkpoint(self, mode: int) -> None:
        """Put the whole write-ahead log into the file and empty it."""
        assert mode == apsw.SQLITE_CHECKPOINT_TRUNCATE  # noqa: S101 - no other is asked for
        busy, _, _ = self.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
        if busy:
            raise apsw.BusyError("a reader is in the way of the checkpoint")

    def read(self, schema: str, which: int, offset: int, amount: int) -> tuple[bool, bytes]:
        """Whether there is more, and bytes of the database file (0), as its pages are, or of its log (1).

        Raises:
            apsw.TooBigError: the file has more bytes than are taken into memory.
        """
        if which == 0:
            data = self._taken_out(schema) if offset == 0 or self._pages is None else self._pages
            self._pages = data if offset + amount < len(data) else None
            return offset + amount < len(data), data[offset : offset + amount]
        # SQLite keeps no locks on the log: closing a file of one's own loses none there.
        name = self.execute("PRAGMA database_list").fetchall()[0][2]
        try:
            with Path(f"{name}-wal").open("rb") as log:
                log.seek(offset)
                found = log.read(amount)
                return bool(log.read(1)), found
        except FileNotFoundError:
            return False, b""

    def _taken_out(self, schema: str) -> bytes:
        if self.pragma("page_count") * self.pragma("page_size") > MOST_READ or not hasattr(self.raw, "serialize"):
            raise apsw.TooBigError("too much to be looked through")
        with _in_words_of_apsw():
            return self.raw.serialize(name=schema)

    def backup(self, _: str, source: StandardConnection, __: str) -> _Backup:
        """A copy of another database into this one, to be done in steps."""
        return _Backup(self.raw, source.raw)

    def close(self) -> None:
        """Close it."""
        if self._must_not_close:
            name = self.execute("PRAGMA database_list").fetchall()[0][2]
            found = identity_of(Path(name))
            # Where there is no log by its name, closing can only put back what is in the one that is open.
            if found is not None and Path(f"{name}-wal").exists():
                _ABANDONED.setdefault(found, []).append(self.raw)
                return
        with _in_words_of_apsw():
            self.raw.close()


@final
class _Cursor:
    """What a statement answers."""

    __slots__ = ("_cursor",)

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    @property
    def get(self) -> Any:
        """The first row, or its only column; None where there is no row."""
        row = self.fetchone()
        self._cursor.close()
        return row[0] if row is not None and len(row) == 1 else row

    def fetchone(self) -> Any:
        """The next row; None at the end."""
        with _in_words_of_apsw():
            return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        with _in_words_of_apsw():
            return self._cursor.fetchall()

    def __iter__(self) -> Iterator[Any]:
        while (row := self.fetchone()) is not None:
            yield row


@final
class _Backup:
    """A copy that is made in a single step."""

    def __init__(self, target: sqlite3.Connection, source: sqlite3.Connection) -> None:
        self._target = target
        self._source = source
        self.done = False
        self.page_count = self.remaining = 0

    def step(self, pages: int) -> None:
        """Copy everything, so many pages at a time."""

        def tell(_: int, remaining: int, total: int) -> None:
            self.page_count, self.remaining = total, remaining

        with _in_words_of_apsw():
            self._source.backup(self._target, pages=pages, progress=tell)
        self.done = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left open."""


def _has_options() -> bool:
    return sys.version_info >= (3, 12)


@functools.lru_cache(maxsize=512)
def _named(text: str) -> str:
    """The statement with named parameters where any is numbered: the module takes numbers for names, and warns."""
    if not re.search(r"\?\d", text):
        return text
    last = 0

    def name(found: re.Match[str]) -> str:
        nonlocal last
        if found[1] is None:
            return found[0]
        number = int(found[1]) if found[1] else last + 1
        last = max(last, number)
        return f":p{number}"

    return _NUMBERED.sub(name, text)


def _numbered(text: str, arguments: Sequence[Any]) -> Any:
    if _named(text) == text:
        return arguments
    return {f"p{number}": value for number, value in enumerate(arguments, start=1)}


@functools.lru_cache(maxsize=512)
def _statements(text: str) -> tuple[str, ...]:
    """The single statements of a text; a trigger is one, with all that is in it."""
    if ";" not in text:
        return (text,)
    found: list[str] = []
    rest = ""
    for piece in text.split(";"):
        rest += piece + ";"
        if sqlite3.complete_statement(rest):
            found.append(rest)
            rest = ""
    return tuple(each for each in (*found, rest.removesuffix(";")) if each.strip(" \n;"))


class _Translation:
    """Errors of the sqlite3 module as those of apsw with the same result codes."""

    def __enter__(self) -> None:
        """Nothing to begin."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, sqlite3.Error | sqlite3.Warning):
            return
        message = str(error)
        if message.startswith(_UNDECODABLE):
            raise UnicodeDecodeError("utf-8", b"", 0, 1, message) from error
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None:
            translated = apsw.exception_for(code)
            translated.args = (message,)
            raise translated from error
        if message.startswith(_CLOSED):
            raise apsw.ConnectionClosedError(message) from error
        if "can only be used in that same thread" in message:
            raise apsw.ThreadingViolationError(message) from error
        raise apsw.SQLError(message) from error


_TRANSLATION: Final = _Translation()


def _in_words_of_apsw() -> _Translation:
    return _TRANSLATION
