"""Receipts outlive a restored backup; an erased id comes back only by force."""

from __future__ import annotations

import io
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from erasure.disk import left_on_disk
from erasure.test_what_goes import A, X, erase, keep, left
from erasure.worlds import build, everything
from promptkeel.errors import ExchangeError, NodeErasedError
from promptkeel.exchange import ImportSettings, JsonLines, import_steps
from promptkeel.instants import system_clock
from promptkeel.model import MemoryNode
from promptkeel.scope import DEPLOYMENT
from promptkeel.steps import drive_blocking
from promptkeel.store.base import Engine, Receipt
from promptkeel.store.facade import StoreCore
from promptkeel.store.operations import Erase, Put
from promptkeel.store.sqlite import SqliteEngine
from promptkeel.upkeep.erasing import reapply, receipt_steps
from promptkeel.upkeep.erasure import EraseAll
from promptkeel.upkeep.receipts import read_receipts, receipt_lines


def bring_back(engine: Engine, node_id: str, label: str) -> None:
    engine.apply([Put(MemoryNode(id=node_id, scope=X, label=label), force_erased=True)])


def test_a_restored_backup_forgets_what_was_erased_since(tmp_path: Path) -> None:
    live = SqliteEngine(f"sqlite:///{tmp_path / 'live.db'}", clock=system_clock)
    world = build(live, random.Random(5), size=20)
    live.apply([Erase(world.nodes["org:a", "n1"].scope, "n1")] if ("org:a", "n1") in world.nodes else [])
    live.close()
    shutil.copy(tmp_path / "live.db", tmp_path / "restored.db")
    live = SqliteEngine(f"sqlite:///{tmp_path / 'live.db'}", clock=system_clock)
    keep(live, "late", "SOUL:came after the backup")
    request = EraseAll(A, below=True)
    gone = world.expected(request)
    erase(live, request)
    after, receipts = everything(live), live.receipts(DEPLOYMENT, below=True)
    live.close()
    restored = SqliteEngine(f"sqlite:///{tmp_path / 'restored.db'}", clock=system_clock)
    assert reapply(restored, receipts)
    assert everything(restored) == after
    with pytest.raises(NodeErasedError):
        keep(restored, "late", "SOUL:came after the backup")
    restored.settle_receipts()
    assert sorted(restored.receipts(DEPLOYMENT, below=True), key=repr) == sorted(receipts, key=repr)
    restored.close()
    assert left_on_disk(tmp_path / "restored.db", world.tokens(gone)) == []


def test_applying_receipts_again_does_nothing(engine: Engine) -> None:
    keep(engine, "n", "SOUL:tea")
    keep(engine, "stays", "SOUL:coffee")
    receipt = erase(engine, EraseAll(X))
    keep(engine, "new", "SOUL:milk")
    before, heads = everything(engine), engine.heads(X)
    assert reapply(engine, [receipt, *receipt.receipts]) == 0
    assert everything(engine) == before
    assert engine.heads(X).levels == heads.levels


def test_what_was_brought_back_on_purpose_stays(engine: Engine, clock: Any) -> None:
    keep(engine, "n", "SOUL:tea")
    receipt = erase(engine, EraseAll(X))
    clock.tick()
    bring_back(engine, "n", "SOUL:tea again")
    assert reapply(engine, [receipt]) == 0
    assert left(engine) == ["n"]


def test_what_was_brought_back_can_be_erased_again(engine: Engine, clock: Any) -> None:
    keep(engine, "n", "SOUL:tea")
    first = erase(engine, EraseAll(X))
    clock.tick()
    bring_back(engine, "n", "SOUL:tea again")
    heads = engine.heads(X)
    clock.tick()
    second = erase(engine, EraseAll(X))
    assert left(engine) == []
    assert engine.nodes_as_of(X, heads, None).erased == ("n",)
    assert engine.receipts(X) == [*first.receipts, *second.receipts], "each erasure keeps its receipt"


def test_receipts_make_the_journey_through_a_file(fresh: Callable[[], Engine]) -> None:
    engine, other = fresh(), fresh()
    keep(engine, "n", "SOUL:tea")
    keep(engine, "alone", "HEALTH:well")
    keep(other, "n", "SOUL:tea")
    keep(other, "stays", "SOUL:stays")
    single = engine.apply([Erase(X, "alone")])[0].receipt
    receipts: list[Any] = [single, erase(engine, EraseAll(X))]
    lines = list(receipt_lines(receipts))
    assert read_receipts(lines) == receipts
    assert reapply(other, read_receipts(lines)) == 2
    assert left(other) == ["stays"]
    known = drive_blocking(receipt_steps(StoreCore(other), receipts[1].request))
    assert (known.kind, known.scope, known.at) == ("scope", X.path, receipts[1].at)


@pytest.mark.parametrize("line", ["{}", "[]", "x", '{"scope": "org", "at": "2026-01-01"}', "[" * 100_000])
def test_a_line_that_is_no_receipt_is_named(line: str) -> None:
    with pytest.raises(ExchangeError, match="line 2"):
        read_receipts(["", line])


def test_an_erased_id_is_imported_by_force_only(engine: Engine) -> None:
    keep(engine, "n", "SOUL:tea")
    erase(engine, EraseAll(X))
    with pytest.raises(NodeErasedError, match="force_erased"):
        keep(engine, "n", "SOUL:tea")
    line = b'{"scope": "org:a/user:x", "id": "n", "label": "SOUL:tea"}\n'
    for force, expected in ((False, []), (True, ["n"])):
        report = drive_blocking(
            import_steps(StoreCore(engine), io.BytesIO(line), JsonLines(), ImportSettings(force_erased=force))
        )
        assert report.inserted == len(expected)
        assert left(engine) == expected
    assert isinstance(engine.receipts(X)[0], Receipt), "that it was erased once is still known"
