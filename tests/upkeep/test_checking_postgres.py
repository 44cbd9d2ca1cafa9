"""Damage in a PostgreSQL store, done by a client that had disabled its triggers, is found and named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from promptkeel.model import MemoryEdge
from promptkeel.store.base import Engine
from promptkeel.store.facade import BlockingStore
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import Correct, Remember
from promptkeel.upkeep.checking import check_engine
from promptkeel.upkeep.compaction import Retention, compact
from store.examples import ACME, ADA, BOB, SteppingClock, node

psycopg = pytest.importorskip("psycopg")


@pytest.fixture
def url(databases: Any) -> Iterator[str]:
    url = databases.store()
    yield url
    databases.drop(url)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    clock = SteppingClock()
    engine = open_engine(url, clock=clock)
    store = BlockingStore(engine)
    for number in range(4):
        store.put(node(f"n{number}", f"SOUL:says {number}"))
        clock.tick()
    store.put(node("top", "RULE:be brief", scope=ACME))
    store.put(node("b1", scope=BOB))
    store.apply((Correct(scope=ADA, node_id="n0", label="SOUL:says more", source="ada"),))
    store.apply((Remember(node("again", "SOUL:says 1", source="bob")),))
    store.retract(ADA, "n2")
    store.link(MemoryEdge(scope=ADA, start="n1", type="about", end="top"))
    store.erase(ADA, "n3")
    yield engine
    engine.close()


@pytest.fixture
def raw(url: str) -> Callable[[str], None]:
    def run(statement: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET search_path = promptkeel")
            connection.execute(statement)

    return run


@pytest.fixture
def unseen(url: str) -> Callable[[str], None]:
    """Run a statement that no trigger sees."""

    def run(statement: str) -> None:
        with psycopg.connect(url) as connection:
            connection.execute("SET search_path = promptkeel")
            found = connection.execute(
                "SELECT DISTINCT tgrelid::regclass::text, tgname FROM pg_trigger WHERE NOT tgisinternal"
            ).fetchall()
            for table, name in found:
                connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER {name}")
            connection.execute(statement)
            for table, name in found:
                connection.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}")

    return run


def test_a_healthy_store_stays_healthy_while_it_is_compacted(engine: Engine) -> None:
    found = check_engine(engine)
    assert found.findings == ()
    assert (found.counts["nodes"], found.counts["edges"], found.counts["erasures"]) == (5, 1, 1)
    for _ in compact(engine, Retention(changes=3), step=2, clock=SteppingClock()):
        assert check_engine(engine).findings == ()


@pytest.mark.parametrize(
    ("statement", "kind", "where"),
    [
        ("UPDATE heads SET seq = 1 WHERE scope = 'org:acme/user:ada'", "head_wrong", "head of org:acme/user:ada"),
        ("UPDATE heads SET nonce = nonce + 1 WHERE scope = 'org:acme'", "head_wrong", "head of org:acme"),
        ("DELETE FROM heads WHERE scope = 'org:acme'", "head_missing", "head of org:acme"),
        ("UPDATE nodes SET label = 'SOUL:forged' WHERE id = 'n1'", "row_unlogged", "node 'n1'"),
        ("UPDATE nodes SET state = 'live' WHERE id = 'n2'", "row_unlogged", "node 'n2'"),
        (
            "INSERT INTO nodes(root, scope, label, id) VALUES ('org:acme', 'org:acme', 'SOUL:unseen', 'u')",
            "row_unlogged",
            "node 'u'",
        ),
        ("DELETE FROM nodes WHERE id = 'b1'", "row_lost", "node 'b1'"),
        ("DELETE FROM versions WHERE id = 'n0'", "version_missing", "node 'n0'"),
        ("UPDATE versions SET number = 0 WHERE id = 'n0'", "version_orphan", "node 'n0'"),
        ("UPDATE edges SET \"end\" = 'nobody'", "edge_orphan", "edge about from 'n1' to 'nobody'"),
        ("UPDATE testimonies SET id = 'nobody'", "testimony_orphan", "node 'nobody'"),
        ("UPDATE nodes SET source = '' WHERE id = 'b1'", "value_unreadable", "node 'b1'"),
        ("UPDATE meta SET value = 'x' WHERE key = 'secret'", "meta_wrong", "meta.secret"),
    ],
)
def test_each_damage_is_found_and_named(
    engine: Engine, unseen: Callable[[str], None], statement: str, kind: str, where: str
) -> None:
    unseen(statement)
    found = check_engine(engine).findings
    assert [finding for finding in found if finding.kind == kind and finding.where.startswith(where)], found
    assert all(finding.what and finding.remedy for finding in found)


def test_a_disabled_trigger_is_found_with_the_statement_that_enables_it(
    engine: Engine, raw: Callable[[str], None]
) -> None:
    raw("ALTER TABLE nodes_3 DISABLE TRIGGER nodes_update")
    (finding,) = check_engine(engine).findings
    assert (finding.kind, finding.where) == ("schema_missing", "trigger nodes_update of nodes_3")
    raw(finding.remedy.removeprefix("enable it: ").partition(";")[0])
    assert check_engine(engine).is_healthy
