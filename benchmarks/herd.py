"""The herd: one write at an organisation with very many warm users below it, and then all of them ask for a prompt.

    python benchmarks/herd.py [--scopes N] [--at-once N] [--stores sqlite,postgres] [--cache-facts N] [--freeze]
        [--json FILE]

The organisation's lane has 50 nodes, each user has 3 of their own. Four passes over all users: cold; warm, with nothing
written; after one write at the organisation; and the bare driver reading the changed row once for each user, on one
connection. Counted are the store's statements, the rows and the bytes of text that came out of it, and the resolver's
renders, and how long the interpreter's garbage collector stopped everything at most. Nothing here asserts.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import apsw
import attrs
import psycopg

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import promptkeel as pk
from memories import rows_of
from promptkeel import blocking
from promptkeel.store.base import CatchUp
from servers import own_postgres

ACME: Final = pk.TenantScope.parse("org:acme")
BLOCKS: Final = [pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:"), on_failure="fail_closed")]
SHARED: Final = 50
OWN: Final = 3
_BATCH: Final = 5_000


@attrs.define
class Counts:
    """What was asked of a store and what came out of it."""

    statements: int = 0
    rows: int = 0
    bytes: int = 0

    def take(self, update: CatchUp | None) -> CatchUp | None:
        """Count what an engine has answered."""
        for lane in () if update is None else update.lanes:
            self.rows += len(lane.rows)
            self.bytes += sum(len(cell) for row in lane.rows for cell in row if isinstance(cell, str))
        return update


@attrs.frozen
class Pass:
    """One pass over all users."""

    store: str
    work: str
    scopes: int
    seconds: float
    longest: float
    statements: int
    rows: int
    bytes: int
    renders: int
    memory: int
    collecting: float = 0.0


@attrs.define
class Collector:
    """How long the garbage collector took at most, in seconds."""

    longest: float = 0.0
    began: float = 0.0

    def watch(self, phase: str, _: dict[str, int]) -> None:
        """A callback of the collector's."""
        if phase == "start":
            self.began = time.perf_counter()
        else:
            self.longest = max(self.longest, time.perf_counter() - self.began)


COLLECTOR: Final = Collector()


def users(count: int) -> list[pk.TenantScope]:
    """The scopes below the organisation."""
    return [ACME.child("user", f"u{number:06d}") for number in range(count)]


def filled(scopes: list[pk.TenantScope]) -> Iterator[tuple[Any, ...]]:
    """Scope path, label, id, source and three instants of every node."""
    shared = [("SOUL:", number) for number in range(SHARED)]
    own = [("SOUL:", 1_000 + number) for number in range(OWN)]
    yield from rows_of(ACME, shared)
    for scope in scopes:
        for row in rows_of(scope, own):
            yield (*row[:2], f"{scope.levels[-1].id}-{row[2]}", *row[3:])


def fill_sqlite(url: str, rows: list[tuple[Any, ...]]) -> None:
    """Put the nodes into a SQLite store, triggers and all."""
    blocking.open_store(url).close()
    client = apsw.Connection(url.removeprefix("sqlite:///"))
    with client:
        client.executemany(
            "INSERT INTO nodes(scope, label, id, source, recorded_at, created_at, updated_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
    client.close()


def fill_postgres(url: str, rows: list[tuple[Any, ...]]) -> None:
    """Put the nodes into a PostgreSQL store, triggers and all."""
    blocking.open_store(url).close()
    with psycopg.connect(url) as client:
        for start in range(0, len(rows), _BATCH):
            columns = zip(*rows[start : start + _BATCH], strict=True)
            client.execute(
                "INSERT INTO promptkeel.nodes(root, scope, label, id, source, recorded_at, created_at, updated_at) "
                "SELECT 'org:acme', * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], "
                "%s::bigint[], %s::bigint[])",
                [list(column) for column in columns],
            )
            client.commit()
        client.execute("ANALYZE promptkeel.nodes, promptkeel.heads, promptkeel.changes")


def count_statements(counts: Counts) -> None:
    """Count what every connection is asked that is opened from now on."""

    def seen(_: object) -> None:
        counts.statements += 1

    apsw.connection_hooks.append(lambda connection: connection.trace_v2(apsw.SQLITE_TRACE_STMT, seen))
    real = psycopg.Connection.execute

    def execute(connection: Any, *arguments: Any, **options: Any) -> Any:
        counts.statements += 1
        return real(connection, *arguments, **options)

    psycopg.Connection.execute = execute  # type: ignore[method-assign]


def count_rows(engine: Any, counts: Counts) -> None:
    """Count what the engine's lane reads answer."""
    for name in ("tail", "catch_up"):
        method = getattr(engine, name)
        setattr(engine, name, lambda *arguments, method=method: counts.take(method(*arguments)))


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def over_all(keel: pk.Keel, scopes: list[pk.TenantScope], at_once: int) -> tuple[float, float]:
    """Ask for every scope's prompt, some at once: the seconds that it took, and the longest wait of one."""
    waiting = iter(scopes)
    longest = 0.0

    async def ask() -> None:
        nonlocal longest
        for scope in waiting:
            began = time.perf_counter()
            await keel.prompt(scope)
            longest = max(longest, time.perf_counter() - began)
            await asyncio.sleep(0)

    began = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(at_once)))
    return time.perf_counter() - began, longest


