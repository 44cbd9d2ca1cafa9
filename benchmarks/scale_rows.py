"""The rows of ``scale``: what is done to a store and to the bare driver, for SQLite and for PostgreSQL alike.

A ``Side`` is one kind of store: it makes stores with many scopes by plain SQL (the triggers do the rest), and answers
the bare statements that the rows are compared with.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import apsw
import attrs

import promptkeel as pk
from measured import Row
from memories import INSERT, connect, statement, url_of
from pairs import compare, repeated
from postgres_ratios import bare_table
from promptkeel import blocking
from promptkeel.model import MemoryNode
from promptkeel.store.operations import Put
from servers import PostgresServer, own_standby

NODES: Final = 50
"""Nodes of each scope."""
ROOT: Final = "org:acme"
_PREFIX: Final = "SOUL:"
_ASKED: Final = 499
"""So many scopes, spread over all of them, are asked in turn."""
_BATCH: Final = 5_000
_CHUNK: Final = 5_000
_LANES: Final = (pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane(_PREFIX)),)


@attrs.frozen(kw_only=True)
class Scale:
    """How much of everything.

    Attributes:
        few: scopes of the small store.
        many: scopes of the large store.
        facts: how many are imported.
        seconds: how long writers go on.
        pairs: of each ratio.
        say: tells what is being done.
    """

    few: int
    many: int
    facts: int
    seconds: float
    pairs: int
    say: Callable[[str], object]


class Bare(Protocol):
    """The bare driver on a store's own tables."""

    def heads(self, scope: str) -> object:
        """The heads of a scope's chain."""

    def lane(self, scope: str) -> object:
        """The rows of a scope's lane."""

    def close(self) -> None:
        """Disconnect."""


class Side(Protocol):
    """One kind of store."""

    name: str

    def make(self, scopes: int) -> str:
        """The address of a store with so many scopes of ``NODES`` nodes; made once."""

    def empty(self) -> str:
        """The address of a new store."""

    def bare(self, url: str) -> Bare:
        """The bare driver there."""

    def bare_writer(self, url: str, *, triggers: bool) -> Callable[[str, int], object]:
        """Inserts one row of a scope in a transaction of its own, with or without the triggers, on a new connection."""

    def bare_import(self, lines: Path) -> float:
        """Seconds of reading the file and inserting its rows with the bare driver into a table without triggers."""

    def standby(self) -> AbstractContextManager[str] | None:
        """The address of a standby of the server; None where there is no such thing."""


def scope_path(number: int) -> str:
    """The path of a scope."""
    return f"{ROOT}/user:u{number:06d}"


def _row(scope: str, number: int, serial: int) -> tuple[Any, ...]:
    text, source, recorded = statement(number)
    instant = int(recorded.timestamp() * 1_000_000)
    return scope, f"{_PREFIX}{text}", f"n{serial}", source, instant, instant, instant


def _rows(scopes: int) -> Iterator[tuple[Any, ...]]:
    serial = itertools.count()
    for number in range(scopes):
        path = scope_path(number)
        for each in range(NODES):
            yield _row(path, each, next(serial))


