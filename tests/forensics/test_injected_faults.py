"""Faults injected into the traffic of agents, alone and in pairs: what they cost is given to them."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from injected_traffic import DATA, FAULTS, MODELS, can_meet, made_runs, measure, real_runs, traffic
from promptkeel.forensics.causes import Cause

REAL = DATA.is_file()
needs_runs = pytest.mark.skipif(not REAL, reason=f"there is no {DATA.name} in the folder of shared data")
FORMATS = tuple(MODELS)


def bases_of(runs):
    return {wire_format: traffic(runs, wire_format, 5) for wire_format in FORMATS}


@pytest.fixture(scope="module")
def made():
    return bases_of(made_runs(2, 5))


@pytest.fixture(scope="module")
def real():
    return bases_of(real_runs(3, 5))


def share_of(outcomes):
    lost = sum(outcome.lost for outcome in outcomes)
    given = sum(sum(outcome.given.values()) for outcome in outcomes)
    return sum(outcome.right for outcome in outcomes) / max(lost, given)


def confusion_of(outcomes):
    rows = []
    for outcome in outcomes:
        given = {cause.value: tokens for cause, tokens in outcome.given.most_common() if tokens}
        names = " + ".join(fault.cause.value for fault in outcome.faults)
        rows.append(f"{names}: {outcome.share:.1%} of {outcome.lost:,}; given {given}")
    return "\n".join(rows)


def test_more_than_25_causes_can_be_injected():
    assert len({fault.cause for fault in FAULTS}) >= 25


@pytest.mark.parametrize("with_session", [True, False])
@pytest.mark.parametrize("wire_format", FORMATS)
def test_traffic_without_a_fault_loses_nothing(made, wire_format, with_session):
    outcome = measure(made[wire_format], (), with_session=with_session)
    assert outcome.given == Counter()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.cause.value)
def test_what_one_fault_costs_is_given_to_it(made, fault):
    wire_format = fault.formats[-1]
    outcome = measure(made[wire_format], (fault,))
    assert outcome.lost > 0
    assert outcome.share >= 0.9, confusion_of([outcome])


@needs_runs
def test_of_what_single_faults_cost_in_real_runs_at_least_95_in_100_tokens_are_given_to_the_right_cause(real):
    outcomes = [measure(real[fault.formats[0]], (fault,)) for fault in FAULTS]
    assert len({outcome.faults[0].cause for outcome in outcomes if outcome.lost}) >= 25
    assert share_of(outcomes) >= 0.95, confusion_of(outcomes)
    assert min(outcome.share for outcome in outcomes) >= 0.9, confusion_of(outcomes)


@needs_runs
def test_of_what_pairs_of_faults_cost_in_real_runs_at_least_95_in_100_tokens_are_given_to_the_right_cause(real):
    pairs = [
        (wire_format, one, other)
        for wire_format in FORMATS
        for one, other in itertools.combinations(FAULTS, 2)
        if can_meet(one, other, wire_format)
    ]
    chosen = random.Random(5).sample(pairs, 20)
    outcomes = [measure(real[wire_format], (one, other)) for wire_format, one, other in chosen]
    assert share_of(outcomes) >= 0.95, confusion_of(outcomes)


def test_every_cause_says_what_happened_and_what_to_do():
    for cause in Cause:
        assert cause.sentence.endswith(".")
        assert cause.remedy.endswith(".")
    assert len({cause.sentence for cause in Cause}) == len(Cause)
