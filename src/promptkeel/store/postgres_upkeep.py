"""Keeping a PostgreSQL store: its log made shorter, and an audit of heads, log, versions, orphans and values.

An audit looks at every partition, in one transaction that sees one point in time. What it cannot find: a change of
properties, source, times or trust by somebody who had disabled the triggers, since the log keeps labels; and an erased
id put back by such a one, since an erasure's number is known at its commit only, and the same transaction may have
brought the id back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from promptkeel.errors import InvalidInputError, StoreDamagedError
from promptkeel.model import MemoryNode
from promptkeel.store.audit import REBUILD, Audit, Finding, shown_scope
from promptkeel.store.authored import RESERVED
from promptkeel.store.authored_audit import chain_findings
from promptkeel.store.postgres_connections import Connection
from promptkeel.store.postgres_schema import missing_triggers
from promptkeel.store.rows import edge_of, node_of

_LAST = """WITH last AS MATERIALIZED (
  SELECT DISTINCT ON (root, scope, id) root, scope, id, seq, label_before, label_after
  FROM {S}.changes ORDER BY root, scope, id, seq DESC
), erased AS MATERIALIZED (SELECT root, id, max(ended) AS ended FROM {S}.erasures GROUP BY root, id)"""

UPKEEP: Final = {
    "log span": "SELECT coalesce(min(seq), 1), coalesce(max(seq), 0) FROM {S}.changes",
    "floor keeping": "SELECT seq FROM {S}.changes ORDER BY seq DESC OFFSET %(changes)s LIMIT 1",
    "oldest": """
SELECT root, max(seq), count(*) FROM (
  SELECT root, seq FROM {S}.changes WHERE seq <= %(floor)s ORDER BY seq LIMIT %(step)s
) AS oldest GROUP BY root ORDER BY root""",
    "put secret": "UPDATE {S}.meta SET value = %(secret)s WHERE key = 'secret'",
    "head wrong": """
WITH last AS MATERIALIZED (
  SELECT DISTINCT ON (root, scope) root, scope, seq, nonce FROM {S}.changes ORDER BY root, scope, seq DESC
)
SELECT heads.scope, heads.seq, last.seq
FROM {S}.heads LEFT JOIN last USING (root, scope) LEFT JOIN {S}.floors USING (root)
WHERE CASE WHEN last.seq IS NULL THEN heads.seq > greatest(floors.seq, heads.history_floor)
ELSE (heads.seq, heads.nonce) <> (last.seq, last.nonce) END ORDER BY heads.scope""",
    "head missing": """
SELECT scope FROM (SELECT root, scope FROM {S}.changes UNION SELECT root, scope FROM {S}.nodes) AS held
WHERE NOT EXISTS (SELECT 1 FROM {S}.heads WHERE heads.root = held.root AND heads.scope = held.scope) ORDER BY scope""",
    # An erasure takes its node's labels out of the log, also those of an insert in the same transaction.
    "row unlogged": """<LAST>
SELECT nodes.scope, nodes.id FROM {S}.nodes LEFT JOIN last USING (root, scope, id) LEFT JOIN erased USING (root, id)
LEFT JOIN {S}.floors USING (root)
WHERE (erased.ended IS NULL OR (last.seq > erased.ended AND coalesce(label_before, label_after) IS NOT NULL))
AND CASE WHEN last.seq IS NULL THEN floors.seq IS NULL
ELSE last.label_after IS DISTINCT FROM CASE nodes.state WHEN 'live' THEN nodes.label END END ORDER BY 1, 2""",
    "row lost": """<LAST>
SELECT last.scope, last.id, last.seq FROM last WHERE label_after IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM {S}.nodes WHERE nodes.root = last.root AND nodes.id = last.id AND nodes.scope = last.scope
) ORDER BY 1, 2""",
    "version orphan": """
SELECT scope, id, number FROM {S}.versions WHERE NOT EXISTS (
  SELECT 1 FROM {S}.changes
  WHERE changes.root = versions.root AND changes.id = versions.id AND changes.number = versions.number
) ORDER BY 1, 2, 3""",
    "version missing": """
SELECT scope, id, seq FROM {S}.changes WHERE label_before IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM {S}.versions
  WHERE versions.root = changes.root AND versions.id = changes.id AND versions.number = changes.number
) ORDER BY 1, 2, 3""",
    "edge orphan": """
SELECT scope, start, type, "end" FROM {S}.edges
WHERE NOT EXISTS (SELECT 1 FROM {S}.nodes WHERE nodes.root = edges.root AND nodes.id = edges.start)
OR NOT EXISTS (SELECT 1 FROM {S}.nodes WHERE nodes.root = edges.end_root AND nodes.id = edges."end")
ORDER BY 1, 2, 3, 4""",
    "testimony orphan": """
SELECT root, id, count(*) FROM {S}.testimonies
WHERE NOT EXISTS (SELECT 1 FROM {S}.nodes WHERE nodes.root = testimonies.root AND nodes.id = testimonies.id)
GROUP BY root, id ORDER BY root, id""",
    "every node": "SELECT <NODE> FROM {S}.nodes ORDER BY root, id",
    "every authored": """
