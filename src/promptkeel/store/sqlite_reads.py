"""Reading rows of a SQLite store: nodes, lanes, differences and the past, each over a connection that is handed in.

Whoever calls decides which connection and which transaction. What heads, floors and orders mean is ``store.history``.
A text that raw SQL has put there in bytes that are not UTF-8 costs a lane nothing but itself: it arrives as lone
surrogates, which the lane reports. Where whole nodes are asked for, it is an error that names the node and the field.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, cast, final

import apsw

from promptkeel.errors import InvalidInputError, StoreDamagedError
from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.authored import head_label, past_label
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
from promptkeel.store.prefix import prefix_bounds

SHORT_LOG: Final = 2000
"""A short read looks at no more of the log than this."""
SHORT_TOUCHED: Final = 64
"""A short read reads no more nodes than this."""
MOST_TOUCHED: Final = 4096
"""A lane of which more nodes were touched is read whole."""

_NODE: Final = "id, scope, label, properties, source, recorded_at, trust, created_at, updated_at, state"
_NODE_FIELDS: Final = tuple(_NODE.split(", "))
_LANE: Final = "label, recorded_at, id, scope, source, trust, updated_at, nullif(properties, '{}')"
_TEXTS: Final = frozenset(
    {"id", "scope", "label", "properties", "source", "trust", "state", "nullif(properties, '{}')"}
)


def _in_bytes(columns: str) -> str:
    """The columns with every text as its bytes."""
    return ", ".join(
        f"CAST({column} AS BLOB)" if column in _TEXTS else column
        for column in columns.replace("nullif(properties, '{}')", "nullif(properties|'{}')").split(", ")
        for column in [column.replace("|", ", ")]
    )


_LANE_IN_BYTES: Final = _in_bytes(_LANE)
_NODE_IN_BYTES: Final = _in_bytes(_NODE)

_SURROGATE: Final = re.compile("[\ud800-\udfff]")

HEADS_SQL: Final = "SELECT scope, seq, nonce FROM heads WHERE scope IN (<LEVELS>)"
LANE_SQL: Final = "SELECT <LANE> FROM nodes WHERE scope = ? AND label >= ? AND label < ? AND state = 'live'"
OPEN_LANE_SQL: Final = "SELECT <LANE> FROM nodes WHERE scope = ? AND label >= ? AND state = 'live'"
TOUCHED_SQL: Final = """
SELECT seq, scope, id, label_before, label_after FROM changes NOT INDEXED
WHERE seq > ? AND scope IN (<LEVELS>) ORDER BY seq"""
NODES_OF_SQL: Final = """
SELECT <LANE> FROM nodes WHERE root = ? AND id IN (SELECT value FROM json_each(?)) AND state = 'live'"""
_FIND_SQL: Final = "SELECT <NODE> FROM nodes WHERE root = ? AND id = ?"
_FIND_LIVE_SQL: Final = """
SELECT <NODE> FROM nodes WHERE scope = ? AND label = ? AND state = 'live' ORDER BY id LIMIT 1"""
_UNBOUNDED: Final = b""
"""Sorts above every text: the upper bound where there is none."""
QUERY_SQL: Final = """
SELECT <NODE> FROM nodes WHERE scope IN (<LEVELS>) AND label >= ? AND label < ? AND state = 'live'
ORDER BY label, recorded_at, id, scope LIMIT ?"""
_PAST_SQL: Final = """
SELECT <NODE> FROM versions JOIN (
  SELECT id AS changed, min(seq) AS ended FROM changes NOT INDEXED WHERE seq > ? AND scope = ? GROUP BY id
) ON versions.id = changed AND versions.seq = ended WHERE versions.root = ?"""
_VERSIONS_SQL: Final = "SELECT <NODE> FROM versions WHERE root = ? AND id = ? ORDER BY seq"
_REVISIONS_SQL: Final = "SELECT <NODE> FROM nodes WHERE scope = ? AND label IN (?, ?)"
_STORED_SQL: Final = """
SELECT <NODE> FROM nodes WHERE scope = ?1 OR (scope >= ?2 AND (?3 IS NULL OR scope < ?3)) ORDER BY scope, label, id"""
_STORED_EDGES_SQL: Final = """
SELECT scope, root, start, type, end_root, end, properties FROM edges
WHERE scope = ?1 OR (scope >= ?2 AND (?3 IS NULL OR scope < ?3)) ORDER BY scope, start, type, end"""
_BELOW: Final = "<ROW>.scope = ?1 OR (<ROW>.scope >= ?2 AND (?3 IS NULL OR <ROW>.scope < ?3))"
_EVERY_OLD_SQL: Final = """
SELECT <NODE> FROM versions WHERE (?4 IS NULL OR root = ?4) AND ((<VERSION BELOW>) OR EXISTS (
  SELECT 1 FROM nodes WHERE nodes.root = versions.root AND nodes.id = versions.id AND (<NODE BELOW>)
)) ORDER BY root, id, seq""".replace("<VERSION BELOW>", _BELOW.replace("<ROW>", "versions")).replace(
    "<NODE BELOW>", _BELOW.replace("<ROW>", "nodes")
)
_EDGES_SQL: Final = "SELECT scope, root, start, type, end_root, end, properties FROM edges WHERE "

_RECEIPT_SQL: Final = "SELECT id, scope, at, versions, edges, testimonies, state, request FROM erasures"


def _below(scope: TenantScope) -> tuple[str, str, str | None]:
    """The scope itself, and the bounds of the paths below it."""
    # A path's descendants begin with it and "/", and "0" is what follows "/".
    return (scope.path, scope.path + "/", scope.path + "0") if scope.path else ("", "", None)


@functools.cache
def statement(text: str, levels: int = 0, *, in_bytes: bool = False) -> str:
    """The SQL with its columns filled in, for a chain of so many levels."""
    return (
        text.replace("<LEVELS>", ", ".join("?" * levels))
        .replace("<LANE>", _LANE_IN_BYTES if in_bytes else _LANE)
        .replace("<NODE>", _NODE_IN_BYTES if in_bytes else _NODE)
    )


@functools.lru_cache(maxsize=4096)
def _scope(path: str) -> TenantScope:
    return TenantScope.parse(path)


def root_of_path(path: str) -> str:
    """The root of a scope path."""
    return path.partition("/")[0]


def node_of(row: Sequence[Any]) -> MemoryNode:
    """The node of a row.

    Raises:
        StoreDamagedError: raw SQL has put something there that no node can hold.
    """
    try:
        return MemoryNode(
            id=row[0],
            scope=_scope(row[1]),
            label=row[2],
            properties=json.loads(row[3]),
            source=row[4],
            recorded_at=row[5],
            trust=row[6],
            created_at=row[7],
            updated_at=row[8],
            state=row[9],
        )
    except InvalidInputError as error:
        raise _damaged(row[0], row[1], error.field or "row", error.reason) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(row[0], row[1], "properties", str(error)) from error


def _damaged(node_id: str, path: str, field: str, reason: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"node {node_id!r} at scope {path or '(deployment)'}: {field}: {reason}; correct or delete that row with SQL"
    )


def fetch(connection: apsw.Connection, text: str, arguments: Sequence[Any] = ()) -> list[Any]:
    """All rows of a statement."""
    return connection.execute(text, arguments).fetchall()


def read_nodes(connection: apsw.Connection, text: str, arguments: Sequence[Any], levels: int = 0) -> list[MemoryNode]:
    """The nodes of a statement that selects ``<NODE>``."""
    try:
        rows = connection.execute(statement(text, levels), arguments).fetchall()
    except UnicodeDecodeError:
        for row in connection.execute(statement(text, levels, in_bytes=True), arguments):
            _check_encoding(row)
        raise
    return [node_of(row) for row in rows]


def _check_encoding(row: Sequence[Any]) -> None:
    for field, value in zip(_NODE_FIELDS, row, strict=True):
        try:
            _text(value, "strict")
        except UnicodeDecodeError as error:
            raise _damaged(_text(row[0]), _text(row[1]), field, "is not UTF-8") from error


def _text(value: Any, errors: str = "surrogateescape") -> Any:
    return value.decode("utf-8", errors) if isinstance(value, bytes) else value


# Heads


def read_heads(connection: apsw.Connection, scope: TenantScope, schema: int = 0) -> Heads:
    """The present heads of the scope's chain, in one statement."""
    chain = scope.chain
    found = {row[0]: row for row in connection.execute(statement(HEADS_SQL, len(chain)), chain)}
    return Heads(tuple(Head(*found[path]) if path in found else Head(path) for path in chain), schema)


