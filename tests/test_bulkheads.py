"""Calls that may take for ever: bounded, apart from each other, left behind in a counted number, dropped when late."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import threading
import time

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.bulkheads import Bulkhead
from promptkeel.errors import SourceOverloadedError
from promptkeel.steps import drive, drive_blocking

LONG = 30.0


def finished(bulkhead, job, seconds=LONG):
    return drive_blocking(bulkhead.finish(job, seconds))


def test_a_call_runs_in_another_thread_and_answers():
    bulkhead = Bulkhead("x")
    job = bulkhead.begin("k", LONG, lambda a: (a, threading.get_ident()), 7)
    assert finished(bulkhead, job)
    answer, thread = job.result()
    assert (answer, thread == threading.get_ident()) == (7, False)


def test_what_a_call_raises_is_raised_where_it_is_waited_for():
    bulkhead = Bulkhead("x")
    job = bulkhead.begin("k", LONG, int, "no number")
    assert finished(bulkhead, job)
    with pytest.raises(ValueError, match="no number"):
        job.result()


def test_a_call_sees_the_context_of_its_caller():
    variable = contextvars.ContextVar("variable", default="outside")
    variable.set("inside")
    bulkhead = Bulkhead("x")
    job = bulkhead.begin("k", LONG, variable.get)
    assert finished(bulkhead, job)
    assert job.result() == "inside"


def test_calls_that_are_left_behind_are_counted_refused_beyond_the_cap_and_make_room_when_they_end():
    told, release = [], threading.Event()
    bulkhead = Bulkhead("the clock", at_once=1, left_behind=2, tell=told.append)
    for number in range(2):
        job = bulkhead.begin(number, LONG, release.wait, LONG)
        assert not finished(bulkhead, job, 0.001)
    assert bulkhead.left_behind == 2
    with pytest.raises(SourceOverloadedError, match="2 calls of the clock ran out of time and still run"):
        bulkhead.begin("another", LONG, int)
    release.set()
    for _ in range(1000):
        if not bulkhead.left_behind:
            break
        threading.Event().wait(0.01)
    job = bulkhead.begin("again", LONG, int)
    assert finished(bulkhead, job)
    assert told == [1, 1, -1, -1]


def test_one_kind_of_call_that_hangs_takes_no_thread_from_another():
    release = threading.Event()
    hanging, healthy = Bulkhead("a"), Bulkhead("b")
    jobs = [hanging.begin(number, LONG, release.wait, LONG) for number in range(20)]
    job = healthy.begin("k", LONG, lambda: "fine")
    assert finished(healthy, job)
    assert job.result() == "fine"
    release.set()
    assert all(finished(hanging, job) for job in jobs)


def test_calls_under_one_key_that_wait_for_a_thread_share_one_and_never_one_that_runs():
    release, runs = threading.Event(), []
    bulkhead = Bulkhead("x", at_once=1)
    running = bulkhead.begin("k", LONG, release.wait, LONG)
    waiting = [bulkhead.begin("k", LONG, runs.append, 1) for _ in range(5)]
    assert len(set(waiting)) == 1
    assert waiting[0] is not running
    release.set()
    assert all(finished(bulkhead, job) for job in [running, *waiting])
    assert runs == [1]


def test_calls_that_wait_run_side_by_side():
    bulkhead, meeting = Bulkhead("x", at_once=4), threading.Barrier(4)
    jobs = [bulkhead.begin(number, LONG, meeting.wait, LONG) for number in range(4)]
    assert all(finished(bulkhead, job) for job in jobs)
    assert sorted(job.result() for job in jobs) == [0, 1, 2, 3]


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="this system has no clock for each thread")
def test_a_call_that_computes_is_told_from_one_that_waits():
    bulkhead, release = Bulkhead("x", at_once=4), threading.Event()

    def compute():
        while not release.is_set():
            pass

    job = bulkhead.begin("computes", LONG, compute)
    threading.Event().wait(0.2)
    assert job.waits is False
    release.set()
    assert finished(bulkhead, job)
    other = Bulkhead("y")
    release.clear()
    waiting = other.begin("waits", LONG, release.wait, LONG)
    for _ in range(2000):
        if waiting.waits:
            break
        threading.Event().wait(0.005)
    assert waiting.waits
    release.set()
    assert finished(other, waiting)


def test_what_waits_for_a_thread_and_is_wanted_by_nobody_never_runs():
    release, runs = threading.Event(), []
    bulkhead = Bulkhead("x", at_once=1)
    running = bulkhead.begin("a", LONG, release.wait, LONG)
    waiting = bulkhead.begin("b", LONG, runs.append, 1)
    assert not finished(bulkhead, waiting, 0.001)
    assert bulkhead.left_behind == 0
    release.set()
    assert finished(bulkhead, running)
    assert runs == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancelled_caller_leaves_the_call_its_time(backend):
    release = threading.Event()
    bulkhead = Bulkhead("x", at_once=1)

    async def main():
        job = bulkhead.begin("k", LONG, release.wait, LONG)
        with anyio.move_on_after(0.01):
            await drive(bulkhead.finish(job, LONG))
        assert bulkhead.left_behind == 0
        release.set()
        after = bulkhead.begin("k", LONG, int)
        assert await drive(bulkhead.finish(after, LONG))

    anyio.run(main, backend=backend)


def test_a_call_that_nobody_waits_for_is_left_behind_once_its_time_is_over():
    release = threading.Event()
    bulkhead = Bulkhead("x", at_once=1)
    bulkhead.leave(bulkhead.begin("k", 0.001, release.wait, LONG))
    threading.Event().wait(0.01)
    job = bulkhead.begin("k", LONG, int)
    assert finished(bulkhead, job)
    assert bulkhead.left_behind == 1
    release.set()


def test_a_call_that_never_ends_does_not_keep_the_process():
    code = (
        "import threading\n"
        "from promptkeel.bulkheads import Bulkhead\n"
        "Bulkhead('x').begin('k', 1.0, threading.Event().wait)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@given(st.lists(st.tuples(st.sampled_from(["begin", "time out", "end"]), st.integers(0, 5)), max_size=40))
def test_whatever_is_begun_given_up_and_ended_no_more_run_than_may_and_whoever_waits_is_answered(program):
    """Each call is held by an event of its own."""
    bulkhead = Bulkhead("x", at_once=2, left_behind=3)
    waited, left, running = [], [], []

    def call(release):
        running.append(release)
        assert release.wait(LONG)
        running.remove(release)

    try:
        for what, number in program:
            if what == "begin":
                release = threading.Event()
                try:
                    waited.append((bulkhead.begin(number % 3, LONG, call, release), release))
                except SourceOverloadedError:
                    assert bulkhead.left_behind <= 3
            elif what == "time out" and waited:
                job, release = waited.pop(number % len(waited))
                finished(bulkhead, job, 0.0)
                left.append(release)
            elif what == "end" and left:
                left.pop(number % len(left)).set()
            assert 0 <= bulkhead.left_behind <= 3
            assert len(running) <= 3
    finally:
        for release in [*left, *(release for _, release in waited)]:
            release.set()
    assert all(finished(bulkhead, job) for job, _ in waited)
