"""A store as plain Python says it: every promise in the shortest way that can be read, and no thought of speed.

Nothing here is shared with the stores that it is held against: where a store decides by an index, a floor or a trigger,
this looks at everything that ever happened.
"""

from __future__ import annotations

import copy
import json
from typing import Any, TypeAlias, final

import attrs

from promptkeel.errors import (
    ConflictError,
    CycleError,
    InvalidInputError,
    NodeErasedError,
    NodeExistsError,
    NodeNotFoundError,
    ReadOnlyNodeError,
)
from promptkeel.instants import format_instant, parse_instant
from promptkeel.model import FIELD_PROVENANCE, NOT_GIVEN, MemoryEdge, MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.operations import Correct, Erase, Link, Operation, Put, Remember, Retract, Unlink

Key: TypeAlias = tuple[str, str]
"""A node's identity: scope root and id."""
EdgeKey: TypeAlias = tuple[Key, Key, str]
"""An edge's identity: start, end and type."""


@final
@attrs.frozen
class Event:
    """One changed node at one scope; the labels are what a lane showed before and after."""

    number: int
    scope: str
    id: str
    before: str | None
    after: str | None

    def touches(self, prefix: str) -> bool:
        """Whether a lane of this prefix changed."""
        return not prefix or any((label or "").startswith(prefix) for label in (self.before, self.after))


def key_of(node: MemoryNode) -> Key:
    """The identity of a node."""
    return node.scope.root, node.id


def shown(node: MemoryNode | None) -> str | None:
    """The label that a lane shows."""
    return node.label if node is not None and node.state == "live" else None


def order(node: MemoryNode) -> tuple[Any, ...]:
    """The order of a lane: label, recorded instant (None first), id; then scope, so that it is total."""
    return (node.label, node.recorded is not None, node.recorded or 0, node.id, node.scope.path)


