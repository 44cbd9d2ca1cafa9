"""A store on more than one machine: a PostgreSQL primary that takes every write, and a streaming standby that is read.

What a strict read must not miss is the primary's to say: it is asked for the heads of the scope's chain, which is its
position as far as anybody at this scope can see. The standby is then read in one snapshot, and only where that very
snapshot holds these heads, or later ones whose log knows them by their nonces. Where it does not yet, the read waits
for the replay, for a bounded time, and then fails; it goes to the primary only where that was allowed.

Heads, rather than positions in the write-ahead log: those move with every tenant's writes and the server's own, so that
a read would wait for what it could never show; of an asynchronous commit they are either not yet flushed or not yet
sent; and after a failover two lineages count them alike. Positions in the log only tell, in errors, how far behind a
standby is.

On the standby, what heads speak for: lanes and scans of nodes. On the primary, the rest: writes, single rows, history,
edges, receipts and marks, which move no heads.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar, final
from urllib.parse import parse_qsl, urlsplit

import attrs
import psycopg
from anyio import from_thread

from promptkeel.errors import (
    InvalidInputError,
    ReplicaBehindError,
    ReplicaMismatchError,
    StoreBusyError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from promptkeel.instants import Clock
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.arguments import check_flag, check_seconds
from promptkeel.store.base import CatchUp, Heads, LaneRequest
from promptkeel.store.history import Standing, standing
from promptkeel.store.postgres import LOG_LIMIT, PostgresEngine
from promptkeel.store.postgres_connections import Address, Connection, Connections
from promptkeel.store.postgres_reads import Rows, statements

T = TypeVar("T")

REPLICA_TIMEOUT: Final = 5.0
"""Seconds that a strict read waits for a standby, unless told otherwise."""

_LONGEST_TIMEOUT: Final = 86_400.0
_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.05
"""Between two looks at a standby that is behind, in seconds; each pause is twice the one before."""

_IDENTITY: Final = """
SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database()), pg_is_in_recovery(),
  pg_postmaster_start_time()::text, to_regclass(%s) IS NOT NULL
FROM pg_control_system()"""
_META: Final = "SELECT key, value FROM {S}.meta"
_OWN_KEY: Final = "SELECT value FROM {S}.meta WHERE key = 'secret'"
_WRITTEN: Final = "SELECT pg_current_wal_insert_lsn()::text"
_REPLAYED: Final = """
SELECT pg_wal_lsn_diff(%s, pg_last_wal_replay_lsn()),
  extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8"""
_CONFLICTS: Final = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
"""What a standby answers to a read that stood in the way of its replay."""


@final
@attrs.frozen
class _Identity:
    """Which data a server has, and who it is."""

    system: int
    database: int
    is_standby: bool
    started: str
    secret: str | None
    schema: str | None


@final
@attrs.frozen
class _Proof(Generic[T]):
    """What one snapshot of a standby showed.

    Attributes:
        found: its heads.
        is_standby: whether the server still follows another.
        standing: where the heads stand against the primary's.
        answer: what was read there; None where nothing is proven.
    """

    found: Heads
    is_standby: bool
    standing: Standing
    answer: T | None


@final
class StandbyEngine(PostgresEngine):
    """A standby by itself, as far as it has come: for reads that need not be strict.

    Arguments as ``PostgresEngine``.
    """

    _is_standby = True

    def _prepare(self) -> None:
        """Nothing: what a standby holds, its primary has made."""

    def prove(self, scope: TenantScope, position: Heads, work: Callable[[Rows], T]) -> _Proof[T]:
        """Where one snapshot stands against the primary's heads, and what ``work`` answers where it holds them."""

        def read(connection: Connection) -> _Proof[T]:
            rows = self._rows(connection)
            found, is_standby = rows.heads_and_role(scope)
            stands = standing(position, found, rows.nonce_at)
            return _Proof(found, is_standby, stands, work(rows) if stands is Standing.PROVEN else None)

        return self._connections.reading(read)

    @property
    def name(self) -> str:
        """What the standby is called in errors."""
        return self._connections.name

    def expect(self, secret: str | None) -> None:
        """Refuse from now on whatever answers at this address with another store, as another server put there would."""
        # Those that are open were made before anything was expected; the server behind them stays the same.
        asked = statements(self._schema, {"secret": _OWN_KEY})["secret"]

        def greet(connection: Connection) -> None:
            try:
                found = connection.execute(asked).fetchone()
            except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
                found = None
            if found != (secret,):
                raise ReplicaMismatchError(
                    f"what answers as the replica {self.name} has another store: give the address of a standby"
                )

        self._connections.greet = greet

    def identity(self, connections: Connections | None = None) -> _Identity:
        """Which data the standby has; with ``connections``, which data those lead to."""
        return (connections or self._connections).short(self._ask_identity)

    def _ask_identity(self, connection: Connection) -> _Identity:
        row = connection.execute(_IDENTITY, (f"{self._schema}.meta",)).fetchone()
        assert row is not None  # noqa: S101 - the control file is one row
        system, database, is_standby, started, has_store = row
        asked = statements(self._schema, {"meta": _META})["meta"]
        meta: dict[str, str] = dict(connection.execute(asked).fetchall()) if has_store else {}
        return _Identity(system, database, is_standby, started, meta.get("secret"), meta.get("schema"))

    def replayed(self, written: str) -> tuple[int, float | None]:
        """How many bytes of the log are still to be replayed up to a position, and the last commit's age in seconds."""
        row = self._connections.short(lambda connection: connection.execute(_REPLAYED, (written,)).fetchone())
        assert row is not None  # noqa: S101 - a SELECT without FROM has one row
        return max(0, int(row[0] or 0)), row[1]


