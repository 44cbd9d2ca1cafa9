"""The two public forms of a store over one engine: asynchronous and blocking, from the same steps.

Short reads run inline, also on an event loop; scans and writes go to worker threads.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import ParamSpec, Self, TypeVar, final

from promptkeel.errors import InvalidInputError
from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Steps, as_async, as_blocking
from promptkeel.store.arguments import (
    check_edge_type,
    check_flag,
    check_heads,
    check_label_prefix,
    check_limit,
    check_node_id,
    check_scope,
)
from promptkeel.store.base import (
    WATCH,
    Changes,
    Direction,
    Engine,
    Heads,
    History,
    Neighbour,
    PastLane,
    Receipt,
    SnapshotEngine,
    Stored,
)
from promptkeel.store.operations import Erase, Link, Operation, Outcome, Put, Retract, Unlink, check_operations
from promptkeel.store.watching import WATCH_INTERVAL, BlockingLaneWatch, LaneWatch, wake

P = ParamSpec("P")
T = TypeVar("T")


class StoreCore:
    """A store's methods as steps."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def _short(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Steps[T]:
        """A short read: right here on a local engine, in a worker on a remote one."""
        if self.engine.is_local:
            return method(*args, **kwargs)
        found: T = yield Call(functools.partial(method, *args, **kwargs))
        return found

    def apply(self, operations: Sequence[Operation], *, dry_run: bool = False) -> Steps[tuple[Outcome, ...]]:
        """Perform all operations in one transaction, or none; with ``dry_run``, say what they would do."""
        checked = check_operations(operations)
        outcomes: tuple[Outcome, ...] = yield Call(lambda: self.engine.apply(checked, dry_run=dry_run))
        wake(self.engine)
        return outcomes

    def put(self, node: MemoryNode, *, expected: MemoryNode | str | None = None) -> Steps[MemoryNode]:
        """Insert a node; with ``expected`` (the node read before, or its version), change it if it still is that.

        Raises:
            NodeExistsError: the id is in use under the same root.
            ReadOnlyNodeError: the node belongs to an ancestor.
            ConflictError: it has changed since ``expected``.
        """
        (outcome,) = yield from self.apply((Put(node, expected),))
        return _node(outcome)

    def get(self, scope: TenantScope, node_id: str) -> Steps[MemoryNode]:
        """The node of this id visible at the scope, in whatever state.

        Raises:
            NodeNotFoundError: none is.
        """
        return (yield from self._short(self.engine.get, check_scope(scope), check_node_id(node_id)))

    def query_nodes(
        self, scope: TenantScope, *, label_prefix: str | None = None, limit: int | None = None
    ) -> Steps[Sequence[MemoryNode]]:
        """Every live node visible at the scope whose label starts with the prefix, in lane order."""
        check_scope(scope)
        label_prefix = check_label_prefix(label_prefix)
        limit = check_limit(limit)
        nodes: list[MemoryNode] = yield Call(self.engine.query_nodes, scope, label_prefix, limit)
        return nodes

    def retract(
        self, scope: TenantScope, node_id: str, *, expected: MemoryNode | str | None = None
    ) -> Steps[MemoryNode]:
        """Take a node out of every lane and keep it in history."""
        (outcome,) = yield from self.apply((Retract(scope, node_id, expected),))
        return _node(outcome)

    def erase(self, scope: TenantScope, node_id: str) -> Steps[Receipt]:
        """Remove a node and all that was kept of it; the receipt holds no text."""
        (outcome,) = yield from self.apply((Erase(scope, node_id),))
        assert outcome.receipt is not None  # noqa: S101 - what Erase answers
        return outcome.receipt

    def link(self, edge: MemoryEdge) -> Steps[MemoryEdge]:
        """Add an edge; adding it again changes its properties.

        Raises:
            CycleError: the edge would close a cycle of lineage.
        """
        yield from self.apply((Link(edge),))
        return edge

    def unlink(self, edge: MemoryEdge) -> Steps[None]:
        """Remove an edge."""
        yield from self.apply((Unlink(edge),))

    def neighbours(
        self, scope: TenantScope, node_id: str, *, edge_type: str | None = None, direction: Direction = "out"
    ) -> Steps[Sequence[Neighbour]]:
        """The visible neighbours of a visible node, by edge type, then id."""
        if direction not in ("out", "in", "both"):
            raise InvalidInputError(f"must be 'out', 'in' or 'both', not {direction!r}", field="direction")
        check_scope(scope)
        node_id, edge_type = check_node_id(node_id), check_edge_type(edge_type)
        found: list[Neighbour] = yield Call(self.engine.neighbours, scope, node_id, edge_type, direction)
        return found

    def heads(self, scope: TenantScope) -> Steps[Heads]:
        """The present heads of the scope's chain; equal heads: nothing visible has changed."""
        return (yield from self._short(self.engine.heads, check_scope(scope)))

    def changes(self, scope: TenantScope, since: Heads, *, label_prefix: str | None = None) -> Steps[Changes]:
        """What changed since these heads, in lanes of this prefix."""
        label_prefix = check_label_prefix(label_prefix)
        found: Changes = yield Call(self.engine.changes, check_scope(scope), check_heads(since), label_prefix)
        return found

    def nodes_as_of(self, scope: TenantScope, heads: Heads, *, label_prefix: str | None = None) -> Steps[PastLane]:
        """The lane as it was at these heads.

        Raises:
            CompactedError: the history no longer reaches back to them, or they are not of this store.
        """
        label_prefix = check_label_prefix(label_prefix)
        found: PastLane = yield Call(self.engine.nodes_as_of, check_scope(scope), check_heads(heads), label_prefix)
        return found

    def history(self, scope: TenantScope, node_id: str) -> Steps[History]:
        """Every kept version of a visible node, oldest first, and what else was said about it."""
        found: History = yield Call(self.engine.history, check_scope(scope), check_node_id(node_id))
        return found

    def stored(self, scope: TenantScope) -> Steps[Stored]:
        """Every node, in every state, and every edge stored at a scope and below it, at one point in time."""
        found: Stored = yield Call(self.engine.stored, check_scope(scope))
        return found

    def receipts(self, scope: TenantScope, *, below: bool = False) -> Steps[Sequence[Receipt]]:
        """The erasures at exactly this scope, or at it and below, oldest first."""
        check_scope(scope)
        check_flag(below, field="below")
        found: list[Receipt] = yield Call(lambda: self.engine.receipts(scope, below=below))
        return found

    def settle_receipts(self) -> Steps[None]:
        """Rewrite what is stored so that no byte of an erased node is left, and note it on the receipts.

        A receipt stays ``unreadable`` while somebody reads an older state, and on a store in memory.
        """
        yield Call(self.engine.settle_receipts)

    def close(self) -> Steps[None]:
        """Release everything. Closing again does nothing."""
        yield Call(self.engine.close)


