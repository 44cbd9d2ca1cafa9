"""Flights: one read for everyone who needs the same; a cancelled leader hands over."""

from __future__ import annotations

import threading

import anyio
import pytest

from promptkeel.resolver.flights import Flights
from promptkeel.steps import Call, Signal, Wait, Where, drive, drive_blocking


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_many_who_join_under_one_key_share_one_piece_of_work(backend):
    flights: Flights[int] = Flights()
    done = []

    def work():
        yield Call(lambda: done.append(1))
        return 7

    async def main():
        answers = []

        async def one():
            answers.append(await drive(flights.join("key", work)))

        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(one)
        return answers

    assert anyio.run(main, backend=backend) == [7] * 50
    assert len(done) == 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_when_the_leader_is_cancelled_a_follower_leads_and_all_are_served(backend):
    flights: Flights[int] = Flights()
    leaders = []

    def work():
        leaders.append(1)
        if len(leaders) == 1:
            yield Wait(Signal())  # the first leader waits for ever, until it is cancelled
        yield Call(int)
        return 7

    async def main():
        answers = []
        scope = anyio.CancelScope()

        async def first():
            with scope:
                await drive(flights.join("key", work))

        async def follower():
            answers.append(await drive(flights.join("key", work)))

        async with anyio.create_task_group() as group:
            group.start_soon(first)
            await anyio.wait_all_tasks_blocked()
            for _ in range(3):
                group.start_soon(follower)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
        return answers

    assert anyio.run(main, backend=backend) == [7] * 3
    assert len(leaders) == 2


def test_an_error_is_everyones_and_the_next_call_tries_again():
    flights: Flights[int] = Flights()

    def failing():
        yield Call(int, "x")
        return 1

    def working():
        yield from ()
        return 2

    with pytest.raises(ValueError, match="invalid"):
        drive_blocking(flights.join("key", failing))
    assert drive_blocking(flights.join("key", working)) == 2


def test_threads_share_a_flight_too():
    flights: Flights[int] = Flights()
    started, release, done = threading.Event(), threading.Event(), []

    def slow():
        started.set()
        assert release.wait(10)
        done.append(1)

    def work():
        yield Call(slow)
        return 7

    def token():
        return (yield Where())

    answers = []
    leader = threading.Thread(target=lambda: answers.append(drive_blocking(flights.join("key", work))))
    leader.start()
    assert started.wait(10)
    following = flights.join("key", work)
    assert isinstance(next(following), Where)
    waiting = following.send(drive_blocking(token()))
    assert isinstance(waiting, Wait), "the second thread waits for the first one's read"
    release.set()
    leader.join(10)
    with pytest.raises(StopIteration) as stop:
        following.send(None)
    assert (answers, stop.value.value, done) == ([7], 7, [1])
