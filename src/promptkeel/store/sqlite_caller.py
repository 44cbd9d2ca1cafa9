"""A SQLite store inside a caller's transaction, on the caller's own connection to the same file.

The same statements and triggers do the work. What belongs to the connection stays as the caller has it: its row, text
and cursor factories are put back after each call, its timeout is the one that is waited for. The write lock is taken
before anything is read, so that no other writer can come between what a decision saw and what it writes.

Two copies of SQLite in one process do not see each other's locks, and whichever closes the file drops the other's: a
connection of the library that this store does not use is refused, since the file would be damaged.

A connection keeps the file that it opened. Where another was put at the path since, what it commits is read by nobody,
so it is refused. apsw can be asked; of Python's library it shows by the path as it was at the first call, and by the
store's own key.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast, final

import apsw

from promptkeel.errors import PromptkeelError, StoreBusyError, StoreReadOnlyError, TransactionError
from promptkeel.instants import Clock
from promptkeel.store.attached import SAVEPOINT, AttachedEngine, must_retry, turn
from promptkeel.store.base import Engine
from promptkeel.store.caller import kind_of
from promptkeel.store.decisions import perform
from promptkeel.store.operations import Operation, Outcome
from promptkeel.store.sqlite_companions import identity_of
from promptkeel.store.sqlite_file import DatabaseFile
from promptkeel.store.sqlite_reads import Rows
from promptkeel.store.sqlite_schema import TABLES, check_triggers
from promptkeel.store.sqlite_writes import SqliteTransaction, trim

_TAKE_WRITE_LOCK: Final = "UPDATE meta SET value = value WHERE false"
_TEMPORARY: Final = "SELECT name FROM sqlite_temp_schema"
_KEY: Final = "SELECT value FROM meta WHERE key = 'secret'"


@final
class SqliteAttachedEngine(AttachedEngine[Rows]):
    """A store on a caller's connection.

    Args:
        engine: the store's own engine.
        connection: the caller's, of apsw or of the sqlite3 module.
        file: the store's file.
        clock: answers the present instant; stamps what is written.
        log_limit: how many changes the log and the history reach back, at least.

    Raises:
        TransactionError: the connection does not lead to this file, or has no transaction open.
    """

    def __init__(self, engine: Engine, connection: Any, *, file: DatabaseFile, clock: Clock, log_limit: int) -> None:
        super().__init__(engine, connection)
        self._file = file
        self._clock = clock
        self._log_limit = log_limit
        self._schema = -1
        self._connection = self._own(connection)
        self._identity = file.identify()
        with turn(connection), self._in_our_words():
            self._check_file()
            self._check_state()
            self._check_key()

    def _own(self, connection: Any) -> apsw.Connection:
        """The connection, as the statements of this store are executed on it."""
        kind = kind_of(connection)
        if kind in ("apsw", "sqlite3") and kind != self._file.driver:
            raise TransactionError(
                f"the store uses the SQLite of {self._file.driver}, and this is a connection of {kind}: two copies of "
                "SQLite in one process undo each other's file locks and damage the file; "
                + (
                    f"open the keel with sqlite:///{self._file.path.name}?driver=sqlite3 to write on it"
                    if kind == "sqlite3"
                    else "give a connection of sqlite3, or open the keel without driver=sqlite3"
                )
            )
        if kind == "apsw":
            return cast("apsw.Connection", connection)
        if kind == "sqlite3":
            from promptkeel.store.sqlite_standard import over

            return over(connection)
        what = "a connection to PostgreSQL" if kind is not None else f"a {type(connection).__name__}"
        raise TransactionError(
            f"{self._file.path} is a SQLite file, and {what} does not lead there: give a connection to this very file"
        )

    def _check_file(self) -> None:
        listed: list[Any] = self._connection.execute("PRAGMA database_list").fetchall()
        name = next((path for _, schema, path in listed if schema == "main"), "")
        found = identity_of(Path(name)) if name else None
        if found is None or found != self._identity:
            raise TransactionError(
                f"the connection is on {name or 'a database in memory'}, and the store is in {self._file.path}: open "
                "the connection on the store's file (the business tables go into it), or the keel on the connection's"
            )
        temporary: list[Any] = self._connection.execute(_TEMPORARY).fetchall()
        shadowing = {name for (name,) in temporary} & TABLES
        if shadowing:
            raise TransactionError(
                f"the connection has a temporary table {min(shadowing)!r}, which hides the store's: drop or rename it"
            )

    def _check_key(self) -> None:
        """Refuse a connection that still has open what was at the path before the store."""
        try:
            found = self._connection.execute(_KEY).get
        except apsw.SQLError as error:
            if _distrusts_the_schema(error):
                raise
            raise self._was_replaced() from error
        if found != self._engine.secret():
            raise self._was_replaced()

    def _check_not_replaced(self) -> None:
        if self._file.identify() != self._identity or self._has_moved():
            raise self._was_replaced()

    def _has_moved(self) -> bool:
        if self._file.driver != "apsw":
            return False
        moved = ctypes.c_int(0)
        self._connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(moved))
        return bool(moved.value)

    def _was_replaced(self) -> TransactionError:
        return TransactionError(
            f"{self._file.path}, as the connection has it open, was replaced by another file: open a new connection"
        )

    def _check_state(self) -> None:
        """Refuse a connection on which nothing can be written, which changes what is read, or has no triggers."""
        self._check_not_replaced()
        if self._file.driver == "sqlite3":
            from promptkeel.store.sqlite_standard import converted_type

            if (changed := converted_type(self._connection)) is not None:
                raise TransactionError(
                    f"the connection converts values of type {changed}: connect without detect_types, or register no "
                    "converter under this name"
                )
        if self._connection.in_transaction or self._begins_by_itself():
            if not self._has_triggers():
                raise TransactionError(
                    "the connection has its triggers switched off, so that no prompt would see the write: "
                    "switch them on (SQLITE_DBCONFIG_ENABLE_TRIGGER)"
                )
            return
        raise TransactionError(
            "no transaction is open on the connection, so that each write would commit by itself: begin one first"
        )

    def _begins_by_itself(self) -> bool:
        """Whether its own library begins a transaction before it writes: the sqlite3 module, unless told otherwise."""
        return self._file.driver == "sqlite3" and self._legacy and self._given.isolation_level is not None

    @property
    def _legacy(self) -> bool:
        # From Python 3.12 on; -1 says that isolation_level rules.
        return getattr(self._given, "autocommit", -1) == -1

    def _has_triggers(self) -> bool:
        return bool(self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, -1))

    # Turns on the connection

    @contextmanager
    def _reading(self) -> Iterator[Rows]:
        with self._saved(keep=True, write=False):
            yield Rows(self._connection)

    @contextmanager
    def _saved(self, *, keep: bool, write: bool = True) -> Iterator[None]:
        with self._in_our_words():
            self._check_state()
            connection = self._connection
            if write:
                self._begin()
            connection.execute(f"SAVEPOINT {SAVEPOINT}")
            kept = False
            try:
                if write:
                    connection.execute(_TAKE_WRITE_LOCK)
                self._check_schema()
                yield
                kept = keep
            finally:
                # SQLite itself has rolled everything back where the disk was full or failed.
                if connection.in_transaction:
                    if not kept:
                        connection.execute(f"ROLLBACK TO {SAVEPOINT}")
                    connection.execute(f"RELEASE {SAVEPOINT}")

    def _begin(self) -> None:
        """Begin a transaction where the connection's own library would before it writes."""
        if not self._connection.in_transaction and self._begins_by_itself():
            self._connection.execute(f"BEGIN {self._given.isolation_level}")

    def _check_schema(self) -> None:
        version: int = self._connection.execute("PRAGMA schema_version").get
        if version != self._schema:
            check_triggers(self._connection, str(self._file.path))
            self._schema = version

    def _write(self, operations: Sequence[Operation]) -> tuple[Outcome, ...]:
        now = self._clock()
        transaction = SqliteTransaction(self._connection)
        outcomes = tuple(perform(transaction, operation, now) for operation in operations)
        transaction.finish()
        trim(self._connection, self._log_limit)
        return outcomes

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        try:
            with self._as_the_store_reads(), self._file.translated():
                yield
        except PromptkeelError as error:
            if isinstance(error.__cause__, apsw.Error):
                raise self._translated(error, error.__cause__) from error.__cause__
            raise

    @contextmanager
    def _as_the_store_reads(self) -> Iterator[None]:
        """The connection without what the caller has set to change rows."""
        if self._file.driver == "sqlite3":
            kept_factory, self._given.text_factory = self._given.text_factory, str
            try:
                yield
            finally:
                self._given.text_factory = kept_factory
            return
        connection = self._connection
        try:
            kept = connection.row_trace, connection.exec_trace, connection.cursor_factory
        except apsw.ConnectionClosedError:
            raise _is_closed() from None
        connection.row_trace = connection.exec_trace = None
        connection.cursor_factory = apsw.Cursor
        try:
            yield
        finally:
            connection.row_trace, connection.exec_trace, connection.cursor_factory = kept

    def _translated(self, error: PromptkeelError, cause: apsw.Error) -> PromptkeelError:
        match cause:
            case apsw.SQLError() | apsw.CorruptError() if _distrusts_the_schema(cause):
                return TransactionError(
                    "the connection distrusts the schema, and what this SQLite checks rows with has to be trusted: "
                    "execute PRAGMA trusted_schema = ON on it"
                )
            case apsw.BusyError() if getattr(cause, "extendedresult", None) == apsw.SQLITE_BUSY_SNAPSHOT:
                return must_retry("another writer has committed since this transaction first read")
            case apsw.BusyError() | apsw.LockedError():
                return StoreBusyError(
                    f"another writer held {self._file.path} for longer than the connection's own timeout: nothing of "
                    "this call was written; retry it, or raise the timeout of the connection"
                )
            case apsw.ReadOnlyError():
                return StoreReadOnlyError(
                    "the connection is read-only: give one that may write (opened for writing, PRAGMA query_only off)"
                )
            case apsw.FullError() | apsw.IOError() if not self._connection.in_transaction:
                return type(error)(
                    f"{error} (SQLite has rolled back the whole of your transaction: run all of it again)"
                )
            case apsw.ConnectionClosedError():
                return _is_closed()
            case apsw.ThreadingViolationError():
                if self._file.driver == "sqlite3":
                    return TransactionError(
                        "the connection belongs to another thread: call on the thread that made it, or make it with "
                        "check_same_thread=False"
                    )
                return TransactionError("the connection is in use by another thread: call one after the other")
        return error


def _distrusts_the_schema(error: apsw.Error) -> bool:
    return "unsafe use of" in str(error)


def _is_closed() -> TransactionError:
    return TransactionError("the connection is closed: give one that is open")
