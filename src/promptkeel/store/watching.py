"""Watching lanes: one poll tells any number of watchers of one store that their lane's revision has moved.

Nothing runs in the background. Of those who wait in one event loop, or in threads, one leads: it sleeps until the next
tick, probes the store once, asks for the heads of the watched scopes where something was committed, brings touched
lanes up to date and wakes whose revision has moved. A leader that is cancelled, or has its own news, hands over to
another. So a watcher that goes leaves nothing behind, and where nobody waits nobody polls. What a slow consumer finds
when it comes back is the newest revision, not each in between.

Correctness hangs on the poll alone. ``wake`` only makes the next tick come now: after a commit through this engine. An
engine that hears of commits by others does the same to those who watch it.

A store knows no facts: what a lane's revision is, the lane package says, through ``give_lanes``.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from typing import Final, Protocol, Self, final

import attrs

from promptkeel.errors import InvalidInputError, InvalidScopeError
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Pause, Signal, Steps, Wait, Where, drive, drive_blocking
from promptkeel.store.base import Engine, Heads, Hearing, LaneRequest, LaneUpdate

WATCH_INTERVAL: Final = 0.25
"""Seconds from one look at the store to the next, unless a watcher asks for less."""

_NEVER: Final = object()


@final
@attrs.frozen(order=False)
class LaneRevision:
    """That a lane's revision is now this.

    Attributes:
        revision: identifies the lane's facts, in every process.
        heads: where it was read.
    """

    revision: str
    heads: Heads


class FollowedLane(Protocol):
    """A lane that follows its store."""

    @property
    def revision(self) -> str:
        """Identifies its facts."""

    def updated(self, update: LaneUpdate) -> FollowedLane:
        """The lane after an update."""


MakeLane = Callable[[str, Collection[str]], FollowedLane]
"""An empty lane of a prefix and declared fields; refuses what cannot be declared."""

_lanes: list[MakeLane] = []


def give_lanes(make: MakeLane) -> None:
    """Say how lanes are made."""
    _lanes[:] = [make]


@final
class _Lane:
    """One watched lane, shared by all of its watchers in one event loop.

    Attributes:
        empty: the lane before anything is read.
        news: what was read last; None before the first time.
        token: the probe after which it was verified.
        looked: when it was looked at last, on the monotonic clock.
        heard: how often the poller had been rung by then.
        error: why the last look at it failed.
    """

    def __init__(self, scope: _Scope, prefix: str, empty: FollowedLane) -> None:
        self.scope = scope
        self.prefix = prefix
        self.lane = empty
        self.news: LaneRevision | None = None
        self.token: object = _NEVER
        self.looked = time.monotonic()
        self.heard = 0
        self.error: Exception | None = None

    @property
    def heads(self) -> Heads | None:
        """The heads at which it was read last."""
        return None if self.news is None else self.news.heads

    def take(self, update: LaneUpdate, heads: Heads, token: object) -> None:
        """Bring it up to date."""
        self.lane = self.lane.updated(update)
        self.news = LaneRevision(self.lane.revision, heads)
        self.token = token
        self.error = None

    def fail(self, error: Exception) -> None:
        """Keep what went wrong, for those who watch it."""
        self.token = _NEVER
        self.error = error


@final
class _Scope:
    """The watched lanes of one scope."""

    def __init__(self, scope: TenantScope) -> None:
        self.scope = scope
        self.lock = threading.Lock()
        self.lanes: weakref.WeakValueDictionary[object, _Lane] = weakref.WeakValueDictionary()


@final
class _Waiter:
    """One call that waits for a watcher's news."""

    def __init__(self, watch: _Watch, lane: _Lane) -> None:
        self.watch = watch
        self.lane = lane
        self.signal = Signal()

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to wait for."""
        lane, watch = self.lane, self.watch
        return watch.stopped or lane.error is not None or (lane.news is not None and _is_news(lane.news, watch.told))


def _is_news(news: LaneRevision, told: str | None) -> bool:
    return news.revision != told


@final
class _Poller:
    """Everyone who watches one engine from one event loop, or from threads."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.process = os.getpid()
        self._scopes: weakref.WeakValueDictionary[str, _Scope] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._waiting: dict[_Waiter, None] = {}
        self._leader: _Waiter | None = None
        self._alarm = Signal()
        self._rung = 0

    def lane(self, scope: TenantScope, prefix: str, fields: frozenset[str], empty: FollowedLane) -> _Lane:
        """The shared lane."""
        with self._lock:
            watched = self._scopes.get(scope.path)
            if watched is None:
                watched = self._scopes[scope.path] = _Scope(scope)
            lane = watched.lanes.get((prefix, fields))
            if lane is None:
                lane = watched.lanes[prefix, fields] = _Lane(watched, prefix, empty)
            return lane

    def ring(self) -> None:
        """Make the next tick come now; from any thread."""
        with self._lock:
            self._rung += 1
        self.disturb()

    def disturb(self) -> None:
        """Let the leader look again at what it waits for."""
        with self._lock:
            alarm = self._alarm
        alarm.set()

    def release(self, watch: _Watch) -> None:
        """Let the calls of a stopped watcher see that it is over; from any thread."""
        with self._lock:
            signals = [waiter.signal for waiter in self._waiting if waiter.watch is watch]
        for signal in (*signals, self._alarm):
            signal.set()

    # Waiting

    def wait(self, waiter: _Waiter) -> Steps[None]:
        """Wait until the waiter is over; it may lead meanwhile."""
        with self._lock:
            self._waiting[waiter] = None
        try:
            while not waiter.is_over:
                with self._lock:
                    if self._leader is None:
                        self._leader = waiter
                    leads = self._leader is waiter
                if leads:
                    yield from self._lead(waiter)
                else:
                    self.disturb()
                    yield Wait(waiter.signal)
                    waiter.signal = Signal()
        finally:
            self._leave(waiter)

    def _leave(self, waiter: _Waiter) -> None:
        with self._lock:
            self._waiting.pop(waiter, None)
            if self._leader is waiter:
                self._leader = None
            heir = next(iter(self._waiting), None) if self._leader is None else None
        if heir is not None:
            heir.signal.set()

    def _lead(self, waiter: _Waiter) -> Steps[None]:
        while not waiter.is_over:
            with self._lock:
                self._alarm = Signal()
                lanes = list(dict.fromkeys(each.lane for each in self._waiting))
                due = min(each.lane.looked + each.watch.interval for each in self._waiting)
                rung = any(lane.heard != self._rung for lane in lanes)
            patience = due - time.monotonic()
            if patience > 0 and not rung:
                yield Pause(patience, self._alarm)
                continue
            yield from self.look(lanes)
            with self._lock:
                over = [each for each in self._waiting if each is not waiter and each.is_over]
            for each in over:
                each.signal.set()

    # Looking

    def look(self, lanes: list[_Lane]) -> Steps[None]:
        """Verify the lanes or bring them up to date; what goes wrong is kept with the lane that it concerns."""
        for lane in lanes:
            lane.looked, lane.heard = time.monotonic(), self._rung
        if self.engine.is_local:
            stale = self._stale(lanes)
        else:
            stale = yield Call(self._stale, lanes)
        if stale:
            yield Call(self._catch_up, stale)

    def _stale(self, lanes: Iterable[_Lane]) -> list[tuple[object, list[_Lane]]]:
        """The lanes to be read, by scope, each with the probe that came first."""
        lanes = list(lanes)
        try:
            token = self.engine.probe()
        except Exception as error:  # noqa: BLE001 - raised in each watcher
            for lane in lanes:
                lane.fail(error)
            return []
        moved: dict[_Scope, list[_Lane]] = {}
        for lane in lanes:
            if lane.token is _NEVER or lane.token != token:
                moved.setdefault(lane.scope, []).append(lane)
        found = ((token, self._touched(scope, group, token)) for scope, group in moved.items())
        return [(token, group) for token, group in found if group]

    def _touched(self, scope: _Scope, lanes: list[_Lane], token: object) -> list[_Lane]:
        try:
            heads = self.engine.heads(scope.scope)
        except Exception as error:  # noqa: BLE001 - raised in each watcher
            for lane in lanes:
                lane.fail(error)
            return []
        touched = [lane for lane in lanes if lane.error is not None or lane.heads != heads]
        for lane in lanes:
            if lane not in touched:
                lane.token = token
        return touched

    def _catch_up(self, stale: list[tuple[object, list[_Lane]]]) -> None:
        for token, lanes in stale:
            scope = lanes[0].scope
            # One read of a scope after another, so that an older answer never overwrites a newer one.
            with scope.lock:
                try:
                    requests = [LaneRequest(lane.prefix, lane.heads) for lane in lanes]
                    found = self.engine.catch_up(scope.scope, requests)
                    for lane, update in zip(lanes, found.lanes, strict=True):
                        lane.take(update, found.heads, token)
                except Exception as error:  # noqa: BLE001 - raised in each watcher
                    for lane in lanes:
                        lane.fail(error)


