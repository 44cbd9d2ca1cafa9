"""A delegated agent sees the same bytes for its whole run, of what it inherits, until an erasure ends it."""

from __future__ import annotations

import asyncio
import threading

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import promptkeel as pk
from promptkeel import blocking
from promptkeel.blocks import StoredSource
from promptkeel.errors import (
    BlockResolutionError,
    InvalidInputError,
    RunEndedError,
    StoreUnavailableError,
    ToolPermissionError,
)

ADA = pk.TenantScope.parse("org:acme/user:ada")
BOB = pk.TenantScope.parse("org:acme/user:bob")


def specs(asked=None):
    def onboarding(scope):
        if asked is not None:
            asked.append(scope.path)
        return "Ask for a name.", "o1"

    return [
        pk.PromptBlockSpec(name="BOUNDARIES", source=pk.StaticSource("Never guess.")),
        pk.PromptBlockSpec(name="ONBOARDING", source=pk.ComputedSource(onboarding)),
        pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:"), permissions={"read", "add"}),
        pk.PromptBlockSpec(name="SECRETS", source=pk.MemoryLane("SECRET:"), inherit=False),
        pk.PromptBlockSpec(name="RULES", source=StoredSource("tenant", required=False)),
    ]


@pytest.fixture(params=["ram", "sqlite"])
def keel(request, tmp_path):
    url = "ram:" if request.param == "ram" else f"sqlite:///{tmp_path / 'memory.db'}"
    with blocking.open(url, blocks=specs()) as opened:
        opened.remember(ADA, "prefers tea", block="USER_PROFILE", id="tea")
        yield opened


def test_writes_do_not_move_a_run(keel):
    with keel.delegate(ADA) as run:
        before = run.prompt()
        keel.remember(ADA, "likes chess", block="USER_PROFILE")
        keel.correct(ADA, "tea", text="prefers coffee")
        keel.blocks.append(ADA.parent, "RULES", "Be brief.", author="operator")
        keel.retract(ADA, "tea")
        assert run.prompt() is before
        assert run.prompt(ADA) is before
        assert "prefers tea" in before.text
    assert "likes chess" in keel.prompt(ADA).text


def test_it_says_that_it_is_not_strict(keel):
    with keel.delegate(ADA) as run:
        assert not run.prompt().freshness.strict
        assert "frozen" in str(run.prompt().freshness)
    assert keel.prompt(ADA).freshness.strict


def test_what_is_not_inherited_is_neither_shown_nor_read():
    asked = []
    with blocking.open("ram:", blocks=specs(asked)) as keel:
        keel.remember(ADA, "the code is 1234", block="SECRETS")
        with keel.delegate(ADA) as run:
            prompt = run.prompt()
        assert asked == []
        assert [block.name for block in prompt.blocks] == ["BOUNDARIES", "RULES", "USER_PROFILE"]
        assert "1234" not in prompt.text
        assert "1234" in keel.prompt(ADA).text
        assert asked == [ADA.path]


@pytest.mark.parametrize("how", ["node", "prefix", "subject", "elsewhere"])
def test_an_erasure_of_what_it_shows_ends_it(keel, how):
    with keel.delegate(ADA) as run:
        run.prompt()
        if how == "node":
            keel.erase(ADA, "tea")
        elif how == "prefix":
            keel.erase_all(ADA, label_prefix="SOUL:")
        elif how == "subject":
            keel.correct(ADA, "tea", text="prefers coffee")
            keel.erase_subject(ADA.parent, about="tea")
        else:
            if keel.url == "ram:":
                pytest.skip("a store in memory has no second handle")
            with blocking.open(keel.url) as other:
                other.erase(ADA, "tea")
        for _ in range(2):
            with pytest.raises(RunEndedError, match="erased"):
                run.prompt()


def test_an_erased_stored_block_ends_it(keel):
    keel.blocks.append(ADA.parent, "RULES", "Be brief.", author="operator")
    with keel.delegate(ADA) as run:
        assert "Be brief." in run.prompt().text
        keel.erase_all(ADA.parent)
        with pytest.raises(RunEndedError, match="erased"):
            run.prompt()


def test_an_erasure_of_anything_else_does_not(keel):
    keel.remember(ADA, "x", block="SECRETS", id="secret")
    keel.remember(BOB, "prefers juice", block="USER_PROFILE", id="juice")
    with keel.delegate(ADA) as run:
        before = run.prompt()
        keel.erase(ADA, "secret")
        keel.erase(BOB, "juice")
        keel.retract(ADA, "tea")
        assert run.prompt() is before
        keel.erase(ADA, "tea")
        with pytest.raises(RunEndedError):
            run.prompt()


def test_a_compaction_does_not(tmp_path):
    with blocking.open(f"sqlite:///{tmp_path / 'memory.db'}", blocks=specs()) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE", id="tea")
        with keel.delegate(ADA) as run:
            before = run.prompt()
            for number in range(5):
                keel.remember(ADA, f"fact {number}", block="USER_PROFILE")
            engine = keel.store.core.engine
            assert engine.compact(engine.floor_keeping(1), 100) > 0
            assert run.prompt() is before


def test_an_unreachable_store_is_an_error(keel, monkeypatch):
    with keel.delegate(ADA) as run:
        run.prompt()

        def fails(*_):
            raise StoreUnavailableError("the disk is gone")

        monkeypatch.setattr(type(keel.store.core.engine), "probe", fails)
        with pytest.raises(StoreUnavailableError):
            run.prompt()


def test_it_is_over_when_it_is_left(keel):
    run = keel.delegate(ADA)
    with pytest.raises(RunEndedError, match="not been entered"):
        run.prompt()
    with run:
        run.prompt()
    with pytest.raises(RunEndedError, match="over"):
        run.prompt()
    with pytest.raises(RunEndedError, match="over"):
        run.tools(ADA, source="child")


