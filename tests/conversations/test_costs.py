"""When a base is rewritten: the rule against every schedule that there is."""

from __future__ import annotations

import itertools

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promptkeel.conversations.costs import (
    Carrying,
    Prices,
    Turn,
    best_schedule,
    cost_of,
    schedule_by_rule,
    should_rewrite,
)
from promptkeel.providers.rules import rules_for

PRICES = Prices(write=1.25, read=0.1, ttl=300)
prices = st.sampled_from([PRICES, Prices(2.0, 0.1, 3600), Prices(1.25, 0.025, 300), Prices(1.0, 0.5, 300)])


ALWAYS = st.just(True)


@st.composite
def programs(draw, *, max_size=8, largest_change=400, least_folded=-0.5, is_legal=ALWAYS):
    """Turns of a conversation that grows."""
    at, prefix, turns = 0.0, draw(st.integers(2_000, 20_000)), []
    for _ in range(draw(st.integers(1, max_size))):
        change = draw(st.one_of(st.just(0), st.integers(1, largest_change)))
        folded = draw(st.integers(int(least_folded * change), change))
        turns.append(Turn(at=at, prefix=prefix, change=change, folded=folded, is_legal=draw(is_legal)))
        at += draw(st.sampled_from([20.0, 20.0, 290.0, 301.0, 4_000.0]))
        prefix += draw(st.integers(50, 2_000))
    return turns


def every_schedule(turns):
    places = range(1, len(turns))
    for count in range(len(turns)):
        yield from itertools.combinations(places, count)


@given(programs(max_size=7, largest_change=30_000, is_legal=st.booleans()), prices)
def test_the_best_schedule_is_the_cheapest_of_all_legal_ones(turns, given_prices):
    legal = [schedule for schedule in every_schedule(turns) if all(turns[index].is_legal for index in schedule)]
    cheapest = min(cost_of(turns, schedule, given_prices) for schedule in legal)
    best = best_schedule(turns, given_prices)
    assert best.cost == pytest.approx(cheapest)
    assert cost_of(turns, best.rewrites, given_prices) == pytest.approx(best.cost)


@example([Turn(at=0, prefix=2000), Turn(at=20, prefix=2050, change=1052, folded=53)], Prices(1.0, 0.5, 300))
@given(programs(max_size=40, largest_change=30_000, least_folded=0), prices)
def test_the_rule_stays_within_its_bound(turns, given_prices):
    found, best = schedule_by_rule(turns, given_prices), best_schedule(turns, given_prices)
    share, carried = 0.0, 0
    for index, turn in enumerate(turns):
        carried = 0 if index in found.rewrites or index == 0 else carried + turn.change
        share = max(share, carried / turn.prefix)
    assert best.cost <= found.cost + 1e-6
    assert found.cost <= (1 + 2 * share) * best.cost + 1e-6


@given(programs(), prices, st.data())
def test_a_forced_rewrite_is_in_every_schedule(turns, given_prices, data):
    place = data.draw(st.integers(0, len(turns) - 1))
    turns[place] = attrs.evolve(turns[place], forced=True)
    for schedule in (schedule_by_rule(turns, given_prices), best_schedule(turns, given_prices)):
        assert place == 0 or place in schedule.rewrites


@given(programs(), prices)
def test_where_nothing_changes_nothing_is_rewritten(turns, given_prices):
    unchanged = [attrs.evolve(turn, change=0, folded=0) for turn in turns]
    assert schedule_by_rule(unchanged, given_prices).rewrites == ()


def test_a_cold_cache_makes_a_rewrite_free_and_a_warm_one_does_not():
    carrying = Carrying(prefix=10_000, carried=50, change=0, paid=0.0, is_warm=True)
    assert not should_rewrite(carrying, PRICES)
    assert should_rewrite(attrs.evolve(carrying, is_warm=False), PRICES)
    assert not should_rewrite(attrs.evolve(carrying, carried=0, is_warm=False), PRICES)


def test_deltas_are_carried_until_reading_them_has_cost_a_rewrite():
    extra = (PRICES.write - PRICES.read) * 10_000
    carrying = Carrying(prefix=10_000, carried=50, change=0, paid=extra - 1, is_warm=True)
    assert not should_rewrite(carrying, PRICES)
    assert should_rewrite(attrs.evolve(carrying, paid=extra), PRICES)


def test_a_delta_that_is_longer_than_a_rewritten_request_is_not_written():
    carrying = Carrying(prefix=10_000, carried=0, change=10_000, paid=0.0, is_warm=True)
    assert not should_rewrite(carrying, PRICES)
    assert should_rewrite(attrs.evolve(carrying, change=10_001), PRICES)


def test_a_rewrite_waits_for_as_long_as_it_is_not_legal():
    turns = [Turn(at=1_000.0 * index, prefix=5_000, change=10, is_legal=index == 3) for index in range(5)]
    assert schedule_by_rule(turns, PRICES).rewrites == (3,)


def test_prices_are_those_of_the_model():
    rules = rules_for("anthropic", "claude-opus-4-5")
    assert Prices.of(rules) == Prices(1.25, 0.1, 300)
    assert Prices.of(rules, 3600) == Prices(2.0, 0.1, 3600)
