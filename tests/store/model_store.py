"""A store as plain Python says it: every promise in the shortest way that can be read, and no thought of speed."""

from __future__ import annotations

import copy
from typing import Any

import attrs

from promptkeel.errors import (
    ConflictError,
    CycleError,
    NodeErasedError,
    NodeExistsError,
    NodeNotFoundError,
    ReadOnlyNodeError,
)
from promptkeel.instants import format_instant, parse_instant
from promptkeel.model import FIELD_PROVENANCE, NOT_GIVEN, MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.base import Heads
from promptkeel.store.operations import Correct, Erase, Link, Operation, Put, Remember, Retract

Key = tuple[str, str]


@attrs.frozen
class Event:
    """One changed node at one scope."""

    number: int
    scope: str
    id: str
    before: str | None
    after: str | None


def shown(node: MemoryNode | None) -> str | None:
    """The label that a lane shows."""
    return node.label if node is not None and node.state == "live" else None


def order(node: MemoryNode) -> tuple[Any, ...]:
    """The order of a lane."""
    return (node.label, node.recorded is not None, node.recorded or 0, node.id, node.scope.path)


class ModelStore:
    """Nodes by root and id, and the list of everything that ever changed."""

    def __init__(self) -> None:
        self.nodes: dict[Key, MemoryNode] = {}
        self.erased: dict[Key, str] = {}
        self.events: list[Event] = []
        self.floor = 0
        self.said: dict[Key, list[Any]] = {}
        self.edges: set[tuple[Key, Key, str]] = set()

    def copy(self) -> ModelStore:
        """A store that can go its own way."""
        other = ModelStore()
        for name, value in vars(self).items():
            setattr(other, name, copy.copy(value))
        other.said = {key: list(said) for key, said in self.said.items()}
        return other

    # Reads

    def visible(self, scope: TenantScope) -> dict[Key, MemoryNode]:
        """Everything visible, in whatever state."""
        return {key: node for key, node in self.nodes.items() if scope.sees(node.scope)}

    def lane(self, scope: TenantScope, prefix: str = "") -> list[MemoryNode]:
        """The live nodes of a lane."""
        return sorted(
            (node for node in self.visible(scope).values() if node.state == "live" and node.label.startswith(prefix)),
            key=order,
        )

    def get(self, scope: TenantScope, id_: str) -> MemoryNode | None:
        """The visible node of an id, the own root's first."""
        for root in (scope.root, ""):
            node = self.nodes.get((root, id_))
            if node is not None and scope.sees(node.scope):
                return node
        return None

    def last(self, path: str, until: int | None = None) -> int:
        """The number of the last change at a scope."""
        return max((e.number for e in self.events[:until] if e.scope == path), default=0)

    def events_since(self, scope: TenantScope, until: int, prefix: str = "") -> list[Event] | None:
        """What changed since there were ``until`` events; None where an erasure has scrubbed it."""
        moved = [path for path in scope.chain if self.last(path) != self.last(path, until)]
        if any(self.last(path, until) < self.floor for path in moved):
            return None
        return [
            event
            for event in self.events[until:]
            if event.scope in moved
            and (not prefix or any((label or "").startswith(prefix) for label in (event.before, event.after)))
        ]

    # Writes

    def write(self, key: Key, node: MemoryNode | None) -> None:
        """Put a node where it belongs and say what changed."""
        before = self.nodes.pop(key, None)
        if node is not None:
            self.nodes[key] = node
        place = node or before
        assert place is not None
        self.events.append(Event(len(self.events) + 1, place.scope.path, key[1], shown(before), shown(node)))

    def own(self, scope: TenantScope, id_: str) -> MemoryNode:
        """The node at exactly this scope."""
        node = self.get(scope, id_)
        if node is None:
            raise (NodeErasedError if (scope.root, id_) in self.erased else NodeNotFoundError)(id_)
        if node.scope != scope:
            raise ReadOnlyNodeError(id_)
        return node

    def perform(self, operation: Operation, now: int) -> str:
        """Do one operation; its kind."""
        match operation:
            case Put(node, None):
                return self.insert(node, now)
            case Put(node, expected):
                current = self.own(node.scope, node.id)
                self.check(current, expected)
                return self.update(current, node, now)
            case Remember(node):
                return self.remember(node, now)
            case Correct():
                return self.correct(operation, now)
            case Retract(scope, id_, expected):
                node = self.own(scope, id_)
                self.check(node, expected)
                if node.state == "retracted":
                    return "unchanged"
                self.write((scope.root, id_), attrs.evolve(node, state="retracted", updated_at=now))
                return "retracted"
            case Erase(scope, id_):
                return self.erase(self.own(scope, id_))
            case Link():
                return self.link(operation, now)
        raise AssertionError(operation)

    def check(self, node: MemoryNode, expected: Any) -> None:
        """Compare, before a set."""
        if expected is not None and expected not in (node, node.version):
            raise ConflictError(node.id)

    def insert(self, node: MemoryNode, now: int) -> str:
        """Add a node."""
        key = (node.scope.root, node.id)
        if key in self.nodes:
            raise NodeExistsError(node.id)
        if key in self.erased:
            raise NodeErasedError(node.id)
        created = now if node.created is None else node.created
        recorded = created if node.recorded is NOT_GIVEN else node.recorded
        self.write(key, attrs.evolve(node, created_at=created, updated_at=now, recorded_at=recorded))
        return "inserted"

    def update(self, current: MemoryNode, node: MemoryNode, now: int) -> str:
        """Change a node, if anything is different."""
        recorded = current.recorded if node.recorded is NOT_GIVEN else node.recorded
        node = attrs.evolve(node, recorded_at=recorded, created_at=current.created, updated_at=current.updated)
        if node == current:
            return "unchanged"
        self.write((node.scope.root, node.id), attrs.evolve(node, updated_at=now))
        return "updated"

    def remember(self, node: MemoryNode, now: int) -> str:
        """Add a node, or confirm the one that says so."""
        same = [n for n in self.nodes.values() if (n.scope, shown(n)) == (node.scope, node.label)]
        if not same:
            return self.insert(node, now)
        found = min(same, key=lambda each: each.id)
        said = self.said.setdefault((found.scope.root, found.id), [])
        provenance = (node.source, now if node.recorded is NOT_GIVEN else node.recorded, node.trust)
        if provenance in [*said, (found.source, found.recorded, found.trust)]:
            return "unchanged"
        said.append(provenance)
        return "confirmed"

    def correct(self, operation: Correct, now: int) -> str:
        """Take the newest word for the label and for each field."""
        node = self.own(operation.scope, operation.node_id)
        said = now if operation.recorded is NOT_GIVEN else operation.recorded
        changes: dict[str, Any] = {}
        properties = node.properties
        late = False
        if operation.label is not None:
            if newer(said, node.recorded):
                changes = {
                    "label": operation.label,
                    "source": operation.source,
                    "recorded_at": said,
                    "trust": operation.trust,
                }
            else:
                late = True
        for name, value in operation.properties.items():
            provenance = properties.setdefault(FIELD_PROVENANCE, {})
            before = provenance[name]["recorded_at"] if name in provenance else None
            known = node.recorded if name not in provenance else before and parse_instant(before)
            if name in properties and not newer(said, known):
                late = True
            elif value is None:
                properties.pop(name, None)
                provenance.pop(name, None)
            else:
                properties[name] = value
                provenance[name] = {
                    "source": operation.source,
                    "recorded_at": None if said is None else format_instant(said),
                    "trust": operation.trust,
                }
        if not properties.get(FIELD_PROVENANCE):
            properties.pop(FIELD_PROVENANCE, None)
        if late:
            self.said.setdefault((node.scope.root, node.id), []).append((operation.source, said, operation.trust))
        own = {name: value for name, value in properties.items() if name not in ("source", "recorded_at", "trust")}
        return self.update(node, attrs.evolve(node, properties=own, **changes), now)

    def erase(self, node: MemoryNode) -> str:
        """Remove a node and its labels from everything."""
        key = (node.scope.root, node.id)
        self.events = [
            attrs.evolve(event, before=None, after=None)
            if (event.scope, event.id) == (node.scope.path, node.id)
            else event
            for event in self.events
        ]
        self.write(key, None)
        self.events[-1] = attrs.evolve(self.events[-1], before=None)
        self.floor = len(self.events)
        self.erased[key] = node.scope.path
        self.said.pop(key, None)
        self.edges = {edge for edge in self.edges if key not in edge[:2]}
        return "erased"

    def link(self, operation: Link, now: int) -> str:
        """Add an edge; what is superseded leaves its lane."""
        edge = operation.edge
        start = self.own(edge.scope, edge.start)
        end = self.get(edge.scope, edge.end)
        if end is None:
            raise (NodeErasedError if (edge.scope.root, edge.end) in self.erased else NodeNotFoundError)(edge.end)
        keys = ((start.scope.root, start.id), (end.scope.root, end.id))
        if (*keys, edge.type) in self.edges:
            return "unchanged"
        if edge.type != "about" and self.reaches(keys[1], edge.type, keys[0]):
            raise CycleError(edge.start)
        self.edges.add((*keys, edge.type))
        if edge.type == "supersedes" and end.scope == edge.scope and end.state == "live":
            self.write(keys[1], attrs.evolve(end, state="superseded", updated_at=now))
        return "linked"

    def reaches(self, start: Key, type_: str, goal: Key) -> bool:
        """Whether lineage leads from one node to another."""
        return start == goal or any(
            self.reaches(end, type_, goal) for begin, end, kind in self.edges if (begin, kind) == (start, type_)
        )


def newer(said: int | None, known: Any) -> bool:
    """Whether a word replaces the one that is known."""
    return known is None or (said is not None and said >= known)


@attrs.frozen
class Memory:
    """What a test saw at one moment: of a scope, its heads and everything visible."""

    scope: TenantScope
    heads: Heads
    events: int
    visible: dict[Key, MemoryNode]
    lane: list[MemoryNode]
