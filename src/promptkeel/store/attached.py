"""An engine inside a caller's transaction: what both kinds of database do alike there.

Reads see what the caller's transaction sees, its own uncommitted writes included, and nothing of them is kept. Each
``apply`` is a savepoint: released when it is done, rolled back when it is refused, so that the caller's transaction
goes on with nothing half written. Calls on one connection take turns, since savepoints of two would interleave.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

from promptkeel.errors import StoreBusyError, TransactionError, TransactionRetryError
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
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
    SnapshotEngine,
    Stored,
)
from promptkeel.store.decisions import visible_node
from promptkeel.store.operations import Finder, Operation, Outcome

T = TypeVar("T")

SAVEPOINT: Final = "promptkeel"
_ATTEMPTS: Final = 8
"""Several lanes are read so many times, until no other transaction has committed in between."""


class CallerRows(Finder, Protocol):
    """Reading rows, as every backend with rows does it."""

    def heads(self, scope: TenantScope) -> Heads:
        """The present heads of the scope's chain."""

    def catch_up(self, scope: TenantScope, requests: Sequence[LaneRequest], *, short: bool = False) -> CatchUp | None:
        """All lanes."""

    def query_nodes(self, scope: TenantScope, label_prefix: str | None, limit: int | None) -> list[MemoryNode]:
        """Every live node visible at the scope."""

    def nodes_as_of(self, scope: TenantScope, heads: Heads, label_prefix: str | None) -> PastLane:
        """The lane as it was."""

    def changes(self, scope: TenantScope, since: Heads, label_prefix: str | None) -> Changes:
        """What changed."""

    def history(self, scope: TenantScope, node_id: str) -> History:
        """Every kept version of a visible node."""

    def neighbours(
        self, scope: TenantScope, node_id: str, edge_type: str | None, direction: Direction
    ) -> list[Neighbour]:
        """The visible neighbours of a visible node."""

    def stored(self, scope: TenantScope) -> Stored:
        """Everything stored at a scope and below it."""

    def revisions(self, scope: TenantScope, block: str) -> list[MemoryNode]:
        """Every revision of an authored block at exactly this scope."""

    def receipts(self, scope: TenantScope, *, below: bool = False) -> list[Receipt]:
        """The erasures at exactly this scope, or at it and below."""

    def mark(self, key: str) -> str | None:
        """What the last ``Mark`` operation wrote under this key."""


R = TypeVar("R", bound=CallerRows)


