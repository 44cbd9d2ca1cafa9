"""Many threads, event loops, processes and forks on one file."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from promptkeel.errors import StoreUnavailableError
from promptkeel.lane import lane
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.base import LaneRequest
from promptkeel.store.facade import Store
from promptkeel.store.forking import FORK_PATIENCE
from promptkeel.store.operations import Correct, Put, Retract
from promptkeel.store.sqlite import SqliteEngine
from store.stock_client import StockClient

ADA = TenantScope.parse("org:acme/user:ada")
OTHER = TenantScope.parse("org:other")


def node(node_id: str, label: str = "SOUL:likes tea", scope: TenantScope = ADA) -> MemoryNode:
    return MemoryNode(id=node_id, scope=scope, label=label)


def test_probe_moves_with_every_commit_of_anyone_and_with_nothing_else(
    engine: SqliteEngine, raw: StockClient, open_engine: Callable[..., SqliteEngine]
) -> None:
    other = open_engine()

    def moved_by(act: Callable[[], object]) -> bool:
        before = engine.probe()
        act()
        return engine.probe() != before

    assert moved_by(lambda: engine.apply([Put(node("n1"))]))
    assert moved_by(lambda: other.apply([Put(node("n2"))]))
    assert moved_by(lambda: raw.execute("UPDATE nodes SET source = 'shell'"))
    assert moved_by(lambda: raw.execute("DELETE FROM nodes WHERE id = 'n2'"))
    since = engine.heads(ADA)
    reads: list[Callable[[], object]] = [
        lambda: engine.query_nodes(ADA, None, None),
        lambda: engine.catch_up(ADA, [LaneRequest("SOUL:"), LaneRequest("SOUL:", since)]),
        lambda: engine.tail(ADA, [LaneRequest("SOUL:", since)]),
        lambda: engine.nodes_as_of(ADA, since, None),
        lambda: engine.history(ADA, "n1"),
        lambda: engine.open_snapshot().close(),
        lambda: engine.apply([Put(node("n3"))], dry_run=True),
        lambda: raw.execute("SELECT * FROM nodes"),
        lambda: other.query_nodes(ADA, None, None),
    ]
    assert [moved_by(read) for read in reads] == [False] * len(reads)
    raw.execute("BEGIN IMMEDIATE")
    assert not moved_by(lambda: raw.execute("DELETE FROM nodes"))
    assert moved_by(lambda: raw.execute("COMMIT"))


def test_threads_share_one_engine(engine: SqliteEngine) -> None:
    def work(worker: int) -> None:
        for number in range(20):
            node_id = f"{worker}-{number}"
            engine.apply([Put(node(node_id)), Correct(scope=ADA, node_id=node_id, label="SOUL:likes coffee")])
            assert engine.get(ADA, node_id).label == "SOUL:likes coffee"
            lane = engine.catch_up(ADA, [LaneRequest("SOUL:")])
            assert lane.heads.seq == 2 * len(lane.lanes[0].rows), "heads and rows are of one moment"
            engine.probe()
            engine.heads(ADA)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(engine.query_nodes(ADA, "SOUL:", None)) == 160
    assert engine.heads(ADA).seq == 320


def test_a_snapshot_does_not_move_and_does_not_hold_writers_up(engine: SqliteEngine) -> None:
    engine.apply([Put(node("n1"))])
    snapshot = engine.open_snapshot()
    heads = snapshot.heads(ADA)
    engine.apply([Put(node("n2")), Retract(ADA, "n1")])
    assert snapshot.heads(ADA) == heads
    assert [each.id for each in snapshot.query_nodes(ADA, None, None)] == ["n1"]
    assert snapshot.get(ADA, "n1").state == "live"
    assert [each.id for each in engine.query_nodes(ADA, None, None)] == ["n2"]
    snapshot.close()
    snapshot.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_event_loop_uses_it(backend: str, engine: SqliteEngine) -> None:
    async def work() -> None:
        store = Store(engine)

        async def write(number: int) -> None:
            await store.put(node(f"n{number}"))
            assert (await store.get(ADA, f"n{number}")).label == "SOUL:likes tea"
            async with store.snapshot() as snapshot:
                assert len(await snapshot.query_nodes(ADA)) <= len(await store.query_nodes(ADA))

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(write, number)
        assert (await store.heads(ADA)).seq == 20

    anyio.run(work, backend=backend)


def test_processes_write_in_turn_and_see_each_other(engine: SqliteEngine, path: Path) -> None:
    code = f"""
import sys
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import Put
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
scope = TenantScope.parse("org:acme/user:ada")
engine = open_engine("sqlite:///{path}", busy_timeout=30)
for number in range(40):
    engine.apply([Put(MemoryNode(id=sys.argv[1] + str(number), scope=scope, label="SOUL:x"))])
    assert engine.get(scope, sys.argv[1] + str(number))
engine.close()
"""
    children = [subprocess.Popen([sys.executable, "-c", code, name]) for name in ("a", "b", "c")]
    seen = 0
    while any(child.poll() is None for child in children):
        lane = engine.catch_up(ADA, [LaneRequest("")])
        assert lane.heads.seq == len(lane.lanes[0].rows) >= seen
        seen = len(lane.lanes[0].rows)
    assert [child.wait() for child in children] == [0, 0, 0]
    assert engine.heads(ADA).seq == len(engine.query_nodes(ADA, None, None)) == 120


def fork_to(act: Callable[[], None]) -> int:
    """The process id of a child that does ``act`` and ends."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        except BaseException:  # noqa: BLE001 - whatever happens, the child must not go on as the test runner
            traceback.print_exc()
        os._exit(code)
    return child


