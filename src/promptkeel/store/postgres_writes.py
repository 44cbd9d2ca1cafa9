"""What a write transaction of a PostgreSQL store can do: the primitives that ``store.decisions`` decides with.

Triggers keep heads, log and versions; nothing here does. An erasure is the exception: it deletes what they kept and
takes the labels out of the log; the trigger at the commit then raises the floor.

Transactions run READ COMMITTED. What a decision rests on is held until the commit: a node that was found by its row
lock, and what is not there yet (a label at a scope, an edge under a root) by an advisory lock. Those are few, each for
many scopes: a transaction over a hundred thousand scopes must not fill the server's lock table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, final

import attrs

from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.properties import dump_json
from promptkeel.scope import TenantScope
from promptkeel.store.base import NodeKey, Receipt, Testimony
from promptkeel.store.decisions import visible_node
from promptkeel.store.operations import LINEAGE, AppendBlock, Decide, Link, Remember
from promptkeel.store.postgres_batch import BATCH, MOST, Expected
from promptkeel.store.postgres_connections import Connection
from promptkeel.store.postgres_reads import STATEMENTS, Rows, subtree
from promptkeel.store.postgres_schema import INDEXED
from promptkeel.store.rows import edge_of, node_of, root_of_path

BUCKETS: Final = 1024
"""How many advisory locks there are for scopes and roots."""
_SLACK: Final = 10
"""A log is trimmed when it has grown by one part in so many."""

_COLUMNS: Final = "scope, label, id, source, recorded_at, trust, created_at, updated_at, state, properties, root"
_VALUES: Final = (
    "%(scope)s, %(label)s, %(id)s, %(source)s, %(recorded)s, %(trust)s, %(created)s, %(updated)s, %(state)s, "
    "%(properties)s, %(root)s"
)

WRITES: Final = {
    # Held until the commit: nobody changes it in between. The deployment's nodes are shared by every root.
    "locked node": STATEMENTS["node"] + " FOR UPDATE",
    "shared node": STATEMENTS["node"] + " FOR SHARE",
    # No LIMIT: a row that stops saying this while it is waited for drops out, and the next one counts.
    "locked live node": """
SELECT <NODE> FROM {S}.nodes WHERE <OWN> AND state = 'live' AND label = %(label)s
AND left(label, <INDEXED>) = %(start)s ORDER BY id FOR UPDATE""",
    "insert": "INSERT INTO {S}.nodes(<COLUMNS>) VALUES (<VALUES>)",
    **BATCH,
    "update": "UPDATE {S}.nodes SET (<COLUMNS>) = ROW(<VALUES>) WHERE root = %(old_root)s AND id = %(old_id)s",
    "testify": """
INSERT INTO {S}.testimonies(root, id, number, kind, source, recorded_at, trust, at, properties, scope)
SELECT %(root)s, %(id)s, (
  SELECT coalesce(max(number), 0) + 1 FROM {S}.testimonies WHERE <IDENTITY>
), %(kind)s, %(source)s, %(recorded)s, %(trust)s, %(at)s, %(properties)s, %(scope)s""",
    "delete": "DELETE FROM {S}.nodes WHERE <IDENTITY>",
    # A first change that closed a version is not the one that made the node: that one was trimmed.
    "made": """
SELECT CASE WHEN EXISTS (SELECT FROM {S}.versions WHERE <IDENTITY> AND versions.number = logged.number)
  THEN 1 ELSE logged.seq END
FROM (SELECT seq, number FROM {S}.changes WHERE <IDENTITY> ORDER BY seq LIMIT 1) AS logged""",
    "last seq": "SELECT last_value FROM {S}.seqs",
    "delete versions": "DELETE FROM {S}.versions WHERE <IDENTITY>",
    "delete testimonies": "DELETE FROM {S}.testimonies WHERE <IDENTITY>",
    "delete edges": """
