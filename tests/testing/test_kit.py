"""What the kit offers, how an author uses it, and what its plugin costs a run that does not ask for it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import promptkeel.testing
from promptkeel.blocking import open_store
from promptkeel.errors import InvalidInputError
from promptkeel.instants import parse_instant
from promptkeel.model import MemoryNode, check_source, check_trust
from promptkeel.properties import check_properties
from promptkeel.scope import ScopeLevel, TenantScope
from promptkeel.testing import SteppingClock, strategies
from promptkeel.text import check_text, refused_character, trim

PINNED = {
    "Delete", "Edit", "LaneSuite", "ModelStore", "Move", "Relabel", "SteppingClock", "StoreMachine", "StoreSuite",
    "model", "strategies",
}  # fmt: skip
STRATEGIES = {
    "edges", "hostile_texts", "instants", "json_values", "labels", "level_ids", "level_kinds", "levels", "moments",
    "nodes", "ordinary_texts", "properties", "refused_texts", "related_scopes", "scopes", "sources", "statements",
    "states", "texts", "trusts", "zones",
}  # fmt: skip


def own_functions() -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(strategies).items()
        if callable(value) and getattr(value, "__module__", "") == strategies.__name__ and not name.startswith("_")
    }


def test_the_public_names_are_the_pinned_ones() -> None:
    assert set(promptkeel.testing.__all__) == PINNED
    assert all(getattr(promptkeel.testing, name) is not None for name in PINNED)
    assert set(own_functions()) == STRATEGIES


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_each_strategy_is_documented_in_a_line_and_draws(name: str) -> None:
    function = own_functions()[name]
    assert function.__doc__.splitlines()[0].endswith((".", ":"))

    @given(function())
    def draw(value: Any) -> None:
        ACCEPTED[name](value)

    draw()


def is_scope(value: Any) -> None:
    assert TenantScope.parse(str(value)) == value


def is_refused(value: Any) -> None:
    assert refused_character(value)
    with pytest.raises(InvalidInputError):
        check_text(value, field="text")


def is_related(value: list[TenantScope]) -> None:
    assert any(one != other and one.sees(other) for one in value for other in value)
    assert any(not one.sees(other) and not other.sees(one) for one in value for other in value)


def is_node(value: Any) -> None:
    assert isinstance(value, MemoryNode)
    store = open_store("ram:")
    stored = store.put(value)
    assert store.get(value.scope, value.id) == stored


ACCEPTED: dict[str, Any] = {
    "edges": lambda value: attrs.evolve(value, type="about"),
    "hostile_texts": lambda value: check_text(value, field="text", blank=True),
    "instants": lambda value: MemoryNode(id="a", scope=TenantScope(), label="a", created_at=value),
    "json_values": lambda value: check_properties({"value": value}),
    "labels": lambda value: check_text(value, field="label"),
    "level_ids": lambda value: ScopeLevel("org", value),
    "level_kinds": lambda value: ScopeLevel(value, "acme"),
    "levels": lambda value: is_scope(TenantScope((value,))),
    "moments": lambda value: MemoryNode(id="a", scope=TenantScope(), label="a", recorded_at=value),
    "nodes": is_node,
    "ordinary_texts": lambda value: check_text(value, field="text", blank=True),
    "properties": check_properties,
    "refused_texts": is_refused,
    "related_scopes": is_related,
    "scopes": is_scope,
    "sources": check_source,
    "statements": lambda value: check_text(value, field="text"),
    "states": lambda value: MemoryNode(id="a", scope=TenantScope(), label="a", state=value),
    "texts": lambda value: check_text(value, field="text", blank=True),
    "trusts": check_trust,
    "zones": lambda value: value is None or value.utcoffset(None),
}


@given(st.lists(strategies.statements(), min_size=1))
def test_statements_are_never_blank(values: list[str]) -> None:
    assert all(trim(value) for value in values)


def test_a_stamped_node_has_every_time() -> None:
    @given(strategies.nodes(stamped=True))
    def check(node: MemoryNode) -> None:
        assert type(node.created) is type(node.updated) is int
        assert node.recorded is None or type(node.recorded) is int

    check()


# The clock and the plugin


def test_the_clock_starts_at_a_fixed_instant_and_steps_by_a_microsecond() -> None:
    clock = SteppingClock()
    start = parse_instant("2026-01-01T00:00:00Z")
    assert [clock(), clock(), clock()] == [start, start + 1, start + 2]
    assert clock.tick(-1) == start + 3 - 1_000_000
    still = SteppingClock(5, step=0)
    assert [still(), still(), still.tick(2), still()] == [5, 5, 2_000_005, 2_000_005]


PLUGIN = "_promptkeel_pytest_plugin"
AUTHOR = """
from promptkeel.blocking import open_store
from promptkeel.scope import DEPLOYMENT
from promptkeel.model import MemoryNode

def test_a_store_takes_the_clock(promptkeel_clock):
    start = promptkeel_clock.now
    store = open_store("ram:", clock=promptkeel_clock)
    nodes = [store.put(MemoryNode(id=name, scope=DEPLOYMENT, label=name)) for name in "ab"]
    assert [node.created for node in nodes] == [start, start + 1]
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def test_pytest_finds_the_plugin_by_itself() -> None:
    (entry,) = entry_points(group="pytest11", name="promptkeel")
    assert entry.value == PLUGIN


def test_the_plugin_gives_a_fixed_clock(tmp_path: Path) -> None:
    (tmp_path / "test_author.py").write_text(AUTHOR)
    done = run_pytest(tmp_path)
    assert "1 passed" in done.stdout, done.stdout


def test_the_plugin_loads_neither_promptkeel_nor_hypothesis() -> None:
    code = (
        f"import sys, {PLUGIN}; print([name for name in ('promptkeel', 'hypothesis', 'anyio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


SKIPPING = """
from promptkeel.blocking import open_store
from promptkeel.testing import StoreSuite

class Poor:
    capabilities = frozenset()

    def __init__(self, store):
        self.store = store

    def __getattr__(self, name):
        if name in ("apply", "unlink", "receipts"):
            raise AttributeError(name)
        return getattr(self.store, name)

class TestPoor(StoreSuite):
    def new_store(self):
        return Poor(open_store("ram:", clock=self.clock))
"""


def test_what_a_store_lacks_is_skipped_by_name(tmp_path: Path) -> None:
    (tmp_path / "test_poor.py").write_text(SKIPPING)
    done = run_pytest(tmp_path, "-rs", "-v", "-k", "sound or accountable or unlinking or batch or reopening")
    assert "failed" not in done.stdout, done.stdout
    for reason in (
        "Poor does not declare the capability 'heads'",
        "Poor does not declare the capability 'history'",
        "Poor has no method 'apply'",
        "Poor has no method 'unlink'",
        "TestPoor gives no open_again(store)",
    ):
        assert reason in done.stdout
    assert "test_sound_heads_never_come_back SKIPPED" in done.stdout


FORGETFUL = """
from promptkeel.testing import LaneSuite, StoreSuite

class TestForgetful(StoreSuite):
    pass

class TestForgetfulScanner(LaneSuite):
    pass
"""


def test_the_suites_say_what_an_author_forgot_and_are_not_collected_themselves(tmp_path: Path) -> None:
    (tmp_path / "test_forgetful.py").write_text(FORGETFUL)
    done = run_pytest(tmp_path, "-v", "-k", "long_lane")
    assert "TestForgetful needs a method new_store(self)" in done.stdout
    assert "TestForgetfulScanner needs a method new_scanner(self, nodes)" in done.stdout
    assert "2 failed" in done.stdout
