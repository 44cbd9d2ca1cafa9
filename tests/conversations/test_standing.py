"""Base plus the deltas that are found says what memory says, whatever happened to the messages."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from promptkeel.conversations.deltas import LearnedDelta, Seal, authored_delta, learned_delta, read_delta
from promptkeel.conversations.standing import (
    authored_difference,
    authored_standing,
    learned_difference,
    learned_standing,
)
from promptkeel.conversations.statements import Statement, statements_of
from promptkeel.render import RenderPolicy, render_block
from render.hostile import FENCE, fact, facts, revision

SEAL = Seal(b"a key of the store's", "9f2c01ab9f2c01ab", FENCE)
FEW = st.one_of(st.sampled_from([fact("tea"), fact("tea"), fact("jam", "2026-01-01"), fact("x", source="y")]), facts)
memories = st.lists(FEW, max_size=6)


def block(given_facts, **limits):
    policy = RenderPolicy(fence=FENCE, **limits)
    return render_block("A", revision(*given_facts), tier="profile", policy=policy).text


def difference(base, found, memory):
    return learned_difference("A", learned_standing(base, found), memory, SEAL)


def said(base, found):
    """What a model that reads base and deltas takes to stand, read without the code under test."""
    stands = {str(number): each for number, each in statements_of(base).items()}
    for delta in found:
        header = ""
        for line in delta.text.split("\n")[1:-1]:
            if line.startswith("[no longer true: "):
                for reference in line.removeprefix("[no longer true: ").removesuffix("]").split(", "):
                    stands.pop(reference.removeprefix("statement ").replace("the notice", "0"), None)
            elif line.startswith("- k"):
                name, _, body = line[2:].partition(": ")
                stands[name] = Statement("" if body.startswith("[") else header, body)
                last = name
            elif line.startswith("| "):
                stands[last] = Statement(stands[last].header, f"{stands[last].body}\n{line}")
            else:
                header = line
    return Counter(stands.values())


SAMPLE = list(statements_of(block([fact("a")])).values())


@st.composite
def histories(draw):
    """A base, deltas as a real conversation and its forks made them, and what became of them in the messages."""
    base = block(draw(memories))
    made = []
    for _ in range(draw(st.integers(0, 4))):
        # Each was made after some of the earlier ones: a fork, or a message that was lost.
        parents = [delta for delta in made if draw(st.booleans())]
        delta = difference(base, parents, block(draw(memories), max_facts=draw(st.sampled_from([None, 1, 3]))))
        if delta is not None:
            made.append(delta)
    found = draw(st.lists(st.sampled_from(made), max_size=6)) if made else []
    return base, found


@given(histories(), memories, st.sampled_from([None, 1, 2]))
def test_the_difference_makes_base_and_whatever_deltas_were_found_say_what_memory_says(history, memory, limit):
    base, found = history
    present = block(memory, max_facts=limit)
    delta = difference(base, found, present)
    said_now = said(base, [*found, delta] if delta is not None else found)
    assert said_now == Counter(statements_of(present).values())
    assert delta is None or read_delta(delta.text, SEAL) == delta


@given(histories(), memories)
def test_after_the_difference_nothing_is_left_to_say(history, memory):
    base, found = history
    present = block(memory)
    delta = difference(base, found, present)
    assert difference(base, [*found, delta] if delta is not None else found, present) is None


@given(memories)
def test_where_nothing_changed_nothing_is_said(memory):
    assert difference(block(memory), [], block(memory)) is None


@given(histories(), memories)
def test_a_statement_that_stands_is_neither_taken_back_nor_said_again(history, memory):
    base, found = history
    standing = learned_standing(base, found)
    delta = difference(base, found, block(memory))
    if delta is None:
        return
    before, after = Counter(standing.statements.values()), Counter(statements_of(block(memory)).values())
    assert Counter(standing.statements[each] for each in delta.retracted) == before - after
    assert Counter(statement for _, statement in delta.added) == after - before


@given(histories(), memories)
def test_ids_are_given_once_among_all_that_is_found(history, memory):
    base, found = history
    delta = difference(base, found, block(memory))
    if delta is None:
        return
    given_before = {name for each in found for name, _ in each.added}
    given_now = [name for name, _ in delta.added]
    assert len(set(given_now)) == len(given_now)
    assert not given_before & set(given_now)


def test_a_correction_takes_a_statement_back_by_its_number_and_never_repeats_it():
    delta = difference(block([fact("a"), fact("secret")]), [], block([fact("a"), fact("public")]))
    assert isinstance(delta, LearnedDelta)
    assert delta.retracted == (2,)
    assert "secret" not in delta.text
    assert '"public"' in delta.text


def test_an_id_that_is_taken_is_lengthened():
    statement = SAMPLE[0]
    whole = SEAL.id_of("A", statement, 1)
    taken = learned_delta("A", [], [(f"k{whole[:4]}", statement)], SEAL)
    delta = difference("", [taken], block([fact("a"), fact("a")]))
    assert [name for name, _ in delta.added] == [f"k{whole[:5]}"]


def test_the_same_branch_gives_the_same_bytes_in_two_workers():
    base, present = block([fact("a")]), block([fact("b"), fact("c")])
    assert difference(base, [], present) == difference(base, [], present)


texts = st.sampled_from(["", "### OPERATING / RULES\nBe brief.", "### OPERATING / RULES\nBe kind."])


@given(texts, st.lists(texts, max_size=3), texts)
def test_an_operators_block_is_said_whole_where_it_changed(base, replaced, present):
    found = [authored_delta("RULES", text, SEAL) for text in replaced]
    standing = authored_standing(base, found)
    assert standing == (replaced[-1] if replaced else base)
    delta = authored_difference("RULES", standing, present, SEAL)
    assert (delta is None) == (standing == present)
    if delta is not None:
        assert authored_standing(base, [*found, delta]) == present
