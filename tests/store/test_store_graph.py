"""Edges: what links, what is found from where, and what lineage must not do."""

from __future__ import annotations

from typing import Any

import pytest

from promptkeel.errors import CycleError, InvalidInputError, NodeErasedError, NodeNotFoundError, ReadOnlyNodeError
from promptkeel.model import MemoryEdge
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.store.operations import Link, Put, Unlink
from store.examples import ACME, ADA, BOB, OTHER, SteppingClock, ids, node


def edge(start: str, end: str, type_: str = "about", *, scope: TenantScope = ADA, **properties: Any) -> MemoryEdge:
    return MemoryEdge(scope=scope, start=start, type=type_, end=end, properties=properties)


def found(store: Any, node_id: str, scope: TenantScope = ADA, **asked: Any) -> list[tuple[str, str]]:
    return [(each.edge.type, each.node.id) for each in store.neighbours(scope, node_id, **asked)]


@pytest.fixture
def linked(store: Any) -> Any:
    store.apply([Put(node(name)) for name in "abcd"])
    store.apply([Link(edge("a", "c")), Link(edge("a", "b")), Link(edge("a", "b", "because")), Link(edge("d", "a"))])
    return store


def test_neighbours_are_by_type_then_id(linked: Any) -> None:
    assert found(linked, "a") == [("about", "b"), ("about", "c"), ("because", "b")]
    assert found(linked, "a", direction="in") == [("about", "d")]
    assert found(linked, "a", direction="both") == [("about", "b"), ("about", "c"), ("about", "d"), ("because", "b")]
    assert found(linked, "a", edge_type="because") == [("because", "b")]
    assert found(linked, "a", edge_type="nothing") == []
    assert found(linked, "b") == []
    (neighbour,) = linked.neighbours(ADA, "d")
    assert neighbour.edge == edge("d", "a")
    assert neighbour.node == linked.get(ADA, "a")


def test_linking_again_changes_the_properties(linked: Any) -> None:
    linked.link(edge("a", "c", weight=1))
    linked.link(edge("a", "c", weight=True))
    (neighbour,) = [each for each in linked.neighbours(ADA, "a") if each.node.id == "c"]
    assert neighbour.edge.properties["weight"] is True
    (outcome,) = linked.apply([Link(edge("a", "c", weight=True))])
    assert outcome.kind == "unchanged"


def test_a_self_loop_is_one_neighbour(store: Any) -> None:
    store.put(node("a"))
    store.link(edge("a", "a"))
    assert found(store, "a", direction="both") == [("about", "a")]


def test_unlinking_removes_one_edge(linked: Any) -> None:
    linked.unlink(edge("a", "b"))
    assert found(linked, "a") == [("about", "c"), ("because", "b")]
    with pytest.raises(NodeNotFoundError, match="no edge about from 'a' to 'b'"):
        linked.unlink(edge("a", "b"))


@pytest.mark.parametrize("direction", ["up", None, ""])
def test_a_direction_is_out_in_or_both(linked: Any, direction: Any) -> None:
    with pytest.raises(InvalidInputError, match="direction"):
        linked.neighbours(ADA, "a", direction=direction)


def test_an_edge_starts_at_its_own_scope_and_reaches_what_is_visible(store: Any) -> None:
    store.apply(
        [Put(node(name, scope=scope)) for name, scope in zip("dabo", (DEPLOYMENT, ACME, BOB, OTHER), strict=True)]
    )
    store.put(node("mine"))
    store.link(edge("mine", "d"))
    store.link(edge("mine", "a"))
    assert found(store, "mine") == [("about", "a"), ("about", "d")]
    for unseen in ("b", "o", "missing"):
        with pytest.raises(NodeNotFoundError):
            store.link(edge("mine", unseen))
    with pytest.raises(ReadOnlyNodeError):
        store.link(edge("a", "mine"))
    with pytest.raises(NodeNotFoundError):
        store.link(edge("missing", "mine"))


def test_an_edge_is_seen_where_its_start_is(store: Any) -> None:
    store.apply([Put(node("shared", scope=ACME)), Put(node("ada", scope=ADA)), Put(node("bob", scope=BOB))])
    store.link(edge("ada", "shared"))
    store.link(edge("bob", "shared", scope=BOB))
    assert found(store, "shared", ADA, direction="in") == [("about", "ada")]
    assert found(store, "shared", BOB, direction="in") == [("about", "bob")]
    assert found(store, "shared", ACME, direction="in") == []


