"""A connection is lost at every request of every call: what the error says is true, and the store goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import psycopg
import pytest

from promptkeel.errors import CommitUnknownError, StoreBusyError, StoreUnavailableError
from promptkeel.model import MemoryEdge
from promptkeel.store.operations import Correct, Erase, Link, Operation, Put, Remember, Retract
from promptkeel.store.postgres import PostgresEngine
from servers import PostgresServer, own_postgres
from store.examples import ACME, ADA, SteppingClock, ids, node
from store.postgres.cutting import CuttingProxy

Side = Literal["request", "answer"]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with own_postgres() as server:
        yield server


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[CuttingProxy]:
    with CuttingProxy(server.folder) as proxy:
        yield proxy


@pytest.fixture
def engine(server: PostgresServer, proxy: CuttingProxy, clock: SteppingClock) -> Iterator[PostgresEngine]:
    engine = PostgresEngine(proxy.through(server.url, server.folder), clock=clock, pool_size=1)
    yield engine
    proxy.heal()
    engine.close()
    server.run("DROP SCHEMA promptkeel CASCADE")


def new(*names: str) -> list[Operation]:
    return [Put(node(name, f"SOUL:{name}")) for name in names]


def mixed(number: int) -> list[Operation]:
    first, second, third = (f"{kind}{number}" for kind in "abc")
    return [
        Put(node(first, f"SOUL:{first}")),
        Remember(node(second, f"SOUL:{second}", scope=ACME)),
        Put(node(third, f"SOUL:{third}")),
        Link(MemoryEdge(scope=ADA, start=first, type="derived_from", end=third)),
    ]


WRITES: dict[str, tuple[Callable[[int], list[Operation]], Callable[[int], set[str]]]] = {
    "one node": (lambda n: new(f"a{n}"), lambda n: {f"a{n}"}),
    "two nodes": (lambda n: new(f"a{n}", f"b{n}"), lambda n: {f"a{n}", f"b{n}"}),
    "several kinds": (mixed, lambda n: {f"a{n}", f"b{n}", f"c{n}"}),
}


@pytest.mark.parametrize("side", ["request", "answer"])
@pytest.mark.parametrize("kind", WRITES)
def test_what_is_said_of_a_write_is_true_wherever_its_connection_is_lost(
    engine: PostgresEngine, proxy: CuttingProxy, server: PostgresServer, kind: str, side: Side
) -> None:
    operations, names = WRITES[kind]
    said: list[str] = []
    written: list[bool] = []
    for at in range(1, 60):
        # Its connection is there, so that the first request to be lost is the transaction's own.
        engine.heads(ADA)
        heads = engine.heads(ADA)
        proxy.cut(at, side)
        error: BaseException | None = None
        try:
            engine.apply(operations(at))
        except StoreUnavailableError as caught:
            error = caught
        was_cut = proxy.was_cut
        proxy.heal()
        found = {each.id for each in engine.query_nodes(ADA, None, None)} & names(at)
        assert found in (set(), names(at))
        assert (engine.heads(ADA) != heads) == bool(found)
        if error is None:
            assert found
        elif not isinstance(error, CommitUnknownError):
            assert not found
            assert "not committed was not written" in str(error)
        said.append("written" if error is None else type(error).__name__)
        written.append(bool(found))
        if not was_cut:
            break
    else:
        raise AssertionError("it never ends")
    # The first request begins the transaction on a connection that lay idle: replaced without a word.
    assert said[0] == "written"
    # Only the last one, the commit, is unknown: it was not done where the request was lost, else it was.
    assert said[1:] == ["StoreUnavailableError"] * (len(said) - 3) + ["CommitUnknownError", "written"]
    assert written[-2] == (side == "answer")
    # The server ends such a session by itself: nothing is open.
    while server.run("SELECT pid FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"):
        pass


@pytest.mark.parametrize("side", ["request", "answer"])
@pytest.mark.parametrize("kind", ["retract", "erase", "correct"])
def test_a_change_is_done_whole_or_not_wherever_its_connection_is_lost(
    engine: PostgresEngine, proxy: CuttingProxy, kind: str, side: Side
) -> None:
    for at in range(1, 60):
        name = f"n{at}"
        engine.apply([Put(node(name, f"SOUL:{name}"))])
        change: Operation = {
            "retract": Retract(ADA, name),
            "erase": Erase(ADA, name),
            "correct": Correct(scope=ADA, node_id=name, label=f"SOUL:corrected {at}"),
        }[kind]
        heads = engine.heads(ADA)
        proxy.cut(at, side)
        error: BaseException | None = None
        try:
            engine.apply([change])
        except StoreUnavailableError as caught:
            error = caught
        was_cut = proxy.was_cut
        proxy.heal()
        changed = f"SOUL:{name}" not in [each.label for each in engine.query_nodes(ADA, None, None)]
        assert (engine.heads(ADA) != heads) == changed
        assert bool([each for each in engine.receipts(ADA) if each.node_id == name]) == (changed and kind == "erase")
        if not isinstance(error, CommitUnknownError):
            assert changed == (error is None)
        if not was_cut:
            return
    raise AssertionError("it never ends")


READS: dict[str, Callable[[PostgresEngine], Any]] = {
    "probe": lambda engine: engine.probe(),
    "heads": lambda engine: engine.heads(ADA),
    "get": lambda engine: engine.get(ADA, "n1"),
    "query": lambda engine: engine.query_nodes(ADA, "SOUL:", None),
    "catch up": lambda engine: engine.catch_up(ADA, []),
    "history": lambda engine: engine.history(ADA, "n1"),
    "stored": lambda engine: engine.stored(ADA),
}


@pytest.mark.parametrize("side", ["request", "answer"])
@pytest.mark.parametrize("name", READS)
def test_a_read_is_asked_once_more_wherever_its_connection_is_lost(
    engine: PostgresEngine, proxy: CuttingProxy, name: str, side: Side
) -> None:
    engine.apply([Put(node())])
    expected = READS[name](engine)
    for at in range(1, 60):
        engine.heads(ADA)
        proxy.cut(at, side)
        assert READS[name](engine) == expected
        if not proxy.was_cut:
            proxy.heal()
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("side", ["request", "answer"])
def test_a_snapshot_says_that_it_is_gone_and_the_store_goes_on(
    engine: PostgresEngine, proxy: CuttingProxy, side: Side
) -> None:
    engine.apply([Put(node())])
    for at in range(1, 20):
        engine.heads(ADA)
        proxy.cut(at, side)
        with contextlib.suppress(StoreUnavailableError), contextlib.closing(engine.open_snapshot()) as snapshot:
            assert ids(snapshot.query_nodes(ADA, None, None)) == ["n1"]
            snapshot.heads(ADA)
        was_cut = proxy.was_cut
        proxy.heal()
        # The one connection is free again.
        assert ids(engine.query_nodes(ADA, None, None)) == ["n1"]
        if not was_cut:
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("side", ["request", "answer"])
def test_a_store_is_made_whole_or_not_wherever_the_connection_is_lost(
    server: PostgresServer, proxy: CuttingProxy, clock: SteppingClock, side: Side
) -> None:
    address = proxy.through(server.url, server.folder)
    for at in range(1, 40):
        server.run("DROP SCHEMA IF EXISTS promptkeel CASCADE")
        proxy.cut(at, side)
        with contextlib.suppress(StoreUnavailableError):
            PostgresEngine(address, clock=clock).close()
        was_cut = proxy.was_cut
        proxy.heal()
        engine = PostgresEngine(address, clock=clock)
        engine.apply([Put(node())])
        assert ids(engine.query_nodes(ADA, None, None)) == ["n1"]
        engine.close()
        if not was_cut:
            server.run("DROP SCHEMA promptkeel CASCADE")
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize(
    ("options", "held", "said"),
    [
        # While a statement runs, its timeout counts; at the commit, which no statement timeout ends, only the other.
        ({"statement_timeout": 0.2, "busy_timeout": 30.0}, "SELECT FROM promptkeel.nodes FOR UPDATE", "statement_time"),
        ({"statement_timeout": 30.0, "busy_timeout": 0.2}, "SELECT FROM promptkeel.heads FOR UPDATE", "busy_timeout"),
    ],
)  # fmt: skip
def test_a_write_that_takes_too_long_is_ended_whole(
    server: PostgresServer, clock: SteppingClock, options: dict[str, float], held: str, said: str
) -> None:
    engine = PostgresEngine(server.url, clock=clock, **options)
    engine.apply([Put(node())])
    operations = [*new("n2", "n3"), Retract(ADA, "n1")]
    with psycopg.connect(server.url) as holder:
        holder.execute(held)
        with pytest.raises(StoreBusyError, match=said) as caught:
            engine.apply(operations)
        assert not isinstance(caught.value, CommitUnknownError)
        holder.rollback()
    assert ids(engine.query_nodes(ADA, None, None)) == ["n1"]
    engine.apply(operations)
    assert ids(engine.query_nodes(ADA, None, None)) == ["n2", "n3"]
    engine.close()
    server.run("DROP SCHEMA promptkeel CASCADE")