def read_floor(connection: apsw.Connection, key: str) -> int:
    """The change behind which the log, or the history, does not reach."""
    floor: int = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).get
    return floor


@final
class Rows:
    """What is stored, as one connection sees it; ``schema`` is what its heads carry."""

    def __init__(self, connection: apsw.Connection, schema: int = 0) -> None:
        self.connection = connection
        self.schema = schema

    def heads(self, scope: TenantScope) -> Heads:
        """The present heads of the scope's chain, in one statement."""
        return read_heads(self.connection, scope, self.schema)

    def mark(self, key: str) -> str | None:
        """What the last ``Mark`` operation wrote under this key."""
        value: str | None = self.connection.execute("SELECT value FROM marks WHERE key = ?", (key,)).get
        return value

    def find(self, root: str, node_id: str) -> MemoryNode | None:
        """The node of this identity, in whatever state."""
        if _is_not_text(node_id):
            return None
        found = read_nodes(self.connection, _FIND_SQL, (root, node_id))
        return found[0] if found else None

    def find_live(self, scope: TenantScope, label: str) -> MemoryNode | None:
        """The live node at exactly this scope with exactly this label; of several, the least id."""
        found = read_nodes(self.connection, _FIND_LIVE_SQL, (scope.path, label))
        return found[0] if found else None

    def is_erased(self, root: str, node_id: str) -> bool:
        """Whether a node of this identity was erased."""
        asked = "SELECT EXISTS (SELECT 1 FROM erasures WHERE root = ? AND id = ?)"
        return not _is_not_text(node_id) and bool(self.connection.execute(asked, (root, node_id)).get)

    def erased_at(self, root: str, node_id: str) -> set[str]:
        """The paths of the scopes at which nodes of this identity were when they were erased."""
        asked = "SELECT scope FROM erasures WHERE root = ? AND id = ?"
        return set() if _is_not_text(node_id) else {path for (path,) in self.connection.execute(asked, (root, node_id))}

    def nonce_at(self, path: str, seq: int) -> int | None:
        """The nonce that the log holds for a scope path and seq."""
        asked = "SELECT nonce FROM changes WHERE seq = ? AND scope = ?"
        nonce: int | None = self.connection.execute(asked, (seq, path)).get
        return nonce

    def query_nodes(self, scope: TenantScope, label_prefix: str | None, limit: int | None) -> list[MemoryNode]:
        """Every live node visible at the scope, in lane order."""
        low, high = prefix_bounds(label_prefix or "")
        arguments = (*scope.chain, low, _UNBOUNDED if high is None else high, -1 if limit is None else limit)
        return read_nodes(self.connection, QUERY_SQL, arguments, len(scope.chain))

    def testimonies(self, node: MemoryNode) -> tuple[Testimony, ...]:
        """The testimonies kept with a node, oldest first."""
        asked = """SELECT kind, source, recorded_at, trust, at, properties, scope FROM testimonies
        WHERE root = ? AND id = ? ORDER BY number"""
        return tuple(
            Testimony(kind, source, recorded, trust, at, json.loads(properties), path)
            for kind, source, recorded, trust, at, properties, path in self.connection.execute(
                asked, (node.scope.root, node.id)
            )
        )

    def history(self, scope: TenantScope, node_id: str) -> History:
        """Every kept version of a visible node."""
        node = visible_node(self, scope, node_id)
        # Raw SQL may have moved the node here from a scope that is not visible.
        versions = (version for version in self.versions(node) if scope.sees(version.scope))
        return History(tuple(versions), visible_testimonies(scope, self.testimonies(node)))

    def versions(self, node: MemoryNode) -> tuple[MemoryNode, ...]:
        """Every kept version of a node, oldest first; the last is the node as it is now."""
        versions: list[MemoryNode] = []
        # A raw upsert closes a version twice: once because it might replace the row, once because it changed it.
        for version in (*read_nodes(self.connection, _VERSIONS_SQL, (node.scope.root, node.id)), node):
            if not versions or versions[-1].version != version.version:
                versions.append(version)
        return tuple(versions)

    def every_version(self, scope: TenantScope) -> list[MemoryNode]:
        """Every kept version of what is stored at a scope and below, those of a node oldest first."""
        below = _below(scope)
        old = read_nodes(self.connection, _EVERY_OLD_SQL, (*below, scope.root or None))
        return old + read_nodes(self.connection, _STORED_SQL, below)

    def edges_into(self, root: str, node_id: str, edge_type: str) -> list[NodeKey]:
        """The nodes at the starts of a node's incoming edges of one type."""
        asked = "SELECT root, start FROM edges WHERE end_root = ? AND end = ? AND type = ?"
        return fetch(self.connection, asked, (root, node_id, edge_type))

    def revisions(self, scope: TenantScope, block: str) -> list[MemoryNode]:
        """Every revision of an authored block at exactly this scope, in every state."""
        return read_nodes(self.connection, _REVISIONS_SQL, (scope.path, head_label(block), past_label(block)))

    def stored(self, scope: TenantScope) -> Stored:
        """Everything stored at a scope and below it, at one point in time."""
        below = _below(scope)
        nodes = read_nodes(self.connection, _STORED_SQL, below)
        edges = [edge_of(row) for row in fetch(self.connection, _STORED_EDGES_SQL, below)]
        return Stored(tuple(nodes), tuple(edges))

    def neighbours(
        self, scope: TenantScope, node_id: str, edge_type: str | None, direction: Direction
    ) -> list[Neighbour]:
        """The visible neighbours of a visible node, by edge type, then id."""
        node = visible_node(self, scope, node_id)
        key = (node.scope.root, node.id)
        found: dict[tuple[Any, ...], Neighbour] = {}
        if direction != "in":
            for row in fetch(self.connection, _EDGES_SQL + "root = ? AND start = ?", key):
                self._add_neighbour(found, scope, row, (row[4], row[5]))
        if direction != "out":
            for row in fetch(self.connection, _EDGES_SQL + "end_root = ? AND end = ?", key):
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
            asked = f"{_RECEIPT_SQL} WHERE scope = ? ORDER BY ended, at, id, number"
            return [Receipt(*row) for row in self.connection.execute(asked, (scope.path,))]
        asked = f"{_RECEIPT_SQL} WHERE {_BELOW.replace('<ROW>', 'erasures')} ORDER BY ended, at, id, number"
        return [Receipt(*row) for row in self.connection.execute(asked, _below(scope))]

    def receipt(self, root: str, node_id: str) -> Receipt | None:
        """The newest receipt of this identity."""
        asked = f"{_RECEIPT_SQL} WHERE root = ? AND id = ? ORDER BY number DESC LIMIT 1"
        row = self.connection.execute(asked, (root, node_id)).fetchone()
        return None if row is None else Receipt(*row)

    # Differences

    def changes(self, scope: TenantScope, since: Heads, label_prefix: str | None) -> Changes:
        """What changed since these heads."""
        check_chain(scope, since)
        present = read_heads(self.connection, scope, self.schema)
        if not tells_difference(since, present, read_floor(self.connection, "delta_floor"), self.nonce_at):
            return Changes(present, None)
        changes = (
            Change(seq, path, node_id, before, after)
            for seq, path, node_id, before, after in self._entries(since, present)
            if touches(before, after, label_prefix)
        )
        return Changes(present, tuple(changes))

    def _entries(self, since: Heads, present: Heads) -> list[Sequence[Any]]:
        """The changes between, oldest first, at the levels whose head has moved."""
        moved = {past.scope: past.seq for past, now in zip(since.levels, present.levels, strict=True) if past != now}
        if not moved:
            return []
        arguments = (min(moved.values()), *moved)
        try:
            rows: Iterable[Any] = self.connection.execute(statement(TOUCHED_SQL, len(moved)), arguments).fetchall()
        except UnicodeDecodeError:
            columns = (
                "seq, CAST(scope AS BLOB), CAST(id AS BLOB), CAST(label_before AS BLOB), CAST(label_after AS BLOB)"
            )
            text = TOUCHED_SQL.replace("seq, scope, id, label_before, label_after", columns)
            rows = (
                [_text(value) for value in row]
                for row in self.connection.execute(statement(text, len(moved)), arguments).fetchall()
            )
        return [row for row in rows if row[0] > moved[row[1]]]

    def catch_up(self, scope: TenantScope, requests: Sequence[LaneRequest], *, short: bool = False) -> CatchUp | None:
        """All lanes, each as a difference where the log reaches back, else whole; None where it would not be short."""
        present = read_heads(self.connection, scope, self.schema)
        entries: dict[Heads | None, list[Sequence[Any]] | None] = {None: None}
        for since in {request.since for request in requests}:
            if since is not None:
                check_chain(scope, since)
                entries[since] = self._difference(since, present, short=short)
        lanes: list[LaneUpdate] = []
        for request in requests:
            difference = entries[request.since]
            update = None if difference is None else self._touched_lane(scope, request.prefix, difference, short=short)
            if update is None and short:
                return None
            lanes.append(self._whole_lane(scope, request.prefix) if update is None else update)
        return CatchUp(present, tuple(lanes))

    def _difference(self, since: Heads, present: Heads, *, short: bool) -> list[Sequence[Any]] | None:
        if since == present:
            return []
        if not tells_difference(since, present, read_floor(self.connection, "delta_floor"), self.nonce_at):
            return None
        if short:
            oldest = min(past.seq for past, now in zip(since.levels, present.levels, strict=True) if past != now)
            newest: int = self.connection.execute("SELECT max(seq) FROM changes").get
            if newest - oldest > SHORT_LOG:
                return None
        return self._entries(since, present)

    def _touched_lane(
        self, scope: TenantScope, prefix: str, entries: list[Sequence[Any]], *, short: bool
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
            ids = json.dumps([node_id for owner, node_id in touched if owner == root])
            try:
                found = fetch(self.connection, statement(NODES_OF_SQL), (root, ids))
            except UnicodeDecodeError:
                return None
            rows.extend(row for row in found if row[3] in scope.chain and row[0].startswith(prefix))
        if any(_is_not_text(node_id) for _, node_id in touched):
            return None
        return LaneUpdate(sorted(rows, key=row_order), tuple(touched))

    def _whole_lane(self, scope: TenantScope, prefix: str) -> LaneUpdate:
        low, high = prefix_bounds(prefix)
        levels = [rows for path in scope.chain if (rows := self._lane_rows(path, low, high))]
        rows = levels[0] if levels else []
        for level in levels[1:]:
            rows += level
        return LaneUpdate(rows, whole=True)

    def _lane_rows(self, path: str, low: str, high: str | None) -> list[LaneRow]:
        text = OPEN_LANE_SQL if high is None else LANE_SQL
        arguments = (path, low) if high is None else (path, low, high)
        try:
            return fetch(self.connection, statement(text), arguments)
        except UnicodeDecodeError:
            rows = fetch(self.connection, statement(text, in_bytes=True), arguments)
            return [cast("LaneRow", tuple(_text(value) for value in row)) for row in rows]

    # The past

    def nodes_as_of(self, scope: TenantScope, heads: Heads, label_prefix: str | None) -> PastLane:
        """The lane as it was at these heads."""
        check_chain(scope, heads)
        present = read_heads(self.connection, scope)
        check_known(heads, present, read_floor(self.connection, "history_floor"), self.nonce_at)
        prefix = label_prefix or ""
        nodes: list[MemoryNode] = []
        erased: set[str] = set()
        for past, now in zip(heads.levels, present.levels, strict=True):
            if past == now or past.seq:
                nodes.extend(self._level_as_of(past, prefix, moved=past != now))
            erased.update(self._erased_since(past))
        return PastLane(tuple(sorted(nodes, key=lane_order)), tuple(sorted(erased)))

    def _level_as_of(self, head: Head, prefix: str, *, moved: bool) -> Iterator[MemoryNode]:
        """The lane's nodes at one level: what has not changed since from ``nodes``, the rest from ``versions``."""
        low, high = prefix_bounds(prefix)
        above = _UNBOUNDED if high is None else high
        present = read_nodes(self.connection, QUERY_SQL, (head.scope, low, above, -1), 1)
        if not moved:
            yield from present
            return
        asked = "SELECT DISTINCT id FROM changes NOT INDEXED WHERE seq > ? AND scope = ?"
        changed = {node_id for (node_id,) in self.connection.execute(asked, (head.seq, head.scope))}
        yield from (node for node in present if node.id not in changed)
        arguments = (head.seq, head.scope, root_of_path(head.scope))
        for node in read_nodes(self.connection, _PAST_SQL, arguments):
            if node.state == "live" and node.scope.path == head.scope and node.label.startswith(prefix):
                yield node

    def _erased_since(self, head: Head) -> Iterator[str]:
        asked = "SELECT id FROM erasures WHERE scope = ? AND made <= ? AND ended > ?"
        for (node_id,) in self.connection.execute(asked, (head.scope, head.seq, head.seq)):
            yield node_id


def edge_of(row: Sequence[Any]) -> MemoryEdge:
    """The edge of a row: scope, root, start, type, root of the end, end, properties.

    Raises:
        StoreDamagedError: raw SQL has put something there that no edge can hold.
    """
    try:
        return MemoryEdge(scope=_scope(row[0]), start=row[2], type=row[3], end=row[5], properties=json.loads(row[6]))
    except (ValueError, RecursionError) as error:
        raise StoreDamagedError(
            f"edge {row[3]!r} from {row[2]!r} to {row[5]!r}: {error}; correct or delete that row with SQL"
        ) from error


def _is_not_text(value: str) -> bool:
    return _SURROGATE.search(value) is not None
