"""A store in a file, and a stock SQLite client on the same file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from promptkeel.instants import system_clock
from promptkeel.store.sqlite import SqliteEngine
from store.stock_client import StockClient


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def open_engine(path: Path) -> Iterator[Callable[..., SqliteEngine]]:
    opened: list[SqliteEngine] = []

    def open_it(**options: Any) -> SqliteEngine:
        opened.append(SqliteEngine(f"sqlite:///{path}", clock=options.pop("clock", system_clock), **options))
        return opened[-1]

    yield open_it
    for engine in opened:
        engine.close()


@pytest.fixture
def engine(open_engine: Callable[..., SqliteEngine]) -> SqliteEngine:
    return open_engine()


@pytest.fixture(scope="session")
def stock_client() -> Iterator[StockClient]:
    client = StockClient()
    yield client
    client.end()


@pytest.fixture
def raw(path: Path, engine: SqliteEngine, stock_client: StockClient) -> Iterator[StockClient]:
    """A person's shell on the engine's file."""
    yield stock_client.connect(path)
    stock_client.close()
