"""Whether the bytes of erased nodes are gone from a SQLite file, and making them go.

Right after an erasure its texts are known, so it is found out by looking: the write-ahead log is emptied into the file,
and the bytes of both are searched. Where somebody still reads an older state that has to wait, and nothing may remember
the texts meanwhile: a hash of a short text is soon guessed. ``settle`` therefore knows no texts. It rewrites the whole
file from the rows that are there (VACUUM), which never saw an erased one, and empties the write-ahead log into it with
nobody reading: what is then on the disk is made of live rows alone.

What nobody knows any more cannot be looked for: a text that a shell with ``secure_delete`` off has overwritten, and
that history has since let go of. Rewriting the file takes that too.

Live rows are ours, or somebody else's: a copy in a table that is not ours would survive. Such tables are searched
inside the erasing transaction, and a receipt whose text is in one waits until that table is empty or gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Self, final

import apsw
import attrs

from promptkeel.errors import StoreUnavailableError
from promptkeel.model import MemoryNode
from promptkeel.properties import dump_json
from promptkeel.store.sqlite_connections import Connections
from promptkeel.store.sqlite_schema import TABLES

NEWEST_RECEIPT: Final = """
root = ?1 AND id = ?2 AND number = (SELECT max(number) FROM erasures WHERE root = ?1 AND id = ?2)"""
"""Which receipt of an identity is about its last erasure."""
_COPIED: Final = "UPDATE erasures SET copied = ?3 WHERE <NEWEST>".replace("<NEWEST>", NEWEST_RECEIPT)
_SCRUBBED: Final = "UPDATE erasures SET state = 'scrubbed' WHERE root = ? AND id = ? AND number = ?"
_NUMBER: Final = "SELECT number FROM erasures WHERE <NEWEST>".replace("<NEWEST>", NEWEST_RECEIPT)

_SHORTEST: Final = 4
"""Text of fewer bytes than this is not looked for on its own: it is everywhere."""
_SHORTEST_COPY: Final = 8
"""The same, for tables that are not ours."""
_PATIENCE: Final = 100
"""Milliseconds to wait for readers to move on."""
_PIECE: Final = 64
_BLOCK: Final = 1 << 20
_MOST_COMPARED: Final = 1 << 31
"""Bytes of the file, times texts, that are worth looking through; beyond, the receipt is left to ``settle``."""


@final
@attrs.frozen
class Erased:
    """An erased node's identity, and the texts whose bytes must be gone.

    Attributes:
        is_legible: whether every text could be read; what raw SQL has left unreadable cannot be looked for.
    """

    root: str
    node_id: str
    texts: frozenset[str]
    joined: tuple[bytes, ...]
    is_legible: bool = True

    @classmethod
    def of(cls, connection: apsw.Connection, node: MemoryNode) -> Self:
        """Everything said in a node that is about to be erased, in its old versions, testimonies and edges."""
        key = (node.scope.root, node.id)
        said = set(_texts_of(node.label, node.source, dict(node.own_properties)))
        joined = {_joined(node.scope.path, node.label, node.id), _joined(node.id, node.scope.path, node.label)}
        try:
            for texts, label in _kept_of(connection, key):
                said.update(texts)
                if label is not None:
                    joined.add(_joined(label, node.id))
            for text in said:
                text.encode()
        except ValueError:
            return cls(*key, frozenset(), (), is_legible=False)
        return cls(*key, frozenset(said), tuple(sorted(joined)))

    def with_texts(self, texts: Iterable[str]) -> Self:
        """The same, and more texts that were said there."""
        return attrs.evolve(self, texts=self.texts.union(texts))


def _kept_of(connection: apsw.Connection, key: tuple[str, str]) -> Iterator[tuple[Iterable[str], str | None]]:
    """The texts that are kept beside a node, with the label where they are an old version."""
    for label, source, properties in connection.execute(
        "SELECT label, source, properties FROM versions WHERE root = ? AND id = ?", key
    ):
        yield _texts_of(label, source, json.loads(properties)), label
    for source, properties in connection.execute(
        "SELECT source, properties FROM testimonies WHERE root = ? AND id = ?", key
    ):
        yield _texts_of(None, source, json.loads(properties)), None
    for (properties,) in connection.execute(
        "SELECT properties FROM edges WHERE (root = ? AND start = ?) OR (end_root = ? AND end = ?)", key * 2
    ):
        yield _texts_of(None, None, json.loads(properties)), None


def _joined(*parts: str) -> bytes:
    return "".join(parts).encode()


def _texts_of(label: str | None, source: str | None, value: Any) -> Iterator[str]:
    if label is not None:
        yield label
    if source is not None:
        yield source
    # As the stored JSON spells them.
    yield from (dump_json(text)[1:-1] for text in _strings(value))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


# Inside the erasing transaction


def scrub_statistics(connection: apsw.Connection) -> None:
    """Take out the samples of stored values that somebody's ANALYZE has kept for the query planner."""
    asked = "SELECT name FROM sqlite_schema WHERE name IN ('sqlite_stat3', 'sqlite_stat4')"
    for (name,) in connection.execute(asked).fetchall():
        connection.execute(f"DELETE FROM {name}")  # noqa: S608 - one of the two names above


def note_copies(connection: apsw.Connection, erased: Sequence[Erased]) -> None:
    """Note on the receipts which tables that are not ours hold a text of theirs."""
    if not (tables := _foreign_tables(connection)):
        return
    wanted = {text for each in erased for text in each.texts if len(text.encode()) >= _SHORTEST_COPY}
    held = {table: _texts_in(connection, table, wanted) for table in tables}
    for each in erased:
        copied = [
            table
            for table, texts in held.items()
            if texts is None or not each.is_legible or not texts.isdisjoint(each.texts)
        ]
        connection.execute(_COPIED, (each.root, each.node_id, json.dumps(copied)))


