"""The file itself: addresses, folders, locks, replacement, and the end."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from promptkeel import blocking
from promptkeel.blocks import MemoryLane, PromptBlockSpec
from promptkeel.errors import (
    BlockResolutionError,
    CompactedError,
    InvalidInputError,
    NodeNotFoundError,
    NotAStoreError,
    StoreBusyError,
    StoreClosedError,
    StoreDamagedError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from promptkeel.instants import system_clock
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store import sqlite_connections, sqlite_schema
from promptkeel.store.base import LaneRequest
from promptkeel.store.operations import Correct, Put, Retract
from promptkeel.store.sqlite import SqliteEngine, path_of
from store.stock_client import StockClient

ADA = TenantScope.parse("org:acme/user:ada")


def put(engine: SqliteEngine, node_id: str = "n1", label: str = "SOUL:likes tea") -> None:
    engine.apply([Put(MemoryNode(id=node_id, scope=ADA, label=label))])


def ids(engine: SqliteEngine) -> list[str]:
    return sorted(node.id for node in engine.query_nodes(ADA, None, None))


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///memory.db", "memory.db"),
        ("sqlite:////var/lib/memory.db", "/var/lib/memory.db"),
        ("sqlite:///a%20folder/100%25.db", "a folder/100%.db"),
    ],
)
def test_an_address_is_spelled_as_elsewhere(url: str, path: str) -> None:
    assert path_of(url) == Path(path)


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite:///", "sqlite://", "sqlite:", "sqlite:///a%00b"])
def test_an_address_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(NotAStoreError, match="no file"):
        SqliteEngine(url, clock=system_clock)


def test_memory_has_an_address_of_its_own() -> None:
    with pytest.raises(NotAStoreError, match="'ram:'"):
        SqliteEngine("sqlite:///:memory:", clock=system_clock)


@pytest.mark.parametrize("options", [{"busy_timeout": -1}, {"log_limit": 0}])
def test_options_that_mean_nothing_are_refused(path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        SqliteEngine(f"sqlite:///{path}", clock=system_clock, **options)
    assert not path.exists()


def test_a_change_of_the_working_folder_does_not_move_the_store(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    monkeypatch.chdir(tmp_path / "one")
    engine = SqliteEngine("sqlite:///memory.db", clock=system_clock)
    monkeypatch.chdir(tmp_path / "two")
    put(engine)
    assert ids(engine) == ["n1"]
    engine.close()
    assert (tmp_path / "one" / "memory.db").exists()


def test_another_writer_is_waited_for_as_long_as_agreed(open_engine, raw: StockClient) -> None:
    engine = open_engine(busy_timeout=0.05)
    raw.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusyError, match=r"memory\.db for longer than 0\.05 s"):
        put(engine)
    assert engine.heads(ADA).seq == 0
    assert ids(engine) == [], "readers do not wait for writers"
    raw.execute("ROLLBACK")
    put(engine)


def as_nobody(path: Path) -> list[str]:
    """What a writer says that runs as a user whom permissions bind."""
    code = CODE.format(path=path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture
def open_folder(path: Path):
    """A folder that any user can reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
        Path(folder).chmod(0o755)


CODE = """
import os
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import Put
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.errors import StoreReadOnlyError
import promptkeel.store.sqlite
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
scope = TenantScope.parse("org:acme")
try:
    engine = open_engine("sqlite:///{path}")
    print(len(engine.query_nodes(scope, None, None)))
    engine.apply([Put(MemoryNode(id="n9", scope=scope, label="SOUL:x"))])
except StoreReadOnlyError as error:
    print(error)
"""


@pytest.mark.parametrize("there", [True, False])
def test_a_read_only_folder_is_said(open_folder: Path, there: bool) -> None:
    path = open_folder / "memory.db"
    if there:
        SqliteEngine(f"sqlite:///{path}", clock=system_clock).close()
    open_folder.chmod(0o555)
    before = path.read_bytes() if there else None
    (said,) = as_nobody(path)
    assert "cannot be written to" in said
    assert (path.read_bytes() if there else None) == before