_POLLERS: weakref.WeakKeyDictionary[Engine, weakref.WeakValueDictionary[object, _Poller]] = weakref.WeakKeyDictionary()
_REGISTER = threading.Lock()


def _poller_of(engine: Engine, where: object) -> _Poller:
    with _REGISTER:
        pollers = _POLLERS.setdefault(engine, weakref.WeakValueDictionary())
        poller = pollers.get(where)
        if poller is None or poller.process != os.getpid():
            poller = pollers[where] = _Poller(engine)
            if isinstance(engine, Hearing):
                engine.hear(poller)
        return poller


def _begin_anew_in_child() -> None:
    """A lock that another thread held is held in the child for ever: nobody there touches what the parent made."""
    global _POLLERS, _REGISTER  # noqa: PLW0603 - one register for each process
    _POLLERS = weakref.WeakKeyDictionary()
    _REGISTER = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew_in_child)


def wake(engine: Engine) -> None:
    """Make everyone who watches this engine look now; from any thread. Silence proves nothing: the poll goes on."""
    if engine in _POLLERS:
        with _REGISTER:
            pollers = list(_POLLERS.get(engine, {}).values())
        for poller in pollers:
            poller.ring()


class _Watch:
    """A watcher, for either driver."""

    def __init__(
        self,
        engine: Engine,
        scope: TenantScope,
        label_prefix: str,
        *,
        profile_fields: Collection[str] = frozenset(),
        interval: float = WATCH_INTERVAL,
    ) -> None:
        if not isinstance(scope, TenantScope):
            raise InvalidScopeError(f"must be a TenantScope, not {type(scope).__name__}", field="scope")
        if type(interval) not in (int, float) or not 0 < interval < threading.TIMEOUT_MAX:
            raise InvalidInputError(f"must be a number of seconds above 0, not {interval!r}", field="interval")
        (make,) = _lanes
        self._empty = make(label_prefix, profile_fields)
        self.scope = scope
        self.label_prefix = label_prefix
        self.interval = float(interval)
        self.stopped = False
        self.told: str | None = None
        self._fields = frozenset(profile_fields)
        self._engine = engine
        self._where: object = None
        self._poller: _Poller | None = None
        self._lane: _Lane | None = None

    def _following(self) -> Steps[LaneRevision | None]:
        """The next revision that the caller was not told; None once stopped."""
        poller, lane = yield from self._placed()
        if lane.news is None or lane.error is not None or self.told is None:
            # Also where others have read it before: the first revision is no older than the call.
            yield from poller.look([lane])
        yield from poller.wait(_Waiter(self, lane))
        if self.stopped:
            return None
        if lane.error is not None:
            raise lane.error
        news = lane.news
        assert news is not None  # noqa: S101 - a waiter is over only with news or an error
        self.told = news.revision
        return news

    def _placed(self) -> Steps[tuple[_Poller, _Lane]]:
        """The poller of the event loop that this runs in, and the lane there."""
        where = yield Where()
        poller, lane = self._poller, self._lane
        if poller is None or lane is None or self._where != where or poller.process != os.getpid():
            self._where = where
            poller = self._poller = _poller_of(self._engine, where)
            lane = self._lane = poller.lane(self.scope, self.label_prefix, self._fields, self._empty)
        return poller, lane

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.scope.path or '(deployment)'} {self.label_prefix!r}>"


@final
class LaneWatch(_Watch, AsyncIterator[LaneRevision]):
    """The revisions of a lane as they come, for ``async for``; the first at once, a slow consumer gets the newest.

    Cancelling the task that waits ends it, and leaves nothing behind. An error of the store is raised, and the watch
    can be asked again.
    """

    async def __anext__(self) -> LaneRevision:
        news = await drive(self._following())
        if news is None:
            raise StopAsyncIteration
        return news


@final
class BlockingLaneWatch(_Watch, Iterator[LaneRevision]):
    """The revisions of a lane as they come, for ``for``; the first at once, a slow consumer gets the newest."""

    def __next__(self) -> LaneRevision:
        news = drive_blocking(self._following())
        if news is None:
            raise StopIteration
        return news

    def stop(self) -> None:
        """End the iteration, also one that waits in another thread."""
        self.stopped = True
        if self._poller is not None and self._poller.process == os.getpid():
            self._poller.release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
