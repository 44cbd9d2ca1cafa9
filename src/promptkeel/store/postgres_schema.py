"""The tables of a PostgreSQL store, and the triggers that move its heads, its log and its history.

Any client is a writer like any other: defaults fill in what an INSERT leaves out, and statement triggers see every row
of ``nodes`` that was inserted, changed, moved, deleted or truncated, through the table or through one partition. What a
write means is decided elsewhere; this module only says what a row may be and what moves when one changes.

A number that is handed out before the commit says nothing about the order of commits. So a statement trigger only notes
what changed, in ``pending``; one deferred trigger runs at the commit, locks the head of each touched scope in the order
of their paths, and only then numbers the changes, moves them into the log and moves the heads. Until the commit is done
nobody else can number a change at these scopes: within a scope, numbers are in the order of the commits. Since every
transaction takes these locks in one order, none of them waits for one that waits for it.

``changes`` is the log, ``heads`` its last row per scope, ``versions`` what a node was until the change that its
``number`` names; what it is now is in ``nodes`` alone. ``pulse`` holds a random number for every commit; their sum is
the same only where nothing was committed in between, and adding one waits for nobody. Rows are partitioned by the root
of their scope, so that a tenant's scans meet no other's pages; ``heads`` is not: it is one small row for each scope,
only ever found by its key, and a partitioned one takes twice as long to probe.

A NOTIFY makes commits wait for each other, on the whole server. So one is sent only while somebody says that they
listen, by a lease in ``meta``, and by one transaction at a time: whoever finds another about to send it leaves it at
that. It carries nothing, since anybody in the database may listen.

What bypasses the triggers: ``ALTER TABLE ... DISABLE TRIGGER`` and detached partitions. ``session_replication_role``
does not: they are enabled always.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg

from promptkeel.errors import InvalidInputError, NewerSchemaError, NotAStoreError, StoreDamagedError
from promptkeel.instants import EARLIEST, LATEST
from promptkeel.model import STATES, TRUST_LEVELS

PARTITIONS: Final = 8
"""Into how many partitions each table is cut."""
INDEXED: Final = 128
"""The lane index holds so many characters of a label: an index entry is bounded, a label is not."""

_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_NONCE = "('x' || left(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint"
_TEXT = 'text COLLATE "C"'
_COLUMNS = "scope, label, source, recorded_at, trust, created_at, updated_at, state, properties"
_COMPARED = "scope, label, source, recorded_at, trust, created_at, updated_at, state, properties::text"


def _of(row: str, columns: str) -> str:
    return ", ".join(f"{row}.{name}" for name in columns.split(", "))


def _words(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


_FRAGMENTS: Final = {
    "NOW": _NOW,
    "NONCE": _NONCE,
    "TEXT": _TEXT,
    "EARLIEST": str(EARLIEST),
    "LATEST": str(LATEST),
    "TRUST": _words(TRUST_LEVELS),
    "STATES": _words(STATES),
    "INDEXED": str(INDEXED),
    "COLUMNS": _COLUMNS,
    "OLD COLUMNS": _of("before", _COLUMNS),
    "OLD COMPARED": _of("before", _COMPARED),
    "NEW COMPARED": _of("after", _COMPARED),
    "LOGGED OLD": "CASE before.state WHEN 'live' THEN before.label END",
    "LOGGED NEW": "CASE after.state WHEN 'live' THEN after.label END",
}

_NODES = """
CREATE TABLE {S}.meta(key text PRIMARY KEY, value text NOT NULL);
INSERT INTO {S}.meta(key, value) VALUES
  ('format', 'promptkeel'), ('schema', '0'),
  ('secret', replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));

CREATE SEQUENCE {S}.seqs;
CREATE SEQUENCE {S}.numbers;

