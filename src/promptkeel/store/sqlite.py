"""The store in a file: SQLite with write-ahead log, heads, log and history kept by triggers.

``SqliteEngine`` puts the parts together: ``sqlite_schema`` says what is stored and what moves with it, ``sqlite_file``
what makes a file ours, ``sqlite_connections`` which connection does what, ``sqlite_reads`` how rows become nodes and
lanes, ``sqlite_writes`` what a transaction can do, ``sqlite_scrubbing`` whether an erased node's bytes are gone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import parse_qsl, unquote

import apsw
import attrs

from promptkeel.errors import InvalidInputError, NotAStoreError, StoreClosedError
from promptkeel.instants import Clock
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.arguments import check_count, check_seconds
from promptkeel.store.audit import Audit
from promptkeel.store.base import (
    HEADS,
    HISTORY,
    CatchUp,
    Changes,
    Direction,
    Engine,
    Heads,
    History,
    LaneRequest,
    Neighbour,
    PastLane,
    Receipt,
    Stored,
)
from promptkeel.store.decisions import perform, visible_node
from promptkeel.store.operations import Operation, Outcome
from promptkeel.store.sqlite_audit import audit
from promptkeel.store.sqlite_backup import copy_pages, take_pages
from promptkeel.store.sqlite_connections import Connections, Loan
from promptkeel.store.sqlite_file import LONGEST_TIMEOUT, DatabaseFile, SqliteDriver
from promptkeel.store.sqlite_glance import glance
from promptkeel.store.sqlite_reads import SHORT_LOG, Rows, read_heads
from promptkeel.store.sqlite_scrubbing import Erased, scrub, settle
from promptkeel.store.sqlite_writes import SqliteTransaction, forget, log_span, trim

LOG_LIMIT: Final = 200_000
_PREFIX: Final = "sqlite:///"


def path_of(url: str) -> Path:
    """The file that an address names.

    Raises:
        NotAStoreError: it names none.
    """
    if not url.startswith(_PREFIX):
        raise NotAStoreError(f"{url!r} names no file; write sqlite:///relative.db or sqlite:////absolute.db")
    try:
        name = unquote(url[len(_PREFIX) :].partition("?")[0], errors="strict")
        name.encode()
    except UnicodeError:
        raise NotAStoreError(
            f"{url!a} holds what is not UTF-8; no file that a store can be in has such a name"
        ) from None
    if not name or name.startswith(":memory:"):
        raise NotAStoreError(f"{url!r} names no file; for a store in memory use 'ram:'")
    if "\0" in name:
        raise NotAStoreError(f"{url!r} holds a NUL; no file has such a name")
    return Path(name)


def driver_in(url: str) -> SqliteDriver:
    """Whose copy of SQLite an address asks for, as ``sqlite:///memory.db?driver=sqlite3``; apsw's unless it does.

    Raises:
        NotAStoreError: it asks for something else.
    """
    given = parse_qsl(url.partition("?")[2], keep_blank_values=True)
    for name, _ in given:
        if name != "driver":
            raise NotAStoreError(
                f"{url!r} has a parameter {name!r}, and this kind of store knows driver alone (a question mark in the "
                "name of a file is written %3F)"
            )
    return _check_driver(given[-1][1]) if given else "apsw"


def _check_driver(driver: object) -> SqliteDriver:
    if driver == "apsw" or driver == "sqlite3":
        return driver
    raise InvalidInputError(f"must be 'apsw' or 'sqlite3', not {driver!r}", field="driver")


def _resolved(path: Path) -> Path:
    # Up to Python 3.12 resolving a circle raises; from 3.13 on it answers a link that leads to itself.
    try:
        resolved = path.resolve()
    except (OSError, RuntimeError) as error:
        raise NotAStoreError(f"{path} leads to no file: its links go round in a circle") from error
    if resolved.is_symlink():
        raise NotAStoreError(f"{path} leads to no file: its links go round in a circle")
    return resolved


@final
class SqliteEngine:
    """A store in one SQLite file, made if it is not there.

    Args:
        url: ``sqlite:///relative.db`` or ``sqlite:////absolute.db``; the path may be percent-encoded. It may end with
            ``?driver=sqlite3``.
        clock: answers the present instant; stamps what is written.
        busy_timeout: seconds to wait for another writer.
        log_limit: how many changes the log and the history reach back, at least.
        vfs: the name of a registered apsw VFS; None is the operating system's.
        driver: ``apsw``, or ``sqlite3`` for the library that Python is linked with, where that is what the program's
            other connections to the file use; None is what the address says, else ``apsw``.
    """

    capabilities = frozenset({HEADS, HISTORY})
    not_covered: tuple[str, ...] = (
        "backups and other copies of the file",
        "blocks of the disk that the file no longer uses",
    )
    is_local = True

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        busy_timeout: float = 5.0,
        log_limit: int = LOG_LIMIT,
        vfs: str | None = None,
        driver: SqliteDriver | None = None,
    ) -> None:
        busy_timeout = check_seconds(busy_timeout, field="busy_timeout", longest=LONGEST_TIMEOUT)
        check_count(log_limit, field="log_limit")
        used = driver_in(url)
        if driver is not None:
            used = _check_driver(driver)
        if used == "sqlite3":
            from promptkeel.store.sqlite_standard import check_library

            check_library()
            if vfs is not None:
                raise InvalidInputError("is one of apsw's, which driver=sqlite3 does not use", field="vfs")
        self.url = url
        self._clock = clock
        self._log_limit = log_limit
        # Resolved once, so that no later change of the working folder or of a link moves the store.
        file = DatabaseFile(_resolved(path_of(url)), busy_timeout=busy_timeout, vfs=vfs, driver=used)
        self._connections = Connections(file)

    # Short reads

    def probe(self) -> object:
        """A token; equal tokens: nothing has been committed in between, by anyone."""
        return self._connections.probe()

    def heads(self, scope: TenantScope) -> Heads:
        """The present heads of the scope's chain."""
        with self._connections.short() as connection:
            schema = self._connections.check_schema(connection)
            return read_heads(connection, scope, schema)

    def tail(self, scope: TenantScope, requests: Sequence[LaneRequest]) -> CatchUp | None:
        """As ``catch_up`` where at most a few changes say it all; else None."""
        if not requests or any(request.since is None for request in requests):
            self._connections.check()
            return None
        with self._connections.short() as connection:
            # Read before the heads, so that heads never carry a newer one than they were read at.
            schema = self._connections.check_schema(connection)
            untouched = glance(connection, scope, requests, SHORT_LOG, schema)
            if untouched is not None:
                return untouched
            connection.execute("BEGIN")
            try:
                return Rows(connection, schema).catch_up(scope, requests, short=True)
            finally:
                connection.execute("ROLLBACK")

    def get(self, scope: TenantScope, node_id: str) -> MemoryNode:
        """The node of this id visible at the scope, in whatever state."""
        with self._connections.short() as connection:
            return visible_node(Rows(connection), scope, node_id)

    def mark(self, key: str) -> str | None:
        """What the last ``Mark`` operation wrote under this key."""
        with self._connections.short() as connection:
            return Rows(connection).mark(key)

    def secret(self) -> bytes:
        """The store's own random key, made when the store was."""
        with self._connections.short() as connection:
            value: bytes = connection.execute("SELECT value FROM meta WHERE key = 'secret'").get
            return value

    # Scans

    def catch_up(self, scope: TenantScope, requests: Sequence[LaneRequest]) -> CatchUp:
        """All lanes at one point in time, each as a difference where the log reaches back, else whole."""
        with self._connections.lent() as loan:
            found = Rows(loan.connection, loan.schema).catch_up(scope, requests)
            assert found is not None  # noqa: S101 - only a short read answers None
            return found

    def query_nodes(self, scope: TenantScope, label_prefix: str | None, limit: int | None) -> list[MemoryNode]:
        """Every live node visible at the scope, in lane order."""
        with self._connections.reading() as connection:
            return Rows(connection).query_nodes(scope, label_prefix, limit)

    def nodes_as_of(self, scope: TenantScope, heads: Heads, label_prefix: str | None) -> PastLane:
        """The lane as it was at these heads."""
        with self._connections.reading() as connection:
            return Rows(connection).nodes_as_of(scope, heads, label_prefix)

    def changes(self, scope: TenantScope, since: Heads, label_prefix: str | None) -> Changes:
        """What changed since these heads."""
        with self._connections.lent() as loan:
            return Rows(loan.connection, loan.schema).changes(scope, since, label_prefix)

    def history(self, scope: TenantScope, node_id: str) -> History:
        """Every kept version of a visible node."""
        with self._connections.reading() as connection:
            return Rows(connection).history(scope, node_id)

    def neighbours(
        self, scope: TenantScope, node_id: str, edge_type: str | None, direction: Direction
    ) -> list[Neighbour]:
        """The visible neighbours of a visible node, by edge type, then id."""
        with self._connections.reading() as connection:
            return Rows(connection).neighbours(scope, node_id, edge_type, direction)

    def stored(self, scope: TenantScope) -> Stored:
        """Everything stored at a scope and below it, at one point in time."""
        with self._connections.reading() as connection:
            return Rows(connection).stored(scope)

    def revisions(self, scope: TenantScope, block: str) -> list[MemoryNode]:
        """Every revision of an authored block at exactly this scope, in every state."""
        with self._connections.reading() as connection:
            return Rows(connection).revisions(scope, block)

    def receipts(self, scope: TenantScope, *, below: bool = False) -> list[Receipt]:
        """The erasures at exactly this scope, or at it and below, oldest first."""
        with self._connections.reading() as connection:
            return Rows(connection).receipts(scope, below=below)

    def open_snapshot(self) -> SqliteSnapshot:
        """A view of the store at this point in time."""
        return SqliteSnapshot(self._connections)

    # Writes

    def apply(self, operations: Sequence[Operation], *, dry_run: bool = False) -> tuple[Outcome, ...]:
        """Perform all operations in one transaction, or none; the outcomes in the same order."""
        erased: list[Erased] = []

        def work(connection: apsw.Connection) -> tuple[Outcome, ...]:
            now = self._clock()
            transaction = SqliteTransaction(connection)
            outcomes = tuple(perform(transaction, operation, now) for operation in operations)
            transaction.finish()
            trim(connection, self._log_limit)
            erased.extend(transaction.erased)
            return outcomes

        outcomes = self._connections.transact(work, keep=not dry_run)
        if erased and not dry_run and scrub(self._connections, erased):
            return tuple(_scrubbed(outcome) for outcome in outcomes)
        return outcomes

    def settle_receipts(self) -> None:
        """Rewrite the file so that no byte of an erased node is left, and note it on the receipts."""
        settle(self._connections)

    # Upkeep

    def log_span(self) -> tuple[int, int]:
        """The first and the last change in the log; (1, 0) where it is empty."""
        with self._connections.short() as connection:
            return log_span(connection)

    def floor_keeping(self, changes: int) -> int:
        """The change behind which so many are left; 0 where there are no more."""
        first, last = self.log_span()
        return max(0, last - changes) if last - first >= changes else 0

    def compact(self, floor: int, step: int) -> int:
        """Forget at most ``step`` of the changes up to ``floor``, oldest first; how many. The last change stays."""

        def work(connection: apsw.Connection) -> int:
            first, last = log_span(connection)
            end = min(floor, first + step - 1, last - 1)
            if end >= first:
                forget(connection, end)
            return max(0, end - first + 1)

        return self._connections.transact(work)

    def audit(self) -> Audit:
        """Everything that is wrong with what is stored."""
        with self._connections.auditing() as connection:
            return audit(connection)

    def back_up(self, path: Path, on_progress: Callable[[int, int], object]) -> None:
        """Copy the store, as it is at one point in time, to a file that is not there yet; writers go on meanwhile."""
        with self._connections.reading() as connection:
            copy_pages(connection, path, on_progress)

    def replace_by(self, path: Path) -> None:
        """Take the place of everything that is stored with what is in another store's file, in one transaction."""
        with self._connections.writing() as connection:
            take_pages(connection, path)

    def attach(self, connection: Any) -> Engine:
        """An engine that works on a caller's connection to the same file, inside the transaction that is open there."""
        from promptkeel.store.sqlite_caller import SqliteAttachedEngine

        self._connections.check(now=True)
        return SqliteAttachedEngine(
            self, connection, file=self._connections.file, clock=self._clock, log_limit=self._log_limit
        )

    def close(self) -> None:
        """Release everything; further calls raise StoreClosedError. Closing again does nothing."""
        self._connections.close()


