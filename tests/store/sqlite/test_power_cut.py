"""Power cuts, full disks and failing disks: what was acknowledged is there, and nothing is half there."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from promptkeel.errors import CommitUnknownError, PromptkeelError, StoreFullError
from promptkeel.instants import system_clock
from promptkeel.store import sqlite_file
from promptkeel.store.operations import Erase
from promptkeel.store.sqlite import SqliteEngine
from store.sqlite.faults import Disk, RecordingVFS
from store.sqlite.ledger import ADA, batch, last_batch

BATCHES = 12
CUTS = 120


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def open_on_disk(disk: Disk, path: Path) -> Iterator[Callable[[], SqliteEngine]]:
    vfs = RecordingVFS(f"recording {id(disk)}", disk)
    opened: list[SqliteEngine] = []

    def open_it() -> SqliteEngine:
        opened.append(SqliteEngine(f"sqlite:///{path}", clock=system_clock, vfs=f"recording {id(disk)}"))
        return opened[-1]

    yield open_it
    disk.full_after, disk.failing_sync = None, False
    for engine in opened:
        engine.close()
    vfs.unregister()


def cut_and_count(disk: Disk, folder: Path, moment: int, chance: random.Random) -> tuple[int, int]:
    """The last batch acknowledged before a power cut, and the last one there after it."""
    folder.mkdir()
    acknowledged = disk.after_power_cut(moment, folder, chance)
    engine = SqliteEngine(f"sqlite:///{folder}/memory.db", clock=system_clock)
    try:
        return max(acknowledged, default=-1), last_batch(engine)
    finally:
        engine.close()
        shutil.rmtree(folder)


def write_batches(disk: Disk, engine: SqliteEngine) -> None:
    for number in range(BATCHES):
        engine.apply(batch(number))
        disk.acknowledge(number)
        if number == BATCHES // 2:
            with engine._connections.writing() as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    engine.close()


def lost(disk: Disk, folder: Path) -> list[tuple[int, int]]:
    """The cuts after which an acknowledged batch was missing, of many at random moments."""
    chance = random.Random(7)
    moments = sorted(chance.choices(range(len(disk.events) + 1), k=CUTS))
    cuts = [cut_and_count(disk, folder / str(number), moment, chance) for number, moment in enumerate(moments)]
    assert len({there for _, there in cuts}) > BATCHES // 2, "the cuts are at many stages"
    return [(told, there) for told, there in cuts if there < told]


def test_no_power_cut_loses_what_was_acknowledged(disk: Disk, open_on_disk, tmp_path: Path) -> None:
    write_batches(disk, open_on_disk())
    assert lost(disk, tmp_path) == []


def test_without_syncing_the_same_cuts_do_lose(disk: Disk, open_on_disk, tmp_path: Path, monkeypatch) -> None:
    """Shows that the test above can fail."""
    monkeypatch.setattr(sqlite_file, "SYNCHRONOUS", "OFF")
    engine = open_on_disk()
    monkeypatch.undo()
    for number in range(BATCHES):
        engine.apply(batch(number))
        disk.acknowledge(number)
    chance = random.Random(7)
    missing = 0
    for number, moment in enumerate(chance.choices(range(len(disk.events) // 2, len(disk.events) + 1), k=20)):
        try:
            told, there = cut_and_count(disk, tmp_path / str(number), moment, chance)
            missing += there < told
        except (AssertionError, PromptkeelError):
            missing += 1
    assert missing > 0


def test_a_full_disk_at_any_write_leaves_all_or_nothing(disk: Disk, open_on_disk) -> None:
    engine = open_on_disk()
    engine.apply(batch(0))
    number, refused = 0, 0
    for space in itertools.chain(range(25), range(25)):
        disk.full_after = space
        try:
            engine.apply(batch(number + 1))
            number += 1
        except StoreFullError:
            refused += 1
        disk.full_after = None
        assert last_batch(engine) == number
    assert refused >= 10
    assert number >= 10, "and with enough space it goes on"


def test_a_full_disk_does_not_make_an_erasure_fail_that_is_committed(disk: Disk, open_on_disk) -> None:
    engine = open_on_disk()
    for number in range(3):
        engine.apply(batch(number))
    outcomes = []
    for space in range(40):
        disk.full_after = space
        try:
            outcomes.append(engine.apply([Erase(ADA, "a1")])[0].receipt.state)
            break
        except StoreFullError:
            assert engine.get(ADA, "a1").label == "SOUL:000001"
        finally:
            disk.full_after = None
    assert len(outcomes) == 1
    assert engine.receipts(ADA)[0].state == outcomes[0]


def test_a_failed_sync_is_unknown_until_it_is_settled(disk: Disk, open_on_disk, path: Path, tmp_path: Path) -> None:
    engine = open_on_disk()
    engine.apply(batch(0))
    engine.apply(batch(1))
    # While others have the file open, the writer's own end does not settle what it left in the log.
    assert last_batch(engine) == 1
    disk.failing_sync = True
    with pytest.raises(CommitUnknownError, match="may or may not be there"):
        engine.apply(batch(2))
    with pytest.raises(CommitUnknownError, match="not settled"):
        engine.heads(ADA)
    disk.failing_sync = False
    before = engine.heads(ADA)
    number = last_batch(engine)
    assert number in (1, 2)
    (tmp_path / "crashed").mkdir()
    for file in path.parent.glob("memory.db*"):
        if not file.name.endswith("-shm"):
            shutil.copy(file, tmp_path / "crashed")
    crashed = SqliteEngine(f"sqlite:///{tmp_path}/crashed/memory.db", clock=system_clock)
    assert last_batch(crashed) == number, "what a read has said once stays so after a crash"
    assert crashed.heads(ADA) == before
    crashed.close()
    engine.apply(batch(number + 1))
    assert last_batch(engine) == number + 1
