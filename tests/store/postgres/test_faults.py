"""What others and the network do to a store in mid-work: nothing acknowledged is lost, and nothing is half there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from promptkeel.errors import (
    CommitUnknownError,
    InvalidInputError,
    NodeExistsError,
    NodeNotFoundError,
    StoreBusyError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from promptkeel.model import MemoryEdge
from promptkeel.store.operations import Decide, Link, Put, Remember, Retract
from promptkeel.store.postgres import PostgresEngine
from servers import PostgresServer, own_postgres
from store.examples import ACME, ADA, BOB, SteppingClock, ids, node

Open = Callable[..., PostgresEngine]
Connect = Callable[[], psycopg.Connection[Any]]


def end_sessions(url: str) -> None:
    """End every other session on the database, as an administrator or a network does."""
    with psycopg.connect(url) as client:
        client.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def lanes(engine: PostgresEngine) -> list[str]:
    return ids(engine.query_nodes(ADA, None, None))


# Connections


def test_connections_lost_while_idle_are_replaced(engine: PostgresEngine, url: str) -> None:
    engine.apply([Put(node())])
    for use in (
        lambda: engine.heads(ADA),
        lambda: engine.apply([Put(node("n2"))]),
        lambda: engine.catch_up(ADA, []),
        lambda: engine.open_snapshot().close(),
    ):
        end_sessions(url)
        use()
    assert lanes(engine) == ["n1", "n2"]


def test_a_connection_lost_in_mid_write_wrote_nothing(engine: PostgresEngine, url: str) -> None:
    operations = [Put(node()), Decide(lambda *_: end_sessions(url)), Put(node("n2"))]
    with pytest.raises(StoreUnavailableError, match="not committed was not written") as caught:
        engine.apply(operations)
    assert not isinstance(caught.value, CommitUnknownError)
    assert lanes(engine) == []


def test_a_connection_lost_at_the_commit_is_said_to_be_unknown(open_postgres: Open, url: str, connect: Connect) -> None:
    engine = open_postgres(busy_timeout=30.0)
    engine.apply([Put(node())])
    # The commit waits for the head of its scope, which somebody holds.
    holder = connect()
    holder.execute("SELECT FROM heads WHERE scope = %s FOR UPDATE", (ADA.path,))
    errors: list[BaseException] = []

    def write() -> None:
        try:
            engine.apply([Put(node("n2"))])
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    with psycopg.connect(url, autocommit=True) as client:
        waiting = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'COMMIT' AND wait_event_type = 'Lock'"
        )
        while not client.execute(waiting).fetchall():
            pass
    writer.join()
    (error,) = errors
    assert isinstance(error, CommitUnknownError)
    assert "read it again" in str(error)
    holder.rollback()
    assert lanes(engine) == ["n1"]


def test_a_snapshot_whose_connection_is_lost_is_unavailable(engine: PostgresEngine, url: str) -> None:
    snapshot = engine.open_snapshot()
    end_sessions(url)
    with pytest.raises(StoreUnavailableError):
        snapshot.heads(ADA)
    snapshot.close()
    assert engine.query_nodes(ADA, None, None) == []


def test_a_pool_that_is_used_up_is_busy(open_postgres: Open) -> None:
    engine = open_postgres(pool_size=2, busy_timeout=0.05)
    snapshots = [engine.open_snapshot() for _ in range(2)]
    for call in (lambda: engine.heads(ADA), lambda: engine.apply([Put(node())]), engine.open_snapshot):
        with pytest.raises(StoreBusyError, match="all 2 connections"):
            call()
    snapshots[0].close()
    engine.apply([Put(node())])
    assert lanes(engine) == ["n1"]
    snapshots[1].close()


def test_no_connection_leaks_when_a_call_fails(open_postgres: Open) -> None:
    engine = open_postgres(pool_size=1, busy_timeout=0.05)
    for _ in range(3):
        with pytest.raises(NodeNotFoundError):
            engine.get(ADA, "missing")
        with pytest.raises(NodeNotFoundError):
            engine.apply([Retract(ADA, "missing")])
        with pytest.raises(InvalidInputError):
            engine.apply([Put(node(random.Random(1).randbytes(4000).hex()))])
        with pytest.raises(InvalidInputError):
            engine.apply(["nothing"])  # type: ignore[list-item]
    assert lanes(engine) == []


def test_nothing_is_left_in_a_session(open_postgres: Open) -> None:
    """Behind a pooler in transaction mode, the next transaction may be anybody's."""
    engine = open_postgres(pool_size=1, statement_timeout=5.0)
    engine.apply([Put(node()), Remember(node("n2", "SOUL:x"))])
    engine.apply([Link(MemoryEdge(scope=ADA, start="n1", type="derived_from", end="n2"))])
    engine.apply([Put(node("n3"))], dry_run=True)
    engine.open_snapshot().close()
    for _ in range(10):
        engine.heads(ADA)
        engine.catch_up(ADA, [])
        lanes(engine)
    (session,) = engine._connections._idle
    assert session.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    for left in (
        "SELECT name FROM pg_prepared_statements",
        "SELECT name FROM pg_cursors WHERE name <> ''",
        "SELECT mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'",
        "SELECT relname FROM pg_class WHERE relnamespace = pg_my_temp_schema()",
        "SELECT name FROM pg_settings WHERE source = 'session'",
        "SELECT pg_listening_channels()",
    ):
        assert session.execute(left).fetchall() == [], left


