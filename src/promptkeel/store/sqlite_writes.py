"""What a write transaction of a SQLite store can do: the primitives that ``store.decisions`` decides with.

Triggers keep heads, log and versions; nothing here does. An erasure is the exception: it deletes what they kept, and
raises the floor of the log, whose labels it takes out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, final

import apsw

from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.properties import dump_json
from promptkeel.store.base import NodeKey, Receipt, Testimony
from promptkeel.store.decisions import visible_node
from promptkeel.store.sqlite_reads import Rows, edge_of, fetch, root_of_path
from promptkeel.store.sqlite_schema import root_of
from promptkeel.store.sqlite_scrubbing import NEWEST_RECEIPT, Erased, note_copies, scrub_statistics

_SLACK: Final = 10
"""A log is trimmed when it is longer than its limit by one part in so many."""

_INSERT: Final = """
INSERT INTO nodes(scope, label, id, source, recorded_at, trust, created_at, updated_at, state, properties)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_UPDATE: Final = """
UPDATE nodes SET (label, source, recorded_at, trust, created_at, updated_at, state, properties)
= (?, ?, ?, ?, ?, ?, ?, ?) WHERE scope = ? AND label = ? AND id = ?"""
_OLDEST: Final = "SELECT min(seq) FROM versions WHERE root = ? AND id = ?"
# One pass over the log for everything that a transaction erased.
_OF_ERASED: Final = """
FROM changes NOT INDEXED WHERE (<ROOT>, id) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1))
""".replace("<ROOT>", root_of("scope"))
_FIRST_LOGGED: Final = "SELECT <ROOT>, id, min(seq) <OF ERASED> GROUP BY 1, 2".replace(
    "<ROOT>", root_of("scope")
).replace("<OF ERASED>", _OF_ERASED)
_LOGGED_LABELS: Final = "SELECT DISTINCT <ROOT>, id, label_before, label_after <OF ERASED>".replace(
    "<ROOT>", root_of("scope")
).replace("<OF ERASED>", _OF_ERASED)
_SCRUB_LOG: Final = """
UPDATE changes SET label_before = NULL, label_after = NULL WHERE seq IN (SELECT seq <OF ERASED>)
""".replace("<OF ERASED>", _OF_ERASED)
_KEEP_RECEIPT: Final = """
INSERT INTO erasures(root, id, number, scope, at, made, ended, versions, edges, testimonies, state, request)
SELECT ?1, ?2, (SELECT coalesce(max(number), 0) + 1 FROM erasures WHERE root = ?1 AND id = ?2),
?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11"""
_CHANGE_RECEIPT: Final = """
UPDATE erasures SET (scope, at, versions, edges, testimonies, state, request) = (?3, ?4, ?5, ?6, ?7, ?8, ?9)
WHERE <NEWEST>""".replace("<NEWEST>", NEWEST_RECEIPT)
_NOTE_MADE: Final = "UPDATE erasures SET made = ?3 WHERE <NEWEST>".replace("<NEWEST>", NEWEST_RECEIPT)
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
        self._oldest: dict[NodeKey, int | None] = {}
        self.find = self._rows.find
        self.find_live = self._rows.find_live
        self.is_erased = self._rows.is_erased
        self.erased_at = self._rows.erased_at
        self.versions = self._rows.versions
        self.testimonies = self._rows.testimonies
        self.receipt = self._rows.receipt
        self.every_version = self._rows.every_version
        self.edges_into = self._rows.edges_into

    def expect(self, keys: Iterable[NodeKey], labels: Iterable[tuple[str, str, str]]) -> None:
        """Nothing: asking one by one costs no round trips here."""

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
            """INSERT INTO testimonies(root, id, number, kind, source, recorded_at, trust, at, properties, scope)
            SELECT ?1, ?2, (SELECT coalesce(max(number), 0) + 1 FROM testimonies WHERE root = ?1 AND id = ?2),
            ?3, ?4, ?5, ?6, ?7, ?8, ?9""",
            (
                node.scope.root,
                node.id,
                said.kind,
                said.source,
                said.recorded,
                said.trust,
                said.at,
                dump_json(said.properties),
                said.scope,
            ),
        )

    def erase(self, node: MemoryNode, at: int) -> Receipt:
        """Remove a node with its versions, testimonies and edges; keep the receipt. ``finish`` scrubs the log."""
        key = (node.scope.root, node.id)
        self.erased.append(Erased.of(self._connection, node))
        was_there = self._count("DELETE FROM nodes WHERE root = ? AND id = ?", key)
        self._oldest[key] = self._connection.execute(_OLDEST, key).get
        ended: int = self._connection.execute("SELECT coalesce(max(seq), 0) FROM changes").get
        # The delete itself has just closed one more version.
        versions = self._count("DELETE FROM versions WHERE root = ? AND id = ?", key) - was_there
        edges = self._count("DELETE FROM edges WHERE (root = ? AND start = ?) OR (end_root = ? AND end = ?)", key * 2)
        testimonies = self._count("DELETE FROM testimonies WHERE root = ? AND id = ?", key)
        self._raise_floor("delta_floor", ended)
        receipt = Receipt(node.id, node.scope.path, at, versions, edges, testimonies)
        self._keep(receipt, ended)
        return receipt

    def put_receipt(self, receipt: Receipt) -> None:
        """Keep a receipt in place of the newest of this identity, if there is one."""
        counts = (receipt.versions, receipt.edges, receipt.testimonies)
        key = (root_of_path(receipt.scope), receipt.node_id)
        said = (*key, receipt.scope, receipt.at, *counts, receipt.state, receipt.request)
        if not self._count(_CHANGE_RECEIPT, said):
            self._keep(receipt, 0)

    def _keep(self, receipt: Receipt, ended: int) -> None:
        counts = (receipt.versions, receipt.edges, receipt.testimonies)
        key = (root_of_path(receipt.scope), receipt.node_id)
        self._connection.execute(
            _KEEP_RECEIPT, (*key, receipt.scope, receipt.at, 0, ended, *counts, receipt.state, receipt.request)
        )

    def finish(self) -> None:
        """Take what was erased out of the log, and note on the receipts since when it had been there."""
        if not self._oldest:
            return
        keys = json.dumps(list(self._oldest))
        said: dict[NodeKey, set[str]] = {}
        for root, id_, *labels in fetch(self._connection, _LOGGED_LABELS, (keys,)):
            said.setdefault((root, id_), set()).update(label for label in labels if label is not None)
        self.erased = [each.with_texts(said.get((each.root, each.node_id), ())) for each in self.erased]
        logged = fetch(self._connection, _FIRST_LOGGED, (keys,))
        self._connection.executemany(
            _NOTE_MADE,
            # A first entry that closed a version is not the one that made the node: that one was trimmed.
            [(root, id_, 1 if self._oldest[root, id_] == first else first) for root, id_, first in logged],
        )
        self._connection.execute(_SCRUB_LOG, (keys,))
        scrub_statistics(self._connection)
        note_copies(self._connection, self.erased)

    def _count(self, text: str, arguments: tuple[Any, ...]) -> int:
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

    def put_secret(self, secret: bytes) -> None:
        """Take another store's secret over."""
        self._connection.execute("UPDATE meta SET value = ? WHERE key = 'secret'", (secret,))


def raise_floor(connection: apsw.Connection, key: str, seq: int) -> None:
    """Let the log, or the history, reach back no further than to this change."""
    connection.execute("UPDATE meta SET value = max(value, ?) WHERE key = ?", (seq, key))


def log_span(connection: apsw.Connection) -> tuple[int, int]:
    """The first and the last change in the log; (1, 0) where it is empty."""
    ((first, last),) = fetch(connection, "SELECT (SELECT min(seq) FROM changes), (SELECT max(seq) FROM changes)")
    return (1, 0) if last is None else (first, last)


def trim(connection: apsw.Connection, limit: int) -> None:
    """Forget the oldest changes beyond the limit, and the versions that they ended; not at every write."""
    first, last = log_span(connection)
    if last - first >= limit + limit // _SLACK:
        forget(connection, last - limit)


def forget(connection: apsw.Connection, floor: int) -> None:
    """Forget the changes up to this one, and the versions that they ended."""
    connection.execute(_TRIM_VERSIONS, (floor,))
    connection.execute("DELETE FROM changes WHERE seq <= ?", (floor,))
    raise_floor(connection, "delta_floor", floor)
    raise_floor(connection, "history_floor", floor)
