"""From an address to a store: ``ram:``, ``sqlite:///file`` as SQLAlchemy spells it, ``postgresql://`` as libpq does."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping
from typing import Any

from promptkeel.errors import InvalidInputError, MissingExtraError, NotAStoreError
from promptkeel.instants import Clock, system_clock
from promptkeel.store.base import Engine
from promptkeel.store.facade import Store


def open_engine(url: str, *, clock: Clock = system_clock, **options: Any) -> Engine:
    """The engine at an address; made there if nothing is.

    Args:
        url: ``sqlite:///relative.db``, ``sqlite:////absolute.db``, ``ram:`` or ``postgresql://user@host/database``.
        clock: answers the present instant; stamps what is written.
        options: the backend's own, as ``busy_timeout`` in seconds for SQLite, or ``replica`` for PostgreSQL: the
            address of a streaming standby to read from.

    Raises:
        NotAStoreError: the address names no kind of store, or what is there is no promptkeel store.
        NewerSchemaError: it was written by a newer promptkeel.
        StoreUnavailableError: it cannot be opened.
        MissingExtraError: the driver for it is not installed.
    """
    if not isinstance(url, str):
        raise NotAStoreError(f"a store's address is text such as 'sqlite:///memory.db', not {type(url).__name__}")
    try:
        url.encode()
    except UnicodeEncodeError:
        raise NotAStoreError(f"{url!a} holds a lone surrogate; no store has such an address") from None
    if url == "ram:":
        from promptkeel.store.ram import RamEngine

        _check_options(RamEngine, options)
        return RamEngine(clock=clock, **options)
    if url.startswith("sqlite:"):
        from promptkeel.store.sqlite import SqliteEngine

        _check_options(SqliteEngine, options)
        return SqliteEngine(url, clock=clock, **options)
    if url.startswith(("postgresql:", "postgres:")):
        if importlib.util.find_spec("psycopg") is None:
            raise MissingExtraError("postgres")
        if options.get("replica") is not None:
            from promptkeel.store.replicated import ReplicatedEngine

            _check_options(ReplicatedEngine, options)
            return ReplicatedEngine(url, clock=clock, **options)
        from promptkeel.store.postgres import PostgresEngine

        options.pop("replica", None)
        _check_options(PostgresEngine, options)
        return PostgresEngine(url, clock=clock, **options)
    raise NotAStoreError(
        f"{url.partition('://')[0]!r} names no kind of store; "
        "use 'sqlite:///file', 'postgresql://host/database' or 'ram:'"
    )


def _check_options(engine: type, options: Mapping[str, Any]) -> None:
    """Refuse what this kind of store has no option for.

    Raises:
        InvalidInputError: names the option.
    """
    known = [name for name, each in inspect.signature(engine).parameters.items() if each.kind is each.KEYWORD_ONLY]
    known.remove("clock")
    for name in options:
        if name not in known:
            raise InvalidInputError(f"is no option of this kind of store; it has {', '.join(known)}", field=name)


def open_store(url: str, *, clock: Clock = system_clock, **options: Any) -> Store:
    """The store at an address; made there if nothing is. Arguments and errors as ``open_engine``."""
    return Store(open_engine(url, clock=clock, **options))
