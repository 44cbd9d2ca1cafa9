"""After an erasure no byte of the node is in the file or its log on disk, and a receipt claims no more than that."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.operations import Correct, Erase, Link, Put, Remember
from promptkeel.store.sqlite import SqliteEngine
from store.stock_client import StockClient

ADA = TenantScope.parse("org:acme/user:ada")


def stored_bytes(path: Path) -> bytes:
    """Everything on disk, read by another process: to close a file here would drop SQLite's locks."""
    files = [str(file) for file in path.parent.iterdir() if file.name.startswith(path.name) and "shm" not in file.name]
    return subprocess.run(["cat", *files], capture_output=True, check=True).stdout


def node(node_id: str, label: str, **fields: object) -> MemoryNode:
    return MemoryNode(id=node_id, scope=ADA, label=label, **fields)


@pytest.mark.parametrize("length", [20, 5000])
def test_no_byte_of_an_erased_node_is_left(engine: SqliteEngine, path: Path, length: int) -> None:
    engine.apply([Put(node(f"n{number}", f"SOUL:kept number {number}")) for number in range(300)])
    secret = "SOUL:" + "keeps a parrot " * (length // 15)
    engine.apply([Put(node("gone", secret, properties={"note": "zanzibar " * 30}, source="whistleblower"))])
    engine.apply([Correct(scope=ADA, node_id="gone", label="SOUL:owns a cormorant", source="eavesdropper")])
    engine.apply([Remember(node("gone2", "SOUL:owns a cormorant", source="informant"))])
    engine.apply([Link(MemoryEdge(scope=ADA, start="gone", type="about", end="n1", properties={"why": "stethoscope"}))])
    words = [b"parrot", b"cormorant", b"zanzibar", b"whistleblower", b"eavesdropper", b"informant", b"stethoscope"]
    assert all(word in stored_bytes(path) for word in words)
    (outcome,) = engine.apply([Erase(ADA, "gone")])
    assert outcome.receipt is not None
    assert outcome.receipt.state == "scrubbed"
    assert engine.receipts(ADA) == [outcome.receipt]
    assert [word for word in words if word in stored_bytes(path)] == []


def test_a_reader_of_older_days_keeps_it_unreadable_only(engine: SqliteEngine, path: Path) -> None:
    engine.apply([Put(node("gone", "SOUL:keeps a parrot"))])
    snapshot = engine.open_snapshot()
    (outcome,) = engine.apply([Erase(ADA, "gone")])
    assert outcome.receipt is not None
    assert outcome.receipt.state == "unreadable"
    assert engine.receipts(ADA) == [outcome.receipt]
    assert snapshot.get(ADA, "gone").label == "SOUL:keeps a parrot"
    snapshot.close()


def test_what_another_node_says_too_does_not_count(engine: SqliteEngine) -> None:
    engine.apply([Put(node("stays", "SOUL:keeps a parrot")), Put(node("gone", "SOUL:keeps a parrot"))])
    (outcome,) = engine.apply([Erase(ADA, "gone")])
    assert outcome.receipt is not None
    assert outcome.receipt.state == "scrubbed"


def test_a_node_that_raw_sql_has_kept_elsewhere_is_seen(engine: SqliteEngine, raw: StockClient) -> None:
    engine.apply([Put(node("gone", "SOUL:keeps a parrot"))])
    raw.execute("CREATE TABLE copies AS SELECT label FROM nodes")
    (outcome,) = engine.apply([Erase(ADA, "gone")])
    assert outcome.receipt is not None
    assert outcome.receipt.state == "unreadable", "found by looking"


def test_a_dry_run_scrubs_nothing(engine: SqliteEngine) -> None:
    engine.apply([Put(node("kept", "SOUL:keeps a parrot"))])
    (outcome,) = engine.apply([Erase(ADA, "kept")], dry_run=True)
    assert outcome.receipt is not None
    assert outcome.receipt.state == "unreadable"
    assert engine.get(ADA, "kept").label == "SOUL:keeps a parrot"
    assert engine.receipts(ADA) == []


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE nodes SET source = CAST(x'ff' AS TEXT)",
        """UPDATE nodes SET properties = '{"a":"\\ud800"}'""",
    ],
)
def test_a_node_with_an_unreadable_past_is_erased_and_settled_later(
    engine: SqliteEngine, raw: StockClient, path: Path, damage: str
) -> None:
    engine.apply([Put(node("gone", "SOUL:keeps a parrot"))])
    raw.execute(damage)
    raw.execute("UPDATE nodes SET source = NULL, properties = '{}'")
    (outcome,) = engine.apply([Erase(ADA, "gone")])
    assert outcome.receipt is not None
    assert outcome.receipt.state == "unreadable", "nobody knows what to look for"
    engine.settle_receipts()
    assert [receipt.state for receipt in engine.receipts(ADA)] == ["scrubbed"]
    assert b"parrot" not in stored_bytes(path)
