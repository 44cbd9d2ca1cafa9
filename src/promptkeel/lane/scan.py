"""The scan that feeds a lane, over anything that has ``query_nodes``.

A scanner that is not ours is asked for everything and then held to what was asked: a sequence, of nodes that have the
prefix and are visible at the scope. What a single node holds may be unreadable; that costs the value, not the lane.
Times of a node are datetimes (``created_at``, ``updated_at``); as a property, ``recorded_at`` may also be text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, final

import attrs

from promptkeel.errors import InvalidScopeError, ScannerError
from promptkeel.instants import read_instant
from promptkeel.lane.digest import encode_facts, facts_digest, format_revision
from promptkeel.lane.facts import (
    Provenance,
    Report,
    check_declared,
    check_prefix,
    declared_facts,
    is_encodable,
    read_provenance,
    readable_text,
    statement_fact,
)
from promptkeel.lane.lane import Lane
from promptkeel.lane.order import OrderKey, order_key
from promptkeel.model import BlockFact, BlockRevision, MemoryNode, Unreadable
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Obtain, Steps, drive
from promptkeel.store.base import Engine, LaneRequest, MemoryLaneScanner
from promptkeel.store.facade import BlockingStore, Store

_ABSENT: Final = object()


@final
@attrs.frozen(order=False)
class _Reading:
    """What one node of a scanner states."""

    key: OrderKey
    facts: list[BlockFact]
    unreadable: list[Unreadable]
    updated: int | None

    def order(self) -> tuple[OrderKey, list[tuple[bytes, int, bytes]], list[tuple[str, str, str]], int]:
        """What it is sorted by: nodes that tie in all of it are the same to a reader."""
        reported = [(entry.node_id, entry.field, entry.reason) for entry in self.unreadable]
        records = encode_facts(self.facts)
        stated = list(zip(records.values, records.instants, records.provenance, strict=True))
        return self.key, stated, reported, self.updated or 0


async def scan_memory_lane(
    memory: MemoryLaneScanner,
    scope: TenantScope,
    label_prefix: str,
    profile_fields: Collection[str] = frozenset(),
) -> BlockRevision:
    """Everything that a scope's memory says under one label prefix, as a block's revision.

    Args:
        memory: anything that has ``query_nodes``, asynchronous or not.
        scope: who is asking.
        label_prefix: which labels; it is removed from the statements.
        profile_fields: the properties that are facts of their own. They are declared, never inferred from a node.

    Raises:
        ScannerError: the scanner answered with what was not asked for.
    """
    return await drive(scan_steps(memory, scope, label_prefix, profile_fields))


def scan_steps(
    memory: Any, scope: TenantScope, label_prefix: str, profile_fields: Collection[str] = frozenset()
) -> Steps[BlockRevision]:
    """``scan_memory_lane`` as steps, for either driver."""
    prefix, fields = check_declared(label_prefix, profile_fields)
    if not isinstance(scope, TenantScope):
        raise InvalidScopeError(f"must be a TenantScope, not {type(scope).__name__}", field="scope")
    if isinstance(memory, Store | BlockingStore):
        revision: BlockRevision = yield Call(_read_store, memory.core.engine, scope, prefix, fields)
        return revision
    query_nodes = getattr(memory, "query_nodes", None)
    if not callable(query_nodes):
        raise ScannerError(f"{type(memory).__name__} has no query_nodes")
    answer = yield Obtain(lambda: query_nodes(scope, label_prefix=prefix, limit=None))
    if not isinstance(answer, Sequence) or isinstance(answer, str | bytes | bytearray):
        raise ScannerError(
            f"query_nodes of {type(memory).__name__} must answer with a sequence of nodes, not {type(answer).__name__}"
        )
    readings = [_read_node(node, scope, prefix, fields) for node in answer]
    readings.sort(key=_Reading.order)
    facts = tuple(fact for reading in readings for fact in reading.facts)
    newest = max((reading.updated for reading in readings if reading.updated is not None), default=None)
    return BlockRevision(
        content="\n".join([fact.value for fact in facts]),
        revision=format_revision(len(readings), newest, facts_digest(facts)),
        facts=facts,
        count=len(readings),
        unreadable=tuple(entry for reading in readings for entry in reading.unreadable),
    )


def _read_store(engine: Engine, scope: TenantScope, prefix: str, fields: tuple[str, ...]) -> BlockRevision:
    (lane,) = engine.catch_up(scope, [LaneRequest(prefix)]).lanes
    return Lane.build(lane.rows, prefix=prefix, profile_fields=fields).to_revision()


def memory_revision(nodes: Sequence[Any], facts: Sequence[BlockFact]) -> str:
    """The revision of a lane: ``mem:<nodes>:<newest updated_at>:<digest of the facts>``.

    Args:
        nodes: what was read; ``updated_at`` counts where it is a datetime.
        facts: what they state, in lane order.

    Raises:
        TypeError: something among the facts is no ``BlockFact``.
    """
    for fact in facts:
        if not isinstance(fact, BlockFact):
            raise TypeError(f"facts must be BlockFact, not {type(fact).__name__}")
    stamps = (_read_stamp(node, "updated_at", Report("")) for node in nodes)
    newest = max((stamp for stamp in stamps if stamp is not None), default=None)
    return format_revision(len(nodes), newest, facts_digest(facts))


def _read_node(node: Any, scope: TenantScope, prefix: str, fields: tuple[str, ...]) -> _Reading:
    report = Report("")
    node_id = report.node_id = _read_id(node, report)
    path = _read_scope(node, scope, report)
    label = _read_attribute(node, "label", report)
    if isinstance(label, str):
        label = str.__str__(label)
        check_prefix(label, prefix)
    elif label is not _ABSENT:
        report.add("label", f"must be text, not {type(label).__name__}")
    updated = _read_stamp(node, "updated_at", report)
    if isinstance(node, MemoryNode):
        if node.state != "live":
            raise ScannerError(
                f"asked for live nodes, the scanner answered with node {node_id!r}, which is {node.state}"
            )
        properties: Any = node.properties
    else:
        properties = _read_attribute(node, "properties", report)
    provenance = _node_provenance(node, properties, report)
    facts: list[BlockFact] = []
    if isinstance(label, str) and path is not None:
        shown_id = node_id or None
        facts = statement_fact(label, prefix, provenance, shown_id, report)
        if isinstance(properties, Mapping) and is_encodable(label):
            facts += declared_facts(properties, fields, provenance, shown_id, report)
    text = readable_text(label) if isinstance(label, str) else ""
    return _Reading(order_key(text, provenance.recorded, node_id, path or ""), facts, report.entries, updated)


def _read_attribute(node: Any, name: str, report: Report) -> Any:
    """The attribute; None where the node has none, ``_ABSENT`` where reading it raised, which is reported."""
    try:
        return getattr(node, name, None)
    except Exception as error:  # noqa: BLE001 - a foreign node may raise anything; it costs this one value
        report.add(name, f"could not be read: {type(error).__name__}")
        return _ABSENT


def _read_id(node: Any, report: Report) -> str:
    given = _read_attribute(node, "id", report)
    if given is None or given is _ABSENT:
        return ""
    kind: Any = type(given)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        # Such an object prints its address, which no two processes share.
        report.add("id", f"must be text or a number, not {kind.__name__}")
        return ""
    try:
        text = str.__str__(given) if isinstance(given, str) else str.__str__(str(given))
    except Exception as error:  # noqa: BLE001 - as above
        report.add("id", f"could not be read: {type(error).__name__}")
        return ""
    if not is_encodable(text):
        text = report.node_id = readable_text(text)
        report.add("id", "holds what UTF-8 cannot hold")
    return text


def _read_scope(node: Any, scope: TenantScope, report: Report) -> str | None:
    """The path of the node's scope, empty where it has none; None where it cannot be told, and nothing is shown."""
    given = _read_attribute(node, "scope", report)
    if given is _ABSENT:
        return None
    if isinstance(given, TenantScope):
        path = given.path
    elif isinstance(given, str):
        try:
            path = TenantScope.parse(str.__str__(given)).path
        except InvalidScopeError as error:
            report.add("scope", readable_text(error.reason))
            return None
    else:
        return ""
    if path not in scope.chain:
        raise ScannerError(
            f"asked at scope {scope.path or '(deployment)'}, the scanner answered with node {report.node_id!r} of "
            f"scope {path}"
        )
    return path