def _foreign_tables(connection: apsw.Connection) -> list[str]:
    asked = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    return sorted(name for (name,) in connection.execute(asked) if name not in TABLES)


def _texts_in(connection: apsw.Connection, table: str, texts: Iterable[str]) -> set[str] | None:
    """Those of the texts that are in a table; None where it cannot be read here."""
    try:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(table)})")]
        found = " OR ".join(f"instr(CAST({_quoted(column)} AS BLOB), CAST(value AS BLOB))" for column in columns)
        asked = f"SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM {_quoted(table)} WHERE {found})"  # noqa: S608 - quoted
        return {text for (text,) in connection.execute(asked, (json.dumps(sorted(texts)),))}
    except apsw.SQLError:
        return None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# After the commit


def scrub(connections: Connections, erased: Sequence[Erased]) -> bool:
    """Empty the write-ahead log into the file, look for what was erased, and note on the receipts that it is gone."""
    try:
        with connections.writing() as connection:
            keys = [(*key, connection.execute(_NUMBER, key).get) for key in ((e.root, e.node_id) for e in erased)]
            if not _truncate(connection) or _may_be_left(connection, erased):
                return False
        connections.transact(lambda writer: _note(writer, keys))
    except StoreUnavailableError:
        # The erasure itself is committed; that its bytes are gone is only not known.
        return False
    return True


def settle(connections: Connections) -> None:
    """Rewrite the file from the rows that are there, and note on the receipts that nothing else is left.

    Does nothing while somebody reads an older state.
    """
    with connections.writing() as connection:
        keys = _waiting(connection)
        if not keys or not _truncate(connection):
            return
        connection.execute("VACUUM")
        if not _truncate(connection):
            return
    connections.transact(lambda writer: _note(writer, keys))


_Receipt = tuple[str, str, int]
"""Root, id and number."""


def _waiting(connection: apsw.Connection) -> list[_Receipt]:
    """The receipts that a rewritten file settles: those whose text is in no table of somebody else's."""
    asked = "SELECT root, id, number, copied FROM erasures WHERE state = 'unreadable'"
    rows: list[Any] = connection.execute(asked).fetchall()
    copies = {table for *_, copied in rows for table in json.loads(copied)}
    held = {table for table in copies & set(_foreign_tables(connection)) if not _is_empty(connection, table)}
    return [(root, node_id, number) for root, node_id, number, copied in rows if held.isdisjoint(json.loads(copied))]


def _is_empty(connection: apsw.Connection, table: str) -> bool:
    try:
        return not connection.execute(f"SELECT EXISTS (SELECT 1 FROM {_quoted(table)})").get  # noqa: S608 - quoted
    except apsw.SQLError:
        return False


def _truncate(connection: apsw.Connection) -> bool:
    """Whether the write-ahead log could be emptied; a reader's older snapshot keeps it."""
    patience: int = connection.execute("PRAGMA busy_timeout").get
    connection.set_busy_timeout(_PATIENCE)
    try:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
    finally:
        connection.set_busy_timeout(patience)
    return not busy


def _note(connection: apsw.Connection, keys: Sequence[_Receipt]) -> None:
    connection.executemany(_SCRUBBED, keys)


def _may_be_left(connection: apsw.Connection, erased: Sequence[Erased]) -> bool:
    """Whether a text was found; also where there is too much to look through, or nobody knows what to look for."""
    if not all(each.is_legible for each in erased):
        return True
    size: int = connection.pragma("page_count") * connection.pragma("page_size")
    texts = {text for each in erased for text in each.texts if len(text.encode()) >= _SHORTEST}
    needles = {piece for each in erased for piece in each.joined}
    for text in texts:
        data = text.encode()
        needles.update(data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
        if len(needles) * size > _MOST_COMPARED:
            return True
    for text in texts:
        if _is_said_elsewhere(connection, text):
            data = text.encode()
            needles.difference_update(data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
    needles = {needle for needle in needles if len(needle) >= _SHORTEST}
    longest = max(map(len, needles), default=0)
    return any(needle in block for block in _blocks(connection, longest) for needle in needles)


def _is_said_elsewhere(connection: apsw.Connection, text: str) -> bool:
    """Whether another node says the same, so that finding it proves nothing."""
    asked = """SELECT EXISTS (SELECT 1 FROM nodes WHERE instr(label, ?1) OR instr(properties, ?1) OR instr(source, ?1)
      OR instr(id, ?1) OR instr(scope, ?1))
    OR EXISTS (SELECT 1 FROM versions WHERE instr(label, ?1) OR instr(properties, ?1) OR instr(source, ?1))
    OR EXISTS (SELECT 1 FROM testimonies WHERE instr(properties, ?1) OR instr(source, ?1))
    OR EXISTS (SELECT 1 FROM edges WHERE instr(properties, ?1) OR instr(type, ?1))
    OR EXISTS (SELECT 1 FROM changes WHERE instr(label_before, ?1) OR instr(label_after, ?1))
    OR EXISTS (SELECT 1 FROM marks WHERE instr(value, ?1))
    OR EXISTS (SELECT 1 FROM sqlite_schema WHERE instr(sql, ?1))"""
    return bool(connection.execute(asked, (text,)).get)


def _blocks(connection: apsw.Connection, overlap: int) -> Iterator[bytes]:
    """The bytes of the file, then of its write-ahead log, in overlapping blocks; read through SQLite's own files."""
    for which in (0, 1):
        kept, offset, more = b"", 0, True
        while more:
            more, data = connection.read("main", which, offset, _BLOCK)
            yield kept + data
            kept = data[-overlap:] if overlap else b""
            offset += _BLOCK
