"""The store on a server: PostgreSQL, for more than one machine; heads, log and history kept by triggers.

``PostgresEngine`` puts the parts together: ``postgres_schema`` says what is stored and what moves with it,
``postgres_connections`` how connections are lent, ``postgres_reads`` how rows become nodes and lanes,
``postgres_writes`` what a transaction can do and what it holds, ``postgres_scrubbing`` whether erased bytes are gone,
``postgres_listening`` who is woken by commits of others.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, final

import psycopg

from promptkeel.errors import StoreClosedError
from promptkeel.instants import Clock
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.arguments import check_count, check_flag
from promptkeel.store.audit import Audit
from promptkeel.store.base import (
    HEADS,
    HISTORY,
    CatchUp,
    Changes,
    Direction,
    Engine,
    Heads,
    Hearing,
    History,
    LaneRequest,
    Neighbour,
    PastLane,
    Receipt,
    Rings,
    Stored,
)
from promptkeel.store.decisions import perform, visible_node
from promptkeel.store.operations import Operation, Outcome
from promptkeel.store.postgres_batch import keys_of
from promptkeel.store.postgres_connections import Address, Connection, Connections
from promptkeel.store.postgres_listening import Listener
from promptkeel.store.postgres_reads import STATEMENTS, Rows, statements
from promptkeel.store.postgres_schema import migrate, schema_sql
from promptkeel.store.postgres_scrubbing import settle
from promptkeel.store.postgres_upkeep import UPKEEP, audit, floor_keeping, forget, log_span
from promptkeel.store.postgres_writes import WRITES, PostgresTransaction, buckets_of, is_due, may_repeat, trim

__all__ = ["PostgresEngine", "PostgresSnapshot", "schema_sql"]

T = TypeVar("T")

LOG_LIMIT: Final = 200_000


class PostgresEngine(Hearing):
    """A store in one schema of a PostgreSQL database, made if it is not there.

    Args:
        url: ``postgresql://user@host/database``, as libpq reads it; ``schema=name`` among its parameters is ours.
        clock: answers the present instant; stamps what is written.
        schema: the schema that holds the store; ``promptkeel`` where the address names none.
        busy_timeout: seconds to wait for a connection, or for another writer.
        statement_timeout: seconds that one statement may take; None is the server's own setting. A commit that waits
            for another writer is ended by ``busy_timeout`` alone.
        pool_size: how many connections there are at most; an open snapshot keeps one.
        log_limit: how many changes the log and the history of each scope root reach back, at least.
        listen: whether watchers are woken by LISTEN, on one more connection while somebody watches; they poll anyway.
    """

    capabilities = frozenset({HEADS, HISTORY})
    not_covered: tuple[str, ...] = (
        "write-ahead logs and their archives",
        "standbys until they have replayed it",
        "backups and other copies",
        "blocks of the disk that no table uses any more",
    )
    is_local = False
    _is_standby = False

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        schema: str | None = None,
        busy_timeout: float = 5.0,
        statement_timeout: float | None = None,
        pool_size: int = 10,
        log_limit: int = LOG_LIMIT,
        listen: bool = True,
    ) -> None:
        check_count(log_limit, field="log_limit")
        check_flag(listen, field="listen")
        address = Address(url, schema)
        self.url = address.shown
        self._clock = clock
        self._log_limit = log_limit
        self._reads = statements(address.schema, STATEMENTS)
        self._schema = address.schema
        self._texts = self._reads | statements(address.schema, WRITES | UPKEEP)
        self._connections = Connections(
            address,
            pool_size=pool_size,
            busy_timeout=busy_timeout,
            statement_timeout=statement_timeout,
            standby=self._is_standby,
        )
        self._listener = Listener(self._connections, address.schema, is_wanted=listen)
        self._state = threading.Lock()
        self._written: dict[str, int] = {}
        self._prepare()

    def _prepare(self) -> None:
        """Have the schema as this program knows it."""
        with self._connections.connect() as connection:
            try:
                migrate(connection, self._schema, self._connections.name)
            except psycopg.Error as error:
                raise self._connections.translate(error) from error

    def _rows(self, connection: Connection) -> Rows:
        return Rows(connection, self._reads)

    # Short reads

    def probe(self) -> object:
        """A token; equal tokens: nothing has been committed in between, by anyone."""
        return self._connections.short(lambda connection: self._rows(connection).pulse())

    def heads(self, scope: TenantScope) -> Heads:
        """The present heads of the scope's chain."""
        return self._connections.short(lambda connection: self._rows(connection).heads(scope))

    def tail(self, scope: TenantScope, requests: Sequence[LaneRequest]) -> CatchUp | None:
        """As ``catch_up`` where at most a few changes say it all; else None."""
        self._connections.check()
        if any(request.since is None for request in requests):
            return None
        return self._connections.reading(
            lambda connection: self._rows(connection).catch_up(scope, requests, short=True)
        )

    def get(self, scope: TenantScope, node_id: str) -> MemoryNode:
        """The node of this id visible at the scope, in whatever state."""
        return self._connections.short(lambda connection: visible_node(self._rows(connection), scope, node_id))

    def mark(self, key: str) -> str | None:
        """What the last ``Mark`` operation wrote under this key."""
        return self._connections.short(lambda connection: self._rows(connection).mark(key))

    def secret(self) -> bytes:
        """The store's own random key, made when the store was."""
        return self._connections.short(lambda connection: self._rows(connection).secret())

    # Scans

    def catch_up(self, scope: TenantScope, requests: Sequence[LaneRequest]) -> CatchUp:
        """All lanes at one point in time, each as a difference where the log reaches back, else whole."""
        found = self._connections.reading(lambda connection: self._rows(connection).catch_up(scope, requests))
        assert found is not None  # noqa: S101 - only a short read answers None
        return found

    def query_nodes(self, scope: TenantScope, label_prefix: str | None, limit: int | None) -> list[MemoryNode]:
        """Every live node visible at the scope, in lane order."""
        return self._connections.short(
            lambda connection: self._rows(connection).query_nodes(scope, label_prefix, limit)
        )

    def nodes_as_of(self, scope: TenantScope, heads: Heads, label_prefix: str | None) -> PastLane:
        """The lane as it was at these heads."""
        return self._connections.reading(
            lambda connection: self._rows(connection).nodes_as_of(scope, heads, label_prefix)
        )

    def changes(self, scope: TenantScope, since: Heads, label_prefix: str | None) -> Changes:
        """What changed since these heads."""
        return self._connections.reading(lambda connection: self._rows(connection).changes(scope, since, label_prefix))

    def history(self, scope: TenantScope, node_id: str) -> History:
        """Every kept version of a visible node."""
        return self._connections.reading(lambda connection: self._rows(connection).history(scope, node_id))

    def neighbours(
        self, scope: TenantScope, node_id: str, edge_type: str | None, direction: Direction
    ) -> list[Neighbour]:
        """The visible neighbours of a visible node, by edge type, then id."""
        return self._connections.reading(
            lambda connection: self._rows(connection).neighbours(scope, node_id, edge_type, direction)
        )

    def stored(self, scope: TenantScope) -> Stored:
        """Everything stored at a scope and below it, at one point in time."""
        return self._connections.reading(lambda connection: self._rows(connection).stored(scope))

    def revisions(self, scope: TenantScope, block: str) -> list[MemoryNode]:
        """Every revision of an authored block at exactly this scope, in every state."""
        return self._connections.short(lambda connection: self._rows(connection).revisions(scope, block))

    def receipts(self, scope: TenantScope, *, below: bool = False) -> list[Receipt]:
        """The erasures at exactly this scope, or at it and below, oldest first."""
        return self._connections.short(lambda connection: self._rows(connection).receipts(scope, below=below))

    def settle_receipts(self) -> None:
        """Rewrite the partitions that held what was erased, one table after the other, and note it on the receipts."""
        settle(self._connections)

    def open_snapshot(self) -> PostgresSnapshot:
        """A view of the store at this point in time."""
        return PostgresSnapshot(self._connections, self._reads)

    # Writes

    def apply(self, operations: Sequence[Operation], *, dry_run: bool = False) -> tuple[Outcome, ...]:
        """Perform all operations in one transaction, or none; the outcomes in the same order."""
        buckets = buckets_of(operations)

        def work(connection: Connection) -> tuple[tuple[Outcome, ...], dict[str, int]]:
            now = self._clock()
            transaction = PostgresTransaction(connection, self._texts, self._connections.lock, buckets)
            if len(operations) > 1:
                transaction.expect(*keys_of(operations))
            outcomes = tuple(perform(transaction, operation, now) for operation in operations)
            transaction.flush()
            return outcomes, transaction.written

        outcomes, written = self._connections.transact(
            work, buckets=buckets, keep=not dry_run, again=may_repeat(operations)
        )
        if not dry_run:
            self._trim(written)
        return outcomes

    def _trim(self, written: dict[str, int]) -> None:
        """Trim the logs that have grown, each in a transaction of its own."""
        for root in self._due(written):
            self._connections.transact(functools.partial(self._trim_root, root), buckets=[])

    def _due(self, written: dict[str, int]) -> list[str]:
        """The roots whose logs have grown by enough, with what was written just now."""
        due: list[str] = []
        with self._state:
            for root, count in written.items():
                self._written[root] = self._written.get(root, 0) + count
                if is_due(self._written[root], self._log_limit):
                    del self._written[root]
                    due.append(root)
        return due

    def _trim_root(self, root: str, connection: Connection) -> None:
        trim(connection, self._texts, root, self._log_limit)

    # Upkeep

    def log_span(self) -> tuple[int, int]:
        """The first and the last change in the log; (1, 0) where it is empty."""
        return self._connections.short(lambda connection: log_span(connection, self._texts))

    def floor_keeping(self, changes: int) -> int:
        """The change behind which so many are left; 0 where there are no more."""
        return self._connections.short(lambda connection: floor_keeping(connection, self._texts, changes))

    def compact(self, floor: int, step: int) -> int:
        """Forget at most ``step`` of the changes up to ``floor``, oldest first; how many. The last change stays."""
        return self._connections.transact(
            lambda connection: forget(connection, self._texts, floor, step), buckets=[], again=True
        )

    def audit(self) -> Audit:
        """Everything that is wrong with what is stored."""
        return self._connections.reading(lambda connection: audit(connection, self._texts, self._schema))

    def attach(self, connection: Any) -> Engine:
        """An engine that works on a caller's connection to the same database, inside the transaction that is open."""
        from promptkeel.store.postgres_caller import PostgresAttachedEngine

        self._connections.check()
        return PostgresAttachedEngine(
            self,
            connection,
            connections=self._connections,
            texts=self._texts,
            clock=self._clock,
            after=self._trim_inside,
        )

    def _trim_inside(self, connection: Connection, written: dict[str, int]) -> None:
        """Trim the logs that have grown, inside a transaction that is somebody else's."""
        for root in self._due(written):
            self._trim_root(root, connection)

    def close(self) -> None:
        """Release everything; further calls raise StoreClosedError. Closing again does nothing."""
        self._listener.close()
        self._connections.close()

    # Others' commits

    def hear(self, who: Rings) -> None:
        """Ring at ``who`` after commits, for as long as it lives; never where a pooler stands in between."""
        self._listener.hear(who)