DELETE FROM {S}.edges WHERE root = %(root)s AND (start = %(id)s OR (end_root = %(root)s AND "end" = %(id)s))""",
    # Any root may have linked to a deployment's node: this one looks at every partition.
    "delete edges to the deployment": """DELETE FROM {S}.edges WHERE end_root = '' AND "end" = %(id)s""",
    "scrub log": "UPDATE {S}.changes SET label_before = NULL, label_after = NULL WHERE <IDENTITY> RETURNING scope",
    "scrub pending": """
UPDATE {S}.pending SET label_before = NULL, label_after = NULL, scrubbed = true
WHERE xid = pg_current_xact_id() AND <IDENTITY> RETURNING scope""",
    # Wherever it once was, the log was scrubbed too: those heads move, and their floors with them.
    "note scrubbed": """
INSERT INTO {S}.pending(xid, root, scope, number, id, scrubbed)
SELECT pg_current_xact_id(), %(root)s, scope, nextval('{S}.numbers'), %(id)s, true
FROM unnest(%(scopes)s::text[]) AS scope""",
    "note transaction": "INSERT INTO {S}.transactions(xid) VALUES (pg_current_xact_id()) ON CONFLICT DO NOTHING",
    "put receipt": """
INSERT INTO {S}.erasures(root, id, number, scope, at, made, ended, versions, edges, testimonies, state, request)
VALUES (%(root)s, %(id)s, nextval('{S}.numbers'), %(scope)s, %(at)s, %(made)s, %(ended)s, %(versions)s, %(edges)s,
%(testimonies)s, %(state)s, %(request)s)""",
    "change receipt": """
UPDATE {S}.erasures SET scope = %(scope)s, at = %(at)s, versions = %(versions)s, edges = %(edges)s,
testimonies = %(testimonies)s, state = %(state)s, request = %(request)s
WHERE <IDENTITY> AND number = (SELECT max(number) FROM {S}.erasures WHERE <IDENTITY>)""",
    "versions below": "SELECT <NODE> FROM {S}.versions WHERE root = %(root)s AND <BELOW> ORDER BY id, number",
    "edge": """
SELECT <EDGE> FROM {S}.edges
WHERE root = %(root)s AND start = %(start)s AND type = %(type)s AND end_root IN (%(root)s, '') AND "end" = %(end)s
ORDER BY end_root DESC LIMIT 1""",
    "edges from": """
SELECT "end" FROM {S}.edges WHERE root = %(root)s AND start = %(start)s AND type = %(type)s AND end_root = %(root)s""",
    "edges into": """
SELECT root, start FROM {S}.edges
WHERE root = %(root)s AND end_root = %(root)s AND "end" = %(id)s AND type = %(type)s""",
    # As for an erasure: whatever is derived from a deployment's node, in every partition.
    "edges into the deployment": """
SELECT root, start FROM {S}.edges WHERE end_root = '' AND "end" = %(id)s AND type = %(type)s""",
    "all versions": "SELECT <NODE> FROM {S}.versions ORDER BY root, id, number",
    "put edge": """
INSERT INTO {S}.edges(root, start, type, end_root, "end", scope, properties)
VALUES (%(root)s, %(start)s, %(type)s, %(end_root)s, %(end)s, %(scope)s, %(properties)s)
ON CONFLICT (root, start, type, end_root, "end")
DO UPDATE SET scope = excluded.scope, properties = excluded.properties""",
    "remove edge": """
DELETE FROM {S}.edges WHERE root = %(root)s AND start = %(start)s AND type = %(type)s AND "end" = %(end)s
AND end_root = (
  SELECT max(end_root) FROM {S}.edges
  WHERE root = %(root)s AND start = %(start)s AND type = %(type)s AND "end" = %(end)s AND end_root IN (%(root)s, '')
)""",
    "put mark": """
