"""Whatever a stock SQLite client does to a row, heads, log and history move as if the store had done it."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.errors import NodeErasedError, NodeNotFoundError, StoreDamagedError
from promptkeel.instants import system_clock
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.base import Heads, LaneRequest
from promptkeel.store.operations import Erase, Remember
from promptkeel.store.sqlite import SqliteEngine
from store.stock_client import StockClient

ADA = TenantScope.parse("org:acme/user:ada")
BOB = TenantScope.parse("org:acme/user:bob")
ZOE = TenantScope.parse("org:other/user:zoe")
SCOPES = ("", "org:acme", ADA.path, BOB.path, ZOE.path)


def heads_of(engine: SqliteEngine, *scopes: TenantScope) -> list[Heads]:
    return [engine.heads(scope) for scope in scopes]


def check_log(raw: StockClient) -> None:
    """Heads are the last of the log at each scope."""
    logged = raw.execute("SELECT scope, seq, nonce FROM changes GROUP BY scope HAVING seq = max(seq) ORDER BY scope")
    assert logged.fetchall() == raw.execute("SELECT scope, seq, nonce FROM heads ORDER BY scope").fetchall()


def insert(raw: StockClient, **columns: Any) -> None:
    columns = {"scope": ADA.path, "label": "SOUL:likes tea", "id": "n1"} | columns
    names = ", ".join(columns)
    raw.execute(f"INSERT INTO nodes({names}) VALUES ({', '.join('?' * len(columns))})", tuple(columns.values()))


def last_changes(raw: StockClient, count: int) -> list[tuple[Any, ...]]:
    rows = raw.execute(
        "SELECT scope, id, label_before, label_after FROM changes ORDER BY seq DESC LIMIT ?", (count,)
    ).fetchall()
    return rows[::-1]


def test_a_person_names_scope_and_label_only(engine: SqliteEngine, raw: StockClient) -> None:
    before = system_clock()
    raw.execute("INSERT INTO nodes(scope, label) VALUES ('org:acme/user:ada', 'SOUL:likes tea')")
    (node,) = engine.query_nodes(ADA, "SOUL:", None)
    assert before - 2000 <= node.created <= system_clock() + 2000
    assert node.recorded == node.updated == node.created
    assert (node.source, node.trust, dict(node.own_properties), node.state) == (None, None, {}, "live")
    assert len(node.id) == 32
    assert last_changes(raw, 2) == [(ADA.path, node.id, None, "SOUL:likes tea")]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("label", "PREFERENCE:tea"),
        ("label", "SOUL:likes coffee"),
        ("source", "shell"),
        ("recorded_at", 5),
        ("recorded_at", None),
        ("trust", "operator"),
        ("created_at", 7),
        ("updated_at", 9),
        ("state", "retracted"),
        ("properties", '{"role":"CTO"}'),
    ],
)
def test_each_column_is_a_change(engine: SqliteEngine, raw: StockClient, column: str, value: Any) -> None:
    insert(raw)
    before = engine.heads(ADA)
    old = engine.get(ADA, "n1")
    raw.execute(f"UPDATE nodes SET {column} = ?", (value,))
    assert engine.heads(ADA).seq == before.seq + 1
    assert engine.history(ADA, "n1").versions == (old, engine.get(ADA, "n1"))
    assert engine.history(ADA, "n1").versions[0].version == old.version
    assert engine.nodes_as_of(ADA, before, "SOUL:").nodes == (old,)
    check_log(raw)


def test_an_update_to_the_same_is_no_change(engine: SqliteEngine, raw: StockClient) -> None:
    insert(raw, source="shell", trust="user")
    before = engine.heads(ADA)
    raw.execute("UPDATE nodes SET label = label, source = source, properties = properties, scope = scope, id = id")
    assert engine.heads(ADA) == before
    assert raw.execute("SELECT count(*) FROM versions").fetchone() == (0,)


def test_a_relabelled_node_is_touched_in_both_lanes(engine: SqliteEngine, raw: StockClient) -> None:
    insert(raw)
    since = engine.heads(ADA)
    raw.execute("UPDATE nodes SET label = 'PREFERENCE:tea'")
    requests = [LaneRequest("SOUL:", since), LaneRequest("PREFERENCE:", since), LaneRequest("FOCUS:", since)]
    soul, preference, focus = engine.catch_up(ADA, requests).lanes
    assert (soul.rows, soul.touched, soul.whole) == ([], (("org:acme", "n1"),), False)
    assert ([row[0] for row in preference.rows], preference.touched) == (["PREFERENCE:tea"], (("org:acme", "n1"),))
    assert (focus.rows, focus.touched) == ([], ())
    assert engine.tail(ADA, requests) == engine.catch_up(ADA, requests)


@pytest.mark.parametrize("target", [BOB, ZOE])
def test_a_moved_node_moves_both_heads(engine: SqliteEngine, raw: StockClient, target: TenantScope) -> None:
    insert(raw)
    before = heads_of(engine, ADA, target)
    old = engine.get(ADA, "n1")
    raw.execute("UPDATE nodes SET scope = ?", (target.path,))
    after = heads_of(engine, ADA, target)
    assert all(old_heads != new_heads for old_heads, new_heads in zip(before, after, strict=True))
    assert last_changes(raw, 2) == [
        (ADA.path, "n1", "SOUL:likes tea", None),
        (target.path, "n1", None, "SOUL:likes tea"),
    ]
    assert engine.nodes_as_of(ADA, before[0], "SOUL:").nodes == (old,)
    assert engine.nodes_as_of(target, before[1], "SOUL:").nodes == ()
    check_log(raw)


def test_a_renamed_node_is_one_gone_and_one_new(engine: SqliteEngine, raw: StockClient) -> None:
    insert(raw)
    before = engine.heads(ADA)
    raw.execute("UPDATE nodes SET id = 'n2'")
    assert last_changes(raw, 2) == [(ADA.path, "n1", "SOUL:likes tea", None), (ADA.path, "n2", None, "SOUL:likes tea")]
    assert [node.id for node in engine.nodes_as_of(ADA, before, "SOUL:").nodes] == ["n1"]


@pytest.mark.parametrize("outer", ["INSERT OR REPLACE", "REPLACE"])
def test_the_row_that_replace_takes_away_is_kept_and_logged(engine: SqliteEngine, raw: StockClient, outer: str) -> None:
    insert(raw)
    before = heads_of(engine, ADA, BOB)
    old = engine.get(ADA, "n1")
    raw.execute(f"{outer} INTO nodes(scope, label, id) VALUES ('{BOB.path}', 'SOUL:likes coffee', 'n1')")
    assert all(one != two for one, two in zip(before, heads_of(engine, ADA, BOB), strict=True))
    assert last_changes(raw, 2) == [
        (ADA.path, "n1", "SOUL:likes tea", None),
        (BOB.path, "n1", None, "SOUL:likes coffee"),
    ]
    assert engine.nodes_as_of(ADA, before[0], "SOUL:").nodes == (old,)
    assert engine.query_nodes(ADA, "SOUL:", None) == []
    assert [version.label for version in engine.history(BOB, "n1").versions] == ["SOUL:likes coffee"], "not Ada's"
    check_log(raw)


def test_the_row_that_an_update_replaces_is_kept_and_logged(engine: SqliteEngine, raw: StockClient) -> None:
    insert(raw)
    insert(raw, id="n2", scope=BOB.path, label="SOUL:likes coffee")
    before = engine.heads(BOB)
    raw.execute("UPDATE OR REPLACE nodes SET id = 'n2' WHERE id = 'n1'")
    assert engine.heads(BOB) != before
    assert [node.label for node in engine.nodes_as_of(BOB, before, "SOUL:").nodes] == ["SOUL:likes coffee"]
    assert engine.query_nodes(BOB, "SOUL:", None) == []
    check_log(raw)


@pytest.mark.parametrize("outer", ["INSERT", "INSERT OR IGNORE", "INSERT OR FAIL", "INSERT OR ROLLBACK"])
def test_a_conflict_clause_does_not_reach_the_heads(engine: SqliteEngine, raw: StockClient, outer: str) -> None:
    """SQLite applies the outer statement's clause to what its triggers write."""
    insert(raw)
    before = engine.heads(ADA)
    raw.execute(f"{outer} INTO nodes(scope, label, id) VALUES ('{ADA.path}', 'SOUL:likes milk', 'n2')")
    assert engine.heads(ADA).seq == before.seq + 1
    check_log(raw)


