"""What a store holds at a scope and below, as the lines of a file. One read, at one point in time, held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, final

import attrs

from promptkeel.errors import InvalidInputError
from promptkeel.exchange.jsonl import edge_line, statement_line
from promptkeel.exchange.mcp import graph_lines
from promptkeel.scope import TenantScope
from promptkeel.steps import Steps
from promptkeel.store.base import Stored
from promptkeel.store.facade import StoreCore
from promptkeel.upkeep.erasing import plan_steps
from promptkeel.upkeep.erasure import ErasurePlan, ErasureRequest

Format = Literal["jsonl", "mcp"]


@final
@attrs.frozen(order=False)
class Export:
    """The lines of an export.

    Attributes:
        lines: without line breaks; statements before edges, in one order for one content.
        statements: how many nodes the lines say.
        edges: how many edges they say.
        left_out: how many live nodes the format cannot say.
    """

    lines: tuple[str, ...]
    statements: int
    edges: int
    left_out: int = 0

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
    """What is stored at a scope and below it.

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
    lines, left_out = graph_lines(stored.nodes, stored.edges, scope, prefix)
    said = sum(1 for node in stored.nodes if node.scope == scope and node.state == "live") - left_out
    relations = sum(1 for line in lines if line.startswith('{"type": "relation"'))
    return Export(tuple(lines), said, relations, left_out)


def jsonl_export(stored: Stored, *, everything: bool = False) -> Export:
    """The JSON Lines of what is stored; an edge only where both of its ends are among them or above the scope."""
    nodes = [node for node in stored.nodes if everything or node.state == "live"]
    said = {(node.scope.root, node.id) for node in nodes}
    held = {(node.scope.root, node.id) for node in stored.nodes}

    def is_said(root: str, node_id: str) -> bool:
        key = (root, node_id) if (root, node_id) in held else ("", node_id)
        return key in said or key not in held

    edges = [
        edge for edge in stored.edges if is_said(edge.scope.root, edge.start) and is_said(edge.scope.root, edge.end)
    ]
    lines = (*map(statement_line, nodes), *map(edge_line, edges))
    return Export(lines, len(nodes), len(edges))


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