def _node(outcome: Outcome) -> MemoryNode:
    assert outcome.node is not None  # noqa: S101 - every operation on a node answers with it
    return outcome.node


class SnapshotCore:
    """A snapshot's methods as steps."""

    def __init__(self, engine: SnapshotEngine) -> None:
        self.engine = engine

    def heads(self, scope: TenantScope) -> Steps[Heads]:
        """The heads at the snapshot."""
        found: Heads = yield Call(self.engine.heads, check_scope(scope))
        return found

    def get(self, scope: TenantScope, node_id: str) -> Steps[MemoryNode]:
        """The node as it was at the snapshot."""
        found: MemoryNode = yield Call(self.engine.get, check_scope(scope), check_node_id(node_id))
        return found

    def query_nodes(
        self, scope: TenantScope, *, label_prefix: str | None = None, limit: int | None = None
    ) -> Steps[Sequence[MemoryNode]]:
        """The live nodes as they were at the snapshot."""
        check_scope(scope)
        label_prefix = check_label_prefix(label_prefix)
        limit = check_limit(limit)
        found: list[MemoryNode] = yield Call(self.engine.query_nodes, scope, label_prefix, limit)
        return found


class _StoreFacade:
    """What both forms share."""

    def __init__(self, engine: Engine) -> None:
        self.core = StoreCore(engine)

    @property
    def url(self) -> str:
        """The address that opens this store."""
        return self.core.engine.url

    @property
    def capabilities(self) -> frozenset[str]:
        """What this kind of store has beyond a scan: ``heads``, ``history``, ``watch``."""
        return self.core.engine.capabilities | {WATCH}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"


