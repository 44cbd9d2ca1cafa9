"""On SQLite: from the commit on no read shows what was erased; once a receipt says scrubbed no byte of it is left."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from erasure.disk import left_in_tables, left_on_disk
from erasure.test_what_goes import erase, keep
from erasure.worlds import SCOPES, build, everything
from promptkeel.errors import NodeErasedError, StoreFullError
from promptkeel.instants import system_clock
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.steps import drive_blocking
from promptkeel.store.facade import StoreCore
from promptkeel.store.operations import Erase
from promptkeel.store.sqlite import SqliteEngine
from promptkeel.upkeep.erasing import erase_steps
from promptkeel.upkeep.erasure import EraseAll, EraseSubject, ErasureRequest
from store.sqlite.faults import Disk, RecordingVFS
from store.stock_client import StockClient

A, X = TenantScope.parse("org:a"), TenantScope.parse("org:a/user:x")
SEEDS = range(400 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 24)


@pytest.fixture
def engine(path: Path) -> Iterator[SqliteEngine]:
    engine = SqliteEngine(f"sqlite:///{path}", clock=system_clock)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def client() -> Iterator[StockClient]:
    client = StockClient()
    yield client
    client.end()


@pytest.fixture
def raw(engine: SqliteEngine, path: Path, client: StockClient) -> Iterator[StockClient]:
    """A person's shell on the engine's file, which does not overwrite what it deletes."""
    client.connect(path).execute("PRAGMA secure_delete = OFF")
    yield client
    client.close()


def some_request(chance: random.Random) -> ErasureRequest:
    scope = chance.choice(SCOPES)
    match chance.randrange(3):
        case 0:
            return EraseAll(scope, below=chance.random() < 0.5)
        case 1:
            return EraseAll(scope, label_prefix=chance.choice(("SOUL:", "HEALTH:")), below=True)
        case _:
            return EraseSubject(scope, properties={"email": "ada@example.org"})


@pytest.mark.parametrize("seed", SEEDS)
def test_no_byte_is_left_once_scrubbed(engine: SqliteEngine, path: Path, raw: StockClient, seed: int) -> None:
    chance = random.Random(seed)
    # Texts of three words share pages; of 900 they overflow them.
    world = build(engine, chance, size=20, longest=chance.choice((3, 60, 900)))
    before = everything(engine)
    request = some_request(chance)
    gone = world.expected(request)
    receipt = erase(engine, request)
    assert receipt.state == "scrubbed"
    assert {each.state for each in engine.receipts(DEPLOYMENT, below=True)} <= {"scrubbed"}
    assert left_on_disk(path, world.tokens(gone)) == []
    assert left_in_tables(raw, world.tokens(gone)) == []
    kept = world.tokens(key for key in world.nodes if key not in gone)
    assert left_on_disk(path, kept) == kept
    assert everything(engine)["histories"] == {
        key: history for key, history in before["histories"].items() if key not in gone
    }


@pytest.mark.parametrize("seed", SEEDS[:12])
@pytest.mark.parametrize("where", ["this process", "another process"])
def test_a_reader_of_older_days_keeps_bytes_and_nobody_else_reads_them(
    engine: SqliteEngine, path: Path, raw: StockClient, seed: int, where: str
) -> None:
    chance = random.Random(seed)
    world = build(engine, chance, size=20, longest=chance.choice((3, 60, 900)))
    request = EraseAll(A, below=True)
    gone = world.expected(request)
    tokens = world.tokens(gone)
    heads = {scope: engine.heads(scope) for scope in SCOPES}
    snapshot = reader = None
    if where == "this process":
        snapshot = engine.open_snapshot()
    else:
        reader = StockClient().connect(path)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM nodes")
    receipt = erase(engine, request)
    assert receipt.state == "unreadable"
    assert left_on_disk(path, tokens) == tokens, "the older state is still on the disk"
    assert left_in_tables(raw, tokens) == []
    shown = repr([everything(engine), *(engine.nodes_as_of(scope, heads[scope], None) for scope in SCOPES)])
    shown += repr([engine.changes(scope, heads[scope], None) for scope in SCOPES])
    assert not [token for token in tokens if token in shown]
    for _, node_id in gone:
        with pytest.raises(NodeErasedError):
            engine.history(world.nodes[_, node_id].scope, node_id)
    engine.settle_receipts()
    assert {each.state for each in engine.receipts(DEPLOYMENT, below=True)} == {"unreadable"}
    if snapshot is not None:
        assert snapshot.query_nodes(X, None, None), "the snapshot holds still"
        snapshot.close()
    if reader is not None:
        reader.execute("COMMIT")
        reader.close()
        reader.end()
    engine.settle_receipts()
    assert {each.state for each in engine.receipts(DEPLOYMENT, below=True)} == {"scrubbed"}
    assert left_on_disk(path, tokens) == []


def test_what_a_careless_shell_left_behind_goes_too(engine: SqliteEngine, path: Path, raw: StockClient) -> None:
    for number in range(40):
        keep(engine, f"n{number}", f"SOUL:kept {number}")
    keep(engine, "gone", "SOUL:" + "tok-first-text " * 40)
    raw.execute("UPDATE nodes SET label = 'SOUL:tok-second-text' WHERE id = 'gone'")
    raw.execute("DELETE FROM versions")
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert left_on_disk(path, ["tok-first-text"]), "the shell has deleted without overwriting"
    receipt = erase(engine, EraseAll(X, label_prefix="SOUL:tok"))
    assert receipt.state == "scrubbed"
    assert left_on_disk(path, ["tok-first-text", "tok-second-text"]) == []


def test_the_planner_keeps_no_sample(engine: SqliteEngine, path: Path) -> None:
    for number in range(200):
        keep(engine, f"n{number}", f"SOUL:token{number:03d}")
    with engine._connections.writing() as connection:
        connection.execute("ANALYZE")
        assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'sqlite_stat4'").get
    tokens = [f"token{number:03d}" for number in range(200)]
    assert erase(engine, EraseAll(X)).state == "scrubbed"
    assert left_on_disk(path, tokens) == []


def test_versions_of_a_node_that_a_shell_deleted_go_too(engine: SqliteEngine, path: Path, raw: StockClient) -> None:
    keep(engine, "gone", "SOUL:token-of-old")
    heads = engine.heads(X)
    raw.execute("DELETE FROM nodes WHERE id = 'gone'")
    assert engine.nodes_as_of(X, heads, None).nodes, "history still shows it"
    receipt = erase(engine, EraseAll(X))
    assert [(each.node_id, each.versions) for each in receipt.receipts] == [("gone", 1)]
    assert engine.nodes_as_of(X, heads, None).nodes == ()
    assert left_on_disk(path, ["token-of-old"]) == []


def test_a_copy_in_somebody_elses_table_is_not_called_scrubbed(
    engine: SqliteEngine, path: Path, raw: StockClient
) -> None:
    keep(engine, "copied", "SOUL:copied-token")
    keep(engine, "not", "SOUL:other-token")
    raw.execute("CREATE TABLE copies AS SELECT label FROM nodes WHERE id = 'copied'")
    receipt = erase(engine, EraseAll(X))
    assert {each.node_id: each.state for each in receipt.receipts} == {"copied": "unreadable", "not": "scrubbed"}
    assert left_on_disk(path, ["copied-token", "other-token"]) == ["copied-token"]
    raw.execute("DELETE FROM copies")
    engine.settle_receipts()
    assert {each.state for each in engine.receipts(X)} == {"scrubbed"}
    assert left_on_disk(path, ["copied-token"]) == []


def test_settling_with_nothing_to_settle_writes_nothing(engine: SqliteEngine) -> None:
    keep(engine, "n", "SOUL:tea")
    probe = engine.probe()
    engine.settle_receipts()
    assert engine.probe() == probe


def test_settling_moves_no_head(engine: SqliteEngine) -> None:
    keep(engine, "n", "SOUL:tea")
    keep(engine, "gone", "SOUL:coffee")
    snapshot = engine.open_snapshot()
    engine.apply([Erase(X, "gone")])
    snapshot.close()
    heads = engine.heads(X)
    engine.settle_receipts()
    assert engine.receipts(X)[0].state == "scrubbed"
    assert engine.heads(X).levels == heads.levels


def test_without_settling_an_erasure_is_as_quick_as_it_can_be(engine: SqliteEngine) -> None:
    keep(engine, "gone", "SOUL:coffee")
    snapshot = engine.open_snapshot()
    receipt = drive_blocking(erase_steps(StoreCore(engine), EraseAll(X), settle=False))
    assert receipt.state == "unreadable"
    snapshot.close()


def test_a_disk_that_is_full_leaves_the_receipt_as_it_was(path: Path) -> None:
    disk = Disk()
    vfs = RecordingVFS(f"full {id(disk)}", disk)
    engine = SqliteEngine(f"sqlite:///{path}", clock=system_clock, vfs=f"full {id(disk)}")
    try:
        for number in range(300):
            keep(engine, f"n{number}", f"SOUL:kept {number}")
        keep(engine, "gone", "SOUL:token-of-gone")
        snapshot = engine.open_snapshot()
        engine.apply([Erase(X, "gone")])
        snapshot.close()
        before = everything(engine)
        for space in range(0, 12, 3):
            disk.full_after = space
            with pytest.raises(StoreFullError):
                engine.settle_receipts()
            disk.full_after = None
            assert engine.receipts(X)[0].state == "unreadable"
            assert everything(engine) == before
        engine.settle_receipts()
        assert engine.receipts(X)[0].state == "scrubbed"
        assert left_on_disk(path, ["token-of-gone"]) == []
    finally:
        engine.close()
        vfs.unregister()
