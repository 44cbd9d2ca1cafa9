"""Watching a lane: the first revision at once, every later one, nothing of other lanes, and nothing left behind."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.blocking import scan_memory_lane as blocking_scan
from promptkeel.errors import InvalidDeclarationError, InvalidInputError, StoreClosedError
from promptkeel.lane import EMPTY_MEMORY_REVISION, scan_memory_lane
from promptkeel.scope import TenantScope
from promptkeel.store import watching
from promptkeel.store.base import Engine
from promptkeel.store.facade import BlockingStore, Store
from promptkeel.store.opening import open_engine
from store.examples import ACME, ADA, BOB, OTHER, SteppingClock, node

NEVER = 3600.0
"""No test waits for a tick of so many seconds: what comes, comes because somebody was woken."""


@pytest.fixture(params=("asyncio", "trio"))
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Counted:
    """An engine whose calls are counted when they are over."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.calls: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._engine, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = value(*args, **kwargs)
            self.calls[name] = self.calls.get(name, 0) + 1
            return answer

        return call


class Remote(Counted):
    """An engine that may not be called on an event loop's own thread."""

    is_local = False

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.threads: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        if callable(value):
            self.threads.add(threading.current_thread().name)
        return value


@pytest.mark.anyio
async def test_the_first_revision_comes_at_once(engine: Engine) -> None:
    store = Store(engine)
    watch = store.watch(ADA, "SOUL:", interval=NEVER)
    assert (await anext(watch)).revision == EMPTY_MEMORY_REVISION
    await store.put(node())
    assert (await anext(store.watch(ADA, "SOUL:", interval=NEVER))).revision != EMPTY_MEMORY_REVISION


@pytest.mark.anyio
async def test_every_later_change_is_seen_and_is_what_a_scan_finds(engine: Engine, clock: SteppingClock) -> None:
    store = Store(engine)
    watch = store.watch(ADA, "SOUL:", profile_fields={"role"}, interval=NEVER)
    seen = [(await anext(watch)).revision]
    for number, scope in enumerate((ADA, ACME, ADA)):
        clock.tick()
        await store.put(node(f"n{number}", scope=scope, properties={"role": "CTO"}))
        seen.append((await anext(watch)).revision)
        assert seen[-1] == (await scan_memory_lane(store, ADA, "SOUL:", {"role"})).revision
    await store.retract(ADA, "n0")
    seen.append((await anext(watch)).revision)
    await store.erase(ADA, "n2")
    last = await anext(watch)
    assert last.revision == (await scan_memory_lane(store, ADA, "SOUL:", {"role"})).revision
    assert last.heads == await store.heads(ADA)
    assert len({*seen, last.revision}) == 6


@pytest.mark.anyio
async def test_a_slow_consumer_gets_the_newest_only(engine: Engine) -> None:
    store = Store(engine)
    watch = store.watch(ADA, "SOUL:", interval=NEVER)
    await anext(watch)
    for number in range(5):
        await store.put(node(f"n{number}"))
    assert (await anext(watch)).revision == (await scan_memory_lane(store, ADA, "SOUL:")).revision
    with anyio.move_on_after(0.02) as waiting:
        await anext(watch)
    assert waiting.cancelled_caught


@pytest.mark.anyio
async def test_other_lanes_wake_nothing(engine: Engine) -> None:
    store = Store(engine)
    watch = store.watch(ADA, "SOUL:", interval=NEVER)
    woken: list[str] = []

    async def follow() -> None:
        async for news in watch:
            woken.append(news.revision)
            if len(woken) == 2:
                return

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        while not woken:
            await anyio.lowlevel.checkpoint()
        other = store.watch(ADA, "RULE:", interval=NEVER)
        await anext(other)
        await store.put(node("b1", scope=BOB))
        await store.put(node("o1", scope=OTHER))
        await store.put(node("r1", "RULE:be brief"))
        await anext(other)
        assert woken == [EMPTY_MEMORY_REVISION]
        await store.put(node("n1"))
    assert len(woken) == 2


@pytest.mark.anyio
async def test_commits_of_a_second_handle_are_found_by_the_poll(
    open_backend: Callable[..., Engine], backend: str, engine: Engine
) -> None:
    if backend == "ram":
        pytest.skip("a store in memory has no second handle")
    store, second = Store(engine), Store(open_backend())
    watch = store.watch(ADA, "SOUL:", interval=0.005)
    seen = {(await anext(watch)).revision}
    for number in range(3):
        await second.put(node(f"n{number}"))
        seen.add((await anext(watch)).revision)
    assert len(seen) == 4


@pytest.mark.anyio
async def test_a_hundred_watchers_cost_one_probe_a_tick(engine: Engine) -> None:
    counted = Counted(engine)
    store = Store(counted)  # type: ignore[arg-type]
    watches = [store.watch(ADA if number % 2 else BOB, "SOUL:", interval=NEVER) for number in range(100)]
    for watch in watches:
        await anext(watch)
    told: list[str] = []
    everyone = anyio.Event()

    async def follow(watch: Any) -> None:
        told.append((await anext(watch)).revision)
        if len(told) == 100:
            everyone.set()

    async with anyio.create_task_group() as group:
        for watch in watches:
            group.start_soon(follow, watch)
        await anyio.wait_all_tasks_blocked()
        counted.calls.clear()
        engine.apply([])
        watching.wake(counted)  # type: ignore[arg-type]
        while not counted.calls:
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert counted.calls == {"probe": 1}
        await store.put(node("n1", scope=ACME))
        await everyone.wait()
    assert counted.calls == {"probe": 2, "heads": 2, "catch_up": 2, "apply": 1}


