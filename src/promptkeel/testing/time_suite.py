"""The part of the store's suite about time: heads, changes, the past and snapshots."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from promptkeel.errors import CompactedError, InvalidInputError, NodeNotFoundError, PromptkeelError
from promptkeel.scope import DEPLOYMENT
from promptkeel.store.base import HEADS, HISTORY, Head, Heads
from promptkeel.testing.calling import Called
from promptkeel.testing.harness import Suite, needs
from promptkeel.testing.samples import ACME, ADA, BOB, OTHER, edge, ids, node


def forged(heads: Heads) -> Heads:
    """The same numbers, as another store would have them."""
    levels = (attrs.evolve(head, nonce=head.nonce ^ 1) if head.seq else head for head in heads.levels)
    return attrs.evolve(heads, levels=tuple(levels))


class TimeSuite(Suite):
    """Heads, changes, nodes_as_of, history and snapshots."""

    __test__ = False

    # Heads

    @needs(HEADS)
    def test_sound_heads_have_one_level_for_each_of_the_chain(self, store: Called) -> None:
        """And survive a journey through JSON."""
        fresh = store.heads(ADA)
        assert [head.scope for head in fresh.levels] == list(ADA.chain)
        store.put(node(scope=ACME))
        heads = store.heads(ADA)
        assert heads.levels[1] != fresh.levels[1]
        assert (heads.levels[0], heads.levels[2]) == (fresh.levels[0], fresh.levels[2])
        assert Heads.from_json(heads.to_json()) == heads

    @needs(HEADS)
    def test_sound_heads_move_with_every_visible_change(self, store: Called) -> None:
        """Each write that a lane, a ``get`` or an as-of read can tell gives heads that were never there before."""
        seen = [store.heads(ADA)]
        first = store.put(node())
        seen.append(store.heads(ADA))
        second = store.put(attrs.evolve(first, label="SOUL:b"), expected=first)
        seen.append(store.heads(ADA))
        third = store.put(attrs.evolve(second, source="chat"), expected=second)
        seen.append(store.heads(ADA))
        store.put(attrs.evolve(third, properties={"role": "CTO"}), expected=third)
        seen.append(store.heads(ADA))
        for name, scope in (("a", ACME), ("d", DEPLOYMENT), ("old", ADA), ("new", ADA)):
            store.put(node(name, scope=scope))
            seen.append(store.heads(ADA))
        store.link(edge("new", "old", "supersedes"))
        seen.append(store.heads(ADA))
        store.retract(ADA, "n1")
        seen.append(store.heads(ADA))
        store.erase(ADA, "n1")
        seen.append(store.heads(ADA))
        assert len(set(seen)) == len(seen)

    @needs(HEADS)
    def test_sound_heads_never_come_back(self, store: Called) -> None:
        """Going back to what was is a change of its own: no ABA."""
        first = store.put(node(recorded_at=5))
        seen = [store.heads(ADA)]
        for _ in range(3):
            first = store.put(attrs.evolve(first, label="SOUL:b"), expected=first)
            seen.append(store.heads(ADA))
            first = store.put(attrs.evolve(first, label="SOUL:prefers tea"), expected=first)
            seen.append(store.heads(ADA))
        store.put(node("passing"))
        store.erase(ADA, "passing")
        seen.append(store.heads(ADA))
        assert len(set(seen)) == len(seen)

    @needs(HEADS)
    def test_sound_heads_of_two_stores_differ(self, store: Called) -> None:
        """The same writes in another store give other heads: a restored copy that counts up again is told apart."""
        other = self.fresh_store()
        for each in (store, other):
            each.put(node(created_at=0, updated_at=0, recorded_at=0))
        assert store.heads(ADA) != other.heads(ADA)

    @needs(HEADS)
    def test_isolated_heads_move_only_for_those_who_see_the_change(self, store: Called) -> None:
        """A sibling's and another root's heads stand still."""
        scopes = (DEPLOYMENT, ACME, ADA, BOB, OTHER)
        before = [store.heads(scope) for scope in scopes]
        store.put(node(scope=ACME))
        moved = [store.heads(scope) != heads for scope, heads in zip(scopes, before, strict=True)]
        assert moved == [False, True, True, True, False]

    @needs(HEADS)
    def test_stable_a_read_or_an_equal_rewrite_moves_no_head(self, store: Called) -> None:
        """No read, no refused write and no rewrite of equal content is a change."""
        stored = store.put(node(properties={"a": 1}))
        heads = store.heads(ADA)
        self.clock.tick(10**6)
        for _ in range(2):
            store.query_nodes(ADA)
            store.get(ADA, "n1")
            store.changes(ADA, heads)
            store.neighbours(ADA, "n1")
            with store.snapshot() as snapshot:
                snapshot.query_nodes(ADA)
            store.put(node(properties={"a": 1}), expected=stored)
            with pytest.raises(PromptkeelError):
                store.put(node())
            assert (store.heads(ADA), store.get(ADA, "n1")) == (heads, stored)

    @needs(HEADS)
    def test_durable_heads_outlive_the_handle(self, store: Called) -> None:
        """Reopened, or read through a second handle, they are the same; both move together."""
        store.put(node())
        other = self.second_handle(store)
        assert other.heads(ADA) == store.heads(ADA)
        other.put(node("n2"))
        assert other.heads(ADA) == store.heads(ADA)
        heads = store.heads(ADA)
        other.close()
        store.close()
        assert self.second_handle(store).heads(ADA) == heads

    # Changes

    @needs(HEADS)
    def test_complete_the_log_names_every_change_and_its_labels(self, store: Called) -> None:
        """Oldest first, of one prefix or of all, of everything visible and of nothing else."""
        start = store.heads(ADA)
        first = store.put(node("a", "SOUL:a"))
        store.put(node("b", "RULE:b", scope=ACME))
        store.put(node("c", "SOUL:c", scope=BOB))
        middle = store.heads(ADA)
        store.put(attrs.evolve(first, label="RULE:a"), expected=first)
        store.retract(ADA, "a")

        def named(since: Heads, prefix: str | None = None) -> list[tuple[Any, ...]]:
            changes = store.changes(ADA, since, label_prefix=prefix)
            assert changes.heads == store.heads(ADA)
            assert changes.changes is not None, "a log of five changes should reach back"
            return [(each.scope, each.node_id, each.label_before, each.label_after) for each in changes.changes]

        assert named(start) == [
            (ADA.path, "a", None, "SOUL:a"),
            (ACME.path, "b", None, "RULE:b"),
            (ADA.path, "a", "SOUL:a", "RULE:a"),
            (ADA.path, "a", "RULE:a", None),
        ]
        assert [each[1:] for each in named(start, "SOUL:")] == [("a", None, "SOUL:a"), ("a", "SOUL:a", "RULE:a")]
        assert [each[1:] for each in named(middle, "SOUL:")] == [("a", "SOUL:a", "RULE:a")]
        assert named(store.heads(ADA)) == []

    @needs(HEADS)
    def test_sound_changes_since_an_erasure_are_never_a_guess(self, store: Called) -> None:
        """A log that an erasure has scrubbed says that it cannot tell, or names the erased node."""
        start = store.heads(ADA)
        store.put(node("a", "SOUL:secret"))
        before = store.heads(ADA)
        store.erase(ADA, "a")
        for since in (start, before):
            for prefix in (None, "SOUL:"):
                changes = store.changes(ADA, since, label_prefix=prefix).changes
                assert changes is None or "a" in [each.node_id for each in changes]
        after = store.heads(ADA)
        store.put(node("c", "SOUL:c"))
        (change,) = store.changes(ADA, after).changes
        assert change.node_id == "c"

    @needs(HEADS)
    def test_refused_heads_of_another_chain(self, store: Called) -> None:
        """Heads are asked about at the scope that they are of."""
        for scope, since in ((ADA, store.heads(BOB)), (ACME, store.heads(ADA)), (ADA, store.heads(ACME))):
            with pytest.raises(InvalidInputError):
                store.changes(scope, since)

    @needs(HEADS)
    def test_sound_heads_of_another_store_are_no_ground_for_a_difference(self, store: Called) -> None:
        """Equal numbers with other nonces: read everything."""
        store.put(node())
        old = forged(store.heads(ADA))
        store.put(node("n2"))
        assert store.changes(ADA, old).changes is None

    # The past

    @needs(HEADS, HISTORY)
    def test_accountable_a_lane_is_read_as_it_was(self, store: Called) -> None:
        """At every earlier heads, of one prefix or of all."""
        moments: list[tuple[Heads, list[Any]]] = []

        def keep() -> None:
            moments.append((store.heads(ADA), list(store.query_nodes(ADA))))

        keep()
        first = store.put(node("a", "SOUL:a", properties={"v": 1}))
        keep()
        store.put(node("b", "SOUL:b", scope=ACME))
        keep()
        second = store.put(attrs.evolve(first, label="SOUL:z", properties={"v": 2}), expected=first)
        keep()
        store.retract(ACME, "b")
        keep()
        store.put(attrs.evolve(second, properties={"v": 3}), expected=second)
        keep()
        for heads, nodes in moments:
            past = store.nodes_as_of(ADA, heads)
            assert list(past.nodes) == nodes
            assert past.erased == ()
            lane = store.nodes_as_of(ADA, heads, label_prefix="SOUL:a").nodes
            assert list(lane) == [each for each in nodes if each.label.startswith("SOUL:a")]

    @needs(HEADS, HISTORY)
    def test_accountable_heads_that_are_not_known_are_a_typed_error(self, store: Called) -> None:
        """Compacted, of another store or of the future: never an approximate answer."""
        store.put(node())
        old = forged(store.heads(ADA))
        store.put(node("n2"))
        now = store.heads(ADA)
        with pytest.raises(CompactedError):
            store.nodes_as_of(ADA, old)
        with pytest.raises(CompactedError):
            store.nodes_as_of(ADA, attrs.evolve(now, levels=(*now.levels[:2], Head(ADA.path, 99, 7))))
        with pytest.raises(InvalidInputError):
            store.nodes_as_of(ADA, store.heads(BOB))

    @needs(HISTORY)
    def test_accountable_history_holds_every_version(self, store: Called) -> None:
        """Oldest first, the present one last, for those who see the node."""
        versions = [store.put(node())]
        for number in range(4):
            versions.append(store.put(attrs.evolve(versions[-1], label=f"SOUL:{number}"), expected=versions[-1]))
        versions.append(store.retract(ADA, "n1"))
        assert store.history(ADA, "n1").versions == tuple(versions)
        with pytest.raises(NodeNotFoundError):
            store.history(BOB, "n1")

    # Snapshots

    def test_one_point_in_time_a_snapshot_keeps_what_it_saw(self, store: Called) -> None:
        """Every scope, prefix and node, whatever is written meanwhile, even by its first read."""
        stored = [store.put(node(name, scope=scope)) for name, scope in (("a", ADA), ("b", ACME), ("c", ADA))]
        with store.snapshot() as snapshot:
            store.put(attrs.evolve(stored[0], label="SOUL:changed"), expected=stored[0])
            store.retract(ACME, "b")
            store.erase(ADA, "c")
            store.put(node("d"))
            for _ in range(2):
                assert list(snapshot.query_nodes(ADA)) == stored
                assert list(snapshot.query_nodes(ADA, label_prefix="SOUL:changed")) == []
                assert list(snapshot.query_nodes(ADA, limit=1)) == stored[:1]
                assert list(snapshot.query_nodes(ACME)) == stored[1:2]
                assert snapshot.get(ADA, "b") == stored[1]
            with pytest.raises(NodeNotFoundError):
                snapshot.get(ADA, "d")
        assert [each.label for each in store.query_nodes(ADA)] == ["SOUL:changed", "SOUL:prefers tea"]

    def test_one_point_in_time_the_scans_of_a_snapshot_belong_together(self, store: Called) -> None:
        """A write between two scans of a snapshot is in neither."""
        store.put(node("a", "SOUL:1"))
        store.put(node("b", "RULE:1"))
        with store.snapshot() as snapshot:
            soul = [each.label for each in snapshot.query_nodes(ADA, label_prefix="SOUL:")]
            for name, label in (("a", "SOUL:2"), ("b", "RULE:2")):
                store.put(node(name, label), expected=store.get(ADA, name))
            rule = [each.label for each in snapshot.query_nodes(ADA, label_prefix="RULE:")]
        assert (soul, rule) == (["SOUL:1"], ["RULE:1"])

    def test_one_point_in_time_snapshots_of_different_moments_stand_beside_each_other(self, store: Called) -> None:
        """Each shows its own moment."""
        with store.snapshot() as empty:
            store.put(node("a"))
            with store.snapshot() as one:
                store.put(node("b"))
                with store.snapshot() as two:
                    store.erase(ADA, "a")
                    lanes = [ids(each.query_nodes(ADA)) for each in (empty, one, two, store)]
        assert lanes == [[], ["a"], ["a", "b"], ["b"]]

    @needs(HEADS)
    def test_one_point_in_time_a_snapshot_has_the_heads_of_what_it_saw(self, store: Called) -> None:
        """Its heads are those of the moment when it was opened."""
        store.put(node())
        heads = {scope: store.heads(scope) for scope in (ADA, ACME, DEPLOYMENT)}
        with store.snapshot() as snapshot:
            for scope in heads:
                store.put(node(f"new in {scope.path}", scope=scope))
            assert {scope: snapshot.heads(scope) for scope in heads} == heads
