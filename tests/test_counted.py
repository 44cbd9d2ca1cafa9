"""What a prompt costs in statements, rows, threads, reads and renders: counted, never timed.

Every SQLite connection that a store opens is traced, so that nothing is read behind the count. SQLite also counts the
steps of its own virtual machine, the same on every machine: what they do not grow with, the work does not grow with.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager

import anyio
import anyio.to_thread
import apsw
import attrs
import pytest

import promptkeel as pk
from promptkeel import blocking
from promptkeel.blocks.stored import StoredSource
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import Put
from promptkeel.store.sqlite_glance import glance_statements

ADA = pk.TenantScope.parse("org:acme/user:ada")
BOB = pk.TenantScope.parse("org:acme/user:bob")
PREFIXES = {"USER_PROFILE": "SOUL:", "PREFERENCES": "PREFERENCE:", "FOCUS": "FOCUS:", "HABITS": "HABIT:"}
AUTHORED = ("BOUNDARIES", "IDENTITY", "RULES", "ENVIRONMENT")
EIGHT_BLOCKS = [
    *(
        pk.PromptBlockSpec(name=name, source=pk.StaticSource(f"The {name.lower()} of this office."))
        for name in AUTHORED
    ),
    *(pk.PromptBlockSpec(name=name, source=pk.MemoryLane(prefix)) for name, prefix in PREFIXES.items()),
]
PROBE = "PRAGMA data_version"
SCHEMA = "PRAGMA schema_version"
HEADS, GLANCE = (" ".join(text.split()) for text in glance_statements(len(ADA.chain)))


@attrs.define
class Traced:
    """What all connections did since the last ``clear``."""

    statements: list[str] = attrs.field(factory=list)
    triggered: list[str] = attrs.field(factory=list)
    rows: int = 0
    steps: int = 0

    def clear(self):
        self.statements.clear()
        self.triggered.clear()
        self.rows = self.steps = 0

    def note(self, event):
        if event["code"] == apsw.SQLITE_TRACE_ROW:
            self.rows += 1
        elif event["code"] == apsw.SQLITE_TRACE_PROFILE:
            self.steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]
        elif event["trigger"]:
            self.triggered.append(" ".join(event["sql"].split()))
        else:
            self.statements.append(" ".join(event["sql"].split()))

    def trace(self, connection):
        connection.trace_v2(apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_ROW | apsw.SQLITE_TRACE_PROFILE, self.note)


@pytest.fixture
def traced(monkeypatch):
    found = Traced()
    monkeypatch.setattr(apsw, "connection_hooks", [found.trace])
    return found


@pytest.fixture
def threads(monkeypatch):
    """Everything that was handed to a worker thread, and every thread that was started."""
    seen = []
    run_sync, start = anyio.to_thread.run_sync, threading.Thread.start

    async def counting(function, *arguments, **options):
        seen.append(function)
        return await run_sync(function, *arguments, **options)

    def starting(thread):
        seen.append(thread)
        return start(thread)

    monkeypatch.setattr(anyio.to_thread, "run_sync", counting)
    monkeypatch.setattr(threading.Thread, "start", starting)
    return seen


def put(engine, scope, prefix, numbers):
    engine.apply(
        [
            Put(
                pk.MemoryNode(
                    id=f"{scope.levels[-1].id}-{prefix}{number}",
                    scope=scope,
                    label=f"{prefix}fact {number}",
                    recorded_at=number,
                )
            )
            for number in numbers
        ]
    )


def fill(url, size, *, scopes=0):
    """Make a store whose first lane has ``size`` facts, the others three, and which holds other scopes too."""
    engine = open_engine(url)
    for number in range(scopes):
        put(engine, pk.TenantScope.parse(f"org:acme/user:u{number}"), "SOUL:", range(1))
    for prefix in PREFIXES.values():
        put(engine, ADA, prefix, range(size if prefix == "SOUL:" else 3))
    engine.close()


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'memory.db'}"


@contextmanager
def other_program(url):
    """Somebody else's SQL on the same file, which is not counted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apsw, "connection_hooks", [])
        connection = apsw.Connection(url.removeprefix("sqlite:///"))

    def run(statement, arguments=()):
        connection.execute(statement, arguments).fetchall()

    yield run
    connection.close()


def touch(run, number=7):
    run(
        "UPDATE nodes SET source = coalesce(source, '') || 'x' WHERE root = 'org:acme' AND id = ?",
        (f"ada-SOUL:{number}",),
    )


def counted(keel):
    return attrs.asdict(keel.counters)


def difference(after, before):
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