def test_a_run_that_cannot_begin_shows_nothing_later():
    def fails(_):
        raise OSError("gone")

    blocks = [pk.PromptBlockSpec(name="TODAY", source=pk.ComputedSource(fails))]
    with blocking.open("ram:", blocks=blocks) as keel:
        run = keel.delegate(ADA)
        with pytest.raises(BlockResolutionError), run:
            pass
        with pytest.raises(RunEndedError):
            run.prompt()


def test_each_scope_is_frozen_when_it_is_first_asked_for(keel):
    with keel.delegate(ADA) as run:
        keel.remember(BOB, "prefers juice", block="USER_PROFILE")
        bob = run.prompt(BOB)
        assert "prefers juice" in bob.text
        keel.remember(BOB, "likes chess", block="USER_PROFILE")
        assert run.prompt(BOB) is bob


def test_two_runs_do_not_know_each_other(keel):
    with keel.delegate(ADA) as first:
        keel.remember(ADA, "likes chess", block="USER_PROFILE")
        with keel.delegate(ADA) as second:
            assert "likes chess" not in first.prompt().text
            assert "likes chess" in second.prompt().text
        first.prompt()


def test_two_that_ask_at_once_get_the_same_object(keel):
    found = []
    barrier = threading.Barrier(8)
    with keel.delegate(ADA) as run:

        def ask():
            barrier.wait()
            found.append(run.prompt(BOB))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_without_a_scope_it_holds_what_the_whole_deployment_shares(keel):
    with pytest.raises(BlockResolutionError, match="RULES"), keel.delegate():
        pass
    taken = [attrs.evolve(spec, on_failure="omit") if spec.name == "RULES" else spec for spec in specs()]
    with blocking.open("ram:", blocks=taken) as other, other.delegate() as run:
        other.remember(ADA, "prefers tea", block="USER_PROFILE", id="tea")
        prompt = run.prompt()
        assert "Never guess." in prompt.text
        assert set(prompt.left_out) == {"USER_PROFILE", "RULES"}
        other.erase(ADA, "tea")
        assert run.prompt() is prompt


def test_a_child_has_no_tools_but_those_that_are_granted(keel):
    with keel.delegate(ADA) as run:
        assert run.tools(ADA, source="child").schemas == ()
        with pytest.raises(ToolPermissionError):
            run.tools(ADA, source="child").memory_fact_add("USER_PROFILE", "x")
        granted = run.tools(ADA, source="child", grant={"memory_fact_add"})
        granted.memory_fact_add("USER_PROFILE", "likes chess")
    assert "likes chess" in keel.prompt(ADA).text


def test_no_scope_is_a_typed_error(keel):
    with pytest.raises(InvalidInputError):
        keel.delegate("org:acme")
    with keel.delegate(ADA) as run, pytest.raises(InvalidInputError):
        run.prompt("org:acme")


def test_the_asynchronous_twin_does_the_same():
    async def main():
        async with pk.open("ram:", blocks=specs()) as keel:
            await keel.remember(ADA, "prefers tea", block="USER_PROFILE", id="tea")
            async with keel.delegate(ADA) as run:
                found = await asyncio.gather(*[run.prompt(BOB) for _ in range(20)])
                assert len(set(map(id, found))) == 1
                await keel.erase(ADA, "tea")
                with pytest.raises(RunEndedError):
                    await run.prompt()

    asyncio.run(main())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["remember", "correct", "retract", "erase", "ask"]),
        st.integers(0, 3),
        st.sampled_from([ADA, BOB]),
    ),
    max_size=12,
)


@given(STEPS)
def test_a_run_answers_its_first_bytes_or_is_ended_by_an_erasure(steps):
    with blocking.open("ram:", blocks=specs()) as keel:
        for number in range(4):
            keel.remember(ADA, f"fact {number}", block="USER_PROFILE", id=f"a{number}")
            keel.remember(BOB, f"fact {number}", block="USER_PROFILE", id=f"b{number}")
        erased = False
        with keel.delegate(ADA) as run:
            first = run.prompt().text
            for serial, (what, number, scope) in enumerate(steps):
                node_id = f"{'a' if scope == ADA else 'b'}{number}"
                try:
                    if what == "remember":
                        keel.remember(scope, f"more {serial}", block="USER_PROFILE")
                    elif what == "correct":
                        keel.correct(scope, node_id, text=f"corrected {serial}")
                    elif what == "retract":
                        keel.retract(scope, node_id)
                    elif what == "erase":
                        keel.erase(scope, node_id)
                        erased = erased or scope == ADA
                except pk.StoreError:
                    continue
                if erased:
                    with pytest.raises(RunEndedError):
                        run.prompt()
                else:
                    assert run.prompt().text == first


def test_tools_touch_only_what_is_inherited_and_end_with_the_run():
    blocks = [
        pk.PromptBlockSpec(name="A", source=pk.MemoryLane("SOUL:"), permissions={"read", "add"}),
        pk.PromptBlockSpec(name="PRIV", source=pk.MemoryLane("P:"), permissions={"read", "add"}, inherit=False),
    ]
    with blocking.open("ram:", blocks=blocks) as keel:
        with keel.delegate(ADA) as run:
            tools = run.tools(ADA, source="child", grant={"memory_fact_add"})
            assert tools.schemas[0].parameters["properties"]["block"]["enum"] == ["A"]
            with pytest.raises(InvalidInputError):
                tools.memory_fact_add("PRIV", "x")
            tools.memory_fact_add("A", "x")
        with pytest.raises(RunEndedError):
            tools.memory_fact_add("A", "y")
        assert [fact.text for fact in keel.facts(ADA)] == ["x"]
