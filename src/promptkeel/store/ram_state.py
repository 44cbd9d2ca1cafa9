"""What the store in memory holds: the graph, the shelves, the log and the floors.

Nodes and edges live in a MultiDiGraph, keyed by scope root and id. Beside it, each scope has a shelf: its nodes by id,
and the order of its live ones, so that a lane scan walks the lane and nothing else. Nothing here locks: whoever uses a
state holds its engine's lock.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from typing import Any, final

import attrs
import networkx as nx

from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.base import Change, Head, Heads, NodeKey, Receipt, Testimony
from promptkeel.store.history import check_chain, lane_order, tells_difference
from promptkeel.store.prefix import prefix_bounds

EdgeKey = tuple[NodeKey, NodeKey, str]
"""Start, end and type of an edge."""


@attrs.define(eq=False)
class Entry:
    """A change as the log keeps it; an erasure takes its labels out."""

    head: Head
    node_id: str
    label_before: str | None
    label_after: str | None

    def change(self) -> Change:
        """The entry as callers see it."""
        return Change(self.head.seq, self.head.scope, self.node_id, self.label_before, self.label_after)


def root_of(path: str) -> str:
    """The scope root of a path."""
    return path.partition("/")[0]


def key_of(entry: Entry) -> NodeKey:
    """The identity of the node that changed."""
    return root_of(entry.head.scope), entry.node_id


@attrs.frozen(eq=False)
class Version:
    """A node as it was from change ``made`` until change ``ended``; None is "it still is"."""

    node: MemoryNode
    made: int
    ended: int | None = None

    def held_after(self, seq: int) -> bool:
        """Whether it still held after change ``seq``."""
        return self.ended is None or seq < self.ended

    def held_at(self, seq: int) -> bool:
        """Whether it was the node's version at change ``seq``."""
        return self.made <= seq and self.held_after(seq)


@attrs.define(eq=False)
class Record:
    """What the graph keeps with a node."""

    current: Version
    past: list[Version] = attrs.field(factory=list)
    testimonies: list[Testimony] = attrs.field(factory=list)


@attrs.frozen(eq=False)
class Erasure:
    """A receipt, and the changes between which its node was there."""

    receipt: Receipt
    made: int
    ended: int


@attrs.define(eq=False)
class Shelf:
    """The nodes at exactly one scope, and its head."""

    head: Head
    nodes: dict[str, MemoryNode] = attrs.field(factory=dict)
    order: list[tuple[Any, ...]] = attrs.field(factory=list)
    held: bool = False

    def copy(self) -> Shelf:
        """A shelf that can change without this one."""
        return Shelf(self.head, dict(self.nodes), list(self.order))

    def place(self, node: MemoryNode) -> None:
        """Put a node on the shelf."""
        self.nodes[node.id] = node
        if node.state == "live":
            insort(self.order, lane_order(node))

    def take(self, node_id: str) -> None:
        """Take a node off the shelf."""
        node = self.nodes.pop(node_id)
        if node.state == "live":
            del self.order[bisect_left(self.order, lane_order(node))]

    def lane(self, label_prefix: str | None) -> list[tuple[Any, ...]]:
        """The order of the live nodes in the lane."""
        low, high = prefix_bounds(label_prefix or "")
        return self.order[bisect_left(self.order, (low,)) : None if high is None else bisect_left(self.order, (high,))]


Shelves = dict[str, Shelf]
"""By scope path."""


def heads_of(shelves: Shelves, scope: TenantScope) -> Heads:
    """The heads of a scope's chain."""
    return Heads(tuple(shelves[path].head if path in shelves else Head(path) for path in scope.chain))


def lane_of(shelves: Shelves, scope: TenantScope, label_prefix: str | None) -> list[MemoryNode]:
    """Every live node of the lane, in its order."""
    found = [
        (place, shelf.nodes)
        for shelf in (shelves[path] for path in scope.chain if path in shelves)
        for place in shelf.lane(label_prefix)
    ]
    found.sort(key=lambda pair: pair[0])
    return [nodes[place[3]] for place, nodes in found]


@final
class RamState:
    """Everything in one store."""

    def __init__(self, log_limit: int) -> None:
        self.log_limit = log_limit
        self.secret = secrets.token_bytes(32)
        self.graph: nx.MultiDiGraph[NodeKey] = nx.MultiDiGraph()
        self.shelves: Shelves = {}
        self.log: deque[Entry] = deque()
        self.log_of: dict[str, deque[Entry]] = {}
        self.erased: dict[NodeKey, tuple[Erasure, ...]] = {}
        self.marks: dict[str, str] = {}
        self.seq = 0
        self.delta_floor = 0
        self.history_floor = 0

    def find(self, root: str, node_id: str) -> MemoryNode | None:
        """The node of this identity, in whatever state."""
        key = (root, node_id)
        return self.record_of(key).current.node if key in self.graph else None

    def is_erased(self, root: str, node_id: str) -> bool:
        """Whether a node of this identity was erased."""
        return (root, node_id) in self.erased

    def erased_at(self, root: str, node_id: str) -> set[str]:
        """The paths of the scopes at which nodes of this identity were when they were erased."""
        return {erasure.receipt.scope for erasure in self.erased.get((root, node_id), ())}

    def record_of(self, key: NodeKey) -> Record:
        """What the graph keeps with a node that is there."""
        record: Record = self.graph.nodes[key]["record"]
        return record

    def edge_at(self, place: EdgeKey) -> MemoryEdge:
        """The edge that is there."""
        edge: MemoryEdge = self.graph.edges[place]["edge"]
        return edge

    def entries(self, scope: TenantScope, since: Heads, present: Heads) -> list[Entry] | None:
        """The changes from ``since`` to the present, oldest first; None where the log cannot tell."""
        check_chain(scope, since)
        if not tells_difference(since, present, self.delta_floor, self.nonce_at):
            return None
        entries = [entry for head in since.levels for entry in self.entries_after(head)]
        return sorted(entries, key=lambda entry: entry.head.seq)

    def entries_after(self, head: Head) -> Iterator[Entry]:
        """The changes at a level after its head, newest first."""
        for entry in reversed(self.log_of.get(head.scope, ())):
            if entry.head.seq <= head.seq:
                return
            yield entry

    def nonce_at(self, path: str, seq: int) -> int | None:
        """The nonce of a change at a scope path; None where the log does not hold it."""
        for entry in reversed(self.log_of.get(path, ())):
            if entry.head.seq <= seq:
                return entry.head.nonce if entry.head.seq == seq else None
        return None

    def versions_at(self, head: Head) -> Iterator[Version]:
        """The versions that held at a level's head."""
        shelf = self.shelves.get(head.scope)
        for node in () if shelf is None else shelf.nodes.values():
            record = self.record_of((node.scope.root, node.id))
            for version in (record.current, *record.past):
                if version.held_at(head.seq):
                    yield version

    def trim(self) -> None:
        """Forget the oldest changes beyond the limit, and the versions that they ended."""
        if len(self.log) > self.log_limit:
            self.forget(self.log[-1 - self.log_limit].head.seq)

    def forget(self, floor: int) -> None:
        """Forget the changes up to this one, and the versions that they ended."""
        while self.log and self.log[0].head.seq <= floor:
            entry = self.log.popleft()
            self.log_of[entry.head.scope].popleft()
            seq = self.history_floor = entry.head.seq
            self.delta_floor = max(self.delta_floor, seq)
            key = key_of(entry)
            if key in self.graph:
                record = self.record_of(key)
                record.past = [version for version in record.past if version.held_after(seq)]