class AttachedEngine(Generic[R]):
    """What an engine on a caller's connection answers; the backend says how it reads and how it writes.

    Args:
        engine: the store's own engine.
        connection: the caller's driver connection.
    """

    capabilities = frozenset({HEADS, HISTORY})
    is_local = False
    """Nothing here is run anywhere but where ``bound`` has it run."""

    def __init__(self, engine: Engine, connection: Any) -> None:
        self.url = engine.url
        self.not_covered = engine.not_covered
        self._engine = engine
        self._given = connection

    @contextmanager
    @abstractmethod
    def _reading(self) -> Iterator[R]:
        """What reads on the caller's connection, errors in our words."""

    @abstractmethod
    def _write(self, operations: Sequence[Operation]) -> tuple[Outcome, ...]:
        """Perform operations inside the savepoint that is open."""

    @contextmanager
    @abstractmethod
    def _saved(self, *, keep: bool) -> Iterator[None]:
        """A savepoint: released at the end where ``keep``, rolled back otherwise and where something is raised."""

    def _ask(self, work: Callable[[R], T]) -> T:
        with turn(self._given), self._reading() as rows:
            return work(rows)

    # Reads

    def probe(self) -> object:
        """A token that equals no other: what a transaction sees moves without anything being committed."""
        return object()

    def heads(self, scope: TenantScope) -> Heads:
        """The heads of the scope's chain, as the caller's transaction sees them."""
        return self._ask(lambda rows: rows.heads(scope))

    def tail(self, scope: TenantScope, requests: Sequence[LaneRequest]) -> CatchUp | None:  # noqa: ARG002 - the protocol's
        """None: nothing is kept that could be brought up to date."""
        return None

    def catch_up(self, scope: TenantScope, requests: Sequence[LaneRequest]) -> CatchUp:
        """All lanes, whole, at one point in time."""
        whole = [LaneRequest(request.prefix) for request in requests]
        return self._ask(lambda rows: self._settled(rows, scope, whole))

    def _settled(self, rows: R, scope: TenantScope, requests: Sequence[LaneRequest]) -> CatchUp:
        # Where each statement sees its own moment, heads that hold still say that the lanes did.
        for _ in range(_ATTEMPTS):
            found = rows.catch_up(scope, requests)
            assert found is not None  # noqa: S101 - only a short read answers None
            if rows.heads(scope) == found.heads:
                return found
        raise StoreBusyError(f"others wrote at scope {scope.path or '(deployment)'} all the time: read again")

    def get(self, scope: TenantScope, node_id: str) -> MemoryNode:
        """The node of this id visible at the scope, in whatever state."""
        return self._ask(lambda rows: visible_node(rows, scope, node_id))

    def query_nodes(self, scope: TenantScope, label_prefix: str | None, limit: int | None) -> list[MemoryNode]:
        """Every live node visible at the scope, in lane order."""
        return self._ask(lambda rows: rows.query_nodes(scope, label_prefix, limit))

    def nodes_as_of(self, scope: TenantScope, heads: Heads, label_prefix: str | None) -> PastLane:
        """The lane as it was at these heads."""
        return self._ask(lambda rows: rows.nodes_as_of(scope, heads, label_prefix))

    def changes(self, scope: TenantScope, since: Heads, label_prefix: str | None) -> Changes:
        """What changed since these heads."""
        return self._ask(lambda rows: rows.changes(scope, since, label_prefix))

    def history(self, scope: TenantScope, node_id: str) -> History:
        """Every kept version of a visible node."""
        return self._ask(lambda rows: rows.history(scope, node_id))

    def neighbours(
        self, scope: TenantScope, node_id: str, edge_type: str | None, direction: Direction
    ) -> list[Neighbour]:
        """The visible neighbours of a visible node, by edge type, then id."""
        return self._ask(lambda rows: rows.neighbours(scope, node_id, edge_type, direction))

    def stored(self, scope: TenantScope) -> Stored:
        """Everything stored at a scope and below it."""
        return self._ask(lambda rows: rows.stored(scope))

    def revisions(self, scope: TenantScope, block: str) -> list[MemoryNode]:
        """Every revision of an authored block at exactly this scope, in every state."""
        return self._ask(lambda rows: rows.revisions(scope, block))

    def receipts(self, scope: TenantScope, *, below: bool = False) -> list[Receipt]:
        """The erasures at exactly this scope, or at it and below, oldest first."""
        return self._ask(lambda rows: rows.receipts(scope, below=below))

    def mark(self, key: str) -> str | None:
        """What the last ``Mark`` operation wrote under this key."""
        return self._ask(lambda rows: rows.mark(key))

    def secret(self) -> bytes:
        """The store's own random key."""
        return self._engine.secret()

    # Writes

    def apply(self, operations: Sequence[Operation], *, dry_run: bool = False) -> tuple[Outcome, ...]:
        """Perform all operations in one savepoint, or none; the outcomes in the same order."""
        with turn(self._given), self._saved(keep=not dry_run):
            return self._write(operations)

    # What a transaction of somebody else's is not for

    def settle_receipts(self) -> None:
        """Refused: a file or a table is rewritten in a transaction of its own."""
        _refuse("settle_receipts")

    def open_snapshot(self) -> SnapshotEngine:
        """Refused: the caller's transaction says what it sees."""
        _refuse("open_snapshot")

    def attach(self, connection: Any) -> Engine:  # noqa: ARG002 - the protocol's
        """Refused: this is on a connection already."""
        _refuse("attach")

    def close(self) -> None:
        """Nothing: the connection is the caller's."""


def _refuse(name: str) -> NoReturn:
    raise TransactionError(f"{name} cannot be done inside a caller's transaction: ask the store itself")


def must_retry(reason: str) -> TransactionRetryError:
    """That others got in the way of the whole transaction."""
    return TransactionRetryError(
        f"{reason}: nothing of this call was written; roll your transaction back and run the whole of it again"
    )


_turns: dict[int, list[Any]] = {}
_guard = threading.Lock()


@contextmanager
def turn(connection: object) -> Iterator[None]:
    """This thread's turn on a connection: calls from several threads, or tasks, go one after the other."""
    key = id(connection)
    with _guard:
        held = _turns.setdefault(key, [threading.RLock(), 0])
        held[1] += 1
    try:
        with held[0]:
            yield
    finally:
        with _guard:
            held[1] -= 1
            if not held[1]:
                del _turns[key]
