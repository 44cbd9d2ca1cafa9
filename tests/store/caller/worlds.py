"""A program with a business table of its own, on every kind of connection that a keel takes part in.

Each world has an open keel and an open connection to the same database; what has to be awaited there is awaited, what
blocks is called. ``insert`` writes a row of the business table, ``rows`` counts what is committed.
"""

from __future__ import annotations

import contextlib
import inspect
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiosqlite
import apsw
import attrs
import psycopg
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import promptkeel
from promptkeel import blocking
from store.examples import SteppingClock

BLOCKS = [promptkeel.PromptBlockSpec(name="PROFILE", source=promptkeel.MemoryLane("SOUL:", profile_fields={"role"}))]

SQLITE3_MODES: dict[str, dict[str, Any]] = {
    "deferred": {},
    "immediate": {"isolation_level": "IMMEDIATE"},
    "manual": {"isolation_level": None},
}
if sys.version_info >= (3, 12):
    SQLITE3_MODES |= {"autocommit": {"autocommit": True}, "transactional": {"autocommit": False}}


async def awaited(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


@attrs.define
class World:
    """One program."""

    keel: Any
    connection: Any
    execute: Callable[[str], Any]
    rows_of: Callable[[], Any]
    begins: str | None = None
    commits: Callable[[], Any] | None = None
    rolls_back: Callable[[], Any] | None = None

    async def begin(self) -> None:
        if self.begins is not None:
            await awaited(self.execute(self.begins))

    async def insert(self, number: int) -> None:
        await awaited(self.execute(f"INSERT INTO orders VALUES ({number})"))

    async def commit(self) -> None:
        await awaited(self.execute("COMMIT") if self.commits is None else self.commits())

    async def roll_back(self) -> None:
        await awaited(self.execute("ROLLBACK") if self.rolls_back is None else self.rolls_back())

    async def orders(self) -> list[int]:
        return sorted(row[0] for row in await awaited(self.rows_of()))

    def on(self) -> Any:
        """The keel on the connection, whose calls are awaited in both forms."""
        return Awaited(self.keel.on(self.connection))

    async def values(self) -> list[str]:
        """What the keel's own reads show."""
        facts = await awaited(self.keel.facts(SCOPE))
        prompt = (await awaited(self.keel.prompt(SCOPE))).text
        values = [fact.value for fact in facts]
        assert all(value.rpartition(": ")[2] in prompt for value in values)
        assert (await awaited(self.keel.prompt(SCOPE))).text == prompt
        return sorted(values)


SCOPE = promptkeel.TenantScope.parse("org:acme/user:ada")


class Awaited:
    """Calls that block, as calls that are awaited."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._wrapped, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            return await awaited(method(*arguments, **named))

        return call


@contextlib.asynccontextmanager
async def opened_keel(url: str, *, is_blocking: bool, **options: Any) -> AsyncIterator[Any]:
    clock = SteppingClock()
    if is_blocking:
        with blocking.open(url, blocks=BLOCKS, clock=clock, **options) as keel:
            yield keel
    else:
        async with promptkeel.open(url, blocks=BLOCKS, clock=clock, **options) as keel:
            yield keel


@contextlib.asynccontextmanager
async def apsw_world(url: str, keel: Any) -> AsyncIterator[World]:
    with contextlib.closing(apsw.Connection(_file(url))) as connection:
        connection.execute("CREATE TABLE orders(number)")

        def rows() -> list[Any]:
            with contextlib.closing(apsw.Connection(_file(url))) as reader:
                return reader.execute("SELECT number FROM orders").fetchall()

        yield World(keel, connection, connection.execute, rows, "BEGIN")


def dictionaries(_: object, row: tuple[Any, ...]) -> dict[int, Any]:
    """A row factory whose rows are no sequences."""
    return dict(enumerate(row))


def sqlite3_world(mode: str) -> Callable[[str, Any], Any]:
    @contextlib.asynccontextmanager
    async def world(url: str, keel: Any) -> AsyncIterator[World]:
        path = _file(url)
        with contextlib.closing(sqlite3.connect(path)) as setting:
            setting.execute("CREATE TABLE orders(number)")
        with contextlib.closing(sqlite3.connect(path, **SQLITE3_MODES[mode])) as connection:
            # What a caller sets for its own reads is neither used nor lost.
            connection.row_factory, connection.text_factory = dictionaries, bytes

            def rows() -> list[Any]:
                with contextlib.closing(sqlite3.connect(path)) as reader:
                    return reader.execute("SELECT number FROM orders").fetchall()

            own = mode in ("manual", "autocommit")
            yield World(
                keel,
                connection,
                connection.execute,
                rows,
                "BEGIN" if own else None,
                None if own else connection.commit,
                None if own else connection.rollback,
            )
            assert (connection.row_factory, connection.text_factory) == (dictionaries, bytes)

    return world


@contextlib.asynccontextmanager
async def psycopg_world(url: str, keel: Any) -> AsyncIterator[World]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:
        connection.execute("CREATE TABLE orders(number int)")
        connection.commit()
        yield World(
            keel,
            connection,
            connection.execute,
            lambda: _postgres_rows(url),
            None,
            connection.commit,
            connection.rollback,
        )
        assert connection.row_factory is psycopg.rows.dict_row


@contextlib.asynccontextmanager
async def async_psycopg_world(url: str, keel: Any) -> AsyncIterator[World]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("CREATE TABLE orders(number int)")
        await connection.commit()
        yield World(
            keel,
            connection,
            connection.execute,
            lambda: _postgres_rows(url),
            None,
            connection.commit,
            connection.rollback,
        )
        await connection.rollback()


@contextlib.asynccontextmanager
async def aiosqlite_world(url: str, keel: Any) -> AsyncIterator[World]:
    async with aiosqlite.connect(_file(url)) as connection:
        await connection.execute("CREATE TABLE orders(number)")
        connection.row_factory, connection.text_factory = dictionaries, bytes
        yield World(
            keel,
            connection,
            connection.execute,
            lambda: _sqlite3_rows(_file(url)),
            None,
            connection.commit,
            connection.rollback,
        )
        assert (connection.row_factory, connection.text_factory) == (dictionaries, bytes)
        await connection.rollback()


def alchemy_world(kind: str) -> Callable[[str, Any], Any]:
    @contextlib.asynccontextmanager
    async def world(url: str, keel: Any) -> AsyncIterator[World]:
        engine = create_engine(_alchemy(url))
        made = engine.connect() if kind == "connection" else Session(engine)
        try:
            made.execute(text("CREATE TABLE orders(number int)"))
            made.commit()

            def rows() -> list[Any]:
                with engine.connect() as reader:
                    return list(reader.execute(text("SELECT number FROM orders")))

            yield World(
                keel, made, lambda sql: made.execute(text(sql)) and None, rows, None, made.commit, made.rollback
            )
        finally:
            made.close()
            engine.dispose()

    return world


def async_alchemy_world(kind: str) -> Callable[[str, Any], Any]:
    @contextlib.asynccontextmanager
    async def world(url: str, keel: Any) -> AsyncIterator[World]:
        engine = create_async_engine(_alchemy(url).replace("sqlite:", "sqlite+aiosqlite:", 1))
        made = await engine.connect() if kind == "connection" else AsyncSession(engine)
        try:
            await made.execute(text("CREATE TABLE orders(number int)"))
            await made.commit()
            rows = _postgres_rows if url.startswith("postgres") else _sqlite3_rows

            yield World(
                keel,
                made,
                lambda sql: made.execute(text(sql)),
                lambda: rows(url if rows is _postgres_rows else _file(url)),
                None,
                made.commit,
                made.rollback,
            )
        finally:
            await made.close()
            await engine.dispose()

    return world


def _postgres_rows(url: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as reader:
        return reader.execute("SELECT number FROM orders").fetchall()


def _sqlite3_rows(path: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as reader:
        return reader.execute("SELECT number FROM orders").fetchall()


def _file(url: str) -> str:
    return url.removeprefix("sqlite:///").partition("?")[0]


def _alchemy(url: str) -> str:
    if url.startswith("sqlite"):
        return url.partition("?")[0]
    return url.replace("postgresql:", "postgresql+psycopg:", 1)


@attrs.frozen
class Kind:
    """One kind of world: its name, its store, whether its keel blocks, and what opens it."""

    name: str
    store: str
    is_blocking: bool
    opened: Callable[[str, Any], Any]

    def address(self, folder: Path, databases: Any) -> str:
        if self.store == "postgres":
            return str(databases.store())
        return f"sqlite:///{folder / 'memory.db'}" + ("?driver=sqlite3" if self.store == "sqlite3" else "")


def _both(name: str, store: str, opened: Callable[[str, Any], Any]) -> list[Kind]:
    return [Kind(f"{name} {form}", store, form == "blocking", opened) for form in ("blocking", "async")]


KINDS = [
    *_both("apsw", "apsw", apsw_world),
    *(kind for mode in SQLITE3_MODES for kind in _both(f"sqlite3 {mode}", "sqlite3", sqlite3_world(mode))),
    Kind("aiosqlite", "sqlite3", False, aiosqlite_world),
    Kind("aiosqlite connection", "sqlite3", False, async_alchemy_world("connection")),
    Kind("aiosqlite session", "sqlite3", False, async_alchemy_world("session")),
    *_both("psycopg", "postgres", psycopg_world),
    Kind("psycopg asynchronous", "postgres", False, async_psycopg_world),
    *(kind for name in ("connection", "session") for kind in _both(f"sqlite {name}", "sqlite3", alchemy_world(name))),
    *(kind for name in ("connection", "session") for kind in _both(f"alchemy {name}", "postgres", alchemy_world(name))),
    Kind("alchemy async connection", "postgres", False, async_alchemy_world("connection")),
    Kind("alchemy async session", "postgres", False, async_alchemy_world("session")),
]
