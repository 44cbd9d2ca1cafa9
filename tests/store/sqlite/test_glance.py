"""A short read tells the truth: what it calls untouched is, and what it follows equals a fresh scan."""

from __future__ import annotations

import tempfile
from pathlib import Path

import apsw
from hypothesis import example, given
from hypothesis import strategies as st

from promptkeel.instants import system_clock
from promptkeel.lane import Lane
from promptkeel.scope import TenantScope
from promptkeel.store.base import LaneRequest
from promptkeel.store.sqlite import SqliteEngine
from promptkeel.store.sqlite_glance import glance, glance_statements

ADA = TenantScope.parse("org:acme/user:ada")
SCOPES = ("", "org:acme", "org:acme/user:ada", "org:acme/user:bob")
PREFIXES = ("SOUL:", "FOCUS:", "S")
LABELS = ("SOUL:tea", "SOUL:sea", "FOCUS:audit", "EVENT:met", "SO")
EDIT = st.one_of(
    st.tuples(st.just("insert"), st.sampled_from(SCOPES), st.sampled_from(LABELS), st.integers(0, 1)),
    st.tuples(st.just("label"), st.sampled_from(SCOPES), st.sampled_from(LABELS), st.integers(0, 1)),
    st.tuples(st.just("state"), st.sampled_from(SCOPES), st.sampled_from(("live", "retracted")), st.integers(0, 1)),
    st.tuples(st.just("delete"), st.sampled_from(SCOPES), st.just(""), st.integers(0, 1)),
    st.tuples(st.just("trim"), st.just(""), st.just(""), st.just(0)),
)


def run(connection: apsw.Connection, edit: tuple[str, str, str, int]) -> None:
    action, scope, value, number = edit
    match action:
        case "insert":
            connection.execute(
                "INSERT OR REPLACE INTO nodes(scope, label, id) VALUES (?, ?, ?)", (scope, value, str(number))
            )
        case "delete":
            connection.execute("DELETE FROM nodes WHERE scope = ? AND id = ?", (scope, str(number)))
        case "trim":
            connection.execute(
                "UPDATE meta SET value = coalesce((SELECT max(seq) FROM changes), 0) WHERE key = 'delta_floor'"
            )
        case _:
            connection.execute(f"UPDATE nodes SET {action} = ? WHERE scope = ? AND id = ?", (value, scope, str(number)))


@example([("insert", "org:acme", "SOUL:tea", 0)], [("delete", "org:acme", "", 0)])
@example([("insert", "org:acme", "SOUL:tea", 0)], [("label", "org:acme", "EVENT:met", 0)])
@given(st.lists(EDIT, max_size=12), st.lists(EDIT, max_size=2))
def test_what_a_short_read_says_equals_a_fresh_scan(before, after):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        engine = SqliteEngine(f"sqlite:///{path}", clock=system_clock)
        other = apsw.Connection(str(path))
        other.pragma("synchronous", "OFF")
        for edit in before:
            run(other, edit)
        kept = engine.catch_up(ADA, [LaneRequest(prefix) for prefix in PREFIXES])
        lanes = [Lane.build(one.rows, prefix=prefix) for prefix, one in zip(PREFIXES, kept.lanes, strict=True)]
        for edit in after:
            run(other, edit)
        requests = [LaneRequest(prefix, kept.heads) for prefix in PREFIXES]
        found = engine.tail(ADA, requests)
        fresh = engine.catch_up(ADA, [LaneRequest(prefix) for prefix in PREFIXES])
        untouched = glance(other, ADA, requests, 2000)
        if found is not None:
            assert found.heads == fresh.heads
            for prefix, lane, change, whole in zip(PREFIXES, lanes, found.lanes, fresh.lanes, strict=True):
                now = Lane.build(whole.rows, prefix=prefix)
                followed = lane.updated(change)
                assert (followed.revision, followed.facts) == (now.revision, now.facts)
        if untouched is not None:
            assert found == untouched
            assert not any(change.touched for change in untouched.lanes)
        other.close()
        engine.close()


def test_a_glance_looks_only_at_the_end_of_the_log(tmp_path):
    engine = SqliteEngine(f"sqlite:///{tmp_path / 'memory.db'}", clock=system_clock)
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    chain = ADA.chain
    arguments = (*chain, 0, 0, 0, 0, 2000, *chain)
    plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + glance_statements(3)[1], arguments)]
    on_the_log = [line for line in plan if "changes" in line]
    assert on_the_log == [
        "SEARCH changes",
        "SEARCH changes USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH changes USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    ]
    connection.close()
    engine.close()
