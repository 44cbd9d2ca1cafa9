"""A prompt has at most as many tokens as it may: whole facts give way, oldest first, of what matters least."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import promptkeel as pk
from promptkeel import blocking
from promptkeel.errors import InvalidDeclarationError, PromptBudgetError
from promptkeel.tokens import token_counter

ADA = pk.TenantScope.parse("org:acme/user:ada")
RULES = "Answer in the language of the question. Say so where you do not know."
COUNTERS = st.sampled_from(["estimate", "utf8-bytes"])


def specs(**priorities):
    # One fence for all stores: its digits would move the count of tokens.
    policy = pk.RenderPolicy(fence="7f3a9c")
    return [
        pk.PromptBlockSpec(name="RULES", source=pk.StaticSource(RULES)),
        pk.PromptBlockSpec(
            name="USER_PROFILE", source=pk.MemoryLane("SOUL:"), priority=priorities.get("profile", 0), policy=policy
        ),
        pk.PromptBlockSpec(
            name="PREFERENCES", source=pk.MemoryLane("PREF:"), priority=priorities.get("prefs", 0), policy=policy
        ),
        pk.PromptBlockSpec(
            name="FOCUS", source=pk.MemoryLane("FOCUS:"), priority=priorities.get("focus", 0), policy=policy
        ),
    ]


def filled(keel, count=10):
    for number in range(count):
        at = f"2026-03-{number + 1:02d}"
        for prefix in ("SOUL", "PREF", "FOCUS"):
            keel.remember(ADA, label=f"{prefix}:fact number {number} of {prefix.lower()}", recorded_at=at)


def shown(prompt, name):
    return re.findall(r"fact number (\d+)", prompt.block(name).text)


@pytest.fixture
def whole():
    with blocking.open("ram:", blocks=specs()) as keel:
        filled(keel)
        yield keel.prompt(ADA)


def opened(limit, **options):
    keel = blocking.open("ram:", blocks=specs(**options.pop("priorities", {})), prompt_tokens=limit, **options)
    keel.__enter__()
    filled(keel)
    return keel


def test_what_fits_is_the_prompt_without_a_budget_byte_for_byte(whole):
    assert opened(whole.tokens).prompt(ADA).text == whole.text
    assert opened(whole.tokens - 1).prompt(ADA).text != whole.text


def test_the_oldest_facts_of_the_last_block_give_way_first(whole):
    prompt = opened(whole.tokens - 25).prompt(ADA)
    assert prompt.tokens <= whole.tokens - 25
    assert shown(prompt, "USER_PROFILE") == shown(prompt, "PREFERENCES") == [str(n) for n in range(10)]
    kept = shown(prompt, "FOCUS")
    assert 0 < len(kept) < 10
    assert kept == [str(n) for n in range(10)][-len(kept) :]
    assert len(prompt.block("FOCUS").omitted) == 10 - len(kept)
    assert f"[{10 - len(kept)} facts left out: {10 - len(kept)} over the budget of the prompt]" in prompt.text


def test_a_lower_priority_gives_way_before_the_order_of_blocks(whole):
    prompt = opened(whole.tokens - 25, priorities={"prefs": -1}).prompt(ADA)
    assert len(shown(prompt, "FOCUS")) == len(shown(prompt, "USER_PROFILE")) == 10
    assert len(shown(prompt, "PREFERENCES")) < 10


def test_a_block_without_any_room_is_named_in_the_tail(whole):
    smallest = opened(whole.tokens - 2 * whole.block_tokens["FOCUS"]).prompt(ADA)
    assert shown(smallest, "FOCUS") == []
    assert len(smallest.block("FOCUS").omitted) == 10
    assert "10 facts left out" in smallest.text


def test_authored_text_never_gives_way(whole):
    bare = token_counter("estimate")(f"{RULES}")
    with pytest.raises(PromptBudgetError) as caught:
        opened(bare).prompt(ADA)
    assert caught.value.limit == bare
    assert caught.value.tokens > bare
    assert RULES in opened(caught.value.tokens).prompt(ADA).text


def test_an_unchanged_memory_answers_the_very_same_object(whole):
    keel = opened(whole.tokens - 25)
    first = keel.prompt(ADA)
    renders = keel.counters.renders
    assert keel.prompt(ADA) is first
    assert keel.counters.renders == renders


def test_two_keels_leave_out_the_same(whole):
    assert opened(whole.tokens - 40).prompt(ADA).text == opened(whole.tokens - 40).prompt(ADA).text


def test_a_new_fact_is_in_the_next_prompt_and_an_old_one_goes(whole):
    keel = opened(whole.tokens - 25)
    before = shown(keel.prompt(ADA), "FOCUS")
    keel.remember(ADA, label="FOCUS:fact number 77 of focus", recorded_at="2026-04-01")
    after = keel.prompt(ADA)
    assert shown(after, "FOCUS")[-1] == "77"
    assert after.tokens <= whole.tokens - 25
    assert before[0] not in shown(after, "FOCUS")


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "many"])
def test_a_budget_is_a_number_of_tokens(limit):
    with pytest.raises(InvalidDeclarationError), blocking.open("ram:", prompt_tokens=limit):
        pass


def test_authored_text_has_no_priority():
    with pytest.raises(InvalidDeclarationError, match="never gives way"):
        pk.PromptBlockSpec(name="RULES", source=pk.StaticSource("a"), priority=1)


def test_the_asynchronous_form_and_a_builder_of_ones_own_keep_to_it_too(whole):
    async def main():
        async with pk.open("ram:", blocks=specs()) as keel:
            for number in range(10):
                await keel.remember(ADA, label=f"SOUL:fact number {number}")
            resolver = pk.PromptBlockResolver(specs(), memory=keel.store)
            full = await pk.PromptBuilder(resolver).build(ADA)
            builder = pk.PromptBuilder(resolver, prompt_tokens=full.tokens - 10)
            assert (await builder.build(ADA)).tokens <= full.tokens - 10
            assert await builder.build(ADA) is await builder.build(ADA)
            assert (await pk.PromptBuilder(resolver).build(ADA)).text == full.text

    asyncio.run(main())


FACTS = st.lists(st.tuples(st.sampled_from(["SOUL", "PREF", "FOCUS"]), st.text(min_size=1, max_size=60)), max_size=12)


@given(FACTS, st.integers(20, 400), COUNTERS, st.integers(-1, 1), st.integers(-1, 1))
def test_no_prompt_is_over_its_budget_and_nothing_is_left_out_unsaid(facts, limit, counter, first, second):
    blocks = specs(profile=first, focus=second)
    with blocking.open("ram:", blocks=blocks, token_counter=counter) as keel:
        for prefix, text in facts:
            try:
                keel.remember(ADA, label=f"{prefix}:{text}")
            except pk.InvalidInputError:
                continue
        whole = keel.prompt(ADA)
        builder = blocking.PromptBuilder(
            blocking.PromptBlockResolver(blocks, memory=keel.store), token_counter=counter, prompt_tokens=limit
        )
        try:
            prompt = builder.build(ADA)
        except PromptBudgetError:
            with pytest.raises(PromptBudgetError) as caught:
                builder.build(ADA)
            assert caught.value.limit == limit < caught.value.tokens
            return
        assert prompt.tokens <= limit
        assert RULES in prompt.text
        for block, full in zip(prompt.blocks, whole.blocks, strict=True):
            assert len(block.omitted) + block.rendered.facts_shown == len(full.facts if full.is_learned else ())
            if block.omitted:
                noun = "fact" if len(block.omitted) == 1 else "facts"
                assert f"{len(block.omitted)} {noun} left out" in prompt.text
        if whole.tokens <= limit:
            assert prompt.text == whole.text
