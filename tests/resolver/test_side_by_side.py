"""Many calls at once, and many sources in one call: shared where that is sound, apart where not, off the loop."""

from __future__ import annotations

import threading

import anyio
import anyio.to_thread
import attrs
import pytest

import promptkeel as pk
from promptkeel import blocking

ADA = pk.TenantScope.parse("org:acme/user:ada")
BACKENDS = ["asyncio", "trio"]


@pytest.fixture(params=["ram:", "sqlite"])
def url(request, tmp_path):
    return request.param if request.param == "ram:" else f"sqlite:///{tmp_path / 'memory.db'}"


def test_sources_are_read_side_by_side_in_both_worlds(tmp_path):
    meeting = threading.Barrier(3)

    def function(_):
        meeting.wait(20)
        return "text", "r"

    specs = [pk.PromptBlockSpec(name=name, source=pk.ComputedSource(function), timeout=20) for name in "ABC"]
    assert blocking.PromptBlockResolver(specs).resolve(ADA).freshness.strict

    async def main():
        return await pk.PromptBlockResolver(specs).resolve(ADA)

    assert anyio.run(main).freshness.strict


@pytest.mark.parametrize("backend", BACKENDS)
def test_asynchronous_sources_are_awaited_side_by_side_with_the_store(url, backend):
    async def main():
        both = [anyio.Event(), anyio.Event()]

        def function(mine, other):
            async def ask(_):
                both[mine].set()
                await both[other].wait()
                return "text", "r"

            return ask

        specs = [
            pk.PromptBlockSpec(name="A", source=pk.ComputedSource(function(0, 1)), timeout=20),
            pk.PromptBlockSpec(name="B", source=pk.ComputedSource(function(1, 0)), timeout=20),
            pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:")),
        ]
        async with pk.open(url, blocks=specs) as keel:
            await keel.remember(ADA, "prefers tea", block="USER_PROFILE")
            prompt = await keel.prompt(ADA)
            assert [bool(block.text) for block in prompt.blocks] == [True] * 3

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_source_gate_or_scanner_that_blocks_runs_on_the_loops_own_thread(tmp_path, backend):
    threads = []

    class Scanner:
        def query_nodes(self, *_, **__):
            threads.append(threading.get_ident())
            return []

    class Own:
        kind, is_learned, sharing, declared = "own", False, ("scope",), ()

        def load(self, _):
            threads.append(threading.get_ident())
            return pk.BlockRevision(content="text", revision="r")

    def function(_):
        threads.append(threading.get_ident())
        return "text", "r"

    def gate(_):
        threads.append(threading.get_ident())
        return True

    class Watched(type(tmp_path)):
        def stat(self, **options):
            threads.append(threading.get_ident())
            return super().stat(**options)

    path = tmp_path / "rules.md"
    path.write_text("Be brief.")
    specs = [
        pk.PromptBlockSpec(name="CLOCK", source=pk.ComputedSource(function), render_when=gate),
        pk.PromptBlockSpec(name="OWN", source=Own()),
        pk.PromptBlockSpec(name="RULES", source=pk.FileSource(Watched(path))),
        pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:"), on_failure="fail_closed"),
    ]

    async def main():
        resolver = pk.PromptBlockResolver(specs, memory=Scanner(), secret=b"key")
        resolution = await resolver.resolve(ADA)
        assert resolution.freshness.strict
        return threading.get_ident()

    here = anyio.run(main, backend=backend)
    assert len(threads) >= 4
    assert here not in threads


@pytest.mark.parametrize("backend", BACKENDS)
def test_fifty_calls_at_once_read_and_render_each_touched_block_once(url, tmp_path, backend):
    path = tmp_path / "rules.md"
    path.write_text("Be brief.")
    entered, release, asked = threading.Event(), threading.Event(), []

    def function(_):
        asked.append(1)
        entered.set()
        assert release.wait(20)
        return "the time", "r"

    specs = [
        pk.PromptBlockSpec(name="RULES", source=pk.FileSource(path)),
        pk.PromptBlockSpec(name="CLOCK", source=pk.ComputedSource(function), timeout=20),
        pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:")),
        pk.PromptBlockSpec(name="PREFERENCES", source=pk.MemoryLane("PREFERENCE:")),
    ]

    async def main():
        async with pk.open(url, blocks=specs) as keel:
            await keel.remember(ADA, "short answers", block="PREFERENCES")
            for number in range(500):
                await keel.remember(ADA, f"fact {number}", block="USER_PROFILE")
            release.set()
            await keel.prompt(ADA)
            release.clear()
            entered.clear()
            del asked[:]
            await keel.remember(ADA, "likes the sea", block="USER_PROFILE")
            before = attrs.asdict(keel.counters)
            prompts = []

            async def one():
                prompts.append(await keel.prompt(ADA))

            async with anyio.create_task_group() as group:
                for _ in range(50):
                    group.start_soon(one)
                assert await anyio.to_thread.run_sync(entered.wait, 20)
                release.set()
            after = attrs.asdict(keel.counters)
            assert len({prompt.text for prompt in prompts}) == 1
            assert "sea" in prompts[0].text
            assert after["renders"] - before["renders"] == 1, "only the touched lane's block"
            assert after["deltas"] - before["deltas"] <= 1
            assert after["scans"] == before["scans"]
            assert len(asked) <= 3, "two at once, and all others share the next"

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cancelled_call_harms_none_that_shares_its_wait(backend):
    release = threading.Event()

    def function(_):
        assert release.wait(20)
        return "text", "r"

    specs = [pk.PromptBlockSpec(name="CLOCK", source=pk.ComputedSource(function), timeout=20)]

    async def main():
        resolver = pk.PromptBlockResolver(specs)
        answers = []
        scopes = [anyio.CancelScope() for _ in range(6)]

        async def one(scope):
            with scope:
                answers.append(await resolver.resolve(ADA))

        async with anyio.create_task_group() as group:
            for scope in scopes:
                group.start_soon(one, scope)
            await anyio.wait_all_tasks_blocked()
            for scope in scopes[::2]:
                scope.cancel()
            await anyio.wait_all_tasks_blocked()
            release.set()
        assert len(answers) == 3
        assert all(answer.blocks[0].text for answer in answers)
        assert resolver.core.counters.abandoned == 0

    anyio.run(main, backend=backend)


def test_an_ordinary_function_that_answers_with_something_to_await_is_awaited_on_the_loop():
    async def later(scope):
        await anyio.lowlevel.checkpoint()
        return f"for {scope}", "r"

    def wrapper(scope):
        return later(scope)

    specs = [pk.PromptBlockSpec(name="CLOCK", source=pk.ComputedSource(wrapper))]

    async def main():
        (block,) = (await pk.PromptBlockResolver(specs).resolve(ADA)).blocks
        assert f"for {ADA}" in block.text

    anyio.run(main)


def test_a_source_sees_no_more_of_the_scope_than_it_is_shared_by():
    seen = {}

    def source(name):
        def function(scope):
            seen[name] = scope.path
            return "text", "r"

        return pk.ComputedSource(function)

    specs = [
        pk.PromptBlockSpec(name=name.upper(), source=source(name), shared=name)
        for name in ("deployment", "tenant", "scope")
    ]
    resolution = blocking.PromptBlockResolver(specs).resolve(ADA)
    assert seen == {"deployment": "", "tenant": "org:acme", "scope": "org:acme/user:ada"}
    assert [block.name for block in resolution.blocks] == ["DEPLOYMENT", "TENANT", "SCOPE"]