@final
class ModelStore:
    """Nodes by root and id, and the list of everything that ever changed.

    Attributes:
        nodes: the nodes as they are, in whatever state.
        past: every version of each node, oldest first, the present one last.
        erased: the scope path of each erased identity.
        events: everything that changed, as the log may tell it: an erasure takes the labels out.
        truth: the same with the labels left in, to know what an erased node once touched.
        floor: the number of the last erasure's event.
        said: the provenance of confirmations and outdated corrections, by node.
        edges: the edges by start, end and type.
    """

    def __init__(self) -> None:
        self.nodes: dict[Key, MemoryNode] = {}
        self.past: dict[Key, tuple[MemoryNode, ...]] = {}
        self.erased: dict[Key, str] = {}
        self.events: list[Event] = []
        self.truth: list[Event] = []
        self.floor = 0
        self.said: dict[Key, list[Any]] = {}
        self.edges: dict[EdgeKey, MemoryEdge] = {}

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

    def seen(self, scope: TenantScope, id_: str) -> MemoryNode:
        """``get``, or the error that a store raises."""
        node = self.get(scope, id_)
        if node is None:
            erased = (self.erased.get((root, id_)) for root in (scope.root, ""))
            raise (NodeErasedError if any(path in scope.chain for path in erased) else NodeNotFoundError)(id_)
        return node

    def history(self, scope: TenantScope, id_: str) -> tuple[MemoryNode, ...]:
        """Every version of a visible node."""
        return self.past[key_of(self.seen(scope, id_))]

    def neighbours(
        self, scope: TenantScope, id_: str, edge_type: str | None = None, direction: str = "out"
    ) -> list[tuple[MemoryEdge, MemoryNode]]:
        """The visible neighbours of a visible node, by edge type, then id."""
        here = key_of(self.seen(scope, id_))
        found = []
        for (start, end, kind), edge in self.edges.items():
            leaves, arrives = start == here and direction != "in", end == here and direction != "out"
            other = self.nodes[end if leaves else start]
            if (
                (leaves or arrives)
                and kind == (edge_type or kind)
                and scope.sees(edge.scope)
                and scope.sees(other.scope)
            ):
                found.append((edge, other))
        return sorted(found, key=lambda pair: (pair[0].type, pair[1].id, pair[0].start, pair[0].scope.path))

    def last(self, path: str, until: int | None = None) -> int:
        """The number of the last change at a scope."""
        return max((e.number for e in self.events[:until] if e.scope == path), default=0)

    def events_since(self, scope: TenantScope, until: int, prefix: str = "") -> list[Event] | None:
        """What changed since there were ``until`` events; None where an erasure has scrubbed it."""
        moved = [path for path in scope.chain if self.last(path) != self.last(path, until)]
        if any(self.last(path, until) < self.floor for path in moved):
            return None
        return [event for event in self.events[until:] if event.scope in moved and event.touches(prefix)]

    def touched_since(self, scope: TenantScope, until: int, prefix: str = "") -> set[tuple[str, str]]:
        """The scope and id of every node that changed visibly in a lane since then, erased ones too."""
        # What was in no lane, before or after, has not changed visibly, even for those who ask about every label.
        events = [event for event in self.truth[until:] if (event.before, event.after) != (None, None)]
        return {(event.scope, event.id) for event in events if event.scope in scope.chain and event.touches(prefix)}

    # Writes

    def write(self, key: Key, node: MemoryNode | None) -> None:
        """Put a node where it belongs, or take it away, and say what changed."""
        before = self.nodes.pop(key, None)
        if node is not None:
            self.nodes[key] = node
            self.past[key] = (*self.past.get(key, ()), node)
        else:
            self.past.pop(key, None)
        place = node or before
        assert place is not None, "nothing was there to take away"
        self.log(place.scope.path, key[1], shown(before), shown(node))

    def log(self, path: str, id_: str, before: str | None, after: str | None) -> None:
        """Say that a node was changed, or looked as if it was."""
        event = Event(len(self.events) + 1, path, id_, before, after)
        self.events.append(event)
        self.truth.append(event)

    def own(self, scope: TenantScope, id_: str) -> MemoryNode:
        """The node at exactly this scope."""
        node = self.seen(scope, id_)
        if node.scope != scope:
            raise ReadOnlyNodeError(id_)
        return node

    def perform(self, operation: Operation, now: int) -> str:
        """Do one operation at an instant; its kind."""
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
                self.write(key_of(node), attrs.evolve(node, state="retracted", updated_at=now))
                return "retracted"
            case Erase(scope, id_):
                return self.erase(self.own(scope, id_))
            case Link(edge):
                return self.link(edge, now)
            case Unlink(edge):
                return self.unlink(edge)
        raise InvalidInputError(f"the model does not know {operation!r}")

    def check(self, node: MemoryNode, expected: MemoryNode | str | None) -> None:
        """Compare, before a set."""
        if expected is not None and expected not in (node, node.version):
            raise ConflictError(node.id)

    def insert(self, node: MemoryNode, now: int) -> str:
        """Add a node."""
        key = key_of(node)
        if key in self.nodes:
            raise NodeExistsError(node.id)
        if key in self.erased:
            raise NodeErasedError(node.id)
        created = now if node.created is None else node.created
        updated = now if node.updated is None else node.updated
        recorded = created if node.recorded is NOT_GIVEN else node.recorded
        self.write(key, attrs.evolve(node, created_at=created, updated_at=updated, recorded_at=recorded))
        return "inserted"

    def update(self, current: MemoryNode, node: MemoryNode, now: int) -> str:
        """Change a node, if anything is different."""
        recorded = current.recorded if node.recorded is NOT_GIVEN else node.recorded
        node = attrs.evolve(node, recorded_at=recorded, created_at=current.created, updated_at=current.updated)
        if node == current:
            return "unchanged"
        self.write(key_of(node), attrs.evolve(node, updated_at=now))
        return "updated"

    def remember(self, node: MemoryNode, now: int) -> str:
        """Add a node, or confirm the one that says so."""
        same = [each for each in self.nodes.values() if (each.scope, shown(each)) == (node.scope, node.label)]
        if not same:
            return self.insert(node, now)
        found = min(same, key=lambda each: each.id)
        said = self.said.setdefault(key_of(found), [])
        recorded: Any = now if node.recorded is NOT_GIVEN else node.recorded
        provenance = (node.source, recorded, node.trust)
        has = dict(found.own_properties)
        new = {name: value for name, value in node.own_properties.items() if name not in has}
        other = {
            name: value
            for name, value in node.own_properties.items()
            if name in has and json.dumps(value, sort_keys=True) != json.dumps(has[name], sort_keys=True)
        }
        answer = "unchanged"
        if other:
            remark = (*provenance, json.dumps(other, sort_keys=True))
            if remark not in said:
                said.append(remark)
                answer = "confirmed"
        elif provenance not in [*(each[:3] for each in said), (found.source, found.recorded, found.trust)]:
            said.append(provenance)
            answer = "confirmed"
        if not new:
            return answer
        fields = dict(has.get(FIELD_PROVENANCE, {}))
        for name in new:
            fields[name] = {
                "source": node.source,
                "recorded_at": None if recorded is None else format_instant(recorded),
                "trust": node.trust,
            }
        return self.update(found, attrs.evolve(found, properties={**has, **new, FIELD_PROVENANCE: fields}), now)

    def correct(self, operation: Correct, now: int) -> str:
        """Take the newest word for the label and for each field."""
        node = self.own(operation.scope, operation.node_id)
        self.check(node, operation.expected)
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
            self.said.setdefault(key_of(node), []).append((operation.source, said, operation.trust))
        own = {name: value for name, value in properties.items() if name not in ("source", "recorded_at", "trust")}
        return self.update(node, attrs.evolve(node, properties=own, **changes), now)

    def erase(self, node: MemoryNode) -> str:
        """Remove a node, its versions and edges, and its labels from everything."""
        key = key_of(node)
        self.write(key, None)
        self.events = [
            attrs.evolve(event, before=None, after=None)
            if (event.scope, event.id) == (node.scope.path, node.id)
            else event
            for event in self.events
        ]
        self.floor = len(self.events)
        self.erased[key] = node.scope.path
        self.said.pop(key, None)
        self.edges = {place: edge for place, edge in self.edges.items() if key not in place[:2]}
        return "erased"

    def link(self, edge: MemoryEdge, now: int) -> str:
        """Add an edge; what is superseded leaves its lane."""
        start = key_of(self.own(edge.scope, edge.start))
        end = self.seen(edge.scope, edge.end)
        place = (start, key_of(end), edge.type)
        if self.edges.get(place) == edge:
            return "unchanged"
        if edge.type in ("derived_from", "supersedes") and self.reaches(key_of(end), edge.type, start):
            raise CycleError(edge.start)
        self.edges[place] = edge
        if edge.type == "supersedes" and end.scope == edge.scope and end.state == "live":
            self.write(key_of(end), attrs.evolve(end, state="superseded", updated_at=now))
        return "linked"

    def unlink(self, edge: MemoryEdge) -> str:
        """Remove an edge."""
        start = key_of(self.own(edge.scope, edge.start))
        for root in (edge.scope.root, ""):
            if self.edges.pop((start, (root, edge.end), edge.type), None) is not None:
                return "unlinked"
        raise NodeNotFoundError(edge.end)

    def reaches(self, start: Key, edge_type: str, goal: Key) -> bool:
        """Whether lineage leads from one node to another."""
        return start == goal or any(
            self.reaches(end, edge_type, goal) for begin, end, kind in self.edges if (begin, kind) == (start, edge_type)
        )


def newer(said: int | None, known: Any) -> bool:
    """Whether a word replaces the one that is known."""
    return known is None or (said is not None and said >= known)