def _asked(scopes: int) -> Callable[[], pk.TenantScope]:
    paths = [scope_path(number * (scopes // _ASKED or 1) % scopes) for number in range(_ASKED)]
    parsed = itertools.cycle([pk.TenantScope.parse(path) for path in paths])
    return lambda: next(parsed)


# SQLite


class _BareFile:
    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))

    def heads(self, scope: str) -> object:
        asked = "SELECT scope, seq, nonce FROM heads WHERE scope IN ('', ?, ?)"
        return self._connection.execute(asked, (ROOT, scope)).fetchall()

    def lane(self, scope: str) -> object:
        asked = """SELECT label, recorded_at, id, scope, source, trust, updated_at, nullif(properties, '{}') FROM nodes
        WHERE scope = ? AND label >= 'SOUL:' AND label < 'SOUL;' AND state = 'live'"""
        # One statement for each level of the chain, as the store has them.
        return [self._connection.execute(asked, (each,)).fetchall() for each in ("", ROOT, scope)]

    def close(self) -> None:
        self._connection.close()


class _Files:
    name = "SQLite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def _path(self, url: str) -> Path:
        return Path(url.removeprefix("sqlite:///"))

    def empty(self) -> str:
        url = url_of(self._folder / f"store-{next(self._numbers)}.db")
        blocking.open_store(url).close()
        return url

    def make(self, scopes: int) -> str:
        path = self._folder / f"scopes-{scopes}.db"
        if not path.exists():
            blocking.open_store(url_of(path)).close()
            connection = connect(path)
            connection.pragma("synchronous", "OFF")
            rows = _rows(scopes)
            while batch := list(itertools.islice(rows, 20 * _BATCH)):
                with connection:
                    connection.executemany(INSERT, batch)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.close()
        return url_of(path)

    def bare(self, url: str) -> Bare:
        return _BareFile(self._path(url))

    def bare_writer(self, url: str, *, triggers: bool) -> Callable[[str, int], object]:
        path = self._path(url)
        if not triggers:
            path = path.with_suffix(".bare.db")
            _without_triggers(path)
        connection = connect(path)
        connection.set_busy_timeout(30_000)

        def write(scope: str, number: int) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(INSERT, _row(scope, number, time.monotonic_ns() * 1000 + threading.get_ident() % 1000))
            connection.execute("COMMIT")

        return write

    def bare_import(self, lines: Path) -> float:
        path = self._folder / f"bare-{next(self._numbers)}.db"
        _without_triggers(path)
        connection = connect(path)
        started = time.perf_counter()
        for batch in _batches(lines):
            with connection:
                connection.executemany(INSERT, batch)
        return time.perf_counter() - started

    def standby(self) -> None:
        return None


def _without_triggers(path: Path) -> None:
    if not path.exists():
        blocking.open_store(url_of(path)).close()
        connection = connect(path)
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.close()


def sqlite_side(folder: Path) -> Side:
    """Stores in files."""
    return _Files(folder)


# PostgreSQL

_COPY: Final = "COPY {}(root, scope, label, id, source, recorded_at, created_at, updated_at) FROM STDIN"
_INSERT: Final = """INSERT INTO {}(root, scope, label, id, source, recorded_at, created_at, updated_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"""


class _BareServer:
    def __init__(self, url: str) -> None:
        import psycopg

        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)

    def heads(self, scope: str) -> object:
        asked = "SELECT promptkeel.heads_of(%s)"
        return self._connection.execute(asked, (scope,)).fetchall()

    def lane(self, scope: str) -> object:
        asked = """SELECT label, recorded_at, id, scope, source, trust, updated_at, properties::text
        FROM promptkeel.nodes WHERE root = ANY(%s) AND scope = ANY(%s) AND left(label, 128) >= 'SOUL:'
        AND left(label, 128) < 'SOUL;' AND state = 'live'"""
        return self._connection.execute(asked, (["", ROOT], ["", ROOT, scope])).fetchall()

    def close(self) -> None:
        self._connection.close()