# Locks and time


def test_a_lock_that_somebody_keeps_is_waited_for_and_no_longer(open_postgres: Open, connect: Connect) -> None:
    engine = open_postgres(busy_timeout=0.05)
    engine.apply([Put(node())])
    holder = connect()
    holder.execute("SELECT FROM nodes WHERE id = 'n1' FOR UPDATE")
    with pytest.raises(StoreBusyError, match=r"longer than 0\.05 s"):
        engine.apply([Retract(ADA, "n1")])
    holder.rollback()
    engine.apply([Retract(ADA, "n1")])


def test_a_statement_that_takes_too_long_is_ended(open_postgres: Open, connect: Connect) -> None:
    engine = open_postgres(statement_timeout=0.05)
    engine.apply([Put(node())])
    assert engine.heads(ADA).levels[2].seq == 1
    holder = connect()
    holder.execute("LOCK TABLE nodes IN ACCESS EXCLUSIVE MODE")
    for read in (lambda: engine.query_nodes(ADA, None, None), lambda: engine.get(ADA, "n1")):
        with pytest.raises(StoreBusyError, match="statement_timeout"):
            read()
    holder.rollback()
    assert lanes(engine) == ["n1"]


@pytest.fixture
def refusals(raw: psycopg.Connection[Any]) -> Iterator[str]:
    """The server refuses the next two inserts; executing this makes it refuse two more."""
    raw.execute("""CREATE SEQUENCE refusals;
    CREATE FUNCTION refuse_twice() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF nextval('promptkeel.refusals') <= 2 THEN RAISE EXCEPTION USING ERRCODE = 'serialization_failure'; END IF;
      RETURN NEW; END $$;
    CREATE TRIGGER refuse_twice BEFORE INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION refuse_twice()""")
    yield "ALTER SEQUENCE refusals RESTART"
    raw.execute("DROP TRIGGER refuse_twice ON nodes; DROP FUNCTION refuse_twice; DROP SEQUENCE refusals")


def test_a_refused_serialization_is_tried_again(
    engine: PostgresEngine, raw: psycopg.Connection[Any], refusals: str
) -> None:
    (outcome,) = engine.apply([Put(node())])
    assert outcome.kind == "inserted"
    assert raw.execute("SELECT last_value FROM refusals").fetchall() == [(3,)]
    assert [head.seq for head in engine.heads(ADA).levels] == [0, 0, 1]
    # A caller's own decision is asked once, whatever comes of it.
    raw.execute(refusals)
    asked: list[int] = []

    def decide(transaction: Any, now: int) -> None:
        asked.append(now)
        transaction.insert(stamped("n2"))

    with pytest.raises(StoreBusyError, match="nothing was written"):
        engine.apply([Decide(decide)])
    assert len(asked) == 1
    assert lanes(engine) == ["n1"]


def test_refused_too_often_is_busy(engine: PostgresEngine, raw: psycopg.Connection[Any], refusals: str) -> None:
    raw.execute("ALTER SEQUENCE refusals MINVALUE -1000 RESTART -1000")
    with pytest.raises(StoreBusyError, match="got in the way each time"):
        engine.apply([Put(node())])
    assert raw.execute("SELECT last_value FROM refusals").fetchall() == [(-993,)]
    assert lanes(engine) == []
    assert refusals


def stamped(id_: str) -> Any:
    return node(id_, recorded_at=0, created_at=0, updated_at=0)


def test_writers_of_several_scopes_in_any_order_all_get_through(engine: PostgresEngine) -> None:
    errors: list[BaseException] = []

    def write(worker: int) -> None:
        random_ = random.Random(worker)
        try:
            for number in range(25):
                scopes = random_.sample([ACME, ADA, BOB], 3)
                engine.apply(
                    [
                        Remember(node(f"{worker}-{number}-{scope.path}", f"SOUL:{number}", scope=scope))
                        for scope in scopes
                    ]
                )
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    # Whoever came first put it there, the others confirmed it: nothing is there twice.
    for scope in (ACME, ADA, BOB):
        own = [each.label for each in engine.query_nodes(scope, None, None) if each.scope == scope]
        assert sorted(own) == sorted(f"SOUL:{number}" for number in range(25))


def test_of_two_that_put_one_id_at_once_one_is_told_so(engine: PostgresEngine, connect: Connect) -> None:
    """The second looked for the id before the first, a stock client, committed it."""
    client = connect()
    client.execute("INSERT INTO nodes(root, scope, label, id) VALUES ('org:acme', 'org:acme', 'SOUL:x', 'n1')")
    errors: list[BaseException] = []

    def write() -> None:
        try:
            engine.apply([Put(node())])
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    waiting = "SELECT FROM pg_stat_activity WHERE query LIKE 'INSERT%' AND wait_event_type = 'Lock'"
    with psycopg.connect(engine.url, autocommit=True) as looker:
        while not looker.execute(waiting).fetchall():
            pass
    client.commit()
    writer.join()
    (error,) = errors
    assert isinstance(error, NodeExistsError)
    assert [each.scope for each in engine.query_nodes(ADA, None, None)] == [ACME]


