"""Every asynchronous call is cancelled at every await: no lock, no transaction and no connection is left behind."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

import promptkeel as pk
from promptkeel import blocking
from promptkeel.model import MemoryEdge, MemoryNode

ADA = pk.TenantScope.parse("org:acme/user:ada")
BLOCKS = [
    pk.PromptBlockSpec(name="RULES", source=pk.StaticSource("Be brief.")),
    pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:", {"role"}), on_failure="fail_closed"),
    pk.PromptBlockSpec(name="PREFERENCES", source=pk.MemoryLane("PREFERENCE:"), on_failure="fail_closed"),
]
BACKENDS = ("ram", "sqlite", "postgres")
FORMS = ("asyncio", "trio")
SERIALS = itertools.count()
ROUNDS = 2
"""SQLite keeps some files of closed connections open while it holds locks; from the second round on none is added."""
NAMES = (f"other{number}" for number in itertools.count())


class CancelledAt:
    """Awaits a coroutine and calls ``cancel`` just before its n-th suspension."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], at: int, cancel: Callable[[], object]) -> None:
        self._coroutine = coroutine
        self._at = at
        self._cancel = cancel
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = lambda: self._coroutine.send(None)  # noqa: E731 - replaced at every step
        while True:
            try:
                yielded = step()
            except StopIteration as stop:
                return stop.value
            self.suspensions += 1
            if self.suspensions == self._at:
                self._cancel()
            try:
                value = yield yielded
            except BaseException as error:  # noqa: BLE001 - cancellation goes on into the coroutine
                step = lambda error=error: self._coroutine.throw(error)  # noqa: E731 - as above
            else:
                step = lambda value=value: self._coroutine.send(value)  # noqa: E731 - as above


async def cancelled_everywhere(call: Callable[[int], Coroutine[Any, Any, Any]], check: Callable[[bool], Any]) -> int:
    """Run ``call`` again and again, cancelled one await later each time, until it ends before it is cancelled."""
    for at in range(1, 200):
        with anyio.CancelScope() as scope:
            watched = CancelledAt(call(at), at, scope.cancel)
            await watched
        await check(scope.cancelled_caught)
        if watched.suspensions < at:
            return at
    raise AssertionError("it never ends")


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


@pytest.fixture
def url(backend, tmp_path, request):
    if backend == "postgres":
        databases = request.getfixturevalue("databases")
        address = databases.store()
        yield address
        databases.give_back(address)
    else:
        yield "ram:" if backend == "ram" else f"sqlite:///{tmp_path / 'memory.db'}"


