"""No command writes a file in the place of the store that it reads, whatever the file is called."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from promptkeel.blocking import open_store
from promptkeel.scope import TenantScope

SCOPE = "org:acme/user:u1"
STORE = "promptkeel.db"
SUFFIXES = ("", "-wal", "-shm", "-journal")
COMMANDS = {
    "export": ("export", "--output"),
    "erase": ("erase", "--scope", SCOPE, "--below", "--yes", "--export"),
    "import": ("import", "memory.jsonl", "--rejects"),
    "backup": ("backup",),
    "copy": ("copy",),
}


def looks(folder):
    """Which files there are: to open the store's own would take the locks of this process away."""
    found = {path.name: path.lstat() for path in folder.iterdir()}
    return {name: (each.st_ino, each.st_size, each.st_mtime_ns) for name, each in found.items()}


@pytest.fixture
def kept(folder, remembered):
    """A store in use, with a file to import beside it."""
    remembered("prefers tea")
    (folder / "memory.jsonl").write_text(json.dumps({"scope": SCOPE, "label": "SOUL:new"}) + "\n{\n")
    with open_store(f"sqlite:///{STORE}") as store:
        store.heads(TenantScope.parse(SCOPE))
        yield folder


def check_refused(call, folder, command, path):
    before = looks(folder)
    found = call(*COMMANDS[command], str(path))
    assert (found.code, found.out, found.err.count("\n")) == (2, "", 1), found.err
    assert f"{path}, which belongs to the store; name another file" in found.err
    assert looks(folder) == before


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("command", COMMANDS)
def test_the_files_of_the_store_are_no_place_to_write_to(call, kept, command, suffix):
    check_refused(call, kept, command, STORE + suffix)
    check_refused(call, kept, command, kept / "." / (STORE + suffix))


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_link_to_a_file_of_the_store_is_that_file(call, kept, command, suffix, link):
    link(kept / (STORE + suffix), kept / "link")
    check_refused(call, kept, command, "link")


def test_a_store_that_is_named_by_a_link_is_known_by_its_own_name(call, kept, monkeypatch):
    Path("elsewhere").mkdir()
    Path("elsewhere/named.db").symlink_to(kept / STORE)
    monkeypatch.setenv("PROMPTKEEL_STORE", "elsewhere/named.db")
    before = looks(kept)
    for path in (STORE, STORE + "-wal", "elsewhere/named.db"):
        assert call("export", "--output", path).code == 2
    assert looks(kept) == before


def test_where_the_store_is_to_be_made_no_rejected_lines_go(call, folder):
    (folder / "memory.jsonl").write_text("{\n")
    assert call("import", "memory.jsonl", "--rejects", STORE).code == 2
    assert call("import", "memory.jsonl", "--store", "memory.jsonl.rejected.jsonl").code == 2
    assert [path.name for path in folder.iterdir()] == ["memory.jsonl"]


@pytest.mark.parametrize("command", COMMANDS)
def test_another_file_beside_the_store_is_written(call, kept, command):
    assert call(*COMMANDS[command], STORE + ".other").code in (0, 3)
    assert Path(STORE + ".other").stat().st_size or command == "erase"
    assert call("check").code == 0
