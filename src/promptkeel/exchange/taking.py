"""What an imported line means for what is there, decided inside the transaction that writes it. No I/O, no clock.

An import never reverts: what a node says now, or has said in any kept version, is not said again. Everything of one
line is decided before any of it is written, so that a refused line leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptkeel.errors import (
    CycleError,
    ExchangeError,
    NodeErasedError,
    NodeNotFoundError,
    ReadOnlyNodeError,
    RevisionConflictError,
)
from promptkeel.exchange.entries import Authored, Connection, Entry, Statement
from promptkeel.model import NOT_GIVEN, MemoryNode
from promptkeel.store.decisions import perform
from promptkeel.store.operations import AdoptRevision, Kind, Link, Operation, Put, Remember, Transaction
from promptkeel.store.reserved import check_not_reserved

Plan = tuple[Kind, Operation | None]

_WRITE_REFUSALS = (CycleError, NodeErasedError, ReadOnlyNodeError, RevisionConflictError)


class MissingEndError(ExchangeError):
    """An edge's end is not there, or not yet; nothing of its line was written."""


def take(
    transaction: Transaction,
    entries: Sequence[Entry],
    now: int,
    *,
    replace: bool = False,
    force_erased: bool = False,
    authored: bool = False,
    is_last: bool = False,
) -> list[Kind]:
    """Take everything that one line says, or none of it; what became of each.

    Args:
        transaction: what the store offers.
        entries: what the line says.
        now: the present instant.
        replace: whether content that is there is overwritten.
        force_erased: whether a node comes back whose id was erased.
        authored: whether revisions of authored blocks are taken.
        is_last: whether the rest of the file has been taken: what it lacks does not come any more.

    Raises:
        ExchangeError: says why the line is refused; nothing of it was written.
        ReservedLabelError: a statement would take a label or an id that is reserved.
        MissingEndError: the line may be taken when the rest of the file has been.
    """
    plans: list[Plan] = []
    for entry in entries:
        if isinstance(entry, Statement):
            plans.append(_plan_statement(transaction, entry, replace=replace, force_erased=force_erased))
        elif isinstance(entry, Authored):
            if not authored:
                raise ExchangeError(
                    f"is revision {entry.number} of authored block {entry.block}, and authored text is not taken from "
                    "a file of memory; --authored takes it, where you trust whoever wrote the file"
                )
            adoption = AdoptRevision(entry.node, force_erased=force_erased, bridges=is_last)
            plans.append(("inserted", adoption))
        else:
            plans.append(_plan_connection(transaction, entry, replace=replace))
    return [_carry_out(transaction, plan, now) for plan in plans]


def _carry_out(transaction: Transaction, plan: Plan, now: int) -> Kind:
    kind, operation = plan
    if operation is None:
        return kind
    try:
        return perform(transaction, operation, now).kind
    except _WRITE_REFUSALS as error:
        if isinstance(error, ReadOnlyNodeError) and _lacks_start(transaction, operation):
            raise MissingEndError(str(error)) from None
        raise ExchangeError(str(error)) from None
    except NodeNotFoundError as error:
        raise MissingEndError(str(error)) from None


def _lacks_start(transaction: Transaction, operation: Operation) -> bool:
    """Whether an edge's start is only the deployment's so far: one of its own root comes before it."""
    if not isinstance(operation, Link):
        return False
    edge = operation.edge
    return transaction.find(edge.scope.root, edge.start) is None


def _plan_statement(transaction: Transaction, statement: Statement, *, replace: bool, force_erased: bool) -> Plan:
    node = statement.node
    for field, text in (("label", node.label), ("id", node.id)):
        check_not_reserved(text, field=field, where=f"node {node.id!r}")
    current = transaction.find(node.scope.root, node.id)
    if not statement.identified:
        current = transaction.find_live(node.scope, node.label) or current
    if current is None:
        if not force_erased and transaction.is_erased(node.scope.root, node.id):
            raise ExchangeError(
                f"node {node.id!r} was erased and does not come back by itself; give the line an id of its own, or "
                "--force-erased brings it back"
            )
        return "inserted", Put(node, force_erased=force_erased)
    if statement.identified:
        return _plan_known(transaction, node, current, replace=replace)
    return _plan_repeated(transaction, node, current, replace=replace)


