"""What callers may hand to a store wrongly: a named error that says which argument, the same from every store."""

from __future__ import annotations

import enum
from datetime import datetime, tzinfo
from typing import Any

import pytest

from promptkeel import blocking
from promptkeel.blocks import MemoryLane, PromptBlockSpec
from promptkeel.errors import (
    CompactedError,
    InvalidInputError,
    InvalidInstantError,
    InvalidPropertiesError,
    InvalidScopeError,
    InvalidTextError,
    NodeNotFoundError,
    NotAStoreError,
)
from promptkeel.instants import EARLIEST, LATEST
from promptkeel.model import MemoryEdge
from promptkeel.scope import ScopeLevel, TenantScope
from promptkeel.store.base import Head, Heads
from promptkeel.store.facade import BlockingStore
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import Correct, Erase, Link, Mark, Put, Remember, Retract, Unlink
from store.examples import ADA, node


@pytest.fixture(params=["ram", "sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def blocking_store(engine: Any) -> BlockingStore:
    store = BlockingStore(engine)
    store.put(node())
    return store


CALLS_OF_A_SCOPE = {
    "get": lambda store, scope: store.get(scope, "n1"),
    "query_nodes": lambda store, scope: store.query_nodes(scope),
    "retract": lambda store, scope: store.retract(scope, "n1"),
    "erase": lambda store, scope: store.erase(scope, "n1"),
    "correct": lambda store, scope: store.apply([Correct(scope=scope, node_id="n1", label="SOUL:x")]),
    "neighbours": lambda store, scope: store.neighbours(scope, "n1"),
    "heads": lambda store, scope: store.heads(scope),
    "changes": lambda store, scope: store.changes(scope, store.heads(ADA)),
    "nodes_as_of": lambda store, scope: store.nodes_as_of(scope, store.heads(ADA)),
    "history": lambda store, scope: store.history(scope, "n1"),
    "stored": lambda store, scope: store.stored(scope),
    "receipts": lambda store, scope: store.receipts(scope),
}


@pytest.mark.parametrize("scope", ["org:acme/user:ada", None, 5])
@pytest.mark.parametrize("name", sorted(CALLS_OF_A_SCOPE))
def test_what_is_no_scope_is_refused_by_name(blocking_store: BlockingStore, name: str, scope: object) -> None:
    with pytest.raises(InvalidInputError, match="must be a TenantScope") as found:
        CALLS_OF_A_SCOPE[name](blocking_store, scope)
    assert found.value.field == "scope"


@pytest.mark.parametrize("node_id", [5, None, b"n1", ["n1"]])
@pytest.mark.parametrize("name", ["get", "retract", "erase", "neighbours", "history"])
def test_an_id_that_is_no_text_is_refused_by_name(blocking_store: BlockingStore, name: str, node_id: object) -> None:
    with pytest.raises(InvalidInputError, match="must be text") as found:
        getattr(blocking_store, name)(ADA, node_id)
    assert found.value.field == "node_id"


@pytest.mark.parametrize("node_id", ["\ud800", "\0", ""])
def test_an_id_that_no_store_can_hold_is_not_there(blocking_store: BlockingStore, node_id: str) -> None:
    with pytest.raises(NodeNotFoundError):
        blocking_store.get(ADA, node_id)


@pytest.mark.parametrize("heads", [None, "x", [], Heads(()), Heads((Head("", "1", 0),)), Heads(("",))])  # type: ignore[arg-type]
def test_what_are_no_heads_is_refused_by_name(blocking_store: BlockingStore, heads: Any) -> None:
    for call in (blocking_store.changes, blocking_store.nodes_as_of):
        with pytest.raises(InvalidInputError) as found:
            call(ADA, heads)
        assert found.value.field == "heads"


@pytest.mark.parametrize("seq", [2**70, -(2**70), -1, 2**63])
def test_heads_of_a_number_that_no_store_reaches_are_of_no_store(blocking_store: BlockingStore, seq: int) -> None:
    *above, own = blocking_store.heads(ADA).levels
    heads = Heads((*above, Head(own.scope, seq, own.nonce)))
    assert blocking_store.changes(ADA, heads).changes is None
    with pytest.raises(CompactedError):
        blocking_store.nodes_as_of(ADA, heads)


def test_a_limit_of_more_than_there_can_be_is_no_limit(blocking_store: BlockingStore) -> None:
    for limit in (2**31, 2**63, 2**70):
        assert len(blocking_store.query_nodes(ADA, limit=limit)) == 1
    with blocking_store.snapshot() as snapshot:
        assert len(snapshot.query_nodes(ADA, limit=2**70)) == 1


@pytest.mark.parametrize("junk", [None, 5, "n1"])
def test_what_is_no_node_no_edge_and_no_operation_is_refused(blocking_store: BlockingStore, junk: Any) -> None:
    for make, field in ((Put, "node"), (Remember, "node"), (Link, "edge"), (Unlink, "edge")):
        with pytest.raises(InvalidInputError) as found:
            make(junk)
        assert found.value.field == field
    for call in (blocking_store.put, blocking_store.link, blocking_store.unlink):
        with pytest.raises(InvalidInputError):
            call(junk)
    for operations, named in (
        (junk, "operations"),
        ([junk], "operations[0]"),
        ([Mark("a", "b"), junk], "operations[1]"),
    ):
        with pytest.raises(InvalidInputError) as found:
            blocking_store.apply(operations)
        assert found.value.field == named
    with pytest.raises(InvalidInputError):
        blocking_store.apply(Put(node("n2")))  # type: ignore[arg-type]


def test_a_mark_is_text_that_every_store_can_hold() -> None:
    for key, value in ((5, "x"), ("\ud800", "x"), ("x", "\ud800"), ("x", 5), ("", "x")):
        with pytest.raises(InvalidTextError):
            Mark(key, value)  # type: ignore[arg-type]
    assert Mark("x", "").value == ""


@pytest.mark.parametrize("recorded", [EARLIEST - 1, LATEST + 1, 2**62, -(2**62), 2**70, True, 1.5])
def test_a_correction_is_recorded_at_a_time_that_utc_can_hold(recorded: Any) -> None:
    with pytest.raises(InvalidInstantError) as found:
        Correct(scope=ADA, node_id="n1", label="SOUL:x", recorded=recorded)
    assert found.value.field == "recorded_at"
    assert Correct(scope=ADA, node_id="n1", label="SOUL:x", recorded=LATEST).recorded == LATEST


class _BrokenZone(tzinfo):
    def utcoffset(self, _: datetime | None) -> Any:
        raise RuntimeError("no such place")


def test_a_time_zone_that_fails_is_a_time_that_cannot_be_read() -> None:
    with pytest.raises(InvalidInstantError, match="no such place") as found:
        node(recorded_at=datetime(2026, 1, 1, tzinfo=_BrokenZone()))
    assert found.value.field == "recorded_at"


class Word(str, enum.Enum):  # noqa: UP042 - the older spelling, whose members are text and print as their name
    TEA = "tea"


def test_words_of_an_enumeration_are_stored_as_plain_text(blocking_store: BlockingStore) -> None:
    given = node(
        Word.TEA,
        Word.TEA,
        source=Word.TEA,
        properties={Word.TEA: {Word.TEA: [Word.TEA]}},
        scope=ADA.child("x", Word.TEA),
    )
    blocking_store.put(given)
    found = blocking_store.get(ADA.child("x", "tea"), Word.TEA)
    texts = [found.id, found.label, found.source, *found.own_properties, *found.own_properties["tea"]]
    texts += [*found.own_properties["tea"]["tea"], found.scope.levels[-1].id, found.scope.path.rpartition(":")[2]]
    assert [(type(text), text) for text in texts] == [(str, "tea")] * len(texts)
    edge = MemoryEdge(scope=given.scope, start=Word.TEA, type=Word.TEA, end=Word.TEA)
    assert {type(text) for text in (edge.start, edge.type, edge.end)} == {str}
    correction = Correct(scope=ADA, node_id=Word.TEA, label=Word.TEA, trust=None)
    assert {type(correction.node_id), type(correction.label), type(Erase(ADA, Word.TEA).node_id)} == {str}
    assert type(Retract(ADA, Word.TEA).node_id) is str


def test_what_a_history_holds_cannot_be_changed(blocking_store: BlockingStore) -> None:
    late = Correct(scope=ADA, node_id="n1", properties={"role": {"in": ["tea"]}}, recorded=EARLIEST)
    blocking_store.put(node("n2", "SOUL:x", properties={"role": "CTO"}))
    blocking_store.apply([Correct(scope=ADA, node_id="n2", properties=late.properties, recorded=EARLIEST)])
    (testimony,) = blocking_store.history(ADA, "n2").testimonies
    assert testimony.properties == {"role": {"in": ["tea"]}}
    with pytest.raises(TypeError):
        testimony.properties["role"] = "king"
    with pytest.raises(TypeError):
        testimony.properties["role"]["in"].append("coffee")
    assert blocking_store.history(ADA, "n2").testimonies == (testimony,)


def test_the_properties_of_a_correction_are_an_object(blocking_store: BlockingStore) -> None:
    blocks = [PromptBlockSpec(name="USER_PROFILE", source=MemoryLane("SOUL:", frozenset({"role"})))]
    with blocking.open("ram:", blocks=blocks) as keel:
        made = keel.remember(ADA, "x", block="USER_PROFILE")
        for properties in (5, ["role"], "role"):
            with pytest.raises(InvalidPropertiesError):
                keel.correct(ADA, made.id, properties=properties)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["x", None, float("nan"), float("inf"), -1, 1e10, True])
def test_a_timeout_is_a_duration(tmp_path: Any, value: Any) -> None:
    with pytest.raises(InvalidInputError) as found:
        open_engine(f"sqlite:///{tmp_path}/memory.db", busy_timeout=value)
    assert found.value.field == "busy_timeout"
    assert list(tmp_path.iterdir()) == []


def test_an_option_that_a_store_does_not_have_is_named(address: str) -> None:
    with pytest.raises(InvalidInputError, match=r"is no option of this kind of store; it has .*log_limit") as found:
        open_engine(address, colour="red")
    assert found.value.field == "colour"
    for limit in ("x", 0, 1.5, None):
        with pytest.raises(InvalidInputError) as found:
            open_engine(address, log_limit=limit)
        assert found.value.field == "log_limit"


def test_an_address_with_a_lone_surrogate_names_no_store() -> None:
    for url in ("sqlite:///a\ud800.db", "ram:\ud800", "postgresql://\ud800/x"):
        with pytest.raises(NotAStoreError, match="surrogate"):
            open_engine(url)


def test_a_scope_has_a_bounded_number_of_levels() -> None:
    deepest = TenantScope(("level", str(number)) for number in range(64))
    assert TenantScope.parse(deepest.path) == deepest
    for make in (
        lambda: deepest.child("level", "64"),
        lambda: TenantScope.parse("/".join("a:b" for _ in range(100_000))),
        lambda: TenantScope(ScopeLevel("a", "b") for _ in range(65)),
    ):
        with pytest.raises(InvalidScopeError, match="more than 64 levels"):
            make()
    with pytest.raises(InvalidScopeError):
        TenantScope(5)  # type: ignore[arg-type]
