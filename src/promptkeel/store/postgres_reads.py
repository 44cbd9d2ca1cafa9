"""Reading rows of a PostgreSQL store: nodes, lanes, differences and the past, each over a connection that is handed in.

Whoever calls decides which connection and which transaction. What heads, floors and orders mean is ``store.history``.
Every statement names the root of its scope, so that it is planned for one partition, and for the deployment's where
that is visible too. The floors are kept per scope and per root, so that an erasure or a trimmed log here costs no lane
elsewhere its differences.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast, final

import attrs

from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.authored import revision_ids
from promptkeel.store.base import (
    CatchUp,
    Change,
    Changes,
    Direction,
    Head,
    Heads,
    History,
    LaneRequest,
    LaneRow,
    LaneUpdate,
    Neighbour,
    NodeKey,
    PastLane,
    Receipt,
    Stored,
    Testimony,
)
from promptkeel.store.decisions import visible_node
from promptkeel.store.history import (
    check_chain,
    check_known,
    lane_order,
    neighbour_order,
    row_order,
    tells_difference,
    touches,
    visible_testimonies,
)
from promptkeel.store.postgres_connections import Connection
from promptkeel.store.postgres_schema import INDEXED, quoted
from promptkeel.store.prefix import prefix_bounds
from promptkeel.store.rows import edge_of, node_of, root_of_path

SHORT_TOUCHED: Final = 64
"""A short read reads no more nodes than this."""
SHORT_LOG: Final = 2000
"""A short read looks at no more of the log than this."""
MOST_TOUCHED: Final = 4096
"""A lane of which more nodes were touched is read whole."""

_FRAGMENTS: Final = {
    "LOW": "label >= %(low)s AND left(label, <INDEXED>) >= %(low_start)s",
    "HIGH": "label < %(high)s AND left(label, <INDEXED>) <= %(high_start)s",
    "INDEXED": str(INDEXED),
    "BELOW": "(scope = %(scope)s OR (scope >= %(low)s AND scope < %(high)s))",
    "NODE": "id, scope, label, properties::text, source, recorded_at, trust, created_at, updated_at, state",
    "LANE": "label, recorded_at, id, scope, source, trust, updated_at, nullif(properties::text, '{}')",
    "EDGE": 'scope, root, start, type, end_root, "end", properties::text',
    "RECEIPT": "id, scope, at, versions, edges, testimonies, state, request",
    "LEVELS": "root = ANY(%(roots)s) AND scope = ANY(%(chain)s)",
    "IDENTITY": "root = %(root)s AND id = %(id)s",
    "OWN": "root = %(root)s AND scope = %(scope)s",
    "ORDER": "label, recorded_at NULLS FIRST, id, scope",
}

STATEMENTS: Final = {
    "heads": "SELECT {S}.heads_of(",
    "levels": """
SELECT scope, seq, nonce, greatest(delta_floor, trimmed), greatest(history_floor, trimmed) FROM (
  SELECT scope, seq, nonce, delta_floor, history_floor, coalesce((
    SELECT floors.seq FROM {S}.floors WHERE floors.root = ANY(%(roots)s) AND floors.root = heads.root
  ), 0) AS trimmed FROM {S}.heads WHERE <LEVELS>
) AS levels""",
    "nonce": "SELECT nonce FROM {S}.changes WHERE <OWN> AND seq = %(seq)s",
    "entries": """
SELECT seq, scope, id, label_before, label_after FROM {S}.changes WHERE <OWN> AND seq > %(seq)s ORDER BY seq""",
    "lane": "SELECT <LANE> FROM {S}.nodes WHERE <OWN> AND state = 'live' AND <LOW>",
    "bounded lane": "SELECT <LANE> FROM {S}.nodes WHERE <OWN> AND state = 'live' AND <LOW> AND <HIGH>",
    "lane of ids": "SELECT <LANE> FROM {S}.nodes WHERE root = %(root)s AND id = ANY(%(ids)s) AND state = 'live'",
    "node": "SELECT <NODE> FROM {S}.nodes WHERE <IDENTITY>",
    # Their ids lie together in the primary key, whatever their states.
    "revisions": """
SELECT <NODE> FROM {S}.nodes WHERE <OWN> AND id >= %(low)s AND id < %(high)s""",
    "nodes": """
