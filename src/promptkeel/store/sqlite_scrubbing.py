"""Whether the bytes of an erased node are gone from a SQLite file: found out by looking, not by recipe."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self, final

import apsw
import attrs

from promptkeel.errors import StoreUnavailableError
from promptkeel.model import MemoryNode
from promptkeel.store.sqlite_connections import Connections

_SHORTEST: Final = 4
"""Text of fewer bytes than this is not looked for on its own: it is everywhere."""
_PATIENCE: Final = 100
"""Milliseconds to wait for readers to move on."""
_PIECE: Final = 64
_BLOCK: Final = 1 << 20


@final
@attrs.frozen
class Erased:
    """An erased node's identity, and the texts whose bytes must be gone."""

    root: str
    node_id: str
    texts: frozenset[str]
    joined: tuple[bytes, ...]

    @classmethod
    def of(cls, connection: apsw.Connection, node: MemoryNode) -> Self:
        """Everything said in a node that is about to be erased, in its old versions and testimonies."""
        key = (node.scope.root, node.id)
        texts = set(_texts_of(node.label, node.source, dict(node.own_properties)))
        joined = {_joined(node.scope.path, node.label, node.id), _joined(node.id, node.scope.path, node.label)}
        for label, source, properties in connection.execute(
            "SELECT label, source, properties FROM versions WHERE root = ? AND id = ?", key
        ):
            texts.update(_texts_of(label, source, json.loads(properties)))
            joined.add(_joined(label, node.id))
        for source, properties in connection.execute(
            "SELECT source, properties FROM testimonies WHERE root = ? AND id = ?", key
        ):
            texts.update(_texts_of(None, source, json.loads(properties)))
        return cls(*key, frozenset(texts), tuple(sorted(joined)))


def _joined(*parts: str) -> bytes:
    return "".join(parts).encode()


def _texts_of(label: str | None, source: str | None, value: Any) -> Iterator[str]:
    if label is not None:
        yield label
    if source is not None:
        yield source
    yield from _strings(value)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def scrub(connections: Connections, erased: Sequence[Erased]) -> bool:
    """Empty the write-ahead log into the file, look for what was erased, and note on the receipts that it is gone."""
    keys = [(each.root, each.node_id) for each in erased]
    try:
        with connections.writing() as connection:
            if not _truncate(connection) or _found(connection, erased):
                return False
        connections.transact(lambda writer: _note(writer, keys))
    except StoreUnavailableError:
        # The erasure itself is committed; that its bytes are gone is only not known.
        return False
    return True


def _truncate(connection: apsw.Connection) -> bool:
    """Whether the write-ahead log could be emptied; a reader's older snapshot keeps it."""
    patience: int = connection.execute("PRAGMA busy_timeout").get
    connection.set_busy_timeout(_PATIENCE)
    try:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
    finally:
        connection.set_busy_timeout(patience)
    return not busy


def _note(connection: apsw.Connection, keys: list[tuple[str, str]]) -> None:
    connection.executemany("UPDATE erasures SET state = 'scrubbed' WHERE root = ? AND id = ?", keys)


def _found(connection: apsw.Connection, erased: Sequence[Erased]) -> bool:
    needles = {piece for each in erased for piece in each.joined}
    for text in {text for each in erased for text in each.texts}:
        data = text.encode()
        if len(data) >= _SHORTEST and not _is_said_elsewhere(connection, text):
            needles.update(data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
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
