"""An audit of a store in memory: whether shelves, records, heads, log and edges say the same."""

from __future__ import annotations

from collections.abc import Iterator

from promptkeel.store.audit import Audit, Finding, shown_scope
from promptkeel.store.authored_audit import chain_findings
from promptkeel.store.base import NodeKey
from promptkeel.store.history import lane_order, logged_label
from promptkeel.store.ram_state import Entry, RamState, key_of

_REMEDY = "this is a fault of promptkeel, or of code that reached into the store: copy it and report the fault"


def audit(state: RamState) -> Audit:
    """The audit of a state that nobody changes meanwhile."""
    records: int = sum(len(shelf.nodes) for shelf in state.shelves.values())
    erasures: int = sum(len(each) for each in state.erased.values())
    counts = {"nodes": records, "changes": len(state.log), "heads": len(state.shelves), "erasures": erasures}
    counts["edges"] = state.graph.number_of_edges()
    return Audit.of(_findings(state), counts)


def _findings(state: RamState) -> Iterator[Finding]:
    yield from _heads(state)
    yield from _nodes(state)
    stored = (node for shelf in state.shelves.values() for node in shelf.nodes.values())
    yield from chain_findings(stored, state.is_erased)
    for (start_root, start), (end_root, end), kind in state.graph.edges(keys=True):
        ends = ((start_root, start), (end_root, end))
        if any(state.graph.nodes[key].get("record") is None for key in ends):
            where = f"edge {kind} from {start!r} to {end!r} at {shown_scope(start_root)}"
            yield Finding("edge_orphan", where, "begins or ends at a node that is not there", "unlink it")


def _heads(state: RamState) -> Iterator[Finding]:
    if state.log and state.log[-1].head.seq - state.log[0].head.seq + 1 != len(state.log):
        yield Finding("log_gap", "the log", "has lost changes behind its floor", _REMEDY)
    if not state.history_floor <= state.delta_floor <= state.seq:
        yield Finding("floor_wrong", "the floors", "are not in order below the last change", _REMEDY)
    for path, shelf in state.shelves.items():
        log = state.log_of.get(path)
        if (log and log[-1].head != shelf.head) or (not log and shelf.head.seq > state.history_floor):
            what = f"is at change {shelf.head.seq}, which is not the log's last there"
            yield Finding("head_wrong", f"head of {shown_scope(path)}", what, _REMEDY)


def _nodes(state: RamState) -> Iterator[Finding]:
    last: dict[tuple[str, str], Entry] = {(entry.head.scope, entry.node_id): entry for entry in state.log}
    shelved: set[NodeKey] = set()
    for path, shelf in state.shelves.items():
        live = [node for node in shelf.nodes.values() if node.state == "live"]
        if sorted(map(lane_order, live)) != shelf.order:
            yield Finding("row_unlogged", f"lanes of {shown_scope(path)}", "do not hold its live nodes", _REMEDY)
        for node in shelf.nodes.values():
            key = (node.scope.root, node.id)
            shelved.add(key)
            entry = last.get((path, node.id))
            record = state.graph.nodes[key].get("record") if key in state.graph else None
            if record is None or record.current.node != node or _contradicts(state, entry, logged_label(node)):
                where = f"node {node.id!r} at {shown_scope(path)}"
                yield Finding("row_unlogged", where, "is not as the log and the graph have it", _REMEDY)
    for (path, node_id), entry in last.items():
        if entry.label_after is not None and key_of(entry) not in shelved:
            where = f"node {node_id!r} at {shown_scope(path)}"
            yield Finding("row_lost", where, f"is gone although the log has it since {entry.head.seq}", _REMEDY)


def _contradicts(state: RamState, entry: Entry | None, label: str | None) -> bool:
    return state.history_floor == 0 if entry is None else entry.label_after != label