@pytest.mark.parametrize("size", [200, 5000])
def test_a_warm_prompt_of_eight_blocks_is_one_statement_on_the_callers_own_thread(url, traced, threads, size):
    fill(url, size)

    async def main():
        async with pk.open(url, blocks=EIGHT_BLOCKS) as keel:
            first = await keel.prompt(ADA)
            assert [bool(block.text) for block in first.blocks] == [True] * 8
            before = counted(keel)
            traced.clear()
            del threads[:]
            for _ in range(10):
                assert await keel.prompt(ADA) is first
            assert traced.statements == [PROBE] * 10
            assert traced.rows == 10
            assert threads == []
            assert difference(counted(keel), before) == {"probes": 10}, "no read, no render"

    anyio.run(main)


def test_the_blocking_twin_counts_the_same(url, traced, threads):
    fill(url, 200)
    with blocking.open(url, blocks=EIGHT_BLOCKS) as keel:
        first = keel.prompt(ADA)
        traced.clear()
        del threads[:]
        assert keel.prompt(ADA) is first
        assert traced.statements == [PROBE]
        assert threads == []


FIVE_KINDS = [
    pk.PromptBlockSpec(name="BOUNDARIES", source=pk.StaticSource("The boundaries of this office.")),
    pk.PromptBlockSpec(name="RULES", source=pk.FileSource(__file__)),
    pk.PromptBlockSpec(name="ENVIRONMENT", source=StoredSource("deployment", required=False)),
    *(pk.PromptBlockSpec(name=name, source=pk.MemoryLane(prefix)) for name, prefix in PREFIXES.items()),
]
CLOCK = pk.PromptBlockSpec(
    name="CLOCK", source=pk.ComputedSource(lambda _: ("It is a working day.", "day")), timeout=20
)


async def office_hours(_):
    return True


@pytest.mark.parametrize(
    "more",
    [[], [attrs.evolve(EIGHT_BLOCKS[1], render_when=office_hours)], [CLOCK]],
    ids=["static, file, stored and lanes", "an async gate", "a computed block"],
)
def test_a_warm_prompt_of_every_kind_of_block_is_one_statement_and_no_worker_of_the_stores(
    url, traced, monkeypatch, more
):
    fill(url, 200)
    handed = []
    run_sync = anyio.to_thread.run_sync

    async def counting(function, *arguments, **options):
        handed.append(function)
        return await run_sync(function, *arguments, **options)

    async def main():
        async with pk.open(url, blocks=[*FIVE_KINDS, *more]) as keel:
            first = await keel.prompt(ADA)
            monkeypatch.setattr(anyio.to_thread, "run_sync", counting)
            before = counted(keel)
            traced.clear()
            for _ in range(3):
                assert await keel.prompt(ADA) is first
            assert traced.statements == [PROBE] * 3
            assert handed == []
            assert difference(counted(keel), before) == {"probes": 3}, "no read, no render"

    anyio.run(main)


def test_a_warm_prompt_without_gates_and_computed_blocks_starts_no_thread_at_all(url, threads):
    fill(url, 200)

    async def main():
        async with pk.open(url, blocks=FIVE_KINDS) as keel:
            first = await keel.prompt(ADA)
            del threads[:]
            assert await keel.prompt(ADA) is first
            assert threads == []

    anyio.run(main)


def test_a_commit_in_another_scope_costs_the_probe_the_schemas_number_and_one_statement(url, traced, threads):
    fill(url, 200)

    async def main():
        async with pk.open(url, blocks=EIGHT_BLOCKS) as keel:
            first = await keel.prompt(ADA)
            before = counted(keel)
            with other_program(url) as run:
                in_another_scope(run)
            traced.clear()
            del threads[:]
            assert await keel.prompt(ADA) is first
            assert traced.statements == [PROBE, SCHEMA, HEADS]
            assert threads == []
            assert difference(counted(keel), before) == {"probes": 1, "head_reads": 1}
            traced.clear()
            await keel.prompt(ADA)
            assert traced.statements == [PROBE], "the answer is stamped anew"

    anyio.run(main)


def in_another_scope(run):
    run("INSERT INTO nodes(scope, label) VALUES (?, 'SOUL:prefers coffee')", (BOB.path,))


def in_another_lane(run):
    run("INSERT INTO nodes(scope, label) VALUES (?, 'EVENT:met the auditor')", (ADA.path,))


