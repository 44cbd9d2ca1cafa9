"""Behind PgBouncer in transaction mode, with more clients than sessions: the same store, nothing left in a session."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import settings

import servers
from promptkeel.errors import CommitUnknownError, StoreBusyError
from promptkeel.model import MemoryEdge
from promptkeel.scope import TenantScope
from promptkeel.store import Store, open_store
from promptkeel.store.facade import BlockingStore
from promptkeel.store.operations import Link, Put, Remember
from promptkeel.store.postgres import PostgresEngine
from promptkeel.testing import StoreSuite
from promptkeel.testing.harness import patient
from servers import Databases, PgBouncer, PostgresServer, own_pgbouncer, own_postgres
from store.examples import ACME, ADA, BOB, SteppingClock, ids, node

SESSIONS = 3
CLIENTS = 12
PATIENCE = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with own_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def pooler(server: PostgresServer) -> Iterator[PgBouncer]:
    with own_pgbouncer(server, pool_size=SESSIONS) as pooler:
        yield pooler


@pytest.fixture(scope="module")
def roomy(server: PostgresServer) -> Iterator[PgBouncer]:
    """With room for the snapshots that one test holds at once: each keeps a session for itself."""
    with own_pgbouncer(server, pool_size=8) as pooler:
        yield pooler


@pytest.fixture(scope="module")
def behind(server: PostgresServer) -> Iterator[Databases]:
    databases = Databases(server.url)
    yield databases
    databases.close()


@pytest.fixture
def direct(behind: Databases) -> Iterator[str]:
    """The address of a store past the pooler."""
    address = behind.empty()
    yield address
    behind.drop(address)


@pytest.fixture
def open_pooled(direct: str, pooler: PgBouncer, clock: SteppingClock) -> Iterator[Callable[..., PostgresEngine]]:
    opened: list[PostgresEngine] = []

    def open_it(**options: Any) -> PostgresEngine:
        opened.append(PostgresEngine(pooler.through(direct), clock=clock, **options))
        return opened[-1]

    yield open_it
    for engine in opened:
        engine.close()


def asked(direct: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(direct, autocommit=True) as client:
        return client.execute(statement).fetchall()


def sessions(direct: str) -> int:
    found = asked(
        direct,
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend'",
    )
    return int(found[0][0])


def at_once(work: Callable[[int], object], count: int) -> None:
    """Do it in so many threads; raises what any of them raised."""
    errors: list[BaseException] = []

    def run(which: int) -> None:
        try:
            work(which)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(which,)) for which in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class TestPostgresBehindPgBouncer(StoreSuite):
    """The whole contract, with fewer random programs."""

    machine_settings = settings(patient(), max_examples=5, stateful_step_count=15)

    @pytest.fixture(autouse=True)
    def use_pooler(self, behind: Databases, roomy: PgBouncer) -> Iterator[None]:
        self.databases, self.pooler = behind, roomy
        self.used: list[str] = []
        yield
        for address in self.used:
            behind.give_back(address)

    def new_store(self) -> Store:
        self.used.append(self.databases.store())
        return open_store(self.pooler.through(self.used[-1]), clock=self.clock)

    def open_again(self, store: Store) -> Store:
        return open_store(store.url, clock=self.clock)


def test_more_clients_than_sessions_lose_no_write(open_pooled: Callable[..., PostgresEngine], direct: str) -> None:
    engines = [open_pooled(pool_size=2, busy_timeout=30.0) for _ in range(CLIENTS)]

    def write(which: int) -> None:
        for number in range(10):
            scope = (ACME, ADA, BOB)[(which + number) % 3]
            engines[which].apply(
                [
                    Put(node(f"{which}-{number}", f"SOUL:{which}-{number}", scope=scope)),
                    Remember(node(f"shared-{which}-{number}", f"RULE:{number}", scope=ACME)),
                ]
            )
            assert f"{which}-{number}" in ids(engines[which].query_nodes(scope, None, None))

    at_once(write, CLIENTS)
    assert sessions(direct) <= SESSIONS
    found = [each for scope in (ADA, BOB) for each in engines[0].query_nodes(scope, "SOUL:", None)]
    assert len({each.id for each in found}) == CLIENTS * 10
    # Held until its commit by a lock of the transaction's: nobody remembered the same twice.
    assert len(engines[0].query_nodes(ACME, "RULE:", None)) == 10


def test_nothing_is_left_in_any_session(open_pooled: Callable[..., PostgresEngine], direct: str) -> None:
    engines = [open_pooled(pool_size=1, statement_timeout=5.0, busy_timeout=30.0) for _ in range(CLIENTS)]

    def work(which: int) -> None:
        engine = engines[which]
        scope = TenantScope.parse(f"org:acme/user:u{which}")
        for number in range(8):
            names = f"a{which}-{number}", f"b{which}-{number}"
            engine.apply([Put(node(name, f"SOUL:{name}", scope=scope)) for name in names])
            engine.apply([Link(MemoryEdge(scope=scope, start=names[0], type="derived_from", end=names[1]))])
            engine.heads(scope)
            engine.catch_up(scope, [])
            with_snapshot = engine.open_snapshot()
            with_snapshot.query_nodes(scope, None, None)
            with_snapshot.close()

    at_once(work, CLIENTS)
    assert asked(direct, "SELECT pid FROM pg_locks WHERE locktype = 'advisory'") == []
    # Each of these holds a session for itself until it is closed.
    held = [engine._connections.lend("BEGIN") for engine in engines[:SESSIONS]]
    assert len({connection.execute("SELECT pg_backend_pid()").fetchone() for connection in held}) == SESSIONS
    for connection in held:
        for left in (
            "SELECT name FROM pg_prepared_statements",
            "SELECT name FROM pg_cursors WHERE name <> ''",
            "SELECT name FROM pg_settings WHERE source = 'session' AND name NOT IN ('application_name')",
            "SELECT pg_listening_channels()",
        ):
            assert connection.execute(left).fetchall() == [], left
    for engine, connection in zip(engines, held, strict=False):
        engine._connections.take_back(connection)


def test_a_snapshot_holds_one_transaction_while_others_come_and_go(open_pooled: Callable[..., PostgresEngine]) -> None:
    engine, other = open_pooled(), open_pooled(busy_timeout=30.0)
    engine.apply([Put(node())])
    snapshot = engine.open_snapshot()
    before = snapshot.heads(ADA)
    at_once(lambda which: other.apply([Put(node(f"n{which + 2}"))]), CLIENTS)
    for _ in range(5):
        assert ids(snapshot.query_nodes(ADA, None, None)) == ["n1"]
        assert snapshot.heads(ADA) == before
    snapshot.close()
    assert len(engine.query_nodes(ADA, None, None)) == CLIENTS + 1


def test_a_watcher_polls_and_leaves_nobody_listening(open_pooled: Callable[..., PostgresEngine], direct: str) -> None:
    engine, other = open_pooled(), open_pooled()
    watch = BlockingStore(engine).watch(ADA, "SOUL:", interval=0.01)
    told = {next(watch).revision}
    end = time.monotonic() + PATIENCE
    while engine._listener._is_wanted:
        assert time.monotonic() < end
        time.sleep(0.002)
    for number in range(3):
        other.apply([Put(node(f"n{number}"))])
        told.add(next(watch).revision)
    assert len(told) == 4
    assert asked(direct, "SELECT value FROM promptkeel.meta WHERE key = 'watched_until'") == [("0",)]
    assert not [thread for thread in threading.enumerate() if thread.name == "promptkeel-listen"]


def test_many_may_make_the_store_at_once(direct: str, pooler: PgBouncer, clock: SteppingClock) -> None:
    secrets: set[bytes] = set()

    def make(_: int) -> None:
        engine = PostgresEngine(pooler.through(direct), clock=clock)
        secrets.add(engine.secret())
        engine.close()

    at_once(make, CLIENTS)
    assert len(secrets) == 1
    assert asked(direct, "SELECT pid FROM pg_locks WHERE locktype = 'advisory'") == []


KILLED = """
import sys, psycopg
from promptkeel.store.postgres_schema import migrate

