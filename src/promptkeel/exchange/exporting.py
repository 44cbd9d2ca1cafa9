"""What a store holds at a scope and below, as the lines of a file. One read, at one point in time, held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, final

import attrs

from promptkeel.errors import InvalidInputError
from promptkeel.exchange.jsonl import edge_line, node_line
from promptkeel.exchange.mcp import graph_lines
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.steps import Steps
from promptkeel.store.authored import is_of_namespace
from promptkeel.store.base import Stored
from promptkeel.store.facade import StoreCore
from promptkeel.store.reserved import is_conversation_state
from promptkeel.upkeep.erasing import plan_steps
from promptkeel.upkeep.erasure import ErasurePlan, ErasureRequest

Format = Literal["jsonl", "mcp"]


@final
@attrs.frozen(order=False)
class Export:
    """The lines of an export.

    Attributes:
        lines: without line breaks; statements before edges, in one order for one content.
        statements: how many nodes of memory the lines say.
        edges: how many edges they say.
        left_out: how many live nodes the format cannot say.
        revisions: how many revisions of authored blocks they say, whose histories are exported whole.
    """

    lines: tuple[str, ...]
    statements: int
    edges: int
    left_out: int = 0
    revisions: int = 0

    def encoded(self) -> Iterator[bytes]:
        """The bytes of the file, line by line."""
        for line in self.lines:
            yield line.encode() + b"\n"


def export_steps(
    store: StoreCore,
    scope: TenantScope,
    *,
    format: Format = "jsonl",  # noqa: A002 - the word that callers use
    everything: bool = False,
    prefix: str = "SOUL:",
) -> Steps[Export]:
    """What is stored at a scope and below it, without the state of conversations.

    Args:
        store: the core of an open store.
        scope: the deployment is everything; with ``mcp``, exactly this scope.
        format: ``jsonl``, which an import takes back whole, or ``mcp``, which has no place for provenance.
        everything: whether retracted and superseded nodes are exported too, each with its state.
        prefix: the label prefix that ``mcp`` leaves off its observations.
    """
    if format not in ("jsonl", "mcp"):
        raise InvalidInputError(f"must be 'jsonl' or 'mcp', not {format!r}", field="format")
    stored = yield from store.stored(scope)
    if format == "jsonl":
        return jsonl_export(stored, everything=everything)
    nodes = [node for node in stored.nodes if not is_conversation_state(node)]
    lines, left_out = graph_lines(nodes, stored.edges, scope, prefix)
    said = sum(1 for node in nodes if node.scope == scope and node.state == "live") - left_out
    relations = sum(1 for line in lines if line.startswith('{"type": "relation"'))
    return Export(tuple(lines), said, relations, left_out)


def jsonl_export(stored: Stored, *, everything: bool = False) -> Export:
    """The JSON Lines of what is stored; an edge only where both of its ends are among them or above the scope."""
    memory = [
        node
        for node in stored.nodes
        if not is_of_namespace(node) and not is_conversation_state(node) and (everything or node.state == "live")
    ]
    authored = sorted(filter(is_of_namespace, stored.nodes), key=_revision_order)
    nodes = [*authored, *memory]
    said = {(node.scope.root, node.id) for node in nodes}
    held = {(node.scope.root, node.id) for node in stored.nodes}

    def is_said(root: str, node_id: str) -> bool:
        key = (root, node_id) if (root, node_id) in held else ("", node_id)
        return key in said or key not in held

    edges = [
        edge for edge in stored.edges if is_said(edge.scope.root, edge.start) and is_said(edge.scope.root, edge.end)
    ]
    lines = (*map(node_line, nodes), *map(edge_line, edges))
    return Export(lines, len(memory), len(edges), revisions=len(authored))


def _revision_order(node: MemoryNode) -> tuple[str, str, int, str]:
    """Each history from its first revision on."""
    number = node.own_properties.get("number")
    return node.scope.path, node.label, number if type(number) is int else 0, node.id


def export_request_steps(store: StoreCore, request: ErasureRequest) -> Steps[tuple[ErasurePlan, Export]]:
    """What an erasure would take, and the JSON Lines of all of it, to be handed over before it goes.

    Given to the erasure as what is expected, the plan refuses it where anything has changed since. Old versions are
    not exported: they are what was corrected.
    """
    plan = yield from plan_steps(store, request)
    taken = {each.key for each in plan.found}
    stored = yield from store.stored(request.scope)
    edges = tuple(
        edge
        for edge in stored.edges
        if any((root, end) in taken for root in (edge.scope.root, "") for end in (edge.start, edge.end))
    )
    return plan, jsonl_export(Stored(tuple(each.node for each in plan.found), edges), everything=True)