def work_after(url, traced, threads, commit):
    """What a prompt does once another program has committed something."""
    with blocking.open(url, blocks=EIGHT_BLOCKS) as keel, other_program(url) as run:
        first = keel.prompt(ADA)
        before = counted(keel)
        commit(run)
        traced.clear()
        del threads[:]
        again = keel.prompt(ADA)
        work = Work(list(traced.statements), traced.rows, traced.steps, difference(counted(keel), before))
        changed = [block.name for block in again.blocks if block is not first.block(block.name)]
        assert threads == []
    return work, changed


@attrs.frozen
class Work:
    """What was done for one answer."""

    statements: list[str]
    rows: int
    steps: int
    counters: dict[str, int]


def test_a_change_in_one_lane_reads_the_changed_row_alone_however_large_the_lane_is(tmp_path, traced, threads):
    found = []
    for size in (200, 5000):
        url = f"sqlite:///{tmp_path / str(size)}.db"
        fill(url, size)
        found.append(work_after(url, traced, threads, touch))
    (small, changed), (large, _) = found
    assert changed == ["USER_PROFILE"]
    assert small.counters == {"probes": 1, "head_reads": 1, "deltas": 1, "renders": 1}
    assert small == large
    assert small.statements[:4] == [PROBE, SCHEMA, HEADS, GLANCE]
    reads_of_nodes = [statement for statement in small.statements if "FROM nodes" in statement]
    assert len(reads_of_nodes) == 1
    assert len(small.statements) <= 14


def test_the_rows_read_after_changes_are_the_changed_ones(url, traced, threads):
    fill(url, 200)

    def commit(run):
        for number in range(5):
            touch(run, number)

    one, _ = work_after(url, traced, threads, touch)
    five, _ = work_after(url, traced, threads, commit)
    assert five.statements == one.statements
    assert five.rows == one.rows + 3 * 4, "for each its row of the log, twice, and the node itself"


def test_a_commit_in_a_lane_that_no_block_shows_reads_no_node_and_renders_nothing(url, traced, threads):
    fill(url, 200)
    work, changed = work_after(url, traced, threads, in_another_lane)
    assert changed == []
    assert work.statements == [PROBE, SCHEMA, HEADS, GLANCE]
    assert work.counters == {"probes": 1, "head_reads": 1}


def test_nothing_grows_with_the_number_of_scopes(tmp_path, traced, threads):
    found = []
    for scopes in (1, 300):
        url = f"sqlite:///{tmp_path / str(scopes)}.db"
        fill(url, 20, scopes=scopes)
        found.append([work_after(url, traced, threads, commit)[0] for commit in (in_another_scope, touch)])
    assert found[0] == found[1]


def test_a_write_is_one_transaction_of_few_statements_whatever_the_store_holds(tmp_path, traced):
    found = []
    for size in (20, 2000):
        url = f"sqlite:///{tmp_path / str(size)}.db"
        fill(url, size, scopes=size // 20)
        with blocking.open(url, blocks=EIGHT_BLOCKS) as keel:
            keel.remember(ADA, "the first write opens the writer", block="USER_PROFILE")
            traced.clear()
            keel.remember(ADA, "prefers tea", block="USER_PROFILE")
            found.append((list(traced.statements), list(traced.triggered)))
    (small, triggered), (large, _) = found
    assert small == large
    assert small[0] == "BEGIN IMMEDIATE"
    assert small[-1] == "COMMIT"
    assert [statement.partition(" ")[0] for statement in small].count("INSERT") == 1
    assert len(small) <= 8
    moved = [statement for statement in triggered if statement.startswith("INSERT INTO")]
    assert len(moved) == 2, "one row of the log, one head"


def test_what_is_kept_stays_under_its_bounds_and_evicted_scopes_answer_the_same(url):
    fill(url, 50, scopes=40)
    scopes = [pk.TenantScope.parse(f"org:acme/user:u{number}") for number in range(40)]
    with blocking.open_store(url) as store:
        texts = [blocking.PromptBuilder(_resolver(store)).build(scope).text for scope in scopes]
        cache_bytes, cache_facts = 4000, 10
        resolver = _resolver(store, cache_bytes=cache_bytes, cache_facts=cache_facts)
        builder = blocking.PromptBuilder(resolver)
        for _ in range(2):
            for scope, text in zip(scopes, texts, strict=True):
                assert builder.build(scope).text == text
                rendered, kept = resolver.core._rendering._texts, resolver.core._kept
                held = sum(sys.getsizeof(rendered.get(key).text) for key in rendered)
                assert held == rendered.weight <= cache_bytes
                assert kept.weight <= cache_facts
        assert len(rendered) > 1
        assert len(kept) > 1


def _resolver(store, **bounds):
    return blocking.PromptBlockResolver(EIGHT_BLOCKS, memory=store, **bounds)