@final
class ReplicatedEngine(PostgresEngine):
    """A primary, with a standby that lanes and scans are read from.

    Args:
        url: the primary.
        replica: the standby's address; the schema is the primary's unless it names one.
        clock: answers the present instant; stamps what is written.
        replica_timeout: seconds that a strict read waits for the standby to reach the primary's position.
        replica_fallback: whether strict reads go to the primary where the standby is lost or stays behind for longer.
        schema: as for ``PostgresEngine``, like all that follow; each server has a pool of that size.

    Raises:
        ReplicaMismatchError: the replica is no standby of this primary, or has another store.
        ReplicaBehindError: it does not have the store yet.
    """

    def __init__(
        self,
        url: str,
        *,
        replica: str,
        clock: Clock,
        replica_timeout: float = REPLICA_TIMEOUT,
        replica_fallback: bool = False,
        schema: str | None = None,
        busy_timeout: float = 5.0,
        statement_timeout: float | None = None,
        pool_size: int = 10,
        log_limit: int = LOG_LIMIT,
        listen: bool = True,
    ) -> None:
        if not isinstance(replica, str):
            raise InvalidInputError(f"must be an address, not {type(replica).__name__}", field="replica")
        self._patience = check_seconds(replica_timeout, field="replica_timeout", longest=_LONGEST_TIMEOUT)
        self._fallback = check_flag(replica_fallback, field="replica_fallback")
        self._is_known = False
        self._is_primary_itself = False
        super().__init__(
            url,
            clock=clock,
            schema=schema,
            busy_timeout=busy_timeout,
            statement_timeout=statement_timeout,
            pool_size=pool_size,
            log_limit=log_limit,
            listen=listen,
        )
        try:
            _check_schema(replica, self._schema)
            self.standby = StandbyEngine(
                replica,
                clock=clock,
                schema=self._schema,
                busy_timeout=busy_timeout,
                statement_timeout=statement_timeout,
                pool_size=pool_size,
            )
        except BaseException:
            super().close()
            raise
        try:
            self._meet()
        except BaseException:
            self.close()
            raise

    def _meet(self) -> None:
        try:
            self._identify()
        except ReplicaMismatchError:
            raise
        except StoreUnavailableError:
            # Allowed to be away, it is met at the first read of it.
            if not self._fallback:
                raise

    # Strict reads

    def heads(self, scope: TenantScope) -> Heads:
        """The primary's present heads of the scope's chain."""
        found, is_standby = self._connections.short(lambda connection: self._rows(connection).heads_and_role(scope))
        if is_standby:
            raise StoreReadOnlyError(
                f"{self._connections.name} is a standby now, which may be behind: open its primary instead"
            )
        return found

    def catch_up(self, scope: TenantScope, requests: Sequence[LaneRequest]) -> CatchUp:
        """All lanes at one point in time that is not before this call, as the standby has them."""
        found = self._strictly(scope, lambda rows: rows.catch_up(scope, requests))
        assert found is not None  # noqa: S101 - only a short read answers None
        return found

    def query_nodes(self, scope: TenantScope, label_prefix: str | None, limit: int | None) -> list[MemoryNode]:
        """Every live node visible at the scope, in lane order, as the standby has them."""
        return self._strictly(scope, lambda rows: rows.query_nodes(scope, label_prefix, limit))

    def _strictly(self, scope: TenantScope, work: Callable[[Rows], T]) -> T:
        position = self.heads(scope)
        try:
            return self._proven(scope, position, work)
        except ReplicaMismatchError:
            raise
        except StoreUnavailableError:
            if not self._fallback:
                raise
        return self._connections.reading(lambda connection: work(self._rows(connection)))

    def _proven(self, scope: TenantScope, position: Heads, work: Callable[[Rows], T]) -> T:
        if not self._is_known:
            self._identify()
        last: _Proof[T] | None = None
        for _ in _looks(self._patience):
            try:
                last = self.standby.prove(scope, position, work)
            except StoreBusyError as error:
                if not isinstance(error.__cause__, _CONFLICTS):
                    raise
                continue
            if not last.is_standby and not self._is_primary_itself:
                raise ReplicaMismatchError(
                    f"{self._standby_name} follows no primary any more, it was promoted: "
                    "open it as the primary, or name another replica"
                )
            if last.standing is Standing.PROVEN:
                return last.answer  # type: ignore[return-value]  # what work answered
            if last.standing is Standing.DIVERGED:
                break
            if last.standing is Standing.UNKNOWN:
                position = self.heads(scope)
        if last is not None and last.standing in (Standing.DIVERGED, Standing.UNKNOWN):
            raise ReplicaMismatchError(
                f"{self._standby_name} holds changes at {_shown(scope)} that {self._connections.name} never made: "
                "it follows another primary; make it anew"
            )
        raise self._is_behind("the replay ended every read of it" if last is None else _distance(position, last.found))

    def _is_behind(self, what: str) -> ReplicaBehindError:
        written = self._connections.short(lambda connection: connection.execute(_WRITTEN).fetchone())
        assert written is not None  # noqa: S101 - a SELECT without FROM has one row
        missing, age = self.standby.replayed(written[0])
        last = "it has replayed no commit since it started" if age is None else f"its last commit is {age:.1f} s old"
        return ReplicaBehindError(
            f"{self._standby_name} was still behind {self._connections.name} after {self._patience:g} s: {what}; "
            f"{missing} bytes of the log are to be replayed, {last}: look at the replication, raise replica_timeout, "
            "or read with strict=False"
        )

    @property
    def _standby_name(self) -> str:
        return f"the replica {self.standby.name}"

    # Whether the replica is one

    def _identify(self) -> None:
        """Make sure that the replica follows this primary and has its store.

        Raises:
            ReplicaMismatchError: it is no standby of this primary, or has another store.
            ReplicaBehindError: it does not have the store yet.
        """
        mine = self.standby.identity(self._connections)
        its = mine
        for _ in _looks(self._patience):
            its = self.standby.identity()
            self._refuse(mine, its)
            if (its.secret, its.schema) == (mine.secret, mine.schema):
                self._is_primary_itself = its.started == mine.started and not its.is_standby
                self._is_known = True
                self.standby.expect(mine.secret)
                return
        if its.secret not in (None, mine.secret):
            raise ReplicaMismatchError(f"{self._standby_name} has another store than {self._connections.name}")
        raise self._is_behind(f"the store is not there, or not at schema {mine.schema} yet")

    def _refuse(self, mine: _Identity, its: _Identity) -> None:
        reason = None
        if its.system != mine.system:
            reason = "it has another system identifier"
        elif its.database != mine.database:
            reason = "it is another database of the server"
        elif not its.is_standby and its.started != mine.started:
            reason = "it follows no primary: it was promoted, or is a copy"
        if reason is not None:
            raise ReplicaMismatchError(
                f"{self._standby_name} is no standby of {self._connections.name}: {reason}; give the address of one"
            )

    def close(self) -> None:
        """Release everything; further calls raise StoreClosedError. Closing again does nothing."""
        super().close()
        self.standby.close()


def _check_schema(replica: str, schema: str) -> None:
    Address(replica)
    named = dict(parse_qsl(urlsplit(replica).query)).get("schema", schema)
    if named != schema:
        raise ReplicaMismatchError(
            f"the replica's address names the schema {named}, the primary's {schema}: name the same one"
        )


def _distance(position: Heads, found: Heads) -> str:
    past, present = next(
        (past, present) for past, present in zip(position.levels, found.levels, strict=True) if present.seq < past.seq
    )
    return f"{past.scope or '(deployment)'} stands at change {present.seq} there, and at {past.seq} on the primary"


def _shown(scope: TenantScope) -> str:
    return scope.path or "(deployment)"


def _go_on() -> None:
    """Stop waiting where the task that this worker thread works for was cancelled."""
    # Anywhere but in such a thread there is nobody to ask.
    with contextlib.suppress(RuntimeError):
        from_thread.check_cancelled()


def _looks(seconds: float) -> Iterator[None]:
    """Times to look again, the first one now, the last one when the seconds have passed."""
    end = time.monotonic() + seconds
    pause = _FIRST_PAUSE
    while True:
        yield
        left = end - time.monotonic()
        if left <= 0:
            return
        _go_on()
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)