def test_an_upsert_is_a_change(engine: SqliteEngine, raw: StockClient) -> None:
    insert(raw)
    before = engine.heads(ADA)
    raw.execute(
        "INSERT INTO nodes(scope, label, id) VALUES (?, 'SOUL:likes tea', 'n1') "
        "ON CONFLICT DO UPDATE SET label = 'SOUL:likes coffee'",
        (ADA.path,),
    )
    assert engine.heads(ADA) != before
    assert [node.label for node in engine.nodes_as_of(ADA, before, "SOUL:").nodes] == ["SOUL:likes tea"]
    assert [version.label for version in engine.history(ADA, "n1").versions] == ["SOUL:likes tea", "SOUL:likes coffee"]
    check_log(raw)


def test_an_ignored_insert_leaves_the_node_as_it_was(engine: SqliteEngine, raw: StockClient) -> None:
    insert(raw)
    since, old = engine.heads(ADA), engine.get(ADA, "n1")
    raw.execute("INSERT OR IGNORE INTO nodes(scope, label, id) VALUES (?, 'SOUL:other', 'n1')", (ADA.path,))
    (lane,) = engine.catch_up(ADA, [LaneRequest("SOUL:", since)]).lanes
    assert [row[0] for row in lane.rows] == ["SOUL:likes tea"]
    assert engine.nodes_as_of(ADA, since, "SOUL:").nodes == (old,)
    assert engine.nodes_as_of(ADA, engine.heads(ADA), "SOUL:").nodes == (old,)
    assert engine.history(ADA, "n1").versions == (old,)
    check_log(raw)


