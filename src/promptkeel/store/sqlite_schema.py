"""The tables of a SQLite store, and the triggers that move its heads, its log and its history.

A person with a plain ``sqlite3`` shell (3.40 or later) is a writer like any other: defaults fill in what an INSERT
leaves out, and triggers log every inserted, changed, moved, replaced and deleted row of ``nodes``. Nothing here needs a
function that a stock client lacks. What a write means is decided elsewhere; this module only says what a row may be and
what moves when one changes.

``changes`` is the log: one row per changed node and scope level, found by its own number only, so that reading its end
never depends on how much is stored. ``heads`` is its last row per scope. ``versions`` holds what a node was until the
change ``seq``; what it is now is in ``nodes`` alone.

``INSERT OR REPLACE`` takes a row away without firing its delete trigger. A trigger before the write finds that row and
closes its version; where the write then leaves the row alone (``OR IGNORE``, an upsert), the log names a node that did
not change, which costs a reader one more look and is never wrong.

What gets past the triggers: a client that switches them off for its connection (``SQLITE_DBCONFIG_ENABLE_TRIGGER``),
or one that writes to ``heads``, ``changes`` or ``versions`` itself. A probe sees that something was committed; heads do
not say what. A trigger that was dropped or changed is noticed by the next read or write, and when the file is opened;
so is, by what is open, one that was dropped and made again in the same words: what it may have missed is read anew.
What gets past that too is a client that sets ``PRAGMA schema_version`` back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import apsw

from promptkeel.errors import NewerSchemaError, StoreDamagedError
from promptkeel.instants import EARLIEST, LATEST
from promptkeel.model import STATES, TRUST_LEVELS

APPLICATION_ID: Final = 0x704B4C31
"""Says in the file's header that it is a promptkeel store."""

_NOW = "(CAST((julianday('now') - 2440587.5) * 86400000 + 0.5 AS INTEGER) * 1000)"
_VERSION_COLUMNS = "scope, label, source, recorded_at, trust, created_at, updated_at, state, properties"


