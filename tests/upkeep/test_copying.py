"""A copy of a store holds the same lanes at the same revisions, whatever kinds of store the two are."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptkeel.blocking import scan_memory_lane
from promptkeel.errors import InvalidInputError, NodeErasedError, StoreBusyError, StoreError
from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.steps import drive_blocking
from promptkeel.store.base import Engine, History
from promptkeel.store.facade import BlockingStore
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import Correct, Put, Remember
from promptkeel.upkeep.checking import check_engine
from promptkeel.upkeep.copying import copy_steps, copy_store
from store.examples import ACME, ADA, BOB, OTHER, SteppingClock, node
from store.stock_client import StockClient
from strategies import nodes as any_nodes

KINDS = ("ram", "sqlite", "postgres")
SCOPES = (DEPLOYMENT, ACME, ADA, BOB, OTHER)


Opened = Callable[..., AbstractContextManager[list[Engine]]]


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Opened:
    """Opens an empty store of each kind."""

    @contextmanager
    def open_them(*kinds: str) -> Iterator[list[Engine]]:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            engines: list[Engine] = []
            for number, kind in enumerate(kinds):
                url = "ram:" if kind == "ram" else f"sqlite:///{folder}/{number}.db"
                if kind == "postgres":
                    databases = request.getfixturevalue("databases")
                    url = databases.store()
                    stack.callback(databases.give_back, url)
                engines.append(open_engine(url, clock=SteppingClock()))
                stack.callback(engines[-1].close)
            yield engines

    return open_them


def everything(engine: Engine) -> dict[str, Any]:
    """What a store says about all that it holds."""
    stored = engine.stored(DEPLOYMENT)
    histories: dict[tuple[str, str], History] = {
        (each.scope.path, each.id): engine.history(each.scope, each.id) for each in stored.nodes
    }
    receipts = [attrs.evolve(each, state="unreadable") for each in engine.receipts(DEPLOYMENT, below=True)]
    return {
        "nodes": [(each.version, each) for each in stored.nodes],
        "edges": [(each, dict(each.properties)) for each in stored.edges],
        "versions": {key: [each.version for each in history.versions] for key, history in histories.items()},
        "testimonies": {key: history.testimonies for key, history in histories.items()},
        "receipts": sorted(receipts, key=lambda each: (each.scope, each.node_id)),
        "secret": engine.secret(),
    }


actions = st.one_of(
    st.tuples(st.just("put"), any_nodes),
    st.tuples(st.just("correct"), st.sampled_from(["SOUL:one", "SOUL:two", "RULE:one"])),
    st.tuples(st.just("confirm"), st.sampled_from(["ada", "bob", None])),
    st.tuples(st.just("retract"), st.none()),
    st.tuples(st.sampled_from(["erase", "bring back"]), st.none()),
    st.tuples(st.sampled_from(["about", "supersedes", "derived_from"]), st.none()),
)
programs = st.lists(st.tuples(actions, st.integers(0, 5), st.integers(0, 5)), max_size=20)


def run(engine: Engine, program: list[Any]) -> None:
    store, known = BlockingStore(engine), list[MemoryNode]()
    for number, ((action, value), first, second) in enumerate(program):
        engine._clock.tick()  # type: ignore[attr-defined]
        try:
            if action == "put":
                scope = SCOPES[first % len(SCOPES)]
                known.append(store.put(attrs.evolve(value, id=f"{value.id}{number}", scope=scope)))
            elif known:
                one, other = known[first % len(known)], known[second % len(known)]
                if action == "correct":
                    store.apply((Correct(scope=one.scope, node_id=one.id, label=value, properties={"role": second}),))
                elif action == "confirm":
                    store.apply((Remember(attrs.evolve(store.get(one.scope, one.id), source=value)),))
                elif action == "retract":
                    store.retract(one.scope, one.id)
                elif action == "erase":
                    store.erase(one.scope, one.id)
                elif action == "bring back":
                    store.apply((Put(one, force_erased=True),))
                else:
                    store.link(MemoryEdge(scope=one.scope, start=one.id, type=action, end=other.id))
        except StoreError:
            continue


@pytest.mark.parametrize(("source_kind", "target_kind"), list(itertools.product(KINDS, KINDS)))
def test_a_copy_says_what_its_source_says(opened: Opened, source_kind: str, target_kind: str) -> None:
    remote = "postgres" in (source_kind, target_kind)

    @settings(max_examples=8 if remote else settings().max_examples)
    @given(programs)
    def holds(program: list[Any]) -> None:
        with opened(source_kind, target_kind) as (source, target):
            run(source, program)
            report = copy_store(source, target)
            assert everything(target) == everything(source)
            assert report.left_out == ()
            assert check_engine(target).findings == ()
            for scope in SCOPES:
                for prefix in ("", "SOUL:", "RULE:"):
                    lanes = [
                        scan_memory_lane(BlockingStore(engine), scope, prefix, frozenset({"role"}))
                        for engine in (source, target)
                    ]
                    assert lanes[0].revision == lanes[1].revision
                    assert lanes[0].facts == lanes[1].facts

    holds()


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_erased_stays_erased(opened: Opened, kind: str) -> None:
    with opened("ram", kind) as (source, target):
        store = BlockingStore(source)
        store.put(node())
        store.erase(ADA, "n1")
        assert copy_store(source, target).receipts == 1
        with pytest.raises(NodeErasedError):
            BlockingStore(target).put(node())


@pytest.mark.parametrize("kind", KINDS)
def test_every_erasure_of_an_id_that_was_brought_back_is_taken_along(opened: Opened, kind: str) -> None:
    with opened("ram", kind) as (source, target):
        store = BlockingStore(source)
        for _ in range(2):
            store.apply((Put(node(), force_erased=True),))
            store.erase(ADA, "n1")
        store.apply((Put(node(), force_erased=True),))
        assert copy_store(source, target).receipts == 2
        assert everything(target) == everything(source)
        assert len(target.receipts(ADA)) == 2
        assert check_engine(target).findings == ()


def test_a_target_that_is_not_empty_is_refused_and_unchanged(opened: Opened) -> None:
    with opened("ram", "sqlite") as (source, target):
        BlockingStore(source).put(node())
        BlockingStore(target).put(node("theirs"))
        before = everything(target)
        with pytest.raises(InvalidInputError, match="not empty"):
            copy_store(source, target)
        assert everything(target) == before


def test_progress_ends_at_the_total_and_never_goes_back(opened: Opened) -> None:
    with opened("sqlite", "ram") as (source, target):
        for number in range(5):
            BlockingStore(source).put(node(f"n{number}"))
        seen: list[tuple[int, int]] = []
        cores = [BlockingStore(engine).core for engine in (source, target)]
        report = drive_blocking(copy_steps(*cores, on_progress=lambda *progress: seen.append(progress)))
        assert report.nodes == 5
        assert seen == [(done, 10) for done in range(1, 11)]


def test_a_source_that_is_written_to_meanwhile_is_read_again(opened: Opened) -> None:
    with opened("sqlite", "ram") as (source, target):
        store, rest = BlockingStore(source), [node("late1"), node("late2")]
        store.put(node())

        def write(_: int, __: int) -> None:
            if rest:
                store.put(rest.pop())

        assert copy_store(source, target, on_progress=write).nodes == 3
        assert everything(target) == everything(source)


def test_a_source_that_is_always_written_to_is_not_copied_halfway(opened: Opened) -> None:
    with opened("sqlite", "ram") as (source, target):
        store, numbers = BlockingStore(source), itertools.count()
        store.put(node())
        with pytest.raises(StoreBusyError, match="backup"):
            copy_store(source, target, on_progress=lambda *_: store.put(node(f"late{next(numbers)}")))
        assert everything(target)["nodes"] == []


def test_a_failure_while_writing_leaves_the_target_empty(opened: Opened) -> None:
    with opened("ram", "sqlite") as (source, target):
        for number in range(3):
            BlockingStore(source).put(node(f"n{number}"))

        def fail(done: int, _: int) -> None:
            if done == 5:
                raise RuntimeError("stop")

        with pytest.raises(RuntimeError):
            copy_store(source, target, on_progress=fail)
        assert everything(target)["nodes"] == []
        assert target.secret() != source.secret()


def test_what_no_store_could_write_is_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    source, target = (open_engine(url, clock=SteppingClock()) for url in (f"sqlite:///{path}", "ram:"))
    store = BlockingStore(source)
    for name in ("n1", "n2", "n3"):
        store.put(node(name))
    store.apply((Correct(scope=ADA, node_id="n1", label="SOUL:more"),))
    store.link(MemoryEdge(scope=ADA, start="n1", type="about", end="n2"))
    with StockClient() as client:
        client.run(path, "DELETE FROM nodes WHERE id = 'n2'")
        client.run(path, "UPDATE nodes SET scope = 'org:acme' WHERE id = 'n3'")
    report = copy_store(source, target)
    assert len(report.left_out) == 1
    assert report.left_out[0].startswith("edge about from 'n1' to 'n2'")
    assert TenantScope.parse("org:acme") == target.get(ACME, "n3").scope
    for engine in (source, target):
        engine.close()
