"""An audit of a SQLite store: whether the file, its schema, heads, log, versions and values say the same.

It needs one connection that reads at one point in time, and no store that is open: a file that a store would refuse is
audited too. Text is read as bytes, so that what is not UTF-8 is a finding and not a failure.

What cannot be found: a change of a node's properties, source, times or trust by a client that had switched the triggers
off. The log keeps labels, and what a node is now is in its row alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final, final

import apsw

from promptkeel.errors import InvalidInputError, NotAStoreError, StoreDamagedError
from promptkeel.model import MemoryNode
from promptkeel.store.audit import REBUILD, Audit, Finding, shown_scope
from promptkeel.store.authored import RESERVED
from promptkeel.store.authored_audit import chain_findings
from promptkeel.store.sqlite_file import DatabaseFile
from promptkeel.store.sqlite_reads import edge_of, node_of
from promptkeel.store.sqlite_schema import APPLICATION_ID, STEPS, TABLES, root_of

_NODE_COLUMNS: Final = "id, scope, label, properties, source, recorded_at, trust, created_at, updated_at, state"
_EDGE_COLUMNS: Final = "scope, root, start, type, end_root, end, properties"
_INTEGERS: Final = frozenset({"recorded_at", "created_at", "updated_at"})
_CONTENT: Final = "scope, label, source, recorded_at, trust, created_at, updated_at, state, properties"
_COUNTED: Final = ("nodes", "versions", "changes", "heads", "edges", "testimonies", "erasures")


_AUTHORED: Final = " OR ".join(
    f"CAST(substr({name}, 1, {len(RESERVED)}) AS BLOB) = CAST('{RESERVED}' AS BLOB)" for name in ("label", "id")
)


def _filled(text: str) -> str:
    for name, value in _FRAGMENTS.items():
        text = text.replace(f"<{name}>", value)
    return text


def _of(row: str) -> str:
    return ", ".join(f"{row}.{name}" for name in _CONTENT.split(", "))


_FRAGMENTS: Final = {
    "LAST": """WITH last AS MATERIALIZED (
      SELECT scope, id, max(seq) AS seq, label_before, label_after FROM changes GROUP BY scope, id
    )""",
    "VERSION": _of("versions"),
    "NODE": _of("nodes"),
    "ROOT OF last": root_of("last.scope"),
    "ROOT OF changes": root_of("changes.scope"),
}

# Each answers a scope or a root, an id, and what else the words of its finding need.
_HEAD_WRONG: Final = """
WITH last AS MATERIALIZED (SELECT scope, max(seq) AS seq, nonce FROM changes GROUP BY scope)
SELECT CAST(heads.scope AS BLOB), heads.seq, last.seq FROM heads LEFT JOIN last USING (scope)
WHERE (last.seq IS NULL AND heads.seq > ?1)
OR (last.seq IS NOT NULL AND (heads.seq, heads.nonce) <> (last.seq, last.nonce))"""
_HEAD_MISSING: Final = """
SELECT CAST(scope AS BLOB) FROM (SELECT DISTINCT scope FROM changes UNION SELECT DISTINCT scope FROM nodes)
WHERE scope NOT IN (SELECT scope FROM heads)"""
# An ignored insert logs a node that did not change, and keeps its present state as a version. An erasure takes its
# node's labels out of the log, also those of an insert that brought it back in the same transaction.
_ROW_UNLOGGED: Final = _filled("""
<LAST> SELECT CAST(nodes.scope AS BLOB), CAST(nodes.id AS BLOB)
FROM nodes LEFT JOIN last USING (scope, id) LEFT JOIN (
  SELECT root, id, max(ended) AS ended FROM erasures GROUP BY root, id
) AS erasures USING (root, id)
WHERE (erasures.ended IS NULL OR (last.seq > erasures.ended AND coalesce(label_before, label_after) IS NOT NULL))
AND CASE WHEN last.seq IS NULL THEN ?1 = 0 ELSE
  last.label_after IS NOT CASE nodes.state WHEN 'live' THEN nodes.label END AND NOT EXISTS (
    SELECT 1 FROM versions WHERE versions.root = nodes.root AND versions.id = nodes.id AND versions.seq = last.seq
    AND (<VERSION>) IS (<NODE>)) END""")
_ROW_LOST: Final = _filled("""
<LAST> SELECT CAST(last.scope AS BLOB), CAST(last.id AS BLOB), last.seq FROM last
WHERE label_after IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM nodes WHERE nodes.root = <ROOT OF last> AND nodes.id = last.id AND nodes.scope = last.scope)""")
_ERASED_RETURNED: Final = _filled("""
<LAST> SELECT CAST(nodes.scope AS BLOB), CAST(nodes.id AS BLOB), erasures.ended
FROM erasures JOIN nodes USING (root, id) JOIN last ON last.scope = nodes.scope AND last.id = nodes.id
WHERE last.seq <= erasures.ended""")
_VERSION_ORPHAN: Final = """
SELECT CAST(scope AS BLOB), CAST(id AS BLOB), seq FROM versions
WHERE seq <= ?1 OR NOT EXISTS (SELECT 1 FROM changes WHERE changes.seq = versions.seq AND changes.id = versions.id)"""
_VERSION_MISSING: Final = _filled("""
SELECT CAST(scope AS BLOB), CAST(id AS BLOB), seq FROM changes
WHERE label_before IS NOT NULL AND seq > ?1 AND NOT EXISTS (
  SELECT 1 FROM versions
  WHERE versions.root = <ROOT OF changes> AND versions.id = changes.id AND versions.seq = changes.seq)""")
_EDGE_ORPHAN: Final = """
SELECT CAST(scope AS BLOB), CAST(start AS BLOB), CAST(type AS BLOB), CAST(end AS BLOB) FROM edges
WHERE NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.root = edges.root AND nodes.id = edges.start)
OR NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.root = edges.end_root AND nodes.id = edges.end)"""
_TESTIMONY_ORPHAN: Final = """
SELECT CAST(root AS BLOB), CAST(id AS BLOB), count(*) FROM testimonies
WHERE NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.root = testimonies.root AND nodes.id = testimonies.id)
GROUP BY root, id"""


def audit_file(file: DatabaseFile) -> Audit:
    """The audit of a file that is not open as a store, or would be refused.

    Raises:
        NotAStoreError: it is no promptkeel store.
        StoreUnavailableError: it cannot be opened.
    """
    file.identify()
    with file.translated(), closing(_connected(file)) as connection:
        connection.execute("BEGIN")
        return audit(connection)


def _connected(file: DatabaseFile) -> apsw.Connection:
    try:
        connection = file.connect(query_only=True)
        if connection.pragma("application_id") == APPLICATION_ID:
            return connection
    except apsw.NotADBError as error:
        raise NotAStoreError(f"{file.path} is not a SQLite database ({error})") from error
    connection.close()
    raise NotAStoreError(f"{file.path} is another program's SQLite database")


def audit(connection: apsw.Connection) -> Audit:
    """The audit of what a connection sees, in the read transaction that it is in."""
    auditor = _Auditor(connection)
    return Audit.of(auditor.findings(), auditor.counts)


@final
class _Auditor:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.counts: dict[str, int] = {}

    def findings(self) -> Iterator[Finding]:
        """Everything that is wrong, the worst first; behind a damaged file or schema nothing is looked at."""
        for look in (self._file, self._schema):
            found = list(look())
            yield from found
            if any(finding.kind in ("corrupt", "schema_newer") or _is_table(finding) for finding in found):
                return
        try:
            self.counts.update((table, self._value(f"SELECT count(*) FROM {table}")) for table in _COUNTED)  # noqa: S608
            yield from self._meta()
            yield from self._log()
            yield from self._history()
            yield from self._orphans()
            yield from self._values()
            yield from chain_findings(self._authored(), self._is_erased)
        except apsw.Error as error:
            yield _corrupt(str(error))

    def _value(self, text: str, arguments: Sequence[Any] = ()) -> Any:
        return self._connection.execute(text, arguments).get

    def _rows(self, text: str, arguments: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        for row in self._connection.execute(text, arguments):
            yield tuple(_shown(value) for value in row)

    # The file and its schema

    def _file(self) -> Iterator[Finding]:
        try:
            for (line,) in self._connection.execute("PRAGMA integrity_check"):
                if line != "ok":
                    yield _corrupt(line)
            for row in self._connection.execute("PRAGMA foreign_key_check"):
                yield _corrupt(f"a row of {row[0]} refers to one of {row[2]} that is not there")
        except apsw.Error as error:
            yield _corrupt(str(error))

    def _schema(self) -> Iterator[Finding]:
        known: int = self._connection.pragma("user_version")
        if known > len(STEPS):
            yield Finding(
                "schema_newer", f"schema {known}", f"this program knows up to {len(STEPS)}", "upgrade promptkeel"
            )
            return
        wanted, present = _schema_of(STEPS[:known]), dict(_objects(self._connection))
        for key, text in wanted.items():
            kind, name = key
            if key not in present:
                remedy = "restore a backup" if kind == "table" else f"run: {text}; then {REBUILD}"
                yield Finding("schema_missing", f"{kind} {name}", "is not there: rows may have changed unseen", remedy)
            elif present[key] != text:
                yield Finding("schema_changed", f"{kind} {name}", "is not as this schema has it", REBUILD)
        for (kind, name), text in present.items():
            # Somebody's own tables, and indexes on ours, take nothing away.
            if kind == "trigger" and (kind, name) not in wanted and _table_of(self._connection, name) in TABLES:
                yield Finding(
                    "schema_foreign", f"trigger {name}", f"is not ours: {text}", "drop it unless you know what it does"
                )

    # Heads, log and versions

    def _meta(self) -> Iterator[Finding]:
        meta = dict(self._connection.execute("SELECT key, value FROM meta"))
        if meta.get("format") != "promptkeel":
            yield Finding("meta_wrong", "meta.format", f"is {meta.get('format')!r}, not 'promptkeel'", REBUILD)
        secret = meta.get("secret")
        if not isinstance(secret, bytes) or len(secret) != 32:
            yield Finding("meta_wrong", "meta.secret", "is not 32 bytes: fences would change", "restore a backup")
        floors = [meta.get("history_floor"), meta.get("delta_floor")]
        last = self._value("SELECT coalesce(max(seq), 0) FROM changes")
        for name, floor in zip(("history_floor", "delta_floor"), floors, strict=True):
            if not isinstance(floor, int) or not 0 <= floor <= last:
                yield Finding(
                    "floor_wrong", f"meta.{name}", f"is {floor!r}, not between 0 and the last change {last}", REBUILD
                )
        self._floor = floors[0] if isinstance(floors[0], int) else 0
        if isinstance(floors[1], int) and self._floor > floors[1]:
            yield Finding(
                "floor_wrong", "meta.delta_floor", f"is {floors[1]}, below the history's {self._floor}", REBUILD
            )

    def _log(self) -> Iterator[Finding]:
        row: Any = self._connection.execute("SELECT min(seq), max(seq), count(*) FROM changes").fetchone()
        first, last, count = row
        if first is not None and (count != last - first + 1 or first > self._floor + 1):
            expected = last - min(first, self._floor + 1) + 1
            yield Finding("log_gap", "changes", f"{expected - count} changes are missing behind the floor", REBUILD)
        for scope, seq, logged in self._rows(_HEAD_WRONG, (self._floor,)):
            what = f"is at change {seq}, the log's last there is {logged or 'gone'}"
            yield Finding("head_wrong", f"head of {shown_scope(scope)}", what, REBUILD)
        for (scope,) in self._rows(_HEAD_MISSING):
            yield Finding("head_missing", f"head of {shown_scope(scope)}", "is not there", REBUILD)
        for scope, node_id, ended in self._rows(_ERASED_RETURNED):
            what = f"is there although it was erased at change {ended}"
            yield Finding("erased_returned", _node(scope, node_id), what, "erase it again")
        for scope, node_id in self._rows(_ROW_UNLOGGED, (self._floor,)):
            what = "is not as the log has it: it was written while triggers were off"
            yield Finding("row_unlogged", _node(scope, node_id), what, f"change it and change it back, or {REBUILD}")
        for scope, node_id, seq in self._rows(_ROW_LOST):
            what = f"is gone although the log has it since change {seq}: it was deleted while triggers were off"
            yield Finding("row_lost", _node(scope, node_id), what, f"insert it and delete it again, or {REBUILD}")

    def _history(self) -> Iterator[Finding]:
        for scope, node_id, seq in self._rows(_VERSION_ORPHAN, (self._floor,)):
            remedy = f"delete the row of versions with this id and seq {seq}"
            yield Finding(
                "version_orphan", _node(scope, node_id), f"has a version that change {seq} did not end", remedy
            )
        for scope, node_id, seq in self._rows(_VERSION_MISSING, (self._floor,)):
            what = f"has lost the version that change {seq} ended: reads as of earlier heads are wrong"
            yield Finding("version_missing", _node(scope, node_id), what, f"compact the history to change {seq}")

    def _orphans(self) -> Iterator[Finding]:
        for scope, start, kind, end in self._rows(_EDGE_ORPHAN):
            what = "begins or ends at a node that is not there"
            yield Finding(
                "edge_orphan", f"edge {kind} from {start!r} to {end!r} at {shown_scope(scope)}", what, "unlink it"
            )
        for root, node_id, count in self._rows(_TESTIMONY_ORPHAN):
            remedy = "delete the rows of testimonies with this root and id"
            what = f"{count} testimonies are about it, and it is not there"
            yield Finding("testimony_orphan", _node(root, node_id), what, remedy)

    # Values

    def _authored(self) -> Iterator[MemoryNode]:
        asked = f"SELECT {_in_bytes(_NODE_COLUMNS)} FROM nodes WHERE {_AUTHORED}"  # noqa: S608 - fixed columns
        for row in self._connection.execute(asked):
            try:
                yield node_of([value.decode() if isinstance(value, bytes) else value for value in row])
            except (ValueError, StoreDamagedError):
                continue  # told as an unreadable value

    def _is_erased(self, root: str, node_id: str) -> bool:
        return bool(self._value("SELECT EXISTS (SELECT 1 FROM erasures WHERE root = ? AND id = ?)", (root, node_id)))

    def _values(self) -> Iterator[Finding]:
        for table in ("nodes", "versions"):
            for row in self._connection.execute(f"SELECT {_in_bytes(_NODE_COLUMNS)} FROM {table}"):  # noqa: S608
                yield from _unreadable(table, _node(_shown(row[1]), _shown(row[0])), row, node_of)
        for row in self._connection.execute(f"SELECT {_in_bytes(_EDGE_COLUMNS)} FROM edges"):  # noqa: S608
            where = f"edge {_shown(row[3])} from {_shown(row[2])!r} to {_shown(row[5])!r}"
            yield from _unreadable("edges", where, row, edge_of)
        asked = "CAST(root AS BLOB), CAST(id AS BLOB), CAST(source AS BLOB), CAST(properties AS BLOB)"
        for row in self._connection.execute(f"SELECT {asked} FROM testimonies"):  # noqa: S608
            where = _node(_shown(row[0]), _shown(row[1]))
            yield from _unreadable("testimonies", where, row, lambda texts: json.loads(texts[3]))


def _unreadable(table: str, where: str, row: Sequence[Any], read: Any) -> Iterator[Finding]:
    try:
        read([value.decode() if isinstance(value, bytes) else value for value in row])
        return
    except UnicodeDecodeError as error:
        reason = f"holds text that is not UTF-8 ({error.reason})"
    except InvalidInputError as error:
        reason = str(error)
    except StoreDamagedError as error:
        reason = str(error)
    except (ValueError, RecursionError) as error:
        reason = f"properties are not JSON ({error})"
    yield Finding("value_unreadable", where, reason, f"correct or delete that row of {table} with SQL")


def _in_bytes(columns: str) -> str:
    return ", ".join(name if name in _INTEGERS else f"CAST({name} AS BLOB)" for name in columns.split(", "))


def _shown(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _node(scope: str, node_id: str) -> str:
    return f"node {node_id!r} at {shown_scope(scope)}"


def _corrupt(line: str) -> Finding:
    return Finding("corrupt", "the file", line, "restore a backup")


def _is_table(finding: Finding) -> bool:
    return finding.kind in ("schema_missing", "schema_changed") and finding.where.startswith("table")


def _schema_of(steps: Sequence[str]) -> dict[tuple[str, str], str]:
    with closing(apsw.Connection(":memory:")) as connection:
        for step in steps:
            connection.execute(step).fetchall()
        return dict(_objects(connection))


def _objects(connection: apsw.Connection) -> Iterator[tuple[tuple[str, str], str]]:
    asked = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type = 'trigger', name"
    for kind, name, text in connection.execute(asked):
        yield (kind, name), " ".join(text.split())


def _table_of(connection: apsw.Connection, trigger: str) -> str | None:
    asked = "SELECT tbl_name FROM sqlite_schema WHERE type = 'trigger' AND name = ?"
    table: str | None = connection.execute(asked, (trigger,)).get
    return table
