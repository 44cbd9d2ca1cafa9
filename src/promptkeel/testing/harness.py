"""What the suites and the machine share: how an author gives them stores, and how they call them."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import attrs
import pytest
from hypothesis import HealthCheck, settings

from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.testing.calling import Called, Caller
from promptkeel.testing.clock import SteppingClock

Test = TypeVar("Test", bound=Callable[..., None])


@attrs.frozen
class Relabel:
    """An edit behind the store's back: another label for a node, and nothing else."""

    node: MemoryNode
    label: str


@attrs.frozen
class Move:
    """An edit behind the store's back: another scope for a node, under the same root, and nothing else."""

    node: MemoryNode
    scope: TenantScope


@attrs.frozen
class Delete:
    """An edit behind the store's back: the node is gone, without an erasure."""

    node: MemoryNode


Edit = Relabel | Move | Delete


class StoreMaker:
    """What an author gives: a new store, and as much of the rest as the store has.

    Attributes:
        folder: an empty folder for the store that is about to be made.
        clock: a clock for the store; one that takes none may read its own.
        event_loop: the event loop that asynchronous stores are called on: ``asyncio`` or ``trio``.
    """

    folder: Path
    clock: SteppingClock
    event_loop: ClassVar[str] = "asyncio"

    def new_store(self) -> Any:
        """A new, empty store, or an awaitable of one; asked for many times, each with another empty ``folder``."""
        raise NotImplementedError(f"{type(self).__name__} needs a method new_store(self) that returns an empty store")

    def open_again(self, store: Any) -> Any:
        """A second handle on what ``store`` holds, or an awaitable of one."""
        raise NotImplementedError

    def edit_behind(self, store: Any, edit: Edit) -> None:
        """Make an edit without the library, as a SQL client would, and commit it."""
        raise NotImplementedError

    def has(self, hook: str) -> bool:
        """Whether the author has given a hook."""
        return getattr(type(self), hook) is not getattr(StoreMaker, hook)


class Suite(StoreMaker):
    """The base of the suites: a subclass is collected by pytest, the suites themselves are not.

    To prepare ``new_store`` with fixtures of your own, write an autouse fixture in your class that keeps what it gets.
    """

    __test__ = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__test__" not in vars(cls):
            cls.__test__ = True

    @pytest.fixture(autouse=True)
    def _promptkeel_resources(self, tmp_path: Path) -> Iterator[None]:
        self._parent = self.folder = tmp_path
        self.clock = SteppingClock()
        with ExitStack() as self._resources:
            self._caller = self._resources.enter_context(Caller(self.event_loop))
            yield

    @pytest.fixture
    def store(self) -> Called:
        """A new store, called the blocking way whatever its form."""
        return self.fresh_store()

    def fresh_store(self) -> Called:
        """Another new store; it is closed when the test ends."""
        self.folder = Path(tempfile.mkdtemp(dir=self._parent))
        return self._called(self.new_store)

    def second_handle(self, store: Called) -> Called:
        """Another handle on the data of a store; skips the test where the author has none."""
        if not self.has("open_again"):
            pytest.skip(f"{type(self).__name__} gives no open_again(store): it cannot be opened twice")
        return self._called(self.open_again, store.wrapped)

    def _called(self, make: Callable[..., Any], *args: Any) -> Called:
        made = self._caller.call(make, *args)
        called = Called(self._caller, made)
        if hasattr(made, "close"):
            self._resources.callback(called.close)
        return called

    @contextmanager
    def scratch(self) -> Iterator[None]:
        """What is opened inside is closed at the end: for examples of a property."""
        kept = self._resources
        with ExitStack() as inner:
            self._resources = inner
            try:
                yield
            finally:
                self._resources = kept


def needs(*capabilities: str) -> Callable[[Test], Test]:
    """Skip a test by name where its store does not declare these capabilities."""

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def checked(self: Any, store: Called, **fixtures: Any) -> None:
            for capability in capabilities:
                if capability not in getattr(store.wrapped, "capabilities", ()):
                    pytest.skip(f"{type(store.wrapped).__name__} does not declare the capability {capability!r}")
            test(self, store=store, **fixtures)

        return cast("Test", checked)

    return decorate


def needs_methods(*names: str) -> Callable[[Test], Test]:
    """Skip a test by name where its store lacks methods that go beyond the protocol."""

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def checked(self: Any, store: Called, **fixtures: Any) -> None:
            for name in names:
                if not hasattr(store.wrapped, name):
                    pytest.skip(f"{type(store.wrapped).__name__} has no method {name!r}; it is not in the protocol")
            test(self, store=store, **fixtures)

        return cast("Test", checked)

    return decorate


def patient() -> settings:
    """The settings of the current profile, without deadlines: a store may wait for its disk."""
    slow = (
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
        HealthCheck.large_base_example,
    )
    return settings(deadline=None, suppress_health_check=slow)
