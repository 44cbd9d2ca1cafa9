"""A store on each backend, and the same store again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from promptkeel.store.base import Engine
from promptkeel.store.opening import open_engine
from store.examples import SteppingClock

BACKENDS = ("ram", "sqlite", "postgres")


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def fresh(
    backend: str, tmp_path: Path, clock: SteppingClock, request: pytest.FixtureRequest
) -> Iterator[Callable[[], Engine]]:
    """Makes a store that nobody has seen, as often as it is asked."""
    opened: list[Engine] = []
    given: list[str] = []
    databases = request.getfixturevalue("databases") if backend == "postgres" else None

    def make(**options: Any) -> Engine:
        if databases is not None:
            given.append(databases.store())
            url = given[-1].replace("postgresql:", "postgres:", 1)
        else:
            url = "ram:" if backend == "ram" else f"sqlite:///{tmp_path / f'memory{len(opened)}.db'}"
        opened.append(open_engine(url, clock=clock, **options))
        return opened[-1]

    yield make
    for engine in opened:
        engine.close()
    for url in given:
        databases.give_back(url)


@pytest.fixture
def engine(fresh: Callable[[], Engine]) -> Engine:
    return fresh()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a SQLite store is."""
    return tmp_path / "memory.db"
