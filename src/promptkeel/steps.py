"""The work that the core asks for, and the two drivers that do it.

Everything that may block or wait is written once, as a generator that yields steps: run a function that may block, wait
for something awaitable, wait for another call's flight, do several things side by side. ``drive`` does the steps with
``await`` on asyncio or trio; ``drive_blocking`` does them in the calling thread. What a step answers is sent back into
the generator; what it raises is thrown in, cancellation included, so that ``finally`` clauses hold on both sides. What
blocks for an unknown time runs in a ``bulkheads.Bulkhead`` and is waited for with ``Pause``.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Concatenate, Final, ForwardRef, ParamSpec, Protocol, TypeVar, cast, final

import anyio
import anyio.lowlevel
import anyio.to_thread

from promptkeel.errors import InvalidInputError

T = TypeVar("T")
P = ParamSpec("P")
Owner = TypeVar("Owner")
C = TypeVar("C", bound=Callable[..., Any])

Steps = Generator["Step", Any, T]


class Step:
    """One thing that the core asks its driver to do."""

    __slots__ = ()


@final
class Call(Step):
    """Run a function that may block: in a worker thread, or right here where blocking is allowed."""

    __slots__ = ("arguments", "function")

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function = function
        self.arguments = arguments


@final
class Finish(Step):
    """As ``Call``, but whoever asked is not let go, cancelled or not, before the function has come to its end."""

    __slots__ = ("arguments", "function")

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function = function
        self.arguments = arguments


@final
class Obtain(Step):
    """Call a caller's function on the driver's own thread and await the answer where it is awaitable."""

    __slots__ = ("arguments", "function")

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function = function
        self.arguments = arguments


@final
class Together(Step):
    """Drive several generators side by side; the answer is the list of theirs.

    The first error ends the others and is raised.
    """

    __slots__ = ("branches",)

    def __init__(self, branches: Sequence[Steps[Any]]) -> None:
        self.branches = branches


@final
class Where(Step):
    """Answers a token of the loop, or of the thread world, that the driver runs in: flights never cross it."""

    __slots__ = ()


@final
class Checkpoint(Step):
    """Let the other tasks of the loop go first; without a loop there are none."""

    __slots__ = ()


@final
class Signal:
    """A one-time event that either world can wait for; set from the world that waits or from any thread."""

    __slots__ = ("_callbacks", "_done", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = False
        self._callbacks: list[Callable[[], object]] = []

    def set(self) -> None:
        """Wake everyone who waits, and everyone who will."""
        with self._lock:
            self._done = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_set(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` once the signal is set; at once where it is."""
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback()


@final
class Wait(Step):
    """Wait until a signal is set."""

    __slots__ = ("signal",)

    def __init__(self, signal: Signal) -> None:
        self.signal = signal


@final
class Pause(Step):
    """Wait until a signal is set, by any thread, or until some seconds have passed; answers whether it was set."""

    __slots__ = ("seconds", "signal")

    def __init__(self, seconds: float, signal: Signal) -> None:
        self.seconds = seconds
        self.signal = signal


@final
class Within(Step):
    """Obtain something, but await it for at most some seconds; raises ``Expired`` beyond.

    Only what is awaited can be cut short: what blocks belongs into a ``Bulkhead``.
    """

    __slots__ = ("seconds", "step")

    def __init__(self, seconds: float, step: Obtain) -> None:
        self.seconds = seconds
        self.step = step


class Expired(TimeoutError):  # noqa: N818 - caught by whoever set the limit, who says what took too long
    """The seconds of a ``Within`` are over."""


async def drive(steps: Steps[T]) -> T:
    """Do the steps on the running event loop; blocking calls go to worker threads."""
    try:
        step = next(steps)
        while True:
            try:
                answer = await _perform(step)
            except BaseException as error:  # noqa: BLE001 - thrown into the generator, cancellation included
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        steps.close()


async def _perform(step: Step) -> Any:
    if isinstance(step, Call):
        return await anyio.to_thread.run_sync(step.function, *step.arguments)
    if isinstance(step, Finish):
        return await _finish(step)
    if isinstance(step, Obtain):
        answer = step.function(*step.arguments)
        return await answer if inspect.isawaitable(answer) else answer
    if isinstance(step, Within):
        with anyio.move_on_after(step.seconds):
            return await _obtain(step.step)
        raise Expired
    if isinstance(step, Wait):
        event = anyio.Event()
        step.signal.on_set(event.set)
        return await event.wait()
    if isinstance(step, Pause):
        event = anyio.Event()
        step.signal.on_set(_from_any_thread(event.set))
        with anyio.move_on_after(step.seconds):
            await event.wait()
        return event.is_set()
    if isinstance(step, Together):
        return await _perform_together(step.branches)
    if isinstance(step, Where):
        return anyio.lowlevel.current_token()
    if isinstance(step, Checkpoint):
        return await anyio.lowlevel.checkpoint()
    raise TypeError(f"no driver for {step!r}")


