"""The store in memory: a networkx graph under one lock, and the reference for what every store promises.

What a write means is ``store.decisions``; what heads and the log mean is ``store.history``. A transaction is hidden by
the lock until it is done, from short reads too. A snapshot keeps what it saw, as on SQLite: it holds the shelves as
they are, and a write to a shelf that a snapshot holds works on a copy. What is erased while a snapshot is open goes
when that snapshot is closed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, final

import attrs

from promptkeel.errors import StoreClosedError, TransactionError
from promptkeel.instants import Clock
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.arguments import check_count
from promptkeel.store.audit import Audit
from promptkeel.store.authored import block_prefix
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
    LaneUpdate,
    Neighbour,
    NodeKey,
    PastLane,
    Receipt,
    Stored,
)
from promptkeel.store.decisions import perform, visible_node
from promptkeel.store.history import (
    check_chain,
    check_known,
    lane_order,
    lane_row,
    logged_label,
    neighbour_order,
    touches,
    visible_testimonies,
)
from promptkeel.store.operations import Operation, Outcome
from promptkeel.store.ram_audit import audit
from promptkeel.store.ram_state import EdgeKey, Erasure, RamState, Shelves, heads_of, key_of, lane_of, root_of
from promptkeel.store.ram_transaction import RamTransaction

_SHORT: Final = 200
"""As many changes are a short read."""


@final
class RamEngine:
    """A store in memory; it ends with its process, and a forked process cannot use it.

    Args:
        clock: answers the present instant; stamps what is written.
        log_limit: how many changes the log and the history reach back.
    """

    url = "ram:"
    capabilities = frozenset({HEADS, HISTORY})
    not_covered: tuple[str, ...] = ("memory of this process that is free and not yet used again",)
    is_local = True

    def __init__(self, *, clock: Clock, log_limit: int = 200_000) -> None:
        check_count(log_limit, field="log_limit")
        self._clock = clock
        self._state = RamState(log_limit)
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._closed = False
        self._commits = 0

    # Reads

    def probe(self) -> object:
        """A token; equal tokens: nothing has been committed in between."""
        with self._used():
            return self._commits

    def heads(self, scope: TenantScope) -> Heads:
        """The present heads of the scope's chain."""
        with self._used():
            return heads_of(self._state.shelves, scope)

    def get(self, scope: TenantScope, node_id: str) -> MemoryNode:
        """The node of this id visible at the scope, in whatever state."""
        with self._used():
            return visible_node(self._state, scope, node_id)

    def query_nodes(self, scope: TenantScope, label_prefix: str | None, limit: int | None) -> list[MemoryNode]:
        """Every live node visible at the scope, in lane order."""
        with self._used():
            return lane_of(self._state.shelves, scope, label_prefix)[:limit]

    def tail(self, scope: TenantScope, requests: Sequence[LaneRequest]) -> CatchUp | None:
        """As ``catch_up`` where at most a few changes say it all; else None."""
        with self._used():
            present = heads_of(self._state.shelves, scope)
            for request in requests:
                entries = None if request.since is None else self._state.entries(scope, request.since, present)
                if entries is None or len(entries) > _SHORT:
                    return None
            return self.catch_up(scope, requests)

    def catch_up(self, scope: TenantScope, requests: Sequence[LaneRequest]) -> CatchUp:
        """All lanes at one point in time, each as a difference where the log reaches back, else whole."""
        with self._used():
            present = heads_of(self._state.shelves, scope)
            return CatchUp(present, tuple(self._lane_update(scope, request, present) for request in requests))

    def _lane_update(self, scope: TenantScope, request: LaneRequest, present: Heads) -> LaneUpdate:
        entries = None if request.since is None else self._state.entries(scope, request.since, present)
        if entries is None:
            rows = [lane_row(node) for node in lane_of(self._state.shelves, scope, request.prefix)]
            return LaneUpdate(rows, whole=True)
        touched = {
            key_of(entry): None for entry in entries if touches(entry.label_before, entry.label_after, request.prefix)
        }
        nodes = [node for key in touched if (node := self._state.find(*key)) is not None and scope.sees(node.scope)]
        nodes = [node for node in nodes if node.state == "live" and node.label.startswith(request.prefix)]
        return LaneUpdate([lane_row(node) for node in sorted(nodes, key=lane_order)], tuple(touched))

    def changes(self, scope: TenantScope, since: Heads, label_prefix: str | None) -> Changes:
        """What changed since these heads."""
        with self._used():
            present = heads_of(self._state.shelves, scope)
            entries = self._state.entries(scope, since, present)
            if entries is None:
                return Changes(present, None)
            return Changes(
                present,
                tuple(
                    entry.change() for entry in entries if touches(entry.label_before, entry.label_after, label_prefix)
                ),
            )

    def nodes_as_of(self, scope: TenantScope, heads: Heads, label_prefix: str | None) -> PastLane:
        """The lane as it was at these heads."""
        with self._used():
            check_chain(scope, heads)
            check_known(heads, heads_of(self._state.shelves, scope), self._state.history_floor, self._state.nonce_at)
            nodes = [
                version.node
                for head in heads.levels
                for version in self._state.versions_at(head)
                if touches(None, logged_label(version.node), label_prefix or "")
            ]
            seqs = {head.scope: head.seq for head in heads.levels}
            erased = {
                erasure.receipt.node_id
                for erasures in self._state.erased.values()
                for erasure in erasures
                if erasure.made <= seqs.get(erasure.receipt.scope, 0) < erasure.ended
            }
            return PastLane(tuple(sorted(nodes, key=lane_order)), tuple(sorted(erased)))

    def history(self, scope: TenantScope, node_id: str) -> History:
        """Every kept version of a visible node."""
        with self._used():
            node = visible_node(self._state, scope, node_id)
            record = self._state.record_of((node.scope.root, node.id))
            versions = (*record.past, record.current)
            testimonies = visible_testimonies(scope, record.testimonies)
            return History(tuple(version.node for version in versions), testimonies)

    def neighbours(
        self, scope: TenantScope, node_id: str, edge_type: str | None, direction: Direction
    ) -> list[Neighbour]:
        """The visible neighbours of a visible node, by edge type, then id."""
        with self._used():
            node = visible_node(self._state, scope, node_id)
            key = (node.scope.root, node.id)
            ends: dict[EdgeKey, NodeKey] = {}
            if direction != "in":
                ends.update({(key, end, kind): end for _, end, kind in self._state.graph.out_edges(key, keys=True)})
            if direction != "out":
                ends.update(
                    {(start, key, kind): start for start, _, kind in self._state.graph.in_edges(key, keys=True)}
                )
            found = [
                Neighbour(self._state.edge_at(place), self._state.record_of(other).current.node)
                for place, other in ends.items()
                if edge_type is None or place[2] == edge_type
            ]
            seen = (each for each in found if scope.sees(each.edge.scope) and scope.sees(each.node.scope))
            return sorted(seen, key=neighbour_order)

    def stored(self, scope: TenantScope) -> Stored:
        """Everything stored at a scope and below it, at one point in time."""
        with self._used():
            shelves = self._state.shelves.values()
            nodes = [node for shelf in shelves for node in shelf.nodes.values() if node.scope.sees(scope)]
            edges = (self._state.edge_at(place) for place in self._state.graph.edges(keys=True))
            return Stored(
                tuple(sorted(nodes, key=lambda node: (node.scope.path, node.label, node.id))),
                tuple(
                    sorted(
                        (edge for edge in edges if edge.scope.sees(scope)),
                        key=lambda edge: (edge.scope.path, edge.start, edge.type, edge.end),
                    )
                ),
            )

    def revisions(self, scope: TenantScope, block: str) -> list[MemoryNode]:
        """Every revision of an authored block at exactly this scope, in every state."""
        prefix = block_prefix(block)
        with self._used():
            shelf = self._state.shelves.get(scope.path)
            return [] if shelf is None else [node for node in shelf.nodes.values() if node.label.startswith(prefix)]

    def receipts(self, scope: TenantScope, *, below: bool = False) -> list[Receipt]:
        """The erasures at exactly this scope, or at it and below, oldest first."""
        with self._used():
            found = [
                each
                for erasures in self._state.erased.values()
                for each in erasures
                if each.receipt.scope == scope.path
                or (below and (not scope.path or each.receipt.scope.startswith(scope.path + "/")))
            ]
            found.sort(key=lambda each: (each.ended, each.receipt.at, each.receipt.node_id))
            return [each.receipt for each in found]

    def settle_receipts(self) -> None:
        """Nothing: when Python lets go of a text, its bytes stay in the process until they are overwritten."""
        with self._used():
            return

    def mark(self, key: str) -> str | None:
        """What the last ``Mark`` operation wrote under this key."""
        with self._used():
            return self._state.marks.get(key)

    def secret(self) -> bytes:
        """The store's own random key, made when the store was."""
        with self._used():
            return self._state.secret

    def open_snapshot(self) -> RamSnapshot:
        """A view of the store at this point in time."""
        with self._used():
            for shelf in self._state.shelves.values():
                shelf.held = True
            return RamSnapshot(self._used, dict(self._state.shelves), dict(self._state.erased))

    # Writes

    def apply(self, operations: Sequence[Operation], *, dry_run: bool = False) -> tuple[Outcome, ...]:
        """Perform all operations in one transaction, or none; the outcomes in the same order."""
        with self._used():
            now = self._clock()
            transaction = RamTransaction(self._state)
            try:
                outcomes = tuple(perform(transaction, operation, now) for operation in operations)
            except BaseException:
                transaction.roll_back()
                raise
            if dry_run:
                transaction.roll_back()
            elif transaction.undo:
                self._commits += 1
                self._state.trim()
            return outcomes

    # Upkeep

    def log_span(self) -> tuple[int, int]:
        """The first and the last change in the log; (1, 0) where it is empty."""
        with self._used():
            log = self._state.log
            return (log[0].head.seq, log[-1].head.seq) if log else (1, 0)

    def floor_keeping(self, changes: int) -> int:
        """The change behind which so many are left; 0 where there are no more."""
        first, last = self.log_span()
        return max(0, last - changes) if last - first >= changes else 0

    def compact(self, floor: int, step: int) -> int:
        """Forget at most ``step`` of the changes up to ``floor``, oldest first; how many. The last change stays."""
        with self._used():
            first, last = self.log_span()
            end = min(floor, first + step - 1, last - 1)
            self._state.forget(end)
            return max(0, end - first + 1)

    def audit(self) -> Audit:
        """Everything that is wrong with what is stored."""
        with self._used():
            return audit(self._state)

    def attach(self, connection: Any) -> Engine:
        """Refused: no connection leads to a store in memory.

        Raises:
            TransactionError: always.
        """
        raise TransactionError(
            f"a store in memory cannot take part in the transaction of a {type(connection).__name__}: "
            "open the keel on the database's own file or server"
        )

    def close(self) -> None:
        """Release everything; further calls raise StoreClosedError. Closing again does nothing."""
        with self._lock:
            self._closed = True
            self._state = RamState(0)

    @contextmanager
    def _used(self) -> Iterator[None]:
        """The lock, as long as the store is open."""
        if os.getpid() != self._process:
            raise StoreClosedError("this store is in the memory of the process that made it; a fork has none of it")
        with self._lock:
            if self._closed:
                raise StoreClosedError("the store is closed")
            yield


