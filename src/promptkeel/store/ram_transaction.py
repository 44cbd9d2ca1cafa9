"""A write to the store in memory: each step changes the state in place and keeps how to undo it."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable
from typing import final

import attrs

from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.base import Head, NodeKey, Receipt, Testimony
from promptkeel.store.decisions import visible_node
from promptkeel.store.history import logged_label
from promptkeel.store.ram_state import EdgeKey, Entry, Erasure, RamState, Record, Shelf, Version, root_of


@final
class RamTransaction:
    """The primitives of one transaction: each changes the store in place and keeps how to undo that."""

    def __init__(self, state: RamState) -> None:
        self._state = state
        self._graph = state.graph
        self.undo: list[Callable[[], object]] = []

    def roll_back(self) -> None:
        """Undo every step, the last one first."""
        while self.undo:
            self.undo.pop()()

    def expect(self, keys: Iterable[NodeKey], labels: Iterable[tuple[str, str, str]]) -> None:
        """Nothing: asking one by one costs no round trips here."""

    def find(self, root: str, node_id: str) -> MemoryNode | None:
        """The node of this identity, in whatever state."""
        return self._state.find(root, node_id)

    def is_erased(self, root: str, node_id: str) -> bool:
        """Whether a node of this identity was erased."""
        return self._state.is_erased(root, node_id)

    def erased_at(self, root: str, node_id: str) -> set[str]:
        """The paths of the scopes at which nodes of this identity were when they were erased."""
        return self._state.erased_at(root, node_id)

    def find_live(self, scope: TenantScope, label: str) -> MemoryNode | None:
        """The live node at exactly this scope with exactly this label; of several, the least id."""
        shelf = self._state.shelves.get(scope.path)
        if shelf is None:
            return None
        ids = [place[3] for place in shelf.lane(label) if place[0] == label]
        return shelf.nodes[min(ids)] if ids else None

    def versions(self, node: MemoryNode) -> tuple[MemoryNode, ...]:
        """Every kept version of a node, oldest first; the last is the node as it is now."""
        record = self._state.record_of((node.scope.root, node.id))
        return tuple(version.node for version in (*record.past, record.current))

    def insert(self, node: MemoryNode) -> None:
        """Add a stamped node."""
        key = (node.scope.root, node.id)
        seq = self._log(node, None, logged_label(node))
        self._graph.add_node(key, record=Record(Version(node, seq)))
        self.undo.append(lambda: self._graph.remove_node(key))
        self._place(node)

    def update(self, node: MemoryNode, previous: MemoryNode) -> None:
        """Replace ``previous`` by ``node`` and keep the old version."""
        record = self._state.record_of((previous.scope.root, previous.id))
        seq = self._log(node, logged_label(previous), logged_label(node))
        before = record.current
        record.past.append(attrs.evolve(before, ended=seq))
        record.current = Version(node, seq)

        def restore() -> None:
            record.past.pop()
            record.current = before

        self.undo.append(restore)
        self._take(previous)
        self._place(node)

    def testify(self, node: MemoryNode, testimony: Testimony) -> None:
        """Keep a testimony with a node's history."""
        testimonies = self._state.record_of((node.scope.root, node.id)).testimonies
        testimonies.append(testimony)
        self.undo.append(testimonies.pop)

    def testimonies(self, node: MemoryNode) -> tuple[Testimony, ...]:
        """The testimonies kept with a node, oldest first."""
        return tuple(self._state.record_of((node.scope.root, node.id)).testimonies)

    def erase(self, node: MemoryNode, at: int) -> Receipt:
        """Remove a node with its versions, testimonies and edges; scrub the log; keep the receipt."""
        state, key = self._state, (node.scope.root, node.id)
        if key not in self._graph:
            receipt = Receipt(node.id, node.scope.path, at)
            self._keep(key, Erasure(receipt, 0, 0))
            return receipt
        record = state.record_of(key)
        edges = [*self._graph.out_edges(key, keys=True), *self._graph.in_edges(key, keys=True)]
        edges = list(dict.fromkeys(edges))
        for place in edges:
            self._cut(place)
        for entry in state.log_of[node.scope.path]:
            if entry.node_id == node.id:
                self._scrub(entry)
        seq = self._log(node, None, None)
        self._raise_delta_floor(seq)
        self._take(node)
        self._graph.remove_node(key)
        self.undo.append(lambda: self._graph.add_node(key, record=record))
        receipt = Receipt(node.id, node.scope.path, at, len(record.past), len(edges), len(record.testimonies))
        self._keep(key, Erasure(receipt, (*record.past, record.current)[0].made, seq))
        return receipt

    def receipt(self, root: str, node_id: str) -> Receipt | None:
        """The newest receipt of this identity."""
        erasures = self._state.erased.get((root, node_id))
        return None if erasures is None else erasures[-1].receipt

    def put_receipt(self, receipt: Receipt) -> None:
        """Keep a receipt in place of the newest of this identity, if there is one."""
        key = (root_of(receipt.scope), receipt.node_id)
        *before, last = self._state.erased.get(key, (Erasure(receipt, 0, 0),))
        self._put_erasures(key, (*before, attrs.evolve(last, receipt=receipt)))

    def _keep(self, key: NodeKey, erasure: Erasure) -> None:
        self._put_erasures(key, (*self._state.erased.get(key, ()), erasure))

    def _put_erasures(self, key: NodeKey, erasures: tuple[Erasure, ...]) -> None:
        erased, before = self._state.erased, self._state.erased.get(key)
        erased[key] = erasures
        self.undo.append(lambda: erased.pop(key) if before is None else erased.__setitem__(key, before))

    def every_version(self, scope: TenantScope) -> Iterable[MemoryNode]:
        """Every kept version of what is stored at a scope and below, those of a node oldest first."""
        nodes = [node for shelf in self._state.shelves.values() for node in shelf.nodes.values()]
        return [version for node in nodes if node.scope.sees(scope) for version in self.versions(node)]

    def edges_into(self, root: str, node_id: str, edge_type: str) -> Iterable[NodeKey]:
        """The nodes at the starts of a node's incoming edges of one type."""
        key = (root, node_id)
        if key not in self._graph:
            return []
        return [start for start, _, kind in self._graph.in_edges(key, keys=True) if kind == edge_type]

    def edge(self, root: str, start: str, edge_type: str, end: str) -> MemoryEdge | None:
        """The edge of this identity."""
        for end_root in (root, ""):
            place = ((root, start), (end_root, end), edge_type)
            if self._graph.has_edge(*place):
                return self._state.edge_at(place)
        return None

    def edges_from(self, root: str, node_id: str, edge_type: str) -> Iterable[str]:
        """The ids, under the same root, at the ends of a node's outgoing edges of one type."""
        ends = [end for _, end, kind in self._graph.out_edges((root, node_id), keys=True) if kind == edge_type]
        return [end for end_root, end in ends if end_root == root]

    def put_edge(self, edge: MemoryEdge) -> None:
        """Add or replace an edge."""
        end = visible_node(self, edge.scope, edge.end)
        place = ((edge.scope.root, edge.start), (end.scope.root, end.id), edge.type)
        if self._graph.has_edge(*place):
            self._cut(place)
        self._graph.add_edge(*place, edge=edge)
        self.undo.append(lambda: self._graph.remove_edge(*place))

    def remove_edge(self, edge: MemoryEdge) -> None:
        """Remove an edge."""
        for end_root in (edge.scope.root, ""):
            place = ((edge.scope.root, edge.start), (end_root, edge.end), edge.type)
            if self._graph.has_edge(*place):
                self._cut(place)
                return

    def put_mark(self, key: str, value: str | None) -> None:
        """Write or remove a mark."""
        marks = self._state.marks
        before = marks.get(key)
        self.undo.append(lambda: _set_mark(marks, key, before))
        _set_mark(marks, key, value)

    def put_secret(self, secret: bytes) -> None:
        """Take another store's secret over."""
        state, before = self._state, self._state.secret
        state.secret = secret
        self.undo.append(lambda: setattr(state, "secret", before))

    def _cut(self, place: EdgeKey) -> None:
        edge = self._state.edge_at(place)
        self._graph.remove_edge(*place)
        self.undo.append(lambda: self._graph.add_edge(*place, edge=edge))

    def _shelf(self, path: str) -> Shelf:
        """The shelf of a scope, to be changed: a copy where a snapshot holds it."""
        shelves = self._state.shelves
        before = shelves.get(path)
        if before is not None and not before.held:
            return before
        shelves[path] = Shelf(Head(path)) if before is None else before.copy()
        self.undo.append(lambda: shelves.pop(path) if before is None else shelves.__setitem__(path, before))
        return shelves[path]

    def _place(self, node: MemoryNode) -> None:
        shelf = self._shelf(node.scope.path)
        shelf.place(node)
        self.undo.append(lambda: shelf.take(node.id))

    def _take(self, node: MemoryNode) -> None:
        shelf = self._shelf(node.scope.path)
        shelf.take(node.id)
        self.undo.append(lambda: shelf.place(node))

    def _log(self, node: MemoryNode, before: str | None, after: str | None) -> int:
        """Log a change and move the head of its scope; the seq of the change."""
        state, path = self._state, node.scope.path
        shelf = self._shelf(path)
        head, shelf.head = shelf.head, Head(path, state.seq + 1, secrets.randbits(63))
        state.seq += 1
        entry = Entry(shelf.head, node.id, before, after)
        log = state.log_of.setdefault(path, deque())
        state.log.append(entry)
        log.append(entry)

        def restore() -> None:
            state.log.pop()
            log.pop()
            state.seq -= 1
            shelf.head = head

        self.undo.append(restore)
        return state.seq

    def _scrub(self, entry: Entry) -> None:
        labels = (entry.label_before, entry.label_after)
        entry.label_before = entry.label_after = None

        def restore() -> None:
            entry.label_before, entry.label_after = labels

        self.undo.append(restore)

    def _raise_delta_floor(self, seq: int) -> None:
        state, before = self._state, self._state.delta_floor
        state.delta_floor = seq

        def restore() -> None:
            state.delta_floor = before

        self.undo.append(restore)


def _set_mark(marks: dict[str, str], key: str, value: str | None) -> None:
    if value is None:
        marks.pop(key, None)
    else:
        marks[key] = value