INSERT INTO {S}.marks(key, value) VALUES (%(key)s, %(value)s) ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
    "remove mark": "DELETE FROM {S}.marks WHERE key = %(key)s",
    "oldest kept": """
SELECT seq FROM {S}.changes WHERE root = %(root)s ORDER BY seq DESC OFFSET %(limit)s LIMIT 1""",
    "trim": """
WITH trimmed AS (
  DELETE FROM {S}.changes WHERE root = %(root)s AND seq < %(seq)s RETURNING id, number, seq
), forgotten AS (
  DELETE FROM {S}.versions USING trimmed
  WHERE versions.root = %(root)s AND versions.id = trimmed.id AND versions.number = trimmed.number
)
INSERT INTO {S}.floors AS floors(root, seq) SELECT %(root)s, max(seq) FROM trimmed HAVING max(seq) IS NOT NULL
ON CONFLICT (root) DO UPDATE SET seq = greatest(floors.seq, excluded.seq)""",
}
"""Every statement that writes, or that holds what it reads, by name."""
WRITES.update({name: text.replace("<COLUMNS>", _COLUMNS).replace("<VALUES>", _VALUES) for name, text in WRITES.items()})


def bucket(kind: str, path: str) -> int:
    """Which advisory lock stands for a scope, or for the lineage under a root."""
    digest = hashlib.blake2b(f"{kind}\0{path}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % BUCKETS


def buckets_of(operations: Sequence[Any]) -> list[int]:
    """The advisory locks that operations will need, as far as they say so beforehand."""
    found: set[int] = set()
    for operation in operations:
        match operation:
            case Remember(node):
                found.add(bucket("scope", node.scope.path))
            case AppendBlock(scope=scope):
                found.add(bucket("scope", scope.path))
            case Link(edge) if edge.type in LINEAGE:
                found.add(bucket("lineage", edge.scope.root))
    return sorted(found)


def may_repeat(operations: Iterable[Any]) -> bool:
    """Whether the whole transaction may be tried again: a caller's own decision is asked once."""
    return not any(isinstance(operation, Decide) and not operation.repeatable for operation in operations)


@final
class PostgresTransaction:
    """The primitives, on a connection that is in a write transaction.

    Args:
        connection: in a READ COMMITTED transaction.
        texts: the statements of the schema, reads and writes.
        lock: spells the statement that takes advisory locks.
        held: the advisory locks that the transaction has taken already.
    """

    def __init__(
        self, connection: Connection, texts: dict[str, str], lock: Callable[[list[int]], str], held: Iterable[int]
    ) -> None:
        self._rows = Rows(connection, texts)
        self._connection = connection
        self._texts = texts
        self._lock = lock
        self._held = set(held)
        self._expected = Expected(self._rows)
        self._new: list[MemoryNode] = []
        self.written: dict[str, int] = {}
        self.erased_at = self._rows.erased_at

    def _hold(self, kind: str, *paths: str) -> None:
        wanted = sorted({bucket(kind, path) for path in paths} - self._held)
        if wanted:
            self._connection.execute(self._lock(wanted))
            self._held.update(wanted)

    def expect(self, keys: Iterable[NodeKey], labels: Iterable[tuple[str, str, str]]) -> None:
        """Fetch what is going to be asked for: nodes by root and id, live ones by root, scope and label."""
        labels = list(labels)
        self._hold("scope", *(scope for _, scope, _ in labels))
        self.flush()
        self._expected.fetch(keys, labels)

    def flush(self) -> None:
        """Send the new nodes that were gathered; to be called before the transaction ends."""
        new, self._new = self._new, []
        if len(new) == 1:
            self._connection.execute(self._texts["insert"], _columns(new[0]))
        elif new:
            columns = [_columns(node) for node in new]
            self._connection.execute(
                self._texts["insert many"], {f"many_{name}": [each[name] for each in columns] for name in columns[0]}
            )

    def _execute(self, name: str, **arguments: Any) -> int:
        self.flush()
        return self._connection.execute(self._texts[name], arguments).rowcount

    def find(self, root: str, node_id: str) -> MemoryNode | None:
        """The node of this identity, in whatever state; it stays as it is until the transaction ends."""
        return self._expected.node((root, node_id), lambda: self._fetch_node(root, node_id))

    def _fetch_node(self, root: str, node_id: str) -> MemoryNode | None:
        self.flush()
        found = self._rows.fetch("locked node" if root else "shared node", root=root, id=node_id)
        return node_of(found[0]) if found else None

    def is_erased(self, root: str, node_id: str) -> bool:
        """Whether a node of this identity was erased."""
        return self._expected.erased((root, node_id), lambda: self._rows.is_erased(root, node_id))

    def versions(self, node: MemoryNode) -> tuple[MemoryNode, ...]:
        """Every kept version of a node, oldest first; the last is the node as it is now."""
        self.flush()
        return self._rows.versions(node)

    def testimonies(self, node: MemoryNode) -> tuple[Testimony, ...]:
        """The testimonies kept with a node, oldest first."""
        return self._rows.testimonies(node)

    def find_live(self, scope: TenantScope, label: str) -> MemoryNode | None:
        """The live node at exactly this scope with exactly this label; of several, the least id. It stays as it is."""
        self._hold("scope", scope.path)
        return self._expected.live((scope.path, label), lambda: self._fetch_live(scope, label))

    def _fetch_live(self, scope: TenantScope, label: str) -> MemoryNode | None:
        self.flush()
        found = self._rows.fetch(
            "locked live node", root=scope.root, scope=scope.path, label=label, start=label[:INDEXED]
        )
        return node_of(found[0]) if found else None

    def insert(self, node: MemoryNode) -> None:
        """Add a stamped node."""
        self._new.append(node)
        self._expected.inserted(node)
        self._count(node.scope.root)
        if len(self._new) >= MOST:
            self.flush()

    def update(self, node: MemoryNode, previous: MemoryNode) -> None:
        """Replace ``previous`` by ``node``; a trigger keeps the old version."""
        self._execute("update", **_columns(node), old_root=previous.scope.root, old_id=previous.id)
        self._expected.changed(previous, node)
        self._count(node.scope.root)

    def _count(self, root: str) -> None:
        self.written[root] = self.written.get(root, 0) + 1

    def testify(self, node: MemoryNode, testimony: Testimony) -> None:
        """Keep a testimony with a node's history."""
        self._execute(
            "testify",
            root=node.scope.root,
            id=node.id,
            kind=testimony.kind,
            source=testimony.source,
            recorded=testimony.recorded,
            trust=testimony.trust,
            at=testimony.at,
            properties=dump_json(testimony.properties),
            scope=testimony.scope,
        )

    def erase(self, node: MemoryNode, at: int) -> Receipt:
        """Remove a node with its versions, testimonies and edges; scrub the log; keep the receipt.

        Of a node that is gone already, by raw SQL, and has left versions behind: remove those.
        """
        self._expected.changed(node)
        key = {"root": node.scope.root, "id": node.id}
        deleted = self._execute("delete", **key)
        made = self._rows.value("made", **key)
        # Where there was a row, deleting it has just closed one more version.
        versions = self._execute("delete versions", **key) - deleted
        edges = self._execute("delete edges", **key)
        if not node.scope.root:
            edges += self._execute("delete edges to the deployment", id=node.id)
        testimonies = self._execute("delete testimonies", **key)
        logged = {path for (path,) in self._rows.fetch("scrub log", **key)} | {node.scope.path}
        noted = {path for (path,) in self._rows.fetch("scrub pending", **key)}
        self._execute("note scrubbed", **key, scopes=sorted(logged - noted))
        self._execute("note transaction")
        if made is None:
            # This transaction made it too: no heads ever showed it.
            made = self._rows.value("last seq") + 1
        receipt = Receipt(node.id, node.scope.path, at, versions, edges, testimonies)
        self._execute("put receipt", made=made, ended=None, **_receipt_columns(receipt))
        self._count(node.scope.root)
        return receipt

    def receipt(self, root: str, node_id: str) -> Receipt | None:
        """The newest receipt of this identity."""
        found = self._rows.fetch("receipt", root=root, id=node_id)
        return Receipt(*found[0]) if found else None

    def put_receipt(self, receipt: Receipt) -> None:
        """Keep a receipt in place of the one of this identity, if there is one."""
        columns = _receipt_columns(receipt)
        self._expected.forget(columns["root"], receipt.node_id)
        if not self._execute("change receipt", **columns):
            # It comes from elsewhere: no heads of this store ever showed the node.
            last = self._rows.value("last seq")
            self._execute("put receipt", made=last, ended=last, **columns)
        self._execute("note transaction")

    def every_version(self, scope: TenantScope) -> Iterable[MemoryNode]:
        """Every kept version of what is stored at a scope and below, those of a node oldest first."""
        self.flush()
        rows = self._rows.fetch("versions below", **subtree(scope)) if scope.path else self._rows.fetch("all versions")
        found: dict[NodeKey, list[MemoryNode]] = {}
        for node in (*(node_of(row) for row in rows), *self._rows.stored(scope).nodes):
            found.setdefault((node.scope.root, node.id), []).append(node)
        return [node for nodes in found.values() for node in nodes]

    def edges_into(self, root: str, node_id: str, edge_type: str) -> Iterable[NodeKey]:
        """The nodes at the starts of a node's incoming edges of one type."""
        self.flush()
        name = "edges into" if root else "edges into the deployment"
        return [
            (start_root, start) for start_root, start in self._rows.fetch(name, root=root, id=node_id, type=edge_type)
        ]

    def edge(self, root: str, start: str, edge_type: str, end: str) -> MemoryEdge | None:
        """The edge of this identity; an end under the edge's own root comes first."""
        if edge_type in LINEAGE:
            self._hold("lineage", root)
        found = self._rows.fetch("edge", root=root, start=start, type=edge_type, end=end)
        return edge_of(found[0]) if found else None

    def edges_from(self, root: str, node_id: str, edge_type: str) -> Iterable[str]:
        """The ids, under the same root, at the ends of a node's outgoing edges of one type."""
        return [end for (end,) in self._rows.fetch("edges from", root=root, start=node_id, type=edge_type)]

    def put_edge(self, edge: MemoryEdge) -> None:
        """Add or replace an edge."""
        end = visible_node(self, edge.scope, edge.end)
        self._execute(
            "put edge",
            root=edge.scope.root,
            start=edge.start,
            type=edge.type,
            end_root=end.scope.root,
            end=end.id,
            scope=edge.scope.path,
            properties=dump_json(dict(edge.properties)),
        )

    def remove_edge(self, edge: MemoryEdge) -> None:
        """Remove an edge; an end under the edge's own root comes first."""
        self._execute("remove edge", root=edge.scope.root, start=edge.start, type=edge.type, end=edge.end)

    def put_mark(self, key: str, value: str | None) -> None:
        """Write or remove a mark."""
        if value is None:
            self._execute("remove mark", key=key)
        else:
            self._execute("put mark", key=key, value=value)

    def put_secret(self, secret: bytes) -> None:
        """Take another store's secret over."""
        self._execute("put secret", secret=secret.hex())


def _columns(node: MemoryNode) -> dict[str, Any]:
    return {
        "root": node.scope.root,
        "scope": node.scope.path,
        "label": node.label,
        "id": node.id,
        "source": node.source,
        "recorded": node.recorded,
        "trust": node.trust,
        "created": node.created,
        "updated": node.updated,
        "state": node.state,
        "properties": dump_json(dict(node.own_properties)) if node.own_properties else "{}",
    }


def _receipt_columns(receipt: Receipt) -> dict[str, Any]:
    columns = attrs.asdict(receipt)
    return {"root": root_of_path(receipt.scope), "id": columns.pop("node_id"), **columns}


def is_due(written: int, limit: int) -> bool:
    """Whether so many changes since the log was last trimmed are worth another look."""
    return written > limit // _SLACK


def trim(connection: Connection, texts: dict[str, str], root: str, limit: int) -> None:
    """Forget a root's oldest changes beyond the limit, and the versions that they ended."""
    oldest = connection.execute(texts["oldest kept"], {"root": root, "limit": limit - 1}).fetchone()
    if oldest is not None:
        connection.execute(texts["trim"], {"root": root, "seq": oldest[0]})
