"""A PostgreSQL store of one's own, and clients that know nothing of promptkeel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from promptkeel.store.postgres import PostgresEngine
from servers import Databases
from store.examples import SteppingClock


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    """The address of a store that another test has not seen."""
    address = databases.store()
    yield address
    databases.give_back(address)


@pytest.fixture
def empty_url(databases: Databases) -> Iterator[str]:
    """The address of a database with nothing in it, to do anything with."""
    address = databases.empty()
    yield address
    databases.drop(address)


@pytest.fixture
def open_postgres(url: str, clock: SteppingClock) -> Iterator[Callable[..., PostgresEngine]]:
    opened: list[PostgresEngine] = []

    def open_it(**options: Any) -> PostgresEngine:
        opened.append(PostgresEngine(url, clock=clock, **options))
        return opened[-1]

    yield open_it
    for engine in opened:
        engine.close()


@pytest.fixture
def engine(open_postgres: Callable[..., PostgresEngine]) -> PostgresEngine:
    return open_postgres()


@pytest.fixture
def connect(url: str, engine: PostgresEngine) -> Iterator[Callable[[], psycopg.Connection[Any]]]:
    """Opens stock clients; what they leave open is rolled back."""
    opened: list[psycopg.Connection[Any]] = []

    def open_it() -> psycopg.Connection[Any]:
        opened.append(psycopg.connect(url, options="-c search_path=promptkeel"))
        return opened[-1]

    yield open_it
    for connection in opened:
        connection.close()


@pytest.fixture
def raw(connect: Callable[[], psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    """A stock client in autocommit."""
    connection = connect()
    connection.autocommit = True
    return connection