async def passes(
    store: str, url: str, scopes: list[pk.TenantScope], arguments: argparse.Namespace, counts: Counts
) -> list[Pass]:
    """Every pass with a keel."""
    found = []
    async with pk.open(
        url, blocks=BLOCKS, cache_facts=arguments.cache_facts, cache_bytes=arguments.cache_bytes
    ) as keel:
        count_rows(keel.store.core.engine, counts)
        for work in ("cold", "warm, nothing written", "after one write at the organisation", "warm again"):
            if work.startswith("after"):
                await keel.remember(ACME, "closed on Sundays", block="USER_PROFILE", id="the-write")
            before = (counts.statements, counts.rows, counts.bytes, keel.counters.renders)
            COLLECTOR.longest = 0.0
            seconds, longest = await over_all(keel, scopes, arguments.at_once)
            after = (counts.statements, counts.rows, counts.bytes, keel.counters.renders)
            grown = [now - then for now, then in zip(after, before, strict=True)]
            found.append(Pass(store, work, len(scopes), seconds, longest, *grown, _memory(), COLLECTOR.longest))
            show(found[-1])
            if work == "cold" and arguments.freeze:
                gc.collect()
                gc.freeze()
    return found


def bare(store: str, ask: Callable[[], list[tuple[Any, ...]]], scopes: int) -> Pass:
    """The bare driver reading the changed row for each user."""
    began, longest, size = time.perf_counter(), 0.0, 0
    for _ in range(scopes):
        asked = time.perf_counter()
        size += sum(len(cell) for row in ask() for cell in row if isinstance(cell, str))
        longest = max(longest, time.perf_counter() - asked)
    seconds = time.perf_counter() - began
    return Pass(store, "bare driver, the changed row for each", scopes, seconds, longest, scopes, scopes, size, 0,
                _memory())  # fmt: skip


_COLUMNS: Final = "label, recorded_at, id, scope, source, trust, updated_at"


def measure_sqlite(folder: Path, arguments: argparse.Namespace, counts: Counts) -> list[Pass]:
    """Every pass on SQLite."""
    scopes = users(arguments.scopes)
    path = folder / "herd.db"
    fill_sqlite(f"sqlite:///{path}", list(filled(scopes)))
    found = asyncio.run(passes("sqlite", f"sqlite:///{path}", scopes, arguments, counts))
    client = apsw.Connection(str(path))
    asked = f"SELECT {_COLUMNS} FROM nodes WHERE root = 'org:acme' AND id = 'the-write'"
    found.append(bare("sqlite", lambda: client.execute(asked).fetchall(), len(scopes)))
    show(found[-1])
    client.close()
    return found


def measure_postgres(arguments: argparse.Namespace, counts: Counts) -> list[Pass]:
    """Every pass on PostgreSQL."""
    scopes = users(arguments.scopes)
    with own_postgres(fsync="on", full_page_writes="on", autovacuum="on") as server:
        fill_postgres(server.url, list(filled(scopes)))
        found = asyncio.run(passes("postgres", server.url, scopes, arguments, counts))
        with psycopg.connect(server.url, autocommit=True, prepare_threshold=None) as client:
            asked = f"SELECT {_COLUMNS} FROM promptkeel.nodes WHERE root = 'org:acme' AND id = 'the-write'"
            found.append(bare("postgres", lambda: client.execute(asked).fetchall(), len(scopes)))
            show(found[-1])
    return found


_LINE: Final = "{:<9} {:<38} {:>9} {:>10} {:>12} {:>12} {:>11} {:>13} {:>9} {:>10} {:>11}"


def show(found: Pass) -> None:
    """Print one row."""
    print(
        _LINE.format(
            found.store, found.work, f"{found.seconds:.2f} s", f"{found.seconds / found.scopes * 1e6:.0f} us",
            f"{found.longest * 1e3:.1f} ms", f"{found.statements:,}", f"{found.rows:,}", f"{found.bytes:,}",
            f"{found.renders:,}", f"{found.memory / 2**20:,.0f} MiB", f"{found.collecting * 1e3:.0f} ms",
        ),
        flush=True,
    )  # fmt: skip


def main() -> None:
    """Print every row."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scopes", type=int, default=100_000)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--stores", default="sqlite,postgres", help="sqlite, postgres or both")
    parser.add_argument("--cache-facts", type=int, default=10_000_000, help="what open() is given")
    parser.add_argument("--cache-bytes", type=int, default=2**31, help="what open() is given")
    parser.add_argument("--freeze", action="store_true", help="gc.freeze() after the cold pass, as a host may")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every row to this file")
    arguments = parser.parse_args()
    counts = Counts()
    gc.callbacks.append(COLLECTOR.watch)
    count_statements(counts)
    print(_LINE.format("store", "pass", "total", "each", "longest wait", "statements", "rows read", "bytes read",
                       "renders", "memory",
                       "collecting"))  # fmt: skip
    found: list[Pass] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if "sqlite" in arguments.stores:
            found += measure_sqlite(folder, arguments, counts)
        if "postgres" in arguments.stores:
            found += measure_postgres(arguments, counts)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([attrs.asdict(each) for each in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
