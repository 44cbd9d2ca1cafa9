"""kill -9 in the middle of an erasure leaves all of it or none; what it leaves can be settled."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from erasure.disk import left_on_disk
from promptkeel.instants import system_clock
from promptkeel.model import MemoryNode
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.store.operations import Put
from promptkeel.store.sqlite import SqliteEngine

X = TenantScope.parse("org:a/user:x")
NODES = 40
KILLS = 40

# Forks an eraser for each line on its input: starting an interpreter each time would take longer than all the rest.
_LAUNCHER = """
import os, sys
from promptkeel.instants import system_clock
from promptkeel.scope import TenantScope
from promptkeel.steps import drive_blocking
from promptkeel.store.facade import StoreCore
from promptkeel.store.sqlite import SqliteEngine
from promptkeel.upkeep.erasing import erase_steps
from promptkeel.upkeep.erasure import EraseAll
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        engine = SqliteEngine("sqlite:///" + {path!r}, clock=system_clock)
        os.write(1, b"%d\\n" % os.getpid())
        drive_blocking(erase_steps(StoreCore(engine), EraseAll(TenantScope.parse(line.strip()))))
        os.write(1, b"done\\n")
        os._exit(0)
    os.waitpid(child, 0)
    os.write(1, b"dead\\n")
"""


@pytest.mark.timeout(120)
def test_a_kill_leaves_all_or_nothing(path: Path) -> None:
    chance = random.Random(3)
    launcher = subprocess.Popen(
        [sys.executable, "-c", _LAUNCHER.format(path=str(path))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert launcher.stdin is not None
    assert launcher.stdout is not None
    outcomes: list[tuple[bool, bool]] = []
    patience = 0.03
    try:
        for kill in range(KILLS):
            scope = X.child("run", str(kill))
            engine = SqliteEngine(f"sqlite:///{path}", clock=system_clock)
            engine.apply(
                [
                    Put(MemoryNode(id=f"k{kill}n{number}", scope=scope, label=f"SOUL:tok{kill}k{number:05d} " * 30))
                    for number in range(NODES)
                ]
            )
            engine.close()
            launcher.stdin.write(scope.path.encode() + b"\n")
            launcher.stdin.flush()
            eraser = int(launcher.stdout.readline())
            # No sleep of a fixed length would meet the erasure: wait for a random time, or for nothing at all.
            select.select([], [], [], chance.random() * patience)
            os.kill(eraser, signal.SIGKILL)
            was_told = False
            while (said := launcher.stdout.readline()) != b"dead\n":
                was_told = was_told or said == b"done\n"
            engine = SqliteEngine(f"sqlite:///{path}", clock=system_clock)
            there = len(engine.stored(scope).nodes)
            receipts = engine.receipts(scope)
            assert (there, len(receipts)) in ((NODES, 0), (0, NODES))
            assert not (was_told and there)
            outcomes.append((there == 0, was_told))
            # However busy the machine is, about half of the kills meet an erasure that is not committed yet.
            patience *= 0.8 if there == 0 else 1.25
            engine.close()
    finally:
        launcher.stdin.close()
        launcher.stdout.close()
        launcher.wait()
    engine = SqliteEngine(f"sqlite:///{path}", clock=system_clock)
    engine.settle_receipts()
    assert {receipt.state for receipt in engine.receipts(DEPLOYMENT, below=True)} == {"scrubbed"}
    engine.close()
    gone = [
        f"tok{kill}k{number:05d}" for kill, (is_gone, _) in enumerate(outcomes) if is_gone for number in range(NODES)
    ]
    assert left_on_disk(path, gone) == []
    assert (False, False) in outcomes, "some kills came before the commit"
    assert (True, False) in outcomes or (True, True) in outcomes, "some came after it"
