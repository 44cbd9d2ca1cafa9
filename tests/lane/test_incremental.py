"""A lane that is updated equals the lane that is built afresh, and updating leaves the old one as it was."""

from __future__ import annotations

import gc
import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import promptkeel.lane.lane as lane_module
from lane.lane_samples import PREFIX, rows
from promptkeel.errors import InvalidDeclarationError, ScannerError
from promptkeel.instants import EARLIEST, LATEST, datetime_of
from promptkeel.lane import EMPTY_MEMORY_REVISION, Lane, memory_revision
from promptkeel.lane.order import row_key
from promptkeel.store.base import LaneRow, LaneUpdate, NodeKey

FIELDS = frozenset({"role", "city"})


def same(left: Lane, right: Lane) -> bool:
    return (left.revision, left.facts, left.count, left.unreadable) == (
        right.revision,
        right.facts,
        right.count,
        right.unreadable,
    )


def plain_row(number: int, statement: str = "") -> LaneRow:
    return (f"{PREFIX}{statement}{number:06}", number, f"n{number}", "org:a/user:u1", "crm", None, number, None)


steps = st.lists(
    st.tuples(st.lists(rows(), max_size=4), st.lists(st.integers(0, 1000), max_size=3)), min_size=1, max_size=8
)


@given(
    steps, st.sampled_from([frozenset(), FIELDS, frozenset({"source", "role", "recorded_at", "trust"})]), st.randoms()
)
def test_after_any_updates_a_lane_equals_the_one_built_afresh(program: list, fields: frozenset, chance) -> None:
    model: dict[NodeKey, LaneRow] = {}
    lane = Lane.build([], prefix=PREFIX, profile_fields=fields)
    for added, removed in program:
        known = sorted(model)
        gone = {known[position % len(known)] for position in removed if known}
        new = {row_key(row): row for row in added}
        for key in gone - set(new):
            del model[key]
        model |= new
        before = (lane.revision, lane.facts, lane.count, lane.unreadable)
        following = lane.updated(LaneUpdate(list(new.values()), tuple(gone | set(new))))
        assert (lane.revision, lane.facts, lane.count, lane.unreadable) == before
        shuffled = list(model.values())
        chance.shuffle(shuffled)
        assert same(following, Lane.build(shuffled, prefix=PREFIX, profile_fields=fields))
        nodes = [SimpleNamespace(updated_at=stamp_of(row[6])) for row in shuffled]
        assert memory_revision(nodes, following.facts) == following.revision
        lane = following


def stamp_of(updated: int | None) -> object:
    return None if updated is None or not EARLIEST <= updated <= LATEST else datetime_of(updated)


@pytest.mark.parametrize("seed", range(3))
def test_long_programs_over_many_segments_equal_a_fresh_build(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "_RECENT_FROM", 20)
    chance = random.Random(seed)
    model = {row_key(row): row for row in map(plain_row, range(3000))}
    lane = Lane.build(model.values(), prefix=PREFIX)
    assert len(lane._segments) > 5
    for step in range(150):
        touched = []
        new = []
        for _ in range(chance.choice([1, 1, 3, 20])):
            number = chance.randrange(3300)
            row = plain_row(number, chance.choice(["", "x", "y"])) if chance.random() < 0.6 else None
            key = ("org:a", f"n{number}")
            if key in touched:
                continue
            touched.append(key)
            model.pop(key, None)
            if row is not None:
                model[key] = row
                new.append(row)
        lane = lane.updated(LaneUpdate(new, tuple(touched)))
        if step % 10 == 0:
            assert same(lane, Lane.build(model.values(), prefix=PREFIX))
    assert same(lane, Lane.build(model.values(), prefix=PREFIX))


def test_an_update_shares_the_segments_that_it_does_not_touch() -> None:
    lane = Lane.build(map(plain_row, range(5000)), prefix=PREFIX)
    row = plain_row(2500)
    changed = lane.updated(LaneUpdate([(*row[:4], "form", *row[5:])], (row_key(row),)))
    assert changed.revision != lane.revision
    assert len(set(lane._segments) - set(changed._segments)) <= 2


def test_an_update_that_changes_nothing_is_the_same_lane() -> None:
    lane = Lane.build([plain_row(1)], prefix=PREFIX)
    assert lane.updated(LaneUpdate([plain_row(1)], (row_key(plain_row(1)), ("org:a", "unknown")))) is lane


