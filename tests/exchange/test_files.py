"""A file is replaced whole or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from promptkeel.errors import ExchangeError
from promptkeel.exchange import replace_file

CRASH = """
import os, signal, sys
from promptkeel.exchange import replace_file
with replace_file(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_file_is_there_when_the_block_has_ended_and_so_are_its_folders(tmp_path):
    path = tmp_path / "a" / "b" / "c.jsonl"
    with replace_file(path) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert [each.name for each in path.parent.iterdir()] == ["c.jsonl"]


def test_a_failure_in_the_block_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), replace_file(path) as file:
        file.write({b"new": b"new"}[b"other"])
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["old.jsonl"]


def test_a_killed_process_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_bytes(b"old")
    killed = subprocess.run([sys.executable, "-c", CRASH, str(path)], check=False)
    assert killed.returncode == -9
    assert path.read_bytes() == b"old"


def test_permissions_stay_and_links_are_followed(tmp_path):
    path, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    with replace_file(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path):
    before = os.umask(0o027)
    try:
        with replace_file(tmp_path / "new.jsonl") as file:
            file.write(b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.jsonl").stat().st_mode) == 0o640


@pytest.mark.parametrize("name", ["", "file/below", "\0"])
def test_a_path_that_cannot_be_written_is_named(tmp_path, name):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ExchangeError, match="cannot write"), replace_file(tmp_path / name):
        pytest.fail("there is nothing to write to")


def test_the_order_is_write_sync_rename_sync_of_the_folder(tmp_path, monkeypatch):
    steps = []
    real_fsync, real_rename = os.fsync, os.replace

    def fsync(descriptor):
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        steps.append(f"sync {kind}")
        real_fsync(descriptor)

    def rename(*arguments, **options):
        steps.append("rename")
        real_rename(*arguments, **options)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    with replace_file(tmp_path / "new.jsonl") as file:
        file.write(b"new")
    assert steps == ["sync file", "rename", "sync folder"]
