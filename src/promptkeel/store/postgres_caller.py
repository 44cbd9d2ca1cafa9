"""A PostgreSQL store inside a caller's transaction, on the caller's own psycopg connection to the same database.

The same statements and triggers do the work, on cursors of the store's own: the connection's row and cursor factories,
its autocommit, its isolation and its prepared statements are neither used nor changed, and neither are its timeouts.
Heads move at the caller's commit, by the deferred trigger. Where the isolation is REPEATABLE READ or SERIALIZABLE, that
trigger, or a lock before it, finds whatever others have committed at the same scope since: the server then refuses the
caller's transaction, which has to be run again from its beginning.

An asynchronous connection belongs to its event loop. The store works in a worker thread, and each statement is handed
to that loop and awaited there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, cast, final

import attrs
import psycopg
from anyio import from_thread
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from promptkeel.errors import PromptkeelError, StoreReadOnlyError, StoreUnavailableError, TransactionError
from promptkeel.instants import Clock
from promptkeel.store.attached import SAVEPOINT, AttachedEngine, must_retry, turn
from promptkeel.store.base import Engine
from promptkeel.store.caller import kind_of
from promptkeel.store.decisions import perform
from promptkeel.store.operations import Operation, Outcome
from promptkeel.store.postgres_batch import keys_of
from promptkeel.store.postgres_connections import Connection, Connections
from promptkeel.store.postgres_reads import Rows
from promptkeel.store.postgres_writes import PostgresTransaction

_WHERE: Final = """
SELECT (SELECT oid FROM pg_database WHERE datname = current_database()), pg_postmaster_start_time()::text,
  pg_is_in_recovery(), to_regclass(%(meta)s) IS NOT NULL"""
_GOT_IN_THE_WAY: Final = (
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UniqueViolation,
)


class _Cursor(Protocol):
    """What a statement answered."""

    @property
    def rowcount(self) -> int:
        """How many rows were written."""

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows."""

    def fetchone(self) -> tuple[Any, ...] | None:
        """The first row."""


@final
class _Blocking:
    """A blocking connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, text: str, arguments: Mapping[str, Any] | None = None) -> _Cursor:
        """Execute one statement, prepared by nobody."""
        cursor = psycopg.Cursor(self._connection, row_factory=tuple_row)
        return cursor.execute(text, arguments, prepare=False)


@final
@attrs.define
class _Answer:
    """What a statement answered on another thread."""

    rows: list[tuple[Any, ...]]
    rowcount: int

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows."""
        return self.rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """The first row."""
        return self.rows[0] if self.rows else None


