"""Calling a store from a plain function, whichever form it has: asynchronous or blocking.

What a call answers is awaited where it can be, all calls of one caller on one event loop in a thread of its own, so
that a store that belongs to its loop stays there. Any thread may call.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self, final

from anyio.from_thread import BlockingPortal, start_blocking_portal


@final
class Caller:
    """Calls functions and waits for what they answer; to be closed.

    Args:
        backend: the event loop for what is asynchronous: ``asyncio`` or ``trio``.
    """

    def __init__(self, backend: str = "asyncio") -> None:
        self._backend = backend
        self._resources = ExitStack()
        self._lock = threading.Lock()
        self._portal: BlockingPortal | None = None

    @property
    def portal(self) -> BlockingPortal:
        """The way to the event loop; it is started when it is first needed."""
        with self._lock:
            if self._portal is None:
                self._portal = self._resources.enter_context(start_blocking_portal(self._backend))
            return self._portal

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What a function answers, awaited where it is awaitable."""
        answer = function(*args, **kwargs)
        return self.portal.call(_await, answer) if inspect.isawaitable(answer) else answer

    @contextmanager
    def entered(self, context: Any) -> Iterator[Any]:
        """A context manager of either kind, entered."""
        if hasattr(context, "__aenter__"):
            with self.portal.wrap_async_context_manager(context) as value:
                yield value
        else:
            with context as value:
                yield value

    def close(self) -> None:
        """End the event loop."""
        with self._lock:
            self._resources.close()
            self._portal = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _await(answer: Any) -> Any:
    return await answer


@final
class Called:
    """A store, scanner or snapshot whose methods are called the blocking way."""

    def __init__(self, caller: Caller, wrapped: Any) -> None:
        self._caller = caller
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.wrapped, name)
        if not callable(method):
            return method
        return lambda *args, **kwargs: self._caller.call(method, *args, **kwargs)

    @contextmanager
    def snapshot(self) -> Iterator[Called]:
        """A consistent view, entered."""
        with self._caller.entered(self.wrapped.snapshot()) as snapshot:
            yield Called(self._caller, snapshot)