@final
class Store(_StoreFacade):
    """A graph store, asynchronous; made by ``promptkeel.open_store``."""

    apply = as_async(StoreCore.apply)
    put = as_async(StoreCore.put)
    get = as_async(StoreCore.get)
    query_nodes = as_async(StoreCore.query_nodes)
    retract = as_async(StoreCore.retract)
    erase = as_async(StoreCore.erase)
    link = as_async(StoreCore.link)
    unlink = as_async(StoreCore.unlink)
    neighbours = as_async(StoreCore.neighbours)
    heads = as_async(StoreCore.heads)
    changes = as_async(StoreCore.changes)
    nodes_as_of = as_async(StoreCore.nodes_as_of)
    history = as_async(StoreCore.history)
    stored = as_async(StoreCore.stored)
    receipts = as_async(StoreCore.receipts)
    settle_receipts = as_async(StoreCore.settle_receipts)
    close = as_async(StoreCore.close)

    def watch(
        self,
        scope: TenantScope,
        label_prefix: str,
        *,
        profile_fields: Collection[str] = frozenset(),
        interval: float = WATCH_INTERVAL,
    ) -> LaneWatch:
        """The lane's revision now, and again whenever it has moved, for ``async for``.

        What other processes write is looked for every ``interval`` seconds; this one's writes are told at once.
        """
        return LaneWatch(self.core.engine, scope, label_prefix, profile_fields=profile_fields, interval=interval)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[StoreSnapshot]:
        """A consistent view for several scans, at one point in time."""
        from anyio import CancelScope, to_thread

        engine = await to_thread.run_sync(self.core.engine.open_snapshot)
        try:
            yield StoreSnapshot(engine)
        finally:
            with CancelScope(shield=True):
                await to_thread.run_sync(engine.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@final
class StoreSnapshot:
    """A frozen view of a store, asynchronous."""

    def __init__(self, engine: SnapshotEngine) -> None:
        self.core = SnapshotCore(engine)

    heads = as_async(SnapshotCore.heads)
    get = as_async(SnapshotCore.get)
    query_nodes = as_async(SnapshotCore.query_nodes)


@final
class BlockingStore(_StoreFacade):
    """A graph store, blocking; made by ``promptkeel.blocking.open_store``."""

    apply = as_blocking(StoreCore.apply)
    put = as_blocking(StoreCore.put)
    get = as_blocking(StoreCore.get)
    query_nodes = as_blocking(StoreCore.query_nodes)
    retract = as_blocking(StoreCore.retract)
    erase = as_blocking(StoreCore.erase)
    link = as_blocking(StoreCore.link)
    unlink = as_blocking(StoreCore.unlink)
    neighbours = as_blocking(StoreCore.neighbours)
    heads = as_blocking(StoreCore.heads)
    changes = as_blocking(StoreCore.changes)
    nodes_as_of = as_blocking(StoreCore.nodes_as_of)
    history = as_blocking(StoreCore.history)
    stored = as_blocking(StoreCore.stored)
    receipts = as_blocking(StoreCore.receipts)
    settle_receipts = as_blocking(StoreCore.settle_receipts)
    close = as_blocking(StoreCore.close)

    def watch(
        self,
        scope: TenantScope,
        label_prefix: str,
        *,
        profile_fields: Collection[str] = frozenset(),
        interval: float = WATCH_INTERVAL,
    ) -> BlockingLaneWatch:
        """The lane's revision now, and again whenever it has moved, until ``stop``; arguments as on ``Store``."""
        return BlockingLaneWatch(
            self.core.engine, scope, label_prefix, profile_fields=profile_fields, interval=interval
        )

    @contextmanager
    def snapshot(self) -> Iterator[BlockingSnapshot]:
        """A consistent view for several scans, at one point in time."""
        engine = self.core.engine.open_snapshot()
        try:
            yield BlockingSnapshot(engine)
        finally:
            engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@final
class BlockingSnapshot:
    """A frozen view of a store, blocking."""

    def __init__(self, engine: SnapshotEngine) -> None:
        self.core = SnapshotCore(engine)

    heads = as_blocking(SnapshotCore.heads)
    get = as_blocking(SnapshotCore.get)
    query_nodes = as_blocking(SnapshotCore.query_nodes)