SELECT <NODE> FROM {S}.nodes WHERE <LEVELS> AND state = 'live' AND <LOW> ORDER BY <ORDER> LIMIT %(limit)s""",
    "bounded nodes": """
SELECT <NODE> FROM {S}.nodes WHERE <LEVELS> AND state = 'live' AND <LOW> AND <HIGH> ORDER BY <ORDER> LIMIT %(limit)s""",
    "erased": "SELECT EXISTS (SELECT FROM {S}.erasures WHERE <IDENTITY>)",
    "erased at": "SELECT DISTINCT scope FROM {S}.erasures WHERE <IDENTITY>",
    "versions": "SELECT <NODE> FROM {S}.versions WHERE <IDENTITY> ORDER BY number",
    "testimonies": """
SELECT kind, source, recorded_at, trust, at, properties::text, scope FROM {S}.testimonies
WHERE <IDENTITY> ORDER BY number""",
    "changed ids": "SELECT DISTINCT id FROM {S}.changes WHERE <OWN> AND seq > %(seq)s",
    "past": """
SELECT <NODE> FROM {S}.versions JOIN (
  SELECT DISTINCT ON (id) id AS changed, number AS ended FROM {S}.changes
  WHERE <OWN> AND seq > %(seq)s ORDER BY id, seq
) AS moved ON versions.id = moved.changed AND versions.number = moved.ended WHERE versions.root = %(root)s""",
    "erased since": "SELECT id FROM {S}.erasures WHERE <OWN> AND made <= %(seq)s AND ended > %(seq)s",
    "receipts": "SELECT <RECEIPT> FROM {S}.erasures WHERE <OWN> ORDER BY number",
    "receipts below": "SELECT <RECEIPT> FROM {S}.erasures WHERE root = %(root)s AND <BELOW> ORDER BY number",
    "receipt": "SELECT <RECEIPT> FROM {S}.erasures WHERE <IDENTITY> ORDER BY number DESC LIMIT 1",
    "edges out": "SELECT <EDGE> FROM {S}.edges WHERE root = %(root)s AND start = %(id)s",
    "edges in": """
SELECT <EDGE> FROM {S}.edges WHERE root = ANY(%(roots)s) AND end_root = %(root)s AND "end" = %(id)s""",
    "stored": "SELECT <NODE> FROM {S}.nodes WHERE root = %(root)s AND <BELOW> ORDER BY scope, label, id",
    "stored edges": """
SELECT <EDGE> FROM {S}.edges WHERE root = %(root)s AND <BELOW> ORDER BY scope, start, type, "end" """,
    # The deployment is everything: these alone read every partition.
    "all stored": "SELECT <NODE> FROM {S}.nodes ORDER BY scope, label, id",
    "all stored edges": 'SELECT <EDGE> FROM {S}.edges ORDER BY scope, start, type, "end"',
    "all receipts": "SELECT <RECEIPT> FROM {S}.erasures ORDER BY number",
    # Not a tenant's rows.
    "mark": "SELECT value FROM {S}.marks WHERE key = %(key)s",
    "secret": "SELECT value FROM {S}.meta WHERE key = 'secret'",
    "pulse": "SELECT sum(count), sum(total) FROM {S}.pulse",
}
"""Every statement that reads, by name; ``{S}`` stands for the schema."""


def _roots(scope: TenantScope) -> list[str]:
    return ["", scope.root] if scope.root else [""]


@functools.lru_cache(maxsize=4096)
def _literal(text: str) -> str:
    """A text as SQL writes it, whatever the server's setting for backslashes."""
    doubled = text.replace("'", "''")
    return f"E'{doubled.replace(chr(92), chr(92) * 2)}'" if "\\" in doubled else f"'{doubled}'"


def subtree(scope: TenantScope) -> dict[str, str]:
    """What the statements about a scope and everything below it are asked with."""
    # A path's descendants begin with it and "/", and "0" is what follows "/".
    return {"root": scope.root, "scope": scope.path, "low": scope.path + "/", "high": scope.path + "0"}


@final
@attrs.frozen
class _Level:
    """A head with how far back its log and its history reach."""

    head: Head
    delta_floor: int = 0
    history_floor: int = 0