@final
class PostgresSnapshot:
    """A connection held in one transaction, which sees the moment at which the snapshot was opened."""

    def __init__(self, connections: Connections, texts: dict[str, str]) -> None:
        self._connections = connections
        self._texts = texts
        self._lock = threading.Lock()
        # A transaction's point in time is its first statement's.
        self._connection: Connection | None = connections.snapshot()

    def heads(self, scope: TenantScope) -> Heads:
        """The heads at the snapshot."""
        return self._asked(lambda rows: rows.heads(scope))

    def get(self, scope: TenantScope, node_id: str) -> MemoryNode:
        """The node as it was at the snapshot."""
        return self._asked(lambda rows: visible_node(rows, scope, node_id))

    def query_nodes(self, scope: TenantScope, label_prefix: str | None, limit: int | None) -> list[MemoryNode]:
        """The live nodes as they were at the snapshot."""
        return self._asked(lambda rows: rows.query_nodes(scope, label_prefix, limit))

    def _asked(self, work: Callable[[Rows], T]) -> T:
        with self._lock:
            if self._connection is None:
                raise StoreClosedError("the snapshot is closed")
            try:
                return work(Rows(self._connection, self._texts))
            except psycopg.Error as error:
                raise self._connections.translate(error) from error

    def close(self) -> None:
        """Let the store move on."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                self._connections.take_back(connection)
