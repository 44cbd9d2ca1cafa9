"""Backups are one point in time, whole or not there; what is put back never brings back what was erased."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import promptkeel as pk
from promptkeel import blocking
from promptkeel.blocking import scan_memory_lane
from promptkeel.errors import ExchangeError, InvalidInputError, NodeErasedError, StoreDamagedError, StoreError
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.steps import drive_blocking
from promptkeel.store.base import Engine
from promptkeel.store.facade import BlockingStore
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import Mark
from promptkeel.upkeep.backup import back_up, back_up_steps, restore
from promptkeel.upkeep.checking import check
from promptkeel.upkeep.erasing import erase_steps, receipt_steps
from promptkeel.upkeep.erasure import EraseAll
from store.examples import ACME, ADA, BOB, SteppingClock, ids, node
from store.stock_client import StockClient

WRITER = """
import sys
from promptkeel.instants import system_clock
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import Put
engine = open_engine(sys.argv[1], clock=system_clock)
scopes = [TenantScope.parse(f"org:acme/user:{name}") for name in ("ada", "bob")]
for number in range(1_000_000):
    puts = [Put(MemoryNode(id=f"{s.path[-3:]}{number}", scope=s, label=f"SOUL:{number}" + "x" * 400)) for s in scopes]
    engine.apply(puts)
    if number == 20:
        print("ready", flush=True)
"""


@contextmanager
def writer(url: str) -> Iterator[None]:
    """Another process that writes to the store all the time."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'memory.db'}"


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    return tmp_path / "backups" / "memory.backup"


@pytest.fixture
def opened() -> Iterator[Callable[[str], Engine]]:
    engines: list[Engine] = []

    def open_it(url: str) -> Engine:
        engines.append(open_engine(url, clock=SteppingClock()))
        return engines[-1]

    yield open_it
    for engine in engines:
        engine.close()


@pytest.fixture
def engine(opened: Callable[[str], Engine], url: str) -> Engine:
    return opened(url)


def labels(engine: Engine, scope: Any) -> list[str]:
    return [each.label for each in engine.query_nodes(scope, None, None)]


def test_a_backup_while_another_process_writes_is_one_point_in_time(
    url: str, engine: Engine, backup: Path, opened: Callable[[str], Engine]
) -> None:
    pages: list[tuple[int, int]] = []
    with writer(url):
        for _ in range(3):
            found = back_up(engine, backup, on_progress=lambda *progress: pages.append(progress))
            assert found.findings == ()
        present = len(labels(engine, ADA))
    copy = opened(f"sqlite:///{backup}")
    assert labels(copy, ADA) == labels(copy, BOB)
    assert 20 < len(labels(copy, ADA)) <= present
    assert pages[-1][0] == pages[-1][1]
    assert sorted(each.name for each in backup.parent.iterdir() if "-" not in each.name) == ["memory.backup"]


def test_a_backup_is_a_store_with_the_same_history(
    engine: Engine, backup: Path, opened: Callable[[str], Engine]
) -> None:
    store = BlockingStore(engine)
    store.put(node())
    heads = store.heads(ADA)
    store.retract(ADA, "n1")
    drive_blocking(back_up_steps(store.core, backup))
    copy = BlockingStore(opened(f"sqlite:///{backup}"))
    assert copy.heads(ADA) == store.heads(ADA)
    assert ids(copy.nodes_as_of(ADA, heads).nodes) == ["n1"]
    assert copy.history(ADA, "n1") == store.history(ADA, "n1")


def test_a_backup_that_fails_leaves_the_one_before(engine: Engine, backup: Path) -> None:
    store = BlockingStore(engine)
    store.put(node())
    back_up(engine, backup)
    before = backup.read_bytes()
    store.put(node("n2"))

    def fail(*_: int) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        back_up(engine, backup, on_progress=fail)
    assert backup.read_bytes() == before
    assert [each.name for each in backup.parent.iterdir()] == [backup.name]


def test_what_cannot_be_backed_up_is_refused(engine: Engine, backup: Path, tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidInputError, match="store itself"):
        back_up(engine, tmp_path / "memory.db")
    with pytest.raises(ExchangeError):
        back_up(engine, tmp_path)
    memory = open_engine("ram:", clock=SteppingClock())
    with pytest.raises(InvalidInputError, match="no file"):
        back_up(memory, backup)
    memory.close()
    assert not backup.exists()


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ("DROP TRIGGER nodes_update", "trigger nodes_update"),
        ("ALTER TABLE marks ADD COLUMN more TEXT", "table marks"),
        ("UPDATE meta SET value = x'00' WHERE key = 'secret'", "meta.secret"),
    ],
)
def test_a_damaged_backup_is_not_put_back(engine: Engine, backup: Path, url: str, damage: str, named: str) -> None:
    store = BlockingStore(engine)
    store.put(node())
    back_up(engine, backup)
    with StockClient() as client:
        client.run(backup, damage)
    with pytest.raises(StoreDamagedError, match=named):
        restore(backup, url)
    assert ids(store.query_nodes(ADA)) == ["n1"]


