"""What a write means, decided once for every store.

``perform`` decides what an operation does by looking at a ``Transaction``, the few primitives that a backend offers
inside one of its own transactions, so that every backend gives equal answers to equal calls, errors included. Nothing
here reads a clock: the instant is handed in.
"""

from __future__ import annotations

from typing import Any, cast

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
from promptkeel.instants import format_instant, read_instant
from promptkeel.model import (
    FIELD_PROVENANCE,
    NOT_GIVEN,
    MemoryEdge,
    MemoryNode,
    Trust,
)
from promptkeel.properties import dump_json
from promptkeel.scope import TenantScope
from promptkeel.store.appending import adopt, append
from promptkeel.store.base import Testimony
from promptkeel.store.operations import (
    LINEAGE,
    AdoptRevision,
    AppendBlock,
    Correct,
    Decide,
    Erase,
    Finder,
    Link,
    Mark,
    Operation,
    Outcome,
    Put,
    Remember,
    Retract,
    Transaction,
    Unlink,
)
from promptkeel.store.stamping import stamped, with_state


def perform(transaction: Transaction, operation: Operation, now: int) -> Outcome:
    """Do one operation at the instant ``now``.

    Raises:
        StoreError: the operation is refused; the caller must roll the transaction back.
    """
    match operation:
        case Put() | Remember() | Correct() | Retract():
            return _change(transaction, operation, now)
        case AppendBlock():
            return append(transaction, operation, now)
        case AdoptRevision():
            return adopt(transaction, operation, now)
        case Erase():
            return Outcome("erased", receipt=transaction.erase(_erasable(transaction, operation), now))
        case Link():
            return _link(transaction, operation.edge, now)
        case Unlink():
            return _unlink(transaction, operation.edge)
        case Mark():
            transaction.put_mark(operation.key, operation.value)
            return Outcome("marked")
        case Decide():
            operation.decide(transaction, now)
            return Outcome("decided")
        case _:
            raise InvalidInputError(f"{operation!r} is no operation of a store")


def _change(transaction: Transaction, operation: Put | Remember | Correct | Retract, now: int) -> Outcome:
    match operation:
        case Put():
            return _put(transaction, operation, now)
        case Remember():
            return _remember(transaction, operation, now)
        case Correct():
            return _correct(transaction, operation, now)
        case Retract():
            return _retract(transaction, operation, now)


def own_node(transaction: Transaction, scope: TenantScope, node_id: str) -> MemoryNode:
    """The node of this id at exactly this scope.

    Raises:
        NodeErasedError: it was visible here and was erased.
        NodeNotFoundError: none is visible here.
        ReadOnlyNodeError: it is visible but belongs to an ancestor.
    """
    node = transaction.find(scope.root, node_id)
    if node is not None and node.scope == scope:
        return node
    if node is None or not scope.sees(node.scope):
        inherited = transaction.find("", node_id)
        node = inherited if inherited is not None and scope.sees(inherited.scope) else None
    if node is None:
        raise _not_there(transaction, scope, node_id)
    raise ReadOnlyNodeError(
        f"node {node_id!r} belongs to scope {node.scope.path or '(deployment)'} and is read-only at {scope.path}; "
        "write at its own scope"
    )


def _check_expected(current: MemoryNode, expected: MemoryNode | str | None) -> None:
    if expected is None:
        return
    same = current == expected if isinstance(expected, MemoryNode) else current.version == expected
    if not same:
        raise ConflictError(
            f"node {current.id!r} has changed since that version (it is now {current.version}); read it again"
        )


def _check_new_id(transaction: Transaction, node: MemoryNode, *, force_erased: bool) -> None:
    root = node.scope.root
    if transaction.find(root, node.id) is not None:
        raise NodeExistsError(
            f"id {node.id!r} is in use under root {root or '(deployment)'}; to change that node, give expected="
        )
    if not force_erased and transaction.is_erased(root, node.id):
        raise NodeErasedError(f"node {node.id!r} was erased; use a new id, or force_erased to bring it back")


def _put(transaction: Transaction, operation: Put, now: int) -> Outcome:
    node = operation.node
    if operation.expected is None:
        _check_new_id(transaction, node, force_erased=operation.force_erased)
        node = stamped(node, now)
        transaction.insert(node)
        return Outcome("inserted", node)
    current = own_node(transaction, node.scope, node.id)
    _check_expected(current, operation.expected)
    return _update(transaction, node, current, now)


