"""Two pieces of work measured against each other: in turns, in one run, and compared pair by pair.

A shared machine is fast now and slow a second later. So every ratio is taken between two samples that follow each
other, the order changes from pair to pair, and the median of the ratios is what counts. Absolute times are shown beside
it and are indicative only.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Final

import attrs

Sample = Callable[[], float]
"""Does its work some times and answers the seconds that one of them took."""

_BATCH_SECONDS: Final = 0.002
_BATCHES: Final = 3
_SLOW: Final = 0.3
_FEWEST: Final = 3


@attrs.frozen
class Compared:
    """How long two pieces of work took.

    Attributes:
        ratio: the median, over all pairs, of subject by base.
        subject: the median seconds of the subject.
        base: the median seconds of the base.
        pairs: how many pairs there were.
    """

    ratio: float
    subject: float
    base: float
    pairs: int


def repeated(call: Callable[[], object]) -> Sample:
    """A sample of a call that needs nothing done before it: as often as fills some milliseconds."""

    def run(times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            call()
        return time.perf_counter() - started

    return _sampled(run)


def _sampled(run: Callable[[int], float]) -> Sample:
    """The least of a few batches, so that a moment in which another program ran does not count."""
    number = 0

    def sample() -> float:
        nonlocal number
        if number == 0:
            number = 1
            run(1)
            while run(number) < _BATCH_SECONDS:
                number *= 2
        batches = _BATCHES if number > 1 else 1
        return min(run(number) for _ in range(batches)) / number

    return sample


def prepared(prepare: Callable[[], object], call: Callable[[], object], number: int = 1) -> Sample:
    """A sample of a call before which something is done that is not timed: the median of so many."""

    def sample() -> float:
        found = []
        for _ in range(number):
            prepare()
            found.append(_timed(call))
        return statistics.median(found)

    return sample


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def compare(subject: Sample, base: Sample, pairs: int) -> Compared:
    """The subject against the base, in so many interleaved pairs; what is very slow is measured three times."""
    gc.collect()
    # What the program holds besides is not walked again and again in either's time.
    gc.freeze()
    try:
        subject(), base()
        found: list[tuple[float, float]] = []
        while len(found) < pairs:
            if len(found) % 2:
                first = base()
                found.append((subject(), first))
            else:
                first = subject()
                found.append((first, base()))
            if len(found) >= _FEWEST and sum(found[0]) > _SLOW * 10:
                break
    finally:
        gc.unfreeze()
    return Compared(
        statistics.median(mine / other for mine, other in found),
        statistics.median(mine for mine, _ in found),
        statistics.median(other for _, other in found),
        len(found),
    )


def awaited(runner: asyncio.Runner, call: Callable[[], Awaitable[object]]) -> Sample:
    """As ``repeated`` for a call on an event loop; what it costs to enter the loop is not timed."""

    async def run(times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            await call()
        return time.perf_counter() - started

    return _sampled(lambda times: runner.run(run(times)))


def awaited_after(
    runner: asyncio.Runner, prepare: Callable[[], object], call: Callable[[], Awaitable[object]], number: int = 1
) -> Sample:
    """As ``prepared`` for a call on an event loop."""

    async def run() -> float:
        found = []
        for _ in range(number):
            prepare()
            started = time.perf_counter()
            await call()
            found.append(time.perf_counter() - started)
        return statistics.median(found)

    return lambda: runner.run(run())
