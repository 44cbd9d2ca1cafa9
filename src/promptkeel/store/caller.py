"""Which connection a caller has given: its kind, the driver's own inside it, and the thread that it may be used on.

Nothing is imported for it: what has not been imported cannot have made the connection. Whether the connection leads to
this store, and whether a transaction is open on it, is the engine's to find out (``Engine.attach``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, Literal

from anyio import from_thread

from promptkeel.errors import TransactionError
from promptkeel.steps import Call, Finish, Obtain, Step, Steps

Kind = Literal["apsw", "sqlite3", "aiosqlite", "psycopg", "psycopg asynchronous"]
"""Whose connection it is."""

_DRIVERS: Final[tuple[tuple[str, str, Kind], ...]] = (
    ("apsw", "Connection", "apsw"),
    ("sqlite3", "Connection", "sqlite3"),
    ("aiosqlite", "Connection", "aiosqlite"),
    ("psycopg", "Connection", "psycopg"),
    ("psycopg", "AsyncConnection", "psycopg asynchronous"),
)
_SESSIONS: Final = (
    ("sqlalchemy.orm", "Session"),
    ("sqlalchemy.ext.asyncio", "AsyncSession"),
    ("sqlalchemy.ext.asyncio", "async_scoped_session"),
)
_TAKEN: Final = (
    "give a connection of psycopg, apsw, sqlite3 or aiosqlite, or a Connection, Session, AsyncConnection or "
    "AsyncSession of SQLAlchemy on one of these drivers (postgresql+psycopg, sqlite, sqlite+aiosqlite)"
)


def kind_of(connection: object) -> Kind | None:
    """Whose driver connection this is; None where it is none that a store can work on."""
    for module, name, kind in _DRIVERS:
        if _is(connection, module, name):
            return kind
    return None


def check_connection(connection: object) -> None:
    """Refuse what is no connection of a known kind.

    Raises:
        TransactionError: names what would be.
    """
    if kind_of(connection) is None and not is_asynchronous(connection) and not _is_blocking_sqlalchemy(connection):
        raise TransactionError(f"{_shown(connection)} is no connection that a store can work on: {_TAKEN}")


def is_asynchronous(connection: object) -> bool:
    """Whether the connection's statements have to be awaited."""
    return kind_of(connection) in ("aiosqlite", "psycopg asynchronous") or any(
        _is(connection, "sqlalchemy.ext.asyncio", name)
        for name in ("AsyncConnection", "AsyncSession", "async_scoped_session")
    )


def driver_connection(given: Any) -> Steps[Any]:
    """The driver's connection that a caller's object works on now, with SQLAlchemy's own transaction begun on it.

    Raises:
        TransactionError: it is closed, or its driver is none that a store can work on.
    """
    if kind_of(given) is not None:
        return given
    closed = _sqlalchemy_errors()
    connection = given
    try:
        if _is(connection, "sqlalchemy.orm", "scoped_session"):
            connection = connection()
        if any(_is(connection, *kind) for kind in _SESSIONS):
            connection = yield Obtain(connection.connection)
        if _is(connection, "sqlalchemy.ext.asyncio", "AsyncConnection"):
            if not connection.closed and not connection.in_transaction():
                # As the first statement through it would.
                yield Obtain(connection.begin)
            connection = connection.sync_connection
        elif not connection.closed and not connection.in_transaction():
            yield Obtain(connection.begin)
        if connection is None or connection.closed:
            raise TransactionError(f"the {type(given).__name__} is closed: give one that is open")
        found = connection.connection.driver_connection
    except closed as error:
        raise TransactionError(f"the {type(given).__name__} cannot be used ({_first_line(error)})") from error
    if kind_of(found) is None:
        raise TransactionError(f"the {type(given).__name__} works on {_shown(found)}: {_TAKEN}")
    return found


Calling = Callable[[Call], Step]
"""How a call that uses the connection is to be run."""


def used_by_calls(connection: Any) -> tuple[Any, Calling]:
    """The connection that an engine is attached to, and how its calls are run where that one may be used.

    Raises:
        TransactionError: it is closed.
    """
    kind = kind_of(connection)
    if kind in ("apsw", "sqlite3"):
        return connection, lambda call: Obtain(call.function, *call.arguments)
    if kind != "aiosqlite":
        return connection, lambda call: Finish(call.function, *call.arguments)
    # It offers statements alone. A call that is run whole on its thread lets no statement of another task between.
    try:
        inside = connection._conn  # noqa: SLF001 - as above; SQLAlchemy does likewise
    except ValueError as error:
        raise _is_not_open() from error
    return inside, lambda call: Finish(_on_its_thread, connection, call)


def _on_its_thread(connection: Any, call: Call) -> Any:
    has_begun = False

    def work() -> Any:
        nonlocal has_begun
        has_begun = True
        return call.function(*call.arguments)

    try:
        return from_thread.run(connection._execute, work)  # noqa: SLF001 - see used_by_calls
    except ValueError as error:
        if has_begun:
            raise
        raise _is_not_open() from error


def _is_not_open() -> TransactionError:
    return TransactionError("the connection is closed, or was not awaited: give one that is open")


def _is_blocking_sqlalchemy(connection: object) -> bool:
    return any(
        _is(connection, module, name)
        for module, name in (
            ("sqlalchemy.engine", "Connection"),
            ("sqlalchemy.orm", "Session"),
            ("sqlalchemy.orm", "scoped_session"),
        )
    )


def _sqlalchemy_errors() -> type[Exception]:
    error: type[Exception] = sys.modules["sqlalchemy.exc"].SQLAlchemyError
    return error


def _is(value: object, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def _shown(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
