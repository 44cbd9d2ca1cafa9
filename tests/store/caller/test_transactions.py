"""A fact commits or rolls back with the business row, on every kind of connection, awaited and blocking."""

from __future__ import annotations

import pytest

from promptkeel import InvalidTextError, NodeNotFoundError
from store.caller.worlds import SCOPE, awaited


def test_both_are_there_after_a_commit_and_neither_after_a_rollback(run):
    async def body(world):
        await awaited(world.keel.remember(SCOPE, "was here before", block="PROFILE"))
        for number, ends in ((1, "commit"), (2, "roll_back"), (3, "commit")):
            await world.begin()
            await world.insert(number)
            made = await world.on().remember(SCOPE, f"ordered {number}", block="PROFILE", source="shop")
            assert made.source == "shop"
            assert f"ordered {number}" not in await world.values()
            await getattr(world, ends)()
            expected = [each for each in (1, 3) if each <= number]
            assert await world.orders() == expected
            assert await world.values() == [*(f"ordered {each}" for each in expected), "was here before"]

    run(body)


def test_the_fact_may_come_first(run):
    async def body(world):
        await world.begin()
        await world.on().remember(SCOPE, "ordered", block="PROFILE")
        await world.insert(1)
        await world.roll_back()
        assert (await world.orders(), await world.values()) == ([], [])
        await world.begin()
        await world.on().remember(SCOPE, "ordered", block="PROFILE")
        await world.insert(1)
        await world.commit()
        assert (await world.orders(), await world.values()) == ([1], ["ordered"])

    run(body)


def test_the_bound_keel_sees_its_own_writes_whole_and_nobody_else_does(run):
    async def body(world):
        old = await awaited(world.keel.remember(SCOPE, "likes coffee", block="PROFILE", source="a"))
        await world.begin()
        await world.insert(1)
        bound = world.on()
        corrected = await bound.correct(SCOPE, old.id, text="likes tea", properties={"role": "cook"}, source="b")
        other = await bound.remember(SCOPE, "lives in Turin", block="PROFILE")
        gone = await bound.remember(SCOPE, "is gone soon", block="PROFILE")
        await bound.retract(SCOPE, gone.id)
        edge = await bound.link(SCOPE, other.id, "derived_from", old.id)
        assert (await bound.get(SCOPE, old.id)).label == corrected.label == "SOUL:likes tea"
        assert [each.label for each in (await bound.history(SCOPE, old.id)).versions] == [
            "SOUL:likes coffee",
            "SOUL:likes tea",
        ]
        inside = [fact.value for fact in await bound.facts(SCOPE, "PROFILE")]
        assert sorted(inside) == ["likes tea", "lives in Turin", "role: cook"]
        prompt = (await bound.prompt(SCOPE)).text
        assert "likes tea" in prompt
        assert "likes coffee" not in prompt
        assert await world.values() == ["likes coffee"]
        with pytest.raises(NodeNotFoundError):
            await awaited(world.keel.get(SCOPE, other.id))
        await world.commit()
        assert await world.values() == sorted(inside)
        assert (await awaited(world.keel.why(SCOPE, other.id))).lineage[0].edge == edge
        assert (await awaited(world.keel.prompt(SCOPE))).text == prompt

    run(body)


def test_what_is_refused_leaves_nothing_and_the_transaction_goes_on(run):
    async def body(world):
        await world.begin()
        await world.insert(1)
        bound = world.on()
        first = await bound.remember(SCOPE, "stays", block="PROFILE")
        with pytest.raises(InvalidTextError):
            await bound.remember(SCOPE, "\ud800", block="PROFILE")
        with pytest.raises(NodeNotFoundError):
            await bound.correct(SCOPE, "nobody", text="x")
        with pytest.raises(NodeNotFoundError):
            await bound.link(SCOPE, first.id, "about", "nobody")
        await world.insert(2)
        await bound.remember(SCOPE, "stays too", block="PROFILE")
        await world.commit()
        assert (await world.orders(), await world.values()) == ([1, 2], ["stays", "stays too"])

    run(body)


def test_an_erasure_is_unreadable_from_the_commit_on_and_undone_by_a_rollback(run):
    async def body(world):
        told = await awaited(world.keel.remember(SCOPE, "a secret of hers", block="PROFILE"))
        await world.begin()
        await world.insert(1)
        assert (await world.on().erase(SCOPE, told.id)).state == "unreadable"
        await world.roll_back()
        assert await world.values() == ["a secret of hers"]
        await world.begin()
        await world.insert(1)
        await world.on().erase(SCOPE, told.id)
        assert await world.values() == ["a secret of hers"]
        await world.commit()
        assert await world.values() == []
        await awaited(world.keel.settle_receipts())
        assert [each.node_id for each in await awaited(world.keel.receipts(SCOPE))] == [told.id]

    run(body)


def test_one_bound_keel_serves_one_transaction_after_the_other(run):
    async def body(world):
        bound = world.on()
        for number in range(3):
            await world.begin()
            await world.insert(number)
            await bound.remember(SCOPE, f"fact {number}", block="PROFILE")
            await world.commit()
        assert await world.values() == ["fact 0", "fact 1", "fact 2"]

    run(body)
