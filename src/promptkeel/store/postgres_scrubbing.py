"""Whether an erased node's bytes are gone from the tables of a PostgreSQL store.

A deleted row stays in its page until somebody rewrites it. Each table that may hold a trace is rewritten in a
transaction of its own, so that its readers wait no longer than for that one; the server then says how many dead rows it
had to take along because an older snapshot may still read them. Only where it was none, everywhere, is a receipt
``scrubbed``. Columns with text have no statistics, which would keep samples of it. Not covered, and for the operator to
rotate: the write-ahead log and its archives, standbys, backups, the server's own log.
"""

from __future__ import annotations

import re
from typing import Final

import psycopg

from promptkeel.errors import StoreBusyError, StoreReadOnlyError
from promptkeel.store.postgres_connections import Connection, Connections
from promptkeel.store.postgres_reads import statements
from promptkeel.store.postgres_schema import PARTITIONS

SCRUBBING: Final = {
    "unreadable": "SELECT root, id, number FROM {S}.erasures WHERE state = 'unreadable'",
    "partitions": """
SELECT DISTINCT number FROM unnest(%(roots)s::text[]) AS root, generate_series(0, %(last)s) AS number
WHERE satisfies_hash_partition('{S}.nodes'::regclass, %(last)s + 1, number, root) ORDER BY number""",
    "rewrite": "CLUSTER VERBOSE {S}.<TABLE> USING <TABLE>_pkey",
    "scrubbed": """
UPDATE {S}.erasures SET state = 'scrubbed'
WHERE root = %(root)s AND id = %(id)s AND number = %(number)s AND state = 'unreadable'""",
    "note": "INSERT INTO {S}.transactions(xid) VALUES (pg_current_xact_id()) ON CONFLICT DO NOTHING",
}
"""Every statement that settling takes, by name."""

_TABLES: Final = ("nodes", "versions", "changes", "testimonies", "edges")


def settle(connections: Connections) -> None:
    """Rewrite every table that may hold a trace of an erased node, and note on the receipts that nothing is left.

    Receipts stay as they are where an older snapshot is still open, where the tables are in use for longer than the
    busy timeout, or where the role may not rewrite them.
    """
    texts = statements(connections.address.schema, SCRUBBING)
    listed = connections.short(lambda connection: connection.execute(texts["unreadable"]).fetchall())
    if not listed:
        return
    asked = {"roots": sorted({root for root, _, _ in listed}), "last": PARTITIONS - 1}
    numbers = connections.short(lambda connection: connection.execute(texts["partitions"], asked).fetchall())
    tables = [f"{table}_{number}" for (number,) in numbers for table in _TABLES]
    try:
        # Every one, also after one that could not be cleaned: what can go now, goes.
        clean = [_is_clean(connections, texts["rewrite"].replace("<TABLE>", name)) for name in (*tables, "pending")]
    except (StoreBusyError, StoreReadOnlyError):
        return
    if all(clean):
        connections.transact(lambda connection: _note(connection, texts, listed), buckets=[])


def _is_clean(connections: Connections, rewrite: str) -> bool:
    """Rewrite one table; whether no dead row had to be taken along."""
    kept: list[int] = []

    def listen(notice: psycopg.errors.Diagnostic) -> None:
        counted = re.match(r"\d+", notice.message_detail or "")
        if counted:
            kept.append(int(counted.group()))

    def work(connection: Connection) -> None:
        kept.clear()
        connection.add_notice_handler(listen)
        try:
            connection.execute(rewrite)
        finally:
            connection.remove_notice_handler(listen)

    connections.transact(work, buckets=[])
    return kept == [0]


def _note(connection: Connection, texts: dict[str, str], listed: list[tuple[str, str, int]]) -> None:
    for root, node_id, number in listed:
        connection.execute(texts["scrubbed"], {"root": root, "id": node_id, "number": number})
    connection.execute(texts["note"])