CREATE TABLE {S}.nodes(
  root <TEXT> NOT NULL,
  scope <TEXT> NOT NULL,
  label <TEXT> NOT NULL,
  id <TEXT> NOT NULL DEFAULT replace(gen_random_uuid()::text, '-', '') CHECK (id <> ''),
  source text,
  recorded_at bigint DEFAULT <NOW> CHECK (recorded_at BETWEEN <EARLIEST> AND <LATEST>),
  trust text CHECK (trust IN (<TRUST>)),
  created_at bigint NOT NULL DEFAULT <NOW> CHECK (created_at BETWEEN <EARLIEST> AND <LATEST>),
  updated_at bigint NOT NULL DEFAULT <NOW> CHECK (updated_at BETWEEN <EARLIEST> AND <LATEST>),
  state text NOT NULL DEFAULT 'live' CHECK (state IN (<STATES>)),
  properties json NOT NULL DEFAULT '{}' CHECK (json_typeof(properties) = 'object'),
  PRIMARY KEY (root, id),
  CONSTRAINT nodes_root_is_the_first_level_of_scope CHECK (root = split_part(scope, '/', 1))
) PARTITION BY HASH (root);
CREATE INDEX nodes_lane ON {S}.nodes(scope, left(label, <INDEXED>), id) WHERE state = 'live';
CREATE INDEX nodes_hidden ON {S}.nodes(scope) WHERE state <> 'live';

CREATE TABLE {S}.changes(
  root <TEXT> NOT NULL,
  scope <TEXT> NOT NULL,
  seq bigint NOT NULL,
  number bigint NOT NULL,
  id <TEXT> NOT NULL,
  label_before <TEXT>,
  label_after <TEXT>,
  nonce bigint NOT NULL,
  PRIMARY KEY (root, scope, seq)
) PARTITION BY HASH (root);

CREATE TABLE {S}.heads(
  root <TEXT> NOT NULL,
  scope <TEXT> NOT NULL,
  seq bigint NOT NULL,
  nonce bigint NOT NULL,
  delta_floor bigint NOT NULL DEFAULT 0,
  history_floor bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (root, scope)
) WITH (fillfactor = 60);

CREATE TABLE {S}.floors(root <TEXT> PRIMARY KEY, seq bigint NOT NULL);

-- The seq and the nonce of each level of a chain, the deployment's first: a plan that the server keeps, at one moment.
CREATE FUNCTION {S}.heads_of(path text) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  of_root text := split_part(path, '/', 1);
  so_far text;
  level text;
  found record;
  answer text;
BEGIN
  SELECT seq, nonce INTO found FROM {S}.heads WHERE root = '' AND scope = '';
  answer := coalesce(found.seq || ' ' || found.nonce, '0 0');
  FOREACH level IN ARRAY string_to_array(path, '/') LOOP
    so_far := CASE WHEN so_far IS NULL THEN level ELSE so_far || '/' || level END;
    SELECT seq, nonce INTO found FROM {S}.heads WHERE root = of_root AND scope = so_far;
    answer := answer || ' ' || coalesce(found.seq || ' ' || found.nonce, '0 0');
  END LOOP;
  RETURN answer;
END $$;

CREATE TABLE {S}.versions(
  root <TEXT> NOT NULL,
  id <TEXT> NOT NULL,
  number bigint NOT NULL,
  scope <TEXT> NOT NULL,
  label <TEXT> NOT NULL,
  source text,
  recorded_at bigint,
  trust text,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  state text NOT NULL,
  properties json NOT NULL,
  PRIMARY KEY (root, id, number)
) PARTITION BY HASH (root);

CREATE TABLE {S}.erasures(
  root <TEXT> NOT NULL,
  id <TEXT> NOT NULL,
  number bigint NOT NULL,
  scope <TEXT> NOT NULL,
  at bigint NOT NULL,
  made bigint NOT NULL,
  ended bigint,
  versions bigint NOT NULL,
  edges bigint NOT NULL,
  testimonies bigint NOT NULL,
  state text NOT NULL CHECK (state IN ('unreadable', 'scrubbed')),
  request text,
  PRIMARY KEY (root, id, number)
) PARTITION BY HASH (root);
CREATE INDEX erasures_by_scope ON {S}.erasures(scope, number);

CREATE TABLE {S}.pulse(count bigint NOT NULL, total numeric NOT NULL);

-- What a transaction has done so far. Rows live no longer than it, so a crash may empty these tables.
CREATE UNLOGGED TABLE {S}.transactions(xid xid8 PRIMARY KEY);
CREATE UNLOGGED TABLE {S}.pending(
  xid xid8 NOT NULL,
  root <TEXT> NOT NULL,
  scope <TEXT> NOT NULL,
  number bigint NOT NULL,
  id <TEXT>,
  label_before <TEXT>,
  label_after <TEXT>,
  scrubbed boolean NOT NULL DEFAULT false,
  truncated boolean NOT NULL DEFAULT false,
  PRIMARY KEY (xid, root, scope, number)
);