def test_a_read_only_file_is_said(open_folder: Path) -> None:
    path = open_folder / "memory.db"
    SqliteEngine(f"sqlite:///{path}", clock=system_clock).close()
    path.chmod(0o444)
    open_folder.chmod(0o777)
    assert as_nobody(path)[0] == "0", "it can be read"
    assert "cannot be written to" in as_nobody(path)[1]


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreReadOnlyError):
        SqliteEngine(f"sqlite:///{tmp_path}/file/memory.db", clock=system_clock)


def test_missing_folders_are_made(tmp_path: Path) -> None:
    SqliteEngine(f"sqlite:///{tmp_path}/a/b/memory.db", clock=system_clock).close()
    assert (tmp_path / "a" / "b" / "memory.db").exists()


@pytest.fixture
def looking(monkeypatch) -> None:
    """The file is looked at on every call."""
    monkeypatch.setattr(sqlite_connections, "LOOK_INTERVAL", 0.0)


def test_a_file_replaced_by_rename_is_noticed(looking, open_engine, path: Path, tmp_path: Path) -> None:
    engine = open_engine()
    put(engine)
    since = engine.heads(ADA)
    other_path = tmp_path / "other.db"
    other = SqliteEngine(f"sqlite:///{other_path}", clock=system_clock)
    put(other, "n2", "SOUL:likes coffee")
    other.close()
    before = engine.probe()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    other_path.replace(path)
    assert engine.probe() != before
    assert ids(engine) == ["n2"]
    assert engine.heads(ADA).seq == since.seq, "the other store counted as far"
    assert engine.heads(ADA) != since, "but its nonce is another"
    (lane,) = engine.catch_up(ADA, [LaneRequest("SOUL:", since)]).lanes
    assert lane.whole
    put(engine, "n3")
    assert ids(engine) == ["n2", "n3"]


