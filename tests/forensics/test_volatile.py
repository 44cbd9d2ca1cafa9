"""How one text became another: places within both, nothing where they are equal, something where they are not."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from promptkeel.forensics.causes import Cause
from promptkeel.forensics.volatile import common_length, differences, loose

TEXTS = st.text(st.sampled_from('ab 1:0-9\n{}",é'), max_size=60) | st.text(max_size=30)


@given(TEXTS, TEXTS)
def test_texts_differ_exactly_where_there_is_a_spot_and_spots_are_within_them(before, after):
    spots = differences(before, after)
    assert bool(spots) == (before != after)
    for spot in spots:
        assert 0 <= spot.before <= len(before)
        assert 0 <= spot.after <= len(after)
    assert [spot.after for spot in spots] == sorted(spot.after for spot in spots)


@given(TEXTS, TEXTS)
def test_the_common_beginning_is_the_longest_one(one, other):
    length = common_length(one, other)
    assert one[:length] == other[:length]
    assert length == min(len(one), len(other)) or one[length] != other[length]


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=5))
def test_the_order_of_keys_and_white_space_are_no_part_of_the_sense(value):
    turned = dict(reversed(value.items()))
    assert loose(json.dumps(value)) == loose(json.dumps(turned, indent=3))


def test_every_difference_of_a_long_text_is_told_with_its_own_cause():
    rules = " ".join(f"Rule {number} is kept." for number in range(500))
    before = f"Now: 10:00:01. {rules} Be kind. {rules} Run 3f2b1c9e-0b1a-4c1d-9e7f-aa00bb11cc22."
    after = f"Now: 10:00:09. {rules} Be brief. {rules} Run 99999999-0b1a-4c1d-9e7f-aa00bb11cc22."
    spots = differences(before, after)
    assert [spot.cause for spot in spots] == [Cause.TIMESTAMP, None, Cause.IDENTIFIER]
    assert [after[spot.after :][:5] for spot in spots] == ["10:00", "brief", "99999"]
