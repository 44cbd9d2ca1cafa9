"""A store on the SQLite that Python is linked with: what its file is, how it is copied, and that erased bytes go."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import warnings
from pathlib import Path

import apsw
import pytest

from promptkeel import (
    NotAStoreError,
    StoreBusyError,
    StoreDamagedError,
    StoreUnavailableError,
    TenantScope,
    blocking,
)
from promptkeel.instants import system_clock
from promptkeel.store.base import Engine
from promptkeel.store.opening import open_engine
from promptkeel.store.sqlite_schema import STEPS
from promptkeel.store.sqlite_standard import _named, _statements, over
from promptkeel.upkeep.backup import back_up, restore
from promptkeel.upkeep.checking import check
from store.examples import ADA, node


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def url(file: Path) -> str:
    return f"sqlite:///{file}?driver=sqlite3"


@contextlib.contextmanager
def opened(url: str, **options):
    with blocking.open_store(url, **options) as store:
        yield store


def test_the_file_is_the_same_as_with_the_other_library(file, url):
    with opened(url) as store:
        store.put(node())
        heads = store.heads(ADA)
    with opened(f"sqlite:///{file}") as store:
        assert store.heads(ADA) == heads
        assert store.get(ADA, "n1").label == node().label
        store.put(node("n2", "SOUL:lives in Turin"))
    with opened(url) as store:
        assert [each.id for each in store.query_nodes(ADA)] == ["n2", "n1"]
    assert check(url).findings == ()


def test_apsw_opens_nothing_of_it(url, monkeypatch):
    def refuse(*arguments: object, **_: object) -> None:
        raise AssertionError(f"apsw opened {arguments}")

    with opened(url) as store:
        store.put(node())
    monkeypatch.setattr(apsw, "Connection", refuse)
    monkeypatch.setattr(apsw, "VFSFile", refuse)
    with opened(url) as store:
        store.put(node("n2", "SOUL:a secret text"))
        assert store.erase(ADA, "n2").state == "scrubbed"
        store.settle_receipts()


@pytest.mark.parametrize("content", [b"x", b"SQLite format 3\0" + b"\0" * 40, b"no database at all\n" * 100])
def test_what_is_no_database_is_refused_and_not_touched(file, url, content):
    file.write_bytes(content)
    with pytest.raises(NotAStoreError, match="not touched"):
        open_engine(url)
    assert file.read_bytes() == content
    assert [each.name for each in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_the_database_of_another_program_is_refused_and_not_touched(file, url, mode):
    with contextlib.closing(sqlite3.connect(file)) as other:
        other.execute(f"PRAGMA journal_mode = {mode}")
        other.execute("CREATE TABLE theirs(x)")
        other.commit()
    content = file.read_bytes()
    with pytest.raises(NotAStoreError, match="another program's SQLite database; it was not touched"):
        open_engine(url)
    assert file.read_bytes() == content
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_a_store_that_was_cut_off_is_damaged(file, url):
    with opened(url) as store:
        store.put(node())
    file.write_bytes(file.read_bytes()[:8192])
    with pytest.raises(StoreDamagedError):
        open_engine(url)


def test_looking_at_the_header_loses_no_lock(file, url):
    with opened(url), contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        # Opening a second handle reads the header of a file that is locked by this very process.
        with opened(url, busy_timeout=0.05) as again, pytest.raises(StoreBusyError):
            again.put(node())
        connection.execute("ROLLBACK")


def test_an_erased_text_is_in_no_byte_once_it_is_scrubbed(file, url):
    with opened(url) as store:
        for number in range(200):
            store.put(node(f"n{number}", f"SOUL:a fact of no importance {number}"))
        store.put(node("told", "SOUL:the marked secret of this test"))
        assert b"the marked secret" in file.read_bytes() + file.with_name("memory.db-wal").read_bytes()
        assert store.erase(ADA, "told").state == "scrubbed"
        for path in file.parent.iterdir():
            assert b"the marked secret" not in path.read_bytes(), path


def test_too_much_to_look_through_waits_for_settling(url, monkeypatch):
    monkeypatch.setattr("promptkeel.store.sqlite_standard.MOST_READ", 1000)
    with opened(url) as store:
        store.put(node("told", "SOUL:the marked secret of this test"))
        assert store.erase(ADA, "told").state == "unreadable"
        store.settle_receipts()
        assert [each.state for each in store.receipts(ADA)] == ["scrubbed"]


def test_a_backup_and_its_restoring(file, url, tmp_path):
    engine: Engine = open_engine(url, clock=system_clock)
    with contextlib.closing(engine), opened(url) as store:
        store.put(node())
        seen = []
        back_up(engine, tmp_path / "copy.db", on_progress=lambda *done: seen.append(done))
        assert seen[-1][0] == seen[-1][1] > 0
        store.put(node("n2", "SOUL:later"))
        restore(tmp_path / "copy.db", url)
        assert [each.id for each in store.query_nodes(ADA)] == ["n1"]


def test_text_that_is_not_utf8_costs_that_one_row(file, url):
    with opened(url) as store:
        store.put(node())
        with contextlib.closing(sqlite3.connect(file)) as raw:
            raw.execute("UPDATE nodes SET label = CAST(x'534f554c3aff' AS TEXT)")
            raw.commit()
        scope = TenantScope.parse(ADA.path)
        with pytest.raises(StoreDamagedError, match="is not UTF-8"):
            store.get(scope, "n1")


def test_a_log_that_was_replaced_is_said(file, url):
    with opened(url) as store:
        store.put(node())
        log = file.with_name("memory.db-wal")
        log.rename(log.with_name("taken"))
        log.write_bytes(b"somebody else's")
        store.core.engine._connections._next_look = 0.0
        with pytest.raises(StoreUnavailableError):
            store.put(node("n2", "SOUL:later"))
        if sys.version_info < (3, 12):
            # The library cannot let go of a log without writing it back.
            with pytest.raises(StoreDamagedError, match="end this process"):
                open_engine(url)


def test_every_step_of_the_schema_is_taken_apart_at_its_ends():
    for step in STEPS:
        statements = _statements(step)
        assert "".join("".join(statements).split()) == "".join(step.split())
        assert all(sqlite3.complete_statement(each) for each in statements)
        assert sum(each.count("CREATE TRIGGER") for each in statements) == step.count("CREATE TRIGGER")
        assert all(each.count("CREATE TRIGGER") <= 1 for each in statements)


def test_numbered_parameters_mean_what_they_mean_to_sqlite():
    with contextlib.closing(sqlite3.connect(":memory:")) as raw, warnings.catch_warnings():
        warnings.simplefilter("error")
        connection = over(raw)
        asked = "SELECT ?, ?1, ?, '?1 ''?', \"?\", ?3, ? FROM (SELECT 5 AS \"?\")"
        assert connection.execute(asked, ("a", "b", "c", "d")).fetchone() == ("a", "a", "b", "?1 '?", 5, "c", "d")
    assert _named("SELECT ? AND ?") == "SELECT ? AND ?"
