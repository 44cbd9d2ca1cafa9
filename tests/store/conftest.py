"""One store, on each backend and in each form: blocking, on asyncio, on trio."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from promptkeel.store.base import Engine
from promptkeel.store.facade import BlockingStore, Store
from promptkeel.store.opening import open_engine
from store.examples import SteppingClock


class FromThread:
    """An asynchronous store or snapshot, called from this thread through a portal."""

    def __init__(self, portal: BlockingPortal, wrapped: Any) -> None:
        self._portal = portal
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._wrapped, name)
        if not callable(method):
            return method
        return lambda *args, **kwargs: self._portal.call(functools.partial(method, *args, **kwargs))

    @contextmanager
    def snapshot(self) -> Iterator[FromThread]:
        with self._portal.wrap_async_context_manager(self._wrapped.snapshot()) as snapshot:
            yield FromThread(self._portal, snapshot)


BACKENDS = ("ram", "sqlite", "sqlite3", "postgres")
"""``sqlite3`` is the store in a file with the library that Python is linked with."""
FORMS = ("blocking", "asyncio", "trio")


@pytest.fixture
def address(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the backend's store lives; nothing is there yet that another test has seen."""
    if backend == "postgres":
        databases = request.getfixturevalue("databases")
        url = databases.store()
        yield url.replace("postgresql:", "postgres:", 1)
        databases.give_back(url)
    elif backend == "ram":
        yield "ram:"
    else:
        yield f"sqlite:///{tmp_path / 'memory.db'}" + ("?driver=sqlite3" if backend == "sqlite3" else "")


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_backend(address: str, clock: SteppingClock) -> Iterator[Callable[..., Engine]]:
    """Opens the backend's engine; the same file again where it has one."""
    opened: list[Engine] = []

    def open_it(**options: Any) -> Engine:
        opened.append(open_engine(address, clock=clock, **options))
        return opened[-1]

    yield open_it
    for engine in opened:
        engine.close()


@pytest.fixture
def engine(open_backend: Callable[..., Engine]) -> Engine:
    return open_backend()


@pytest.fixture(params=FORMS)
def store(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Any]:
    """A store whose methods are called the blocking way, whichever form does the work."""
    if request.param == "blocking":
        yield BlockingStore(engine)
        return
    with start_blocking_portal(request.param) as portal:
        yield FromThread(portal, Store(engine))