def _update(transaction: Transaction, node: MemoryNode, current: MemoryNode, now: int) -> Outcome:
    recorded = current.recorded if node.recorded is NOT_GIVEN else node.recorded
    node = attrs.evolve(node, recorded_at=recorded, created_at=current.created, updated_at=now)
    if node.same_content(current):
        return Outcome("unchanged", current)
    transaction.update(node, current)
    return Outcome("updated", node)


def _remember(transaction: Transaction, operation: Remember, now: int) -> Outcome:
    node = operation.node
    shown = transaction.find_live(node.scope, node.label)
    if shown is None:
        return _put(transaction, Put(node), now)
    recorded = now if node.recorded is NOT_GIVEN else cast("int | None", node.recorded)
    extended, others = extended_by(shown, node, recorded) if operation.extends else (shown, {})
    outcome = Outcome("unchanged", shown)
    given = (node.source, recorded, node.trust)
    if not _is_known(transaction, shown, given, others):
        transaction.testify(shown, Testimony("confirmed", *given, now, others, shown.scope.path))
        outcome = Outcome("confirmed", shown)
    return outcome if extended is shown else _update(transaction, extended, shown, now)


def _is_known(
    transaction: Transaction,
    shown: MemoryNode,
    given: tuple[str | None, int | None, Trust | None],
    properties: dict[str, Any],
) -> bool:
    if not properties and given == (shown.source, shown.recorded, shown.trust):
        return True
    return any(
        given == (past.source, past.recorded, past.trust)
        and past.scope in (None, shown.scope.path)
        and (not properties or dump_json(past.properties) == dump_json(properties))
        for past in transaction.testimonies(shown)
    )


def extended_by(node: MemoryNode, said: MemoryNode, recorded: int | None) -> tuple[MemoryNode, dict[str, Any]]:
    """A node with the properties that it does not have yet of one that says the same, and those that it has otherwise.

    A property that a correction took away is not there, so it can be given again.
    """
    given, properties = dict(said.own_properties), dict(node.own_properties)
    given_provenance = given.pop(FIELD_PROVENANCE, None)
    added = {name: value for name, value in given.items() if name not in properties}
    others = {
        name: value
        for name, value in given.items()
        if name in properties and dump_json(value) != dump_json(properties[name])
    }
    if not added:
        return node, others
    kept = properties.get(FIELD_PROVENANCE)
    provenance: dict[str, Any] = dict(kept) if isinstance(kept, dict) else {}
    for name in added:
        own = given_provenance.get(name) if isinstance(given_provenance, dict) else None
        provenance[name] = field_provenance(said.source, recorded, said.trust) if own is None else own
    return attrs.evolve(node, properties=properties | added | {FIELD_PROVENANCE: provenance}), others


def _correct(transaction: Transaction, operation: Correct, now: int) -> Outcome:
    current = own_node(transaction, operation.scope, operation.node_id)
    _check_expected(current, operation.expected)
    recorded = now if operation.recorded is NOT_GIVEN else operation.recorded
    taken, outdated = corrected(current, operation, recorded)
    if outdated:
        testimony = Testimony(
            "outdated", operation.source, recorded, operation.trust, now, outdated, current.scope.path
        )
        transaction.testify(current, testimony)
    if taken is current:
        return Outcome("unchanged", current, outdated=outdated)
    return attrs.evolve(_update(transaction, taken, current, now), outdated=outdated)


def corrected(node: MemoryNode, correction: Correct, recorded: int | None) -> tuple[MemoryNode, dict[str, Any]]:
    """The node after a correction, and the values that came too late to be shown.

    The newest correction by instant wins, whatever the order of arrival; one without an instant never replaces one
    that has one.
    """
    properties = dict(node.own_properties)
    given = properties.get(FIELD_PROVENANCE)
    provenance: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
    outdated: dict[str, Any] = {}
    for name, value in correction.properties.items():
        if _is_older(recorded, _field_recorded(provenance.get(name), node)) and name in properties:
            outdated[name] = value
            continue
        if value is None:
            properties.pop(name, None)
            provenance.pop(name, None)
            continue
        properties[name] = value
        provenance[name] = field_provenance(correction.source, recorded, correction.trust)
    label, shown = node.label, (node.source, node.recorded, node.trust)
    if correction.label is not None:
        if _is_older(recorded, node.recorded if isinstance(node.recorded, int) else None):
            outdated["label"] = correction.label
        else:
            label, shown = correction.label, (correction.source, recorded, correction.trust)
    if provenance:
        properties[FIELD_PROVENANCE] = provenance
    elif FIELD_PROVENANCE in properties:
        del properties[FIELD_PROVENANCE]
    changed = attrs.evolve(
        node, label=label, properties=properties, source=shown[0], recorded_at=shown[1], trust=shown[2]
    )
    return (node if changed.same_content(node) else changed), outdated