@final
class RamSnapshot:
    """The shelves as they were; a write to one of them works on a copy."""

    def __init__(
        self,
        used: Callable[[], AbstractContextManager[None]],
        shelves: Shelves,
        erased: dict[NodeKey, tuple[Erasure, ...]],
    ) -> None:
        self._store_used = used
        self._shelves = shelves
        self._erased = erased
        self._closed = False

    def heads(self, scope: TenantScope) -> Heads:
        """The heads at the snapshot."""
        with self._used():
            return heads_of(self._shelves, scope)

    def get(self, scope: TenantScope, node_id: str) -> MemoryNode:
        """The node as it was at the snapshot."""
        with self._used():
            return visible_node(_SnapshotFinder(self._shelves, self._erased, scope), scope, node_id)

    def query_nodes(self, scope: TenantScope, label_prefix: str | None, limit: int | None) -> list[MemoryNode]:
        """The live nodes as they were at the snapshot."""
        with self._used():
            return lane_of(self._shelves, scope, label_prefix)[:limit]

    def close(self) -> None:
        """Let go of what it saw."""
        self._closed = True
        self._shelves = {}

    @contextmanager
    def _used(self) -> Iterator[None]:
        with self._store_used():
            if self._closed:
                raise StoreClosedError("the snapshot is closed")
            yield


@final
@attrs.frozen(eq=False)
class _SnapshotFinder:
    """Looks nodes up on the shelves that a scope sees."""

    _shelves: Shelves
    _erased: dict[NodeKey, tuple[Erasure, ...]]
    _scope: TenantScope

    def find(self, root: str, node_id: str) -> MemoryNode | None:
        for path in self._scope.chain:
            if root_of(path) == root and path in self._shelves and node_id in self._shelves[path].nodes:
                return self._shelves[path].nodes[node_id]
        return None

    def is_erased(self, root: str, node_id: str) -> bool:
        return (root, node_id) in self._erased

    def erased_at(self, root: str, node_id: str) -> set[str]:
        return {erasure.receipt.scope for erasure in self._erased.get((root, node_id), ())}