class _Servers:
    name = "PostgreSQL"

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._numbers = itertools.count()

    def _database(self, name: str) -> str:
        import psycopg

        with psycopg.connect(self._server.url, autocommit=True) as connection:
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone() is None:
                connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
        return self._server.database(name)

    def empty(self) -> str:
        url = self._database(f"store_{next(self._numbers)}")
        blocking.open_store(url).close()
        return url

    def make(self, scopes: int) -> str:
        import psycopg

        url = self._database(f"scopes_{scopes}")
        blocking.open_store(url).close()
        with psycopg.connect(url, autocommit=True) as connection:
            if connection.execute("SELECT EXISTS (SELECT 1 FROM promptkeel.nodes)").fetchone() == (True,):
                return url
            rows = _rows(scopes)
            connection.execute("SET synchronous_commit = off")
            while batch := list(itertools.islice(rows, 20 * _BATCH)):
                with connection.transaction(), connection.cursor().copy(_COPY.format("promptkeel.nodes")) as copy:
                    for row in batch:
                        copy.write_row((ROOT, *row))
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")
        return url

    def bare(self, url: str) -> Bare:
        return _BareServer(url)

    def bare_writer(self, url: str, *, triggers: bool) -> Callable[[str, int], object]:
        import psycopg

        client = psycopg.connect(url, autocommit=True, prepare_threshold=None)
        if not triggers and client.execute("SELECT to_regclass('bare')").fetchone() == (None,):
            bare_table(client)
        text = _INSERT.format("promptkeel.nodes" if triggers else "bare")

        def write(scope: str, number: int) -> None:
            serial = time.monotonic_ns() * 1000 + threading.get_ident() % 1000
            client.execute(text, (ROOT, *_row(scope, number, serial)))

        return write

    def bare_import(self, lines: Path) -> float:
        import psycopg

        url = self.empty()
        with psycopg.connect(url, autocommit=True) as client:
            bare_table(client)
            started = time.perf_counter()
            for batch in _batches(lines):
                with client.transaction():
                    client.cursor().executemany(_INSERT.format("bare"), [(ROOT, *row) for row in batch])
            return time.perf_counter() - started

    def standby(self) -> AbstractContextManager[str] | None:
        return _standby_of(self._server)


@contextlib.contextmanager
def _standby_of(server: PostgresServer) -> Iterator[str]:
    with own_standby(server) as standby:
        yield standby.url


def postgres_side(server: PostgresServer, folder: Path) -> Side:
    """Databases on a server."""
    return _Servers(server, folder)


# Rows


def writers(side: Side, scale: Scale) -> Iterator[Row]:
    """Transactions a second of 1, 4 and 16 writers, each with fsync, on scopes of their own and on one."""
    for count, distinct in itertools.product((1, 4, 16), (True, False)):
        url = side.empty()
        scopes = [scope_path(which * distinct) for which in range(count)]
        rates = []
        for triggers in (False, True):
            bare = [side.bare_writer(url, triggers=triggers) for _ in scopes]
            rates.append(_per_second([_at(write, scope) for write, scope in zip(bare, scopes, strict=True)], scale))
        # A thread for each writer, all on one open store.
        with _opened(url, count) as store:
            puts = [_putting(store, pk.TenantScope.parse(scope), which) for which, scope in enumerate(scopes)]
            rate = _per_second(puts, scale)
        where = "scopes of their own" if distinct else "one scope"
        work = f"{side.name}: {count} writer{'s' * (count > 1)} on {where}"
        yield Row(work=work, against="the bare driver, no triggers", measured=rates[0] / rate, unit="")
        yield Row(work="  the same", against="writes a second", measured=rate, unit="/s")
        yield Row(work="  bare driver, with triggers", against="writes a second", measured=rates[1], unit="/s")
        yield Row(work="  bare driver, no triggers", against="writes a second", measured=rates[0], unit="/s")


def _opened(url: str, count: int) -> Any:
    options = {"pool_size": count + 2} if urlsplit(url).scheme == "postgresql" else {"busy_timeout": 30.0}
    return blocking.open_store(url, **options)


def _at(write: Callable[[str, int], object], scope: str) -> Callable[[int], object]:
    return lambda number: write(scope, number)


def _putting(store: Any, scope: pk.TenantScope, which: int) -> Callable[[int], object]:
    engine = store.core.engine

    def put(number: int) -> object:
        text, source, recorded = statement(number)
        node = MemoryNode(
            id=f"{which}-{number}", scope=scope, label=_PREFIX + text, source=source, recorded_at=recorded
        )
        return engine.apply([Put(node)])

    return put