def test_a_lane_that_loses_every_node_is_empty() -> None:
    lane = Lane.build([plain_row(1)], prefix=PREFIX).updated(LaneUpdate([], (("org:a", "n1"),)))
    assert (lane.revision, lane.facts, lane.count) == (EMPTY_MEMORY_REVISION, (), 0)
    assert lane.updated(LaneUpdate([plain_row(1)])).count == 1


def test_a_whole_update_replaces_everything() -> None:
    lane = Lane.build([plain_row(1)], prefix=PREFIX).updated(LaneUpdate([plain_row(2)], whole=True))
    assert same(lane, Lane.build([plain_row(2)], prefix=PREFIX))


def test_the_same_id_under_two_roots_is_two_nodes() -> None:
    own = plain_row(1)
    inherited = (*own[:3], "", *own[4:])
    lane = Lane.build([own, inherited], prefix=PREFIX)
    assert lane.count == 2
    assert lane.updated(LaneUpdate([], (("", "n1"),))).to_revision() == Lane.build([own], prefix=PREFIX).to_revision()


def test_a_foreign_prefix_is_an_error_that_names_the_label() -> None:
    for label in ("EVENT:secret", "SOUM:x", "SO"):
        row = (label, *plain_row(1)[1:])
        with pytest.raises(ScannerError, match=label):
            Lane.build([plain_row(0), row, plain_row(2)], prefix=PREFIX)
        with pytest.raises(ScannerError, match=label):
            Lane.build([plain_row(0)], prefix=PREFIX).updated(LaneUpdate([row]))


def test_a_node_that_is_there_twice_is_an_error() -> None:
    with pytest.raises(ScannerError, match="twice"):
        Lane.build([plain_row(1), plain_row(1, "other")], prefix=PREFIX)


@pytest.mark.parametrize("fields", ["role", 3, {""}, {"ro\0le"}, {None}])
def test_fields_that_are_no_names_are_refused(fields) -> None:
    with pytest.raises(InvalidDeclarationError, match="profile_fields"):
        Lane.build([], prefix=PREFIX, profile_fields=fields)


def test_building_leaves_the_garbage_collector_as_it_was() -> None:
    assert gc.isenabled()
    Lane.build([plain_row(1)], prefix=PREFIX)
    assert gc.isenabled()
    with pytest.raises(ScannerError):
        Lane.build([("X", *plain_row(1)[1:])], prefix=PREFIX)
    assert gc.isenabled()
    gc.disable()
    try:
        Lane.build([plain_row(1)], prefix=PREFIX)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_one_odd_row_costs_itself_and_is_reported_in_lane_order() -> None:
    odd = [
        ("SOUL:bad \udcff", 1, "a", "", "crm", None, 1, None),
        ("SOUL:c", 2**62, "b", "", "crm\udcff", "forged", 1, "{bad"),
        ("SOUL:d", 2, "c\udcff", "", " crm ", "user", 1, '{"role":[],"city":"x\\ud800"}'),
    ]
    lane = Lane.build([*odd[::-1], plain_row(5)], prefix=PREFIX, profile_fields=FIELDS)
    assert [fact.value for fact in lane.facts] == ["000005", "c", "d"]
    assert [(entry.node_id, entry.field) for entry in lane.unreadable] == [
        ("a", "label"),
        ("b", "source"),
        ("b", "recorded_at"),
        ("b", "trust"),
        ("b", "properties"),
        ("c\\udcff", "id"),
        ("c\\udcff", "properties.city"),
        ("c\\udcff", "properties.role"),
    ]
    assert lane.facts[1][1:] == (None, None, None, None, "b")
    assert lane.facts[2][1:] == ("crm", 2, None, "user", "c\\udcff")
    assert lane.to_revision().count == 4


@pytest.mark.parametrize("instant", [EARLIEST - 1, LATEST + 1, 2**62])
def test_an_instant_that_utc_cannot_hold_is_reported_and_is_not_the_newest(instant: int) -> None:
    late = ("SOUL:late", instant, "late", "org:a", "crm", None, instant, None)
    lane = Lane.build([plain_row(1), late], prefix=PREFIX)
    assert [(fact.value, fact.recorded) for fact in lane.facts] == [("000001", 1), ("late", None)]
    assert [(entry.node_id, entry.field) for entry in lane.unreadable] == [("late", "recorded_at")]
    assert lane.revision.startswith("mem:2:1970-01-01T00:00:00.000001Z:")
