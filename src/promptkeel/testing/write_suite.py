"""The part of the store's suite about writes: what is acknowledged, what is refused, and what is erased."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis import given

from promptkeel.errors import (
    ConflictError,
    InvalidTextError,
    NodeErasedError,
    NodeExistsError,
    NodeNotFoundError,
    PromptkeelError,
    ReadOnlyNodeError,
    StoreClosedError,
)
from promptkeel.model import NOT_GIVEN, MemoryNode
from promptkeel.scope import DEPLOYMENT
from promptkeel.store.base import HEADS, HISTORY, GraphStore
from promptkeel.store.operations import Erase, Mark, Put, Retract
from promptkeel.testing import strategies
from promptkeel.testing.calling import Called
from promptkeel.testing.harness import Suite, needs, needs_methods, patient
from promptkeel.testing.samples import ACME, ADA, ADAM, BOB, CHAIN, OTHER, edge, ids, node


def everything(store: Called) -> list[Any]:
    """All that the samples' scopes show, to see that nothing has moved."""
    return [list(store.query_nodes(scope)) for scope in (*CHAIN, BOB, OTHER)]


def refuse(store: Called, error: type[Exception], *writes: Callable[[], object]) -> None:
    """Each write raises the error and leaves nothing behind."""
    before = everything(store)
    for write in writes:
        with pytest.raises(error):
            write()
        assert everything(store) == before