def _read_stamp(node: Any, name: str, report: Report) -> int | None:
    if isinstance(node, MemoryNode):
        return node.updated if name == "updated_at" else node.created
    given = _read_attribute(node, name, report)
    if given is None or given is _ABSENT:
        return None
    try:
        stamp = read_instant(given) if isinstance(given, datetime) else None
    except Exception:  # noqa: BLE001 - a foreign datetime or tzinfo may raise anything; it costs this one value
        stamp = None
    if stamp is None:
        report.add(name, "is no datetime that UTC can hold")
    return stamp


def _node_provenance(node: Any, properties: Any, report: Report) -> Provenance:
    if isinstance(node, MemoryNode):
        recorded = node.recorded if isinstance(node.recorded, int) or node.recorded is None else node.created
        return Provenance(node.source, recorded, node.trust)
    if properties is None:
        properties = {}
    if not isinstance(properties, Mapping):
        if properties is not _ABSENT:
            report.add("properties", f"must be a JSON object, not {type(properties).__name__}")
        return Provenance()
    given = read_provenance(properties, "", report, Provenance())
    if _has(properties, "recorded_at"):
        return given
    return given._replace(recorded=_read_stamp(node, "created_at", report))


def _has(properties: Mapping[Any, Any], key: str) -> bool:
    try:
        return key in properties
    except Exception:  # noqa: BLE001 - already reported when the value was read
        return True