def statements(schema: str, texts: dict[str, str] = STATEMENTS) -> dict[str, str]:
    """The statements for one schema."""
    filled = {}
    for name, statement in texts.items():
        text = statement
        for fragment, value in _FRAGMENTS.items():
            text = text.replace(f"<{fragment}>", value)
        filled[name] = text.replace("{S}", quoted(schema))
    return filled


@final
class Rows:
    """What is stored, as one connection sees it.

    Args:
        connection: in autocommit, or in a transaction of the caller's.
        texts: the statements of the schema.
    """

    def __init__(self, connection: Connection, texts: dict[str, str]) -> None:
        self.connection = connection
        self._texts = texts

    def fetch(self, name: str, **arguments: Any) -> list[tuple[Any, ...]]:
        """All rows of a statement."""
        return self.connection.execute(self._texts[name], arguments).fetchall()

    def value(self, name: str, **arguments: Any) -> Any:
        """The first column of the first row; None where there is no row."""
        row = self.connection.execute(self._texts[name], arguments).fetchone()
        return None if row is None else row[0]

    def heads(self, scope: TenantScope) -> Heads:
        """The present heads of the scope's chain, in one round trip."""
        # Without parameters, the server takes the statement in one step instead of four.
        answer = self.connection.execute(f"{self._texts['heads']}{_literal(scope.path)})").fetchall()[0][0]
        return _heads(scope, answer)

    def heads_and_role(self, scope: TenantScope) -> tuple[Heads, bool]:
        """``heads``, and whether the server is a standby, in the same round trip."""
        asked = f"{self._texts['heads']}{_literal(scope.path)}), pg_is_in_recovery()"
        answer, is_standby = self.connection.execute(asked).fetchall()[0]
        return _heads(scope, answer), is_standby

    def _levels(self, scope: TenantScope) -> list[_Level]:
        rows = self.fetch("levels", roots=_roots(scope), chain=list(scope.chain))
        found = {row[0]: _Level(Head(*row[:3]), *row[3:]) for row in rows}
        return [found.get(path, _Level(Head(path))) for path in scope.chain]

    def pulse(self) -> tuple[Any, Any]:
        """A token; equal tokens: nothing has been committed in between, by anyone."""
        count, total = self.fetch("pulse")[0]
        return count, total

    def mark(self, key: str) -> str | None:
        """What the last ``Mark`` operation wrote under this key."""
        value: str | None = self.value("mark", key=key)
        return value

    def secret(self) -> bytes:
        """The store's own random key."""
        return bytes.fromhex(self.value("secret"))

    # Nodes

    def find(self, root: str, node_id: str) -> MemoryNode | None:
        """The node of this identity, in whatever state."""
        found = self.fetch("node", root=root, id=node_id)
        return node_of(found[0]) if found else None

    def is_erased(self, root: str, node_id: str) -> bool:
        """Whether a node of this identity was erased."""
        return bool(self.value("erased", root=root, id=node_id))

    def erased_at(self, root: str, node_id: str) -> set[str]:
        """The paths of the scopes at which nodes of this identity were when they were erased."""
        return {path for (path,) in self.fetch("erased at", root=root, id=node_id)}

    def query_nodes(self, scope: TenantScope, label_prefix: str | None, limit: int | None) -> list[MemoryNode]:
        """Every live node visible at the scope, in lane order."""
        bounds = _bounds(label_prefix or "")
        name = "bounded nodes" if "high" in bounds else "nodes"
        rows = self.fetch(name, roots=_roots(scope), chain=list(scope.chain), limit=limit, **bounds)
        return [node_of(row) for row in rows]

    def nonce_at(self, path: str, seq: int) -> int | None:
        """The nonce that the log holds for a scope path and seq."""
        nonce: int | None = self.value("nonce", root=root_of_path(path), scope=path, seq=seq)
        return nonce

    def testimonies(self, node: MemoryNode) -> tuple[Testimony, ...]:
        """The testimonies kept with a node, oldest first."""
        rows = self.fetch("testimonies", root=node.scope.root, id=node.id)
        return tuple(
            Testimony(kind, source, recorded, trust, at, json.loads(properties), path)
            for kind, source, recorded, trust, at, properties, path in rows
        )

    def history(self, scope: TenantScope, node_id: str) -> History:
        """Every kept version of a visible node."""
        node = visible_node(self, scope, node_id)
        # Raw SQL may have moved the node here from a scope that is not visible.
        versions = (version for version in self.versions(node) if scope.sees(version.scope))
        return History(tuple(versions), visible_testimonies(scope, self.testimonies(node)))

    def versions(self, node: MemoryNode) -> tuple[MemoryNode, ...]:
        """Every kept version of a node, oldest first; the last is the node as it is now."""
        rows = self.fetch("versions", root=node.scope.root, id=node.id)
        return (*(node_of(row) for row in rows), node)

    def revisions(self, scope: TenantScope, block: str) -> list[MemoryNode]:
        """Every revision of an authored block at exactly this scope, in every state."""
        low, high = prefix_bounds(revision_ids(scope, block))
        rows = self.fetch("revisions", root=scope.root, scope=scope.path, low=low, high=high)
        return [node_of(row) for row in rows]

    def stored(self, scope: TenantScope) -> Stored:
        """Everything stored at a scope and below it, at one point in time."""
        if not scope.path:
            nodes, edges = self.fetch("all stored"), self.fetch("all stored edges")
        else:
            nodes, edges = self.fetch("stored", **subtree(scope)), self.fetch("stored edges", **subtree(scope))
        return Stored(tuple(node_of(row) for row in nodes), tuple(edge_of(row) for row in edges))

    def neighbours(
        self, scope: TenantScope, node_id: str, edge_type: str | None, direction: Direction
    ) -> list[Neighbour]:
        """The visible neighbours of a visible node, by edge type, then id."""
        node = visible_node(self, scope, node_id)
        root = node.scope.root
        found: dict[tuple[Any, ...], Neighbour] = {}
        if direction != "in":
            for row in self.fetch("edges out", root=root, id=node.id):
                self._add_neighbour(found, scope, row, (row[4], row[5]))
        if direction != "out":
            for row in self.fetch("edges in", root=root, id=node.id, roots=_roots(scope)):
                self._add_neighbour(found, scope, row, (row[1], row[2]))
        asked = (each for each in found.values() if edge_type in (None, each.edge.type))
        return sorted(asked, key=neighbour_order)

    def _add_neighbour(
        self, found: dict[tuple[Any, ...], Neighbour], scope: TenantScope, row: Sequence[Any], other: NodeKey
    ) -> None:
        edge = edge_of(row)
        if scope.sees(edge.scope):
            node = self.find(*other)
            if node is not None and scope.sees(node.scope):
                found[tuple(row[1:6])] = Neighbour(edge, node)

    def receipts(self, scope: TenantScope, *, below: bool = False) -> list[Receipt]:
        """The erasures at exactly this scope, or at it and below, oldest first."""
        if not below:
            rows = self.fetch("receipts", root=scope.root, scope=scope.path)
        elif scope.path:
            rows = self.fetch("receipts below", **subtree(scope))
        else:
            rows = self.fetch("all receipts")
        return [Receipt(*row) for row in rows]

    # Differences

    def changes(self, scope: TenantScope, since: Heads, label_prefix: str | None) -> Changes:
        """What changed since these heads."""
        check_chain(scope, since)
        levels = self._levels(scope)
        entries = self._difference(since, levels)
        present = Heads(tuple(level.head for level in levels))
        if entries is None:
            return Changes(present, None)
        return Changes(present, tuple(Change(*entry) for entry in entries if touches(entry[3], entry[4], label_prefix)))

    def catch_up(self, scope: TenantScope, requests: Sequence[LaneRequest], *, short: bool = False) -> CatchUp | None:
        """Several lanes brought up to date; where ``short``, None if that would take long."""
        levels = self._levels(scope)
        entries: dict[Heads | None, list[tuple[Any, ...]] | None] = {None: None}
        for since in {request.since for request in requests}:
            if since is not None:
                check_chain(scope, since)
                entries[since] = self._difference(since, levels)
        lanes: list[LaneUpdate] = []
        for request in requests:
            difference = entries[request.since]
            if short and (difference is None or len(difference) > SHORT_LOG):
                return None
            update = None if difference is None else self._touched_lane(scope, request.prefix, difference, short=short)
            if update is None and short:
                return None
            lanes.append(self._whole_lane(scope, request.prefix) if update is None else update)
        return CatchUp(Heads(tuple(level.head for level in levels)), tuple(lanes))

    def _difference(self, since: Heads, levels: Sequence[_Level]) -> list[tuple[Any, ...]] | None:
        """The changes since, oldest first; None where the log cannot tell."""
        entries: list[tuple[Any, ...]] = []
        for past, level in zip(since.levels, levels, strict=True):
            if past == level.head:
                continue
            if not tells_difference(Heads((past,)), Heads((level.head,)), level.delta_floor, self.nonce_at):
                return None
            entries += self.fetch("entries", root=root_of_path(past.scope), scope=past.scope, seq=past.seq)
        return sorted(entries)

    def _touched_lane(
        self, scope: TenantScope, prefix: str, entries: list[tuple[Any, ...]], *, short: bool
    ) -> LaneUpdate | None:
        """The difference of one lane; None where reading it whole is better."""
        touched: dict[NodeKey, None] = {
            (root_of_path(path), node_id): None
            for _, path, node_id, before, after in entries
            if touches(before, after, prefix)
        }
        if len(touched) > (SHORT_TOUCHED if short else MOST_TOUCHED):
            return None
        rows: list[LaneRow] = []
        for root in {root for root, _ in touched}:
            found = self.fetch("lane of ids", root=root, ids=[node_id for owner, node_id in touched if owner == root])
            rows.extend(cast("LaneRow", row) for row in found if row[3] in scope.chain and row[0].startswith(prefix))
        return LaneUpdate(sorted(rows, key=row_order), tuple(touched))

    def _whole_lane(self, scope: TenantScope, prefix: str) -> LaneUpdate:
        bounds = _bounds(prefix)
        name = "bounded lane" if "high" in bounds else "lane"
        rows: list[LaneRow] = []
        for path in scope.chain:
            rows += cast("list[LaneRow]", self.fetch(name, root=root_of_path(path), scope=path, **bounds))
        return LaneUpdate(rows, whole=True)

    # The past

    def nodes_as_of(self, scope: TenantScope, heads: Heads, label_prefix: str | None) -> PastLane:
        """The lane as it was at these heads."""
        check_chain(scope, heads)
        levels = self._levels(scope)
        for past, level in zip(heads.levels, levels, strict=True):
            check_known(Heads((past,)), Heads((level.head,)), level.history_floor, self.nonce_at)
        prefix = label_prefix or ""
        nodes: list[MemoryNode] = []
        erased: set[str] = set()
        for past, level in zip(heads.levels, levels, strict=True):
            if past.seq:
                nodes.extend(self._level_as_of(past, prefix, moved=past != level.head))
            key = {"root": root_of_path(past.scope), "scope": past.scope, "seq": past.seq}
            erased.update(node_id for (node_id,) in self.fetch("erased since", **key))
        return PastLane(tuple(sorted(nodes, key=lane_order)), tuple(sorted(erased)))

    def _level_as_of(self, head: Head, prefix: str, *, moved: bool) -> Iterator[MemoryNode]:
        """The lane's nodes at one level: what has not changed since from ``nodes``, the rest from ``versions``."""
        root = root_of_path(head.scope)
        bounds = _bounds(prefix)
        name = "bounded nodes" if "high" in bounds else "nodes"
        present = [node_of(row) for row in self.fetch(name, roots=[root], chain=[head.scope], limit=None, **bounds)]
        if not moved:
            yield from present
            return
        key = {"root": root, "scope": head.scope, "seq": head.seq}
        changed = {node_id for (node_id,) in self.fetch("changed ids", **key)}
        yield from (node for node in present if node.id not in changed)
        for row in self.fetch("past", **key):
            node = node_of(row)
            if node.state == "live" and node.scope.path == head.scope and node.label.startswith(prefix):
                yield node


def _heads(scope: TenantScope, answer: str) -> Heads:
    numbers = [int(number) for number in answer.split()]
    return Heads(tuple(map(Head, scope.chain, numbers[::2], numbers[1::2])))


def _bounds(prefix: str) -> dict[str, str]:
    low, high = prefix_bounds(prefix)
    bounds = {"low": low, "low_start": low[:INDEXED]}
    if high is not None:
        bounds |= {"high": high, "high_start": high[:INDEXED]}
    return bounds