def left_behind(url: str) -> int:
    """Open files of the store, or transactions that wait for nobody."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        return sum(
            str(link.readlink()).startswith(path) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()
        )
    if url.startswith("postgres"):
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle' "
                "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            ).fetchone()
            return row[0]
    return 0


@attrs.frozen
class World:
    """An open keel with one node, and what must hold after every cancelled call."""

    keel: pk.Keel
    url: str

    async def check(self, _: bool) -> None:
        """Somebody else writes at once, and reads what is there."""
        await self.keel.remember(ADA, label="PREFERENCE:still writable")
        if self.url != "ram:":
            with blocking.open_store(self.url, busy_timeout=1.0) as other:
                other.put(MemoryNode(id=next(NAMES), scope=ADA, label="OTHER:x"))
        assert "still writable" in (await self.keel.prompt(ADA)).text


CALLS: dict[str, Callable[[pk.Keel, int], Coroutine[Any, Any, Any]]] = {
    "remember": lambda keel, at: keel.remember(ADA, f"fact {at}", block="USER_PROFILE", id=f"new{at}"),
    "correct": lambda keel, at: keel.correct(ADA, "tea", properties={"role": f"role {at}"}),
    "retract": lambda keel, _: keel.retract(ADA, "tea"),
    "link": lambda keel, at: keel.store.link(MemoryEdge(scope=ADA, start="tea", type=f"about{at}", end="chess")),
    "get": lambda keel, _: keel.get(ADA, "tea"),
    "facts": lambda keel, _: keel.facts(ADA),
    "history": lambda keel, _: keel.history(ADA, "tea"),
    "why": lambda keel, _: keel.why(ADA, "tea"),
    "receipts": lambda keel, _: keel.receipts(ADA, below=True),
    "query": lambda keel, _: keel.store.query_nodes(ADA, label_prefix="SOUL:"),
    "heads": lambda keel, _: keel.store.heads(ADA),
    "append": lambda keel, at: keel.blocks.append(ADA, "NOTES", f"text {at}", author="operator"),
    "log": lambda keel, _: keel.blocks.log(ADA, "NOTES"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_cancelled_call_leaves_nothing_behind(url, form, name):
    async def main():
        async with pk.open(url, blocks=BLOCKS) as keel:
            world = World(keel, url)
            await keel.remember(ADA, "prefers tea", block="USER_PROFILE", id="tea")
            await keel.remember(ADA, "likes chess", block="USER_PROFILE", id="chess")
            await world.check(False)
            for _ in range(ROUNDS):
                assert await cancelled_everywhere(lambda _: CALLS[name](keel, next(SERIALS)), world.check) >= 1
            before = left_behind(url)
            await cancelled_everywhere(lambda _: CALLS[name](keel, next(SERIALS)), world.check)
            assert left_behind(url) <= before

    anyio.run(main, backend=form)


def test_a_cancelled_prompt_leaves_the_next_one_right(url, form):
    async def main():
        async with pk.open(url, blocks=BLOCKS) as keel:
            world = World(keel, url)
            await world.check(False)

            async def ask(at: int) -> pk.Prompt:
                # Something has moved each time, so that it is read and rendered again.
                await keel.remember(ADA, f"fact {at}", block="USER_PROFILE")
                return await keel.prompt(ADA)

            for _ in range(ROUNDS):
                tried = await cancelled_everywhere(ask, world.check)
                assert tried >= 2
            before = left_behind(url)
            tried = await cancelled_everywhere(ask, world.check)
            text = (await keel.prompt(ADA)).text
            assert f'"fact {tried}"' in text
            assert left_behind(url) <= before

    anyio.run(main, backend=form)


def test_a_cancelled_write_is_there_whole_or_not_at_all(url, form):
    async def main():
        async with pk.open(url, blocks=BLOCKS) as keel:
            world = World(keel, url)
            names = ("one", "two", "three")

            async def write(at: int) -> None:
                from promptkeel.store.operations import Put

                puts = [Put(MemoryNode(id=f"{name}{at}", scope=ADA, label=f"SOUL:{name}{at}")) for name in names]
                await keel.store.apply(puts)

            tried = await cancelled_everywhere(write, world.check)
            labels = {node.label for node in await keel.store.query_nodes(ADA, label_prefix="SOUL:")}
            for at in range(1, tried + 1):
                found = sum(f"SOUL:{name}{at}" in labels for name in names)
                assert found in (0, len(names))
            assert f"SOUL:one{tried}" in labels

    anyio.run(main, backend=form)


def test_an_erasure_that_is_cancelled_is_done_or_not(url, form):
    async def main():
        async with pk.open(url, blocks=BLOCKS) as keel:
            world = World(keel, url)

            async def erase(at: int) -> None:
                await keel.remember(ADA, f"secret {at}", block="USER_PROFILE", id=f"secret{at}")
                await keel.erase(ADA, f"secret{at}")

            tried = await cancelled_everywhere(erase, world.check)
            erased = {receipt.node_id for receipt in await keel.receipts(ADA)}
            live = {node.id for node in await keel.store.query_nodes(ADA, label_prefix="SOUL:")}
            assert f"secret{tried}" in erased
            assert not erased & live

    anyio.run(main, backend=form)


def test_a_cancelled_snapshot_lets_the_store_move_on(url, form):
    async def main():
        async with pk.open(url, blocks=BLOCKS) as keel:
            world = World(keel, url)
            await world.check(False)

            async def look(_: int) -> None:
                async with keel.store.snapshot() as snapshot:
                    await snapshot.query_nodes(ADA, label_prefix="PREFERENCE:")
                    await snapshot.heads(ADA)

            for _ in range(ROUNDS):
                await cancelled_everywhere(look, world.check)
            before = left_behind(url)
            await cancelled_everywhere(look, world.check)
            assert left_behind(url) <= before

    anyio.run(main, backend=form)


def test_followers_of_a_cancelled_flight_are_served(url, form):
    async def main():
        async with pk.open(url, blocks=BLOCKS) as keel:
            await keel.remember(ADA, "prefers tea", block="USER_PROFILE")
            for at in range(1, 12):
                await keel.remember(ADA, f"fact {at}", block="USER_PROFILE")
                texts: list[str] = []

                async def follow(texts: list[str] = texts) -> None:
                    texts.append((await keel.prompt(ADA)).text)

                async with anyio.create_task_group() as group:
                    scope = anyio.CancelScope()

                    async def lead(scope: anyio.CancelScope = scope, at: int = at) -> None:
                        with scope:
                            await CancelledAt(keel.prompt(ADA), at, scope.cancel)

                    group.start_soon(lead)
                    for _ in range(5):
                        group.start_soon(follow)
                assert len(texts) == 5
                assert all(f'"fact {at}"' in text for text in texts)

    anyio.run(main, backend=form)