def test_two_links_at_once_close_no_cycle(engine: PostgresEngine) -> None:
    for round_ in range(10):
        names = [f"{round_}-a", f"{round_}-b"]
        engine.apply([Put(node(name, f"SOUL:{name}")) for name in names])
        start = threading.Barrier(2)
        kinds: list[str] = []

        def link(begin: str, end: str, start: threading.Barrier = start, kinds: list[str] = kinds) -> None:
            start.wait()
            try:
                engine.apply([Link(MemoryEdge(scope=ADA, start=begin, type="derived_from", end=end))])
                kinds.append("linked")
            except ValueError:
                kinds.append("refused")

        threads = [threading.Thread(target=link, args=pair) for pair in (names, names[::-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(kinds) == ["linked", "refused"]


def test_what_may_not_be_written_to_is_read_only(engine: PostgresEngine, url: str, clock: SteppingClock) -> None:
    engine.apply([Put(node())])
    reader = PostgresEngine(url + "&options=-c%20default_transaction_read_only%3Don", clock=clock)
    with pytest.raises(StoreReadOnlyError):
        reader.apply([Put(node("n2"))])
    assert lanes(reader) == ["n1"]
    reader.close()


# Processes


def test_a_forked_child_has_connections_of_its_own(engine: PostgresEngine) -> None:
    engine.apply([Put(node())])
    snapshot = engine.open_snapshot()
    heads = engine.heads(ADA)
    child = os.fork()
    if not child:
        status = 1
        try:
            engine.apply([Put(node("child"))])
            status = 0 if engine.heads(ADA) != heads else 2
            engine.close()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert snapshot.heads(ADA) == heads
    assert ids(snapshot.query_nodes(ADA, None, None)) == ["n1"]
    snapshot.close()
    assert lanes(engine) == ["child", "n1"]


WRITER = """
import sys
from promptkeel.instants import system_clock
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.operations import Decide, Put
from promptkeel.store.postgres import PostgresEngine

engine = PostgresEngine(sys.argv[1], clock=system_clock)
scope = TenantScope.parse("org:acme/user:ada")
number = 0
while True:
    pair = [Put(MemoryNode(id=f"{number:06}{half}", scope=scope, label=f"SOUL:{number}{half}")) for half in "ab"]
    if sys.argv[2] == "hang":
        pair.insert(1, Decide(lambda *_: (print("inside", flush=True), sys.stdin.read())))
    try:
        engine.apply(pair)
    except OSError as error:
        print(type(error).__name__, flush=True)
        break
    print(number, flush=True)
    number += 1
"""


def start_writer(url: str, how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, url, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_writer_killed_in_a_transaction_leaves_nothing_and_holds_nothing(engine: PostgresEngine, url: str) -> None:
    writer = start_writer(url, "hang")
    assert writer.stdout is not None
    assert writer.stdin is not None
    assert writer.stdout.readline() == "inside\n"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    writer.stdin.close()
    engine.apply([Remember(node("000000a"))])
    assert lanes(engine) == ["000000a"]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with own_postgres() as server:
        yield server


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(server: PostgresServer, clock: SteppingClock) -> None:
    random_ = random.Random(7)
    engine = PostgresEngine(server.url, clock=clock)
    for _ in range(3):
        engine.apply([Retract(ADA, each.id) for each in engine.query_nodes(ADA, None, None)])
        with psycopg.connect(server.url) as client:
            client.execute("DELETE FROM promptkeel.nodes")
        before = engine.heads(ADA)
        writer = start_writer(server.url, "run")
        assert writer.stdout is not None
        assert writer.stdin is not None
        acknowledged = [writer.stdout.readline() for _ in range(random_.randrange(5, 60))]
        server.kill()
        acknowledged += writer.stdout.readlines()
        writer.wait()
        writer.stdout.close()
        writer.stdin.close()
        with pytest.raises(StoreUnavailableError):
            engine.heads(ADA)
        server.start()
        *numbers, last = acknowledged
        assert last.strip() in ("StoreUnavailableError", "CommitUnknownError")
        found = ids(engine.query_nodes(ADA, None, None))
        whole = [f"{number:06}{half}" for number in range(len(found) // 2) for half in "ab"]
        assert sorted(found) == whole
        # One more may be there: the one of which nobody was told.
        assert len(numbers) <= len(found) // 2 <= len(numbers) + (last.strip() == "CommitUnknownError")
        assert (engine.heads(ADA) != before) == bool(found)
        changes = engine.changes(ADA, before, None).changes
        assert changes is not None
        assert sorted(change.node_id for change in changes) == whole
    engine.close()


def test_the_servers_folder_is_gone_when_the_tests_end() -> None:
    with own_postgres() as server:
        folder: Path = server.folder
        pid = int((server.data / "postmaster.pid").read_text().split()[0])
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