class Stopping(psycopg.Connection):
    def execute(self, query, *rest, **options):
        answer = super().execute(query, *rest, **options)
        if "transactions_wake" in query:
            print("inside", flush=True)
            sys.stdin.read()
        return answer

with Stopping.connect(sys.argv[1], autocommit=True, prepare_threshold=None) as connection:
    migrate(connection, "promptkeel", "the store")
"""


def test_a_migration_that_is_killed_leaves_neither_a_lock_nor_half_a_schema(
    direct: str, pooler: PgBouncer, open_pooled: Callable[..., PostgresEngine]
) -> None:
    """A lock of the session's would stay with the pooler's session, and be anybody's."""
    command = [sys.executable, "-c", KILLED, pooler.through(direct)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as migrating:
        assert migrating.stdout is not None
        assert migrating.stdout.readline() == "inside\n"
        migrating.kill()
    engine = open_pooled()
    assert asked(direct, "SELECT pid FROM pg_locks WHERE locktype = 'advisory'") == []
    engine.apply([Put(node())])
    assert ids(engine.query_nodes(ADA, None, None)) == ["n1"]


def test_sessions_that_end_while_idle_are_replaced_without_a_word(
    open_pooled: Callable[..., PostgresEngine], direct: str
) -> None:
    engine = open_pooled()
    for number in range(3):
        engine.apply([Put(node(f"n{number}"))])
        asked(
            direct,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid()",
        )
        engine.heads(ADA)
    assert len(engine.query_nodes(ADA, None, None)) == 3


def test_who_gets_no_session_in_time_is_told_that_the_pooler_is_busy(
    server: PostgresServer, direct: str, clock: SteppingClock
) -> None:
    with own_pgbouncer(server, pool_size=1, query_wait_timeout="1") as pooler:
        engine = PostgresEngine(pooler.through(direct), clock=clock)
        snapshot = engine.open_snapshot()
        for call in (lambda: engine.heads(ADA), lambda: engine.apply([Put(node())])):
            with pytest.raises(StoreBusyError, match="pooler") as caught:
                call()
            assert not isinstance(caught.value, CommitUnknownError)
        snapshot.close()
        assert engine.query_nodes(ADA, None, None) == []
        engine.apply([Put(node())])
        engine.close()


def test_without_a_pooler_these_tests_say_how_to_have_one_and_fail_in_ci(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers.shutil, "which", lambda *_, **__: None)
    for in_ci, raised in (("", pytest.skip.Exception), ("true", pytest.fail.Exception)):
        monkeypatch.setenv("CI", in_ci)
        with pytest.raises(raised, match="install the package pgbouncer"), own_pgbouncer(server, pool_size=1):
            pass
