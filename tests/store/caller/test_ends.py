"""However a caller's transaction ends: killed in the middle, cancelled at any moment, called by several tasks."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiosqlite
import anyio
import apsw
import psycopg
import pytest

import promptkeel
from promptkeel import blocking
from servers import Databases
from store.caller.worlds import BLOCKS, SCOPE

_KILLED = """
import contextlib, sqlite3, sys, apsw, psycopg
from promptkeel import MemoryLane, PromptBlockSpec, TenantScope, blocking

url, kind = sys.argv[1:]
path = url.removeprefix("sqlite:///").partition("?")[0]
connection = {"apsw": apsw.Connection, "sqlite3": sqlite3.connect, "psycopg": psycopg.connect}[kind](
    url if kind == "psycopg" else path
)
blocks = [PromptBlockSpec(name="PROFILE", source=MemoryLane("SOUL:"))]
with blocking.open(url, blocks=blocks) as keel:
    if kind == "apsw":
        connection.execute("BEGIN")
    connection.execute("INSERT INTO orders VALUES (1)")
    keel.on(connection).remember(TenantScope.parse("org:acme/user:ada"), "ordered", block="PROFILE")
    print("written", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["apsw", "sqlite3", "psycopg"])
def killed(request: pytest.FixtureRequest, tmp_path: Path):
    """The kind of a connection, and the address of a store beside a business table."""
    kind = request.param
    if kind != "psycopg":
        url = f"sqlite:///{tmp_path / 'memory.db'}" + ("?driver=sqlite3" if kind == "sqlite3" else "")
        with blocking.open_store(url), contextlib.closing(_reader(kind, url)) as connection:
            connection.execute("CREATE TABLE orders(number)")
            connection.commit() if kind == "sqlite3" else None
        yield kind, url
        return
    databases: Databases = request.getfixturevalue("databases")
    url = databases.store()
    with blocking.open_store(url), psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE orders(number int)")
    yield kind, url
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE orders")
    databases.give_back(url)


def _reader(kind: str, url: str) -> Any:
    if kind == "psycopg":
        return psycopg.connect(url)
    path = url.removeprefix("sqlite:///").partition("?")[0]
    if kind == "apsw":
        return apsw.Connection(path)
    import sqlite3

    return sqlite3.connect(path)


def test_a_process_killed_inside_its_transaction_leaves_neither(killed):
    kind, url = killed
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, url, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with blocking.open(url, blocks=BLOCKS) as keel, contextlib.closing(_reader(kind, url)) as connection:
        assert keel.facts(SCOPE) == ()
        assert connection.execute("SELECT number FROM orders").fetchall() == []
        # And the locks went with it.
        if kind == "apsw":
            connection.execute("BEGIN")
        keel.on(connection).remember(SCOPE, "ordered", block="PROFILE")
        connection.execute("INSERT INTO orders VALUES (1)")
        connection.execute("COMMIT")
        assert [fact.value for fact in keel.facts(SCOPE)] == ["ordered"]


