"""The connections to one PostgreSQL database: few, lent for one transaction at a time, errors in our words.

Nothing here lives in a session, so that a pooler in transaction mode may stand in between: no prepared statements, no
temporary tables, settings for one transaction only, advisory locks that end with theirs. A connection that was broken
while it lay idle is replaced without a word, since nothing had been asked of it yet.

Connections are kept in a plain stack, and made where none is idle: the thread that needs one learns at once that the
server is gone, and no thread of a pool is there to be lost in a fork. A child never touches what its parent opened.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar, final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from promptkeel.errors import (
    CommitUnknownError,
    InvalidInputError,
    NotAStoreError,
    PromptkeelError,
    StoreBusyError,
    StoreClosedError,
    StoreDamagedError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from promptkeel.store.arguments import check_seconds
from promptkeel.store.line import Line
from promptkeel.store.postgres_schema import lock_space

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

LONGEST_TIMEOUT: Final = 1_000_000.0
"""Seconds that a timeout may have: the server counts its milliseconds in 32 bits."""
_CONNECT_TIMEOUT: Final = 10
_ATTEMPTS: Final = 8
"""A transaction that others got in the way of is tried so many times."""

_RETRIED: Final = (
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    # Somebody committed the same id after it was looked for: the next attempt finds it.
    psycopg.errors.UniqueViolation,
)
_POOLER_IS_BUSY: Final = "query_wait_timeout"
"""By its setting's name PgBouncer says that nothing was sent to the server."""
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
)
_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


@final
class Address:
    """Where a store is: what the driver connects to, the schema, and a form that may be shown.

    Args:
        url: ``postgresql://user@host/database``, as libpq reads it; ``schema=name`` among its parameters is ours.
        schema: the schema; where None, that of the address, else ``promptkeel``.

    Raises:
        NotAStoreError: libpq cannot read it.
        InvalidInputError: the schema's name is not text.
    """

    def __init__(self, url: str, schema: str | None = None) -> None:
        if schema is not None and not isinstance(schema, str):
            raise InvalidInputError(f"must be text or None, not {type(schema).__name__}", field="schema")
        try:
            parts = urlsplit(url)
            given = parse_qsl(parts.query, keep_blank_values=True)
            query = urlencode([(name, value) for name, value in given if name != "schema"], quote_via=quote)
            # Spelled out: urlunsplit leaves out the slashes of an address without a host.
            self.conninfo = f"postgresql://{parts.netloc}{parts.path}" + (f"?{query}" if query else "")
            self.parameters = conninfo_to_dict(self.conninfo)
        except (ValueError, psycopg.ProgrammingError) as error:
            raise NotAStoreError(f"this is no address of a PostgreSQL database: {str(error).strip()}") from error
        self.schema = schema or dict(given).get("schema") or "promptkeel"
        secret = self.parameters.get("password")
        # What a store is called ends up in logs.
        self.shown = url if not secret or not parts.password else url.replace(f":{parts.password}@", "@", 1)


