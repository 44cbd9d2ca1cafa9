"""How a file is searched: a scan of one prefix walks that prefix, whatever lies beside it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import apsw
import pytest

from promptkeel.store.authored import head_label
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import AppendBlock
from promptkeel.store.prefix import prefix_bounds
from promptkeel.store.sqlite_reads import QUERY_SQL, statement
from store.examples import ACME, ADA, SteppingClock


@pytest.fixture
def path(tmp_path: Path, clock: SteppingClock) -> Path:
    found = tmp_path / "memory.db"
    engine = open_engine(f"sqlite:///{found}", clock=clock)
    for number in range(20):
        engine.apply([AppendBlock(scope=ACME, block="RULES", content=f"rule {number}", author="user:ada")])
    engine.close()
    return found


def test_a_prefix_is_bounded_on_both_sides_by_the_key(path: Path) -> None:
    low, high = prefix_bounds(head_label("RULES"))
    text = "EXPLAIN QUERY PLAN " + statement(QUERY_SQL, len(ADA.chain))
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        plan = " ".join(str(row[3]) for row in connection.execute(text, (*ADA.chain, low, high, -1)))
    assert "label>? AND label<?" in plan


def test_the_past_of_a_block_lies_apart_from_its_head(path: Path) -> None:
    low, high = prefix_bounds(head_label("RULES"))
    asked = "SELECT count(*) FROM nodes WHERE scope = ? AND label >= ? AND label < ?"
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        assert connection.execute(asked, (ACME.path, low, high)).get == 1
