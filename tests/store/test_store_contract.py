"""Writes and reads of nodes mean the same on every backend and in every form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from promptkeel.errors import (
    ConflictError,
    InvalidInputError,
    InvalidTextError,
    NodeErasedError,
    NodeExistsError,
    NodeNotFoundError,
    ReadOnlyNodeError,
    StoreClosedError,
)
from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.store.base import GraphStore, LaneRequest
from promptkeel.store.facade import Store
from promptkeel.store.operations import Erase, Mark, Put, Remember, Retract
from store.examples import ACME, ADA, ADAM, BOB, CHAIN, OTHER, START, SteppingClock, ids, node

# Insert


def test_an_inserted_node_is_stamped_and_read_back(store: Any, clock: SteppingClock) -> None:
    given = node(properties={"tags": ["a", {"b": None}], "n": 1.5, "source": "chat"}, trust="user")
    stored = store.put(given)
    assert (stored.created, stored.updated, stored.recorded) == (START, START, START)
    assert stored.same_content(attrs.evolve(given, recorded_at=START))
    clock.tick()
    assert store.get(ADA, "n1") == stored
    assert list(store.query_nodes(ADA)) == [stored]
    assert store.get(ADA, "n1").version == stored.version


def test_times_that_are_given_are_kept(store: Any) -> None:
    stored = store.put(node(recorded_at=None, created_at="2020-01-01", updated_at="2021-01-01T00:00:00.000001Z"))
    assert stored.recorded is None
    assert stored.recorded_at is None
    assert (str(stored.created_at), str(stored.updated_at)) == (
        "2020-01-01 00:00:00+00:00",
        "2021-01-01 00:00:00.000001+00:00",
    )
    assert store.get(ADA, "n1") == stored


TEXTS = [
    "SOUL:" + statement
    for statement in (
        "I <3 naïve art", "〈日本語〉", "Map<string, List<int>>", "a\tb\nc\rd", "e\u0301 é", "\U0010ffff\uffff\ufffe",
        "O'Brien; DROP TABLE nodes; --", "100% _x_ \\ *", " padded ", "\u202eright to left", "x" * 100_000, "\x7f\x85",
    )
]  # fmt: skip


@pytest.mark.parametrize("label", TEXTS, ids=range(len(TEXTS)))
def test_text_is_kept_as_given(store: Any, label: str) -> None:
    stored = store.put(node(label, label, source=label, properties={label: label}))
    assert store.get(ADA, label) == stored
    assert stored.label == label
    assert store.get(ADA, label).properties[label] == label
    assert ids(store.query_nodes(ADA, label_prefix=label)) == [label]


@pytest.mark.parametrize("value", [0, -1, 2**63, -(2**64), 10**999, 0.1, -0.0, 1e300, 5e-324, True, [], {}, "", None])
def test_json_values_keep_their_kind(store: Any, value: Any) -> None:
    store.put(node(properties={"value": value}))
    read = store.get(ADA, "n1").properties["value"]
    assert (repr(read), type(read)) == (repr(value), type(value))


def test_an_id_is_in_use_under_its_root_only(store: Any) -> None:
    first = store.put(node("n1", scope=ADA))
    for scope in (ADA, BOB, ACME):
        with pytest.raises(NodeExistsError, match="in use under root org:acme"):
            store.put(node("n1", "SOUL:other", scope=scope))
    store.put(node("n1", "SOUL:other", scope=OTHER))
    store.put(node("n1", "SOUL:deployment", scope=DEPLOYMENT))
    assert store.get(ADA, "n1") == first
    assert store.get(OTHER, "n1").label == "SOUL:other"
    assert store.get(BOB, "n1").label == "SOUL:deployment"
    assert [each.label for each in store.query_nodes(ADA)] == ["SOUL:deployment", "SOUL:prefers tea"]


# Change


def test_a_node_is_changed_against_what_was_read(store: Any, clock: SteppingClock) -> None:
    first = store.put(node())
    later = clock.tick()
    second = store.put(attrs.evolve(first, label="SOUL:prefers coffee"), expected=first)
    assert (second.label, second.created, second.updated) == ("SOUL:prefers coffee", START, later)
    third = store.put(attrs.evolve(second, source="chat"), expected=second.version)
    assert store.get(ADA, "n1") == third
    with pytest.raises(ConflictError, match="read it again"):
        store.put(attrs.evolve(first, label="SOUL:prefers milk"), expected=first)
    with pytest.raises(ConflictError):
        store.put(attrs.evolve(first, label="SOUL:prefers milk"), expected=first.version)
    assert store.get(ADA, "n1") == third


def test_a_change_to_the_same_content_changes_nothing(store: Any, clock: SteppingClock) -> None:
    first = store.put(node(properties={"a": 1}))
    heads = store.heads(ADA)
    clock.tick()
    assert store.put(node(properties={"a": 1}, recorded_at=first.recorded), expected=first) == first
    assert store.put(node(properties={"a": 1}), expected=first) == first
    assert store.heads(ADA) == heads
    changed = store.put(node(properties={"a": True}), expected=first)
    assert changed.properties["a"] is True
    assert store.heads(ADA) != heads


def test_a_change_needs_a_node(store: Any) -> None:
    with pytest.raises(NodeNotFoundError, match="no node 'n1' is visible at scope org:acme/user:ada"):
        store.put(node(), expected="0" * 32)


# Visibility


def test_a_node_is_visible_at_its_scope_and_below(store: Any) -> None:
    stored = [store.put(node(f"n{depth}", scope=scope)) for depth, scope in enumerate(CHAIN)]
    for depth, scope in enumerate(CHAIN):
        assert list(store.query_nodes(scope)) == stored[: depth + 1]
        for other, each in enumerate(stored):
            if other <= depth:
                assert store.get(scope, each.id) == each
            else:
                with pytest.raises(NodeNotFoundError):
                    store.get(scope, each.id)
    for stranger in (BOB, ADAM):
        assert ids(store.query_nodes(stranger)) == ["n0", "n1"]
        with pytest.raises(NodeNotFoundError):
            store.get(stranger, "n2")
    assert ids(store.query_nodes(OTHER)) == ["n0"]
    with pytest.raises(NodeNotFoundError, match="at scope org:other/user:ada"):
        store.get(OTHER, "n1")


@pytest.mark.parametrize("owner", [DEPLOYMENT, ACME])
def test_an_ancestors_node_is_read_only(store: Any, owner: TenantScope) -> None:
    stored = store.put(node(scope=owner))
    heads = store.heads(ADA)
    for write in (
        lambda: store.put(node(label="SOUL:mine", scope=ADA), expected=stored),
        lambda: store.retract(ADA, "n1"),
        lambda: store.erase(ADA, "n1"),
        lambda: store.link(MemoryEdge(scope=ADA, start="n1", type="about", end="n1")),
    ):
        with pytest.raises(ReadOnlyNodeError, match="write at its own scope"):
            write()
    assert store.heads(ADA) == heads
    assert store.get(ADA, "n1") == stored


def test_a_strangers_node_is_not_there_to_write(store: Any) -> None:
    store.put(node(scope=ADA))
    for scope in (BOB, ACME, OTHER, DEPLOYMENT):
        for write in (store.retract, store.erase):
            with pytest.raises(NodeNotFoundError):
                write(scope, "n1")


# Lanes


LABELS = [
    "SOUL:a", "SOUL:%", "SOUL:_", "SOUL:\\", "SOUL:a\U0010ffff", "SOUL:a\ud7ff", "SOUL:a\ue000", "SOUL;", "SOUL",
    "SOUM:x", "soul:a", "S%", "S_", "\U0010ffff", "\U0010ffff\U0010ffff", "SOUL:é", "SOUL:e\u0301", "SOUL:*",
    "SOUL:[a]",
]  # fmt: skip
PREFIXES = [
    None, "", "S", "SOUL:", "SOUL:a", "SOUL:%", "SOUL:_", "SOUL:\\", "S%", "S_", "%", "_", "\U0010ffff", "SOUL:a\ud7ff",
    "SOUL:a\U0010ffff", "SOUL:a\ue000", "SOUL:[", "SOUL:*", "soul", "\x7f", "'",
]  # fmt: skip


def test_a_prefix_is_no_pattern(store: Any) -> None:
    store.apply([Put(node(f"n{number}", label)) for number, label in enumerate(LABELS)])
    for prefix in PREFIXES:
        found = [each.label for each in store.query_nodes(ADA, label_prefix=prefix)]
        assert found == sorted(label for label in LABELS if label.startswith(prefix or "")), prefix


@pytest.mark.parametrize("prefix", ["\ud800", "SOUL:\udfff", "\x00", 7, b"SOUL:"])
def test_a_prefix_that_no_label_can_have_is_refused(store: Any, prefix: Any) -> None:
    heads = store.heads(ADA)
    for read in (
        lambda: store.query_nodes(ADA, label_prefix=prefix),
        lambda: store.changes(ADA, heads, label_prefix=prefix),
        lambda: store.nodes_as_of(ADA, heads, label_prefix=prefix),
    ):
        with pytest.raises(InvalidTextError, match="label_prefix"):
            read()


def test_lane_order_is_label_then_instant_then_id(store: Any) -> None:
    order = [
        node("c", "SOUL:a", recorded_at=None),
        node("a", "SOUL:a", recorded_at="2020-01-01"),
        node("b", "SOUL:a", recorded_at="2020-01-01", scope=ACME),
        node("0", "SOUL:a", recorded_at="2021-01-01", scope=DEPLOYMENT),
        node("9", "SOUL:b", recorded_at=None),
        node("10", "SOUL:b", recorded_at="1900-01-01"),
        node("é", "SOUL:b", recorded_at="1900-01-01"),
        node("\uffff", "SOUL:b", recorded_at="1900-01-01"),
        node("\U00010000", "SOUL:b", recorded_at="1900-01-01"),
    ]
    store.apply([Put(each) for each in reversed(order)])
    assert ids(store.query_nodes(ADA, label_prefix="SOUL:")) == ids(order)
    assert ids(store.query_nodes(ADA, limit=4)) == ids(order)[:4]


def test_a_limit_is_none_or_not_negative(store: Any) -> None:
    store.apply([Put(node(f"n{number}")) for number in range(5)])
    assert ids(store.query_nodes(ADA, limit=0)) == []
    assert ids(store.query_nodes(ADA, limit=3)) == ["n0", "n1", "n2"]
    assert len(store.query_nodes(ADA, limit=99)) == len(store.query_nodes(ADA, limit=None)) == 5
    for limit in (-1, 1.0, True, "3"):
        with pytest.raises(InvalidInputError, match="limit"):
            store.query_nodes(ADA, limit=limit)


# Retract and erase


def test_a_retracted_node_leaves_every_lane_and_stays_to_be_read(store: Any, clock: SteppingClock) -> None:
    first = store.put(node())
    later = clock.tick()
    retracted = store.retract(ADA, "n1", expected=first)
    assert (retracted.state, retracted.updated) == ("retracted", later)
    assert store.query_nodes(ADA) == []
    assert store.get(ADA, "n1") == retracted
    heads = store.heads(ADA)
    clock.tick()
    assert store.retract(ADA, "n1") == retracted
    assert store.heads(ADA) == heads
    with pytest.raises(ConflictError):
        store.retract(ADA, "n1", expected=first)
    with pytest.raises(NodeExistsError):
        store.put(node())


def test_an_erased_node_leaves_a_receipt_without_text(store: Any, clock: SteppingClock) -> None:
    first = store.put(node(source="secret-source", properties={"secret-key": "secret-value"}))
    store.put(node("n2"))
    store.put(attrs.evolve(first, label="SOUL:secret-label"), expected=first)
    store.link(MemoryEdge(scope=ADA, start="n1", type="about", end="n2"))
    store.link(MemoryEdge(scope=ADA, start="n2", type="about", end="n1"))
    store.apply([Remember(node("x", "SOUL:secret-label", source="another"))])
    later = clock.tick()
    receipt = store.erase(ADA, "n1")
    assert (receipt.node_id, receipt.scope, receipt.at) == ("n1", ADA.path, later)
    assert (receipt.versions, receipt.edges, receipt.testimonies) == (1, 2, 1)
    assert "secret" not in repr(receipt)
    assert [each.node_id for each in store.receipts(ADA)] == ["n1"]
    assert store.receipts(ACME) == []
    assert ids(store.query_nodes(ADA)) == ["n2"]
    assert store.neighbours(ADA, "n2", direction="both") == []
    for read in (store.get, store.history, store.neighbours, store.retract, store.erase):
        with pytest.raises(NodeErasedError, match="'n1' was erased"):
            read(ADA, "n1")


def test_an_erased_id_is_not_handed_out_again(store: Any) -> None:
    store.put(node())
    store.erase(ADA, "n1")
    for scope in (ADA, BOB, ACME):
        with pytest.raises(NodeErasedError, match="use a new id"):
            store.put(node(scope=scope))
    store.put(node(scope=OTHER))
    assert ids(store.query_nodes(ADA)) == []


def test_receipts_are_in_the_order_of_the_erasures(store: Any, clock: SteppingClock) -> None:
    store.apply([Put(node(name)) for name in "cab"])
    for name in "bca":
        clock.tick()
        store.erase(ADA, name)
    assert [receipt.node_id for receipt in store.receipts(ADA)] == ["b", "c", "a"]


# Transactions


def test_all_operations_happen_or_none(store: Any) -> None:
    store.put(node("n1"))
    store.put(node("n2"))
    before = (store.heads(ADA), store.query_nodes(ADA), store.history(ADA, "n1"))
    with pytest.raises(NodeNotFoundError):
        store.apply(
            [
                Put(node("n3")),
                Retract(ADA, "n1"),
                Erase(ADA, "n2"),
                Mark("place", "1"),
                Retract(ADA, "missing"),
            ]
        )
    assert (store.heads(ADA), store.query_nodes(ADA), store.history(ADA, "n1")) == before
    assert store.receipts(ADA) == []
    store.put(node("n3"))
    assert ids(store.query_nodes(ADA)) == ["n1", "n2", "n3"]


def test_operations_see_what_came_before_them(store: Any) -> None:
    outcomes = store.apply(
        [Put(node()), Remember(node("n2")), Retract(ADA, "n1"), Remember(node("n3")), Erase(ADA, "n1")]
    )
    assert [outcome.kind for outcome in outcomes] == ["inserted", "unchanged", "retracted", "inserted", "erased"]
    assert ids(store.query_nodes(ADA)) == ["n3"]


def test_a_dry_run_says_what_would_happen_and_does_not_do_it(store: Any) -> None:
    first = store.put(node())
    heads = store.heads(ADA)
    operations = [Retract(ADA, "n1"), Put(node("n2")), Erase(ADA, "n1"), Mark("place", "1")]
    outcomes = store.apply(operations, dry_run=True)
    assert [outcome.kind for outcome in outcomes] == ["retracted", "inserted", "erased", "marked"]
    assert store.heads(ADA) == heads
    assert store.query_nodes(ADA) == [first]
    assert store.receipts(ADA) == []
    assert [outcome.kind for outcome in store.apply(operations)] == [outcome.kind for outcome in outcomes]


def test_an_empty_batch_does_nothing(store: Any, engine: Any) -> None:
    token = engine.probe()
    assert store.apply([]) == ()
    assert engine.probe() == token


def test_what_is_no_operation_is_refused(store: Any) -> None:
    with pytest.raises(InvalidInputError, match="no operation"):
        store.apply([Put(node()), "erase everything"])
    assert store.query_nodes(ADA) == []


def test_marks_are_kept_with_their_transaction(store: Any, engine: Any) -> None:
    assert engine.mark("place") is None
    store.apply([Mark("place", "7"), Put(node())])
    assert engine.mark("place") == "7"
    store.apply([Mark("place", "8")])
    store.apply([Mark("other", "1"), Mark("place", None)])
    assert (engine.mark("place"), engine.mark("other")) == (None, "1")


# The engine around them


def test_probe_moves_with_every_commit_and_with_nothing_else(store: Any, engine: Any) -> None:
    tokens = [engine.probe()]
    for write in (
        lambda: store.put(node()),
        lambda: store.put(node("n2")),
        lambda: store.link(MemoryEdge(scope=ADA, start="n1", type="about", end="n2")),
        lambda: store.retract(ADA, "n1"),
        lambda: store.erase(ADA, "n2"),
        lambda: store.apply([Mark("place", "1")]),
    ):
        write()
        assert engine.probe() not in tokens
        tokens.append(engine.probe())
    store.query_nodes(ADA)
    store.get(ADA, "n1")
    store.history(ADA, "n1")
    store.nodes_as_of(ADA, store.heads(ADA))
    engine.catch_up(ADA, [LaneRequest("SOUL:")])
    store.apply([Put(node("n3"))], dry_run=True)
    with pytest.raises(NodeNotFoundError):
        store.retract(ADA, "missing")
    assert engine.probe() == tokens[-1]


def test_the_secret_is_the_stores_own(engine: Any) -> None:
    assert isinstance(engine.secret(), bytes)
    assert len(engine.secret()) == 32
    assert engine.secret() == engine.secret()


def test_a_store_says_what_it_is(store: Any, backend: str) -> None:
    assert store.url.startswith("sqlite:" if backend == "sqlite3" else f"{backend}:")
    assert store.capabilities == {"heads", "history", "watch"}


def test_a_store_is_what_the_protocol_names(engine: Any) -> None:
    assert isinstance(Store(engine), GraphStore)


def test_a_closed_store_refuses_everything(store: Any, engine: Any) -> None:
    store.put(node())
    heads = store.heads(ADA)
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.put(node("n2")),
        lambda: store.get(ADA, "n1"),
        lambda: store.query_nodes(ADA),
        lambda: store.retract(ADA, "n1"),
        lambda: store.erase(ADA, "n1"),
        lambda: store.link(MemoryEdge(scope=ADA, start="n1", type="about", end="n1")),
        lambda: store.neighbours(ADA, "n1"),
        lambda: store.heads(ADA),
        lambda: store.changes(ADA, heads),
        lambda: store.nodes_as_of(ADA, heads),
        lambda: store.history(ADA, "n1"),
        lambda: store.receipts(ADA),
        lambda: store.apply([]),
        engine.probe,
        engine.secret,
        engine.open_snapshot,
        lambda: engine.mark("place"),
        lambda: engine.tail(ADA, []),
        lambda: engine.catch_up(ADA, []),
    ]
    for call in calls:
        with pytest.raises(StoreClosedError):
            call()


def test_what_is_read_is_not_the_store(store: Any) -> None:
    given: dict[str, Any] = {"tags": ["a"]}
    store.put(node(properties=given))
    heads = store.heads(ADA)
    given["tags"].append("b")
    store.get(ADA, "n1").properties["tags"].append("c")
    for each in store.query_nodes(ADA):
        each.properties["tags"].append("d")
    found: MemoryNode = store.get(ADA, "n1")
    assert found.properties["tags"] == ["a"]
    assert store.heads(ADA) == heads