def test_deleting_all_logs_each(engine: SqliteEngine, raw: StockClient) -> None:
    for number, scope in enumerate((ADA, BOB, ZOE)):
        insert(raw, id=f"n{number}", scope=scope.path)
    before = heads_of(engine, ADA, BOB, ZOE)
    raw.execute("DELETE FROM nodes")
    for scope, heads in zip((ADA, BOB, ZOE), before, strict=True):
        assert engine.heads(scope) != heads
        assert [node.label for node in engine.nodes_as_of(scope, heads, "SOUL:").nodes] == ["SOUL:likes tea"]
    check_log(raw)


def test_a_refused_or_rolled_back_edit_moves_nothing(engine: SqliteEngine, raw: StockClient) -> None:
    insert(raw)
    before = engine.heads(ADA)
    with pytest.raises(sqlite3.IntegrityError):
        insert(raw, label="SOUL:other")
    raw.execute("BEGIN")
    raw.execute("DELETE FROM nodes")
    raw.execute("ROLLBACK")
    assert engine.heads(ADA) == before
    assert raw.execute("SELECT count(*) FROM versions").fetchone() == (0,)


def test_the_log_keeps_its_last_row(engine: SqliteEngine, raw: StockClient) -> None:
    insert(raw)
    insert(raw, id="n2")
    with pytest.raises(sqlite3.IntegrityError, match="last row"):
        raw.execute("DELETE FROM changes")
    raw.execute("DELETE FROM changes WHERE seq < (SELECT max(seq) FROM changes)")
    insert(raw, id="n3")
    assert engine.heads(ADA).seq == 3


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("recorded_at", 10**18),
        ("created_at", -(10**18)),
        ("trust", "admin"),
        ("state", "gone"),
        ("properties", "[]"),
        ("properties", "no json"),
        ("id", ""),
    ],
)
def test_a_row_that_no_node_could_be_is_refused(raw: StockClient, column: str, value: Any) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        insert(raw, **{column: value})