def succeeded(child: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


fork = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


@fork
def test_a_forked_child_has_connections_of_its_own(engine: SqliteEngine) -> None:
    engine.apply([Put(node("n1"))])
    before = engine.probe()

    def child() -> None:
        assert engine.probe() != before, "a stamp of the parent is worth nothing here"
        assert engine.get(ADA, "n1").label == "SOUL:likes tea"
        engine.apply([Put(node("n2"))])

    assert succeeded(fork_to(child))
    assert [each.id for each in engine.query_nodes(ADA, None, None)] == ["n1", "n2"]
    engine.apply([Put(node("n3"))])
    assert engine.heads(ADA).seq == 3


@fork
def test_a_child_goes_on_when_its_parent_closes(engine: SqliteEngine, open_engine: Callable[..., SqliteEngine]) -> None:
    """SQLite's record of its locks is inherited: a child that trusts it has its log deleted when the parent closes."""
    engine.apply([Put(node("n1"))])
    written, closed = os.pipe(), os.pipe()

    def child() -> None:
        engine.apply([Put(node("n2"))])
        os.write(written[1], b"x")
        os.read(closed[0], 1)
        engine.apply([Put(node("n3"))])
        assert [each.id for each in engine.query_nodes(ADA, None, None)] == ["n1", "n2", "n3"]

    child_id = fork_to(child)
    os.read(written[0], 1)
    engine.close()
    os.write(closed[1], b"x")
    assert succeeded(child_id)
    assert [each.id for each in open_engine().query_nodes(ADA, None, None)] == ["n1", "n2", "n3"]


@fork
def test_a_fork_while_others_read_and_write(engine: SqliteEngine) -> None:
    engine.apply([Put(node(f"n{number}")) for number in range(50)])
    snapshot = engine.open_snapshot()
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            engine.apply([Put(node(f"w{number}", scope=OTHER))])
            engine.query_nodes(ADA, None, None)
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for attempt in range(5):

            def child(attempt: int = attempt) -> None:
                assert len(engine.query_nodes(ADA, None, None)) == 50 + attempt
                engine.apply([Put(node(f"child {attempt}"))])

            assert succeeded(fork_to(child))
    finally:
        stop.set()
        thread.join()
    assert len(snapshot.query_nodes(ADA, None, None)) == 50
    snapshot.close()
    assert len(engine.query_nodes(ADA, None, None)) == 55


_AT_FORK: list[Callable[[], object]] = []
os.register_at_fork(before=lambda: [act() for act in _AT_FORK])


@fork
@pytest.mark.parametrize("as_snapshot", [False, True])
def test_a_fork_waits_for_a_reader_that_is_inside_sqlite(engine: SqliteEngine, as_snapshot: bool) -> None:
    """A child would wait for ever for a lock of SQLite's that a thread held which it does not have."""
    engine.apply([Put(node("n1"))])
    inside, leave, left = threading.Event(), threading.Event(), threading.Event()

    def read() -> None:
        if as_snapshot:
            snapshot = engine.open_snapshot()
            with snapshot._open():
                inside.set()
                leave.wait()
                left.set()
            snapshot.close()
        else:
            with engine._connections.reading():
                inside.set()
                leave.wait()
                left.set()

    thread = threading.Thread(target=read)
    thread.start()
    inside.wait()
    # Registered later than the store's own, so called before: the reader leaves while the fork waits for it.
    _AT_FORK.append(leave.set)

    def child() -> None:
        assert left.is_set()
        assert len(engine.query_nodes(ADA, None, None)) == 1

    try:
        assert succeeded(fork_to(child))
    finally:
        _AT_FORK.clear()
        thread.join()
    assert len(engine.query_nodes(ADA, None, None)) == 1


@fork
def test_a_fork_does_not_wait_for_the_thread_that_forks(engine: SqliteEngine) -> None:
    engine.apply([Put(node("n1"))])
    started = time.monotonic()
    with engine.open_snapshot()._open(), engine._connections.writing():
        assert succeeded(fork_to(lambda: engine.apply([Put(node("n2"))])))
    assert time.monotonic() - started < FORK_PATIENCE
    assert len(engine.query_nodes(ADA, None, None)) == 2


@fork
def test_a_fork_in_the_middle_of_a_lane_leaves_the_child_a_collector_that_works() -> None:
    inside, leave = threading.Event(), threading.Event()

    def build() -> None:
        with lane._collector_paused(), lane._collector_paused._pauses.lock:
            inside.set()
            leave.wait()

    def child() -> None:
        assert gc.isenabled()
        with lane._collector_paused():
            assert not gc.isenabled()
        assert gc.isenabled()

    thread = threading.Thread(target=build)
    thread.start()
    inside.wait()
    try:
        assert succeeded(fork_to(child))
    finally:
        leave.set()
        thread.join()
    assert gc.isenabled()


def test_a_writer_thread_is_waited_for_as_long_as_agreed(open_engine: Callable[..., SqliteEngine]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def clock() -> int:
        inside.set()
        leave.wait()
        return 0

    engine = open_engine(clock=clock, busy_timeout=0.05)
    thread = threading.Thread(target=lambda: engine.apply([Put(node("n1"))]))
    thread.start()
    inside.wait()
    with pytest.raises(StoreUnavailableError, match="for longer than"):
        engine.apply([Put(node("n2"))])
    assert engine.query_nodes(ADA, None, None) == [], "readers do not wait"
    leave.set()
    thread.join()
    assert [each.id for each in engine.query_nodes(ADA, None, None)] == ["n1"]