def _scrubbed(outcome: Outcome) -> Outcome:
    if outcome.receipt is None:
        return outcome
    return attrs.evolve(outcome, receipt=attrs.evolve(outcome.receipt, state="scrubbed"))


@final
class SqliteSnapshot:
    """A reader held in one read transaction, from the moment the snapshot was opened."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._loan: Loan | None = connections.lend()

    def heads(self, scope: TenantScope) -> Heads:
        """The heads at the snapshot."""
        with self._open() as loan:
            return read_heads(loan.connection, scope, loan.schema)

    def get(self, scope: TenantScope, node_id: str) -> MemoryNode:
        """The node as it was at the snapshot."""
        with self._open() as loan:
            return visible_node(Rows(loan.connection), scope, node_id)

    def query_nodes(self, scope: TenantScope, label_prefix: str | None, limit: int | None) -> list[MemoryNode]:
        """The live nodes as they were at the snapshot."""
        with self._open() as loan:
            return Rows(loan.connection).query_nodes(scope, label_prefix, limit)

    @contextmanager
    def _open(self) -> Iterator[Loan]:
        if os.getpid() != self._process:
            raise StoreClosedError("the snapshot belongs to the parent of this process; open one here")
        with self._connections.gate(), self._lock:
            if self._loan is None:
                raise StoreClosedError("the snapshot is closed")
            with self._connections.translated():
                yield self._loan

    def close(self) -> None:
        """Let the store move on."""
        if os.getpid() != self._process:
            return
        with self._lock:
            loan, self._loan = self._loan, None
            if loan is not None:
                self._connections.take_back(loan)
