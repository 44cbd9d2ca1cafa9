"""The rows of the table: what is done, against what, with which goal.

Each function measures one or a few rows. Both sides of a row work on the same data in the same process; the peer, where
it is installed, is measured against the same base.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self

import apsw
import attrs

import promptkeel as pk
from memories import (
    ADA,
    AUTHORED,
    BOB,
    INSERT,
    PREFIXES,
    Elsewhere,
    connect,
    floor,
    make_store,
    memory_specs,
    rows_of,
    static_specs,
    url_of,
)
from pairs import Compared, Sample, awaited, awaited_after, compare, prepared, repeated
from peer import Peer, version
from promptkeel import blocking
from promptkeel.lane import Lane
from promptkeel.store.base import LaneRequest
from promptkeel.store.prefix import prefix_bounds

FLOOR: Final = "floor"
"""What warm prompts are compared with."""
_SETTLED: Final = 2.2
"""Seconds after which a file's times are trusted."""
_LANE: Final = PREFIXES[0]
_BARE: Final = """SELECT label, recorded_at, id, scope, source, trust, updated_at, nullif(properties, '{}') FROM nodes
WHERE scope = ? AND label >= ? AND label < ? AND state = 'live'"""


@attrs.frozen(kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        work: what was done.
        against: what it is compared with.
        measured: the ratio, or an absolute figure where there is a unit.
        goal: the most that it should be; None where the row only informs.
        unit: of ``measured`` and ``goal``; empty for ratios.
        peer: the same figure for symfonic-core, where it was measured.
        peer_note: why there is none.
        took: seconds.
        base: seconds of what it is compared with.
        pairs: how many interleaved pairs the ratio is the median of.
    """

    work: str
    against: str
    measured: float
    goal: float | None = None
    unit: str = ""
    peer: float | None = None
    peer_note: str = ""
    took: float | None = None
    base: float | None = None
    pairs: int | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met."""
        return None if self.goal is None else self.measured <= self.goal

    @property
    def peer_text(self) -> str:
        """The peer's cell."""
        if self.peer is None:
            return self.peer_note
        if self.unit:
            return f"{self.peer:,.0f} {self.unit}"
        return f"{self.peer:,.0f}" if self.peer >= 100 else f"{self.peer:.2f}"


class Bench:
    """What all rows share: a folder with stores of several sizes, an event loop, and the peer.

    Args:
        folder: where the stores are made.
        quick: whether to measure fewer pairs and a smaller large lane.
    """

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.folder = folder
        self.pairs = 7 if quick else 21
        self.few = 5 if quick else 15
        self.small = 200
        self.medium = 5_000
        self.large = 20_000 if quick else 100_000
        self.batch = 2_000 if quick else 20_000
        self.runner = asyncio.Runner()
        self._files: dict[str, Path] = {}
        self._written = 0.0
        self._last_peer: tuple[int, Peer] | None = None

    def __enter__(self) -> Self:
        for name, text in AUTHORED.items():
            self._files[name] = self.folder / f"{name.lower()}.md"
            self._files[name].write_text(text)
        self._written = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.close()

    def store(self, size: int) -> Path:
        """The file of a store whose first lane has this many facts."""
        return make_store(self.folder / f"memory-{size}.db", size)

    def files(self) -> dict[str, Path]:
        """Files of authored text that were not changed just now."""
        time.sleep(max(0.0, self._written + _SETTLED - time.monotonic()))
        return self._files

    def peer(self, size: int) -> Peer | None:
        """The peer with a memory of this size; None where it is not installed."""
        if version() is None:
            return None
        if self._last_peer is None or self._last_peer[0] != size:
            self._last_peer = None
            self._last_peer = (size, Peer(size))
        return self._last_peer[1]

    def row(
        self, work: str, against: str, found: Compared, *, goal: float | None = None, peer: Compared | str | None = None
    ) -> Row:
        """A row of a ratio; ``peer`` is its own, or why there is none."""
        return Row(
            work=work,
            against=against,
            measured=found.ratio,
            goal=goal,
            peer=peer.ratio if isinstance(peer, Compared) else None,
            peer_note=peer if isinstance(peer, str) else ("not installed" if peer is None else ""),
            took=found.subject,
            base=found.base,
            pairs=found.pairs,
        )

    def peer_build(self, size: int, base: Sample) -> Compared | None:
        """The peer's prompt of a memory in which nothing has changed, against a base."""
        one = self.peer(size)
        return None if one is None else compare(awaited(self.runner, one.build), base, self.pairs)


class Opened:
    """A keel in the bench's event loop."""

    def __init__(self, bench: Bench, path: Path, specs: list[pk.PromptBlockSpec]) -> None:
        self._runner = bench.runner
        self.keel = pk.open(url_of(path), blocks=specs)

    def __enter__(self) -> pk.Keel:
        return self._runner.run(self.keel.__aenter__())

    def __exit__(self, *_: object) -> None:
        self._runner.run(self.keel.__aexit__(None, None, None))


def text_of(keel: pk.Keel) -> Callable[[], Any]:
    """A call that builds the prompt and takes its text."""

    async def call() -> str:
        return (await keel.prompt(ADA)).text

    return call


# Nothing has changed


def warm(bench: Bench) -> Iterator[Row]:
    """A prompt of four lanes and four static blocks, nothing changed."""
    path = bench.store(bench.small)
    base = repeated(floor(path))
    specs = [*static_specs(), *memory_specs()]
    with Opened(bench, path, specs) as keel:
        found = compare(awaited(bench.runner, text_of(keel)), base, bench.pairs)
    theirs = bench.peer_build(bench.small, base)
    yield bench.row("warm prompt, 8 blocks, lane of 200", FLOOR, found, goal=2, peer=theirs)
    with blocking.open(url_of(path), blocks=specs) as twin:
        found = compare(repeated(lambda: twin.prompt(ADA).text), base, bench.pairs)
    yield bench.row("the same, blocking twin", FLOOR, found, goal=2, peer="has none")


def warm_with_files(bench: Bench) -> Iterator[Row]:
    """The same, the four authored blocks being files."""
    path = bench.store(bench.small)
    files = bench.files()
    base = repeated(floor(path))
    specs = [pk.PromptBlockSpec(name=name, source=pk.FileSource(file)) for name, file in files.items()]
    with Opened(bench, path, [*specs, *memory_specs()]) as keel:
        found = compare(awaited(bench.runner, text_of(keel)), base, bench.pairs)
    theirs = None
    if version() is not None:
        theirs = compare(awaited(bench.runner, Peer(bench.small, files=files).build), base, bench.pairs)
    yield bench.row("the same, 4 static blocks being files", FLOOR, found, peer=theirs)
    paths = [str(file) for file in files.values()]

    def look() -> None:
        for name in paths:
            # The bare call is what the row is about: Path.stat costs twice as much.
            os.stat(name)  # noqa: PTH116

    found = compare(repeated(look), base, bench.pairs)
    yield bench.row("of which 4 bare os.stat", FLOOR, found, peer="")


def warm_with_computed(bench: Bench) -> Iterator[Row]:
    """The same with one more block, which a function answers."""
    path = bench.store(bench.small)
    base = repeated(floor(path))

    def answer(_: object = None) -> tuple[str, str]:
        return "It is a working day.", "day-1"

    specs = [*static_specs(), pk.PromptBlockSpec(name="TODAY", source=pk.ComputedSource(answer)), *memory_specs()]
    with Opened(bench, path, specs) as keel:
        found = compare(awaited(bench.runner, text_of(keel)), base, bench.pairs)
    theirs = None
    if version() is not None:
        theirs = compare(awaited(bench.runner, Peer(bench.small, computed=answer).build), base, bench.pairs)
    yield bench.row("the same and 1 computed block, asked each time", FLOOR, found, peer=theirs)


def size(bench: Bench) -> Iterator[Row]:
    """The warm prompt of a large memory against that of a small one."""
    specs = [*static_specs(), *memory_specs()]
    small, large = bench.store(bench.small), bench.store(bench.large)
    with Opened(bench, large, specs) as many, Opened(bench, small, specs) as few:
        found = compare(awaited(bench.runner, text_of(many)), awaited(bench.runner, text_of(few)), max(bench.pairs, 41))
    theirs = None
    if version() is not None:
        lane, other = Peer(bench.small), bench.peer(bench.large)
        assert other is not None
        theirs = compare(awaited(bench.runner, other.build), awaited(bench.runner, lane.build), bench.few)
    yield bench.row(f"warm prompt, lane of {bench.large:,}", "lane of 200", found, goal=1.2, peer=theirs)


# Something has changed elsewhere


def elsewhere(bench: Bench) -> Iterator[Row]:
    """A prompt after a commit that it does not show."""
    for facts in (bench.small, bench.large):
        path = bench.store(facts)
        base = repeated(floor(path))
        other = Elsewhere(path)
        theirs = bench.peer_build(facts, base)
        with Opened(bench, path, [*static_specs(), *memory_specs()]) as keel:
            call = text_of(keel)
            bench.runner.run(call())
            for where, scope, prefix in (("scope", BOB, _LANE), ("lane", ADA, "EVENT:")):

                def commit(other: Elsewhere = other, scope: pk.TenantScope = scope, prefix: str = prefix) -> None:
                    other.insert(scope, prefix)

                found = compare(awaited_after(bench.runner, commit, call, number=20), base, bench.pairs)
                work = f"after a commit in another {where}, lane of {facts:,}"
                yield bench.row(work, FLOOR, found, goal=20, peer=theirs)
        other.close()


# One change


class _Followed:
    """A lane that is brought up to date, as a resolver does."""

    def __init__(self, path: Path) -> None:
        self.store = blocking.open_store(url_of(path))
        self.engine = self.store.core.engine
        found = self.engine.catch_up(ADA, [LaneRequest(_LANE)])
        self.lane = Lane.build(found.lanes[0].rows, prefix=_LANE)
        self._heads = found.heads

    def follow(self) -> str:
        update = self.engine.tail(ADA, [LaneRequest(_LANE, self._heads)])
        assert update is not None
        assert update.lanes[0].touched
        self.lane = self.lane.updated(update.lanes[0])
        self._heads = update.heads
        return self.lane.revision

    def follow_to_facts(self) -> object:
        self.follow()
        return self.lane.facts

    def rescan(self) -> object:
        found = self.engine.catch_up(ADA, [LaneRequest(_LANE)])
        lane = Lane.build(found.lanes[0].rows, prefix=_LANE)
        return lane.revision, lane.facts


def change(bench: Bench) -> Iterator[Row]:
    """A lane after one change in it against reading it again."""
    for facts, goal in ((bench.medium, 1 / 20), (bench.large, 1 / 100)):
        path = bench.store(facts)
        other = Elsewhere(path)
        lane = _Followed(path)

        def commit(other: Elsewhere = other, facts: int = facts) -> None:
            other.touch(_LANE, facts)

        theirs = None
        one = bench.peer(facts)
        if one is not None:
            theirs = compare(
                awaited_after(bench.runner, one.touch, one.scan), awaited(bench.runner, one.scan), bench.few
            )
        rescan = prepared(lambda: None, lane.rescan)
        found = compare(prepared(commit, lane.follow, number=5), rescan, bench.few)
        yield bench.row(f"1 change in a lane of {facts:,}: revision", "full rescan", found, goal=goal, peer=theirs)
        found = compare(prepared(commit, lane.follow_to_facts, number=5), rescan, bench.few)
        yield bench.row("the same, and all facts in one tuple", "full rescan", found, goal=goal, peer=theirs)
        yield _rendered(bench, commit, facts, lane.store)
        lane.store.close()
        other.close()


def _rendered(bench: Bench, commit: Callable[[], None], facts: int, store: Any) -> Row:
    specs = memory_specs()[:1]
    kept = blocking.PromptBlockResolver(specs, memory=store)

    def again() -> object:
        return kept.resolve(ADA).blocks[0].text

    def anew() -> object:
        return blocking.PromptBlockResolver(specs, memory=store).resolve(ADA).blocks[0].text

    again()
    found = compare(prepared(commit, again), prepared(lambda: None, anew), bench.few)
    work = f"the same, and the block of all {facts:,} facts rendered"
    return bench.row(work, "rescan and render", found, peer="renders 200")


# Nothing is known yet


def cold(bench: Bench) -> Iterator[Row]:
    """A lane that is read for the first time against fetching the same rows."""
    for facts in (bench.small, bench.medium, bench.large):
        path = bench.store(facts)
        bare = apsw.Connection(str(path))
        arguments = (ADA.path, *prefix_bounds(_LANE))

        def fetch(bare: apsw.Connection = bare, arguments: tuple[Any, ...] = arguments) -> object:
            return bare.execute(_BARE, arguments).fetchall()

        store = blocking.open_store(url_of(path))

        def scan(store: Any = store) -> object:
            return blocking.scan_memory_lane(store, ADA, _LANE)

        found = compare(repeated(scan), repeated(fetch), bench.few if facts == bench.large else bench.pairs)
        one = bench.peer(facts)
        theirs = None if one is None else compare(awaited(bench.runner, one.scan), repeated(fetch), bench.few)
        yield bench.row(f"cold lane of {facts:,}: facts, revision", "fetchall", found, goal=3.5, peer=theirs)
        store.close()
        bare.close()


# Writes


class _Written:
    """A table that is written to by plain SQL: a store's, or a plain one without its triggers."""

    def __init__(self, path: Path, *, plain: bool) -> None:
        blocking.open_store(url_of(path)).close()
        self.connection = connect(path)
        if plain:
            for (name,) in self.connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
                self.connection.execute(f"DROP TRIGGER {name}")
        self._number = 0
        self._stamp = 1

    def _rows(self, count: int) -> list[tuple[Any, ...]]:
        numbers = range(self._number, self._number + count)
        self._number += count
        return rows_of(ADA, [(_LANE, number) for number in numbers])

    def insert_batch(self, count: int) -> Sample:
        def sample() -> float:
            rows = self._rows(count)
            started = time.perf_counter()
            with self.connection:
                self.connection.executemany(INSERT, rows)
            return time.perf_counter() - started

        return sample

    def update_batch(self, count: int) -> Sample:
        keys = [(row[0], row[1], row[2]) for row in rows_of(ADA, [(_LANE, number) for number in range(count)])]

        def sample() -> float:
            self._stamp += 1
            arguments = [(f"chat-{self._stamp}", *key) for key in keys]
            started = time.perf_counter()
            with self.connection:
                self.connection.executemany(
                    "UPDATE nodes SET source = ?, updated_at = updated_at + 1 WHERE scope = ? AND label = ? AND id = ?",
                    arguments,
                )
            return time.perf_counter() - started

        return sample

    def insert_one_by_one(self, count: int) -> Sample:
        def sample() -> float:
            rows = self._rows(count)
            started = time.perf_counter()
            for row in rows:
                self.connection.execute(INSERT, row)
            return (time.perf_counter() - started) / count

        return sample

    def remember_one_by_one(self, count: int, path: Path) -> Sample:
        keel = blocking.open(url_of(path), blocks=memory_specs())
        keel.__enter__()

        def sample() -> float:
            rows = self._rows(count)
            started = time.perf_counter()
            for row in rows:
                keel.remember(ADA, label=row[1], id=row[2], source=row[3], recorded_at="2026-05-02T10:00:00Z")
            return (time.perf_counter() - started) / count

        return sample


def write(bench: Bench) -> Iterator[Row]:
    """Writes with heads, log and history against the same table without its triggers."""
    kept = _Written(bench.folder / "kept.db", plain=False)
    plain = _Written(bench.folder / "plain.db", plain=True)
    none, against = "has none", "no triggers"
    count = bench.batch
    found = compare(kept.insert_batch(count), plain.insert_batch(count), bench.few)
    yield bench.row(f"inserts, {count:,} in a transaction", against, found, goal=3, peer=none)
    found = compare(kept.update_batch(count), plain.update_batch(count), bench.few)
    yield bench.row(f"updates, {count:,} in a transaction", against, found, goal=4.5, peer=none)
    one, other = kept.insert_one_by_one(50), plain.insert_one_by_one(50)
    found = compare(one, other, bench.pairs)
    yield bench.row("inserts one by one, each with fsync", against, found, goal=2, peer=none)
    found = compare(kept.remember_one_by_one(50, bench.folder / "kept.db"), other, bench.pairs)
    yield bench.row("remember one by one, checks and all", against, found, peer=none)


# The event loop


async def longest_stall(work: Callable[[], Any], calls: int) -> float:
    """For how many milliseconds the event loop stands still at most while so many calls are made at once."""
    longest = 0.0
    running = True

    async def beat() -> None:
        nonlocal longest
        last = time.perf_counter()
        while running:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest = max(longest, now - last - 0.001)
            last = now

    heart = asyncio.create_task(beat())
    await asyncio.sleep(0.01)
    longest = 0.0
    await asyncio.gather(*(work() for _ in range(calls)))
    await asyncio.sleep(0.002)
    running = False
    await heart
    return longest * 1000


def stall(bench: Bench) -> Iterator[Row]:
    """How long an event loop stands still while 20 prompts are built at once."""
    path = bench.store(bench.medium)
    specs = memory_specs()[:1]
    store = pk.open_store(url_of(path))
    other = Elsewhere(path)

    def cold_prompts() -> float:
        builder = pk.PromptBuilder(pk.PromptBlockResolver(specs, memory=store))
        return bench.runner.run(longest_stall(lambda: builder.build(ADA), 20))

    kept = pk.PromptBuilder(pk.PromptBlockResolver(specs, memory=store))
    bench.runner.run(longest_stall(lambda: kept.build(ADA), 1))

    def changed_prompts() -> float:
        other.touch(_LANE, bench.medium)
        return bench.runner.run(longest_stall(lambda: kept.build(ADA), 20))

    theirs = None
    one = bench.peer(bench.medium)
    if one is not None:
        theirs = median([bench.runner.run(longest_stall(one.build, 20)) for _ in range(3)])
    for work, run in (("20 cold", cold_prompts), ("20 after 1 change,", changed_prompts)):
        yield Row(
            work=f"{work} prompts at once, lane of {bench.medium:,}",
            against="longest stall",
            measured=median([run() for _ in range(bench.few)]),
            goal=20,
            unit="ms",
            peer=theirs,
            peer_note="not installed",
        )
    bench.runner.run(store.close())
    other.close()


def median(values: list[float]) -> float:
    """The one in the middle."""
    return sorted(values)[len(values) // 2]


# Memory


def _kept_bytes(make: Callable[[], object]) -> tuple[int, object]:
    """The bytes that are still allocated when ``make`` is done, and what it answers."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = make()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before, kept
    finally:
        tracemalloc.stop()


_SCOPES: Final = 20


def _many_scopes(bench: Bench, tail: str) -> tuple[Path, list[pk.TenantScope]]:
    """A store of many scopes with a lane each; every statement ends in ``tail``."""
    scopes = [pk.TenantScope.parse(f"org:acme/user:u{number}") for number in range(_SCOPES)]
    path = bench.folder / f"kept-{len(tail)}.db"
    blocking.open_store(url_of(path)).close()
    connection = connect(path)
    with connection:
        for scope in scopes:
            rows = rows_of(scope, [(_LANE, number) for number in range(bench.small)])
            own = [(row[0], row[1] + tail, f"{scope.levels[-1].id}-{row[2]}", *row[3:]) for row in rows]
            connection.executemany(INSERT, own)
    connection.close()
    return path, scopes


def memory(bench: Bench) -> Iterator[Row]:
    """What is kept in RAM."""
    yield from _rendered_texts(bench, "", "", goal=2)
    yield from _rendered_texts(
        bench, " \N{SLIGHTLY SMILING FACE}", ", an emoji in each: 4 bytes a character in Python", goal=None
    )
    yield _followed_lane(bench)


def _rendered_texts(bench: Bench, tail: str, what: str, *, goal: float | None) -> Iterator[Row]:
    path, scopes = _many_scopes(bench, tail)
    store = blocking.open_store(url_of(path))

    def bytes_kept(*, lanes: bool, whole: bool) -> tuple[int, int, object]:
        settings = {} if lanes else {"cache_facts": 1}
        resolver = blocking.PromptBlockResolver(memory_specs(), memory=store, **settings)
        builder = blocking.PromptBuilder(resolver)
        builder.build(ADA)

        def fill() -> int:
            size = 0
            for scope in scopes:
                prompt = builder.build(scope)
                size += sum(len(block.text.encode()) for block in prompt.blocks)
                if whole:
                    str(prompt.text)
            return size

        used, text = _kept_bytes(fill)
        assert isinstance(text, int)
        return used, text, builder

    used, text, _ = bytes_kept(lanes=False, whole=False)
    with_lanes = bytes_kept(lanes=True, whole=False)[0]
    with_whole = bytes_kept(lanes=True, whole=True)[0]
    store.close()
    note = "1 a scope" if version() else "not installed"
    for work, measured, aim in (
        (f"texts of blocks kept, {_SCOPES} scopes of {bench.small} facts{what}", used, goal),
        (f"the same with whole prompts kept too{what}", used + with_whole - with_lanes, goal),
    ):
        yield Row(work=work, against="bytes in UTF-8", measured=measured / text, goal=aim, peer_note=note)


def _followed_lane(bench: Bench) -> Row:
    store = blocking.open_store(url_of(bench.store(bench.medium)))
    used, lane = _kept_bytes(
        lambda: Lane.build(store.core.engine.catch_up(ADA, [LaneRequest(_LANE)]).lanes[0].rows, prefix=_LANE)
    )
    store.close()
    assert isinstance(lane, Lane)
    one = bench.peer(bench.medium)
    theirs = None
    if one is not None:
        theirs = _kept_bytes(lambda: bench.runner.run(one.scan()))[0] / bench.medium
    return Row(
        work=f"a lane of {bench.medium:,} kept so that it can be followed",
        against="each fact",
        measured=used / lane.count,
        unit="bytes",
        peer=theirs,
        peer_note="not installed",
    )


GROUPS: Final[dict[str, tuple[Callable[[Bench], Iterator[Row]], ...]]] = {
    "warm": (warm,),
    "files": (warm_with_files,),
    "computed": (warm_with_computed,),
    "size": (size,),
    "elsewhere": (elsewhere,),
    "change": (change,),
    "cold": (cold,),
    "write": (write,),
    "stall": (stall,),
    "memory": (memory,),
}
"""The rows by the names that ``--rows`` takes."""
