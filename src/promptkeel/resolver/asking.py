"""One call of a caller's own function: bounded in time, and never blocking on the event loop's thread.

An asynchronous function is awaited where the driver runs. Any other is called in a helper thread; calls are begun
before any of them is waited for, so that they run side by side under both drivers.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Hashable
from typing import Any, final

from promptkeel.blocks.source import is_asynchronous
from promptkeel.bulkheads import Bulkhead, Job
from promptkeel.steps import Expired, Obtain, Steps, Within


@final
class Asker:
    """Calls one function of one block.

    Args:
        name: of what, for errors.
        function: the function.
        seconds: how long a call may take.
        tell: as for ``Bulkhead``.
    """

    def __init__(self, name: str, function: Callable[..., Any], seconds: float, tell: Callable[[int], object]) -> None:
        self.function = function
        self.seconds = seconds
        self.is_awaited = is_asynchronous(function)
        self.bulkhead = Bulkhead(name, tell=tell)

    def begin(self, key: Hashable, *arguments: Any) -> Question:
        """Begin a call; calls under equal keys that wait for a thread share one.

        Raises:
            SourceOverloadedError: too many calls were left behind.
        """
        return self.begin_with(key, self.function, *arguments)

    def begin_with(self, key: Hashable, function: Callable[..., Any], *arguments: Any) -> Question:
        """The same with another function of the same kind."""
        job = None if self.is_awaited else self.bulkhead.begin(key, self.seconds, function, *arguments)
        return Question(self, job, function, arguments)


@final
class Question:
    """A call that was begun, and is to be waited for once, or dropped."""

    __slots__ = ("_arguments", "_asker", "_deadline", "_function", "_job")

    def __init__(self, asker: Asker, job: Job | None, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._asker = asker
        self._job = job
        self._function = function
        self._arguments = arguments
        self._deadline = time.monotonic() + asker.seconds

    def answer(self) -> Steps[Any]:
        """What the function answers; raises what it raises.

        Raises:
            Expired: its time is over.
        """
        job, self._job = self._job, None
        if job is None:
            return (yield Within(self._asker.seconds, Obtain(self._function, *self._arguments)))
        done = yield from self._asker.bulkhead.finish(job, self._remaining())
        if not done:
            raise Expired
        answer = job.result()
        if inspect.isawaitable(answer):
            # Written as an ordinary function, as a wrapper is, but answering with something to await.
            answer = yield Within(self._remaining(), Obtain(lambda: answer))
        return answer

    def drop(self) -> None:
        """Nobody waits for it any more."""
        job, self._job = self._job, None
        if job is not None:
            self._asker.bulkhead.leave(job)

    def _remaining(self) -> float:
        return max(0.0, self._deadline - time.monotonic())
