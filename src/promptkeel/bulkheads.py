"""Calls that may take for ever: each kind behind a bulkhead of its own, in helper threads that can be left behind.

A thread cannot be stopped. What can be done is to stop waiting for it, drop what it answers later, and see that calls
which are left behind do not pile up: each bulkhead runs a few calls at once, one where they compute, lets the others
queue, and refuses new ones while too many are left behind. Helper threads are apart from the worker threads that stores
read in, and end with the process.
"""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Final, final

from promptkeel.errors import SourceOverloadedError
from promptkeel.forks import after_fork
from promptkeel.steps import Pause, Signal, Steps

AT_ONCE: Final = 8
"""How many calls of one kind run at once, as long as they wait for something; calls that compute run one at a time,
since each that does may hold up the event loop for the interpreter's switch interval, 5 ms."""
LEFT_BEHIND: Final = 8
"""How many calls of one kind may be left behind and still run."""
_TELLS: Final = 0.02
"""Seconds after which it can be told whether a call computes or waits."""
_COMPUTES: Final = 0.1
"""The share of its time that a call which computes has the processor, on a busy machine too."""
_LOOK_AGAIN: Final = 0.004
"""Seconds after which a call that waits for a thread looks whether those before it wait too; doubled each time."""
_IDLE: Final = 10.0

Work = Callable[[], Callable[[], object]]
"""Does something and answers with what is to be called once the thread is free again."""


