"""What a write transaction knows beforehand, and what it has not sent yet: many nodes for few round trips.

Whoever is about to decide about many nodes says which: they are fetched, and held, in a few statements, those that are
not there included. New nodes are gathered and sent together, before anything is asked that they could change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, final

from promptkeel.model import MemoryNode
from promptkeel.store.base import NodeKey
from promptkeel.store.operations import Put, Remember
from promptkeel.store.postgres_reads import Rows
from promptkeel.store.postgres_schema import INDEXED
from promptkeel.store.rows import node_of

MOST: Final = 1000
"""So many new nodes are sent in one statement."""

Label = tuple[str, str]
"""The path of a scope, and a label there."""

BATCH: Final = {
    # In the order of the ids, so that two that hold many nodes do not wait for each other.
    "locked nodes": "SELECT <NODE> FROM {S}.nodes WHERE root = %(root)s AND id = ANY(%(ids)s) ORDER BY id FOR UPDATE",
    "shared nodes": "SELECT <NODE> FROM {S}.nodes WHERE root = %(root)s AND id = ANY(%(ids)s) ORDER BY id FOR SHARE",
    "erased ids": "SELECT DISTINCT id FROM {S}.erasures WHERE root = %(root)s AND id = ANY(%(ids)s)",
    "locked live nodes": """
SELECT <NODE> FROM unnest(%(scopes)s::text[], %(starts)s::text[], %(labels)s::text[]) AS asked(at, begins, says)
JOIN {S}.nodes ON root = %(root)s AND scope = at AND left(label, <INDEXED>) = begins AND label = says
AND state = 'live'
ORDER BY id FOR UPDATE OF nodes""",
    "insert many": """
INSERT INTO {S}.nodes(<COLUMNS>)
SELECT scope, label, id, source, recorded_at, trust, created_at, updated_at, state, properties::json, root
FROM unnest(
  %(many_scope)s::text[], %(many_label)s::text[], %(many_id)s::text[], %(many_source)s::text[],
  %(many_recorded)s::bigint[], %(many_trust)s::text[], %(many_created)s::bigint[], %(many_updated)s::bigint[],
  %(many_state)s::text[], %(many_properties)s::text[], %(many_root)s::text[]
) AS given(
  scope, label, id, source, recorded_at, trust, created_at, updated_at, state, properties, root
)""",
}
"""The statements about many nodes at once, by name."""


@final
class Expected:
    """What is known of nodes and labels that are going to be asked for. Pure, but for the fetching.

    Args:
        rows: reads in the transaction.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._nodes: dict[NodeKey, MemoryNode | None] = {}
        self._erased: dict[NodeKey, bool] = {}
        self._live: dict[Label, MemoryNode | None] = {}

    def fetch(self, keys: Iterable[NodeKey], labels: Iterable[tuple[str, str, str]]) -> None:
        """Fetch and hold nodes by root and id, and live ones by root, scope and label."""
        ids: dict[str, set[str]] = {}
        for root, node_id in keys:
            if (root, node_id) not in self._nodes:
                ids.setdefault(root, set()).add(node_id)
        for root in sorted(ids):
            self._fetch_nodes(root, sorted(ids[root]))
        asked: dict[str, set[Label]] = {}
        for root, scope, label in labels:
            if (scope, label) not in self._live:
                asked.setdefault(root, set()).add((scope, label))
        for root in sorted(asked):
            self._fetch_live(root, sorted(asked[root]))

    def _fetch_nodes(self, root: str, ids: list[str]) -> None:
        found = self._rows.fetch("locked nodes" if root else "shared nodes", root=root, ids=ids)
        nodes = {node.id: node for node in map(node_of, found)}
        erased = {node_id for (node_id,) in self._rows.fetch("erased ids", root=root, ids=ids)}
        for node_id in ids:
            self._nodes[root, node_id] = nodes.get(node_id)
            self._erased[root, node_id] = node_id in erased

    def _fetch_live(self, root: str, labels: list[Label]) -> None:
        found = self._rows.fetch(
            "locked live nodes",
            root=root,
            scopes=[scope for scope, _ in labels],
            starts=[label[:INDEXED] for _, label in labels],
            labels=[label for _, label in labels],
        )
        live: dict[Label, MemoryNode] = {}
        for node in map(node_of, found):
            key = node.scope.path, node.label
            if key not in live or node.id < live[key].id:
                live[key] = node
        for key in labels:
            self._live[key] = live.get(key)

    def node(self, key: NodeKey, otherwise: Callable[[], MemoryNode | None]) -> MemoryNode | None:
        """The node of an identity."""
        return self._nodes[key] if key in self._nodes else otherwise()

    def erased(self, key: NodeKey, otherwise: Callable[[], bool]) -> bool:
        """Whether a node of an identity was erased."""
        return self._erased[key] if key in self._erased else otherwise()

    def live(self, label: Label, otherwise: Callable[[], MemoryNode | None]) -> MemoryNode | None:
        """The live node of a label at a scope."""
        return self._live[label] if label in self._live else otherwise()

    def inserted(self, node: MemoryNode) -> None:
        """A node has come."""
        self._nodes[node.scope.root, node.id] = node
        label = node.scope.path, node.label
        if node.state == "live" and label in self._live:
            other = self._live[label]
            if other is None or node.id < other.id:
                self._live[label] = node

    def forget(self, root: str, node_id: str) -> None:
        """Nothing is known of this identity any more."""
        self._nodes.pop((root, node_id), None)
        self._erased.pop((root, node_id), None)

    def changed(self, *nodes: MemoryNode) -> None:
        """These nodes are not what they were: what was known of them, and of their labels, is not known any more."""
        for node in nodes:
            self._nodes.pop((node.scope.root, node.id), None)
            self._erased.pop((node.scope.root, node.id), None)
            self._live.pop((node.scope.path, node.label), None)


def keys_of(operations: Sequence[Any]) -> tuple[list[NodeKey], list[tuple[str, str, str]]]:
    """The nodes and labels that operations are going to ask for, as far as they say so."""
    nodes = [operation.node for operation in operations if isinstance(operation, Put | Remember)]
    remembered = [operation.node for operation in operations if isinstance(operation, Remember)]
    return (
        [(node.scope.root, node.id) for node in nodes],
        [(node.scope.root, node.scope.path, node.label) for node in remembered],
    )
