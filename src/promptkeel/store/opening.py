"""From an address to a store: ``ram:``, ``sqlite:///file`` as SQLAlchemy spells it, ``postgresql://`` as libpq does."""

from __future__ import annotations

import importlib.util
from typing import Any

from promptkeel.errors import MissingExtraError, NotAStoreError
from promptkeel.instants import Clock, system_clock
from promptkeel.store.base import Engine
from promptkeel.store.facade import Store


def open_engine(url: str, *, clock: Clock = system_clock, **options: Any) -> Engine:
    """The engine at an address; made there if nothing is.

    Args:
        url: ``sqlite:///relative.db``, ``sqlite:////absolute.db``, ``ram:`` or ``postgresql://user@host/database``.
        clock: answers the present instant; stamps what is written.
        options: the backend's own, as ``busy_timeout`` in seconds for SQLite.

    Raises:
        NotAStoreError: the address names no kind of store, or what is there is no promptkeel store.
        NewerSchemaError: it was written by a newer promptkeel.
        StoreUnavailableError: it cannot be opened.
        MissingExtraError: the driver for it is not installed.
    """
    if not isinstance(url, str):
        raise NotAStoreError(f"a store's address is text such as 'sqlite:///memory.db', not {type(url).__name__}")
    if url == "ram:":
        from promptkeel.store.ram import RamEngine

        return RamEngine(clock=clock, **options)
    if url.startswith("sqlite:"):
        from promptkeel.store.sqlite import SqliteEngine

        return SqliteEngine(url, clock=clock, **options)
    if url.startswith(("postgresql:", "postgres:")):
        if importlib.util.find_spec("psycopg") is None:
            raise MissingExtraError("postgres")
        from promptkeel.store.postgres import PostgresEngine

        return PostgresEngine(url, clock=clock, **options)
    raise NotAStoreError(
        f"{url.partition('://')[0]!r} names no kind of store; "
        "use 'sqlite:///file', 'postgresql://host/database' or 'ram:'"
    )


def open_store(url: str, *, clock: Clock = system_clock, **options: Any) -> Store:
    """The store at an address; made there if nothing is. Arguments and errors as ``open_engine``."""
    return Store(open_engine(url, clock=clock, **options))