SELECT <NODE> FROM {S}.nodes WHERE starts_with(label, '<RESERVED>') OR starts_with(id, '<RESERVED>')""",
    "every version": "SELECT <NODE> FROM {S}.versions ORDER BY root, id, number",
    "every edge": "SELECT <EDGE> FROM {S}.edges ORDER BY root, start",
    "every meta": "SELECT key, value FROM {S}.meta",
    **{
        f"count {table}": "SELECT count(*) FROM {S}.<TABLE>".replace("<TABLE>", table)
        for table in ("nodes", "versions", "changes", "heads", "edges", "testimonies", "erasures")
    },
}
"""The statements of upkeep, by name; ``{S}`` stands for the schema."""
UPKEEP.update({name: text.replace("<LAST>", _LAST).replace("<RESERVED>", RESERVED) for name, text in UPKEEP.items()})


def log_span(connection: Connection, texts: dict[str, str]) -> tuple[int, int]:
    """The first and the last change in the log; (1, 0) where it is empty."""
    ((first, last),) = connection.execute(texts["log span"]).fetchall()
    return first, last


def floor_keeping(connection: Connection, texts: dict[str, str], changes: int) -> int:
    """The change behind which so many are left; 0 where there are no more."""
    found = connection.execute(texts["floor keeping"], {"changes": changes}).fetchone()
    return 0 if found is None else int(found[0])


def forget(connection: Connection, texts: dict[str, str], floor: int, step: int) -> int:
    """Forget at most ``step`` of the changes up to ``floor``, oldest first, with the versions that they ended."""
    _, last = log_span(connection, texts)
    found = connection.execute(texts["oldest"], {"floor": min(floor, last - 1), "step": step}).fetchall()
    for root, seq, _ in found:
        connection.execute(texts["trim"], {"root": root, "seq": seq + 1})
    return sum(count for _, _, count in found)


def audit(connection: Connection, texts: dict[str, str], schema: str) -> Audit:
    """The audit of what a connection sees, in the transaction that it is in."""

    def rows(name: str) -> list[tuple[Any, ...]]:
        return connection.execute(texts[name]).fetchall()

    counts = {name.removeprefix("count "): rows(name)[0][0] for name in texts if name.startswith("count ")}
    found = [*_schema(connection, schema), *_meta(dict(rows("every meta"))), *_log(rows), *_rest(rows), *_values(rows)]

    def is_erased(root: str, node_id: str) -> bool:
        row = connection.execute(texts["erased"], {"root": root, "id": node_id}).fetchone()
        return row is not None and bool(row[0])

    found += chain_findings(_readable(rows("every authored")), is_erased)
    return Audit.of(found, counts)


Ask = Callable[[str], list[tuple[Any, ...]]]


def _schema(connection: Connection, schema: str) -> Iterator[Finding]:
    for table, trigger in missing_triggers(connection, schema):
        remedy = f"enable it: ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger}; then {REBUILD}"
        what = "is missing or disabled: rows may have changed unseen"
        yield Finding("schema_missing", f"trigger {trigger} of {table}", what, remedy)


def _meta(meta: dict[str, str]) -> Iterator[Finding]:
    try:
        is_secret = len(bytes.fromhex(meta.get("secret", ""))) == 32
    except ValueError:
        is_secret = False
    if not is_secret:
        yield Finding("meta_wrong", "meta.secret", "is not 32 bytes: fences would change", "restore a backup")


def _log(rows: Ask) -> Iterator[Finding]:
    for scope, seq, logged in rows("head wrong"):
        what = f"is at change {seq}, the log's last there is {logged or 'gone'}"
        yield Finding("head_wrong", f"head of {shown_scope(scope)}", what, REBUILD)
    for (scope,) in rows("head missing"):
        yield Finding("head_missing", f"head of {shown_scope(scope)}", "is not there", REBUILD)
    for scope, node_id in rows("row unlogged"):
        what = "is not as the log has it: it was written while triggers were off"
        yield Finding("row_unlogged", _node(scope, node_id), what, f"change it and change it back, or {REBUILD}")
    for scope, node_id, seq in rows("row lost"):
        what = f"is gone although the log has it since change {seq}: it was deleted while triggers were off"
        yield Finding("row_lost", _node(scope, node_id), what, f"insert it and delete it again, or {REBUILD}")


def _rest(rows: Ask) -> Iterator[Finding]:
    for scope, node_id, number in rows("version orphan"):
        remedy = f"delete the row of versions with this id and number {number}"
        yield Finding("version_orphan", _node(scope, node_id), "has a version that no change ended", remedy)
    for scope, node_id, seq in rows("version missing"):
        what = f"has lost the version that change {seq} ended: reads as of earlier heads are wrong"
        yield Finding("version_missing", _node(scope, node_id), what, f"compact the history to change {seq}")
    for scope, start, kind, end in rows("edge orphan"):
        where = f"edge {kind} from {start!r} to {end!r} at {shown_scope(scope)}"
        yield Finding("edge_orphan", where, "begins or ends at a node that is not there", "unlink it")
    for root, node_id, count in rows("testimony orphan"):
        what = f"{count} testimonies are about it, and it is not there"
        yield Finding("testimony_orphan", _node(root, node_id), what, "delete the rows with this root and id")


def _values(rows: Ask) -> Iterator[Finding]:
    for table, name in (("nodes", "every node"), ("versions", "every version")):
        for row in rows(name):
            yield from _unreadable(table, _node(row[1], row[0]), row, node_of)
    for row in rows("every edge"):
        yield from _unreadable("edges", f"edge {row[3]} from {row[2]!r} to {row[5]!r}", row, edge_of)


def _readable(found: list[tuple[Any, ...]]) -> Iterator[MemoryNode]:
    for row in found:
        try:
            yield node_of(row)
        except (StoreDamagedError, json.JSONDecodeError):
            continue  # told as an unreadable value


def _unreadable(
    table: str, where: str, row: Sequence[Any], read: Callable[[Sequence[Any]], object]
) -> Iterator[Finding]:
    try:
        read(row)
    except (InvalidInputError, StoreDamagedError, json.JSONDecodeError) as error:
        yield Finding("value_unreadable", where, str(error), f"correct or delete that row of {table} with SQL")


def _node(scope: str, node_id: str) -> str:
    return f"node {node_id!r} at {shown_scope(scope)}"
