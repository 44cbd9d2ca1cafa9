"""What was erased is in no table once its receipt says so, and no receipt says so too early."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from promptkeel.model import MemoryEdge
from promptkeel.scope import DEPLOYMENT
from promptkeel.store.operations import Correct, Erase, Link, Put, Remember
from promptkeel.store.postgres import PostgresEngine
from servers import PostgresServer, own_postgres
from store.examples import ADA, SteppingClock, ids, node

MARKED = "marked-7f3a9c"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with own_postgres() as server:
        yield server


@pytest.fixture
def engine(server: PostgresServer, clock: SteppingClock) -> Iterator[PostgresEngine]:
    with psycopg.connect(server.url) as client:
        client.execute("DROP SCHEMA IF EXISTS promptkeel CASCADE")
    engine = PostgresEngine(server.url, clock=clock, busy_timeout=0.5)
    yield engine
    engine.close()


def fill(engine: PostgresEngine) -> None:
    engine.apply([
        Put(node("n1", f"SOUL:{MARKED}", source=MARKED, properties={MARKED: MARKED * 1000})), Put(node("n2")),
        Correct(scope=ADA, node_id="n1", label=f"SOUL:{MARKED} again", source=MARKED),
        Remember(node("n3", f"SOUL:{MARKED} again", source=f"other {MARKED}")),
        Link(MemoryEdge(scope=ADA, start="n1", type="about", end="n2", properties={"why": MARKED})),
    ])  # fmt: skip


def traces(server: PostgresServer) -> list[str]:
    """The files of tables and indexes that hold the secret."""
    with psycopg.connect(server.url, autocommit=True) as client:
        client.execute("CHECKPOINT")
    base = server.data / "base"
    return [str(file) for file in base.rglob("*") if file.is_file() and MARKED.encode() in file.read_bytes()]


def states(engine: PostgresEngine) -> list[str]:
    return [receipt.state for receipt in engine.receipts(DEPLOYMENT, below=True)]


def test_no_byte_is_left_once_scrubbed(engine: PostgresEngine, server: PostgresServer) -> None:
    fill(engine)
    with psycopg.connect(server.url, autocommit=True) as client:
        client.execute("ANALYZE")
    assert traces(server)
    engine.apply([Erase(ADA, "n1")])
    assert traces(server)
    assert states(engine) == ["unreadable"]
    token = engine.probe()
    engine.settle_receipts()
    assert states(engine) == ["scrubbed"]
    assert traces(server) == []
    assert engine.probe() != token
    assert ids(engine.query_nodes(ADA, None, None)) == ["n2"]
    engine.settle_receipts()
    assert states(engine) == ["scrubbed"]


def test_an_older_snapshot_keeps_a_receipt_unreadable(engine: PostgresEngine, server: PostgresServer) -> None:
    fill(engine)
    with psycopg.connect(server.url) as client:
        client.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        client.execute("SELECT 1 FROM pg_class LIMIT 1")
        engine.apply([Erase(ADA, "n1")])
        engine.settle_receipts()
        assert states(engine) == ["unreadable"]
        assert traces(server)
    engine.settle_receipts()
    assert states(engine) == ["scrubbed"]
    assert traces(server) == []


def test_tables_in_use_are_left_for_later(engine: PostgresEngine, server: PostgresServer) -> None:
    fill(engine)
    engine.apply([Erase(ADA, "n1")])
    with psycopg.connect(server.url) as client:
        client.execute("LOCK TABLE promptkeel.edges IN ACCESS SHARE MODE")
        engine.settle_receipts()
        assert states(engine) == ["unreadable"]
    engine.settle_receipts()
    assert states(engine) == ["scrubbed"]
