"""Deltas: their exact form, that they are read back as they were made, and that nobody else can make one."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from promptkeel.conversations.deltas import (
    SEAL_LENGTH,
    AuthoredDelta,
    Seal,
    authored_delta,
    find_deltas,
    learned_delta,
    read_delta,
)
from promptkeel.conversations.statements import NOTICE, Statement, statements_of
from promptkeel.render import RenderPolicy, render_block
from promptkeel.text import refused_character, trim
from render.hostile import FENCE, fact, facts, revision, texts

SEAL = Seal(b"a key of the store's", "9f2c01ab9f2c01ab", FENCE)
OTHERS = [
    Seal(b"another store's key", SEAL.base, FENCE),
    Seal(SEAL.key, "0000000000000000", FENCE),
    Seal(SEAL.key, SEAL.base, "000000"),
]


def statements_from(given_facts):
    policy = RenderPolicy(fence=FENCE)
    return list(statements_of(render_block("A", revision(*given_facts), tier="profile", policy=policy).text).values())


references = st.one_of(
    st.integers(NOTICE, 300), st.text("0123456789abcdef", min_size=4, max_size=8).map(lambda digits: f"k{digits}")
)
additions = st.lists(facts, max_size=5).map(
    lambda found: [(f"k{number:04x}", statement) for number, statement in enumerate(statements_from(found))]
)


@st.composite
def deltas(draw):
    if draw(st.booleans()):
        return authored_delta("RULES", draw(st.one_of(st.just(""), texts)), SEAL)
    return learned_delta("USER_PROFILE", draw(st.lists(references, max_size=4)), draw(additions), SEAL)


def test_a_delta_of_memory_has_exactly_this_form():
    new = statements_from([fact("role: CTO", "2026-06-01", "user-correction", field="role"), fact("likes jam")])
    delta = learned_delta("USER_PROFILE", [3, "k81f0", NOTICE], [("k9d2a", new[1]), ("k0b1c", new[0])], SEAL)
    seal = SEAL.of(delta.text.replace(delta.text.split("-", 3)[3][:SEAL_LENGTH], "", 1))
    assert delta.text == (
        f'<untrusted-data-{FENCE} changed="USER_PROFILE" seal="9f2c01ab9f2c01ab-{seal}">\n'
        "[no longer true: statement 3, k81f0, the notice]\n"
        "[recorded 2026-06-01, source=user-correction]\n"
        '- k9d2a: role: "CTO"\n'
        "[provenance not recorded]\n"
        '- k0b1c: "likes jam"\n'
        f"</untrusted-data-{FENCE}>"
    )


def test_a_notice_of_what_is_left_out_stands_in_a_delta_without_provenance():
    notice = Statement("", "[3 facts left out: 3 over the limit of 2 facts]")
    delta = learned_delta("A", [], [("k0001", notice)], SEAL)
    assert "\n- k0001: [3 facts left out: 3 over the limit of 2 facts]\n" in delta.text
    assert read_delta(delta.text, SEAL) == delta


@given(deltas())
def test_a_delta_is_read_back_as_it_was_made(delta):
    assert read_delta(delta.text, SEAL) == delta


@given(deltas(), st.sampled_from(OTHERS))
def test_a_delta_of_another_store_base_or_tenant_is_ordinary_text(delta, other):
    assert read_delta(delta.text, other) is None
    assert list(find_deltas(delta.text, other)) == []


@given(deltas(), st.data())
def test_a_delta_that_was_changed_anywhere_is_ordinary_text(delta, data):
    position = data.draw(st.integers(0, len(delta.text) - 1))
    character = data.draw(st.one_of(st.characters(exclude_categories=["Cs"]), st.just("")))
    forged = delta.text[:position] + character + delta.text[position + 1 :]
    assume(forged != delta.text)
    assert read_delta(forged, SEAL) is None
    # In front of its fence text may stand that belongs to no delta: a character lost there may have been such.
    assert all(found == delta for found in find_deltas(forged, SEAL))


@given(st.lists(deltas(), max_size=4), st.lists(texts, min_size=5, max_size=5))
def test_deltas_that_a_framework_joined_to_other_text_are_found_in_order(made, between):
    joined = "\n\n".join(
        text for pair in zip(between, [delta.text for delta in made] + [""] * 5, strict=False) for text in pair if text
    )
    assert list(find_deltas(joined, SEAL)) == made


@given(texts, st.lists(texts, max_size=3))
def test_authored_text_that_holds_a_closing_fence_ends_where_it_was_sealed(text, more):
    content = f"\n</standing-context-{FENCE}>\n".join([text, *more, "end"])
    delta = authored_delta("RULES", content, SEAL)
    assert read_delta(delta.text, SEAL) == AuthoredDelta("RULES", content, delta.text)


def body_lines(values):
    """The lines of each statement of a delta that adds these values."""
    policy = RenderPolicy(fence=FENCE)
    block = render_block("A", revision(*map(fact, values)), tier="profile", policy=policy).text
    ids = [f"k{number:04x}" for number in range(len(values))]
    added = list(zip(ids, statements_of(block).values(), strict=True))
    lines = learned_delta("A", [], added, SEAL).text.split("\n")
    starts = [lines.index(line) for line in lines if line.startswith("- k")]
    frame = [lines[0].partition(" seal=")[0], lines[1], lines[-1]]
    return frame, [lines[start:end] for start, end in zip(starts, [*starts[1:], len(lines) - 1], strict=True)]


values = texts.filter(lambda text: text.strip() and refused_character(text) is None and trim(text))


@given(st.lists(values, min_size=1, max_size=4), st.integers(0, 3), values)
def test_changing_learned_text_changes_no_byte_of_a_delta_outside_its_own_lines(given_values, position, value):
    position %= len(given_values)
    changed = [*given_values[:position], value, *given_values[position + 1 :]]
    (frame, before), (frame_after, after) = body_lines(given_values), body_lines(changed)
    assert frame == frame_after
    assert before[:position] + before[position + 1 :] == after[:position] + after[position + 1 :]
    assert all(line.startswith(("- k", "| ")) for lines in after for line in lines)


@given(st.lists(values, min_size=1, max_size=4))
def test_every_literal_of_a_delta_decodes_to_the_stored_text(given_values):
    _, statements = body_lines(given_values)
    for value, (first, *more) in zip(given_values, statements, strict=True):
        body = first.partition(": ")[2]
        found = "\n".join(line.removeprefix("| ") for line in more) if body == "|" else json.loads(body)
        assert found == fact(value).value


def test_ids_say_nothing_about_a_text_without_the_key():
    statement = Statement("[source=a]", '"secret"')
    ids = {seal.id_of("A", statement, 1) for seal in (SEAL, *OTHERS[:2])}
    assert len(ids) == 3


@pytest.mark.parametrize("text", ["", '<untrusted-data-7f3a9c changed="A">', "- k0000: x"])
def test_ordinary_text_is_no_delta(text):
    assert read_delta(text, SEAL) is None
