"""The file itself: addresses, folders, locks, replacement, and the end."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from promptkeel.errors import (
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
from promptkeel.store import sqlite_connections
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
        with pytest.raises(StoreDamagedError, match="nodes_delete"):
            call()
    raw.execute(sql)
    raw.execute("CREATE TABLE theirs(x)")
    assert ids(engine) == ["n1"], "a table of somebody's own is no harm"