def _words(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def root_of(scope: str) -> str:
    """The SQL expression for the root of a scope path."""
    return f"CASE instr({scope}, '/') WHEN 0 THEN {scope} ELSE substr({scope}, 1, instr({scope}, '/') - 1) END"


def _logged(row: str) -> str:
    return f"CASE {row}.state WHEN 'live' THEN {row}.label END"


def _expand(text: str) -> str:
    """The SQL with the names in capitals between ``<`` and ``>`` filled in."""
    for name, value in _FRAGMENTS.items():
        text = text.replace(f"<{name}>", value)
    return text


_FRAGMENTS: Final = {
    "NOW": _NOW,
    "EARLIEST": str(EARLIEST),
    "LATEST": str(LATEST),
    "TRUST": _words(TRUST_LEVELS),
    "STATES": _words(STATES),
    "ROOT OF scope": root_of("scope"),
    "ROOT OF NEW.scope": root_of("NEW.scope"),
    "ROOT OF OLD.scope": root_of("OLD.scope"),
    "LOGGED OLD": _logged("OLD"),
    "LOGGED NEW": _logged("NEW"),
    "LOGGED victim": _logged("victim"),
    "COLUMNS": _VERSION_COLUMNS,
    "OLD COLUMNS": ", ".join(f"OLD.{name}" for name in _VERSION_COLUMNS.split(", ")),
    "NEW COLUMNS": ", ".join(f"NEW.{name}" for name in _VERSION_COLUMNS.split(", ")),
    "victim COLUMNS": ", ".join(f"victim.{name}" for name in _VERSION_COLUMNS.split(", ")),
}

_NODES = _expand("""
CREATE TABLE meta(key TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta(key, value) VALUES
  ('format', 'promptkeel'), ('secret', randomblob(32)), ('delta_floor', 0), ('history_floor', 0);

CREATE TABLE nodes(
  scope TEXT NOT NULL,
  label TEXT NOT NULL,
  id TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))) CHECK (id <> ''),
  root TEXT GENERATED ALWAYS AS (<ROOT OF scope>) VIRTUAL,
  source TEXT,
  recorded_at INTEGER DEFAULT <NOW> CHECK (recorded_at IS NULL OR recorded_at BETWEEN <EARLIEST> AND <LATEST>),
  trust TEXT CHECK (trust IS NULL OR trust IN (<TRUST>)),
  created_at INTEGER NOT NULL DEFAULT <NOW> CHECK (created_at BETWEEN <EARLIEST> AND <LATEST>),
  updated_at INTEGER NOT NULL DEFAULT <NOW> CHECK (updated_at BETWEEN <EARLIEST> AND <LATEST>),
  state TEXT NOT NULL DEFAULT 'live' CHECK (state IN (<STATES>)),
  properties TEXT NOT NULL DEFAULT '{}'
    CHECK (properties = '{}' OR (json_valid(properties) AND json_type(properties) = 'object')),
  PRIMARY KEY (scope, label, id),
  UNIQUE (root, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE changes(
  seq INTEGER PRIMARY KEY,
  scope TEXT NOT NULL,
  id TEXT NOT NULL,
  label_before TEXT,
  label_after TEXT,
  nonce INTEGER NOT NULL DEFAULT (random())
) STRICT;

CREATE TABLE heads(scope TEXT PRIMARY KEY, seq INTEGER NOT NULL, nonce INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE versions(
  root TEXT NOT NULL,
  id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  scope TEXT NOT NULL,
  label TEXT NOT NULL,
  source TEXT,
  recorded_at INTEGER,
  trust TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  state TEXT NOT NULL,
  properties TEXT NOT NULL,
  PRIMARY KEY (root, id, seq)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER changes_move_heads AFTER INSERT ON changes BEGIN
  INSERT INTO heads(scope, seq, nonce) VALUES (NEW.scope, NEW.seq, NEW.nonce)
    ON CONFLICT (scope) DO UPDATE SET seq = excluded.seq, nonce = excluded.nonce;
END;

CREATE TRIGGER changes_keep_the_last BEFORE DELETE ON changes WHEN OLD.seq = (SELECT max(seq) FROM changes) BEGIN
  SELECT RAISE(ABORT, 'the last row of the change log must stay: heads point to it');
END;

CREATE TRIGGER nodes_insert_replaces BEFORE INSERT ON nodes
WHEN EXISTS (SELECT 1 FROM nodes WHERE root = <ROOT OF NEW.scope> AND id = NEW.id) BEGIN
  INSERT INTO changes(scope, id, label_before, label_after)
    SELECT victim.scope, victim.id, <LOGGED victim>, CASE victim.scope WHEN NEW.scope THEN <LOGGED victim> END
    FROM nodes AS victim WHERE root = <ROOT OF NEW.scope> AND id = NEW.id;
  INSERT INTO versions(root, id, seq, <COLUMNS>)
    SELECT victim.root, victim.id, last_insert_rowid(), <victim COLUMNS>
    FROM nodes AS victim WHERE root = <ROOT OF NEW.scope> AND id = NEW.id;
END;

CREATE TRIGGER nodes_insert AFTER INSERT ON nodes BEGIN
  INSERT INTO changes(scope, id, label_before, label_after) VALUES (NEW.scope, NEW.id, NULL, <LOGGED NEW>);
END;

CREATE TRIGGER nodes_update_replaces BEFORE UPDATE OF scope, id ON nodes
WHEN (NEW.scope <> OLD.scope OR NEW.id <> OLD.id) AND EXISTS (
  SELECT 1 FROM nodes WHERE root = <ROOT OF NEW.scope> AND id = NEW.id
    AND (root <> <ROOT OF OLD.scope> OR id <> OLD.id)
) BEGIN
  INSERT INTO changes(scope, id, label_before, label_after)
    SELECT victim.scope, victim.id, <LOGGED victim>, CASE victim.scope WHEN NEW.scope THEN <LOGGED victim> END
    FROM nodes AS victim WHERE root = <ROOT OF NEW.scope> AND id = NEW.id;
  INSERT INTO versions(root, id, seq, <COLUMNS>)
    SELECT victim.root, victim.id, last_insert_rowid(), <victim COLUMNS>
    FROM nodes AS victim WHERE root = <ROOT OF NEW.scope> AND id = NEW.id;
END;

CREATE TRIGGER nodes_update AFTER UPDATE ON nodes
WHEN NEW.scope = OLD.scope AND NEW.id = OLD.id AND (<NEW COLUMNS>) IS NOT (<OLD COLUMNS>) BEGIN
  INSERT INTO changes(scope, id, label_before, label_after) VALUES (OLD.scope, OLD.id, <LOGGED OLD>, <LOGGED NEW>);
  INSERT INTO versions(root, id, seq, <COLUMNS>)
    VALUES (<ROOT OF OLD.scope>, OLD.id, last_insert_rowid(), <OLD COLUMNS>);
END;

CREATE TRIGGER nodes_move AFTER UPDATE OF scope, id ON nodes
WHEN NEW.scope <> OLD.scope OR NEW.id <> OLD.id BEGIN
  INSERT INTO changes(scope, id, label_before, label_after) VALUES (OLD.scope, OLD.id, <LOGGED OLD>, NULL);
  INSERT INTO versions(root, id, seq, <COLUMNS>)
    VALUES (<ROOT OF OLD.scope>, OLD.id, last_insert_rowid(), <OLD COLUMNS>);
  INSERT INTO changes(scope, id, label_before, label_after) VALUES (NEW.scope, NEW.id, NULL, <LOGGED NEW>);
END;

CREATE TRIGGER nodes_delete AFTER DELETE ON nodes BEGIN
  INSERT INTO changes(scope, id, label_before, label_after) VALUES (OLD.scope, OLD.id, <LOGGED OLD>, NULL);
  INSERT INTO versions(root, id, seq, <COLUMNS>)
    VALUES (<ROOT OF OLD.scope>, OLD.id, last_insert_rowid(), <OLD COLUMNS>);
END;
""")

_LINEAGE = """
CREATE TABLE testimonies(
  root TEXT NOT NULL,
  id TEXT NOT NULL,
  number INTEGER NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('confirmed', 'outdated')),
  source TEXT,
  recorded_at INTEGER,
  trust TEXT,
  at INTEGER NOT NULL,
  properties TEXT NOT NULL DEFAULT '{}',
  PRIMARY KEY (root, id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE edges(
  root TEXT NOT NULL,
  start TEXT NOT NULL,
  type TEXT NOT NULL,
  end_root TEXT NOT NULL,
  end TEXT NOT NULL,
  scope TEXT NOT NULL,
  properties TEXT NOT NULL DEFAULT '{}',
  PRIMARY KEY (root, start, type, end_root, end)
) STRICT, WITHOUT ROWID;
CREATE INDEX edges_by_end ON edges(end_root, end);
"""

_RECEIPTS = """
CREATE TABLE erasures(
  root TEXT NOT NULL,
  id TEXT NOT NULL,
  scope TEXT NOT NULL,
  at INTEGER NOT NULL,
  made INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  versions INTEGER NOT NULL,
  edges INTEGER NOT NULL,
  testimonies INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('unreadable', 'scrubbed')),
  PRIMARY KEY (root, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX erasures_by_scope ON erasures(scope, ended);

CREATE TABLE marks(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
"""

# An id that was brought back can be erased again: each erasure keeps its receipt.
_REQUESTS = """
DROP INDEX erasures_by_scope;
ALTER TABLE erasures RENAME TO erasures_before;
CREATE TABLE erasures(
  root TEXT NOT NULL,
  id TEXT NOT NULL,
  number INTEGER NOT NULL,
  scope TEXT NOT NULL,
  at INTEGER NOT NULL,
  made INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  versions INTEGER NOT NULL,
  edges INTEGER NOT NULL,
  testimonies INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('unreadable', 'scrubbed')),
  request TEXT,
  copied TEXT NOT NULL DEFAULT '[]',
  PRIMARY KEY (root, id, number)
) STRICT, WITHOUT ROWID;
INSERT INTO erasures(root, id, number, scope, at, made, ended, versions, edges, testimonies, state)
  SELECT root, id, 1, scope, at, made, ended, versions, edges, testimonies, state FROM erasures_before;
DROP TABLE erasures_before;
CREATE INDEX erasures_by_scope ON erasures(scope, ended);
"""

# Whose testimonies they are, where an id has been reused, is told by what was there when they were given.
_GIVEN_AT = """
ALTER TABLE testimonies ADD COLUMN scope TEXT;
UPDATE testimonies SET scope = coalesce(
  (SELECT scope FROM nodes
    WHERE nodes.root = testimonies.root AND nodes.id = testimonies.id AND created_at <= testimonies.at),
  (SELECT scope FROM versions
    WHERE versions.root = testimonies.root AND versions.id = testimonies.id AND created_at <= testimonies.at
    ORDER BY seq DESC LIMIT 1)
);
"""

STEPS: Final[tuple[str, ...]] = (_NODES, _LINEAGE, _RECEIPTS, _REQUESTS, _GIVEN_AT)
"""The schema as numbered steps; a file's ``user_version`` is how many of them it has."""

_TRIGGER = re.compile(r"CREATE TRIGGER (\w+) .*?\nEND(?=;)", re.DOTALL)
TRIGGERS: Final = {found[1]: found[0] for step in STEPS for found in _TRIGGER.finditer(step)}
"""The triggers by name, as SQL that makes them."""
TABLES: Final = frozenset(table for step in STEPS for table in re.findall(r"CREATE TABLE (\w+)", step))
"""The tables that are ours; any other in the file is somebody else's."""


def migrate(connection: apsw.Connection, name: str, steps: Sequence[str] = STEPS) -> None:
    """Bring the schema up to date, each step in one transaction with its number.

    Raises:
        NewerSchemaError: the file has more steps than this program knows.
        StoreDamagedError: a trigger is missing or another, so that heads could not be trusted.
    """
    while (done := connection.pragma("user_version")) != len(steps):
        if done > len(steps):
            raise NewerSchemaError(
                f"{name} has schema {done}, made by a newer promptkeel; this one knows up to {len(steps)}: upgrade it"
            )
        connection.execute("BEGIN IMMEDIATE")
        try:
            if connection.pragma("user_version") == done:
                connection.execute(steps[done]).fetchall()
                connection.pragma("user_version", done + 1)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    check_triggers(connection, name, steps)


def check_triggers(connection: apsw.Connection, name: str, steps: Sequence[str] = STEPS) -> None:
    """Refuse a file whose heads could stand still while rows change.

    Raises:
        StoreDamagedError: a trigger is missing or another.
    """
    wanted = {found[1]: found[0] for step in steps for found in _TRIGGER.finditer(step)}
    rows: list[Any] = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    present = dict(rows)
    for trigger in sorted(wanted):
        if _words_of(present.get(trigger, "")) != _words_of(wanted[trigger]):
            what = "is not the one that it was made with" if trigger in present else "is missing"
            raise StoreDamagedError(
                f"{name}: its trigger {trigger} {what}, so that changes may have moved no heads: restore a backup; or "
                f"drop it, make it again from promptkeel.store.sqlite_schema.TRIGGERS[{trigger!r}], and start anew "
                "whatever has the store open"
            )


def _words_of(sql: str) -> list[str]:
    return sql.split()