def _per_second(calls: Sequence[Callable[[int], object]], scale: Scale) -> float:
    counts = [0] * len(calls)
    failures: list[BaseException] = []
    end = time.monotonic() + scale.seconds

    def work(which: int) -> None:
        try:
            for number in itertools.count():
                if time.monotonic() >= end:
                    return
                calls[which](number)
                counts[which] += 1
        except BaseException as error:  # noqa: BLE001 - raised below, on the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(len(calls))]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum(counts) / (time.monotonic() - started)


def scopes(side: Side, scale: Scale) -> Iterator[Row]:
    """The cost of heads, of a lane and of a warm prompt in a store of many scopes against one of few."""
    urls = {}
    for number in (scale.few, scale.many):
        scale.say(f"  a store of {number:,} scopes of {NODES} nodes")
        urls[number] = side.make(number)
    few, many = urls[scale.few], urls[scale.many]
    with blocking.open(few, blocks=_LANES) as small, blocking.open(many, blocks=_LANES) as large:
        bare_small, bare_large = side.bare(few), side.bare(many)
        next_few, next_many = _asked(scale.few), _asked(scale.many)
        engines = small.store.core.engine, large.store.core.engine

        def row(
            work: str,
            subject: Callable[[], object],
            base: Callable[[], object],
            goal: float | None = None,
            against: str = f"{scale.few:,} scopes",
        ) -> Row:
            found = compare(repeated(subject), repeated(base), scale.pairs)
            return Row(
                work=f"{side.name}, {scale.many:,} scopes: {work}", against=against, measured=found.ratio, goal=goal,
                took=found.subject, base=found.base, pairs=found.pairs,
            )  # fmt: skip

        def lane(keel: Any, scope: Callable[[], pk.TenantScope]) -> Callable[[], object]:
            return lambda: blocking.scan_memory_lane(keel.store, scope(), _PREFIX)

        def bare_heads(bare: Bare, scope: Callable[[], pk.TenantScope]) -> Callable[[], object]:
            return lambda: bare.heads(scope().path)

        def bare_lane(bare: Bare, scope: Callable[[], pk.TenantScope]) -> Callable[[], object]:
            return lambda: bare.lane(scope().path)

        def heads(number: int, scope: Callable[[], pk.TenantScope]) -> Callable[[], object]:
            return lambda: engines[number].heads(scope())

        yield row("heads probe", heads(1, next_many), heads(0, next_few), 1.3)
        yield row("bare driver's heads", bare_heads(bare_large, next_many), bare_heads(bare_small, next_few))
        yield row("heads probe", heads(1, next_many), bare_heads(bare_large, next_many), against="the bare driver")
        work = f"lane of {NODES} read and digested"
        yield row(work, lane(large, next_many), lane(small, next_few), 1.3)
        yield row("bare driver's lane", bare_lane(bare_large, next_many), bare_lane(bare_small, next_few))
        yield row(work, lane(large, next_many), bare_lane(bare_large, next_many), against="the bare driver")
        warm = pk.TenantScope.parse(scope_path(1))
        yield row("warm prompt", lambda: large.prompt(warm), lambda: small.prompt(warm), 1.3)
        for _ in range(_ASKED):
            large.prompt(next_many())
            small.prompt(next_few())
        yield row(f"warm prompt, {_ASKED} scopes in turn", lambda: large.prompt(next_many()),
                  lambda: small.prompt(next_few()), 1.3)  # fmt: skip
        bare_small.close()
        bare_large.close()


