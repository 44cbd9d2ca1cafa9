"""Log and history are made shorter in small steps, while readers and writers go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.errors import CompactedError, InvalidInputError
from promptkeel.steps import drive_blocking
from promptkeel.store.base import Engine, Heads, LaneRequest
from promptkeel.store.facade import BlockingStore
from promptkeel.store.opening import open_engine
from promptkeel.upkeep.checking import check_engine
from promptkeel.upkeep.compaction import (
    CompactionProgress,
    Retention,
    compact,
    compact_steps,
    retention_of,
    set_retention,
)
from store.examples import ADA, BOB, SteppingClock, ids, node

DAY = 24 * 3600


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture(params=["ram", "sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, clock: SteppingClock) -> Iterator[Engine]:
    databases = request.getfixturevalue("databases") if request.param == "postgres" else None
    urls = {"ram": "ram:", "sqlite": f"sqlite:///{tmp_path / 'memory.db'}"}
    url = databases.store() if databases else urls[request.param]
    engine = open_engine(url, clock=clock)
    yield engine
    engine.close()
    if databases:
        databases.drop(url)


def write(engine: Engine, count: int) -> list[Heads]:
    """Correct one node many times; the heads after each."""
    store, heads = BlockingStore(engine), list[Heads]()
    current = store.put(node())
    for number in range(count - 1):
        heads.append(store.heads(ADA))
        current = store.put(node(label=f"SOUL:{number}"), expected=current)
    return [*heads, store.heads(ADA)]


def finish(engine: Engine, retention: Retention | None, clock: SteppingClock, step: int = 1000) -> int:
    progress = list(compact(engine, retention, step=step, clock=clock))
    assert [each.done for each in progress] == sorted({each.done for each in progress})
    assert progress[-1].done == progress[-1].total
    return progress[-1].done


def test_the_newest_changes_are_kept_and_older_heads_are_compacted(engine: Engine, clock: SteppingClock) -> None:
    heads = write(engine, 10)
    assert finish(engine, Retention(changes=4), clock, step=2) == 6
    store = BlockingStore(engine)
    for number, past in enumerate(heads):
        if number < 6:
            with pytest.raises(CompactedError):
                store.nodes_as_of(ADA, past)
            assert store.changes(ADA, past).changes is None
        else:
            assert ids(store.nodes_as_of(ADA, past).nodes) == ["n1"]
            changes = store.changes(ADA, past).changes
            assert changes is not None
            assert len(changes) == 9 - number
    assert len(store.history(ADA, "n1").versions) == 5
    assert engine.query_nodes(ADA, None, None)[0].label == "SOUL:8"
    assert check_engine(engine).findings == ()


@given(st.integers(1, 25), st.integers(1, 30), st.integers(1, 7))
def test_as_much_is_kept_as_was_asked_and_no_step_takes_more(written: int, kept: int, step: int) -> None:
    clock = SteppingClock()
    engine = open_engine("ram:", clock=clock)
    heads = write(engine, written)
    steps = list(compact(engine, Retention(changes=kept), step=step, clock=clock))
    assert all(0 < later.done - earlier.done <= step for earlier, later in pairwise(steps))
    first, last = engine.log_span()  # type: ignore[attr-defined]
    assert last - first + 1 == min(written, kept)
    assert engine.nodes_as_of(ADA, heads[-1], None).nodes == tuple(engine.query_nodes(ADA, None, None))
    assert check_engine(engine).findings == ()
    engine.close()


def test_age_is_known_to_the_nearest_run(engine: Engine, clock: SteppingClock) -> None:
    store = BlockingStore(engine)
    keep = Retention(age=2 * DAY * 1_000_000)
    for day in range(5):
        store.put(node(f"n{day}"))
        forgotten = finish(engine, keep, clock)
        assert forgotten == (1 if day >= 2 else 0)
        clock.tick(DAY)
    assert engine.log_span()[0] == 4  # type: ignore[attr-defined]


def test_what_was_written_since_the_last_run_is_never_too_old(engine: Engine, clock: SteppingClock) -> None:
    write(engine, 5)
    clock.tick(100 * DAY)
    assert finish(engine, Retention(age=DAY * 1_000_000), clock) == 0
    clock.tick(2 * DAY)
    write_more = BlockingStore(engine)
    write_more.put(node("late"))
    assert finish(engine, Retention(age=DAY * 1_000_000), clock) == 5


def test_the_last_change_stays(engine: Engine, clock: SteppingClock) -> None:
    heads = write(engine, 3)
    assert finish(engine, Retention(age=0), clock) == 2
    assert BlockingStore(engine).heads(ADA) == heads[-1]
    assert finish(engine, Retention(age=0), clock) == 0


def test_an_engine_keeps_its_last_change_whatever_it_is_asked(engine: Engine) -> None:
    heads = write(engine, 4)
    assert engine.compact(10**9, 10**6) == 3  # type: ignore[attr-defined]
    assert engine.compact(10**9, 10**6) == 0  # type: ignore[attr-defined]
    first, last = engine.log_span()  # type: ignore[attr-defined]
    assert first == last == heads[-1].seq


def test_an_empty_store_has_nothing_to_forget(engine: Engine, clock: SteppingClock) -> None:
    assert finish(engine, Retention(changes=1, age=0), clock) == 0


def test_the_setting_is_kept_with_the_store(engine: Engine, clock: SteppingClock) -> None:
    write(engine, 5)
    with pytest.raises(InvalidInputError, match="retention"):
        finish(engine, None, clock)
    set_retention(engine, Retention(changes=2))
    assert retention_of(engine) == Retention(changes=2)
    seen: list[CompactionProgress] = []
    found = drive_blocking(compact_steps(BlockingStore(engine).core, step=1, clock=clock, on_progress=seen.append))
    assert found == CompactionProgress(3, 3)
    assert [each.done for each in seen] == [0, 1, 2, 3]


@pytest.mark.parametrize("arguments", [{"changes": 0}, {"changes": True}, {"age": -1}, {"age": 1.5}])
def test_a_retention_that_cannot_be_meant_is_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(InvalidInputError):
        Retention(**arguments)


def test_readers_and_writers_go_on_between_the_steps(engine: Engine, clock: SteppingClock) -> None:
    write(engine, 60)
    store = BlockingStore(engine)
    since = store.heads(ADA)
    number = 0
    with store.snapshot() as snapshot:
        before = snapshot.query_nodes(ADA)
        for _ in compact(engine, Retention(changes=3), step=7, clock=clock):
            store.put(node(f"w{number}", scope=BOB))
            number += 1
            (lane,) = engine.catch_up(ADA, [LaneRequest("SOUL:", since)]).lanes
            assert lane.whole or lane.rows == []
            assert snapshot.query_nodes(ADA) == before
    assert number > 8
    assert len(store.query_nodes(BOB)) == number
    assert check_engine(engine).findings == ()


def test_threads_that_write_meanwhile_lose_nothing(engine: Engine, clock: SteppingClock) -> None:
    write(engine, 40)
    store = BlockingStore(engine)
    failures: list[Exception] = []

    def put(name: str) -> None:
        try:
            for number in range(15):
                store.put(node(f"{name}{number}", scope=BOB))
        except Exception as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=put, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for _ in range(5):
        finish(engine, Retention(changes=5), clock, step=3)
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(store.query_nodes(BOB)) == 30
    assert check_engine(engine).findings == ()
