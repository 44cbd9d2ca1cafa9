"""Limits leave whole facts out, keep the newest, and say so in the block and in the result."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.errors import InvalidDeclarationError
from promptkeel.model import BlockFact
from promptkeel.render import RENDER_VERSION, RenderedBlock, RenderPolicy, blocks, render_block
from promptkeel.tokens import token_counter
from render.block_reader import NOTICE, read_block
from render.hostile import FENCE, facts, raw_fact, revision

POLICY = RenderPolicy(fence=FENCE)
BYTES = "utf8-bytes"


def limited(given: list[BlockFact], **limits) -> RenderedBlock:
    return render_block("U", revision(*given), tier="profile", policy=attrs.evolve(POLICY, **limits))


def numbered(count: int, text: str = "fact") -> list[BlockFact]:
    return [raw_fact(f"{text} {number}", recorded=number * 86_400_000_000) for number in range(count)]


def test_no_limit_leaves_nothing_out():
    block = limited(numbered(3000))
    assert block.facts_shown == 3000
    assert block.omitted == ()


def test_a_long_fact_is_left_out_whole():
    block = limited([raw_fact("x" * 11, recorded=1), raw_fact("y" * 10, recorded=2)], max_fact_characters=10)
    assert [(one.fact.text, one.reason) for one in block.omitted] == [("x" * 11, "longer than 10 characters")]
    assert block.text.split("\n")[2] == "[1 fact left out: 1 longer than 10 characters]"
    assert block.facts_shown == 1


def test_of_too_many_facts_the_newest_are_kept():
    block = limited(list(reversed(numbered(5))), max_facts=2)
    assert [statement.text for statement in read_block(block.text)] == ["fact 3", "fact 4"]
    assert [one.fact.text for one in block.omitted] == ["fact 0", "fact 1", "fact 2"]
    assert "[3 facts left out: 3 over the limit of 2 facts]" in block.text


def test_long_facts_are_left_out_before_facts_are_counted():
    given_facts = [*numbered(4), raw_fact("x" * 600, recorded=2**60)]
    block = limited(given_facts, max_fact_characters=500, max_facts=2)
    assert block.text.split("\n")[2] == "[3 facts left out: 2 over the limit of 2 facts, 1 longer than 500 characters]"
    assert block.facts_shown == 2


def test_limits_of_one_are_worded_in_the_singular():
    block = limited([raw_fact("xx"), raw_fact("a"), raw_fact("b")], max_fact_characters=1, max_facts=1)
    assert "[2 facts left out: 1 over the limit of 1 fact, 1 longer than 1 character]" in block.text
    assert {one.reason for one in limited([raw_fact("a")], max_tokens=1).omitted} == {"over the limit of 1 token"}


@pytest.mark.parametrize("counter", ["estimate", "utf8-bytes"])
@given(given_facts=st.lists(facts, max_size=12), limit=st.integers(1, 900))
def test_a_token_limit_holds_for_the_whole_text_and_never_cuts(counter, given_facts, limit):
    block = limited(given_facts, max_tokens=limit, token_counter=counter)
    assert token_counter(counter)(block.text) <= limit
    ordered = sorted(given_facts, key=lambda one: (one.recorded is not None, one.recorded or 0))
    left_out = len(block.omitted)
    assert [one.fact for one in block.omitted] == ordered[:left_out]
    assert block.facts_shown == len(ordered) - left_out
    if block.text:
        kept = [(statement.field, statement.text) for statement in read_block(block.text)]
        assert kept == [(one.field, one.text) for one in ordered[left_out:]]
        assert bool(NOTICE.fullmatch(block.text.split("\n")[2])) == bool(left_out)
    else:
        assert left_out == len(ordered)


@given(st.integers(1, 60), st.integers(1, 1500))
def test_one_more_fact_would_not_have_fitted(count, limit):
    given_facts = numbered(count, "a statement of ordinary length")
    block = limited(given_facts, max_tokens=limit, token_counter=BYTES)
    if block.omitted:
        more = limited(given_facts, max_facts=block.facts_shown + 1)
        # The notice of the facts' limit is shorter than that of the tokens' limit by at most a few digits.
        assert len(more.text) + 10 > limit


def test_a_group_cut_in_the_middle_keeps_its_header():
    given_facts = [raw_fact(f"statement {number}", source="chat", recorded=number) for number in range(20)]
    block = limited(given_facts, max_tokens=300, token_counter=BYTES)
    assert 0 < block.facts_shown < 20
    assert {statement.header for statement in read_block(block.text)} == {"[recorded 1970-01-01, source=chat]"}


def test_where_not_one_fact_fits_the_block_says_only_that():
    given_facts = [raw_fact("x" * 500, recorded=number) for number in range(3)]
    block = limited(given_facts, max_tokens=200, token_counter=BYTES)
    assert block.text.split("\n")[2:-1] == ["[3 facts left out: 3 over the limit of 200 tokens]"]
    assert (block.facts_shown, len(block.omitted)) == (0, 3)


def test_where_not_even_that_fits_there_is_no_block_and_all_is_listed():
    block = limited(numbered(3), max_tokens=20, token_counter=BYTES)
    assert (block.text, block.facts_shown, len(block.omitted)) == ("", 0, 3)


def test_what_is_left_out_of_a_block_of_long_facts_is_said_even_if_none_is_left():
    block = limited([raw_fact("x" * 600)], max_fact_characters=500)
    assert block.text.split("\n")[2:-1] == ["[1 fact left out: 1 longer than 500 characters]"]


def test_finding_what_fits_counts_little_more_than_there_is(monkeypatch):
    counted: list[int] = []

    def counting(name):
        def count(text):
            counted.append(len(text))
            return len(text)

        return count

    monkeypatch.setattr(blocks, "token_counter", counting)
    whole = len(limited(numbered(20_000)).text)
    limited(numbered(20_000), max_tokens=10_000)
    assert sum(counted) < 1.5 * whole
    counted.clear()
    limited(numbered(20_000), max_tokens=whole - 1)
    assert len(counted) < 40


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_facts", 0),
        ("max_facts", -1),
        ("max_facts", True),
        ("max_tokens", 1.5),
        ("max_fact_characters", "9"),
        ("token_counter", "guess"),
        ("token_counter", None),
        ("block_form", 1),
        ("fence", "abc"),
        ("fence", "ABCDEF"),
        ("fence", "7f3a9c\n"),
        ("fence", 123456),
        ("fence", "f" * 33),
    ],
)
def test_a_policy_that_cannot_mean_anything_is_refused(field, value):
    with pytest.raises(InvalidDeclarationError, match=field):
        RenderPolicy(**{field: value})


def test_the_fingerprint_of_a_policy_tells_all_its_fields_apart():
    others = [
        RenderPolicy(fence="abcd"),
        RenderPolicy(max_facts=1),
        RenderPolicy(max_tokens=1),
        RenderPolicy(max_fact_characters=1),
        RenderPolicy(token_counter=BYTES),
        RenderPolicy(block_form=False),
        RenderPolicy(),
    ]
    assert len({policy.fingerprint for policy in others}) == len(others)
    assert attrs.evolve(others[0], fence=None).fingerprint == RenderPolicy().fingerprint
    assert RENDER_VERSION == 1
    assert RenderPolicy().fingerprint == "54fc814642a6bdc39b11393dacc0f65f"