def replica(side: Side, scale: Scale) -> Iterator[Row]:
    """Reads from a standby against reads from the primary."""
    standby = side.standby()
    if standby is None:
        return
    url = side.make(scale.few)
    name = urlsplit(url).path
    with standby as address:
        parts = urlsplit(address)
        replica_url = f"{parts.scheme}://{parts.netloc}{name}?{parts.query}"
        with (
            blocking.open(url, blocks=_LANES) as primary,
            blocking.open(url, replica=replica_url, blocks=_LANES) as both,
        ):
            asked = _asked(scale.few)
            warm = pk.TenantScope.parse(scope_path(1))

            def row(work: str, subject: Callable[[], object], base: Callable[[], object]) -> Row:
                found = compare(repeated(subject), repeated(base), scale.pairs)
                return Row(
                    work=f"{side.name}, standby: {work}", against="the primary alone", measured=found.ratio,
                    took=found.subject, base=found.base, pairs=found.pairs,
                )  # fmt: skip

            def scan(keel: Any) -> Callable[[], object]:
                return lambda: blocking.scan_memory_lane(keel.store, asked(), _PREFIX)

            yield row(f"strict lane of {NODES}", scan(both), scan(primary))
            yield row("strict warm prompt", lambda: both.prompt(warm), lambda: primary.prompt(warm))
            yield row("prompt that need not be strict, warm", lambda: both.prompt(warm, strict=False),
                      lambda: primary.prompt(warm))  # fmt: skip


def _lines(path: Path, facts: int) -> None:
    with path.open("w") as file:
        for number in range(facts):
            text, source, recorded = statement(number)
            line = {
                "scope": scope_path(number // 1000), "label": f"{_PREFIX}{text} ({number})", "id": f"f{number}",
                "source": source, "recorded_at": recorded.isoformat(),
            }  # fmt: skip
            file.write(json.dumps(line) + "\n")


def _batches(lines: Path) -> Iterator[list[tuple[Any, ...]]]:
    from promptkeel.instants import read_instant

    with lines.open() as file:
        while found := list(itertools.islice(file, _CHUNK)):
            batch = []
            for text in found:
                line = json.loads(text)
                instant = read_instant(line["recorded_at"])
                batch.append((line["scope"], line["label"], line["id"], line["source"], instant, instant, instant))
            yield batch


_IMPORT: Final = """
import json, sys, time
from pathlib import Path
from promptkeel import blocking
from promptkeel.exchange import ImportSettings, JsonLines, import_steps
from promptkeel.steps import drive_blocking
store = blocking.open_store(sys.argv[1])
def most():
    # The process's own peak: what getrusage says is inherited from whoever started it.
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM")]
    return int(line.split()[1])
before = most()
started = time.perf_counter()
with open(sys.argv[2], "rb") as stream:
    report = drive_blocking(import_steps(store.core, stream, JsonLines(), ImportSettings(chunk=int(sys.argv[3]))))
took = time.perf_counter() - started
after = most()
print(json.dumps({"took": took, "inserted": report.inserted, "before": before, "after": after}))
"""


def imported(side: Side, scale: Scale) -> Iterator[Row]:
    """An import of many facts from JSON Lines, in chunks, by a process of its own."""
    url = side.empty()
    with tempfile.TemporaryDirectory(prefix="promptkeel-import-") as folder:
        lines = Path(folder) / "facts.jsonl"
        _lines(lines, scale.facts)
        command = [sys.executable, "-c", _IMPORT, url, str(lines), str(_CHUNK)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - a script of our own
        found = json.loads(done.stdout)
        assert found["inserted"] == scale.facts
        scale.say("  the same by the bare driver")
        bare = side.bare_import(lines)
    work = f"{side.name}: import of {scale.facts:,} facts"
    took = found["took"]
    yield Row(work=work, against="bare driver, no triggers", measured=took / bare, took=took, base=bare)
    yield Row(work="  the same", against="facts a second", measured=scale.facts / took, unit="/s")
    yield Row(work="  the bare driver", against="facts a second", measured=scale.facts / bare, unit="/s")
    yield Row(work="  memory of the process before", against="", measured=found["before"] / 1024, unit="MiB")
    yield Row(work="  and at most", against="", measured=found["after"] / 1024, unit="MiB")


GROUPS: Final[dict[str, Callable[[Side, Scale], Iterator[Row]]]] = {
    "writers": writers,
    "scopes": scopes,
    "replica": replica,
    "import": imported,
}