def test_a_restored_backup_is_noticed_and_never_repeats_a_head(
    looking, engine: SqliteEngine, raw: StockClient, path: Path, tmp_path: Path
) -> None:
    put(engine)
    raw.execute("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    put(engine, "n2", "SOUL:after the backup")
    lost = engine.heads(ADA)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    (tmp_path / "backup.db").replace(path)
    assert ids(engine) == ["n1"]
    put(engine, "n2", "SOUL:instead")
    assert engine.heads(ADA).seq == lost.seq
    assert engine.heads(ADA) != lost
    assert engine.changes(ADA, lost, None).changes is None


def test_what_replaces_a_file_is_not_overwritten_by_the_log_of_the_file_before_it(
    looking, engine: SqliteEngine, path: Path, tmp_path: Path
) -> None:
    for number in range(60):
        put(engine, f"n{number}")
    assert path.with_name("memory.db-wal").stat().st_size > 0
    other_path = tmp_path / "other.db"
    other = SqliteEngine(f"sqlite:///{other_path}", clock=system_clock)
    other.apply([Put(MemoryNode(id=f"new {number}", scope=ADA, label=f"SOUL:{number}")) for number in range(300)])
    other.close()
    path.rename(tmp_path / "kept.db")
    other_path.rename(path)
    assert ids(engine) == sorted(f"new {number}" for number in range(300))
    put(engine, "n60")
    engine.close()
    for file, count in ((path, 301), (tmp_path / "kept.db", 60)):
        again = SqliteEngine(f"sqlite:///{file}", clock=system_clock)
        assert len(ids(again)) == count
        assert again.audit().is_healthy
        again.close()


def test_a_snapshot_of_the_file_before_goes_on_and_keeps_its_log_out_of_the_new_one(
    looking, engine: SqliteEngine, path: Path, tmp_path: Path
) -> None:
    put(engine)
    snapshot = engine.open_snapshot()
    for number in range(60):
        put(engine, f"later {number}")
    other_path = tmp_path / "other.db"
    other = SqliteEngine(f"sqlite:///{other_path}", clock=system_clock)
    put(other, "n2")
    other.close()
    other_path.replace(path)
    started = time.monotonic()
    assert ids(engine) == ["n2"]
    assert time.monotonic() - started < 4, "nobody waits for the snapshot"
    assert [node.id for node in snapshot.query_nodes(ADA, None, None)] == ["n1"]
    put(engine, "n3")
    snapshot.close()
    assert ids(engine) == ["n2", "n3"]
    assert engine.audit().is_healthy


def test_a_connection_made_before_anybody_looks_does_not_open_the_file_that_is_new(
    engine: SqliteEngine, path: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(sqlite_connections, "LOOK_INTERVAL", 3600.0)
    put(engine)
    other_path = tmp_path / "other.db"
    other = SqliteEngine(f"sqlite:///{other_path}", clock=system_clock)
    put(other, "n2")
    other.close()
    other_path.replace(path)
    assert ids(engine) == ["n2"], "the scan's connection is new, and so is the file"


def test_a_log_that_came_with_the_new_file_is_kept(looking, engine: SqliteEngine, path: Path, tmp_path: Path) -> None:
    put(engine)
    other_path = tmp_path / "other.db"
    other = SqliteEngine(f"sqlite:///{other_path}", clock=system_clock)
    put(other, "n2")
    for suffix in ("-wal", ""):
        (tmp_path / f"copy.db{suffix}").write_bytes((tmp_path / f"other.db{suffix}").read_bytes())
    other.close()
    for suffix in ("-wal", ""):
        (tmp_path / f"copy.db{suffix}").replace(path.with_name(f"memory.db{suffix}"))
    assert ids(engine) == ["n2"]


def test_a_log_that_nobody_knows_is_refused(
    looking, engine: SqliteEngine, open_engine, path: Path, tmp_path: Path
) -> None:
    put(engine)
    engine.close()
    engine = open_engine()
    engine._connections.before_fork()
    engine._connections.after_fork()
    path.with_name("memory.db-wal").write_bytes(b"whose is this?")
    (tmp_path / "copy.db").write_bytes(path.read_bytes())
    (tmp_path / "copy.db").replace(path)
    with pytest.raises(StoreUnavailableError, match=r"memory\.db-wal may belong to either: end .* delete"):
        ids(engine)
    path.with_name("memory.db-wal").unlink()
    assert ids(engine) == ["n1"]


def test_a_log_that_was_deleted_is_put_back_into_the_file(looking, engine: SqliteEngine, path: Path) -> None:
    put(engine)
    for suffix in ("-wal", "-shm"):
        path.with_name(f"memory.db{suffix}").unlink()
    assert ids(engine) == ["n1"]
    put(engine, "n2")
    assert path.with_name("memory.db-wal").exists()
    assert ids(engine) == ["n1", "n2"]


def test_a_log_that_was_replaced_is_an_error_once_and_then_what_is_there_is_read(
    looking, engine: SqliteEngine, stock_client: StockClient, path: Path
) -> None:
    stock = stock_client.connect(path)
    stock.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    stock.close()
    put(engine)
    snapshot = engine.open_snapshot()
    for suffix in ("-wal", "-shm"):
        path.with_name(f"memory.db{suffix}").unlink()
    stock = stock_client.connect(path)
    stock.execute("CREATE TABLE theirs(x)")
    for _ in range(2):
        with pytest.raises(StoreDamagedError, match=r"log of .* was removed or replaced"):
            put(engine, "n2")
    snapshot.close()
    with pytest.raises(StoreDamagedError, match=r"log of .* was removed or replaced"):
        engine.probe()
    assert [name for (name,) in stock.execute("SELECT name FROM sqlite_schema WHERE name = 'theirs'")] == ["theirs"]
    put(engine, "n2")
    assert "n2" in [node_id for (node_id,) in stock.execute("SELECT id FROM nodes")]
    assert ids(engine) == [node_id for (node_id,) in stock.execute("SELECT id FROM nodes ORDER BY id")]
    stock.close()


def test_a_store_behind_a_link_is_opened_and_stays_where_it_is(
    looking, open_engine, path: Path, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    path.symlink_to(tmp_path / "real" / "store.db")
    engine = open_engine()
    put(engine)
    assert (tmp_path / "real" / "store.db").stat().st_size
    again = open_engine()
    assert ids(again) == ["n1"]
    path.unlink()
    assert ids(engine) == ["n1"]


def test_links_in_a_circle_are_said(path: Path) -> None:
    path.symlink_to(path.with_name("other.db"))
    path.with_name("other.db").symlink_to(path)
    with pytest.raises(NotAStoreError, match="circle"):
        SqliteEngine(f"sqlite:///{path}", clock=system_clock)


@pytest.mark.parametrize("size", [1, 10, 16, 99])
def test_a_file_that_was_cut_off_is_not_called_another_programs(engine: SqliteEngine, path: Path, size: int) -> None:
    engine.close()
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(NotAStoreError, match=f"has {size} bytes, too few .* restore a backup"):
        SqliteEngine(engine.url, clock=system_clock)
    assert path.stat().st_size == size


def test_a_store_cut_off_later_is_damaged_not_foreign(engine: SqliteEngine, path: Path) -> None:
    engine.close()
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(StoreDamagedError, match="restore a backup"):
        SqliteEngine(engine.url, clock=system_clock)


@pytest.mark.parametrize("url", ["sqlite:///a\ud800.db", "sqlite:///a%ff.db"])
def test_an_address_that_is_not_utf_8_is_refused(url: str) -> None:
    with pytest.raises(NotAStoreError, match="UTF-8"):
        SqliteEngine(url, clock=system_clock)


def test_a_file_that_is_gone_is_an_error_until_it_is_back(
    looking, engine: SqliteEngine, raw: StockClient, path: Path, tmp_path: Path
) -> None:
    put(engine)
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    kept = tmp_path / "kept.db"
    path.rename(kept)
    for call in (engine.probe, lambda: engine.heads(ADA), lambda: ids(engine), lambda: put(engine, "n2")):
        with pytest.raises(StoreUnavailableError, match="is gone"):
            call()
    path.write_bytes(b"something else")
    with pytest.raises(NotAStoreError):
        engine.probe()
    assert path.read_bytes() == b"something else"
    path.unlink()
    kept.rename(path)
    assert ids(engine) == ["n1"]


def test_a_closed_store_refuses_and_closing_again_is_nothing(open_engine) -> None:
    engine = open_engine()
    snapshot = engine.open_snapshot()
    engine.close()
    engine.close()
    calls = [
        engine.probe,
        engine.secret,
        engine.open_snapshot,
        lambda: engine.heads(ADA),
        lambda: engine.get(ADA, "n1"),
        lambda: engine.mark("x"),
        lambda: engine.query_nodes(ADA, None, None),
        lambda: engine.catch_up(ADA, []),
        lambda: put(engine),
    ]
    for call in calls:
        with pytest.raises(StoreClosedError):
            call()
    snapshot.close()


def test_the_last_to_close_leaves_one_file(open_engine, path: Path) -> None:
    engine = open_engine()
    put(engine)
    ids(engine)
    engine.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_trimmed_log_is_refused_not_guessed(open_engine, raw: StockClient) -> None:
    engine = open_engine(log_limit=20)
    put(engine)
    seen = []
    for number in range(60):
        engine.apply([Correct(scope=ADA, node_id="n1", label=f"SOUL:{number}")])
        seen.append((engine.heads(ADA), engine.get(ADA, "n1").label))
    first, last = raw.execute("SELECT min(seq), max(seq) FROM changes").fetchone()
    assert 20 <= last - first + 1 <= 22
    assert raw.execute("SELECT min(seq), count(*) FROM versions").fetchone() == (first, last - first + 1)
    known = 0
    for heads, label in seen:
        difference = engine.changes(ADA, heads, None).changes
        if heads.seq < first and heads != engine.heads(ADA):
            assert difference is None
            assert engine.catch_up(ADA, [LaneRequest("SOUL:", heads)]).lanes[0].whole
            with pytest.raises(CompactedError):
                engine.nodes_as_of(ADA, heads, "SOUL:")
        else:
            known += 1
            assert len(difference) == last - heads.seq
            assert [node.label for node in engine.nodes_as_of(ADA, heads, "SOUL:").nodes] == [label]
    assert known >= 20


def test_a_backup_by_sqlite_is_a_store(engine: SqliteEngine, raw: StockClient, tmp_path: Path) -> None:
    put(engine)
    raw.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    copy = SqliteEngine(f"sqlite:///{tmp_path / 'copy.db'}", clock=system_clock)
    assert ids(copy) == ["n1"]
    assert copy.heads(ADA) == engine.heads(ADA)
    copy.close()


def test_an_id_that_no_file_can_hold_is_not_there(engine: SqliteEngine) -> None:
    with pytest.raises(NodeNotFoundError):
        engine.get(ADA, "lone \ud800")
    with pytest.raises(NodeNotFoundError):
        engine.apply([Retract(ADA, "lone \ud800")])


def test_a_trigger_dropped_while_the_store_is_open_is_noticed(engine: SqliteEngine, raw: StockClient) -> None:
    put(engine)
    (sql,) = raw.execute("SELECT sql FROM sqlite_schema WHERE name = 'nodes_delete'").fetchone()
    raw.execute("DROP TRIGGER nodes_delete")
    for call in (engine.open_snapshot, lambda: ids(engine), lambda: put(engine, "n2")):
        with pytest.raises(StoreDamagedError, match="nodes_delete is missing"):
            call()
    raw.execute(sql)
    raw.execute("CREATE TABLE theirs(x)")
    assert ids(engine) == ["n1"], "a table of somebody's own is no harm"


BLOCKS = [PromptBlockSpec(name="USER_PROFILE", source=MemoryLane("SOUL:"), on_failure="fail_closed")]


def test_a_trigger_made_again_without_its_body_is_noticed_and_repaired_as_said(
    engine: SqliteEngine, raw: StockClient
) -> None:
    with blocking.open(engine.url, blocks=BLOCKS) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        assert "prefers tea" in keel.prompt(ADA).text
        raw.execute("BEGIN")
        raw.execute("DROP TRIGGER nodes_insert")
        raw.execute("INSERT INTO nodes(scope, label) VALUES (?, 'SOUL:unseen')", (ADA.path,))
        raw.execute("CREATE TRIGGER nodes_insert AFTER INSERT ON nodes BEGIN SELECT 1; END")
        raw.execute("COMMIT")
        with pytest.raises(BlockResolutionError, match="nodes_insert is not the one that it was made with"):
            keel.prompt(ADA)
        with pytest.raises(StoreDamagedError, match=r"make it again from .*TRIGGERS\['nodes_insert'\]"):
            keel.remember(ADA, "prefers coffee", block="USER_PROFILE")
        raw.execute("DROP TRIGGER nodes_insert")
        raw.execute(sqlite_schema.TRIGGERS["nodes_insert"])
        assert "unseen" in keel.prompt(ADA).text


def test_what_was_written_while_a_trigger_was_off_is_read_though_no_head_has_moved(
    engine: SqliteEngine, raw: StockClient
) -> None:
    with blocking.open(engine.url, blocks=BLOCKS) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        before = keel.prompt(ADA)
        (sql,) = raw.execute("SELECT sql FROM sqlite_schema WHERE name = 'nodes_update'").fetchone()
        raw.execute("BEGIN")
        raw.execute("DROP TRIGGER nodes_update")
        raw.execute("UPDATE nodes SET label = 'SOUL:prefers coffee'")
        raw.execute(sql)
        raw.execute("COMMIT")
        after = keel.prompt(ADA)
        assert "prefers coffee" in after.text
        assert after.heads.levels == before.heads.levels
        assert after.heads != before.heads
        assert keel.store.changes(ADA, before.heads).changes is None
        assert keel.prompt(ADA) is after
        keel.remember(ADA, "likes rain", block="USER_PROFILE")
        assert "likes rain" in keel.prompt(ADA).text
