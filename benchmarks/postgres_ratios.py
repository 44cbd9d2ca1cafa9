"""What the PostgreSQL store costs, as ratios against the bare driver doing the same SQL in the same run.

    python benchmarks/postgres_ratios.py [--pairs N] [--seconds S]

A server is started as for the tests, but with fsync. The bare table has the same columns, partitions and indexes, and
no triggers. Nothing here asserts.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from pairs import compare, repeated
from promptkeel.instants import system_clock
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.operations import Put
from promptkeel.store.postgres import PostgresEngine
from promptkeel.store.postgres_schema import PARTITIONS
from servers import own_postgres

ADA = TenantScope.parse("org:acme/user:ada")
INSERT = "INSERT INTO {}(root, scope, label, id) VALUES ('org:acme', %s, %s, gen_random_uuid()::text)"
BULK = """INSERT INTO {}(root, scope, label)
SELECT 'org:acme', 'org:acme/user:b', 'SOUL:' || number FROM generate_series(1, {}) AS number"""
ROWS = 5000


def bare_table(client: psycopg.Connection[Any]) -> None:
    """A table like ``nodes``, without triggers."""
    client.execute("CREATE TABLE bare (LIKE promptkeel.nodes INCLUDING ALL) PARTITION BY HASH (root)")
    for number in range(PARTITIONS):
        bounds = f"FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number})"
        client.execute(f"CREATE TABLE bare_{number} PARTITION OF bare {bounds}")
    client.execute("CREATE INDEX ON bare(scope, left(label, 128), id) WHERE state = 'live'")
    client.execute("CREATE INDEX ON bare(scope) WHERE state <> 'live'")


def show(name: str, subject: Callable[[], object], base: Callable[[], object], pairs: int) -> None:
    """One row: how many times as long the subject takes."""
    found = compare(repeated(subject), repeated(base), pairs)
    print(f"{name:<58} {found.ratio:>6.2f}   {found.subject * 1e6:>9.0f} us {found.base * 1e6:>9.0f} us")


def per_second(writers: list[Callable[[int], object]], seconds: float) -> float:
    """How often all writers together get through, each in a thread."""
    counts = [0] * len(writers)
    end = time.monotonic() + seconds

    def write(which: int) -> None:
        for number in itertools.count():
            if time.monotonic() >= end:
                return
            writers[which](number)
            counts[which] += 1

    threads = [threading.Thread(target=write, args=(which,)) for which in range(len(writers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def main() -> None:
    """Print every row."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    with own_postgres(fsync="on", full_page_writes="on", autovacuum="on") as server:
        engine = PostgresEngine(server.url, clock=system_clock, pool_size=20)
        engine.apply([Put(MemoryNode(id=f"n{number}", scope=ADA, label=f"SOUL:{number}")) for number in range(200)])
        clients = [psycopg.connect(server.url, autocommit=True, prepare_threshold=None) for _ in range(16)]
        client = clients[0]
        bare_table(client)
        numbers = itertools.count()
        print(f"{'':<58} {'ratio':>6}   {'subject':>12} {'base':>12}")
        select = "select 1"
        show("heads probe, against select 1 on a bare connection", lambda: engine.heads(ADA),
             lambda: client.execute(select).fetchall(), arguments.pairs)  # fmt: skip
        show("heads probe, against select 1 on the same pool", lambda: engine.heads(ADA),
             lambda: engine._connections.short(lambda lent: lent.execute(select).fetchall()),  # noqa: SLF001 - the floor
             arguments.pairs)  # fmt: skip

        def one(table: str) -> Callable[[], object]:
            return lambda: client.execute(INSERT.format(table), ("org:acme/user:w", f"SOUL:{next(numbers)}"))

        show("insert, one by one with fsync", one("promptkeel.nodes"), one("bare"), arguments.pairs)
        few = max(3, arguments.pairs // 5)
        show(f"insert of {ROWS} rows in one statement", lambda: client.execute(BULK.format("promptkeel.nodes", ROWS)),
             lambda: client.execute(BULK.format("bare", ROWS)), few)  # fmt: skip
        changed = "UPDATE {} SET source = clock_timestamp()::text WHERE scope = 'org:acme/user:b'"
        show("update of them in one statement", lambda: client.execute(changed.format("promptkeel.nodes")),
             lambda: client.execute(changed.format("bare")), few)  # fmt: skip
        print(f"\n{'transactions a second':<40} {'bare':>8} {'triggers':>9} {'engine':>8}")
        for count, distinct in itertools.product((1, 4, 16), (True, False)):
            rates = []
            for table in ("bare", "promptkeel.nodes"):
                text = INSERT.format(table)
                writers = [
                    lambda number, which=which, text=text, distinct=distinct: clients[which].execute(
                        text, (f"org:acme/user:s{which * distinct}", f"SOUL:{number}")
                    )
                    for which in range(count)
                ]
                rates.append(per_second(writers, arguments.seconds))  # type: ignore[arg-type]
            scopes = [ADA.parent.child("user", f"e{which * distinct}") for which in range(count)]
            puts = [
                lambda _, scope=scope: engine.apply(
                    [Put(MemoryNode(id=f"e{next(numbers)}", scope=scope, label="SOUL:x"))]
                )
                for scope in scopes
            ]
            rates.append(per_second(puts, arguments.seconds))  # type: ignore[arg-type]
            name = f"{count} writers on {'scopes of their own' if distinct else 'one scope'}"
            print(f"{name:<40} {rates[0]:>8.0f} {rates[1]:>9.0f} {rates[2]:>8.0f}")
        engine.close()


if __name__ == "__main__":
    main()
