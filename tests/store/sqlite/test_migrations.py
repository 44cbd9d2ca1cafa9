"""Schema steps: each whole or not at all, newer ones refused, other people's files left alone."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from promptkeel.errors import NewerSchemaError, NotAStoreError, StoreDamagedError
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.store.sqlite_schema import APPLICATION_ID, STEPS, migrate


def tables(connection: apsw.Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def test_steps_are_taken_one_by_one_from_any_version(path: Path, open_engine) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("application_id", APPLICATION_ID)
    for done in range(1, len(STEPS) + 1):
        migrate(connection, "here", STEPS[:done])
        assert connection.pragma("user_version") == done
        known = tables(connection)
        migrate(connection, "here", STEPS[:done])
        assert tables(connection) == known, "taking no step changes nothing"
    connection.close()
    assert open_engine().heads(DEPLOYMENT).seq == 0


def test_an_older_file_is_brought_up_to_date_with_what_it_holds(path: Path, open_engine) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("application_id", APPLICATION_ID)
    migrate(connection, "here", STEPS[:1])
    connection.execute("INSERT INTO nodes(scope, label, id) VALUES ('', 'SOUL:kept', 'n1')")
    connection.close()
    engine = open_engine()
    assert [node.id for node in engine.query_nodes(DEPLOYMENT, None, None)] == ["n1"]
    assert engine.receipts(DEPLOYMENT) == []


def test_testimonies_of_an_older_file_belong_to_the_node_that_they_were_given_about(path: Path, open_engine) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("application_id", APPLICATION_ID)
    migrate(connection, "here", STEPS[:4])
    insert = "INSERT INTO nodes(scope, label, id, created_at) VALUES (?, 'SOUL:x', 'n1', ?)"
    testify = "INSERT INTO testimonies(root, id, number, kind, source, at) VALUES ('org:a', 'n1', ?, 'confirmed', ?, ?)"
    connection.execute(insert, ("org:a/user:x", 10))
    connection.execute(testify, (1, "of x", 11))
    connection.execute("DELETE FROM nodes")
    connection.execute(insert, ("org:a/user:y", 20))
    connection.execute(testify, (2, "of y", 21))
    connection.execute(testify, (3, "of nobody", 5))
    connection.close()
    found = open_engine().history(TenantScope.parse("org:a/user:y"), "n1")
    assert [(said.source, said.scope) for said in found.testimonies] == [("of y", "org:a/user:y")]


def test_a_step_that_fails_leaves_the_version_before_it(path: Path) -> None:
    connection = apsw.Connection(str(path))
    with pytest.raises(apsw.SQLError):
        migrate(connection, "here", (*STEPS[:1], "CREATE TABLE half(x); CREATE TABLE half(x);"))
    assert connection.pragma("user_version") == 1
    assert "half" not in tables(connection)
    assert not connection.in_transaction
    connection.close()


def test_a_process_killed_in_a_step_leaves_the_version_before_it(path: Path, open_engine) -> None:
    code = f"""
import os, apsw
from promptkeel.store.sqlite_schema import STEPS, APPLICATION_ID, migrate
connection = apsw.Connection({str(path)!r})
connection.pragma("application_id", APPLICATION_ID)
connection.pragma("journal_mode", "wal")
connection.create_scalar_function("die", lambda: os.kill(os.getpid(), 9))
migrate(connection, "here", (*STEPS[:1], STEPS[1] + "CREATE TABLE half(x); SELECT die();"))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'half'").fetchall() == []
    connection.close()
    open_engine()


def test_a_newer_file_is_refused(path: Path, open_engine) -> None:
    open_engine().close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    connection.close()
    with pytest.raises(NewerSchemaError, match="upgrade"):
        open_engine()


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_another_programs_database_is_refused_and_not_touched(path: Path, open_engine, mode: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("CREATE TABLE theirs(x)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(NotAStoreError, match="another program's"):
        open_engine()
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("content", [b"x", b"not a database at all" * 100, b"SQLite format 2\0" + bytes(5000)])
def test_a_file_that_is_no_database_is_refused_and_not_touched(path: Path, open_engine, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(NotAStoreError, match="not touched"):
        open_engine()
    assert path.read_bytes() == content


def test_a_folder_is_no_store(path: Path, open_engine) -> None:
    path.mkdir()
    with pytest.raises(NotAStoreError, match="not a file"):
        open_engine()


def test_an_empty_file_and_missing_folders_become_a_store(path: Path, open_engine) -> None:
    path.touch()
    assert open_engine().heads(DEPLOYMENT).seq == 0


def test_a_lost_trigger_is_noticed_when_the_file_is_opened(path: Path, open_engine) -> None:
    open_engine().close()
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER nodes_delete")
    connection.close()
    with pytest.raises(StoreDamagedError, match="nodes_delete"):
        open_engine()


def test_processes_that_open_a_fresh_file_at_once_all_succeed(path: Path) -> None:
    code = f"""
import sys
from promptkeel.store.opening import open_engine
sys.stdin.read(1)
engine = open_engine("sqlite:///{path}")
print(engine.secret().hex())
engine.close()
"""
    for attempt in range(3):
        for file in path.parent.iterdir():
            file.unlink()
        children = [
            subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(4)
        ]
        for child in children:
            child.stdin.write("x")
            child.stdin.flush()
        answers = [child.communicate() for child in children]
        assert [child.returncode for child in children] == [0] * 4, attempt
        assert len({out for out, _ in answers}) == 1, "one store, one secret"
