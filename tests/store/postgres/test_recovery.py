"""The server under an open keel is killed, replaced by an older backup, or full: it says so, and then goes on."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import psycopg
import pytest

import promptkeel as pk
from promptkeel import blocking
from promptkeel.errors import (
    BlockResolutionError,
    CommitUnknownError,
    StoreBusyError,
    StoreFullError,
    StoreUnavailableError,
)
from promptkeel.store import Store
from promptkeel.store.operations import Put
from promptkeel.store.postgres import PostgresEngine
from promptkeel.upkeep.checking import check
from servers import PostgresServer, _unprivileged, own_postgres
from store.examples import ACME, ADA, BOB, SteppingClock, ids, node

BLOCKS = [
    pk.PromptBlockSpec(name="RULES", source=pk.StaticSource("Be brief.")),
    pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:"), on_failure="fail_closed"),
]
OMITTING = [pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:"), on_failure="omit")]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with own_postgres() as server:
        yield server


# Killed


def test_an_open_keel_says_that_its_server_is_gone_and_goes_on_when_it_is_back(server: PostgresServer) -> None:
    with blocking.open(server.url, blocks=BLOCKS) as keel, blocking.open(server.url, blocks=OMITTING) as lenient:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        before = keel.prompt(ADA)
        assert lenient.prompt(ADA).text != ""
        watch = keel.store.watch(ADA, "SOUL:", interval=0.01)
        told = next(watch)
        for number in range(3):
            server.kill()
            with pytest.raises(BlockResolutionError) as caught:
                keel.prompt(ADA)
            assert isinstance(caught.value.__cause__, StoreUnavailableError)
            # An outage is never read as an empty memory.
            assert [each.state for each in lenient.prompt(ADA).resolution.blocks] == ["omitted"]
            with pytest.raises(StoreUnavailableError, match="cannot be reached") as refused:
                keel.remember(ADA, f"lost {number}", block="USER_PROFILE")
            assert not isinstance(refused.value, CommitUnknownError)
            with pytest.raises(StoreUnavailableError):
                next(watch)
            server.start()
            assert keel.prompt(ADA).text == before.text
            keel.remember(ADA, f"kept {number}", block="USER_PROFILE")
            before = keel.prompt(ADA)
            assert f'"kept {number}"' in before.text
            assert "lost" not in before.text
            assert lenient.prompt(ADA).text
            news = next(watch)
            assert news.revision != told.revision
            told = news


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_prompts_that_are_asked_while_the_server_is_killed_are_right_or_refused(
    server: PostgresServer, backend: str
) -> None:
    async def main() -> None:
        async with pk.open(server.url, blocks=BLOCKS) as keel:
            await keel.remember(ADA, "fact 0", block="USER_PROFILE")
            acknowledged = [0]
            asked: list[str] = []
            stop = anyio.Event()

            async def ask() -> None:
                while not stop.is_set():
                    least = acknowledged[-1]
                    with contextlib.suppress(BlockResolutionError):
                        asked.append((await keel.prompt(ADA)).text)
                        assert f'"fact {least}"' in asked[-1]
                    await anyio.lowlevel.checkpoint()

            async def write() -> None:
                for number in range(1, 1000):
                    with contextlib.suppress(StoreUnavailableError):
                        await keel.remember(ADA, f"fact {number}", block="USER_PROFILE")
                        acknowledged.append(number)
                    if stop.is_set():
                        return
                    await anyio.sleep(0.001)

            async with anyio.create_task_group() as group:
                for task in (ask, ask, write):
                    group.start_soon(task)
                for _ in range(2):
                    await anyio.sleep(0.3)
                    await anyio.to_thread.run_sync(server.kill)
                    await anyio.to_thread.run_sync(server.start)
                await anyio.sleep(0.2)
                stop.set()
            text = (await keel.prompt(ADA)).text
            assert all(f'"fact {number}"' in text for number in acknowledged)
            assert len(acknowledged) > 2

    anyio.run(main, backend=backend)


# Restored


def copied(server: PostgresServer, keep: Path) -> Callable[[], None]:
    """A copy of the data folder; put it back while the server stands still."""
    server.stop()
    shutil.copytree(server.data, keep, symlinks=True)
    server.start()

    def restore() -> None:
        server.stop()
        shutil.rmtree(server.data)
        # As root, so that whose files they are is kept.
        subprocess.run(["cp", "-a", keep, server.data], check=True)
        subprocess.run(["chown", "-R", "--reference", server.folder, server.data], check=True)
        server.start()

    return restore


def dumped(server: PostgresServer, keep: Path) -> Callable[[], None]:
    """What pg_dump writes, put back by pg_restore while clients are connected."""

    def run(program: str, *arguments: str) -> bytes:
        command = [server.programs / program, "-h", server.folder, "-U", "postgres", "-d", "postgres", *arguments]
        with keep.open("rb") if keep.exists() else contextlib.nullcontext() as source:
            done = subprocess.run(
                command, check=False, capture_output=True, stdin=source, cwd=server.folder, **_unprivileged()
            )
        assert done.returncode == 0, done.stderr
        return done.stdout

    keep.write_bytes(run("pg_dump", "-Fc"))

    def restore() -> None:
        server.run("DROP SCHEMA promptkeel CASCADE")
        run("pg_restore")

    return restore


@pytest.mark.parametrize("way", [copied, dumped])
def test_an_older_backup_that_counts_up_to_the_same_number_is_never_taken_for_what_it_replaced(
    server: PostgresServer, tmp_path: Path, way: Callable[[PostgresServer, Path], Callable[[], None]]
) -> None:
    with blocking.open(server.url, blocks=BLOCKS) as keel:
        keel.remember(ADA, "from before", block="USER_PROFILE", id="before")
        keel.prompt(ADA)
        restore = way(server, tmp_path / "kept")
        keel.remember(ADA, "was lost", block="USER_PROFILE", id="lost")
        lost = keel.prompt(ADA)
        watch = keel.store.watch(ADA, "SOUL:", interval=0.01)
        told = next(watch)
        heads = keel.store.heads(ADA)
        assert '"was lost"' in lost.text
        restore()
        with blocking.open(server.url, blocks=BLOCKS) as other:
            other.remember(ADA, "came after", block="USER_PROFILE", id="after")
        now = keel.store.heads(ADA)
        assert [level.seq for level in now.levels] == [level.seq for level in heads.levels]
        assert now != heads
        # The keel was open all the time, with caches from before.
        text = keel.prompt(ADA).text
        assert '"came after"' in text
        assert '"was lost"' not in text
        news = next(watch)
        while news.heads != now:
            news = next(watch)
        assert news.revision != told.revision
        # Heads of what is gone are no point in its past: never another lane by the same number.
        with pytest.raises(LookupError):
            keel.store.nodes_as_of(ADA, heads)
        assert keel.store.changes(ADA, heads).changes is None
        keel.remember(ADA, "and on", block="USER_PROFILE")
        assert '"and on"' in keel.prompt(ADA).text


# Full


_SMALL_DISK = (
    "unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
    'disk=$1 size=$2; shift 2; mount -t tmpfs -o size=$size,mode=700 small "$disk" && exec "$@"', "sh",
)  # fmt: skip
"""Run a command that alone sees a file system of its own; where, its size and the command follow."""
_COPY_AND_RUN = 'cp -a "$1/." "$2" && shift 2 && exec unshare --user --map-user=1000 --map-group=1000 "$@"'
"""Put a data folder there and run the server as somebody who is not root, as it demands."""


@pytest.fixture
def small() -> Iterator[PostgresServer]:
    """A server whose tables are on a file system of their own with little space; its log is elsewhere."""
    with own_postgres(max_wal_size="32MB") as server:
        disk, log = server.folder / "small", server.folder / "wal"
        disk.mkdir()
        subprocess.run(["chown", "-R", "--reference", server.folder, disk], check=True)
        probe = [*_SMALL_DISK, disk, "16m", "unshare", "--user", "--map-user=1000", "true"]
        if subprocess.run(probe, check=False, capture_output=True, cwd="/", **_unprivileged()).returncode:
            pytest.skip("no small disk to fill: nobody may mount a tmpfs in a user namespace here (unshare -Urm)")
        server.stop()
        shutil.move(server.data / "pg_wal", log)
        (server.data / "pg_wal").symlink_to(log)
        subprocess.run(["chown", "-R", "-h", "--reference", server.folder, log, server.data / "pg_wal"], check=True)
        server.launcher = [*_SMALL_DISK, disk, "64m", "sh", "-c", _COPY_AND_RUN, "sh", server.data, disk]
        server.data = disk
        server.start()
        yield server


def fill(server: PostgresServer) -> None:
    with psycopg.connect(server.url, autocommit=True) as client:
        client.execute("CREATE TABLE IF NOT EXISTS filler(bytes text)")
        client.execute("ALTER TABLE filler ALTER COLUMN bytes SET STORAGE PLAIN")
        for count in (1000, 100, 10, 1):
            with contextlib.suppress(psycopg.errors.DiskFull):
                while True:
                    client.execute("INSERT INTO filler SELECT repeat('x', 7000) FROM generate_series(1, %s)", (count,))


def test_a_full_disk_refuses_writes_whole_serves_reads_and_takes_writes_again(
    small: PostgresServer, clock: SteppingClock
) -> None:
    engine = PostgresEngine(small.url, clock=clock)
    engine.apply([Put(node("first", "SOUL:first"))])
    acknowledged = {"first"}
    for round_ in range(2):
        fill(small)
        refused = 0
        for number in range(3000):
            pair = [f"{half}{round_}-{number}" for half in "ab"]
            heads = engine.heads(ADA)
            try:
                engine.apply([Put(node(name, f"SOUL:{name} {'x' * 1000}")) for name in pair])
                acknowledged.update(pair)
            except StoreFullError:
                assert engine.heads(ADA) == heads
                refused += 1
                if refused == 5:
                    break
        assert refused == 5
        assert {each.id for each in engine.query_nodes(ADA, None, None)} == acknowledged
        with psycopg.connect(small.url, autocommit=True) as client:
            client.execute("DROP TABLE filler")
            client.execute("CHECKPOINT")
        name = f"after{round_}"
        engine.apply([Put(node(name, f"SOUL:{name}"))])
        acknowledged.add(name)
    assert {each.id for each in engine.query_nodes(ADA, None, None)} == acknowledged
    assert not check(small.url).findings
    engine.close()


# Used by many


def test_a_snapshot_that_holds_a_connection_while_reads_need_another_is_busy_in_time_and_never_stuck(
    server: PostgresServer, clock: SteppingClock
) -> None:
    engine = PostgresEngine(server.url, clock=clock, pool_size=2, busy_timeout=0.2)
    engine.apply([Put(node())])
    outcomes: list[str] = []
    everyone = threading.Barrier(2)

    def hold() -> None:
        snapshot = engine.open_snapshot()
        everyone.wait()
        try:
            outcomes.append(str(len(engine.query_nodes(ADA, None, None))))
        except StoreBusyError as error:
            outcomes.append(str(error)[:20])
        # Only now: each waited for what the other holds.
        everyone.wait()
        snapshot.close()

    threads = [threading.Thread(target=hold) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["all 2 connections to", "all 2 connections to"]
    assert ids(engine.query_nodes(ADA, None, None)) == ["n1"]
    engine.apply([Put(node("n2"))])
    engine.close()


def test_who_waits_for_a_connection_gets_it_when_it_comes_back_in_time(
    server: PostgresServer, clock: SteppingClock
) -> None:
    engine = PostgresEngine(server.url, clock=clock, pool_size=1, busy_timeout=30.0)
    engine.apply([Put(node())])
    snapshot = engine.open_snapshot()
    found: list[list[str]] = []
    waiting = [threading.Thread(target=lambda: found.append(ids(engine.query_nodes(ADA, None, None)))) for _ in "abc"]
    for thread in waiting:
        thread.start()
    while engine._connections._line.waiting < 3:
        pass
    snapshot.close()
    for thread in waiting:
        thread.join()
    assert found == [["n1"]] * 3
    engine.close()


def test_one_store_serves_threads_asyncio_and_trio_at_once(server: PostgresServer) -> None:
    with blocking.open(server.url, blocks=BLOCKS, pool_size=3) as keel:
        errors: list[BaseException] = []
        shared = Store(keel.store.core.engine)

        def guarded(work: Callable[[], object]) -> Callable[[], None]:
            def run() -> None:
                try:
                    work()
                except BaseException as error:  # noqa: BLE001 - raised below
                    errors.append(error)

            return run

        def in_thread(which: int) -> None:
            for number in range(10):
                keel.remember((ADA, BOB)[which % 2], f"thread {which} {number}", block="USER_PROFILE")
                assert f'"thread {which} {number}"' in keel.prompt((ADA, BOB)[which % 2]).text

        async def in_loop(name: str) -> None:
            async def task(which: int) -> None:
                for number in range(5):
                    id_ = f"{name}{which}-{number}"
                    await shared.put(node(id_, f"SOUL:{id_}", scope=ACME))
                    async with shared.snapshot() as snapshot:
                        assert id_ in ids(await snapshot.query_nodes(ADA, label_prefix="SOUL:"))

            async with anyio.create_task_group() as group:
                for which in range(4):
                    group.start_soon(task, which)

        works: list[Callable[[], object]] = [lambda which=which: in_thread(which) for which in range(4)]
        works += [lambda name=name: anyio.run(in_loop, name, backend=name) for name in ("asyncio", "trio")]
        threads = [threading.Thread(target=guarded(work)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        text = keel.prompt(ADA).text
        assert all(f'"{name}{which}-4"' in text for name in ("asyncio", "trio") for which in range(4))
        assert keel.prompt(BOB).text.count('"thread 1 ') == 10
    assert server.run("SELECT pid FROM pg_stat_activity WHERE application_name = 'promptkeel'") == []
