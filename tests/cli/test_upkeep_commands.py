"""The commands that keep a store: what they print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store.stock_client import StockClient

STORE = "promptkeel.db"


@pytest.fixture
def raw():
    with StockClient() as client:
        yield lambda statement: client.run(Path(STORE), statement)


def test_a_healthy_store_is_said_to_be(call, remembered):
    remembered("prefers tea")
    found = call("check")
    assert (found.code, found.out.startswith("healthy: 1 nodes")) == (0, True)
    assert call("check", "--json").document["healthy"] is True


def test_damage_is_listed_with_what_to_do_and_is_exit_code_1(call, remembered, raw):
    remembered("prefers tea")
    raw("DELETE FROM heads")
    found = call("check")
    assert found.code == 1
    assert "head_missing" in found.out
    assert "copy the store into a new one" in found.out
    (finding,) = call("check", "--json").document["findings"]
    assert set(finding) == {"kind", "where", "what", "remedy"}


def test_a_store_that_would_not_open_is_checked_too(call, remembered, raw):
    remembered("prefers tea")
    raw("DROP TRIGGER nodes_delete")
    assert "schema_missing" in call("check").out


@pytest.mark.parametrize("name", ["check", "compact", "backup", "copy"])
def test_where_there_is_no_store_none_is_made(call, name):
    arguments = {"backup": ["copy.db"], "copy": ["copy.db"], "compact": ["--keep-changes", "1"]}.get(name, [])
    assert call(name, *arguments).code == 4
    assert not Path(STORE).exists()
    assert not Path("copy.db").exists()


def test_what_is_beyond_the_retention_is_forgotten(call, remembered):
    for number in range(5):
        remembered(f"says {number}")
    assert call("compact").code == 2
    assert call("compact", "--keep-changes", "2", "--remember", "--json").document == {"forgotten": 3}
    remembered("says more")
    assert call("compact", "--step", "1").out == "forgot 1 changes and the versions that they ended\n"
    assert call("compact", "--keep-age", "30d").code == 0
    assert call("compact", "--keep-age", "soon").code == 2
    assert call("compact", "--remember").code == 2


def test_a_backup_is_put_back_without_what_was_erased_since(call, at, remembered):
    node_id, kept = remembered("prefers tea"), remembered("has two children")
    assert call("backup", "backups/memory.backup").code == 0
    assert at("erase", node_id, "--yes").code == 0
    late = remembered("said later")
    found = call("restore", "backups/memory.backup", "--yes", "--json")
    assert found.document["reapplied"] == 1
    there = {line["id"] for line in call("export", "--json").document["lines"]}
    assert there == {kept}
    assert late not in there


def test_receipts_from_outside_are_applied_to_a_new_store(call, remembered):
    node_id = remembered("prefers tea")
    call("backup", "memory.backup")
    receipt = {"node_id": node_id, "scope": "org:acme/user:u1", "at": "2099-01-01T00:00:00Z", "state": "unreadable"}
    Path("receipts").write_text(json.dumps({**receipt, "versions": 0, "edges": 0, "testimonies": 0}) + "\n")
    found = call("restore", "memory.backup", "--store", "new.db", "--receipts", "receipts", "--json")
    assert found.document["reapplied"] == 1
    assert call("export", "--store", "new.db", "--json").document["lines"] == []


def test_a_restore_asks_first(process, remembered, call):
    remembered("prefers tea")
    call("backup", "memory.backup")
    remembered("said later")
    assert process("restore", "memory.backup", stdin="n\n").code == 130
    assert call("check", "--json").document["counts"]["nodes"] == 2
    assert process("restore", "memory.backup", stdin="y\n").code == 0
    assert call("check", "--json").document["counts"]["nodes"] == 1


def test_a_copy_holds_the_same_lanes(call, at, remembered):
    remembered("prefers tea")
    found = call("copy", "copy.db", "--json")
    assert (found.document["nodes"], found.document["left_out"]) == (1, [])
    assert found.document["lanes"] == 2
    assert at("facts", "--store", "copy.db", "--json").document == at("facts", "--json").document
    again = call("copy", "copy.db")
    assert (again.code, "not empty" in again.err) == (1, True)
