"""What waking watchers costs a PostgreSQL store: commits a second with 1, 4 and 16 writers, and how soon one is told.

    python benchmarks/postgres_notify.py [--rounds N] [--seconds S]

A server is started as for the tests, but with fsync; pgbench writes single rows, each writer at a scope of its own. The
ways take turns; a figure is the median of the rounds. Nothing here asserts.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from measured import Row
from promptkeel.instants import system_clock
from promptkeel.scope import TenantScope
from promptkeel.store.facade import BlockingStore
from promptkeel.store.postgres import PostgresEngine
from servers import PostgresServer, _unprivileged, own_postgres
from table import print_table

ADA = TenantScope.parse("org:acme/user:ada")
WRITERS = (1, 4, 16)
WRITE = (
    "INSERT INTO promptkeel.nodes(root, scope, label) VALUES ('org:o' || :client_id, 'org:o' || :client_id, 'SOUL:x')"
)
LEASED = "UPDATE promptkeel.meta SET value = '{}' WHERE key = 'watched_until'"
PLAIN = """
CREATE OR REPLACE FUNCTION promptkeel.wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_notify('promptkeel_promptkeel', ''); RETURN NULL; END $$"""
NONE = "no wake trigger"
WAYS = {
    NONE: ("ALTER TABLE promptkeel.transactions DISABLE TRIGGER transactions_wake", "0"),
    "nobody watches": ("SELECT 1", "0"),
    "somebody watches": ("SELECT 1", "9999999999"),
    "every commit notifies": (PLAIN, "9999999999"),
}


def per_second(server: PostgresServer, writers: int, seconds: float) -> float:
    """Commits a second."""
    script = server.folder / "write.sql"
    script.write_text(f"{WRITE};\n")
    script.chmod(0o644)
    command = [server.programs / "pgbench", "-n", "-h", server.folder, "-U", "postgres", "-c", str(writers), "-j", "1"]
    command += ["-T", str(max(1, round(seconds))), "-f", script, "postgres"]
    done = subprocess.run(  # noqa: S603 - pgbench, of the server that was started here
        command, check=True, capture_output=True, text=True, cwd=server.folder, **_unprivileged()
    )
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    assert found
    return float(found[1])


def writing(server: PostgresServer, client: psycopg.Connection[Any], rounds: int, seconds: float) -> list[Row]:
    """A row for each way and number of writers."""
    (wake,) = client.execute("SELECT pg_get_functiondef('promptkeel.wake'::regproc)").fetchone() or ("",)
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for way, (prepared, lease) in WAYS.items():
            client.execute(prepared)
            client.execute(LEASED.format(lease))
            with psycopg.connect(server.url, autocommit=True) as watcher:
                if lease != "0":
                    watcher.execute("LISTEN promptkeel_promptkeel")
                for writers in WRITERS:
                    found.setdefault((way, writers), []).append(per_second(server, writers, seconds))
            client.execute(wake)
            client.execute("ALTER TABLE promptkeel.transactions ENABLE ALWAYS TRIGGER transactions_wake")
    client.execute(LEASED.format("0"))
    rows = []
    for writers in WRITERS:
        base = statistics.median(found[NONE, writers])
        rows.append(Row(work=f"commits a second, {writers} writers", against="", measured=base, unit="/s"))
        for way in [way for way in WAYS if way != NONE]:
            measured = statistics.median(found[way, writers])
            rows.append(
                Row(work=f"a commit: {way}", against=NONE, measured=base / measured, took=1 / measured, base=1 / base)
            )
    return rows


def waking(server: PostgresServer, client: psycopg.Connection[Any], rounds: int) -> list[Row]:
    """How soon a watcher is told of a commit that another client made, with LISTEN and by the poll alone."""
    rows = []
    for listens in (True, False):
        engine = PostgresEngine(server.url, clock=system_clock, listen=listens)
        told: list[float] = []
        asked = threading.Event()
        watch = BlockingStore(engine).watch(ADA, "SOUL:")
        next(watch)
        while listens and not engine._listener.is_listening:  # noqa: SLF001 - nobody else says it
            time.sleep(0.001)
        for number in range(rounds * 10):
            asked.clear()

            def wait(asked: threading.Event = asked) -> None:
                asked.set()
                next(watch)  # noqa: B023 - it ends before the next engine
                told.append(time.perf_counter())  # noqa: B023 - as above

            thread = threading.Thread(target=wait)
            thread.start()
            asked.wait()
            time.sleep(0.01 + 0.024 * (number % 10))
            client.execute(
                "INSERT INTO promptkeel.nodes(root, scope, label) VALUES ('org:acme', %s, 'SOUL:x')", (ADA.path,)
            )
            begun = time.perf_counter()
            thread.join()
            told[-1] -= begun
        how = "with LISTEN" if listens else "by the poll alone"
        delay = statistics.median(told) * 1e3
        rows.append(Row(work=f"from a commit elsewhere to the watcher, {how}", against="", measured=delay, unit="ms"))
        engine.close()
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    with own_postgres(fsync="on", full_page_writes="on") as server:
        PostgresEngine(server.url, clock=system_clock).close()
        with psycopg.connect(server.url, autocommit=True) as client:
            rows = writing(server, client, arguments.rounds, arguments.seconds)
            rows += waking(server, client, arguments.rounds)
    print_table(rows)


if __name__ == "__main__":
    main()
