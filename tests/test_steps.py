"""The two drivers do the same steps: answers, errors, cancellation and waiting."""

from __future__ import annotations

import threading

import anyio
import pytest

from promptkeel.errors import InvalidInputError
from promptkeel.steps import Call, Expired, Obtain, Signal, Together, Wait, Where, Within, drive, drive_blocking


def both(make):
    """The answers of both drivers for fresh steps."""
    return [drive_blocking(make()), anyio.run(drive, make()), anyio.run(drive, make(), backend="trio")]


def test_a_call_runs_in_a_worker_thread_on_a_loop_and_right_here_without_one():
    def steps():
        return (yield Call(threading.get_ident))

    blocking, on_asyncio, on_trio = both(steps)
    here = threading.get_ident()
    assert blocking == here
    assert here not in (on_asyncio, on_trio)


def test_an_error_of_a_step_is_thrown_into_the_generator_where_it_can_be_handled():
    def steps():
        try:
            yield Call(int, "x")
        except ValueError:
            return (yield Call(int, "7"))

    assert both(steps) == [7, 7, 7]


def test_together_answers_in_order_and_raises_the_first_error_as_itself():
    def branch(value):
        return (yield Call(int, value))

    def good():
        return (yield Together([branch("1"), branch("2")]))

    def bad():
        return (yield Together([branch("1"), branch("x")]))

    assert both(good) == [[1, 2]] * 3
    with pytest.raises(ValueError, match="invalid literal"):
        drive_blocking(bad())
    with pytest.raises(ValueError, match="invalid literal"):
        anyio.run(drive, bad())


def test_obtain_awaits_what_is_awaitable_and_the_blocking_driver_refuses_it_by_name():
    async def later():
        return "later"

    def steps():
        return (yield Obtain(later))

    assert anyio.run(drive, steps()) == "later"
    with pytest.raises(InvalidInputError, match="later is asynchronous"):
        drive_blocking(steps())


def test_a_signal_wakes_those_who_wait_and_those_who_come_later():
    signal = Signal()

    def steps():
        yield Wait(signal)
        return "woken"

    woken = []
    thread = threading.Thread(target=lambda: woken.append(drive_blocking(steps())))
    thread.start()
    signal.set()
    thread.join()
    assert woken == ["woken"]
    assert both(steps) == ["woken"] * 3


def test_where_differs_between_loops_and_the_thread_world():
    def steps():
        return (yield Where())

    blocking, on_asyncio, on_trio = both(steps)
    assert blocking is drive_blocking(steps())
    assert len({id(blocking), id(on_asyncio), id(on_trio)}) == 3


def test_cancellation_reaches_the_generators_finally():
    cleaned = []

    def steps():
        try:
            yield Wait(Signal())
        finally:
            cleaned.append(True)

    async def main():
        with anyio.move_on_after(0):
            await drive(steps())

    anyio.run(main)
    assert cleaned == [True]


def test_both_forms_of_a_method_are_described_by_what_they_answer():
    import inspect
    import typing

    import promptkeel as pk
    from promptkeel import blocking
    from promptkeel.core import KeelCore

    for form in (pk.Keel, blocking.Keel):
        signature = inspect.signature(form.remember)
        assert signature.return_annotation == "MemoryNode"
        assert list(signature.parameters)[:3] == ["self", "scope", "text"]
        assert form.remember.__doc__ == KeelCore.remember.__doc__
    assert inspect.iscoroutinefunction(pk.Keel.remember)
    assert not inspect.iscoroutinefunction(blocking.Keel.remember)
    for form in (pk.Keel, blocking.Keel):
        hints = typing.get_type_hints(form.retract)
        assert (hints["scope"], hints["return"]) == (pk.TenantScope, pk.MemoryNode)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_is_obtained_within_some_seconds_answers_or_expires(backend):
    async def never():
        await anyio.sleep_forever()

    async def later():
        await anyio.lowlevel.checkpoint()
        return 7

    def steps(seconds, function):
        return (yield Within(seconds, Obtain(function)))

    assert anyio.run(drive, steps(20, later), backend=backend) == 7
    with pytest.raises(Expired):
        anyio.run(drive, steps(0.001, never), backend=backend)


def test_a_timeout_of_the_functions_own_is_told_apart_from_an_expired_one():
    async def own():
        raise TimeoutError("the network took too long")

    def steps():
        return (yield Within(20, Obtain(own)))

    with pytest.raises(TimeoutError, match="the network took too long") as caught:
        anyio.run(drive, steps())
    assert not isinstance(caught.value, Expired)


def test_without_a_loop_nothing_is_obtained_that_must_be_awaited():
    async def later():
        return 7

    def steps(function):
        return (yield Within(20, Obtain(function)))

    assert drive_blocking(steps(lambda: 7)) == 7
    with pytest.raises(InvalidInputError, match="asynchronous"):
        drive_blocking(steps(later))
