"""kill -9 at random moments of a writer: every acknowledged batch is there, and no batch is half there."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from promptkeel.instants import system_clock
from promptkeel.store.sqlite import SqliteEngine
from store.sqlite.ledger import batch, last_batch

KILLS = 200

# Forks a writer for each number on its input: starting an interpreter each time would take longer than all the rest.
_LAUNCHER = """
import os, sys
sys.path.insert(0, {tests!r})
from promptkeel.instants import system_clock
from promptkeel.store.sqlite import SqliteEngine
from store.sqlite.ledger import batch
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        engine = SqliteEngine("sqlite:///" + {path!r}, clock=system_clock)
        os.write(1, b"%d\\n" % os.getpid())
        number = int(line)
        while True:
            engine.apply(batch(number))
            os.write(1, b"%d\\n" % number)
            number += 1
    os.waitpid(child, 0)
    os.write(1, b"dead\\n")
"""


@pytest.mark.timeout(120)
def test_no_kill_loses_what_was_acknowledged(path: Path) -> None:
    chance = random.Random(11)
    code = _LAUNCHER.format(tests=str(Path(__file__).parents[2]), path=str(path))
    engine = SqliteEngine(f"sqlite:///{path}", clock=system_clock)
    engine.apply(batch(0))
    engine.close()
    launcher = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    last = 0
    between = 0
    try:
        for kill in range(KILLS):
            launcher.stdin.write(b"%d\n" % (last + 1))
            launcher.stdin.flush()
            writer = int(launcher.stdout.readline())
            # No sleep of a fixed length would meet a write: wait for a random time, or for nothing at all.
            select.select([], [], [], chance.random() * 0.02)
            os.kill(writer, signal.SIGKILL)
            told = last
            while (said := launcher.stdout.readline()) != b"dead\n":
                told = int(said)
            engine = SqliteEngine(f"sqlite:///{path}", clock=system_clock)
            there = last_batch(engine) if kill % 10 == 9 or kill < 5 else count_of(engine)
            engine.close()
            assert told <= there <= told + 1
            between += there != told
            last = there
    finally:
        launcher.stdin.close()
        launcher.stdout.close()
        launcher.wait()
    assert last > KILLS / 2, "the writers got to write"
    assert between > 0, "some kills fell between a commit and its acknowledgement"


def count_of(engine: SqliteEngine) -> int:
    """The last batch that is there, checked to be whole, without reading every one before it."""
    with engine._connections.reading() as connection:
        assert connection.pragma("quick_check") == "ok"
        last = connection.execute("SELECT CAST(substr(label, 7) AS INTEGER) FROM nodes WHERE id = 'counter'").get
        counts = connection.execute(
            "SELECT (SELECT count(*) FROM nodes), (SELECT count(*) FROM versions), (SELECT count(*) FROM changes), "
            "(SELECT max(seq) FROM changes), (SELECT max(seq) FROM heads)"
        ).fetchall()[0]
        ends = {
            row[0] for row in connection.execute("SELECT id FROM nodes WHERE id IN (?, ?)", (f"a{last}", f"b{last}"))
        }
    assert counts == (1 + 2 * last, last, 1 + 3 * last, 1 + 3 * last, 1 + 3 * last)
    assert last == 0 or len(ends) == 2
    return last