def field_provenance(source: str | None, recorded: int | None, trust: Trust | None) -> dict[str, Any]:
    """The provenance of one property, as it is kept among a node's properties."""
    return {
        "source": source,
        "recorded_at": None if recorded is None else format_instant(recorded),
        "trust": trust,
    }


def _field_recorded(provenance: object, node: MemoryNode) -> int | None:
    if isinstance(provenance, dict) and "recorded_at" in provenance:
        return read_instant(provenance["recorded_at"])
    return node.recorded if isinstance(node.recorded, int) else None


def _is_older(recorded: int | None, than: int | None) -> bool:
    return than is not None and (recorded is None or recorded < than)


def _retract(transaction: Transaction, operation: Retract, now: int) -> Outcome:
    current = own_node(transaction, operation.scope, operation.node_id)
    _check_expected(current, operation.expected)
    if current.state == "retracted":
        return Outcome("unchanged", current)
    node = with_state(transaction, current, "retracted", now)
    return Outcome("retracted", node)


def _erasable(transaction: Transaction, operation: Erase) -> MemoryNode:
    """The node; or its last version, where raw SQL has deleted it and left its text in history."""
    scope, node_id = operation.scope, operation.node_id
    try:
        return own_node(transaction, scope, node_id)
    except NodeNotFoundError:
        if transaction.find(scope.root, node_id) is not None:
            raise
        left = [each for each in transaction.every_version(scope) if (each.scope, each.id) == (scope, node_id)]
        if not left:
            raise
        return left[-1]


def visible_node(finder: Finder, scope: TenantScope, node_id: str) -> MemoryNode:
    """The node of this id visible at the scope, in whatever state; one under the scope's own root comes first.

    Raises:
        NodeErasedError: it was visible here and was erased.
        NodeNotFoundError: none is visible here.
    """
    for root in (scope.root, ""):
        node = finder.find(root, node_id)
        if node is not None and scope.sees(node.scope):
            return node
    raise _not_there(finder, scope, node_id)


def _not_there(finder: Finder, scope: TenantScope, node_id: str) -> NodeNotFoundError:
    # What was erased where the scope does not see is no business of its own, not even that it was there.
    erased = (path for root in {scope.root, ""} for path in finder.erased_at(root, node_id))
    if any(path in scope.chain for path in erased):
        return NodeErasedError(f"node {node_id!r} was erased")
    return NodeNotFoundError(f"no node {node_id!r} is visible at scope {scope.path or '(deployment)'}")


def _link(transaction: Transaction, edge: MemoryEdge, now: int) -> Outcome:
    own_node(transaction, edge.scope, edge.start)
    end = visible_node(transaction, edge.scope, edge.end)
    root = edge.scope.root
    present = transaction.edge(root, edge.start, edge.type, edge.end)
    if present == edge and present.properties == edge.properties:
        return Outcome("unchanged", edge=edge)
    # A deployment's node never links back under another root, so a cycle stays under one.
    if edge.type in LINEAGE and end.scope.root == root and _reaches(transaction, root, edge.end, edge.type, edge.start):
        raise CycleError(f"edge {edge.type} from {edge.start!r} to {edge.end!r} would close a cycle of lineage")
    transaction.put_edge(edge)
    if edge.type == "supersedes" and end.scope == edge.scope and end.state == "live":
        with_state(transaction, end, "superseded", now)
    return Outcome("linked", edge=edge)


def _reaches(transaction: Transaction, root: str, start: str, edge_type: str, goal: str) -> bool:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        node_id = waiting.pop()
        if node_id == goal:
            return True
        if node_id not in seen:
            seen.add(node_id)
            waiting.extend(transaction.edges_from(root, node_id, edge_type))
    return False


def _unlink(transaction: Transaction, edge: MemoryEdge) -> Outcome:
    own_node(transaction, edge.scope, edge.start)
    if transaction.edge(edge.scope.root, edge.start, edge.type, edge.end) is None:
        raise NodeNotFoundError(f"there is no edge {edge.type} from {edge.start!r} to {edge.end!r}")
    transaction.remove_edge(edge)
    return Outcome("unlinked", edge=edge)
