"""How far log and history reach back: one setting for both, and the steps that forget what is beyond it.

A change is numbered, and not dated. So each compaction notes which change was the last one at that time; a later one
knows by these notes what has come to the age limit. Age is therefore known to the nearest run: compact daily to keep
days.

Each step is one short transaction, so that writers wait for a step at most. It raises the floors first of all to the
change that it forgets: a resolver behind them reads its lane whole, and a read as of older heads is a
``CompactedError``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final, Protocol, final, runtime_checkable

import attrs

from promptkeel.errors import InvalidInputError
from promptkeel.instants import Clock, system_clock
from promptkeel.steps import Call, Steps
from promptkeel.store.base import Engine
from promptkeel.store.facade import StoreCore
from promptkeel.store.operations import Mark

RETENTION_MARK: Final = "upkeep:retention"
MOMENTS_MARK: Final = "upkeep:moments"
_MOMENTS: Final = 128


@runtime_checkable
class Compactable(Protocol):
    """An engine whose log and history can be made shorter."""

    def log_span(self) -> tuple[int, int]:
        """The first and the last change in the log; (1, 0) where it is empty."""

    def floor_keeping(self, changes: int) -> int:
        """The change behind which so many are left; 0 where there are no more."""

    def compact(self, floor: int, step: int) -> int:
        """Forget at most ``step`` of the changes up to ``floor``, oldest first; how many. The last change stays."""


@final
@attrs.frozen(order=False)
class Retention:
    """What of log and history is kept: what is within every limit given.

    Attributes:
        changes: as many of the newest changes; None is no such limit.
        age: changes of the last so many microseconds; None is no such limit.
    """

    changes: int | None = attrs.field(default=None, kw_only=True)
    age: int | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.changes is not None and (type(self.changes) is not int or self.changes < 1):
            raise InvalidInputError(f"must be None or at least 1 change, not {self.changes!r}", field="changes")
        if self.age is not None and (type(self.age) is not int or self.age < 0):
            raise InvalidInputError(
                f"must be None or a whole number of microseconds, at least 0, not {self.age!r}", field="age"
            )


@final
@attrs.frozen(order=False)
class CompactionProgress:
    """How far a compaction has come.

    Attributes:
        done: how many changes are forgotten.
        total: how many there are to forget, as it looked at the beginning.
    """

    done: int
    total: int


Moment = tuple[int, int]
"""The last change at an instant: its number, the instant."""


def retention_of(engine: Engine) -> Retention | None:
    """The store's own setting; None where it has none."""
    mark = engine.mark(RETENTION_MARK)
    return None if mark is None else Retention(**json.loads(mark))


def set_retention(engine: Engine, retention: Retention) -> None:
    """Keep the setting with the store, for whoever compacts it next."""
    engine.apply((Mark(RETENTION_MARK, json.dumps(attrs.asdict(retention))),))


def compact(
    engine: Engine, retention: Retention | None = None, *, step: int = 1000, clock: Clock = system_clock
) -> Iterator[CompactionProgress]:
    """Forget what is beyond the retention, one small transaction at each turn of the iterator.

    Args:
        engine: an open engine.
        retention: what is kept; None is the store's own setting.
        step: how many changes one transaction forgets at most.
        clock: answers the present instant.

    Raises:
        InvalidInputError: no retention was given and the store has none, or it cannot be compacted.
    """
    if type(step) is not int or step < 1:
        raise InvalidInputError(f"must be at least 1 change, not {step!r}", field="step")
    if not isinstance(engine, Compactable):
        raise InvalidInputError(f"{type(engine).__name__} cannot be compacted", field="store")
    kept = retention_of(engine) if retention is None else retention
    if kept is None:
        raise InvalidInputError("give how much is kept: the store has no retention of its own", field="retention")
    now = clock()
    moments = _read_moments(engine)
    first, last = engine.log_span()
    counted = 0 if kept.changes is None else engine.floor_keeping(kept.changes)
    floor = min(max(counted, _aged(kept, last, moments, now)), last - 1)
    _note_moment(engine, moments, (last, now), kept, now)
    total, done = max(0, floor - first + 1), 0
    yield CompactionProgress(done, total)
    while done < total and (forgotten := engine.compact(floor, step)):
        done += forgotten
        yield CompactionProgress(done, total)


def compact_steps(
    store: StoreCore,
    retention: Retention | None = None,
    *,
    step: int = 1000,
    clock: Clock = system_clock,
    on_progress: Callable[[CompactionProgress], object] | None = None,
) -> Steps[CompactionProgress]:
    """``compact``, each turn in a worker; how far it came."""
    turns = compact(store.engine, retention, step=step, clock=clock)
    found = CompactionProgress(0, 0)
    while True:
        progress: CompactionProgress | None = yield Call(next, turns, None)
        if progress is None:
            return found
        found = progress
        if on_progress is not None:
            on_progress(progress)


def _aged(kept: Retention, last: int, moments: list[Moment], now: int) -> int:
    """The newest change that is known to be too old; 0 where none is."""
    if kept.age is None:
        return 0
    limit = now - kept.age
    return max((seq for seq, at in [*moments, (last, now)] if at <= limit), default=0)


def _read_moments(engine: Engine) -> list[Moment]:
    mark = engine.mark(MOMENTS_MARK)
    return [] if mark is None else [(int(seq), int(at)) for seq, at in json.loads(mark)]


def _note_moment(engine: Engine, moments: list[Moment], moment: Moment, kept: Retention, now: int) -> None:
    """Keep the moments that may still be asked for: the youngest that is too old, and those since."""
    limit = None if kept.age is None else now - kept.age
    ordered = sorted({*moments, moment}, key=lambda each: (each[1], each[0]))
    if limit is not None:
        passed = [each for each in ordered if each[1] <= limit]
        ordered = [*passed[-1:], *(each for each in ordered if each[1] > limit)]
    while len(ordered) > _MOMENTS:
        del ordered[1:-1:2]
    if ordered != moments:
        engine.apply((Mark(MOMENTS_MARK, json.dumps(ordered)),))