def test_a_restore_is_seen_by_whoever_has_the_store_open(engine: Engine, backup: Path, url: str) -> None:
    store = BlockingStore(engine)
    store.put(node())
    heads, lane = store.heads(ADA), scan_memory_lane(store, ADA, "SOUL:")
    back_up(engine, backup)
    store.put(node("n2"))
    token, later = engine.probe(), store.heads(ADA)
    with store.snapshot() as snapshot:
        restore(backup, url)
        assert ids(snapshot.query_nodes(ADA)) == ["n1", "n2"]
    assert engine.probe() != token
    assert store.heads(ADA).levels == heads.levels
    assert store.changes(ADA, later).changes is None
    assert scan_memory_lane(store, ADA, "SOUL:").revision == lane.revision
    assert check(url).findings == ()


def test_a_restored_store_that_counts_up_to_the_same_change_is_noticed(engine: Engine, backup: Path, url: str) -> None:
    store = BlockingStore(engine)
    store.put(node())
    back_up(engine, backup)
    store.put(node("lost", "SOUL:said after the backup"))
    lost = store.heads(ADA)
    restore(backup, url)
    store.put(node("other", "SOUL:said after the restore"))
    again = store.heads(ADA)
    assert again.seq == lost.seq
    assert again.levels != lost.levels
    assert store.changes(ADA, lost).changes is None
    with pytest.raises(StoreError):
        store.nodes_as_of(ADA, lost)


def test_erasures_since_the_backup_are_applied_again(engine: Engine, backup: Path, url: str, tmp_path: Path) -> None:
    store = BlockingStore(engine)
    for name in ("n1", "n2", "n3"):
        store.put(node(name, f"SOUL:secret of {name}"))
    store.put(node("kept", scope=ACME))
    back_up(engine, backup)
    store.erase(ADA, "n1")
    request = drive_blocking(erase_steps(store.core, EraseAll(ADA), new_name=lambda: "request"))
    restored = restore(backup, url, clock=SteppingClock())
    assert restored.reapplied == 3
    assert ids(store.query_nodes(ADA)) == ["kept"]
    with pytest.raises(NodeErasedError):
        store.get(ADA, "n1")
    again = drive_blocking(receipt_steps(store.core, "request"))
    assert {each.node_id for each in again.receipts} == {each.node_id for each in request.receipts}
    assert b"secret of" not in (tmp_path / "memory.db").read_bytes()
    assert check(url).findings == ()


def test_receipts_kept_outside_are_applied_to_a_store_made_anew(
    engine: Engine, backup: Path, tmp_path: Path, opened: Callable[[str], Engine]
) -> None:
    store = BlockingStore(engine)
    store.put(node())
    store.put(node("n2"))
    back_up(engine, backup)
    receipt = store.erase(ADA, "n1")
    elsewhere = f"sqlite:///{tmp_path / 'new' / 'memory.db'}"
    assert restore(backup, elsewhere, receipts=[receipt]).reapplied == 1
    assert ids(opened(elsewhere).query_nodes(ADA, None, None)) == ["n2"]
    assert [each.name for each in (tmp_path / "new").iterdir() if each.suffix == ".tmp"] == []


def test_a_restore_leaves_its_backup_as_it_was(engine: Engine, backup: Path, url: str) -> None:
    BlockingStore(engine).put(node())
    back_up(engine, backup)
    engine.apply((Mark("since", "then"),))
    before = backup.read_bytes()
    restore(backup, url)
    assert backup.read_bytes() == before
    assert engine.mark("since") is None
    assert engine.receipts(DEPLOYMENT) == []


def test_a_warm_prompt_follows_a_restore_to_before_the_first_write(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    scope = TenantScope.parse("org:acme")
    blocks = [pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:"))]
    with blocking.open(url, blocks=blocks) as keel:
        back_up(keel.core.store.engine, tmp_path / "empty.db")
        keel.remember(scope, "prefers tea", block="USER_PROFILE")
        assert "prefers tea" in keel.prompt(scope).text
        restore(tmp_path / "empty.db", url)
        assert keel.prompt(scope).text == ""
