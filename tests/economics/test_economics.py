"""What a memory in front of an agent costs: nothing that shows what memory says is cheaper than a conversation's turns.

A few of the real runs, with facts arriving between their turns, at each provider. The whole of it is a program:
``benchmarks/economics.py``.
"""

from __future__ import annotations

import functools
import importlib.util

import attrs
import pytest

import economics
import economics_trace
from economics_hindsight import Hindsight
from economics_layouts import Appended, Frozen, Ours, Peer, Rebuilt, Timestamped
from economics_replay import Tally, replay, schemes
from economics_trace import Turn, Write, read_trace

pytestmark = [
    pytest.mark.skipif(not economics_trace.is_there(), reason=f"the recorded runs are not in {economics_trace.DATA}"),
    pytest.mark.skipif(importlib.util.find_spec("rs_bpe") is None, reason="the extra tokens is not installed"),
]
RUNS = 8
RATES = (0.0, 0.2, 1.0)
TRUE = (Timestamped.name, Rebuilt.name, Peer.name, Appended.name)
"""The other layouts that show what memory says."""
TARGET = 1.15
providers = pytest.mark.parametrize("scheme", sorted(schemes()))
rates = pytest.mark.parametrize("rate", RATES)


@functools.cache
def measured(scheme: str, rate: float) -> dict[str, Tally]:
    return {tally.layout: tally for tally in economics.measure(scheme, rate, RUNS).tallies}


@providers
@rates
def test_no_layout_that_shows_what_memory_says_costs_less(scheme: str, rate: float) -> None:
    found = measured(scheme, rate)
    dearer = {name: found[name].units - found[Ours.name].units for name in TRUE}
    assert min(dearer.values()) >= 0, dearer
    if rate:
        assert min(dearer.values()) > 0, dearer


@providers
def test_where_nothing_is_written_a_conversation_costs_what_the_bare_prompt_costs(scheme: str) -> None:
    found = measured(scheme, 0.0)
    assert found[Ours.name].units == found[Rebuilt.name].units


@providers
@rates
def test_the_best_schedule_in_hindsight_saves_no_more_than_the_target(scheme: str, rate: float) -> None:
    found = measured(scheme, rate)
    assert found[Ours.name].units <= TARGET * found[Hindsight.name].units


@providers
@rates
def test_no_request_breaks_a_rule_of_its_provider(scheme: str, rate: float) -> None:
    assert {name: tally.violations for name, tally in measured(scheme, rate).items() if tally.violations} == {}


@providers
@rates
def test_every_fact_is_there_at_the_first_turn_after_its_write(scheme: str, rate: float) -> None:
    found = measured(scheme, rate)
    assert {name for name, tally in found.items() if tally.stale} == ({Frozen.name} if rate else set())


def test_a_trace_has_equal_turns_at_every_rate_and_writes_only_between_them() -> None:
    traces = [read_trace(rate, runs=RUNS) for rate in RATES]
    assert traces[0].turns == traces[1].turns == traces[2].turns
    assert [sum(isinstance(event, Write) for event in trace.events) > 0 for trace in traces] == [False, True, True]
    for trace in traces:
        times = [event.at for event in trace.events]
        assert times == sorted(times)
        opened = set()
        for event in trace.events:
            if isinstance(event, Turn):
                opened.add(event.user)
            else:
                assert event.user in opened


def test_the_same_run_gives_the_same_figures() -> None:
    def once() -> list[dict[str, object]]:
        tallies = replay(read_trace(1.0, runs=2), schemes()["marks"], layouts=[Ours, Appended])
        return [attrs.asdict(tally) for tally in tallies]

    assert once() == once()
