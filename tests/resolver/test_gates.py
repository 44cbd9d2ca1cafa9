"""Gates: asked before anything is read, once a resolve, bounded in time; whatever is no bool is an error."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import pytest

import promptkeel as pk
from promptkeel import blocking

ADA = pk.TenantScope.parse("org:acme/user:ada")
BOB = pk.TenantScope.parse("org:acme/user:bob")
BACKENDS = ["asyncio", "trio"]


def for_ada(scope):
    return scope == ADA


async def for_ada_later(scope):
    await anyio.lowlevel.checkpoint()
    return scope == ADA


def spec(gate, *, name="NOTES", **fields):
    return pk.PromptBlockSpec(name=name, source=pk.StaticSource(f"text of {name}"), render_when=gate, **fields)


def answer(specs, scope=ADA, backend="asyncio"):
    async def main():
        return await pk.PromptBlockResolver(specs).resolve(scope)

    return anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gate", [for_ada, for_ada_later])
def test_a_gate_decides_for_each_scope(gate, backend):
    assert answer([spec(gate)], ADA, backend).blocks[0].state == "fresh"
    (block,) = answer([spec(gate)], BOB, backend).blocks
    assert (block.state, block.text, block.facts) == ("gated", "", ())


def test_the_blocking_twin_asks_ordinary_gates_and_refuses_asynchronous_ones():
    resolver = blocking.PromptBlockResolver([spec(for_ada)])
    assert resolver.resolve(ADA).blocks[0].text
    assert not resolver.resolve(BOB).blocks[0].text
    with pytest.raises(pk.BlockGateError, match="asynchronous"):
        blocking.PromptBlockResolver([spec(for_ada_later)]).resolve(ADA)


async def says_yes(_):
    return "yes"


async def never(_):
    await anyio.sleep_forever()


@pytest.mark.parametrize("policy", ["fail_closed", "omit", "last_known_good"])
@pytest.mark.parametrize(
    ("gate", "reason"),
    [
        (lambda _: 1, "True or False, not int"),
        (lambda _: None, "True or False, not NoneType"),
        (says_yes, "True or False, not str"),
        (lambda _: 1 / 0, "raised ZeroDivisionError"),
        (lambda _: Path("/no/such/file").read_text(), "raised FileNotFoundError"),
        (never, "within 0.01 s"),
        (lambda _: threading.Event().wait(1), "within 0.01 s"),
    ],
)
def test_a_gate_that_raises_is_slow_or_answers_no_bool_is_an_error_whatever_the_policy(gate, reason, policy):
    timeout = 0.01 if "within" in reason else 20
    declared = spec(gate, on_failure=policy, gate_timeout=timeout)
    with pytest.raises(pk.BlockGateError, match=f"block NOTES at scope org:acme/user:ada: .*{reason}") as caught:
        answer([declared])
    assert isinstance(caught.value, TypeError)


def test_a_gate_is_asked_before_any_read_once_a_resolve_and_a_shut_block_is_not_read(tmp_path):
    told = []

    def gate(name, is_open):
        def ask(_):
            told.append(f"gate {name}")
            return is_open

        return ask

    def load(name):
        def function(_):
            told.append(f"read {name}")
            return "text", "r"

        return pk.ComputedSource(function)

    specs = [
        pk.PromptBlockSpec(name="A", source=load("A"), render_when=gate("A", True)),
        pk.PromptBlockSpec(name="B", source=load("B"), render_when=gate("B", False)),
        pk.PromptBlockSpec(name="C", source=load("C")),
        pk.PromptBlockSpec(name="D", source=pk.FileSource(tmp_path / "no"), render_when=gate("D", False)),
    ]
    resolver = blocking.PromptBlockResolver(specs)
    for _ in range(3):
        del told[:]
        resolution = resolver.resolve(ADA)
        assert sorted(told[:3]) == ["gate A", "gate B", "gate D"]
        assert sorted(told[3:]) == ["read A", "read C"]
        states = {block.name: block.state for block in resolution.blocks}
        assert states == {"A": "fresh", "B": "gated", "C": "fresh", "D": "gated"}
        assert resolution.freshness.strict


@pytest.fixture(params=["ram:", "sqlite"])
def url(request, tmp_path):
    return request.param if request.param == "ram:" else f"sqlite:///{tmp_path / 'memory.db'}"


def test_a_shut_lane_is_not_read_and_a_gate_that_opens_and_shuts_again_renders_nothing_twice(url):
    answers = {"open": True}
    specs = [
        pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:"), render_when=lambda _: answers["open"]),
        pk.PromptBlockSpec(name="PREFERENCES", source=pk.MemoryLane("PREFERENCE:")),
    ]
    read = []
    with blocking.open(url, blocks=specs, observe=lambda event: read.append((event.block, event.action))) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        keel.remember(ADA, "short answers", block="PREFERENCES")
        answers["open"] = False
        shut = keel.prompt(ADA)
        assert "tea" not in shut.text
        assert ("USER_PROFILE", "scanned") not in read
        answers["open"] = True
        opened = keel.prompt(ADA)
        assert "tea" in opened.text
        renders = keel.counters.renders
        for _ in range(2):
            answers["open"] = False
            assert keel.prompt(ADA) is shut
            answers["open"] = True
            assert keel.prompt(ADA) is opened
        assert keel.counters.renders == renders
        keel.remember(ADA, "likes the sea", block="USER_PROFILE")
        assert "sea" in keel.prompt(ADA).text
        answers["open"] = False
        assert keel.prompt(ADA).text == shut.text


def test_gates_are_asked_side_by_side_in_both_worlds():
    meeting = threading.Barrier(3)

    def gate(_):
        meeting.wait(20)
        return True

    specs = [spec(gate, name=name, gate_timeout=20) for name in "ABC"]
    assert all(block.text for block in blocking.PromptBlockResolver(specs).resolve(ADA).blocks)
    assert all(block.text for block in answer(specs).blocks)
