"""Many operations in one transaction do what they do one by one, for fewer round trips."""

from __future__ import annotations

import itertools
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.errors import NodeErasedError, NodeExistsError, PromptkeelError
from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.base import Head, Heads
from promptkeel.store.operations import (
    AppendBlock,
    Correct,
    Erase,
    Link,
    Put,
    Remember,
    Retract,
)
from promptkeel.store.postgres import PostgresEngine
from promptkeel.store.ram import RamEngine

NOW = 1_780_000_000_000_000
SCOPES = [TenantScope.parse(path) for path in ("", "org:acme", "org:acme/user:u1", "org:acme/user:u2", "org:other")]
IDS = st.sampled_from(["a", "b", "c", "d"])
EDGES = st.sampled_from(["about", "derived_from"])
LABELS = st.sampled_from(["SOUL:x", "SOUL:y", "FOCUS:x", "SOUL:" + "long " * 60])


def nodes(**fixed: Any) -> st.SearchStrategy[MemoryNode]:
    fields = {
        "id": IDS,
        "scope": st.sampled_from(SCOPES),
        "label": LABELS,
        "source": st.sampled_from([None, "chat", "mail"]),
        "recorded_at": st.sampled_from([None, "2026-01-01", "2026-02-01"]),
        "properties": st.sampled_from([{}, {"role": "CTO"}, {"role": "CEO", "n": [1, {"é": None}]}]),
    }
    return st.builds(MemoryNode, **(fields | fixed))


NAMED = {"scope": st.sampled_from(SCOPES), "node_id": IDS}
OPERATIONS = st.one_of(
    st.builds(Put, nodes()),
    st.builds(Remember, nodes()),
    st.builds(Put, nodes(), expected=st.just("0" * 16)),
    st.builds(Correct, **NAMED, label=LABELS, recorded=st.sampled_from([None, NOW, NOW + 5])),
    st.builds(Correct, **NAMED, properties=st.just({"role": "CFO"})),
    st.builds(Retract, st.sampled_from(SCOPES), IDS),
    st.builds(Erase, st.sampled_from(SCOPES), IDS),
    st.builds(
        Link,
        st.builds(MemoryEdge, scope=st.sampled_from(SCOPES), start=IDS, type=EDGES, end=IDS),
    ),
    st.builds(
        AppendBlock, scope=st.sampled_from(SCOPES), block=st.just("RULES"), content=st.sampled_from(["one", "two"]),
        author=st.just("operator"),
    ),
)  # fmt: skip


def performed(engine: Any, operations: list[Any]) -> list[Any]:
    """The operations in one transaction: what became of each, or the kind of error that refused them all."""
    try:
        return [(outcome.kind, outcome.node, outcome.edge, outcome.outdated) for outcome in engine.apply(operations)]
    except PromptkeelError as error:
        return [type(error), str(error)]


def everything(engine: Any) -> Any:
    """All that a store holds, without what is random in it."""
    stored = engine.stored(SCOPES[0])
    histories = {}
    for node in stored.nodes:
        histories[node.scope.root, node.id] = engine.history(node.scope, node.id)
    lanes = {scope.path: engine.query_nodes(scope, "SOUL:", None) for scope in SCOPES}
    receipts = sorted(
        (each.node_id, each.scope, each.versions, each.edges, each.testimonies)
        for each in engine.receipts(SCOPES[0], below=True)
    )
    logged = {}
    for scope in SCOPES:
        never = Heads(tuple(Head(head.scope) for head in engine.heads(scope).levels))
        changes = engine.changes(scope, never, None)
        # One transaction numbers the changes of several scopes in the order of their paths.
        entries = sorted(changes.changes or (), key=lambda change: change.scope)
        logged[scope.path] = changes.changes is None or [
            (change.scope, change.node_id, change.label_before, change.label_after) for change in entries
        ]
    return stored, histories, lanes, receipts, logged


@pytest.fixture(scope="module")
def pool(databases):
    """Two empty stores for each example."""
    addresses = [databases.store() for _ in range(2)]
    yield databases, addresses
    for address in addresses:
        databases.give_back(address)


@given(batches=st.lists(st.lists(OPERATIONS, min_size=1, max_size=8), min_size=1, max_size=3))
def test_one_batch_is_its_operations_one_by_one(pool, batches):
    databases, addresses = pool
    for address in addresses:
        databases.give_back(address)
        databases.store()
    together, single = (PostgresEngine(address, clock=lambda: NOW) for address in addresses)
    ram = RamEngine(clock=lambda: NOW)
    try:
        for batch in batches:
            found = performed(together, batch)
            assert found == performed(ram, batch)
            if not isinstance(found[0], type):
                assert found == list(itertools.chain(*(performed(single, [each]) for each in batch)))
        held = everything(together)
        assert held[:-1] == everything(ram)[:-1]
        assert held == everything(single)
    finally:
        together.close()
        single.close()


def test_a_thousand_new_statements_cost_few_round_trips(engine: PostgresEngine) -> None:
    asked: list[Any] = []
    execute = psycopg.Connection.execute

    def counted(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        asked.append(query)
        return execute(self, query, *args, **options)

    scope = TenantScope.parse("org:acme/user:u1")
    said = [Remember(MemoryNode(id=f"n{number}", scope=scope, label=f"SOUL:{number}")) for number in range(1000)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Connection, "execute", counted)
        outcomes = engine.apply(said)
    assert [outcome.kind for outcome in outcomes] == ["inserted"] * 1000
    assert len(asked) <= 10
    again = engine.apply(said)
    assert {outcome.kind for outcome in again} <= {"confirmed", "unchanged"}


def test_what_a_batch_knows_beforehand_follows_what_it_does(engine: PostgresEngine) -> None:
    scope = TenantScope.parse("org:acme/user:u1")

    def said(name: str, label: str) -> Remember:
        return Remember(MemoryNode(id=name, scope=scope, label=label))

    engine.apply([said("a", "SOUL:x")])
    outcomes = engine.apply(
        [
            said("b", "SOUL:x"),  # is known, and confirms a
            Correct(scope=scope, node_id="a", label="SOUL:y", recorded=NOW * 2),
            said("c", "SOUL:x"),  # nobody says it any more
            Erase(scope, "c"),
            said("b", "SOUL:x"),
            Retract(scope, "b"),
            said("d", "SOUL:x"),
            Put(MemoryNode(id="e", scope=scope, label="SOUL:y")),
            said("f", "SOUL:y"),
        ]
    )
    kinds = [outcome.kind for outcome in outcomes]
    assert kinds[1:8] == ["updated", "inserted", "erased", "inserted", "retracted", "inserted", "inserted"]
    live = {(node.id, node.label) for node in engine.query_nodes(scope, None, None)}
    assert live == {("d", "SOUL:x"), ("a", "SOUL:y"), ("e", "SOUL:y")}
    with pytest.raises(PromptkeelError):
        engine.apply([said("g", "SOUL:g"), Put(MemoryNode(id="c", scope=scope, label="SOUL:c"))])
    again = Put(MemoryNode(id="h", scope=scope, label="SOUL:h"))
    with pytest.raises(NodeErasedError):
        engine.apply([again, Erase(scope, "h"), again])
    with pytest.raises(NodeExistsError):
        engine.apply([again, again])
