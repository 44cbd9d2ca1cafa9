"""Any program of business rows and facts, committed and rolled back as it goes, against a plain model of both."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptkeel import NodeNotFoundError
from store.caller.worlds import KINDS, SCOPE, Kind, World, awaited, opened_keel

STEP = st.one_of(
    st.tuples(st.just("insert"), st.integers(0, 9)),
    st.tuples(st.just("remember"), st.sampled_from("abcd")),
    st.tuples(st.just("own"), st.sampled_from("wxyz")),
    st.tuples(st.just("retract"), st.integers(0, 3)),
    st.tuples(st.just("erase"), st.integers(0, 3)),
    st.tuples(st.just("refused"), st.none()),
    st.tuples(st.just("look"), st.none()),
    st.tuples(st.sampled_from(["commit", "roll back"]), st.none()),
)

CHOSEN = [
    kind
    for kind in KINDS
    if kind.name
    in (
        "apsw async",
        "sqlite3 deferred blocking",
        "sqlite3 transactional blocking",
        "aiosqlite",
        "aiosqlite session",
        "psycopg asynchronous",
    )
]


class Model:
    """Facts by value and rows, committed and inside the transaction."""

    def __init__(self) -> None:
        self.facts: dict[str, str] = {}
        self.orders: list[int] = []
        self.inside: tuple[dict[str, str], list[int]] | None = None

    def begin(self) -> tuple[dict[str, str], list[int]]:
        if self.inside is None:
            self.inside = dict(self.facts), list(self.orders)
        return self.inside

    def end(self, *, keep: bool) -> None:
        if keep and self.inside is not None:
            self.facts, self.orders = self.inside
        self.inside = None


async def perform(world: World, program: list[tuple[str, Any]]) -> None:
    model, bound = Model(), world.on()
    for step, value in program:
        if step == "own":
            # The keel's own write would wait for the caller's transaction on SQLite.
            if model.inside is None:
                node = await awaited(world.keel.remember(SCOPE, value, block="PROFILE"))
                model.facts[value] = node.id
            continue
        if step in ("commit", "roll back"):
            if model.inside is not None:
                await (world.commit() if step == "commit" else world.roll_back())
                model.end(keep=step == "commit")
            assert await world.values() == sorted(model.facts)
            assert await world.orders() == sorted(model.orders)
            continue
        if model.inside is None:
            await world.begin()
        facts, orders = model.begin()
        known = sorted(facts)
        if step == "insert":
            await world.insert(value)
            orders.append(value)
        elif step == "remember":
            node = await bound.remember(SCOPE, value, block="PROFILE")
            assert facts.setdefault(value, node.id) == node.id
        elif step in ("retract", "erase") and value < len(known):
            await getattr(bound, step)(SCOPE, facts.pop(known[value]))
        elif step == "refused":
            with pytest.raises(NodeNotFoundError):
                await bound.retract(SCOPE, "nobody")
        assert sorted(fact.value for fact in await bound.facts(SCOPE)) == sorted(facts)
        assert await world.values() == sorted(model.facts)
    if model.inside is not None:
        await world.roll_back()
    assert await world.values() == sorted(model.facts)
    assert await world.orders() == sorted(model.orders)


@pytest.mark.parametrize("which", CHOSEN, ids=[kind.name.replace(" ", "-") for kind in CHOSEN])
def test_facts_and_rows_agree_with_the_model(which: Kind, request: pytest.FixtureRequest):
    databases = request.getfixturevalue("databases") if which.store == "postgres" else None

    @settings(max_examples=25, deadline=None)
    @given(st.lists(STEP, max_size=20))
    def check(program: list[tuple[str, Any]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            address = which.address(Path(folder), databases)

            async def whole() -> None:
                async with (
                    opened_keel(address, is_blocking=which.is_blocking) as keel,
                    which.opened(address, keel) as world,
                ):
                    await perform(world, program)

            anyio.run(whole)
            if databases is not None:
                with psycopg.connect(address) as connection:
                    connection.execute("DROP TABLE orders")
                databases.give_back(address)

    check()
