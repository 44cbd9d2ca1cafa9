"""What a write transaction of a SQLite store can do: the primitives that ``store.operations`` decides with.

Triggers keep heads, log and versions; nothing here does. An erasure is the exception: it deletes what they kept, and
raises the floor of the log, whose labels it takes out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, final

import apsw

from promptkeel.model import MemoryEdge, MemoryNode, dump_json
from promptkeel.store.base import Receipt, Testimony
from promptkeel.store.operations import visible_node
from promptkeel.store.sqlite_reads import Rows, edge_of, fetch
from promptkeel.store.sqlite_schema import root_of
from promptkeel.store.sqlite_scrubbing import Erased

_SLACK: Final = 10
"""A log is trimmed when it is longer than its limit by one part in so many."""

_INSERT: Final = """
INSERT INTO nodes(scope, label, id, source, recorded_at, trust, created_at, updated_at, state, properties)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_UPDATE: Final = """
UPDATE nodes SET (label, source, recorded_at, trust, created_at, updated_at, state, properties)
= (?, ?, ?, ?, ?, ?, ?, ?) WHERE scope = ? AND label = ? AND id = ?"""
_OF_NODE: Final = "FROM changes NOT INDEXED WHERE id = ? AND (scope = ? OR (scope >= ? AND scope < ?))"
# A first entry that closed a version is not the one that made the node: that one was trimmed.
_MADE: Final = """
SELECT CASE WHEN EXISTS (SELECT 1 FROM versions WHERE root = ? AND id = ? AND seq = logged.first)
  THEN 1 ELSE logged.first END FROM (SELECT min(seq) AS first <OF NODE>) AS logged
""".replace("<OF NODE>", _OF_NODE)
_SCRUB_LOG: Final = """
UPDATE changes SET label_before = NULL, label_after = NULL WHERE seq IN (SELECT seq <OF NODE>)
""".replace("<OF NODE>", _OF_NODE)
_TRIM_VERSIONS: Final = """
DELETE FROM versions WHERE (root, id, seq) IN (SELECT <ROOT>, id, seq FROM changes NOT INDEXED WHERE seq <= ?)
""".replace("<ROOT>", root_of("scope"))


def _columns(node: MemoryNode) -> tuple[Any, ...]:
    return (
        node.scope.path,
        node.label,
        node.id,
        node.source,
        node.recorded,
        node.trust,
        node.created,
        node.updated,
        node.state,
        dump_json(dict(node.own_properties)) if node.own_properties else "{}",
    )