@pytest.mark.anyio
async def test_cancelling_leaves_no_task_and_no_thread_and_the_others_go_on(engine: Engine) -> None:
    store = Store(engine)
    watches = [store.watch(ADA, "SOUL:", interval=NEVER) for _ in range(3)]
    for watch in watches:
        await anext(watch)
    found: list[str] = []

    async def follow(watch: Any, scope: anyio.CancelScope) -> None:
        with scope:
            found.append((await anext(watch)).revision)

    scopes = [anyio.CancelScope() for _ in watches]
    async with anyio.create_task_group() as group:
        for watch, scope in zip(watches, scopes, strict=True):
            group.start_soon(follow, watch, scope)
        await anyio.wait_all_tasks_blocked()
        scopes[0].cancel()
        await anyio.wait_all_tasks_blocked()
        scopes[1].cancel()
        await anyio.wait_all_tasks_blocked()
        assert found == []
        await store.put(node())
    assert len(found) == 1
    poller = watches[0]._poller
    assert poller is not None
    assert not poller._waiting
    assert poller._leader is None


@pytest.mark.anyio
async def test_a_watch_that_is_let_go_is_forgotten(engine: Engine) -> None:
    store = Store(engine)
    async for _ in store.watch(ADA, "SOUL:", interval=NEVER):
        break
    # The loop finishes a generator that was let go, and a helper its last look, at their own next turn.
    with anyio.fail_after(20):
        while watching._POLLERS.get(engine):
            gc.collect()
            await anyio.sleep(0.001)


@pytest.mark.anyio
async def test_a_store_that_is_closed_says_so_to_everyone_who_waits(engine: Engine) -> None:
    store = Store(engine)
    watches = [store.watch(ADA, prefix, interval=NEVER) for prefix in ("SOUL:", "RULE:")]
    for watch in watches:
        await anext(watch)

    async def follow(watch: Any) -> None:
        with pytest.raises(StoreClosedError):
            await anext(watch)

    async with anyio.create_task_group() as group:
        for watch in watches:
            group.start_soon(follow, watch)
        await anyio.wait_all_tasks_blocked()
        await store.close()
        watching.wake(engine)
    with pytest.raises(StoreClosedError):
        await anext(watches[0])


@pytest.mark.anyio
async def test_a_remote_engine_is_asked_in_workers_only(engine: Engine) -> None:
    remote = Remote(engine)
    store = Store(remote)  # type: ignore[arg-type]
    watch = store.watch(ADA, "SOUL:", interval=NEVER)
    await anext(watch)
    await store.put(node())
    await anext(watch)
    assert remote.calls["probe"] >= 2
    assert threading.current_thread().name not in remote.threads


def test_a_blocking_watch_sees_changes_and_can_be_stopped_from_another_thread(engine: Engine) -> None:
    store = BlockingStore(engine)
    watch = store.watch(ADA, "SOUL:", interval=NEVER)
    seen: list[str] = []
    told = threading.Semaphore(0)

    def follow() -> None:
        for news in watch:
            seen.append(news.revision)
            told.release()

    thread = threading.Thread(target=follow)
    thread.start()
    assert told.acquire(timeout=30)
    store.put(node())
    assert told.acquire(timeout=30)
    assert seen[-1] == blocking_scan(store, ADA, "SOUL:").revision
    watch.stop()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert list(watch) == []


def test_threads_that_watch_together_miss_nothing(engine: Engine) -> None:
    store = BlockingStore(engine)
    seen: list[list[str]] = [[] for _ in range(8)]

    def follow(mine: list[str]) -> None:
        with store.watch(ADA, "SOUL:", interval=0.005) as watch:
            for news in watch:
                mine.append(news.revision)
                if news.revision.startswith("mem:20:"):
                    return

    threads = [threading.Thread(target=follow, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    for number in range(20):
        store.put(node(f"n{number}"))
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)
    last = blocking_scan(store, ADA, "SOUL:").revision
    assert all(mine[-1] == last for mine in seen)
    assert all(len(set(mine)) == len(mine) for mine in seen)


PREFIXES = ("SOUL:", "RULE:")
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from([ADA, BOB, ACME]), st.sampled_from(PREFIXES)),
        st.tuples(st.just("ask"), st.sampled_from([ADA, BOB]), st.sampled_from(PREFIXES)),
    ),
    max_size=15,
)


@given(steps)
def test_what_is_told_is_always_news_and_always_the_newest(program: list[tuple[str, TenantScope, str]]) -> None:
    engine = open_engine("ram:", clock=SteppingClock())
    store = BlockingStore(engine)
    watches = {
        (scope, prefix): store.watch(scope, prefix, interval=NEVER) for scope in (ADA, BOB) for prefix in PREFIXES
    }
    told = {key: next(watch).revision for key, watch in watches.items()}
    for number, (action, scope, prefix) in enumerate(program):
        if action == "put":
            store.put(node(f"n{number}", f"{prefix}says {number}", scope=scope))
        elif (newest := blocking_scan(store, scope, prefix).revision) != told[scope, prefix]:
            told[scope, prefix] = next(watches[scope, prefix]).revision
            assert told[scope, prefix] == newest
    engine.close()


def test_what_cannot_be_watched_is_refused_at_once(engine: Engine) -> None:
    store = BlockingStore(engine)
    with pytest.raises(InvalidInputError):
        store.watch(ADA, "SOUL:", interval=0)
    with pytest.raises(InvalidDeclarationError):
        store.watch(ADA, "SOUL:\0")
    with pytest.raises(InvalidInputError):
        store.watch("org:acme", "SOUL:")  # type: ignore[arg-type]


def test_every_store_declares_that_it_can_be_watched(engine: Engine) -> None:
    assert "watch" in BlockingStore(engine).capabilities