def _plan_known(transaction: Transaction, node: MemoryNode, current: MemoryNode, *, replace: bool) -> Plan:
    if _says_the_same(node, current) or any(_says_the_same(node, version) for version in transaction.versions(current)):
        return "unchanged", None
    if not replace:
        raise ExchangeError(f"id {node.id!r} is in use with other content; --replace overwrites it")
    if node.scope != current.scope:
        raise ExchangeError(
            f"id {node.id!r} is in use at scope {current.scope.path or '(deployment)'} and cannot move; use another id"
        )
    return "updated", Put(node, current)


def _plan_repeated(transaction: Transaction, node: MemoryNode, current: MemoryNode, *, replace: bool) -> Plan:
    if _repeats(node, current):
        return "unchanged", None
    versions = _versions(transaction, current)
    of_label = [version for version in versions if (version.scope, version.label) == (node.scope, node.label)]
    if not of_label:
        raise ExchangeError(f"id {node.id!r}, which follows from scope and label, is in use with other content")
    if node.own_properties and not any(_same_properties(node, version) for version in of_label):
        if not replace:
            raise ExchangeError(
                f"node {current.id!r} says the same with other properties; correct it, or --replace overwrites it"
            )
        return "updated", Put(attrs.evolve(node, id=current.id), current)
    if current.state != "live" or current.label != node.label:
        return "unchanged", None
    known = [(version.source, version.recorded, version.trust) for version in versions]
    known += [(past.source, past.recorded, past.trust) for past in transaction.testimonies(current)]
    if any(_same_provenance(node, *provenance) for provenance in known):
        return "unchanged", None
    return "confirmed", Remember(node, extends=False)


def _repeats(node: MemoryNode, current: MemoryNode) -> bool:
    """Whether nothing but the live node itself has to be looked at: it says all of this, with this provenance."""
    return (
        (current.state, current.scope, current.label) == ("live", node.scope, node.label)
        and _same_provenance(node, current.source, current.recorded, current.trust)
        and (not node.own_properties or _same_properties(node, current))
    )


def _versions(transaction: Transaction, current: MemoryNode) -> tuple[MemoryNode, ...]:
    return (current, *transaction.versions(current))


def _says_the_same(node: MemoryNode, version: MemoryNode) -> bool:
    recorded = version.recorded if node.recorded is NOT_GIVEN else node.recorded
    return (node.label, node.source, recorded, node.trust, node.state, node.scope) == (
        version.label,
        version.source,
        version.recorded,
        version.trust,
        version.state,
        version.scope,
    ) and _same_properties(node, version)


def _same_properties(node: MemoryNode, version: MemoryNode) -> bool:
    return attrs.evolve(version, properties=node.own_properties).same_content(version)


def _same_provenance(node: MemoryNode, source: object, recorded: object, trust: object) -> bool:
    same_time = node.recorded is NOT_GIVEN or node.recorded == recorded
    return same_time and (node.source, node.trust) == (source, trust)


def _plan_connection(transaction: Transaction, connection: Connection, *, replace: bool) -> Plan:
    edge = connection.edge
    present = transaction.edge(edge.scope.root, edge.start, edge.type, edge.end)
    if present is None:
        return "linked", Link(edge)
    if present == edge or (connection.incidental and present.scope == edge.scope):
        return "unchanged", None
    if not replace:
        raise ExchangeError(
            f"edge {edge.type} from {edge.start!r} to {edge.end!r} is there with other properties; "
            "--replace overwrites them"
        )
    return "updated", Link(edge)
