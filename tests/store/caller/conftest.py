"""One world of each kind, on a store of its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from store.caller.worlds import KINDS, Kind, World, opened_keel

Body = Callable[[World], Coroutine[Any, Any, None]]


@pytest.fixture(params=KINDS, ids=[kind.name.replace(" ", "-") for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def address(kind: Kind, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the world's store is."""
    if kind.store != "postgres":
        yield kind.address(tmp_path, None)
        return
    databases = request.getfixturevalue("databases")
    url = kind.address(tmp_path, databases)
    yield url
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS orders")
    databases.give_back(url)


@pytest.fixture
def run(kind: Kind, address: str) -> Callable[[Body], None]:
    """Runs a coroutine function in a world."""

    def run_it(body: Body) -> None:
        async def whole() -> None:
            async with (
                opened_keel(address, is_blocking=kind.is_blocking) as keel,
                kind.opened(address, keel) as world,
            ):
                await body(world)

        anyio.run(whole)

    return run_it
