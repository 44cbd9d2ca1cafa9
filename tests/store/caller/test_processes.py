"""Processes with either copy of SQLite, each with transactions of its own, on one file at the same time."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import apsw

from promptkeel import blocking
from promptkeel.upkeep.checking import check
from store.caller.worlds import BLOCKS, SCOPE

TRANSACTIONS = 25

_PROGRAM = """
import contextlib, sqlite3, sys, apsw
from promptkeel import MemoryLane, PromptBlockSpec, StoreBusyError, TenantScope, blocking

url, driver, name, count = sys.argv[1:]
path = url.removeprefix("sqlite:///").partition("?")[0]
scope = TenantScope.parse("org:acme/user:ada")
if driver == "apsw":
    connection = apsw.Connection(path)
    connection.set_busy_timeout(30_000)
    busy = apsw.BusyError
else:
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    busy = sqlite3.OperationalError
blocks = [PromptBlockSpec(name="PROFILE", source=MemoryLane("SOUL:"))]
with blocking.open(url, blocks=blocks) as keel, contextlib.closing(connection):
    bound = keel.on(connection)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(count)):
        text = f"{name} {number}"
        while True:
            connection.execute("BEGIN")
            try:
                if number % 2:
                    connection.execute("INSERT INTO orders VALUES (?)", (text,))
                    bound.remember(scope, text, block="PROFILE")
                else:
                    bound.remember(scope, text, block="PROFILE")
                    connection.execute("INSERT INTO orders VALUES (?)", (text,))
                assert text in [fact.value for fact in bound.facts(scope)]
                connection.execute("ROLLBACK" if number % 3 == 2 else "COMMIT")
                break
            except (StoreBusyError, busy):
                connection.execute("ROLLBACK")
        # Strict, and in every process: what has committed is there, what was rolled back is not.
        assert (text in keel.prompt(scope).text) == (number % 3 != 2), text
print("done")
"""


def test_rows_and_facts_of_four_processes_agree_and_the_file_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    with blocking.open_store(f"sqlite:///{file}"), contextlib.closing(apsw.Connection(str(file))) as connection:
        connection.execute("CREATE TABLE orders(name)")
    with contextlib.ExitStack() as running:
        processes = []
        for place, driver in enumerate(["apsw", "sqlite3", "apsw", "sqlite3"]):
            url = f"sqlite:///{file}?driver={driver}"
            command = [sys.executable, "-c", _PROGRAM, url, driver, f"<{driver}-{place}>", str(TRANSACTIONS)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            running.callback(process.kill)
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            assert process.communicate(timeout=120)[0] == "done\n"
            assert process.returncode == 0
    assert check(f"sqlite:///{file}").findings == ()
    with (
        blocking.open(f"sqlite:///{file}", blocks=BLOCKS) as keel,
        contextlib.closing(apsw.Connection(str(file))) as connection,
    ):
        orders = sorted(name for (name,) in connection.execute("SELECT name FROM orders"))
        assert connection.pragma("integrity_check") == "ok"
        assert sorted(fact.value for fact in keel.facts(SCOPE)) == orders
        assert len(orders) == 4 * sum(number % 3 != 2 for number in range(TRANSACTIONS))
