"""Where two prompts part: the byte, the block, the fact, the write, and what it costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import promptkeel as pk
from promptkeel import blocking
from promptkeel.prompt.comparing import Part, compare, parts_of_request
from promptkeel.providers.rules import rules_for
from promptkeel.providers.wire import read_request
from promptkeel.tokens import token_counter

ADA = pk.TenantScope.parse("org:acme/user:ada")
COUNTER = token_counter("estimate")
RULES = rules_for("anthropic", "claude-opus-4-8")


def keel_of(*more):
    blocks = [
        pk.PromptBlockSpec(name="RULES", source=pk.StaticSource("Answer in the language of the question.")),
        pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:")),
        pk.PromptBlockSpec(name="PREFERENCES", source=pk.MemoryLane("PREF:")),
        pk.PromptBlockSpec(name="FOCUS", source=pk.MemoryLane("FOCUS:")),
        *more,
    ]
    return blocking.open("ram:", blocks=blocks)


def remember(keel, text, block="USER_PROFILE", **more):
    return keel.remember(ADA, text, block=block, **{"source": "chat", "recorded_at": "2026-05-02", **more})


texts = st.lists(st.sampled_from(["tea", "jam", "é", "日本", "🙂"]), max_size=4).map("\n".join)
parts = st.lists(st.builds(Part, st.sampled_from(["A", "B", "C"]), texts, st.integers(0, 9)), max_size=4)


def joined(given_parts):
    return "".join(part.text for part in given_parts).encode()


@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4))
def test_the_offset_is_that_of_the_first_byte_that_differs(old, new):
    before = [Part(str(number), text, 1) for number, text in enumerate(old)]
    after = [Part(str(number), text, 1) for number, text in enumerate(new)]
    found = compare(before, after)
    if found is None:
        assert old == new
        return
    one, other = joined(before), joined(after)
    shared = next((n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    expected = min(len(one), len(other)) if shared is None else shared
    # What one text ends with, the next part may begin with: the part is told apart first.
    assert found.offset <= expected
    assert one[: found.offset] == other[: found.offset]


@given(parts)
def test_equal_texts_do_not_part(given_parts):
    assert compare(given_parts, given_parts) is None


def test_the_parts_of_a_prompt_joined_are_its_text():
    with keel_of() as keel:
        for block in ("USER_PROFILE", "PREFERENCES", "FOCUS"):
            remember(keel, f"a fact of {block}", block)
        prompt = keel.prompt(ADA)
    assert "".join(part.text for part in prompt.parts()) == prompt.text
    assert [part.name for part in prompt.parts()] == ["heading", "RULES", "USER_PROFILE", "PREFERENCES", "FOCUS"]


def test_an_unchanged_prompt_has_nothing_to_explain():
    with keel_of() as keel:
        remember(keel, "prefers tea")
        before = keel.prompt(ADA)
        assert keel.explain(before, keel.prompt(ADA)) is None


def test_a_correction_is_explained_by_block_fact_write_byte_and_cost():
    with keel_of() as keel:
        node = remember(keel, "prefers tea")
        remember(keel, "writes letters", "PREFERENCES")
        before = keel.prompt(ADA)
        keel.correct(ADA, node.id, text="prefers jam", source="user-correction", recorded_at="2026-06-01")
        after = keel.prompt(ADA)
        found = keel.explain(before, after, rules=RULES, kept_behind=10_000)
    divergence = found.divergence
    one, other = before.text.encode(), after.text.encode()
    assert one[: divergence.offset] == other[: divergence.offset]
    assert one[divergence.offset] != other[divergence.offset]
    assert (divergence.part, divergence.kind) == ("USER_PROFILE", "changed")
    assert [(change.fact.value, change.is_new) for change in divergence.facts] == [
        ("prefers tea", False), ("prefers jam", True)
    ]  # fmt: skip
    behind = COUNTER(one[divergence.offset :].decode())
    assert divergence.lost_tokens == pytest.approx(10_000 + behind, rel=0.01)
    assert divergence.lost_dollars == pytest.approx(divergence.lost_tokens * (1.25 - 0.1) * RULES.input_price / 1e6)
    (write,) = found.writes
    assert (write.node_id, write.what, write.node.source) == (node.id, "corrected", "user-correction")


@pytest.mark.parametrize(("act", "what"), [("retract", "retracted"), ("erase", "erased")])
def test_what_took_a_fact_away_is_named(act, what):
    with keel_of() as keel:
        node = remember(keel, "prefers tea")
        remember(keel, "has two children")
        before = keel.prompt(ADA)
        getattr(keel, act)(ADA, node.id)
        found = keel.explain(before, keel.prompt(ADA))
    assert [(write.node_id, write.what) for write in found.writes] == [(node.id, what)]
    assert [change.is_new for change in found.divergence.facts] == [False]


def test_a_block_that_came_moves_what_stands_behind_it():
    with keel_of() as keel:
        remember(keel, "writes letters", "PREFERENCES")
        before = keel.prompt(ADA)
        node = remember(keel, "prefers tea")
        found = keel.explain(before, keel.prompt(ADA))
        back = keel.explain(keel.prompt(ADA), before)
    assert (found.divergence.part, found.divergence.kind) == ("USER_PROFILE", "new")
    assert (back.divergence.part, back.divergence.kind) == ("USER_PROFILE", "gone")
    assert found.divergence.lost_tokens == COUNTER(before.block("PREFERENCES").text)
    assert [(write.node_id, write.what) for write in found.writes] == [(node.id, "remembered")]


def test_what_changes_in_the_tail_costs_no_cached_token():
    with keel_of() as keel:
        remember(keel, "plans a journey", "FOCUS")
        before = keel.prompt(ADA)
        remember(keel, "plans a party", "FOCUS")
        found = keel.explain(before, keel.prompt(ADA), kept_behind=10_000)
    assert found.divergence.part == "FOCUS"
    assert found.divergence.lost_tokens == 0


def test_a_request_is_compared_by_tool_system_block_and_message():
    def request(**changed):
        arguments = {
            "model": "claude-opus-4-8",
            "tools": [{"name": "search", "input_schema": {}}, {"name": "write", "input_schema": {}}],
            "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
            "messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}],
            **changed,
        }
        return parts_of_request(read_request("anthropic", arguments), COUNTER)

    assert compare(request(), request()) is None
    names = [part.name for part in request()]
    assert names == [
        "tools: search", "tools: write", "system[0]", "system[1]", "messages[0]: user text",
        "messages[1]: assistant text",
    ]  # fmt: skip
    changed = request(system=[{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be bold."}])
    found = compare(request(), changed)
    assert (found.part, found.kind) == ("system[1]", "changed")
    assert found.lost_tokens <= sum(part.tokens for part in request()[3:])
    swapped = compare(request(), request(tools=[{"name": "write", "input_schema": {}}, {"name": "search"}]))
    assert (swapped.part, swapped.kind) == ("tools: search", "moved")
