"""Auditing a store: an open one, or a file that a store would refuse to open."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from promptkeel.errors import InvalidInputError
from promptkeel.steps import Call, Steps
from promptkeel.store.audit import Audit
from promptkeel.store.base import Engine
from promptkeel.store.facade import StoreCore


@runtime_checkable
class Auditable(Protocol):
    """An engine that can look at everything that it stores."""

    def audit(self) -> Audit:
        """Everything that is wrong with what is stored."""


def check_steps(store: StoreCore) -> Steps[Audit]:
    """Everything that is wrong with an open store.

    Raises:
        InvalidInputError: this kind of store cannot be audited.
    """
    found: Audit = yield Call(check_engine, store.engine)
    return found


def check_engine(engine: Engine) -> Audit:
    """As ``check_steps``, on an engine and blocking."""
    if not isinstance(engine, Auditable):
        raise InvalidInputError(f"{type(engine).__name__} cannot be audited", field="store")
    return engine.audit()


def check(url: str) -> Audit:
    """Everything that is wrong with the store at an address; nothing is made, repaired or migrated.

    Raises:
        NotAStoreError: there is none.
        StoreUnavailableError: it cannot be opened.
    """
    if url.startswith("sqlite:"):
        from promptkeel.store.sqlite import driver_in, path_of
        from promptkeel.store.sqlite_audit import audit_file
        from promptkeel.store.sqlite_file import DatabaseFile

        return audit_file(DatabaseFile(path_of(url).absolute(), busy_timeout=5.0, driver=driver_in(url)))
    from promptkeel.instants import system_clock
    from promptkeel.store.opening import open_engine

    engine = open_engine(url, clock=system_clock)
    try:
        return check_engine(engine)
    finally:
        engine.close()