@pytest.fixture
def postgres_url(databases: Databases):
    url = databases.store()
    yield url
    databases.give_back(url)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_cancelled_call_has_let_go_of_the_connection(postgres_url, is_async):
    """At whatever moment it is cancelled: nothing of it goes on afterwards, and the savepoint is closed."""

    async def body() -> None:
        async with promptkeel.open(postgres_url, blocks=BLOCKS) as keel:
            connection = (
                await psycopg.AsyncConnection.connect(postgres_url) if is_async else psycopg.connect(postgres_url)
            )
            ended = 0
            for turns in range(60):
                task = asyncio.ensure_future(keel.on(connection).remember(SCOPE, f"fact {turns}", block="PROFILE"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    await task
                    ended += 1
                except asyncio.CancelledError:
                    pass
                assert connection.info.transaction_status in (
                    psycopg.pq.TransactionStatus.IDLE,
                    psycopg.pq.TransactionStatus.INTRANS,
                )
                before = connection.info.transaction_status
                await asyncio.sleep(0.001)
                assert connection.info.transaction_status == before
            statuses = await keel.on(connection).facts(SCOPE)
            assert len(statuses) >= ended
            await _maybe(connection.rollback())
            assert await keel.facts(SCOPE) == ()
            await _maybe(connection.close())

    asyncio.run(body())


async def _maybe(answer: Any) -> None:
    if answer is not None:
        await answer


def test_a_cancelled_call_has_let_go_of_a_connection_of_aiosqlite(tmp_path):
    """Its thread has ended what it began, whole or not at all, and the caller's own row is still there."""
    file = str(tmp_path / "memory.db")

    async def body() -> None:
        async with (
            promptkeel.open(f"sqlite:///{file}?driver=sqlite3", blocks=BLOCKS) as keel,
            aiosqlite.connect(file) as connection,
        ):
            await connection.execute("CREATE TABLE orders(number)")
            await connection.execute("INSERT INTO orders VALUES (1)")
            ended = cancelled = 0
            for turns in range(60):
                task = asyncio.ensure_future(keel.on(connection).remember(SCOPE, f"fact {turns}", block="PROFILE"))
                for _ in range(turns // 4):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    await task
                    ended += 1
                except asyncio.CancelledError:
                    cancelled += 1
                assert connection._tx.qsize() == 0
                with pytest.raises(aiosqlite.OperationalError, match="no such savepoint"):
                    await connection.execute("RELEASE promptkeel")
            assert cancelled
            assert len(await keel.on(connection).facts(SCOPE)) >= ended
            await connection.rollback()
            assert await keel.facts(SCOPE) == ()

    asyncio.run(body())


def test_statements_of_other_tasks_stay_out_of_a_savepoint_on_aiosqlite(tmp_path):
    """A row that another task writes meanwhile is not undone by a call that is refused."""
    file = str(tmp_path / "memory.db")

    async def body() -> None:
        async with (
            promptkeel.open(f"sqlite:///{file}?driver=sqlite3", blocks=BLOCKS) as keel,
            aiosqlite.connect(file) as connection,
        ):
            await connection.execute("CREATE TABLE orders(number)")
            bound = keel.on(connection)
            node = await bound.remember(SCOPE, "a fact", block="PROFILE", id="taken")

            async def refused() -> None:
                with pytest.raises(promptkeel.NodeExistsError):
                    await bound.remember(SCOPE, "another fact", block="PROFILE", id=node.id)

            async def insert(number: int) -> None:
                await connection.execute("INSERT INTO orders VALUES (?)", (number,))

            await asyncio.gather(*(each for number in range(30) for each in (refused(), insert(number))))
            await connection.commit()
            rows = await connection.execute_fetchall("SELECT number FROM orders")
            assert sorted(row[0] for row in rows) == list(range(30))
            assert [fact.value for fact in await keel.facts(SCOPE)] == ["a fact"]

    asyncio.run(body())


def test_a_cancelled_scope_has_let_go_of_the_connection(postgres_url):
    async def body() -> None:
        async with (
            promptkeel.open(postgres_url, blocks=BLOCKS) as keel,
            await psycopg.AsyncConnection.connect(postgres_url) as connection,
        ):
            for turns in range(30):
                with anyio.move_on_after(turns * 0.0005):
                    await keel.on(connection).remember(SCOPE, f"fact {turns}", block="PROFILE")
                assert connection.info.transaction_status != psycopg.pq.TransactionStatus.ACTIVE
                await connection.rollback()
                assert await keel.facts(SCOPE) == ()

    anyio.run(body)


@pytest.mark.parametrize("is_async", [True, False])
def test_calls_of_several_tasks_take_turns(postgres_url, is_async):
    async def body() -> None:
        async with promptkeel.open(postgres_url, blocks=BLOCKS) as keel:
            connection = (
                await psycopg.AsyncConnection.connect(postgres_url) if is_async else psycopg.connect(postgres_url)
            )
            bound = keel.on(connection)
            await asyncio.gather(*(bound.remember(SCOPE, f"fact {number}", block="PROFILE") for number in range(12)))
            assert len(await bound.facts(SCOPE)) == 12
            assert await keel.facts(SCOPE) == ()
            await _maybe(connection.commit())
            assert len(await keel.facts(SCOPE)) == 12
            await _maybe(connection.close())

    asyncio.run(body())


def test_trio_takes_part_in_a_transaction_of_sqlite(tmp_path):
    file = str(tmp_path / "memory.db")

    async def body() -> None:
        async with promptkeel.open(f"sqlite:///{file}", blocks=BLOCKS) as keel:
            with contextlib.closing(apsw.Connection(file)) as connection:
                connection.execute("BEGIN")
                await keel.on(connection).remember(SCOPE, "prefers tea", block="PROFILE")
                assert await keel.facts(SCOPE) == ()
                connection.execute("COMMIT")
            assert [fact.value for fact in await keel.facts(SCOPE)] == ["prefers tea"]

    anyio.run(body, backend="trio")


def test_trio_takes_part_in_a_blocking_transaction_of_postgresql(postgres_url):
    async def body() -> None:
        async with promptkeel.open(postgres_url, blocks=BLOCKS) as keel:
            with psycopg.connect(postgres_url) as connection:
                await keel.on(connection).remember(SCOPE, "prefers tea", block="PROFILE")
                assert await keel.facts(SCOPE) == ()
            assert [fact.value for fact in await keel.facts(SCOPE)] == ["prefers tea"]

    anyio.run(body, backend="trio")


def test_prompts_of_the_caller_read_nothing_that_was_kept(tmp_path):
    """Each bound prompt reads whole, and what the keel itself keeps is neither used nor changed by it."""
    file = str(tmp_path / "memory.db")
    with (
        blocking.open(f"sqlite:///{file}", blocks=BLOCKS) as keel,
        contextlib.closing(apsw.Connection(file)) as connection,
    ):
        keel.remember(SCOPE, "prefers tea", block="PROFILE")
        kept = keel.prompt(SCOPE)
        counted = keel.counters.scans, keel.counters.renders
        connection.execute("BEGIN")
        inside = keel.on(connection).prompt(SCOPE)
        assert inside.text == kept.text
        assert inside is not kept
        keel.on(connection).remember(SCOPE, "lives in Turin", block="PROFILE")
        assert "Turin" in keel.on(connection).prompt(SCOPE).text
        assert keel.prompt(SCOPE) is kept
        assert (keel.counters.scans, keel.counters.renders) == counted
        connection.execute("ROLLBACK")
        assert keel.prompt(SCOPE).text == kept.text
