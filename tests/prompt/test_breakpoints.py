"""Where marks go: every rule of a provider, whatever a request is made of."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from promptkeel.prompt.breakpoints import plan_marks
from promptkeel.providers.rules import rules_for
from promptkeel.providers.segments import Mark

RULES = attrs.evolve(rules_for("anthropic", "claude-sonnet-4-5"), minimum=1_000)


@attrs.frozen
class Position:
    section: Any = "messages"
    kind: Any = "text"
    tokens: int = 100
    durability: Any = "conversation"
    is_base: bool = False
    mark: Mark | None = None
    changes: bool = False


def base(tokens=2_000, durability="deployment", section="system", **more):
    return Position(section, "text", tokens, durability, is_base=True, **more)


marks = st.one_of(st.none(), st.none(), st.builds(Mark, st.sampled_from([None, 300, 3600])))
DURABILITIES = ("deployment", "tenant", "conversation")


@st.composite
def requests(draw, *, with_marks=True):
    """Positions in the order of a prefix: tools, system, messages; what is shared by more stands first."""
    found = []
    level = 0
    mark = marks if with_marks else st.none()
    for section in ("tools", "system"):
        for _ in range(draw(st.integers(0, 3))):
            level = max(level, draw(st.integers(0, 2)))
            tokens = draw(st.sampled_from([0, 1, 400, 3_000]))
            kind = "tool" if section == "tools" else "text"
            found.append(Position(section, kind, tokens, DURABILITIES[level], is_base=True, mark=draw(mark)))
    for _ in range(draw(st.integers(0, 45))):
        kind = draw(st.sampled_from(["text", "text", "tool_use", "tool_result", "reasoning"]))
        tokens = draw(st.sampled_from([0, 5, 700]))
        found.append(Position("messages", kind, tokens, mark=draw(mark) if draw(st.integers(0, 5)) == 0 else None))
    if found and draw(st.integers(0, 5)) == 0:
        place = draw(st.integers(0, len(found) - 1))
        found[place] = attrs.evolve(found[place], changes=True)
    return found


rules = st.builds(
    lambda count, minimum, lookback: attrs.evolve(RULES, marks=count, minimum=minimum, lookback=lookback),
    st.sampled_from([2, 3, 4, 4]),
    st.sampled_from([0, 500, 1_000]),
    st.sampled_from([None, 3, 20]),
)
ttls = st.dictionaries(st.sampled_from(DURABILITIES), st.sampled_from([300, 3600]), max_size=3)


def applied(positions, plan):
    """The request as it is sent."""
    return [attrs.evolve(position, mark=plan.marks.get(index)) for index, position in enumerate(positions)]


@given(requests(), rules, ttls, st.lists(st.integers(0, 60), max_size=3), marks)
def test_a_plan_breaks_no_rule_of_its_provider(positions, given_rules, given_ttls, written, automatic):
    plan = plan_marks(positions, given_rules, written=written, ttls=given_ttls, automatic=automatic)
    assert len(plan.marks) + (automatic is not None) <= given_rules.marks
    for index in plan.marks:
        position = positions[index]
        assert position.tokens > 0
        assert position.kind not in given_rules.unmarkable
        assert not position.changes
    sent = [mark.ttl or given_rules.ttls[0] for _, mark in sorted(plan.marks.items())]
    sent += [automatic.ttl or given_rules.ttls[0]] if automatic else []
    assert sent == sorted(sent, reverse=True)
    assert set(plan.removed) == {
        index for index, position in enumerate(positions) if position.mark is not None and index not in plan.marks
    }


@given(requests(with_marks=False), rules, ttls)
def test_no_mark_of_ours_stands_below_the_minimum_or_behind_what_changes(positions, given_rules, given_ttls):
    plan = plan_marks(positions, given_rules, ttls=given_ttls)
    for index in plan.marks:
        assert sum(position.tokens for position in positions[: index + 1]) >= given_rules.minimum
        assert not any(position.changes for position in positions[: index + 1])


@given(requests(), rules, ttls, st.lists(st.integers(0, 60), max_size=3), marks)
def test_planning_a_planned_request_changes_nothing(positions, given_rules, given_ttls, written, automatic):
    plan = plan_marks(positions, given_rules, written=written, ttls=given_ttls, automatic=automatic)
    sent = applied(positions, plan)
    again = plan_marks(sent, given_rules, written=written, ttls=given_ttls, automatic=automatic)
    assert again.marks == plan.marks
    assert again.removed == ()


@given(requests(), rules, ttls, st.integers(1, 60), st.integers(1, 40), st.booleans())
def test_more_messages_never_move_a_mark_in_tools_and_system(
    positions, given_rules, given_ttls, written, more, bridged
):
    assume(any(not position.is_base for position in positions))
    before = plan_marks(positions, given_rules, ttls=given_ttls)
    longer = [*positions, *[Position(tokens=300)] * more]
    after = plan_marks(longer, given_rules, ttls=given_ttls, written=[written] if bridged else None)

    def in_base(plan):
        return (
            [index for index in plan.marks if positions[index].is_base]
            if plan is before
            else [index for index in plan.marks if longer[index].is_base]
        )

    assert in_base(before) == in_base(after)


@given(st.integers(1, 60), st.integers(0, 60))
def test_what_was_written_is_within_reach_of_a_mark_wherever_the_count_allows_it(length, written):
    positions = [base(), *[Position()] * length]
    written %= len(positions)
    plan = plan_marks(positions, RULES, written=[written])
    assert any(written <= mark < written + RULES.lookback for mark in plan.marks)
    assert not [note for note in plan.notes if note.kind == "out-of-lookback"]


def test_where_the_count_forbids_it_what_is_lost_is_reported():
    two = attrs.evolve(RULES, marks=2)
    positions = [base(mark=Mark()), *[Position()] * 50]
    plan = plan_marks(positions, two, written=[10])
    (note,) = [note for note in plan.notes if note.kind == "out-of-lookback"]
    assert note.position == 10
    assert note.tokens == 2_000 + 10 * 100 - 0


def test_the_end_of_the_history_and_the_end_of_each_kind_of_base_get_a_mark():
    positions = [base(durability="deployment"), base(durability="tenant"), base(durability="conversation"), Position()]
    assert list(plan_marks(positions, RULES).marks) == [0, 2, 3]
    assert list(plan_marks(positions[:2] + positions[3:], RULES).marks) == [0, 1, 2]


def test_ttls_are_those_of_what_shares_the_prefix():
    positions = [base(), base(durability="conversation"), Position()]
    plan = plan_marks(positions, RULES, ttls={"deployment": 3600})
    assert plan.marks == {0: Mark(3600), 1: Mark(None), 2: Mark(None)}


def test_a_fifth_mark_of_the_callers_is_taken_away_and_the_newest_stay():  # B25
    positions = [base(section="tools", mark=Mark()), base(mark=Mark()), base(mark=Mark())]
    positions += [Position(mark=Mark()), Position(mark=Mark()), Position()]
    plan = plan_marks(positions, RULES)
    assert len(plan.marks) == 4
    assert 5 in plan.marks
    assert plan.removed == (3, 4)
    assert [note.kind for note in plan.notes].count("too-many") == 2


@pytest.mark.parametrize("section", ["system", "messages"])
def test_a_mark_on_an_empty_block_moves_to_the_one_before_it(section):  # B26
    is_base = section == "system"
    positions = [base(), Position(section, tokens=500, is_base=is_base)]
    positions.append(Position(section, tokens=0, is_base=is_base, mark=Mark()))
    plan = plan_marks(positions, RULES)
    assert 1 in plan.marks
    assert 2 not in plan.marks
    assert plan.removed == (2,)


def test_an_earlier_mark_is_raised_to_the_longest_of_the_later_ones():  # B27
    positions = [base(section="tools", mark=Mark()), base(mark=Mark(3600)), Position()]
    plan = plan_marks(positions, RULES)
    assert plan.marks == {0: Mark(3600), 1: Mark(3600), 2: Mark(None)}
    assert [note.position for note in plan.notes if note.kind == "raised"] == [0]


def test_no_mark_stands_after_reasoning():  # B29
    positions = [base(), Position(), Position(kind="reasoning")]
    assert list(plan_marks(positions, RULES).marks) == [0, 1]


def test_a_base_below_the_models_minimum_gets_no_mark_and_says_so():  # B31
    plan = plan_marks([base(tokens=900)], RULES)
    assert plan.marks == {}
    assert [note.kind for note in plan.notes] == ["below-minimum"]
    assert "900" in plan.notes[0].text
    assert "1000" in plan.notes[0].text


def test_a_line_of_one_user_does_not_defeat_the_part_that_all_share():  # B35
    positions = [base(), base(tokens=5, durability="conversation"), Position()]
    assert 0 in plan_marks(positions, RULES).marks


def test_an_automatic_mark_takes_one_of_the_count():
    positions = [base(), base(durability="tenant"), base(durability="conversation"), Position(mark=Mark()), Position()]
    plan = plan_marks(positions, RULES, automatic=Mark())
    assert len(plan.marks) == 3
    assert 4 not in plan.marks


def test_a_ttl_that_the_model_does_not_have_becomes_the_next_longer_one():
    plan = plan_marks([base(mark=Mark(600)), Position()], RULES)
    assert plan.marks[0] == Mark(3600)
    assert "no-ttl" in [note.kind for note in plan.notes]


def test_a_model_without_marks_gets_none():
    plan = plan_marks([base(mark=Mark()), Position()], attrs.evolve(RULES, marks=0))
    assert plan.marks == {}
    assert plan.removed == (0,)
