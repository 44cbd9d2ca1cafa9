"""What must be cheap is: a lane is a range, a difference is the end of the log, a probe is one pragma."""

from __future__ import annotations

import json

import apsw
import pytest

from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.base import LaneRequest
from promptkeel.store.operations import Put
from promptkeel.store.sqlite import SqliteEngine
from promptkeel.store.sqlite_reads import HEADS_SQL, LANE_SQL, NODES_OF_SQL, OPEN_LANE_SQL, TOUCHED_SQL, statement

ADA = TenantScope.parse("org:acme/user:ada")


def plan(engine: SqliteEngine, text: str, arguments: tuple[object, ...]) -> list[str]:
    with engine._connections.reading() as connection:
        return [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + text, arguments)]


def test_a_lane_is_a_range_of_the_table_in_its_order(engine: SqliteEngine) -> None:
    assert plan(engine, statement(LANE_SQL), ("a", "SOUL:", "SOUL;")) == [
        "SEARCH nodes USING PRIMARY KEY (scope=? AND label>? AND label<?)"
    ]
    assert plan(engine, statement(OPEN_LANE_SQL), ("a", "")) == ["SEARCH nodes USING PRIMARY KEY (scope=? AND label>?)"]


def test_a_difference_is_a_range_of_the_logs_own_numbers(engine: SqliteEngine) -> None:
    assert plan(engine, statement(TOUCHED_SQL, 3), (5, "", "a", "a/b")) == [
        "SEARCH changes USING INTEGER PRIMARY KEY (rowid>?)"
    ]


def test_touched_nodes_are_found_by_identity(engine: SqliteEngine) -> None:
    found = plan(engine, statement(NODES_OF_SQL), ("a", json.dumps(["n1"])))
    assert found[0].startswith("SEARCH nodes USING INDEX")
    assert "(root=? AND id=?)" in found[0]


def test_heads_are_found_by_scope_in_one_statement(engine: SqliteEngine) -> None:
    assert plan(engine, statement(HEADS_SQL, 3), ("", "a", "a/b")) == ["SEARCH heads USING PRIMARY KEY (scope=?)"]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that any connection runs, from here on."""
    seen: list[str] = []

    def trace(_: object, text: str, __: object) -> bool:
        seen.append(text)
        return True

    def hook(connection: apsw.Connection) -> None:
        connection.exec_trace = trace

    monkeypatch.setattr(apsw, "connection_hooks", [hook])
    return seen


def test_short_reads_run_few_statements(open_engine, statements: list[str]) -> None:
    engine = open_engine()
    engine.probe(), engine.heads(ADA)
    statements.clear()
    for _ in range(3):
        engine.probe()
    assert statements == ["PRAGMA data_version"] * 3
    statements.clear()
    since = engine.heads(ADA)
    assert len(statements) == 2
    assert statements[0] == "PRAGMA schema_version"
    engine.apply([Put(MemoryNode(id="n1", scope=ADA, label="SOUL:likes tea"))])
    statements.clear()
    assert engine.tail(ADA, [LaneRequest("SOUL:", since), LaneRequest("FOCUS:", since)]) is not None
    assert len(statements) <= 9


def test_a_short_read_gives_up_where_it_would_not_be_short(engine: SqliteEngine) -> None:
    since = engine.heads(ADA)
    requests = [LaneRequest("SOUL:", since)]
    engine.apply([Put(MemoryNode(id=f"n{number}", scope=ADA, label=f"SOUL:{number}")) for number in range(64)])
    assert engine.tail(ADA, requests) == engine.catch_up(ADA, requests)
    assert engine.tail(ADA, [LaneRequest("SOUL:")]) is None, "a whole lane is a scan"
    engine.apply([Put(MemoryNode(id="n64", scope=ADA, label="SOUL:64"))])
    assert engine.tail(ADA, requests) is None
    assert engine.tail(ADA, [LaneRequest("FOCUS:", since)]) is not None, "its own lane was not touched"
    other = TenantScope.parse("org:other")
    engine.apply([Put(MemoryNode(id=f"n{number}", scope=other, label="SOUL:x")) for number in range(2000)])
    assert engine.tail(ADA, [LaneRequest("FOCUS:", since)]) is None, "too much of the log to look at"
    assert engine.tail(ADA, [LaneRequest("SOUL:", engine.heads(ADA))]) is not None, "nothing has moved"
