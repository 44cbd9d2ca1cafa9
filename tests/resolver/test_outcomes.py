"""Every transition of what becomes of one block, without I/O."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.blocks import FailurePolicy
from promptkeel.errors import InvalidDeclarationError, SourceTimeoutError, SourceUnavailableError, StoreBusyError
from promptkeel.model import BlockFact, BlockRevision
from promptkeel.render import RenderPolicy, render_block
from promptkeel.resolver.outcomes import (
    STALE_LINE,
    Failed,
    Wrong,
    after_failure,
    gate_defect,
    marked,
    reading_of,
)

GOOD_FOR_A_MINUTE = FailurePolicy("last_known_good", max_age=60)


@pytest.mark.parametrize("answer", [True, False])
def test_a_gate_answers_a_bool(answer):
    assert gate_defect(answer) is None


@pytest.mark.parametrize("answer", [None, 0, 1, "yes", [], object()])
def test_whatever_else_a_gate_answers_is_a_defect(answer):
    assert type(answer).__name__ in gate_defect(answer)


@pytest.mark.parametrize(
    ("policy", "age", "outcome"),
    [
        (FailurePolicy("fail_closed"), None, "error"),
        (FailurePolicy("fail_closed"), 0.0, "error"),
        (FailurePolicy("omit"), None, "omitted"),
        (FailurePolicy("omit"), 0.0, "omitted"),
        (GOOD_FOR_A_MINUTE, None, "error"),
        (GOOD_FOR_A_MINUTE, 0.0, "stale"),
        (GOOD_FOR_A_MINUTE, 60.0, "stale"),
        (GOOD_FOR_A_MINUTE, 60.001, "error"),
        (FailurePolicy("last_known_good"), 300.0, "stale"),
        (FailurePolicy("last_known_good"), 300.001, "error"),
    ],
)
def test_a_failed_read_becomes_what_the_policy_says(policy, age, outcome):
    assert after_failure(policy, age) == outcome


@given(
    st.sampled_from(["fail_closed", "omit", "last_known_good"]),
    st.none() | st.floats(0, 1e9),
    st.floats(0.001, 366 * 86_400),
)
def test_a_block_is_shown_stale_only_where_that_was_declared_and_only_for_so_long(action, age, max_age):
    policy = FailurePolicy(action, max_age=max_age if action == "last_known_good" else None)
    stale = action == "last_known_good" and age is not None and age <= max_age
    expected = "stale" if stale else ("omitted" if action == "omit" else "error")
    assert after_failure(policy, age) == expected


@pytest.mark.parametrize(
    "error", [OSError(5, "away"), SourceUnavailableError("away"), SourceTimeoutError("slow"), TimeoutError(),
              StoreBusyError("locked"), ConnectionError()],
)  # fmt: skip
def test_failures_to_read_are_a_matter_of_policy(error):
    assert isinstance(reading_of(error), Failed)


@pytest.mark.parametrize("error", [TypeError("x"), ValueError("x"), KeyError("x"), InvalidDeclarationError("must be")])
def test_defects_are_none(error):
    found = reading_of(error)
    assert isinstance(found, Wrong)
    assert "its source" in found.reason


def test_the_line_of_a_stale_block_stands_outside_its_fence():
    fact = BlockFact("x")
    revision = BlockRevision(content="x", revision="r", facts=(fact,))
    rendered = render_block("USER_PROFILE", revision, tier="profile", policy=RenderPolicy(fence="abcd1234"))
    lines = marked(rendered, GOOD_FOR_A_MINUTE).text.split("\n")
    assert lines[:2] == ["### PROFILE / USER_PROFILE", STALE_LINE]
    assert lines[0:1] + lines[2:] == rendered.text.split("\n")
    assert marked(rendered, FailurePolicy("last_known_good", mark_text=False)) is rendered