CREATE FUNCTION {S}.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO {S}.transactions(xid) VALUES (pg_current_xact_id()) ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;

CREATE FUNCTION {S}.note_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO {S}.pending(xid, root, scope, number, id, label_after)
    SELECT pg_current_xact_id(), root, scope, nextval('{S}.numbers'), id, <LOGGED NEW> FROM new_rows AS after;
  IF FOUND THEN
    INSERT INTO {S}.transactions(xid) VALUES (pg_current_xact_id()) ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END $$;

-- Rows are paired by hash: a plan made for one row is kept, and pairs ten thousand as well.
CREATE FUNCTION {S}.note_update() RETURNS trigger LANGUAGE plpgsql SET enable_nestloop = off AS $$
BEGIN
  WITH changed AS MATERIALIZED (
    SELECT nextval('{S}.numbers') AS number, before.*, <LOGGED OLD> AS label_before,
      CASE WHEN after.scope = before.scope THEN <LOGGED NEW> END AS label_after
    FROM old_rows AS before LEFT JOIN new_rows AS after ON after.root = before.root AND after.id = before.id
    WHERE after.id IS NULL OR (<NEW COMPARED>) IS DISTINCT FROM (<OLD COMPARED>)
  ), kept AS (
    INSERT INTO {S}.versions(root, id, number, <COLUMNS>)
      SELECT before.root, before.id, before.number, <OLD COLUMNS> FROM changed AS before
  )
  INSERT INTO {S}.pending(xid, root, scope, number, id, label_before, label_after)
    SELECT pg_current_xact_id(), root, scope, number, id, label_before, label_after FROM changed;
  IF FOUND THEN
    INSERT INTO {S}.pending(xid, root, scope, number, id, label_after)
      SELECT pg_current_xact_id(), after.root, after.scope, nextval('{S}.numbers'), after.id, <LOGGED NEW>
      FROM new_rows AS after LEFT JOIN old_rows AS before ON before.root = after.root AND before.id = after.id
      WHERE before.id IS NULL OR before.scope <> after.scope;
    INSERT INTO {S}.transactions(xid) VALUES (pg_current_xact_id()) ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END $$;

CREATE FUNCTION {S}.note_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  WITH gone AS MATERIALIZED (
    SELECT nextval('{S}.numbers') AS number, before.*, <LOGGED OLD> AS label_before FROM old_rows AS before
  ), kept AS (
    INSERT INTO {S}.versions(root, id, number, <COLUMNS>)
      SELECT before.root, before.id, before.number, <OLD COLUMNS> FROM gone AS before
  )
  INSERT INTO {S}.pending(xid, root, scope, number, id, label_before)
    SELECT pg_current_xact_id(), root, scope, number, id, label_before FROM gone;
  IF FOUND THEN
    INSERT INTO {S}.transactions(xid) VALUES (pg_current_xact_id()) ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END $$;