@final
class _OnTheLoop:
    """An asynchronous connection, used from a worker thread of the loop that it belongs to."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    def execute(self, text: str, arguments: Mapping[str, Any] | None = None) -> _Cursor:
        """Have the loop execute one statement, prepared by nobody."""
        return from_thread.run(self._execute, text, arguments)

    async def _execute(self, text: str, arguments: Mapping[str, Any] | None) -> _Answer:
        cursor = psycopg.AsyncCursor(self._connection, row_factory=tuple_row)
        await cursor.execute(text, arguments, prepare=False)
        return _Answer(await cursor.fetchall() if cursor.description else [], cursor.rowcount)


@final
class PostgresAttachedEngine(AttachedEngine[Rows]):
    """A store on a caller's connection.

    Args:
        engine: the store's own engine.
        connection: the caller's, of psycopg.
        connections: the store's own.
        texts: the statements of the schema, reads and writes.
        clock: answers the present instant; stamps what is written.
        after: called inside the savepoint with what was written under each root, to trim logs that have grown.

    Raises:
        TransactionError: the connection does not lead to this store, or has no transaction that can be written in.
    """

    def __init__(
        self,
        engine: Engine,
        connection: Any,
        *,
        connections: Connections,
        texts: dict[str, str],
        clock: Clock,
        after: Callable[[Connection, dict[str, int]], None],
    ) -> None:
        super().__init__(engine, connection)
        self._connections = connections
        self._texts = texts
        self._clock = clock
        self._after = after
        self._connection = self._own(connection)
        with turn(connection), self._saved(keep=True):
            self._check_place()

    def _own(self, connection: Any) -> Connection:
        """The connection, as the store's statements are executed on it."""
        kind = kind_of(connection)
        if kind == "psycopg":
            return cast("Connection", _Blocking(connection))
        if kind == "psycopg asynchronous":
            return cast("Connection", _OnTheLoop(connection))
        raise TransactionError(
            f"{self._connections.name} is a PostgreSQL database, and a connection of {kind or type(connection)} does "
            "not lead there: give one of psycopg to this very database"
        )

    def _check_place(self) -> None:
        # By name, so that a missing table ends no transaction.
        asked = {"meta": f'"{self._connections.address.schema}".meta'}
        found = self._connection.execute(_WHERE, asked).fetchone()
        mine = self._connections.short(lambda connection: connection.execute(_WHERE, asked).fetchone())
        assert found is not None  # noqa: S101 - a SELECT without FROM has one row
        assert mine is not None  # noqa: S101 - as above
        if found[:2] != mine[:2]:
            what = "database of the server" if found[1] == mine[1] else "server"
            raise TransactionError(
                f"the connection is to another {what} than {self._connections.name}: give one to the store's own"
            )
        if not found[3]:
            raise TransactionError(
                f"the connection's database has no store in schema {self._connections.address.schema}: "
                "give one to the store's own database"
            )
        if found[2]:
            raise StoreReadOnlyError("the connection is to a standby, which takes no writes: give one to its primary")

    def _check_state(self) -> None:
        """Refuse a connection on which nothing can be written."""
        connection = self._given
        if connection.closed:
            raise TransactionError("the connection is closed: give one that is open")
        if connection.pgconn.pipeline_status != PipelineStatus.OFF:
            raise TransactionError("the connection is in pipeline mode: call this outside of the pipeline")
        status = connection.info.transaction_status
        if status == TransactionStatus.INERROR:
            raise TransactionError("the transaction has failed already: roll it back, and run the whole of it again")
        if status == TransactionStatus.ACTIVE:
            raise TransactionError("the connection is busy with another statement: await it, or end its copy, first")
        if status == TransactionStatus.IDLE and connection.autocommit:
            raise TransactionError(
                "no transaction is open on the connection, and in autocommit each write would commit by itself: "
                "begin one first, as with connection.transaction()"
            )
        if connection.info.encoding != "utf-8":
            raise TransactionError(
                f"the connection's client_encoding is {connection.info.encoding}, which cannot hold every text: "
                "connect with client_encoding=UTF8"
            )

    # Turns on the connection

    @contextmanager
    def _reading(self) -> Iterator[Rows]:
        with self._saved(keep=True):
            yield Rows(self._connection, self._texts)

    @contextmanager
    def _saved(self, *, keep: bool) -> Iterator[None]:
        self._check_state()
        with self._in_our_words():
            self._connection.execute(f"SAVEPOINT {SAVEPOINT}")
            kept = False
            try:
                yield
                kept = keep
            finally:
                self._end(kept=kept)

    def _end(self, *, kept: bool) -> None:
        if self._given.closed or self._given.info.transaction_status == TransactionStatus.UNKNOWN:
            return
        if not kept:
            self._connection.execute(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
        self._connection.execute(f"RELEASE SAVEPOINT {SAVEPOINT}")

    def _write(self, operations: Sequence[Operation]) -> tuple[Outcome, ...]:
        now = self._clock()
        transaction = PostgresTransaction(self._connection, self._texts, self._connections.lock, ())
        if len(operations) > 1:
            transaction.expect(*keys_of(operations))
        outcomes = tuple(perform(transaction, operation, now) for operation in operations)
        transaction.flush()
        self._after(self._connection, transaction.written)
        return outcomes

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: psycopg.Error) -> PromptkeelError:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        match error:
            case _ if isinstance(error, _GOT_IN_THE_WAY):
                return must_retry(f"another transaction on {self._connections.name} got in the way ({reason})")
            case psycopg.errors.ReadOnlySqlTransaction():
                return StoreReadOnlyError("the transaction is read-only: begin one that may write")
            case psycopg.errors.LockNotAvailable():
                return must_retry(f"another transaction held a lock for longer than this one's lock_timeout ({reason})")
        if self._given.closed:
            return StoreUnavailableError(f"the connection was lost ({reason}): the whole transaction is undone")
        return self._connections.translate(error)
