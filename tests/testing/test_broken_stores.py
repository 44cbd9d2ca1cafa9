"""The kit finds what is wrong with a store and names it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from promptkeel.errors import PromptkeelError
from promptkeel.testing import StoreMachine
from testing.broken_stores import BROKEN, Wrapper

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """By store and test: passed, failed or skipped."""
    report = tmp_path_factory.mktemp("broken") / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command += ["-k", "not random_programs and (not one_revision or TestWrapper)", str(HERE / "broken_suites.py")]
    environment = {**os.environ, "PROMPTKEEL_BROKEN_SUITES": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=HERE.parent.parent)
    assert done.returncode == 1, done.stdout[-4000:] + done.stderr[-4000:]
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - written right here
        name = case.attrib["name"].partition("[")[0]
        kinds = {child.tag for child in case}
        outcome = next((kind for kind in ("error", "failure", "skipped") if kind in kinds), "passed")
        store = case.attrib["classname"].rpartition(".Test")[2]
        if found[store].get(name, "passed") == "passed":
            found[store][name] = outcome
    return found


def test_there_are_at_least_fifteen_broken_stores() -> None:
    assert len(BROKEN) >= 15
    assert len({each.__name__ for each in BROKEN}) == len(BROKEN)


def test_what_breaks_nothing_passes_everything(outcomes: dict[str, dict[str, str]]) -> None:
    assert set(outcomes["Wrapper"].values()) == {"passed"}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_store_is_caught_and_the_failing_test_names_the_promise(
    outcomes: dict[str, dict[str, str]], kind: type[Wrapper]
) -> None:
    found = outcomes[kind.__name__]
    failed = {name for name, outcome in found.items() if outcome == "failure"}
    assert kind.breaks in failed
    assert "error" not in found.values()


def test_every_test_of_the_suite_has_a_store_that_fails_it(outcomes: dict[str, dict[str, str]]) -> None:
    failing = {name for found in outcomes.values() for name, outcome in found.items() if outcome == "failure"}
    assert set(outcomes["Wrapper"]) - failing == {
        "test_stable_what_is_read_is_not_the_store",  # what nodes hold is frozen: a store would have to try hard
        "test_deterministic_equal_nodes_give_one_revision_whatever_their_order",  # run on the whole wrapper only
    }


def machine_of(kind: type[Wrapper]) -> type[StoreMachine]:
    class Machine(StoreMachine):
        def new_store(self) -> Wrapper:
            return kind(self.clock)

        def open_again(self, store: Any) -> Wrapper:
            again: Wrapper = store.again()
            return again

    return Machine


def run_programs(kind: type[Wrapper], examples: int) -> None:
    quick = settings(
        max_examples=examples,
        stateful_step_count=30,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
    )
    run_state_machine_as_test(machine_of(kind), settings=quick)


def test_random_programs_find_nothing_where_nothing_is_broken() -> None:
    run_programs(Wrapper, 60)


@pytest.mark.parametrize("kind", [each for each in BROKEN if each.seen_by_programs], ids=lambda kind: kind.__name__)
def test_random_programs_find_a_broken_store(kind: type[Wrapper]) -> None:
    with pytest.raises((AssertionError, PromptkeelError)):
        run_programs(kind, 1000)