def test_an_edge_keeps_to_the_node_that_it_was_made_for(store: Any) -> None:
    store.put(node("shared", "SOUL:of the deployment", scope=DEPLOYMENT))
    store.put(node("mine"))
    store.link(edge("mine", "shared"))
    store.put(node("shared", "SOUL:of the organisation", scope=ACME))
    (neighbour,) = store.neighbours(ADA, "mine")
    assert neighbour.node.label == "SOUL:of the deployment"


@pytest.mark.parametrize("type_", ["derived_from", "supersedes"])
def test_lineage_has_no_cycles(store: Any, type_: str) -> None:
    store.apply([Put(node(name)) for name in "abc"])
    store.link(edge("a", "b", type_))
    store.link(edge("b", "c", type_))
    for start, end in (("c", "a"), ("b", "a"), ("a", "a"), ("c", "b")):
        with pytest.raises(CycleError, match="would close a cycle"):
            store.link(edge(start, end, type_))
    store.link(edge("a", "c", type_))
    store.link(edge("c", "a", "about"))


def test_equal_ids_under_two_roots_are_no_cycle(store: Any) -> None:
    store.put(node("a", scope=DEPLOYMENT))
    store.put(node("b", scope=ADA))
    store.link(edge("b", "a", "derived_from"))
    store.put(node("b", scope=DEPLOYMENT))
    store.put(node("a", scope=BOB))
    # Bob's own a is another node than the deployment's.
    store.put(node("c", scope=BOB))
    store.link(edge("a", "c", "derived_from", scope=BOB))
    store.link(edge("c", "b", "derived_from", scope=BOB))
    assert found(store, "c", BOB) == [("derived_from", "b")]


def test_what_is_superseded_leaves_its_lane(store: Any, clock: SteppingClock) -> None:
    store.apply([Put(node("old", "SOUL:drinks coffee")), Put(node("new", "SOUL:drinks tea"))])
    heads = store.heads(ADA)
    later = clock.tick()
    store.link(edge("new", "old", "supersedes"))
    assert ids(store.query_nodes(ADA)) == ["new"]
    assert (store.get(ADA, "old").state, store.get(ADA, "old").updated) == ("superseded", later)
    assert store.heads(ADA) != heads
    assert [change.node_id for change in store.changes(ADA, heads).changes] == ["old"]


def test_an_ancestors_node_is_not_superseded_from_below(store: Any) -> None:
    store.apply([Put(node("old", scope=ACME)), Put(node("new"))])
    store.link(edge("new", "old", "supersedes"))
    assert ids(store.query_nodes(ADA)) == ["new", "old"]


def test_an_edge_to_an_erased_node_is_refused(store: Any) -> None:
    store.apply([Put(node("a")), Put(node("b"))])
    store.erase(ADA, "b")
    with pytest.raises(NodeErasedError):
        store.link(edge("a", "b"))


def test_links_are_part_of_their_transaction(linked: Any) -> None:
    before = found(linked, "a", direction="both")
    with pytest.raises(CycleError):
        linked.apply([Unlink(edge("a", "b")), Link(edge("b", "c")), Link(edge("b", "b", "derived_from"))])
    linked.apply([Unlink(edge("a", "b")), Link(edge("a", "d", "new"))], dry_run=True)
    assert found(linked, "a", direction="both") == before
    assert found(linked, "b") == []


def test_an_edge_moves_no_head(linked: Any) -> None:
    heads = linked.heads(ADA)
    linked.link(edge("b", "c"))
    linked.unlink(edge("b", "c"))
    assert linked.heads(ADA) == heads


def test_everything_stored_below_a_scope_is_found(linked: Any) -> None:
    linked.put(node("x", scope=ACME))
    linked.put(node("y", scope=OTHER))
    linked.retract(ADA, "c")
    stored = linked.stored(ACME)
    assert [(each.scope, each.id) for each in stored.nodes] == [(ACME, "x"), *((ADA, name) for name in "abcd")]
    assert [(each.start, each.type, each.end) for each in stored.edges] == [
        ("a", "about", "b"),
        ("a", "about", "c"),
        ("a", "because", "b"),
        ("d", "about", "a"),
    ]
    assert len(linked.stored(DEPLOYMENT).nodes) == 6
    assert linked.stored(BOB).nodes == ()
