"""Prefix bounds take in exactly the labels that start with the prefix, in the order of UTF-8 bytes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promptkeel.store.prefix import prefix_bounds

EDGES = "\x00\x01%_\\*?[]aAzé\ud7ff\ue000\ufffd\uffff\U00010000\U0010fffe\U0010ffff"
storable = st.text(st.one_of(st.sampled_from(EDGES), st.characters(exclude_categories=["Cs"])), max_size=6)
anything = st.text(
    st.one_of(st.sampled_from(EDGES), st.characters(), st.sampled_from("\ud800\udbff\udfff")), max_size=4
)


def within(prefix: str, label: str) -> bool:
    low, high = prefix_bounds(prefix)
    return low <= label and (high is None or label < high)


@given(anything, storable)
def test_the_bounds_say_what_startswith_says(prefix: str, label: str) -> None:
    assert within(prefix, label) == label.startswith(prefix)


@given(storable, storable)
@example("", "")
@example("a\U0010ffff", "b")
@example("\ud7ff", "\ue000")
@example("\U0010ffff\U0010ffff", "\U0010ffff")
def test_every_continuation_is_within(prefix: str, rest: str) -> None:
    assert within(prefix, prefix + rest)


@given(storable, storable)
def test_bytes_agree_with_characters(prefix: str, label: str) -> None:
    low, high = prefix_bounds(prefix)
    assert (low.encode() <= label.encode()) == (low <= label)
    if high is not None:
        assert (label.encode() < high.encode()) == (label < high)


@given(storable)
def test_the_bounds_of_a_storable_prefix_are_storable(prefix: str) -> None:
    low, high = prefix_bounds(prefix)
    assert low == prefix
    assert high is None or high.encode().decode() == high
    assert high is None or high > low


@pytest.mark.parametrize(
    ("prefix", "high"),
    [
        ("", None),
        ("SOUL:", "SOUL;"),
        ("a\ud7ff", "a\ue000"),
        ("a\uffff", "a\U00010000"),
        ("a\U0010ffff", "b"),
        ("a\U0010ffff\U0010ffff", "b"),
        ("\U0010ffff", None),
        ("100%", "100&"),
    ],
)
def test_edges(prefix: str, high: str | None) -> None:
    assert prefix_bounds(prefix) == (prefix, high)