CREATE FUNCTION {S}.note_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'truncate nodes in a read committed transaction: an older snapshot does not see every scope';
  END IF;
  EXECUTE format(
    'INSERT INTO {S}.pending(xid, root, scope, number, scrubbed, truncated)
     SELECT pg_current_xact_id(), root, scope, nextval(''{S}.numbers''), true, true
     FROM (SELECT DISTINCT root, scope FROM %I.%I) AS scopes', TG_TABLE_SCHEMA, TG_TABLE_NAME);
  INSERT INTO {S}.transactions(xid) VALUES (pg_current_xact_id()) ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;

CREATE FUNCTION {S}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'heads must stay: readers compare them';
END $$;

CREATE FUNCTION {S}.move_head(of_root text, of_scope text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  drawn bigint := <NONCE>;
  first bigint;
  last bigint;
  scrubs boolean;
  truncates boolean;
BEGIN
  PERFORM FROM {S}.heads WHERE root = of_root AND scope = of_scope FOR UPDATE;
  IF NOT FOUND THEN
    INSERT INTO {S}.heads(root, scope, seq, nonce) VALUES (of_root, of_scope, 0, 0) ON CONFLICT DO NOTHING;
    PERFORM FROM {S}.heads WHERE root = of_root AND scope = of_scope FOR UPDATE;
  END IF;
  WITH noted AS (
    DELETE FROM {S}.pending WHERE xid = pg_current_xact_id() AND root = of_root AND scope = of_scope
    RETURNING number, id, label_before, label_after, scrubbed, truncated
  ), ordered AS MATERIALIZED (
    SELECT * FROM noted ORDER BY number
  ), numbered AS MATERIALIZED (
    SELECT nextval('{S}.seqs') AS seq, * FROM ordered
  ), logged AS (
    INSERT INTO {S}.changes(root, scope, seq, number, id, label_before, label_after, nonce)
      SELECT of_root, of_scope, seq, number, coalesce(id, ''), label_before, label_after, drawn FROM numbered
  )
  SELECT min(seq), max(seq), bool_or(scrubbed), bool_or(truncated) INTO first, last, scrubs, truncates FROM numbered;
  IF scrubs THEN
    UPDATE {S}.erasures SET ended = logged.seq FROM (
      SELECT id, max(seq) AS seq FROM {S}.changes
      WHERE root = of_root AND scope = of_scope AND seq BETWEEN first AND last GROUP BY id
    ) AS logged
    WHERE erasures.root = of_root AND erasures.scope = of_scope AND erasures.id = logged.id AND erasures.ended IS NULL;
  END IF;
  UPDATE {S}.heads SET seq = last, nonce = drawn,
    delta_floor = CASE WHEN scrubs THEN last ELSE delta_floor END,
    history_floor = CASE WHEN truncates THEN last ELSE history_floor END
  WHERE root = of_root AND scope = of_scope;
END $$;

CREATE FUNCTION {S}.move_heads() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  touched record;
BEGIN
  FOR touched IN
    SELECT DISTINCT root, scope FROM {S}.pending WHERE xid = NEW.xid ORDER BY root, scope
  LOOP
    PERFORM {S}.move_head(touched.root, touched.scope);
  END LOOP;
  INSERT INTO {S}.pulse(count, total) VALUES (1, <NONCE>);
  DELETE FROM {S}.transactions WHERE xid = NEW.xid;
  IF random() < 0.005 AND current_setting('transaction_isolation') = 'read committed'
    AND pg_try_advisory_xact_lock({K}, -1)
  THEN
    WITH beaten AS (DELETE FROM {S}.pulse RETURNING count, total)
    INSERT INTO {S}.pulse(count, total) SELECT sum(count), sum(total) FROM beaten HAVING count(*) > 0;
  END IF;
  RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER transactions_move_heads AFTER INSERT ON {S}.transactions
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {S}.move_heads();
ALTER TABLE {S}.transactions ENABLE ALWAYS TRIGGER transactions_move_heads;
"""

_LINEAGE = """
CREATE TABLE {S}.testimonies(
  root <TEXT> NOT NULL,
  id <TEXT> NOT NULL,
  number bigint NOT NULL,
  kind text NOT NULL CHECK (kind IN ('confirmed', 'outdated')),
  source text,
  recorded_at bigint,
  trust text,
  at bigint NOT NULL,
  properties json NOT NULL DEFAULT '{}',
  scope <TEXT>,
  PRIMARY KEY (root, id, number)
) PARTITION BY HASH (root);

CREATE TABLE {S}.edges(
  root <TEXT> NOT NULL,
  start <TEXT> NOT NULL,
  type <TEXT> NOT NULL,
  end_root <TEXT> NOT NULL,
  "end" <TEXT> NOT NULL,
  scope <TEXT> NOT NULL,
  properties json NOT NULL DEFAULT '{}',
  PRIMARY KEY (root, start, type, end_root, "end")
) PARTITION BY HASH (root);
CREATE INDEX edges_by_end ON {S}.edges(end_root, "end");

CREATE TABLE {S}.marks(key text PRIMARY KEY, value text NOT NULL);
"""

_WAKING = """
-- Until when somebody listens, in seconds of the server's clock.
INSERT INTO {S}.meta(key, value) VALUES ('watched_until', '0');

-- As its owner: a writer needs no right of its own for it.
CREATE FUNCTION {S}.is_watched() RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog AS $$
  SELECT coalesce((
    SELECT value::float8 > extract(epoch FROM clock_timestamp()) FROM {S}.meta WHERE key = 'watched_until'
  ), false)
$$;

-- A prepared transaction cannot notify, and fails where it tries.
CREATE FUNCTION {S}.wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF pg_try_advisory_xact_lock({K}, -3) AND coalesce(current_query(), '') !~* '^\\s*PREPARE\\s+TRANSACTION' THEN
    PERFORM pg_notify('{C}', '');
  END IF;
  RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER transactions_wake AFTER INSERT ON {S}.transactions
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN ({S}.is_watched()) EXECUTE FUNCTION {S}.wake();
ALTER TABLE {S}.transactions ENABLE ALWAYS TRIGGER transactions_wake;
"""

_PARTITIONED: Final[dict[int, tuple[str, ...]]] = {
    1: ("nodes", "changes", "versions", "erasures"),
    2: ("testimonies", "edges"),
    3: (),
}
_NOTED = ("INSERT", "UPDATE", "DELETE")
_IN_TRANSITION = {
    "INSERT": "NEW TABLE AS new_rows",
    "UPDATE": "OLD TABLE AS old_rows NEW TABLE AS new_rows",
    "DELETE": "OLD TABLE AS old_rows",
}


def lock_space(schema: str) -> int:
    """The first half of the keys of a store's advisory locks."""
    return int.from_bytes(hashlib.sha256(b"promptkeel\0" + schema.encode()).digest()[:4], "big", signed=True)


def channel(schema: str) -> str:
    """The channel on which a store's commits are heard of."""
    return f"promptkeel_{schema}"


def quoted(schema: str) -> str:
    """The schema's name as SQL writes it.

    Raises:
        InvalidInputError: it is no name that every client can write without surprises.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", schema) or schema.startswith("pg_"):
        raise InvalidInputError(
            f"must be 1 to 48 of a-z, 0-9 and _, and not begin with a digit or pg_; not {schema!r}", field="schema"
        )
    return f'"{schema}"'


def _filled(text: str, schema: str) -> str:
    for name, value in _FRAGMENTS.items():
        text = text.replace(f"<{name}>", value)
    text = text.replace("{S}", quoted(schema)).replace("{K}", str(lock_space(schema)))
    return text.replace("{C}", channel(schema))


def _partition(schema: str, table: str) -> Iterator[str]:
    for remainder in range(PARTITIONS):
        yield (
            f"CREATE TABLE {quoted(schema)}.{table}_{remainder} PARTITION OF {quoted(schema)}.{table} "
            f"FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {remainder});"
        )


def _without_samples(schema: str) -> Iterator[str]:
    """Keep the planner's statistics from quoting what people said: an erasure could not reach them."""
    columns = {"nodes": "label source", "versions": "label source", "changes": "label_before label_after"}
    for table, names in columns.items():
        for name in names.split():
            yield f"ALTER TABLE {quoted(schema)}.{table} ALTER COLUMN {name} SET STATISTICS 0;"
    for remainder in range(PARTITIONS):
        yield f"ALTER INDEX {quoted(schema)}.nodes_{remainder}_scope_left_id_idx ALTER COLUMN 2 SET STATISTICS 0;"


def _trigger(schema: str, table: str, name: str, when: str, function: str) -> Iterator[str]:
    yield f"CREATE TRIGGER {name} {when} EXECUTE FUNCTION {quoted(schema)}.{function}();"
    yield f"ALTER TABLE {quoted(schema)}.{table} ENABLE ALWAYS TRIGGER {name};"


def _watch(schema: str, step: int) -> Iterator[str]:
    """The triggers of a step. A statement fires those of the table that it names, so each partition has its own."""
    leaves = [str(remainder) for remainder in range(PARTITIONS)]
    if step == 1:
        for table in ("nodes", *(f"nodes_{leaf}" for leaf in leaves)):
            for event in _NOTED:
                when = f"AFTER {event} ON {quoted(schema)}.{table} REFERENCING {_IN_TRANSITION[event]}"
                function = f"note_{event.lower()}"
                yield from _trigger(schema, table, f"nodes_{event.lower()}", f"{when} FOR EACH STATEMENT", function)
        for leaf in leaves:
            before = f"BEFORE TRUNCATE ON {quoted(schema)}.nodes_{leaf} FOR EACH STATEMENT"
            yield from _trigger(schema, f"nodes_{leaf}", "nodes_truncate", before, "note_truncate")
        before = f"BEFORE DELETE OR TRUNCATE ON {quoted(schema)}.heads FOR EACH STATEMENT"
        yield from _trigger(schema, "heads", "heads_stay", before, "refuse")
    for table in ("testimonies", "edges", "marks") if step == 2 else ():
        when = f"AFTER INSERT OR UPDATE OR DELETE ON {quoted(schema)}.{table} FOR EACH ROW"
        yield from _trigger(schema, table, f"{table}_note", when, "note")


def _steps(schema: str) -> list[str]:
    steps: list[str] = []
    for number, text in enumerate((_NODES, _LINEAGE, _WAKING), start=1):
        parts = [_filled(text, schema).strip()]
        for table in _PARTITIONED[number]:
            parts.extend(_partition(schema, table))
        parts.extend(_watch(schema, number))
        if number == 1:
            parts.extend(_without_samples(schema))
        done = "UPDATE {S}.meta SET value = '<NUMBER>' WHERE key = 'schema';".replace("<NUMBER>", str(number))
        parts.append(_filled(done, schema))
        steps.append("\n".join(parts))
    return steps


def schema_sql(schema: str = "promptkeel") -> str:
    """The whole schema as SQL, for someone who applies it by hand."""
    return "\n\n".join(
        [
            f"-- The promptkeel store in schema {schema}.",
            f"BEGIN;\nCREATE SCHEMA IF NOT EXISTS {quoted(schema)};",
            *(f"-- Step {number}\n{step}" for number, step in enumerate(_steps(schema), start=1)),
            "COMMIT;\n",
        ]
    )


_TRIGGERS_SQL: Final = """
SELECT relname, tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE relnamespace = to_regnamespace(%s) AND tgenabled = 'A'"""
_ALTERED = re.compile(r'ALTER TABLE "\w+"\.(\w+) ENABLE ALWAYS TRIGGER (\w+)')


def migrate(connection: psycopg.Connection[Any], schema: str, name: str) -> None:
    """Bring the schema up to date in one transaction, under a lock that only migrations take.

    Args:
        connection: in autocommit.
        schema: the schema's name.
        name: what to call the store in an error.

    Raises:
        NotAStoreError: the schema holds something else, or the database is not in UTF-8.
        NewerSchemaError: it has more steps than this program knows.
        StoreDamagedError: a trigger is missing or disabled, so that heads could not be trusted.
    """
    steps = _steps(schema)
    done = _schema_number(connection, schema, name)
    if done < len(steps):
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s, -2)", (lock_space(schema),))
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
            done = _schema_number(connection, schema, name)
            for step in steps[done:]:
                connection.execute(step)
    elif done > len(steps):
        raise NewerSchemaError(
            f"{name} has schema {done}, made by a newer promptkeel; this one knows up to {len(steps)}: upgrade it"
        )
    missing = missing_triggers(connection, schema)
    if missing:
        raise StoreDamagedError(
            f"{name}: trigger {missing[0][1]} of table {missing[0][0]} is missing or disabled: "
            "heads cannot be trusted; enable it ALWAYS, or restore a backup"
        )


def missing_triggers(connection: psycopg.Connection[Any], schema: str) -> list[tuple[str, str]]:
    """The triggers that are not there, or disabled, each with its table."""
    wanted = {found for step in _steps(schema) for found in _ALTERED.findall(step)}
    return sorted(wanted - set(connection.execute(_TRIGGERS_SQL, (schema,)).fetchall()))


def _schema_number(connection: psycopg.Connection[Any], schema: str, name: str) -> int:
    """How many steps the schema has; 0 where there is nothing yet."""
    asked = """SELECT to_regclass(%s), current_setting('server_encoding'),
    (SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace(%s))"""
    row = connection.execute(asked, (f"{schema}.meta", schema)).fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    if row[1] != "UTF8":
        raise NotAStoreError(f"{name} is a database in {row[1]}; a store needs one with ENCODING 'UTF8'")
    if row[0] is None:
        if row[2]:
            raise NotAStoreError(f"{name}: the schema {schema} holds something else; it was not touched")
        return 0
    try:
        found = dict(connection.execute(_filled("SELECT key, value FROM {S}.meta", schema)).fetchall())
    except (psycopg.errors.UndefinedColumn, ValueError) as error:
        raise NotAStoreError(f"{name}: the schema {schema} holds something else; it was not touched") from error
    if found.get("format") != "promptkeel":
        raise NotAStoreError(f"{name}: the schema {schema} holds something else; it was not touched")
    return int(found["schema"])