async def _finish(step: Finish) -> Any:
    """What the function answers; a cancellation is raised once it has answered."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return await anyio.to_thread.run_sync(step.function, *step.arguments)
    # asyncio's own cancellation would leave the thread behind. A task of its own is in nobody's cancel scope.
    task = asyncio.ensure_future(anyio.to_thread.run_sync(step.function, *step.arguments))
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        # Its own failure, if any, is not what becomes of a cancelled call.
        task.exception()
        raise cancelled
    return task.result()


async def _obtain(step: Obtain) -> Any:
    """Obtain something; where what it awaits was cancelled by somebody else, that is an error and no cancellation."""
    try:
        return await _perform(step)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("what it awaited was cancelled") from error


def _from_any_thread(callback: Callable[[], object]) -> Callable[[], None]:
    """The callback, to be called from whatever thread, run by the running event loop; dropped where that has ended."""
    schedule: Callable[[Callable[[], object]], object]
    ended: type[RuntimeError]
    try:
        trio = sys.modules["trio"]
        schedule, ended = trio.lowlevel.current_trio_token().run_sync_soon, trio.RunFinishedError
    except (KeyError, RuntimeError):
        schedule, ended = asyncio.get_running_loop().call_soon_threadsafe, RuntimeError

    def call() -> None:
        with contextlib.suppress(ended):
            schedule(callback)

    return call


async def _perform_together(branches: Sequence[Steps[Any]]) -> list[Any]:
    answers: list[Any] = [None] * len(branches)
    failures: list[BaseException] = []

    async def perform(position: int, branch: Steps[Any]) -> None:
        try:
            answers[position] = await drive(branch)
        except Exception as error:  # noqa: BLE001 - raised below, outside the group, as itself
            failures.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for position, branch in enumerate(branches):
            group.start_soon(perform, position, branch)
    if failures:
        raise failures[0]
    return answers


THREADS: Final = object()
"""What ``Where`` answers outside of any event loop."""


def drive_blocking(steps: Steps[T]) -> T:
    """Do the steps in the calling thread."""
    try:
        step = next(steps)
        while True:
            try:
                answer = _perform_blocking(step)
            except BaseException as error:  # noqa: BLE001 - thrown into the generator
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        steps.close()


def _perform_blocking(step: Step) -> Any:
    if isinstance(step, Call | Finish):
        return step.function(*step.arguments)
    if isinstance(step, Within):
        return _perform_blocking(step.step)
    if isinstance(step, Obtain):
        answer = step.function(*step.arguments)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise InvalidInputError(
                f"{getattr(step.function, '__qualname__', step.function)} is asynchronous; the blocking twin needs "
                "a function that answers directly"
            )
        return answer
    if isinstance(step, Wait):
        event = threading.Event()
        step.signal.on_set(event.set)
        return event.wait()
    if isinstance(step, Pause):
        event = threading.Event()
        step.signal.on_set(event.set)
        return event.wait(step.seconds)
    if isinstance(step, Together):
        return [drive_blocking(branch) for branch in step.branches]
    if isinstance(step, Where | Checkpoint):
        return THREADS
    raise TypeError(f"no driver for {step!r}")


class HasCore(Protocol):
    """A facade: everything that it does is done by its core."""

    @property
    def core(self) -> Any:
        """The object whose methods yield steps."""


def as_async(
    method: Callable[Concatenate[Owner, P], Steps[T]],
) -> Callable[Concatenate[HasCore, P], Coroutine[Any, Any, T]]:
    """The async form, on a facade, of a core's method that yields steps."""
    name = method.__name__

    async def call(self: HasCore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await drive(cast("Steps[T]", getattr(self.core, name)(*args, **kwargs)))

    return _described(call, method)


def as_blocking(method: Callable[Concatenate[Owner, P], Steps[T]]) -> Callable[Concatenate[HasCore, P], T]:
    """The blocking form, on a facade, of a core's method that yields steps."""
    name = method.__name__

    def call(self: HasCore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return drive_blocking(cast("Steps[T]", getattr(self.core, name)(*args, **kwargs)))

    return _described(call, method)


def _described(call: C, method: Callable[..., Any]) -> C:
    """``call`` with the name, the docstring and the arguments of ``method``, and what its steps answer."""
    functools.update_wrapper(call, method)
    del call.__wrapped__  # type: ignore[attr-defined]
    signature = inspect.signature(method)
    answer = str(signature.return_annotation).removeprefix("Steps[").removesuffix("]")
    # Readers of type hints look names up where a function was written: ForwardRef carries the method's own module.
    module = method.__module__
    call.__annotations__ = {
        name: ForwardRef(hint, module=module) if isinstance(hint, str) else hint
        for name, hint in {**method.__annotations__, "return": answer}.items()
    }
    call.__signature__ = signature.replace(return_annotation=answer)  # type: ignore[attr-defined]
    return call
