"""Every transition of the resolver's state machine, without I/O."""

from __future__ import annotations

from promptkeel.lane import Lane
from promptkeel.resolver.states import (
    INLINE_FACTS,
    Fresh,
    KeptLanes,
    Missing,
    Moved,
    Touched,
    after_heads,
    after_probe,
    caught_up,
    changed_positions,
    is_inline,
    newer,
)
from promptkeel.store.base import CatchUp, Head, Heads, LaneRequest, LaneUpdate

HEADS = Heads((Head("", 0, 0), Head("org:acme", 3, 33)))
LATER = Heads((Head("", 0, 0), Head("org:acme", 4, 44)))


def row(label, node_id="n1", updated=1):
    return (label, 5, node_id, "org:acme", None, None, updated, None)


def lane(*rows, prefix="SOUL:"):
    return Lane.build(list(rows), prefix=prefix, profile_fields=frozenset())


def kept(ticket=1, token=7, heads=HEADS, lanes=()):
    return KeptLanes(ticket, token, heads, tuple(lanes), ())


def test_with_nothing_kept_every_lane_is_read_whole():
    assert after_probe(None, 7, ("SOUL:", "FOCUS:")) == Missing((LaneRequest("SOUL:"), LaneRequest("FOCUS:")))


def test_an_equal_token_is_fresh_and_another_one_asks_for_the_heads():
    present = kept()
    assert after_probe(present, 7, ("SOUL:",)) == Fresh(present)
    assert after_probe(present, 8, ("SOUL:",)) == Moved(present)


def test_equal_heads_stamp_what_is_kept_anew():
    state = after_heads(kept(), HEADS, ("SOUL:",), ticket=2, token=8)
    assert isinstance(state, Fresh)
    assert (state.kept.ticket, state.kept.token, state.kept.heads) == (2, 8, HEADS)


def test_other_heads_ask_what_was_touched_since_the_kept_ones():
    present = kept()
    assert after_heads(present, LATER, ("SOUL:",), ticket=2, token=8) == Touched(
        present, (LaneRequest("SOUL:", HEADS),)
    )


def test_a_lane_that_nothing_touched_is_the_very_same_object_and_a_touched_one_is_built():
    first, second = lane(row("SOUL:a")), lane(row("FOCUS:b"), prefix="FOCUS:")
    update = CatchUp(LATER, (LaneUpdate([]), LaneUpdate([row("FOCUS:c")], (("org:acme", "n1"),))))

    def build(position, present, change):
        assert (position, present) == (1, second)
        return present.updated(change)

    lanes = caught_up((first, second), update, build)
    assert lanes[0] is first
    assert [fact.value for fact in lanes[1].facts] == ["c"]


def test_a_whole_lane_is_built_from_nothing():
    update = CatchUp(LATER, (LaneUpdate([row("SOUL:z")], (), whole=True),))
    seen = []
    caught_up((lane(row("SOUL:a")),), update, lambda *given: seen.append(given) or lane(row("SOUL:z")))
    assert seen == [(0, None, update.lanes[0])]


def test_only_lanes_whose_revision_moved_are_rendered_anew():
    first, second = lane(row("SOUL:a")), lane(row("FOCUS:b"), prefix="FOCUS:")
    before = kept(lanes=(first, second))
    equal = lane(row("SOUL:a"))
    assert changed_positions(before, (equal, lane(row("FOCUS:c"), prefix="FOCUS:"))) == (1,)
    assert changed_positions(None, (first, second)) == (0, 1)


def test_short_lanes_are_rendered_on_the_callers_thread():
    short = lane(row("SOUL:a"))
    long = lane(*(row(f"SOUL:{number}", f"n{number}") for number in range(INLINE_FACTS + 1)))
    assert is_inline((short, long), (0,))
    assert not is_inline((short, long), (0, 1))


def test_a_slow_old_read_never_replaces_a_newer_result():
    old, new = kept(ticket=1), kept(ticket=2)
    assert newer(new, old) is new
    assert newer(old, new) is new
    assert newer(None, old) is old