@final
class Connections:
    """All connections of one engine.

    Args:
        address: where the store is.
        pool_size: how many connections there are at most.
        busy_timeout: seconds to wait for a lock, or while no connection is given back.
        statement_timeout: seconds that one statement may take; None is the server's own setting.
        standby: whether a standby will do. It may be behind: what must see every commit asks a primary.

    Raises:
        InvalidInputError: an option cannot mean anything.
    """

    def __init__(
        self,
        address: Address,
        *,
        pool_size: int,
        busy_timeout: float,
        statement_timeout: float | None,
        standby: bool = False,
    ) -> None:
        if type(pool_size) is not int or pool_size < 1:
            raise InvalidInputError(f"must be at least 1 connection, not {pool_size!r}", field="pool_size")
        busy_timeout = check_seconds(busy_timeout, field="busy_timeout", longest=LONGEST_TIMEOUT)
        if statement_timeout is not None:
            statement_timeout = check_seconds(statement_timeout, field="statement_timeout", longest=LONGEST_TIMEOUT)
            if not statement_timeout:
                raise InvalidInputError("must be more than 0 seconds: that would be none", field="statement_timeout")
        self.address = address
        self._standby = standby
        self.greet: Callable[[Connection], None] | None = None
        self._pool_size = pool_size
        self._busy_timeout = busy_timeout
        self._timeout = (
            "" if statement_timeout is None else f"SET LOCAL statement_timeout = {_milliseconds(statement_timeout)}; "
        )
        # A lock timeout of 0 would be none.
        self._begin_write = (
            f"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {_milliseconds(busy_timeout)}; "
            f"{self._timeout}{_DURABLE}"
        )
        self._space = lock_space(address.schema)
        self._closed = False
        self._begin_anew()
        _OPEN.add(self)

    def _begin_anew(self) -> None:
        self._state = threading.Lock()
        self._idle: list[Connection] = []
        self._lent: set[Connection] = set()
        self._line = Line(self._pool_size)

    @property
    def name(self) -> str:
        """What the store is called in errors."""
        host = self.address.parameters.get("host") or "the local server"
        return f"{self.address.parameters.get('dbname') or 'the database'} on {host}"

    # Lending

    def connect(self, **parameters: Any) -> Connection:
        """A new connection in autocommit that prepares nothing on the server; with these libpq parameters too."""
        try:
            connection = psycopg.Connection.connect(
                self.address.conninfo,
                autocommit=True,
                prepare_threshold=None,
                client_encoding="UTF8",
                connect_timeout=self.address.parameters.get("connect_timeout", _CONNECT_TIMEOUT),
                application_name=self.address.parameters.get("application_name", "promptkeel"),
                **parameters,
            )
        except psycopg.Error as error:
            raise StoreUnavailableError(f"{self.name} cannot be reached: {_first_line(error)}") from error
        if not self._standby and connection.info.parameter_status("in_hot_standby") == "on":
            connection.close()
            raise StoreReadOnlyError(
                f"{self.name} is a standby, which may be behind: open its primary, and give this one as replica="
            )
        if self.greet is not None:
            try:
                self.greet(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def lend(self, begin: str) -> Connection:
        """A connection on which ``begin`` was executed, to be given to ``take_back``."""
        if self._closed:
            raise self._is_closed()
        self._wait_for_one()
        connection = None
        try:
            while connection is None:
                connection = self._begun(begin)
            with self._state:
                self._lent.add(connection)
        except BaseException:
            if connection is not None:
                connection.close()
            self._line.leave()
            raise
        return connection

    def _wait_for_one(self) -> None:
        """Wait in line for as long as it moves: many calls at once take their turns, a pool that hangs is an error."""
        if not self._line.enter(self._busy_timeout):
            raise StoreBusyError(
                f"all {self._pool_size} connections to {self.name} were in use for longer than "
                f"{self._busy_timeout:g} s: retry, or raise pool_size"
            )
        if self._closed:
            self._line.leave()
            raise self._is_closed()

    def _begun(self, begin: str) -> Connection | None:
        """An idle connection that still works, or a new one; None where the idle one was broken."""
        with self._state:
            fresh = not self._idle
            connection = None if fresh else self._idle.pop()
        if connection is None:
            connection = self.connect()
        try:
            if begin:
                connection.execute(begin)
        except psycopg.Error as error:
            connection.close()
            if fresh or not _is_lost(error):
                raise
            self._drop_idle()
            return None
        except BaseException:
            connection.close()
            raise
        return connection

    def take_back(self, connection: Connection) -> None:
        """End what is open on a lent connection and keep it for the next call, or close it."""
        with self._state:
            if connection not in self._lent:
                return
            self._lent.discard(connection)
        try:
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()
        with self._state:
            if not self._closed and not connection.closed:
                self._idle.append(connection)
                connection = None  # type: ignore[assignment]
        if connection is not None:
            connection.close()
        self._line.leave()

    # Roles

    def short(self, work: Callable[[Connection], T]) -> T:
        """What ``work`` answers by statements that each stand alone: reads of a row or a few."""
        return self._read(f"BEGIN READ ONLY; {self._timeout}" if self._timeout else "", work)

    def reading(self, work: Callable[[Connection], T]) -> T:
        """What ``work`` answers in a transaction that sees one point in time."""
        return self._read(self.begin_reading, work)

    @property
    def begin_reading(self) -> str:
        """How a transaction that sees one point in time begins."""
        return f"{_SNAPSHOT}; {self._timeout}" if self._timeout else _SNAPSHOT

    def snapshot(self) -> Connection:
        """A connection in a transaction that sees the present moment from now on; to be given to ``take_back``."""
        try:
            return self.lend(f"{self.begin_reading}; SELECT 1")
        except psycopg.Error as error:
            raise self.translate(error) from error

    def _read(self, begin: str, work: Callable[[Connection], T]) -> T:
        try:
            return self._read_once(begin, work)
        except psycopg.Error as error:
            if not _is_lost(error):
                raise self.translate(error) from error
            self._drop_idle()
        # Lost, perhaps long ago: a read may simply be asked again.
        try:
            return self._read_once(begin, work)
        except psycopg.Error as error:
            raise self.translate(error) from error

    def _read_once(self, begin: str, work: Callable[[Connection], T]) -> T:
        connection = self.lend(begin)
        try:
            return work(connection)
        finally:
            self.take_back(connection)

    def _drop_idle(self) -> None:
        with self._state:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def transact(
        self, work: Callable[[Connection], T], *, buckets: list[int], keep: bool = True, again: bool = True
    ) -> T:
        """What ``work`` answers, done in one transaction that is committed, or rolled back where not ``keep``.

        Args:
            work: called once for each attempt.
            buckets: the advisory locks that it takes first.
            keep: whether to commit.
            again: whether ``work`` may be called again where others got in its way.

        Raises:
            StoreBusyError: others got in the way, too often or for too long; nothing was written.
            StoreUnavailableError: the connection was lost before the commit; nothing was written.
            CommitUnknownError: it was lost at the commit.
        """
        begin = self._begin_write
        if buckets:
            begin += f"; {self.lock(sorted(buckets))}"
        for _ in range(_ATTEMPTS if again else 1):
            try:
                return self._transact_once(begin, work, keep=keep)
            except _RETRIED as error:
                refused = error
            except psycopg.Error as error:
                if _is_lost(error):
                    self._drop_idle()
                raise self.translate(error) from error
        raise StoreBusyError(
            f"other transactions on {self.name} got in the way each time ({_first_line(refused)}); "
            "nothing was written: retry"
        ) from refused

    def _transact_once(self, begin: str, work: Callable[[Connection], T], *, keep: bool) -> T:
        connection = self.lend(begin)
        try:
            answer = work(connection)
            if keep:
                self._commit(connection)
            return answer
        finally:
            self.take_back(connection)

    def lock(self, buckets: list[int]) -> str:
        """The statement that takes advisory locks, in the order given, until the transaction ends."""
        keys = ",".join(str(bucket) for bucket in buckets)
        taken = "SELECT pg_advisory_xact_lock(<SPACE>, bucket) FROM unnest('{<KEYS>}'::int[]) AS bucket"
        return taken.replace("<SPACE>", str(self._space)).replace("<KEYS>", keys)

    def _commit(self, connection: Connection) -> None:
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            if not _is_lost(error):
                raise
            raise CommitUnknownError(
                f"the connection to {self.name} was lost at the commit ({_first_line(error)}): "
                "the write may or may not be there; read it again to know"
            ) from error

    # Errors

    def translate(self, error: psycopg.Error) -> PromptkeelError:
        """An error of the driver in our words."""
        reason = _first_line(error)
        match error:
            case psycopg.errors.LockNotAvailable():
                return StoreBusyError(
                    f"another transaction held a lock in {self.name} for longer than {self._busy_timeout:g} s: "
                    "retry, or raise busy_timeout"
                )
            case psycopg.errors.QueryCanceled():
                return StoreBusyError(f"{self.name} took too long ({reason}): retry, or raise statement_timeout")
            case _ if isinstance(error, _RETRIED):
                return StoreBusyError(f"another transaction on {self.name} got in the way ({reason}): retry")
            case psycopg.errors.ReadOnlySqlTransaction() | psycopg.errors.InsufficientPrivilege():
                return StoreReadOnlyError(f"{self.name} cannot be written to or read ({reason}): grant it to this role")
            case psycopg.errors.ProtocolViolation() if _POOLER_IS_BUSY in reason:
                return StoreBusyError(
                    f"the pooler before {self.name} had no session free in its {_POOLER_IS_BUSY}: retry, close "
                    "snapshots, or let it open more sessions"
                )
            case psycopg.errors.DiskFull():
                return StoreFullError(f"{self.name} has no space left; nothing was written: free some and retry")
            case psycopg.errors.ProgramLimitExceeded():
                return InvalidInputError(f"an id or a scope is too long for an index of {self.name} ({reason})")
            case psycopg.errors.UndefinedTable() | psycopg.errors.InvalidSchemaName() | psycopg.errors.DataCorrupted():
                return StoreDamagedError(f"{self.name} is not as it should be ({reason}); restore a backup")
            case (
                psycopg.errors.IndexCorrupted() | psycopg.errors.UndefinedColumn() | psycopg.errors.UndefinedFunction()
            ):
                return StoreDamagedError(f"{self.name} is not as it should be ({reason}); restore a backup")
        return StoreUnavailableError(
            f"{self.name} could not be used ({reason}); what was not committed was not written"
        )

    def _is_closed(self) -> StoreClosedError:
        return StoreClosedError(f"the store in {self.name} is closed")

    # The end

    def check(self) -> None:
        """Refuse a closed store."""
        if self._closed:
            raise self._is_closed()

    def close(self) -> None:
        """Close every connection; those that are lent, when they come back."""
        with self._state:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        _OPEN.discard(self)

    def after_fork_in_child(self) -> None:
        """Begin anew: what was open in the parent is never touched here."""
        _ABANDONED.extend((*self._idle, *self._lent))
        self._begin_anew()


def _milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _is_lost(error: psycopg.Error) -> bool:
    """Whether the connection went away, rather than that a statement failed."""
    return isinstance(error, psycopg.OperationalError) and (
        error.sqlstate is None or error.sqlstate[:2] == "08" or error.sqlstate in ("57P01", "57P02", "57P03")
    )


_OPEN: weakref.WeakSet[Connections] = weakref.WeakSet()
_ABANDONED: list[Connection] = []
"""Connections of a parent process: closing one in the child would end the parent's session."""


def abandon(connection: Connection) -> None:
    """In a forked child: never touch this connection of the parent's."""
    _ABANDONED.append(connection)


def _begin_anew_in_child() -> None:
    for connections in list(_OPEN):
        connections.after_fork_in_child()


os.register_at_fork(after_in_child=_begin_anew_in_child)
