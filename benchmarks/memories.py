"""What the benchmarks read and write: made-up statements, stores that hold them, and the floor beneath a store.

Everything here is the same for every run and for every system that is measured.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import apsw

import promptkeel as pk
from promptkeel import blocking
from promptkeel.instants import read_instant

ADA: Final = pk.TenantScope.parse("org:acme/user:ada")
BOB: Final = pk.TenantScope.parse("org:acme/user:bob")
PREFIXES: Final = ("SOUL:", "PREFERENCE:", "FOCUS:", "HABIT:")
NAMES: Final = ("USER_PROFILE", "PREFERENCES", "FOCUS", "HABITS")
AUTHORED: Final = {
    "BOUNDARIES": "Never reveal another customer's data.",
    "IDENTITY": "You are the assistant of an office.",
    "RULES": "Answer in the language of the question. Say so where you do not know.",
    "ENVIRONMENT": "You run inside the office's own network and reach its calendar.",
}
_SOURCES: Final = ("onboarding", "chat", "user-correction", "import:calendar", None)
_BEGAN: Final = datetime(2026, 1, 1, 9, tzinfo=UTC)
SMALL_LANE: Final = 10
"""How many facts the three lanes have that are not the one whose size is varied."""


def statement(number: int) -> tuple[str, str | None, datetime]:
    """The text, source and time of a statement; about 60 characters, as the facts of real memories have."""
    text = f"has noted {number:06d}: prefers the {number % 97}th room for meeting {number % 31}, not by phone"
    return text, _SOURCES[number % len(_SOURCES)], _BEGAN + timedelta(minutes=37 * number)


def lanes_of(size: int) -> Iterator[tuple[str, int]]:
    """Label prefix and number of every statement of a memory whose first lane has ``size`` facts."""
    for prefix in PREFIXES:
        for number in range(size if prefix == PREFIXES[0] else SMALL_LANE):
            yield prefix, number


INSERT: Final = """INSERT INTO nodes(scope, label, id, source, recorded_at, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?)"""


def rows_of(scope: pk.TenantScope, lanes: Sequence[tuple[str, int]]) -> list[tuple[Any, ...]]:
    """The arguments of ``INSERT`` for statements."""
    rows = []
    for prefix, number in lanes:
        text, source, recorded = statement(number)
        instant = read_instant(recorded)
        rows.append((scope.path, prefix + text, f"{prefix}{number}", source, instant, instant, instant))
    return rows


def connect(path: Path) -> apsw.Connection:
    """A plain connection, set as a store's own writer is."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(5000)
    for name, value in (("journal_mode", "wal"), ("synchronous", "FULL"), ("secure_delete", "ON")):
        connection.pragma(name, value)
    connection.pragma("cache_size", -65536)
    return connection


def url_of(path: Path) -> str:
    """The address of a store in a file."""
    return f"sqlite:///{path}"


def make_store(path: Path, size: int) -> Path:
    """A store whose first lane has ``size`` facts, in a file; another scope has a few too."""
    if not path.exists():
        blocking.open_store(url_of(path)).close()
        connection = connect(path)
        with connection:
            connection.executemany(INSERT, rows_of(ADA, list(lanes_of(size))))
            connection.executemany(INSERT, rows_of(BOB, [("BOB:", number) for number in range(SMALL_LANE)]))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()
    return path


def memory_specs() -> list[pk.PromptBlockSpec]:
    """Four blocks of memory."""
    return [
        pk.PromptBlockSpec(name=name, source=pk.MemoryLane(prefix))
        for name, prefix in zip(NAMES, PREFIXES, strict=True)
    ]


def static_specs() -> list[pk.PromptBlockSpec]:
    """Four blocks of authored text."""
    return [pk.PromptBlockSpec(name=name, source=pk.StaticSource(text)) for name, text in AUTHORED.items()]


def floor(path: Path) -> Callable[[], object]:
    """One ``PRAGMA data_version`` on a connection that does nothing else, and one dict lookup."""
    execute = apsw.Connection(str(path)).execute
    kept = {ADA.path: object()}
    key = ADA.path

    def call() -> object:
        return execute("PRAGMA data_version").get, kept[key]

    return call


class Elsewhere:
    """Another client of a store's file: plain SQL on a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path)
        # Whether its commits reach the disk is nothing that a reader sees.
        self._connection.pragma("synchronous", "NORMAL")
        self._number = 0

    def insert(self, scope: pk.TenantScope, prefix: str) -> None:
        """Commit one new row."""
        self._number += 1
        text, source, recorded = statement(self._number)
        instant = read_instant(recorded)
        row = (scope.path, f"{prefix}{text}", uuid.uuid4().hex, source, instant, instant, instant)
        self._connection.execute(INSERT, row)

    def touch(self, prefix: str, size: int) -> None:
        """Commit a change of one row of a lane of ``size`` facts, which the lane's revision shows."""
        self._number += 1
        number = self._number * 7919 % size
        self._connection.execute(
            "UPDATE nodes SET source = ?, updated_at = updated_at + 1 WHERE root = ? AND id = ?",
            (f"chat-{uuid.uuid4().hex[:8]}", ADA.root, f"{prefix}{number}"),
        )

    def close(self) -> None:
        """Release the file."""
        self._connection.close()