class WriteSuite(Suite):
    """Put, get, compare-and-set, retract, erase, close."""

    __test__ = False

    def test_a_store_has_every_method_of_the_protocol(self, store: Called) -> None:
        """It is a ``GraphStore``, or the blocking twin of one, and declares its capabilities."""
        assert isinstance(store.wrapped, GraphStore)
        declared: Any = store.wrapped
        assert isinstance(declared.capabilities, frozenset)

    # Put and get

    def test_durable_what_was_put_is_what_is_read(self) -> None:
        """Any node comes back equal, with only those times filled in that were left out."""

        @patient()
        @given(given_node=strategies.nodes())
        def check(given_node: MemoryNode) -> None:
            with self.scratch():
                store = self.fresh_store()
                stored = store.put(given_node)
                assert store.get(given_node.scope, given_node.id) == stored
                assert stored.version == store.get(given_node.scope, given_node.id).version
                expected = attrs.evolve(
                    given_node,
                    created_at=stored.created if given_node.created is None else given_node.created,
                    updated_at=stored.updated if given_node.updated is None else given_node.updated,
                    recorded_at=stored.created if given_node.recorded is NOT_GIVEN else given_node.recorded,
                )
                assert stored == expected
                assert type(stored.created) is type(stored.updated) is int

        check()

    def test_attributed_an_absent_time_is_stamped_and_an_explicit_none_is_kept(self, store: Called) -> None:
        """An absent ``recorded_at`` is ``created_at``; None is "not recorded"."""
        stamped, unrecorded = store.put(node("a")), store.put(node("b", recorded_at=None))
        assert stamped.recorded == stamped.created == stamped.updated
        assert unrecorded.recorded is None
        assert store.get(ADA, "b").recorded is None
        assert store.get(ADA, "b").created is not None

    def test_isolated_an_id_is_in_use_under_its_whole_root(self, store: Called) -> None:
        """A sibling or an ancestor cannot take an id again; another root can."""
        first = store.put(node("n1", scope=ADA))
        refuse(
            store,
            NodeExistsError,
            *(partial(store.put, node("n1", "SOUL:other", scope=scope)) for scope in (ADA, BOB, ADAM, ACME)),
        )
        store.put(node("n1", "SOUL:other", scope=OTHER))
        store.put(node("n1", "SOUL:deployment", scope=DEPLOYMENT))
        assert store.get(ADA, "n1") == first
        assert store.get(OTHER, "n1").label == "SOUL:other"
        assert store.get(BOB, "n1").label == "SOUL:deployment"

    def test_isolated_a_node_is_got_where_it_is_visible_and_nowhere_else(self, store: Called) -> None:
        """``get`` keeps to the same scopes as a scan."""
        stored = [store.put(node(f"n{depth}", scope=scope)) for depth, scope in enumerate(CHAIN)]
        for depth, scope in enumerate(CHAIN):
            for owner, each in enumerate(stored):
                if owner <= depth:
                    assert store.get(scope, each.id) == each
                else:
                    with pytest.raises(NodeNotFoundError):
                        store.get(scope, each.id)
        for stranger in (BOB, ADAM, OTHER):
            with pytest.raises(NodeNotFoundError):
                store.get(stranger, "n2")

    def test_deterministic_a_lane_is_in_order_of_label_instant_and_id(self, store: Called) -> None:
        """The order is total: ties of label and instant are broken by id, in code point order."""
        order = [
            node("c", "SOUL:a", recorded_at=None),
            node("a", "SOUL:a", recorded_at="2020-01-01"),
            node("b", "SOUL:a", recorded_at="2020-01-01", scope=ACME),
            node("0", "SOUL:a", recorded_at="2021-01-01", scope=DEPLOYMENT),
            node("9", "SOUL:b", recorded_at=None),
            node("10", "SOUL:b", recorded_at="1900-01-01"),
            node("\u00e9", "SOUL:b", recorded_at="1900-01-01"),
            node("\uffff", "SOUL:b", recorded_at="1900-01-01"),
            node("\U00010000", "SOUL:b", recorded_at="1900-01-01"),
        ]
        for each in (*order[5:], *order[4::-1]):
            store.put(each)
        for _ in range(3):
            assert ids(store.query_nodes(ADA, label_prefix="SOUL:")) == ids(order)
            assert ids(store.query_nodes(ADA, limit=4)) == ids(order)[:4]

    def test_stable_what_is_read_is_not_the_store(self, store: Called) -> None:
        """Changing what was given or read changes nothing that is stored."""
        given_properties: dict[str, Any] = {"tags": ["a"]}
        store.put(node(properties=given_properties))
        given_properties["tags"].append("b")
        store.get(ADA, "n1").properties["tags"].append("c")
        for each in store.query_nodes(ADA):
            each.properties["tags"].append("d")
        assert store.get(ADA, "n1").properties["tags"] == ["a"]

    @pytest.mark.parametrize("prefix", ["\ud800", "SOUL:\udfff", "\x00"], ids=["high", "low", "nul"])
    def test_refused_a_prefix_that_no_label_can_have(self, store: Called, prefix: str) -> None:
        """A prefix with what no store takes is an error, not an empty lane."""
        refuse(store, InvalidTextError, lambda: store.query_nodes(ADA, label_prefix=prefix))

    # Change

    def test_attributed_a_change_keeps_when_the_node_was_created(self, store: Called) -> None:
        """A change moves ``updated_at``; ``created_at`` stays, and ``recorded_at`` too unless it is given."""
        first = store.put(node(created_at="2020-01-01", recorded_at="2019-01-01", updated_at="2020-01-01"))
        changed = node(label="SOUL:prefers coffee")
        second = store.put(changed, expected=first)
        assert (second.label, second.created, second.recorded) == (changed.label, first.created, first.recorded)
        assert second.updated != first.updated
        assert store.get(ADA, "n1") == second
        third = store.put(attrs.evolve(second, created_at=7, source="chat"), expected=second)
        assert (third.created, third.source) == (first.created, "chat")

    def test_durable_a_change_against_an_old_version_is_refused(self, store: Called) -> None:
        """Compare-and-set, by node and by version, of changes and retractions alike: no update is lost."""
        first = store.put(node())
        second = store.put(attrs.evolve(first, label="SOUL:prefers coffee"), expected=first)
        third = store.put(attrs.evolve(second, source="chat"), expected=second.version)
        lost = attrs.evolve(first, label="SOUL:prefers milk")
        refuse(
            store,
            ConflictError,
            lambda: store.put(lost, expected=first),
            lambda: store.put(lost, expected=second.version),
            lambda: store.retract(ADA, "n1", expected=first),
            lambda: store.retract(ADA, "n1", expected=second.version),
        )
        assert store.get(ADA, "n1") == third

    def test_durable_no_update_is_lost_among_concurrent_writers(self, store: Called) -> None:
        """Writers that read, change and retry on conflict add up."""
        writers, rounds = 4, 5
        store.put(node(properties={"count": 0}))

        def write() -> None:
            done = 0
            while done < rounds:
                current = store.get(ADA, "n1")
                try:
                    store.put(
                        attrs.evolve(current, properties={"count": current.properties["count"] + 1}), expected=current
                    )
                except ConflictError:
                    continue
                done += 1

        with ThreadPoolExecutor(writers) as pool:
            for each in [pool.submit(write) for _ in range(writers)]:
                each.result()
        assert store.get(ADA, "n1").properties["count"] == writers * rounds

    def test_stable_a_rewrite_of_equal_content_changes_nothing(self, store: Called) -> None:
        """Not even ``updated_at``; but 1 is not true."""
        first = store.put(node(properties={"a": 1}))
        self.clock.tick()
        assert store.put(node(properties={"a": 1}), expected=first) == first
        assert store.put(attrs.evolve(first, created_at=0, updated_at=0), expected=first) == first
        assert store.get(ADA, "n1") == first
        assert store.put(node(properties={"a": True}), expected=first).properties["a"] is True

    def test_refused_a_change_needs_a_node(self, store: Called) -> None:
        """``expected`` of what is not there is an error, and makes no node."""
        refuse(store, NodeNotFoundError, lambda: store.put(node(), expected="0" * 32), lambda: store.retract(ADA, "n1"))

    def test_isolated_an_ancestors_node_is_read_only(self, store: Called) -> None:
        """What is visible from above can be read, and written at its own scope only."""
        for name, owner in (("d", DEPLOYMENT), ("a", ACME)):
            stored = store.put(node(name, scope=owner))
            refuse(
                store,
                ReadOnlyNodeError,
                partial(store.put, attrs.evolve(stored, scope=ADA, label="SOUL:mine"), expected=stored),
                partial(store.retract, ADA, name),
                partial(store.erase, ADA, name),
                partial(store.link, edge(name, name)),
            )
            assert store.get(ADA, name) == stored

    def test_isolated_a_strangers_node_is_not_there_to_write(self, store: Called) -> None:
        """Whoever does not see a node cannot tell that it is there."""
        store.put(node(scope=ADA))
        for scope in (BOB, ACME, OTHER, DEPLOYMENT):
            refuse(
                store,
                NodeNotFoundError,
                partial(store.retract, scope, "n1"),
                partial(store.erase, scope, "n1"),
                partial(store.put, node(scope=scope, label="SOUL:mine"), expected="0" * 32),
            )

    # Retract and erase

    def test_accountable_a_retracted_node_leaves_every_lane_and_stays_to_be_read(self, store: Called) -> None:
        """It is out of the lanes, can be got, and its id stays in use."""
        first = store.put(node())
        retracted = store.retract(ADA, "n1", expected=first)
        assert retracted.state == "retracted"
        assert retracted.same_content(attrs.evolve(first, state="retracted"))
        assert retracted.created == first.created
        assert list(store.query_nodes(ADA)) == list(store.query_nodes(ADA, label_prefix="SOUL:")) == []
        assert store.get(ADA, "n1") == retracted
        assert store.retract(ADA, "n1") == retracted
        refuse(store, NodeExistsError, lambda: store.put(node()))

    def test_erased_a_node_is_gone_from_every_read(self, store: Called) -> None:
        """No read that takes an id or a prefix returns an erased node, and the receipt holds no text."""
        first = store.put(node(label="SOUL:secret one", source="secret source", properties={"secret key": "secret"}))
        second = store.put(attrs.evolve(first, label="SOUL:secret two"), expected=first)
        store.put(node("n2", "SOUL:other"))
        store.link(edge("n1", "n2", text="secret"))
        store.link(edge("n2", "n1", text="secret"))
        receipt = store.erase(ADA, "n1")
        assert (receipt.node_id, receipt.scope) == ("n1", ADA.path)
        reads: list[Any] = [
            receipt,
            *(list(store.query_nodes(ADA, label_prefix=prefix)) for prefix in (None, "SOUL:", second.label)),
            list(store.neighbours(ADA, "n2", direction="both")),
        ]
        assert ids(reads[1]) == ids(reads[2]) == ["n2"]
        with store.snapshot() as snapshot:
            reads.append(list(snapshot.query_nodes(ADA)))
        assert "secret" not in repr(reads)
        for read in (store.get, store.neighbours, store.retract, store.erase):
            with pytest.raises(NodeErasedError):
                read(ADA, "n1")

    def test_erased_an_id_is_not_handed_out_again(self, store: Called) -> None:
        """Not at its scope and not elsewhere under its root; another root never had it."""
        store.put(node())
        store.erase(ADA, "n1")
        refuse(
            store,
            NodeErasedError,
            *(partial(store.put, node(scope=scope)) for scope in (ADA, BOB, ACME)),
        )
        store.put(node(scope=OTHER))

    @needs(HEADS, HISTORY)
    def test_erased_text_is_in_no_history_and_in_no_past_lane(self, store: Called) -> None:
        """An as-of read names what was erased since, without its text; the log has lost its labels."""
        start = store.heads(ADA)
        first = store.put(node(label="SOUL:secret one", source="secret"))
        store.put(attrs.evolve(first, label="SOUL:secret two"), expected=first)
        store.put(node("n2", "SOUL:other"))
        then = store.heads(ADA)
        store.erase(ADA, "n1")
        past = store.nodes_as_of(ADA, then)
        assert ids(past.nodes) == ["n2"]
        assert past.erased == ("n1",)
        with pytest.raises(NodeErasedError):
            store.history(ADA, "n1")
        assert store.nodes_as_of(ADA, then, label_prefix="RULE:").erased == ("n1",)
        assert "secret" not in repr(
            [past, store.changes(ADA, start), store.changes(ADA, then), store.history(ADA, "n2")]
        )

    @needs_methods("receipts")
    def test_accountable_receipts_are_in_the_order_of_the_erasures(self, store: Called) -> None:
        """Each erasure leaves a receipt at its scope, oldest first."""
        for name in "cab":
            store.put(node(name))
        for name in "bca":
            store.erase(ADA, name)
        assert [receipt.node_id for receipt in store.receipts(ADA)] == ["b", "c", "a"]
        assert list(store.receipts(ACME)) == []

    # Batches

    @needs_methods("apply")
    def test_durable_a_batch_happens_whole_or_not_at_all(self, store: Called) -> None:
        """An error in the last operation leaves nothing of the others behind."""
        first, second = store.put(node("n1")), store.put(node("n2"))
        batch = [Put(node("n3")), Retract(ADA, "n1"), Erase(ADA, "n2"), Mark("place", "1"), Retract(ADA, "missing")]
        refuse(store, NodeNotFoundError, lambda: store.apply(batch))
        assert (store.get(ADA, "n1"), store.get(ADA, "n2")) == (first, second)
        store.put(node("n3"))
        assert ids(store.query_nodes(ADA)) == ["n1", "n2", "n3"]

    @needs_methods("apply")
    def test_stable_a_dry_run_says_what_would_happen_and_does_nothing(self, store: Called) -> None:
        """The outcomes are those of the real run."""
        store.put(node())
        before = everything(store)
        batch = [Retract(ADA, "n1"), Put(node("n2")), Erase(ADA, "n1")]
        outcomes = store.apply(batch, dry_run=True)
        assert everything(store) == before
        assert [each.kind for each in outcomes] == ["retracted", "inserted", "erased"]
        assert [each.kind for each in store.apply(batch)] == ["retracted", "inserted", "erased"]

    # More than one handle, and the end of one

    def test_fresh_a_committed_write_is_in_the_next_read_of_every_handle(self, store: Called) -> None:
        """A second handle sees each write of the first, and the other way round."""
        other = self.second_handle(store)
        for number in range(5):
            writer, reader = (store, other) if number % 2 else (other, store)
            written = writer.put(node(f"n{number}", f"SOUL:{number}"))
            assert reader.get(ADA, f"n{number}") == written
            assert list(reader.query_nodes(ADA)) == list(writer.query_nodes(ADA))
        other.retract(ADA, "n0")
        store.erase(ADA, "n1")
        assert ids(store.query_nodes(ADA)) == ids(other.query_nodes(ADA)) == ["n2", "n3", "n4"]

    def test_durable_what_was_acknowledged_is_there_after_reopening(self, store: Called) -> None:
        """Nodes, states, edges and erasures outlive the handle that made them."""
        for name in "abc":
            store.put(node(name, f"SOUL:{name}"))
        store.link(edge("a", "b", weight=1))
        store.retract(ADA, "b")
        store.erase(ADA, "c")
        before = (everything(store), store.get(ADA, "b"), list(store.neighbours(ADA, "a")))
        self.second_handle(store).close()
        store.close()
        again = self.second_handle(store)
        assert (everything(again), again.get(ADA, "b"), list(again.neighbours(ADA, "a"))) == before
        with pytest.raises(NodeErasedError):
            again.put(node("c"))

    def test_a_closed_store_refuses_everything(self, store: Called) -> None:
        """Closing twice does nothing; using it after that is an error that says so."""
        first = store.put(node())
        store.close()
        store.close()
        calls: list[Callable[[], object]] = [
            lambda: store.put(node("n2")),
            lambda: store.put(node(), expected=first),
            lambda: store.get(ADA, "n1"),
            lambda: store.query_nodes(ADA),
            lambda: store.retract(ADA, "n1"),
            lambda: store.erase(ADA, "n1"),
            lambda: store.link(edge("n1", "n1")),
            lambda: store.neighbours(ADA, "n1"),
        ]
        for call in calls:
            with pytest.raises(StoreClosedError):
                call()

    def test_refused_writes_raise_errors_of_one_tree(self, store: Called) -> None:
        """Whatever is refused is a ``PromptkeelError``."""
        for method in (store.get, store.erase, store.retract, store.neighbours, store.history):
            with pytest.raises(PromptkeelError):
                method(ADA, "missing")
