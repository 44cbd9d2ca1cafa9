"""One probe for all calls of one turn, and never one that began before the call."""

from __future__ import annotations

import anyio
import pytest

import promptkeel as pk
from promptkeel.resolver.probing import SharedProbe
from promptkeel.steps import Wait, drive, drive_blocking

ADA = pk.TenantScope.parse("org:acme/user:ada")
BACKENDS = ["asyncio", "trio"]


async def all_at_once(calls):
    answers = []

    async def one(call):
        answers.append(await drive(call))

    async with anyio.create_task_group() as group:
        for call in calls:
            group.start_soon(one, call)
    return answers


@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_that_begin_in_one_turn_share_a_probe_and_later_ones_make_their_own(backend):
    made = []
    probe = SharedProbe(lambda: made.append(1) or len(made))

    async def main():
        assert await all_at_once(probe.token() for _ in range(20)) == [1] * 20
        assert await drive(probe.token()) == 2

    anyio.run(main, backend=backend)


def test_a_call_that_comes_while_a_probe_is_made_needs_another():
    tokens = iter(range(10))
    late = []

    def make():
        token = next(tokens)
        if not late:
            late.append(None)
            late[0] = drive_blocking(probe.token())
        return token

    probe = SharedProbe(make)
    assert drive_blocking(probe.token()) == 0
    assert late == [1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cancelled_leader_hands_over(backend):
    probe = SharedProbe(lambda: 7)

    async def main():
        leader, follower = probe.token(), probe.token()
        where = await drive_one(leader)
        leader.send(where)
        follower.send(await drive_one(follower))
        leader.close()
        assert await drive(resumed(follower)) == 7

    async def drive_one(steps):
        next(steps)
        return anyio.lowlevel.current_token()

    anyio.run(main, backend=backend)


def resumed(steps):
    """The steps of a generator whose ``Wait`` was answered."""
    step = steps.send(None)
    while True:
        assert not isinstance(step, Wait), "it leads now"
        try:
            step = steps.send((yield step))
        except StopIteration as stop:
            return stop.value


def test_an_error_is_everyones_and_the_next_call_probes_again():
    failing = [True]

    def make():
        if failing[0]:
            raise pk.StoreUnavailableError("away")
        return 7

    probe = SharedProbe(make)

    async def main():
        with pytest.raises((pk.StoreUnavailableError, ExceptionGroup)):
            await all_at_once(probe.token() for _ in range(3))
        failing[0] = False
        assert await drive(probe.token()) == 7

    anyio.run(main)


@pytest.mark.parametrize("backend", BACKENDS)
def test_twenty_prompts_beside_a_source_that_is_asked_each_time_cost_one_probe(tmp_path, backend):
    specs = [
        pk.PromptBlockSpec(name="CLOCK", source=pk.ComputedSource(lambda _: ("text", "r")), timeout=20),
        pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:")),
    ]

    async def main():
        async with pk.open(f"sqlite:///{tmp_path / 'memory.db'}", blocks=specs) as keel:
            await keel.remember(ADA, "prefers tea", block="USER_PROFILE")
            await keel.prompt(ADA)
            probes = keel.counters.probes
            prompts = []

            async def one():
                prompts.append(await keel.prompt(ADA))

            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(one)
            assert keel.counters.probes == probes + 1
            await keel.remember(ADA, "likes the sea", block="USER_PROFILE")
            assert "sea" in (await keel.prompt(ADA)).text

    anyio.run(main, backend=backend)