@final
class SqliteTransaction:
    """The primitives, on a connection that is in a write transaction.

    Attributes:
        erased: what was erased, for looking whether its bytes are gone.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._rows = Rows(connection)
        self.erased: list[Erased] = []
        self.find = self._rows.find
        self.find_live = self._rows.find_live
        self.is_erased = self._rows.is_erased
        self.versions = self._rows.versions
        self.testimonies = self._rows.testimonies

    def insert(self, node: MemoryNode) -> None:
        """Add a stamped node."""
        self._connection.execute(_INSERT, _columns(node))

    def update(self, node: MemoryNode, previous: MemoryNode) -> None:
        """Replace ``previous`` by ``node``; a trigger keeps the old version."""
        _, label, _, *others = _columns(node)
        self._connection.execute(_UPDATE, (label, *others, previous.scope.path, previous.label, previous.id))

    def testify(self, node: MemoryNode, testimony: Testimony) -> None:
        """Keep a testimony with a node's history."""
        said = testimony
        self._connection.execute(
            """INSERT INTO testimonies(root, id, number, kind, source, recorded_at, trust, at, properties)
            SELECT ?1, ?2, (SELECT coalesce(max(number), 0) + 1 FROM testimonies WHERE root = ?1 AND id = ?2),
            ?3, ?4, ?5, ?6, ?7, ?8""",
            (
                node.scope.root,
                node.id,
                said.kind,
                said.source,
                said.recorded,
                said.trust,
                said.at,
                dump_json(said.properties),
            ),
        )

    def erase(self, node: MemoryNode, at: int) -> Receipt:
        """Remove a node with its versions, testimonies and edges; scrub the log; keep the receipt."""
        key = (node.scope.root, node.id)
        self.erased.append(Erased.of(self._connection, node))
        self._connection.execute("DELETE FROM nodes WHERE root = ? AND id = ?", key)
        ended: int = self._connection.execute("SELECT max(seq) FROM changes").get
        logged = (node.id, key[0], key[0] + "/", key[0] + "0")
        made: int = self._connection.execute(
            _MADE,
            (*key, *logged),
        ).get
        # The delete itself has just closed one more version.
        versions = self._delete("DELETE FROM versions WHERE root = ? AND id = ?", key) - 1
        edges = self._delete("DELETE FROM edges WHERE (root = ? AND start = ?) OR (end_root = ? AND end = ?)", key * 2)
        testimonies = self._delete("DELETE FROM testimonies WHERE root = ? AND id = ?", key)
        self._connection.execute(
            _SCRUB_LOG,
            logged,
        )
        self._raise_floor("delta_floor", ended)
        receipt = Receipt(node.id, node.scope.path, at, versions, edges, testimonies)
        self._connection.execute(
            """INSERT INTO erasures(root, id, scope, at, made, ended, versions, edges, testimonies, state)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (*key, receipt.scope, at, made, ended, versions, edges, testimonies, receipt.state),
        )
        return receipt

    def _delete(self, text: str, arguments: tuple[Any, ...]) -> int:
        self._connection.execute(text, arguments)
        return self._connection.changes()

    def _raise_floor(self, key: str, seq: int) -> None:
        raise_floor(self._connection, key, seq)

    def edge(self, root: str, start: str, edge_type: str, end: str) -> MemoryEdge | None:
        """The edge of this identity; an end under the edge's own root comes first."""
        row = self._connection.execute(
            """SELECT scope, root, start, type, end_root, end, properties FROM edges
            WHERE root = ? AND start = ? AND type = ? AND end_root IN (?1, '') AND end = ?
            ORDER BY end_root DESC LIMIT 1""",
            (root, start, edge_type, end),
        ).fetchone()
        return None if row is None else edge_of(row)

    def edges_from(self, root: str, node_id: str, edge_type: str) -> Iterable[str]:
        """The ids, under the same root, at the ends of a node's outgoing edges of one type."""
        asked = "SELECT end FROM edges WHERE root = ?1 AND start = ?2 AND type = ?3 AND end_root = ?1"
        return [end for (end,) in fetch(self._connection, asked, (root, node_id, edge_type))]

    def put_edge(self, edge: MemoryEdge) -> None:
        """Add or replace an edge."""
        end = visible_node(self, edge.scope, edge.end)
        self._connection.execute(
            """INSERT INTO edges(root, start, type, end_root, end, scope, properties) VALUES (?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT DO UPDATE SET scope = excluded.scope, properties = excluded.properties""",
            (
                edge.scope.root,
                edge.start,
                edge.type,
                end.scope.root,
                end.id,
                edge.scope.path,
                dump_json(dict(edge.properties)),
            ),
        )

    def remove_edge(self, edge: MemoryEdge) -> None:
        """Remove an edge; an end under the edge's own root comes first."""
        self._connection.execute(
            """DELETE FROM edges WHERE root = ?1 AND start = ?2 AND type = ?3 AND end = ?4 AND end_root = (
            SELECT max(end_root) FROM edges
            WHERE root = ?1 AND start = ?2 AND type = ?3 AND end = ?4 AND end_root IN (?1, ''))""",
            (edge.scope.root, edge.start, edge.type, edge.end),
        )

    def put_mark(self, key: str, value: str | None) -> None:
        """Write or remove a mark."""
        if value is None:
            self._connection.execute("DELETE FROM marks WHERE key = ?", (key,))
        else:
            self._connection.execute(
                "INSERT INTO marks(key, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
                (key, value),
            )


def raise_floor(connection: apsw.Connection, key: str, seq: int) -> None:
    """Let the log, or the history, reach back no further than to this change."""
    connection.execute("UPDATE meta SET value = max(value, ?) WHERE key = ?", (seq, key))


def trim(connection: apsw.Connection, limit: int) -> None:
    """Forget the oldest changes beyond the limit, and the versions that they ended; not at every write."""
    ((first, last),) = fetch(connection, "SELECT (SELECT min(seq) FROM changes), (SELECT max(seq) FROM changes)")
    if last is None or last - first < limit + limit // _SLACK:
        return
    floor = last - limit
    connection.execute(_TRIM_VERSIONS, (floor,))
    connection.execute("DELETE FROM changes WHERE seq <= ?", (floor,))
    raise_floor(connection, "delta_floor", floor)
    raise_floor(connection, "history_floor", floor)