@final
class _Helpers:
    """The threads of the process that are free."""

    def __init__(self) -> None:
        self._forget()
        after_fork(self, _Helpers._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._free: list[_Helper] = []

    def run(self, work: Work) -> None:
        """Do the work in a free thread, or a new one."""
        with self._lock:
            helper = self._free.pop() if self._free else None
        if helper is None:
            helper = _Helper(self)
            helper.start()
        helper.inbox.put(work)

    def put_back(self, helper: _Helper) -> None:
        """The thread is free again."""
        with self._lock:
            self._free.append(helper)

    def release(self, helper: _Helper) -> bool:
        """Whether the thread may end: nobody has taken it."""
        with self._lock:
            if helper not in self._free:
                return False
            self._free.remove(helper)
            return True


@final
class _Helper(threading.Thread):
    def __init__(self, helpers: _Helpers) -> None:
        # A call that never ends must not keep the process from ending.
        super().__init__(name="promptkeel helper", daemon=True)
        self.inbox: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._helpers = helpers

    def run(self) -> None:
        while True:
            try:
                work = self.inbox.get(timeout=_IDLE)
            except queue.Empty:
                if self._helpers.release(self):
                    return
                continue
            land = work()
            del work
            self._helpers.put_back(self)
            land()
            del land


_HELPERS: Final = _Helpers()


@final
class Job:
    """A call that was handed to a bulkhead.

    Attributes:
        signal: set once it has answered.
        key: calls under one key that wait for a thread share one job.
    """

    __slots__ = (
        "answer",
        "arguments",
        "clock",
        "context",
        "deadline",
        "error",
        "function",
        "key",
        "seconds",
        "signal",
        "started",
        "waiting",
    )

    def __init__(self, key: Hashable, seconds: float, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.key = key
        self.seconds = seconds
        self.function = function
        self.arguments = arguments
        self.context = contextvars.copy_context()
        self.signal = Signal()
        self.deadline = 0.0
        self.waiting = 1
        self.started = 0.0
        self.clock: Callable[[], float] | None = None
        self.answer: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Make the call, in the present thread."""
        self.started = time.monotonic()
        self.clock = _thread_clock()
        try:
            self.answer = self.context.run(self.function, *self.arguments)
        except BaseException as error:  # noqa: BLE001 - raised where the call is waited for
            self.error = error

    @property
    def waits(self) -> bool | None:
        """Whether the call waits for something rather than computes; None where it is too early to tell."""
        clock = self.clock
        if clock is None:
            return None
        taken = time.monotonic() - self.started
        return None if taken < _TELLS else clock() < taken * _COMPUTES

    def result(self) -> Any:
        """What the call answered; raises what it raised."""
        if isinstance(self.error, Exception):
            raise self.error
        if self.error is not None:
            # Meant for the thread that it was raised in: it must not cancel or end whoever waits.
            raise RuntimeError(f"it raised {type(self.error).__name__}") from self.error
        return self.answer


def _thread_clock() -> Callable[[], float]:
    """Answers the processor time that the present thread will have had since now, asked from any thread."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return lambda: 0.0
    clock = time.pthread_getcpuclockid(threading.get_ident())
    began = time.clock_gettime(clock)

    def had() -> float:
        try:
            return time.clock_gettime(clock) - began
        except OSError:
            return 0.0  # the thread has ended

    return had


@final
class Bulkhead:
    """Runs calls of one kind, apart from all others.

    Args:
        name: of what, for errors.
        at_once: how many run at once where they wait for something; one where they compute. More wait their turn.
        left_behind: how many may be left behind and still run; while as many do, new calls are refused. At least as
            many as run at once.
        tell: called with +1 or -1 whenever one is left behind, or ends after all.
    """

    def __init__(
        self,
        name: str,
        *,
        at_once: int = AT_ONCE,
        left_behind: int = LEFT_BEHIND,
        tell: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._name = name
        self._at_once = at_once
        self._most_left_behind = left_behind
        self._tell = tell
        self._forget()
        after_fork(self, Bulkhead._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._queue: dict[Hashable, Job] = {}
        self._running: set[Job] = set()
        self._left_behind: set[Job] = set()
        self._waited = False

    @property
    def left_behind(self) -> int:
        """How many calls were left behind and still run."""
        return len(self._left_behind)

    def begin(self, key: Hashable, seconds: float, function: Callable[..., Any], *arguments: Any) -> Job:
        """Hand over a call, which ``finish`` waits for; one that waits under an equal key is shared.

        Raises:
            SourceOverloadedError: too many calls were left behind and still run, or the system has no thread left.
        """
        with self._lock:
            waiting = self._queue.get(key)
            if waiting is not None:
                waiting.waiting += 1
                return waiting
            self._leave_expired()
            if len(self._left_behind) >= self._most_left_behind:
                raise SourceOverloadedError(
                    f"{len(self._left_behind)} calls of {self._name} ran out of time and still run; it is called "
                    "again when one of them ends"
                )
            job = Job(key, seconds, function, arguments)
            self._queue[key] = job
            starting = self._next()
        self._start(starting)
        return job

    def finish(self, job: Job, seconds: float) -> Steps[bool]:
        """Wait for a call for some seconds; answers whether it has answered, and leaves it behind where not."""
        expired = False
        until, look_again = time.monotonic() + seconds, _LOOK_AGAIN
        try:
            while self._queue and time.monotonic() + look_again < until:
                if (yield Pause(look_again, job.signal)):
                    return True
                look_again *= 2
                self._look_again()
            done: bool = yield Pause(max(0.0, until - time.monotonic()), job.signal)
            expired = not done
            return done
        finally:
            self.leave(job, expired=expired)

    def _look_again(self) -> None:
        with self._lock:
            starting = self._next()
        self._start(starting)

    def leave(self, job: Job, *, expired: bool = False) -> None:
        """Nobody waits here any more; where ``expired``, the call had its time."""
        with self._lock:
            job.waiting -= 1
            if job.waiting:
                return
            if self._queue.get(job.key) is job:
                del self._queue[job.key]
            elif expired and job in self._running:
                self._leave_behind(job)
            starting = self._next()
        self._start(starting)

    def _leave_expired(self) -> None:
        """What runs longer than it may, and is waited for by nobody, makes room."""
        now = time.monotonic()
        for job in [job for job in self._running if not job.waiting and job.deadline < now]:
            self._leave_behind(job)

    def _leave_behind(self, job: Job) -> None:
        self._running.discard(job)
        self._left_behind.add(job)
        self._tell(1)

    def _next(self) -> list[Job]:
        self._leave_expired()
        starting = []
        while self._queue and self._has_room():
            job = self._queue.pop(next(iter(self._queue)))
            job.deadline = time.monotonic() + job.seconds
            self._running.add(job)
            starting.append(job)
        return starting

    def _has_room(self) -> bool:
        running = len(self._running)
        # Whatever runs may be left behind too.
        if running >= self._at_once or running + len(self._left_behind) >= self._most_left_behind:
            return False
        for job in self._running:
            waits = job.waits
            if not (self._waited if waits is None else waits):
                return False
        return True

    def _start(self, starting: list[Job]) -> None:
        for job in starting:
            try:
                _HELPERS.run(lambda job=job: self._run(job))  # type: ignore[misc]
            except RuntimeError as error:
                job.error = SourceOverloadedError(f"no thread can be started for {self._name}: {error}")
                self._land(job)

    def _run(self, job: Job) -> Callable[[], object]:
        job.run()
        waits = job.waits
        if waits is not None:
            self._waited = waits  # what a call has done lately, the next will do
        return lambda: self._land(job)

    def _land(self, job: Job) -> None:
        with self._lock:
            self._running.discard(job)
            if job in self._left_behind:
                self._left_behind.remove(job)
                self._tell(-1)
            starting = self._next()
        self._start(starting)
        job.signal.set()
