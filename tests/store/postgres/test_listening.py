"""Watchers are woken by commits of others: while somebody watches only, and never needed for being right."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio.to_thread
import psycopg
import pytest

from promptkeel.store import postgres_listening
from promptkeel.store.facade import BlockingStore, Store
from promptkeel.store.operations import Put
from promptkeel.store.postgres import PostgresEngine
from promptkeel.store.watching import LaneRevision
from servers import own_postgres
from store.examples import ACME, ADA, SteppingClock, node

Open = Callable[..., PostgresEngine]
NEVER = 3600.0
"""No test waits for a tick of so many seconds: what comes, comes because somebody was woken."""
PATIENCE = 60.0


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds; an error where it does not for long."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.002)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "promptkeel-listen"]


def listeners(client: psycopg.Connection[Any]) -> list[int]:
    """The sessions that listen: what they did last is to renew the lease."""
    found = client.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%watched_until%' "
        "AND pid <> pg_backend_pid()"
    )
    return [pid for (pid,) in found.fetchall()]


class Following:
    """A watcher in a thread of its own, and what it was told."""

    def __init__(self, engine: PostgresEngine, *, interval: float = NEVER) -> None:
        self.watch = BlockingStore(engine).watch(ADA, "SOUL:", interval=interval)
        self.told: list[LaneRevision] = []
        self._thread = threading.Thread(target=lambda: self.told.extend(self._each()))
        self._thread.start()
        until(lambda: self.told)

    def _each(self) -> Iterator[LaneRevision]:
        for news in self.watch:
            self.told.append(news)
        yield from ()

    def wait_for(self, count: int) -> None:
        until(lambda: self.told and self.told[-1].revision.startswith(f"mem:{count}:"))

    def stop(self) -> None:
        self.watch.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@pytest.fixture
def follow() -> Iterator[Callable[..., Following]]:
    begun: list[Following] = []

    def begin(engine: PostgresEngine, **options: Any) -> Following:
        begun.append(Following(engine, **options))
        return begun[-1]

    yield begin
    for each in begun:
        each.stop()


def test_a_commit_of_another_process_wakes_a_watcher(
    engine: PostgresEngine, raw: psycopg.Connection[Any], follow: Callable[..., Following]
) -> None:
    following = follow(engine)
    until(lambda: engine._listener.is_listening)
    for number in range(1, 6):
        raw.execute("INSERT INTO nodes(root, scope, label) VALUES ('org:acme', %s, 'SOUL:x')", (ADA.path,))
        following.wait_for(number)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_asynchronous_watcher_is_woken_too(
    engine: PostgresEngine, raw: psycopg.Connection[Any], backend: str
) -> None:
    async def main() -> None:
        watch = Store(engine).watch(ADA, "SOUL:", interval=NEVER)
        first = await anext(watch)
        await anyio.to_thread.run_sync(until, lambda: engine._listener.is_listening)
        raw.execute("INSERT INTO nodes(root, scope, label) VALUES ('org:acme', %s, 'SOUL:x')", (ADA.path,))
        with anyio.fail_after(PATIENCE):
            assert (await anext(watch)).revision != first.revision

    anyio.run(main, backend=backend)


def test_of_commits_that_come_together_none_waits_for_the_next_tick(
    engine: PostgresEngine, open_postgres: Open, follow: Callable[..., Following]
) -> None:
    following = follow(engine)
    until(lambda: engine._listener.is_listening)
    writers = [open_postgres() for _ in range(4)]

    def write(which: int) -> None:
        for number in range(10):
            writers[which].apply([Put(node(f"{which}-{number}", f"SOUL:{number}"))])

    running = [threading.Thread(target=write, args=(which,)) for which in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    # The last of them may have found another about to notify, and have ended after the second ring.
    raw_put(engine)
    following.wait_for(41)


def raw_put(engine: PostgresEngine) -> None:
    with psycopg.connect(engine.url) as client:
        client.execute(
            "INSERT INTO promptkeel.nodes(root, scope, label) VALUES ('org:acme', %s, 'SOUL:last')", (ADA.path,)
        )


def test_a_hundred_watchers_share_one_listening_connection_and_the_last_one_ends_it(
    engine: PostgresEngine, raw: psycopg.Connection[Any]
) -> None:
    assert listeners(raw) == []
    store = BlockingStore(engine)
    watches = [store.watch(ACME if number % 2 else ADA, "SOUL:") for number in range(100)]
    assert threads() == []
    for watch in watches:
        next(watch)
    until(lambda: engine._listener.is_listening)
    assert len(listeners(raw)) == 1
    assert len(threads()) == 1
    del watch
    watches.clear()
    gc.collect()
    until(lambda: not threads())
    until(lambda: not listeners(raw))
    watch = store.watch(ADA, "SOUL:", interval=NEVER)
    next(watch)
    until(lambda: engine._listener.is_listening)


def test_closing_ends_the_thread_and_the_connection(open_postgres: Open, raw: psycopg.Connection[Any]) -> None:
    engine = open_postgres()
    watch = BlockingStore(engine).watch(ADA, "SOUL:")
    next(watch)
    until(lambda: engine._listener.is_listening)
    engine.close()
    assert threads() == []
    until(lambda: not listeners(raw))


def heard(spy: psycopg.Connection[Any], other: psycopg.Connection[Any]) -> list[str]:
    """What a listening session was told until now: notifications come in the order of their commits."""
    other.execute("NOTIFY promptkeel_promptkeel, 'now'")
    payloads: list[str] = []
    while "now" not in payloads:
        payloads += [each.payload for each in spy.notifies(timeout=PATIENCE, stop_after=1)]
    return payloads[: payloads.index("now")]


def test_nobody_is_notified_while_nobody_watches(
    engine: PostgresEngine, raw: psycopg.Connection[Any], connect: Callable[[], psycopg.Connection[Any]]
) -> None:
    spy = connect()
    spy.autocommit = True
    spy.execute("LISTEN promptkeel_promptkeel")
    engine.apply([Put(node())])
    assert heard(spy, raw) == []
    raw.execute("UPDATE meta SET value = extract(epoch FROM clock_timestamp()) + 60 WHERE key = 'watched_until'")
    engine.apply([Put(node("n2", "SOUL:a secret"))])
    # Anybody in the database may listen: nothing is said.
    assert heard(spy, raw) == [""]
    raw.execute("UPDATE meta SET value = '0' WHERE key = 'watched_until'")
    engine.apply([Put(node("n3"))])
    assert heard(spy, raw) == []


def test_of_transactions_that_commit_at_once_one_notifies_and_none_waits(
    engine: PostgresEngine, raw: psycopg.Connection[Any], connect: Callable[[], psycopg.Connection[Any]]
) -> None:
    raw.execute("UPDATE meta SET value = extract(epoch FROM clock_timestamp()) + 60 WHERE key = 'watched_until'")
    spy, first = connect(), connect()
    spy.autocommit = True
    spy.execute("LISTEN promptkeel_promptkeel")
    insert = "INSERT INTO nodes(root, scope, label) VALUES ('org:acme', %s, 'SOUL:x')"
    first.execute(insert, (ADA.path,))
    # As at its commit: it has the notification in its hands.
    first.execute("SET CONSTRAINTS ALL IMMEDIATE")
    raw.execute("SET lock_timeout = '5s'")
    raw.execute(insert, (ACME.path,))
    assert heard(spy, raw) == []
    first.commit()
    assert heard(spy, raw) == [""]
    raw.execute("UPDATE meta SET value = '0' WHERE key = 'watched_until'")


def test_a_lost_listener_comes_back_and_meanwhile_the_poll_goes_on(
    engine: PostgresEngine, raw: psycopg.Connection[Any], follow: Callable[..., Following],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    following = follow(engine, interval=0.01)
    until(lambda: engine._listener.is_listening)
    connect = engine._connections.connect
    let_through = threading.Event()
    tried = threading.Semaphore(0)

    def refuse(**parameters: Any) -> Any:
        if parameters and not let_through.is_set():
            tried.release()
            raise psycopg.OperationalError("no route")
        return connect(**parameters)

    monkeypatch.setattr(engine._connections, "connect", refuse)
    monkeypatch.setattr(postgres_listening, "_FIRST_PAUSE", 0.001)
    for number in range(1, 4):
        for pid in listeners(raw):
            raw.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        assert tried.acquire(timeout=PATIENCE)
        raw.execute("INSERT INTO nodes(root, scope, label) VALUES ('org:acme', %s, 'SOUL:x')", (ADA.path,))
        following.wait_for(number)
    let_through.set()
    until(lambda: engine._listener.is_listening)
    assert len(listeners(raw)) == 1


def test_what_was_committed_while_the_listener_was_away_is_told_when_it_is_back(
    engine: PostgresEngine, raw: psycopg.Connection[Any], follow: Callable[..., Following]
) -> None:
    following = follow(engine)
    until(lambda: engine._listener.is_listening)
    raw.execute("UPDATE meta SET value = '0' WHERE key = 'watched_until'")
    raw.execute("INSERT INTO nodes(root, scope, label) VALUES ('org:acme', %s, 'SOUL:x')", (ADA.path,))
    for pid in listeners(raw):
        raw.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    following.wait_for(1)


def test_who_may_not_say_that_they_listen_polls(
    empty_url: str, clock: SteppingClock, databases: Any, follow: Callable[..., Following]
) -> None:
    owner = PostgresEngine(empty_url, clock=clock)
    reader = PostgresEngine(empty_url + "&options=-c%20default_transaction_read_only%3Don", clock=clock)
    following = follow(reader, interval=0.01)
    until(lambda: not reader._listener._is_wanted)
    until(lambda: not threads())
    owner.apply([Put(node())])
    following.wait_for(1)
    following.stop()
    reader.close()
    owner.close()


def test_listening_can_be_left_out(open_postgres: Open, follow: Callable[..., Following]) -> None:
    engine = open_postgres(listen=False)
    following = follow(engine, interval=0.01)
    assert threads() == []
    raw_put(engine)
    following.wait_for(1)


def test_a_forked_child_watches_on_its_own_and_the_parent_goes_on(
    engine: PostgresEngine, raw: psycopg.Connection[Any], follow: Callable[..., Following]
) -> None:
    following = follow(engine)
    until(lambda: engine._listener.is_listening)
    child = os.fork()
    if not child:
        status = 1
        try:
            watch = BlockingStore(engine).watch(ADA, "SOUL:", interval=NEVER)
            first = next(watch)
            until(lambda: engine._listener.is_listening)
            raw_put(engine)
            status = 0 if next(watch) != first else 2
            following.watch.stop()
            engine.close()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    following.wait_for(1)
    raw_put(engine)
    following.wait_for(2)
    assert len(listeners(raw)) == 1


def test_a_fork_while_others_are_in_the_register_leaves_the_child_able_to_watch(engine: PostgresEngine) -> None:
    from promptkeel.store import watching

    watch = BlockingStore(engine).watch(ADA, "SOUL:")
    next(watch)
    poller = watch._poller
    assert poller is not None
    with watching._REGISTER, poller._lock, engine._listener._lock:
        child = os.fork()
        if not child:
            status = 1
            try:
                store = BlockingStore(engine)
                watch.stop()
                store.put(node())
                next(store.watch(ADA, "SOUL:"))
                engine.close()
                status = 0
            finally:
                os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_prepared_transaction_can_still_be_prepared_while_somebody_watches(clock: SteppingClock) -> None:
    with own_postgres(max_prepared_transactions="2") as server:
        engine = PostgresEngine(server.url, clock=clock)
        watch = BlockingStore(engine).watch(ADA, "SOUL:")
        first = next(watch)
        until(lambda: engine._listener.is_listening)
        with psycopg.connect(server.url, autocommit=True) as client:
            client.execute("BEGIN")
            client.execute(
                "INSERT INTO promptkeel.nodes(root, scope, label) VALUES ('org:acme', %s, 'SOUL:x')", (ADA.path,)
            )
            client.execute("PREPARE TRANSACTION 'with the business row'")
            client.execute("COMMIT PREPARED 'with the business row'")
        assert next(watch) != first
        engine.close()
