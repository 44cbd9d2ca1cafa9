"""The part of the store's suite about edges: what links, what is found from where, and what lineage must not do."""

from __future__ import annotations

from typing import Any

import pytest

from promptkeel.errors import CycleError, NodeErasedError, NodeNotFoundError, ReadOnlyNodeError
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.testing.calling import Called
from promptkeel.testing.harness import Suite, needs_methods
from promptkeel.testing.samples import ACME, ADA, BOB, OTHER, edge, ids, node


def found(store: Called, node_id: str, scope: TenantScope = ADA, **asked: Any) -> list[tuple[str, str]]:
    """The neighbours of a node as edge type and id."""
    return [(each.edge.type, each.node.id) for each in store.neighbours(scope, node_id, **asked)]


class GraphSuite(Suite):
    """Link and neighbours."""

    __test__ = False

    def linked(self, store: Called) -> Called:
        """The store with four nodes and four edges."""
        for name in "abcd":
            store.put(node(name))
        for each in (edge("a", "c"), edge("a", "b"), edge("a", "b", "because"), edge("d", "a")):
            store.link(each)
        return store

    def test_deterministic_neighbours_are_by_edge_type_then_id(self, store: Called) -> None:
        """In each direction, of one edge type or of all."""
        self.linked(store)
        assert found(store, "a") == [("about", "b"), ("about", "c"), ("because", "b")]
        assert found(store, "a", direction="in") == [("about", "d")]
        assert found(store, "a", direction="both") == [
            ("about", "b"),
            ("about", "c"),
            ("about", "d"),
            ("because", "b"),
        ]
        assert found(store, "a", edge_type="because") == [("because", "b")]
        assert found(store, "b") == []
        (neighbour,) = store.neighbours(ADA, "d")
        assert (neighbour.edge, neighbour.node) == (edge("d", "a"), store.get(ADA, "a"))

    def test_durable_linking_again_changes_the_properties(self, store: Called) -> None:
        """An edge is one for its start, type and end."""
        self.linked(store)
        store.link(edge("a", "c", weight=1))
        store.link(edge("a", "c", weight=True))
        (neighbour,) = [each for each in store.neighbours(ADA, "a") if each.node.id == "c"]
        assert neighbour.edge.properties["weight"] is True

    def test_complete_a_self_loop_is_one_neighbour(self, store: Called) -> None:
        """Seen from both directions, it is there once."""
        store.put(node("a"))
        store.link(edge("a", "a"))
        assert found(store, "a", direction="both") == [("about", "a")]

    @needs_methods("unlink")
    def test_durable_unlinking_removes_one_edge(self, store: Called) -> None:
        """Another type between the same nodes stays; removing it again is an error."""
        self.linked(store)
        store.unlink(edge("a", "b"))
        assert found(store, "a") == [("about", "c"), ("because", "b")]
        with pytest.raises(NodeNotFoundError):
            store.unlink(edge("a", "b"))

    def test_isolated_an_edge_starts_at_its_own_scope_and_reaches_what_is_visible(self, store: Called) -> None:
        """From an own node up, never down, across or to what is not there."""
        for name, scope in zip("dabo", (DEPLOYMENT, ACME, BOB, OTHER), strict=True):
            store.put(node(name, scope=scope))
        store.put(node("mine"))
        store.link(edge("mine", "d"))
        store.link(edge("mine", "a"))
        for unseen in ("b", "o", "missing"):
            with pytest.raises(NodeNotFoundError):
                store.link(edge("mine", unseen))
        with pytest.raises(ReadOnlyNodeError):
            store.link(edge("a", "mine"))
        with pytest.raises(NodeNotFoundError):
            store.link(edge("missing", "mine"))
        assert found(store, "mine") == [("about", "a"), ("about", "d")]

    def test_isolated_an_edge_is_seen_where_its_start_is(self, store: Called) -> None:
        """Two siblings that link to the same node do not see each other."""
        store.put(node("shared", scope=ACME))
        store.put(node("ada", scope=ADA))
        store.put(node("bob", scope=BOB))
        store.link(edge("ada", "shared"))
        store.link(edge("bob", "shared", scope=BOB))
        assert found(store, "shared", ADA, direction="in") == [("about", "ada")]
        assert found(store, "shared", BOB, direction="in") == [("about", "bob")]
        assert found(store, "shared", ACME, direction="in") == []

    @pytest.mark.parametrize("edge_type", ["derived_from", "supersedes"])
    def test_refused_a_cycle_of_lineage(self, store: Called, edge_type: str) -> None:
        """What would close a cycle is refused and leaves nothing; the other edge types may."""
        for name in "abc":
            store.put(node(name))
        store.link(edge("a", "b", edge_type))
        store.link(edge("b", "c", edge_type))
        before = {name: found(store, name, direction="both") for name in "abc"}
        for start, end in (("c", "a"), ("b", "a"), ("a", "a"), ("c", "b")):
            with pytest.raises(CycleError):
                store.link(edge(start, end, edge_type))
        assert {name: found(store, name, direction="both") for name in "abc"} == before
        store.link(edge("a", "c", edge_type))
        store.link(edge("c", "a", "about"))

    def test_complete_what_is_superseded_leaves_its_lane(self, store: Called) -> None:
        """At its own scope; an ancestor's node is not superseded from below."""
        store.put(node("old", "SOUL:drinks coffee"))
        store.put(node("shared", "SOUL:drinks water", scope=ACME))
        store.put(node("new", "SOUL:drinks tea"))
        store.link(edge("new", "old", "supersedes"))
        store.link(edge("new", "shared", "supersedes"))
        assert ids(store.query_nodes(ADA)) == ["new", "shared"]
        assert store.get(ADA, "old").state == "superseded"

    def test_erased_a_node_takes_its_edges_with_it(self, store: Called) -> None:
        """And no new edge reaches it."""
        self.linked(store)
        store.erase(ADA, "b")
        assert found(store, "a", direction="both") == [("about", "c"), ("about", "d")]
        with pytest.raises(NodeErasedError):
            store.link(edge("a", "b"))
