"""A stock client moves heads, log and history like any other writer, whatever it does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from promptkeel.errors import CompactedError
from promptkeel.model import MemoryNode
from promptkeel.store.base import LaneRequest
from promptkeel.store.operations import Put, Remember
from promptkeel.store.postgres import PostgresEngine
from store.examples import ACME, ADA, BOB, CHAIN, OTHER, ids, node

Raw = psycopg.Connection[Any]


def named(engine: PostgresEngine, since: Any, scope: Any = ADA) -> Any:
    changes = engine.changes(scope, since, None).changes
    return None if changes is None else [(c.scope, c.node_id, c.label_before, c.label_after) for c in changes]


def test_an_insert_needs_a_scope_and_a_label(engine: PostgresEngine, raw: Raw) -> None:
    before = engine.heads(ADA)
    raw.execute("INSERT INTO nodes(root, scope, label) VALUES ('org:acme', 'org:acme/user:ada', 'SOUL:raw')")
    (found,) = engine.query_nodes(ADA, None, None)
    assert (found.label, found.state, dict(found.own_properties)) == ("SOUL:raw", "live", {})
    assert found.recorded is not None
    assert engine.heads(ADA) != before
    assert named(engine, before) == [(ADA.path, found.id, None, "SOUL:raw")]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO nodes(root, scope, label) VALUES ('org:other', 'org:acme/user:ada', 'SOUL:raw')",
        "INSERT INTO nodes(root, scope, label, trust) VALUES ('org:acme', 'org:acme', 'SOUL:raw', 'admin')",
        "INSERT INTO nodes(root, scope, label, state) VALUES ('org:acme', 'org:acme', 'SOUL:raw', 'gone')",
        "INSERT INTO nodes(root, scope, label, properties) VALUES ('org:acme', 'org:acme', 'SOUL:raw', '[]')",
        "INSERT INTO nodes(root, scope, label, properties) VALUES ('org:acme', 'org:acme', 'SOUL:raw', '{')",
        "INSERT INTO nodes(root, scope, label, id) VALUES ('org:acme', 'org:acme', 'SOUL:raw', '')",
        "INSERT INTO nodes(root, scope, label, recorded_at) VALUES ('org:acme', 'org:acme', 'SOUL:raw', 9e18)",
        "UPDATE nodes SET root = 'org:other' WHERE id = 'n1'",
        "DELETE FROM heads",
        "TRUNCATE heads",
    ],
)
def test_what_no_store_could_read_is_refused(engine: PostgresEngine, raw: Raw, statement: str) -> None:
    engine.apply([Put(node())])
    before = (engine.heads(ADA), engine.query_nodes(ADA, None, None))
    with pytest.raises(psycopg.Error):
        raw.execute(statement)
    assert (engine.heads(ADA), engine.query_nodes(ADA, None, None)) == before


def test_updates_deletes_and_moves_are_logged_and_kept(engine: PostgresEngine, raw: Raw) -> None:
    engine.apply([Put(node("a", "SOUL:a")), Put(node("b", "SOUL:b")), Put(node("c", "SOUL:c"))])
    first = engine.heads(ADA)
    lane = engine.query_nodes(ADA, None, None)
    raw.execute("UPDATE nodes SET label = 'RULE:a' WHERE id = 'a'")
    raw.execute("UPDATE nodes SET scope = 'org:acme/user:bob' WHERE id = 'b'")
    raw.execute("UPDATE nodes SET root = 'org:other', scope = 'org:other/user:ada' WHERE id = 'c'")
    assert named(engine, first) == [
        (ADA.path, "a", "SOUL:a", "RULE:a"),
        (ADA.path, "b", "SOUL:b", None),
        (ADA.path, "c", "SOUL:c", None),
    ]
    assert [ids(engine.query_nodes(scope, None, None)) for scope in (ADA, BOB, OTHER)] == [["a"], ["b"], ["c"]]
    second = engine.heads(ADA)
    raw.execute("DELETE FROM nodes WHERE id = 'a'")
    assert named(engine, second) == [(ADA.path, "a", "RULE:a", None)]
    assert list(engine.nodes_as_of(ADA, first, None).nodes) == lane
    assert [each.label for each in engine.nodes_as_of(ADA, second, None).nodes] == ["RULE:a"]


def test_many_rows_of_many_scopes_in_one_statement(engine: PostgresEngine, raw: Raw) -> None:
    engine.apply([Put(node(f"n{number}", f"SOUL:{number}", scope=scope)) for number, scope in enumerate(CHAIN)])
    before = engine.heads(ADA)
    engine.catch_up(ADA, [LaneRequest("SOUL:")])
    raw.execute("UPDATE nodes SET source = 'raw', state = 'live' WHERE label LIKE 'SOUL:%'")
    (update,) = engine.catch_up(ADA, [LaneRequest("SOUL:", before)]).lanes
    assert (update.whole, [row[2] for row in update.rows]) == (False, ["n0", "n1", "n2"])
    assert {row[4] for row in update.rows} == {"raw"}


def test_an_upsert_a_merge_and_a_copy_are_seen(engine: PostgresEngine, raw: Raw) -> None:
    engine.apply([Put(node("a", "SOUL:a"))])
    insert = "INSERT INTO nodes(root, scope, label, id) VALUES ('org:acme', 'org:acme/user:ada', %s, 'a')"
    since = engine.heads(ADA)
    raw.execute(insert + " ON CONFLICT (root, id) DO UPDATE SET label = excluded.label", ("SOUL:z",))
    assert named(engine, since) == [(ADA.path, "a", "SOUL:a", "SOUL:z")]
    since = engine.heads(ADA)
    raw.execute(insert + " ON CONFLICT DO NOTHING", ("SOUL:y",))
    assert engine.heads(ADA) == since
    raw.execute("""MERGE INTO nodes
    USING (VALUES ('a'), ('b')) AS given(id) ON nodes.id = given.id AND root = 'org:acme'
    WHEN MATCHED THEN DELETE
    WHEN NOT MATCHED THEN INSERT (root, scope, label, id) VALUES ('org:acme', 'org:acme/user:ada', 'SOUL:b', 'b')""")
    assert sorted(named(engine, since)) == [(ADA.path, "a", "SOUL:z", None), (ADA.path, "b", None, "SOUL:b")]
    since = engine.heads(ADA)
    with raw.cursor().copy("COPY nodes(root, scope, label, id) FROM STDIN") as copy:
        copy.write_row(("org:acme", "org:acme/user:ada", "SOUL:c", "c"))
    assert named(engine, since) == [(ADA.path, "c", None, "SOUL:c")]


def test_an_update_to_the_same_moves_nothing(engine: PostgresEngine, raw: Raw) -> None:
    engine.apply([Put(node(properties={"a": 1}))])
    before, token = engine.heads(ADA), engine.probe()
    raw.execute("UPDATE nodes SET label = label, properties = properties")
    assert (engine.heads(ADA), engine.probe()) == (before, token)


def test_one_partition_is_watched_like_the_table(engine: PostgresEngine, raw: Raw) -> None:
    engine.apply([Put(node("a")), Put(node("b"))])
    ((partition,),) = raw.execute("SELECT DISTINCT tableoid::regclass::text FROM nodes").fetchall()
    since = engine.heads(ADA)
    raw.execute(f"UPDATE {partition} SET label = 'SOUL:changed' WHERE id = 'a'")
    raw.execute(f"DELETE FROM {partition} WHERE id = 'b'")
    assert [change[1:] for change in named(engine, since)] == [
        ("a", "SOUL:prefers tea", "SOUL:changed"),
        ("b", "SOUL:prefers tea", None),
    ]


def test_what_a_savepoint_takes_back_is_not_logged(engine: PostgresEngine, connect: Callable[[], Raw]) -> None:
    client = connect()
    since = engine.heads(ADA)
    insert = "INSERT INTO nodes(root, scope, label, id) VALUES ('org:acme', 'org:acme/user:ada', 'SOUL:x', %s)"
    client.execute("SAVEPOINT a")
    client.execute(insert, ("gone",))
    client.execute("ROLLBACK TO a")
    client.execute(insert, ("kept",))
    client.execute("SAVEPOINT b")
    client.execute(insert, ("gone too",))
    client.execute("ROLLBACK TO b")
    client.commit()
    assert named(engine, since) == [(ADA.path, "kept", None, "SOUL:x")]
    assert raw_count(client, "pending") == raw_count(client, "transactions") == 0


def raw_count(client: Raw, table: str) -> int:
    ((count,),) = client.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(count)


def test_checked_early_and_written_again_is_logged_twice(engine: PostgresEngine, connect: Callable[[], Raw]) -> None:
    client = connect()
    since = engine.heads(ADA)
    insert = "INSERT INTO nodes(root, scope, label, id) VALUES ('org:acme', 'org:acme/user:ada', 'SOUL:x', %s)"
    client.execute(insert, ("a",))
    client.execute("SET CONSTRAINTS ALL IMMEDIATE")
    client.execute(insert, ("b",))
    client.commit()
    assert [change[1] for change in named(engine, since)] == ["a", "b"]


@pytest.mark.parametrize("partition", [False, True])
def test_truncate_moves_every_head_and_ends_the_log(engine: PostgresEngine, raw: Raw, partition: bool) -> None:
    engine.apply([Put(node(f"n{number}", scope=scope)) for number, scope in enumerate((ACME, ADA, BOB))])
    before = {scope: engine.heads(scope) for scope in (ACME, ADA, BOB, OTHER)}
    ((table,),) = raw.execute("SELECT DISTINCT tableoid::regclass::text FROM nodes").fetchall()
    raw.execute(f"TRUNCATE {table if partition else 'nodes'}")
    for scope in (ACME, ADA, BOB):
        assert all(
            now != past for now, past in zip(engine.heads(scope).levels[1:], before[scope].levels[1:], strict=True)
        )
        assert engine.changes(scope, before[scope], None).changes is None
        assert engine.query_nodes(scope, None, None) == []
        with pytest.raises(CompactedError):
            engine.nodes_as_of(scope, before[scope], None)
    assert engine.heads(OTHER) == before[OTHER]
    engine.apply([Put(node())])
    assert ids(engine.query_nodes(ADA, None, None)) == ["n1"]


def test_a_truncate_that_could_miss_a_scope_is_refused(engine: PostgresEngine, connect: Callable[[], Raw]) -> None:
    client = connect()
    client.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    engine.apply([Put(node())])
    with pytest.raises(psycopg.errors.RaiseException, match="read committed"):
        client.execute("TRUNCATE nodes")


def test_a_replicas_role_does_not_silence_the_triggers(engine: PostgresEngine, raw: Raw) -> None:
    engine.apply([Put(node())])
    before = engine.heads(ADA)
    raw.execute("SET session_replication_role = replica")
    raw.execute("UPDATE nodes SET label = 'SOUL:quietly'")
    assert engine.heads(ADA) != before
    assert named(engine, before) == [(ADA.path, "n1", "SOUL:prefers tea", "SOUL:quietly")]


def test_json_is_kept_as_it_was_written(engine: PostgresEngine, raw: Raw) -> None:
    text = '{"b": 1.0,  "a": [true, null], "c": -0.0, "d": 12345678901234567890123}'
    raw.execute("INSERT INTO nodes(root, scope, label, id, properties) VALUES ('', '', 'SOUL:x', 'x', %s)", (text,))
    ((row,),) = (lane.rows for lane in engine.catch_up(ADA, [LaneRequest("")]).lanes)
    assert row[7] == text
    found: MemoryNode = engine.get(ADA, "x")
    assert repr(dict(found.own_properties)["c"]) == "-0.0"
    assert raw.execute("SELECT properties ->> 'd' FROM nodes WHERE id = 'x'").fetchall() == [
        ("12345678901234567890123",)
    ]


def test_a_label_may_be_longer_than_an_index_entry(engine: PostgresEngine) -> None:
    random_ = random.Random(1)
    label = "SOUL:" + "".join(chr(random_.randrange(0x4E00, 0x9FFF)) for _ in range(20_000))
    engine.apply([Put(node("a", label)), Put(node("b", label + "x")), Put(node("c", label[:10_000] + "\uffff"))])
    for prefix, expected in ((label, ["a", "b"]), (label[:9000], ["a", "b", "c"]), (label + "x", ["b"])):
        assert ids(engine.query_nodes(ADA, prefix, None)) == expected
        (whole,) = engine.catch_up(ADA, [LaneRequest(prefix)]).lanes
        assert sorted(row[2] for row in whole.rows) == expected
    (outcome,) = engine.apply([Remember(node("d", label, source="again"))])
    assert outcome.kind == "confirmed"


def test_the_probe_moves_with_every_raw_commit(engine: PostgresEngine, raw: Raw, connect: Callable[[], Raw]) -> None:
    engine.apply([Put(node("a")), Put(node("b"))])
    seen = {engine.probe()}
    for statement in (
        "INSERT INTO edges VALUES ('org:acme', 'a', 'about', 'org:acme', 'b', 'org:acme')",
        "UPDATE edges SET properties = '{\"w\": 1}'",
        "DELETE FROM edges",
        "INSERT INTO marks VALUES ('place', '1')",
        "UPDATE nodes SET source = 'x' WHERE id = 'a'",
        "DELETE FROM nodes WHERE id = 'b'",
    ):
        raw.execute(statement)
        token = engine.probe()
        assert token not in seen, statement
        seen.add(token)
    client = connect()
    client.execute("UPDATE nodes SET source = 'y'")
    client.rollback()
    assert engine.probe() == token


def test_beats_are_gathered_and_the_probe_stays(engine: PostgresEngine, raw: Raw) -> None:
    mark = "INSERT INTO marks VALUES ('place', %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    for number in range(3000):
        raw.execute(mark, (str(number),))
    ((rows, beats),) = raw.execute("SELECT count(*), sum(count) FROM pulse").fetchall()
    assert rows < beats == 3000
