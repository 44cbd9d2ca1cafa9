"""A SQLite store under what else goes on: checkpoints by others, many snapshots, threads and event loops at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import anyio
import pytest

import promptkeel as pk
from promptkeel import blocking
from promptkeel.model import MemoryNode
from promptkeel.store.facade import Store

ADA = pk.TenantScope.parse("org:acme/user:ada")
BLOCKS = [pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:"), on_failure="fail_closed")]
CHECKPOINT = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
print(*connection.execute(f"PRAGMA wal_checkpoint({sys.argv[2]})").fetchone())
connection.close()
"""


def checkpoint(path, mode):
    """Whether it was kept from finishing, the pages in the log, and those that were put into the file."""
    command = [sys.executable, "-c", CHECKPOINT, str(path), mode]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return tuple(map(int, done.stdout.split()))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory.db"


@pytest.mark.parametrize("mode", ["PASSIVE", "FULL", "RESTART", "TRUNCATE"])
def test_a_checkpoint_by_another_process_leaves_open_snapshots_as_they_are(path, mode):
    with blocking.open_store(f"sqlite:///{path}") as store:
        for number in range(20):
            store.put(MemoryNode(id=f"n{number}", scope=ADA, label=f"SOUL:{number}"))
        with store.snapshot() as snapshot:
            before = [node.id for node in snapshot.query_nodes(ADA)]
            for number in range(20, 40):
                store.put(MemoryNode(id=f"n{number}", scope=ADA, label=f"SOUL:{number}"))
            _, in_log, moved = checkpoint(path, mode)
            assert moved < in_log
            store.put(MemoryNode(id="later", scope=ADA, label="SOUL:later"))
            assert [node.id for node in snapshot.query_nodes(ADA)] == before
            assert len(store.query_nodes(ADA)) == 41
        is_busy, in_log, moved = checkpoint(path, mode)
        assert (is_busy, moved) == (0, in_log)
        assert len(store.query_nodes(ADA)) == 41
        store.put(MemoryNode(id="last", scope=ADA, label="SOUL:last"))
    with blocking.open_store(f"sqlite:///{path}") as store:
        assert len(store.query_nodes(ADA)) == 42


def test_a_checkpoint_moves_no_prompt(path):
    with blocking.open(f"sqlite:///{path}", blocks=BLOCKS) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        before = keel.prompt(ADA)
        checkpoint(path, "TRUNCATE")
        assert keel.prompt(ADA).text == before.text
        keel.remember(ADA, "likes chess", block="USER_PROFILE")
        assert '"likes chess"' in keel.prompt(ADA).text


def test_many_snapshots_are_held_at_once_and_nobody_waits(path):
    with blocking.open_store(f"sqlite:///{path}") as store:
        held = []
        for number in range(60):
            store.put(MemoryNode(id=f"n{number}", scope=ADA, label=f"SOUL:{number}"))
            manager = store.snapshot()
            held.append((manager, manager.__enter__()))
        store.put(MemoryNode(id="last", scope=ADA, label="SOUL:last"))
        for number, (_, snapshot) in enumerate(held):
            assert len(snapshot.query_nodes(ADA)) == number + 1
        for manager, _ in held:
            manager.__exit__(None, None, None)
        assert len(store.query_nodes(ADA)) == 61


def test_one_store_serves_threads_asyncio_and_trio_at_once(path):
    failures = []
    with blocking.open_store(f"sqlite:///{path}") as store:
        engine = store.core.engine

        def by_thread(name):
            for number in range(30):
                store.put(MemoryNode(id=f"{name}{number}", scope=ADA, label=f"SOUL:{name}{number}"))
                assert len(store.query_nodes(ADA, label_prefix=f"SOUL:{name}")) == number + 1

        def by_loop(backend, name):
            async def main():
                shared = Store(engine)
                for number in range(30):
                    await shared.put(MemoryNode(id=f"{name}{number}", scope=ADA, label=f"SOUL:{name}{number}"))
                    found = await shared.query_nodes(ADA, label_prefix=f"SOUL:{name}")
                    assert len(found) == number + 1

            anyio.run(main, backend=backend)

        def kept(call, *arguments):
            try:
                call(*arguments)
            except BaseException as error:  # noqa: BLE001 - raised below, on the test's thread
                failures.append(error)

        threads = [threading.Thread(target=kept, args=(by_thread, f"t{number}x")) for number in range(2)]
        for backend in ("asyncio", "trio"):
            threads += [threading.Thread(target=kept, args=(by_loop, backend, f"{backend}{n}x")) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(store.query_nodes(ADA)) == 180


@pytest.mark.parametrize("url", ["ram:", "sqlite"])
def test_an_observer_may_ask_the_keel_again(url, path):
    seen = []

    def observe(event):
        if len(seen) < 3:
            seen.append(event.action)
            seen.append(keel.facts(ADA))

    address = url if url == "ram:" else f"sqlite:///{path}"
    with blocking.open(address, blocks=BLOCKS, observe=observe) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        done = threading.Thread(target=lambda: seen.append(keel.prompt(ADA).text), daemon=True)
        done.start()
        done.join(20)
        assert not done.is_alive(), "the observer waits for the call that it observes"
        assert "prefers tea" in seen[-1]


def test_a_loop_that_has_ended_is_not_needed_by_the_next(path):
    async def ask():
        async with pk.open(f"sqlite:///{path}", blocks=BLOCKS) as keel:
            await keel.remember(ADA, "prefers tea", block="USER_PROFILE")
            return (await keel.prompt(ADA)).text

    assert asyncio.run(ask()) == asyncio.run(ask()) == anyio.run(ask, backend="trio")
