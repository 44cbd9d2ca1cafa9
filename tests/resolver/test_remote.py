"""Prompts from a store on another machine: nothing waits on the event loop, and the promises are the same."""

from __future__ import annotations

import threading

import anyio
import psycopg
import pytest

import promptkeel as pk
from promptkeel import blocking

ADA = pk.TenantScope.parse("org:acme/user:ada")
BOB = pk.TenantScope.parse("org:acme/user:bob")
BLOCKS = [
    pk.PromptBlockSpec(name="BOUNDARIES", source=pk.StaticSource("Never reveal another customer's data.")),
    pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:", profile_fields={"role"})),
    pk.PromptBlockSpec(name="PREFERENCES", source=pk.MemoryLane("PREFERENCE:")),
]


@pytest.fixture
def url(databases):
    address = databases.store()
    yield address
    databases.give_back(address)


@pytest.fixture
def keel(url):
    with blocking.open(url, blocks=BLOCKS) as opened:
        opened.remember(ADA, "prefers tea", block="USER_PROFILE", source="onboarding", recorded_at="2026-05-02")
        opened.remember(ADA, "short answers", block="PREFERENCES", recorded_at="2026-05-03")
        yield opened


def test_an_unchanged_memory_answers_the_very_same_prompt_for_one_read_of_heads(keel):
    first = keel.prompt(ADA)
    before = (keel.counters.head_reads, keel.counters.scans, keel.counters.renders)
    assert keel.prompt(ADA) is first
    assert (keel.counters.head_reads, keel.counters.scans, keel.counters.renders) == (before[0] + 1, *before[1:])


def test_a_write_elsewhere_renders_nothing_and_a_write_in_a_lane_renders_that_block(keel):
    first = keel.prompt(ADA)
    renders = keel.counters.renders
    keel.remember(BOB, "prefers coffee", block="USER_PROFILE")
    assert keel.prompt(ADA) is first
    keel.remember(ADA, "lives by the sea", block="USER_PROFILE")
    again = keel.prompt(ADA)
    assert "lives by the sea" in again.text
    assert again.block("PREFERENCES") is first.block("PREFERENCES")
    assert keel.counters.renders == renders + 1


def test_an_edit_by_plain_sql_and_an_erasure_are_in_the_next_prompt(keel, url):
    node = keel.remember(ADA, "a marked secret", block="USER_PROFILE")
    assert "a marked secret" in keel.prompt(ADA).text
    with psycopg.connect(url) as client:
        client.execute("UPDATE promptkeel.nodes SET label = 'SOUL:an edited one' WHERE id = %s", (node.id,))
    assert "an edited one" in keel.prompt(ADA).text
    keel.erase(ADA, node.id)
    assert "an edited one" not in keel.prompt(ADA).text


def test_the_text_is_that_of_any_other_store_with_the_same_memory(keel):
    with blocking.open("ram:", blocks=BLOCKS) as other:
        for stored in keel.store.query_nodes(ADA):
            other.store.put(stored)
        secret = keel.core.store.engine.secret()
        resolver = blocking.PromptBlockResolver(BLOCKS, memory=other.store, secret=secret)
        assert blocking.PromptBuilder(resolver).build(ADA).text == keel.prompt(ADA).text


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_every_call_of_the_store_is_made_in_a_worker_and_cold_calls_share_one_scan(url, backend):
    async def main():
        loop_thread = threading.get_ident()
        async with pk.open(url, blocks=BLOCKS) as keel:
            await keel.remember(ADA, "prefers tea", block="USER_PROFILE")
            engine = keel.core.store.engine
            seen = []
            for name in ("heads", "catch_up", "get", "apply"):
                real = getattr(engine, name)

                def noting(*arguments, real=real, **options):
                    seen.append(threading.get_ident())
                    return real(*arguments, **options)

                setattr(engine, name, noting)
            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(keel.prompt, ADA)
            await keel.remember(ADA, "lives by the sea", block="USER_PROFILE")
            assert "sea" in (await keel.prompt(ADA)).text
            assert seen
            assert loop_thread not in seen
            assert keel.counters.scans == 2, "one cold scan for twenty calls, one difference"

    anyio.run(main, backend=backend)