def test_bytes_that_are_not_utf8_cost_that_one_row(engine: SqliteEngine, raw: StockClient) -> None:
    insert(raw, properties='{"a":1}')
    since = engine.heads(ADA)
    for name in ("label", "source", "id"):
        values = {"label": "'SOUL:x'", "id": f"'bad {name}'", "source": "'s'"}
        values[name] = "CAST(x'534F554C3A62ff64' AS TEXT)"
        raw.execute(
            f"INSERT INTO nodes(scope, label, id, source) VALUES ('{ADA.path}', "
            f"{values['label']}, {values['id']}, {values['source']})"
        )
    whole = engine.catch_up(ADA, [LaneRequest("SOUL:")]).lanes[0]
    assert whole.whole
    assert len(whole.rows) == 4
    assert ("SOUL:b\udcffd", "bad label") in [(row[0], row[2]) for row in whole.rows]
    assert whole.rows == engine.catch_up(ADA, [LaneRequest("SOUL:", since)]).lanes[0].rows
    assert engine.tail(ADA, [LaneRequest("SOUL:", since)]) is None
    assert [change.node_id for change in engine.changes(ADA, since, None).changes] == [
        "bad label",
        "bad source",
        "SOUL:b\udcffd",
    ]
    with pytest.raises(StoreDamagedError, match="node 'bad label' at scope org:acme/user:ada: label: is not UTF-8"):
        engine.query_nodes(ADA, "SOUL:", None)
    with pytest.raises(StoreDamagedError, match="source: is not UTF-8"):
        engine.get(ADA, "bad source")
    assert engine.get(ADA, "n1").label == "SOUL:likes tea"


def test_text_that_no_node_can_hold_is_named(engine: SqliteEngine, raw: StockClient) -> None:
    insert(raw, label="SOUL:bell\x07")
    with pytest.raises(StoreDamagedError, match=r"node 'n1' at scope org:acme/user:ada: label: .*U\+0007"):
        engine.get(ADA, "n1")
    assert [row[0] for row in engine.catch_up(ADA, [LaneRequest("SOUL:")]).lanes[0].rows] == ["SOUL:bell\x07"]


IDS, LABELS = ("a", "b", "c"), ("SOUL:1", "SOUL:2", "PREFERENCE:1")
ids, labels, scopes = st.sampled_from(IDS), st.sampled_from(LABELS), st.sampled_from(SCOPES)
edits = st.one_of(
    st.tuples(
        st.sampled_from(["INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE"]).map(
            lambda outer: f"{outer} INTO nodes(scope, label, id) VALUES (?, ?, ?)"
        ),
        st.tuples(scopes, labels, ids),
    ),
    st.tuples(
        st.just(
            "INSERT INTO nodes(scope, label, id) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET label = excluded.label, "
            "scope = excluded.scope"
        ),
        st.tuples(scopes, labels, ids),
    ),
    st.tuples(
        st.sampled_from(["UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE"]).map(
            lambda outer: f"{outer} nodes SET scope = ?, id = ? WHERE id = ?"
        ),
        st.tuples(scopes, ids, ids),
    ),
    st.tuples(st.just("UPDATE nodes SET label = ? WHERE id = ?"), st.tuples(labels, ids)),
    st.tuples(
        st.just("UPDATE nodes SET state = ? WHERE id = ?"),
        st.tuples(st.sampled_from(["live", "retracted"]), ids),
    ),
    st.tuples(st.just("UPDATE nodes SET source = 'x' WHERE scope = ?"), st.tuples(scopes)),
    st.tuples(st.just("DELETE FROM nodes WHERE id = ?"), st.tuples(ids)),
    st.tuples(st.just("DELETE FROM nodes"), st.just(())),
)


def model_of(raw: StockClient, scope: TenantScope) -> list[tuple[Any, ...]]:
    """The lane by the plainest of queries."""
    rows = raw.execute("SELECT label, recorded_at, id, scope, source FROM nodes WHERE state = 'live'").fetchall()
    return sorted(row for row in rows if row[3] in scope.chain and row[0].startswith("SOUL:"))


@given(st.lists(st.lists(edits, min_size=1, max_size=3), min_size=1, max_size=8))
def test_any_edits_leave_every_past_lane_and_every_difference_right(
    stock_client: StockClient, transactions: list[list[Any]]
) -> None:
    watchers = (ADA, BOB, ZOE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        engine = SqliteEngine(f"sqlite:///{path}", clock=system_clock)
        raw = stock_client.connect(path)
        try:
            seen: list[tuple[TenantScope, Heads, list[Any]]] = []
            for transaction in [[], *transactions]:
                raw.execute("BEGIN")
                for text, arguments in transaction:
                    with contextlib.suppress(sqlite3.IntegrityError):
                        raw.execute(text, arguments)
                raw.execute("COMMIT")
                seen.extend((scope, engine.heads(scope), model_of(raw, scope)) for scope in watchers)
            check_log(raw)
            for scope, heads, rows in seen:
                past = engine.nodes_as_of(scope, heads, "SOUL:").nodes
                assert sorted((n.label, n.recorded, n.id, n.scope.path, n.source) for n in past) == rows
                (lane,) = engine.catch_up(scope, [LaneRequest("SOUL:", heads)]).lanes
                assert not lane.whole
                kept = [row for row in rows if (row[3].partition("/")[0], row[2]) not in lane.touched]
                assert sorted(kept + [row[:5] for row in lane.rows]) == model_of(raw, scope)
            for one in seen:
                for two in seen:
                    if one[:2] == two[:2]:
                        assert one[2] == two[2]
        finally:
            raw.close()
            engine.close()


def test_what_was_said_of_a_node_is_not_shown_to_whoever_has_its_id_next(
    engine: SqliteEngine, raw: StockClient
) -> None:
    def remember(scope: TenantScope, source: str) -> str:
        (outcome,) = engine.apply([Remember(MemoryNode(id="n1", scope=scope, label="SOUL:x", source=source))])
        return outcome.kind

    for source in ("ada", "ada's doctor"):
        remember(ADA, source)
    assert [said.source for said in engine.history(ADA, "n1").testimonies] == ["ada's doctor"]
    raw.execute("DELETE FROM nodes")
    remember(BOB, "bob")
    assert engine.history(BOB, "n1").testimonies == ()
    assert remember(BOB, "ada's doctor") == "confirmed", "nobody has said so of this one"
    assert [said.scope for said in engine.history(BOB, "n1").testimonies] == [BOB.path]
    raw.execute("UPDATE nodes SET scope = ?", (ADA.path,))
    assert [said.scope for said in engine.history(ADA, "n1").testimonies] == [ADA.path]


def test_a_node_that_raw_sql_has_deleted_is_erased_by_its_id_as_long_as_history_holds_it(
    engine: SqliteEngine, raw: StockClient, path: Path
) -> None:
    insert(raw, label="SOUL:a secret that stays behind")
    raw.execute("UPDATE nodes SET label = 'SOUL:another secret'")
    raw.execute("DELETE FROM nodes")
    for scope in (BOB, ZOE, TenantScope.parse("org:acme")):
        with pytest.raises(NodeNotFoundError):
            engine.apply([Erase(scope, "n1")])
    (outcome,) = engine.apply([Erase(ADA, "n1")])
    assert outcome.receipt is not None
    assert (outcome.receipt.node_id, outcome.receipt.scope, outcome.receipt.versions) == ("n1", ADA.path, 2)
    assert raw.execute("SELECT * FROM versions").fetchall() == []
    assert (
        raw.execute("SELECT label_before, label_after FROM changes WHERE id = 'n1'").fetchall().count((None, None)) == 3
    )
    with pytest.raises(NodeErasedError):
        engine.apply([Erase(ADA, "n1")])


def test_what_is_left_of_a_node_is_not_erased_with_the_node_that_has_its_id_now(
    engine: SqliteEngine, raw: StockClient
) -> None:
    insert(raw)
    raw.execute("DELETE FROM nodes")
    insert(raw, scope=BOB.path)
    with pytest.raises(NodeNotFoundError):
        engine.apply([Erase(ADA, "n1")])
    assert engine.get(BOB, "n1").label == "SOUL:likes tea"
