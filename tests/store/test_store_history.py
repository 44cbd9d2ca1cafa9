"""Heads, changes, the past and snapshots: what a store says about time."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from promptkeel.errors import CompactedError, InvalidInputError, NodeNotFoundError, StoreClosedError
from promptkeel.scope import DEPLOYMENT
from promptkeel.store.base import Engine, Head, Heads, LaneRequest
from promptkeel.store.facade import BlockingStore
from promptkeel.store.operations import Erase, Put, Retract
from store.examples import ACME, ADA, BOB, OTHER, START, SteppingClock, ids, node

# Heads


def test_heads_have_one_level_for_each_of_the_chain(store: Any) -> None:
    fresh = store.heads(ADA)
    assert fresh.levels == (Head(""), Head("org:acme"), Head("org:acme/user:ada"))
    assert (fresh.scope, fresh.seq) == (ADA.path, 0)
    store.put(node(scope=ACME))
    heads = store.heads(ADA)
    assert [head.seq for head in heads.levels] == [0, 1, 0]
    assert heads.levels[1].nonce != 0
    assert heads.seq == 1
    assert Heads.from_json(heads.to_json()) == heads


def test_heads_move_for_those_who_see_the_change(store: Any) -> None:
    scopes = (DEPLOYMENT, ACME, ADA, BOB, OTHER)
    before = [store.heads(scope) for scope in scopes]
    store.put(node(scope=ACME))
    moved = [store.heads(scope) != heads for scope, heads in zip(scopes, before, strict=True)]
    assert moved == [False, True, True, True, False]


def test_going_back_to_what_was_is_not_what_was(store: Any) -> None:
    first = store.put(node(recorded_at=5))
    heads = store.heads(ADA)
    second = store.put(attrs.evolve(first, label="SOUL:b"), expected=first)
    store.put(attrs.evolve(second, label=first.label), expected=second)
    assert ids(store.query_nodes(ADA)) == ["n1"]
    assert store.heads(ADA) != heads


def test_a_read_moves_nothing(store: Any, engine: Engine, clock: SteppingClock) -> None:
    stored = store.put(node())
    heads, token = store.heads(ADA), engine.probe()
    clock.tick(10**6)
    for _ in range(3):
        store.query_nodes(ADA)
        store.history(ADA, "n1")
        store.changes(ADA, heads)
        store.nodes_as_of(ADA, heads)
        with store.snapshot() as snapshot:
            snapshot.query_nodes(ADA)
    assert (store.heads(ADA), engine.probe(), store.get(ADA, "n1")) == (heads, token, stored)


# Changes


def test_changes_name_the_node_and_its_labels(store: Any) -> None:
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


def test_an_erasure_takes_the_labels_out_of_the_log(store: Any) -> None:
    start = store.heads(ADA)
    store.put(node("a", "SOUL:secret"))
    store.put(node("b", "SOUL:b"))
    before = store.heads(ADA)
    store.erase(ADA, "a")
    after = store.heads(ADA)
    assert store.changes(ADA, start).changes is None
    assert store.changes(ADA, before).changes is None
    assert store.changes(ADA, after).changes == ()
    assert store.changes(BOB, store.heads(BOB)).changes == ()
    store.put(node("c", "SOUL:c"))
    assert [each.node_id for each in store.changes(ADA, after).changes] == ["c"]


def test_heads_of_another_chain_are_refused(store: Any, engine: Engine) -> None:
    heads = store.heads(BOB)
    for read in (
        lambda: store.changes(ADA, heads),
        lambda: store.nodes_as_of(ADA, heads),
        lambda: engine.catch_up(ADA, [LaneRequest("", heads)]),
        lambda: engine.tail(ADA, [LaneRequest("", heads)]),
        lambda: store.changes(ACME, store.heads(ADA)),
        lambda: store.nodes_as_of(ADA, store.heads(ACME)),
    ):
        with pytest.raises(InvalidInputError, match="heads"):
            read()


def forged(heads: Heads) -> Heads:
    """The same numbers, as another store would have them."""
    return Heads(tuple(attrs.evolve(head, nonce=head.nonce ^ 1) if head.seq else head for head in heads.levels))


def test_heads_of_another_store_are_no_ground_for_a_difference(store: Any, engine: Engine) -> None:
    store.put(node())
    old = forged(store.heads(ADA))
    store.put(node("n2"))
    assert store.changes(ADA, old).changes is None
    (lane,) = engine.catch_up(ADA, [LaneRequest("", old)]).lanes
    assert lane.whole
    assert engine.tail(ADA, [LaneRequest("", old)]) is None
    with pytest.raises(CompactedError, match="as of change 1"):
        store.nodes_as_of(ADA, old)
    with pytest.raises(CompactedError):
        store.nodes_as_of(ADA, Heads((*store.heads(ADA).levels[:2], Head(ADA.path, 99, 7))))


# Catching up


def test_a_lane_is_caught_up_by_what_was_touched(store: Any, engine: Engine) -> None:
    first = store.put(node("a", "SOUL:a", properties={"role": "CTO"}))
    store.put(node("b", "RULE:b"))
    cold = engine.catch_up(ADA, [LaneRequest("SOUL:"), LaneRequest("RULE:")])
    assert [lane.whole for lane in cold.lanes] == [True, True]
    ((row,), _) = (lane.rows for lane in cold.lanes)
    assert tuple(row) == ("SOUL:a", START, "a", ADA.path, None, None, START, '{"role":"CTO"}')
    since = cold.heads
    store.put(attrs.evolve(first, label="SOUL:z"), expected=first)
    store.put(node("c", "SOUL:c", scope=ACME))
    store.put(node("d", "SOUL:d", scope=BOB))
    requests = [
        LaneRequest("SOUL:", since),
        LaneRequest("RULE:", since),
        LaneRequest("SOUL:a", since),
        LaneRequest("RULE:"),
    ]
    caught = engine.catch_up(ADA, requests)
    soul, rule, moved_out, whole = caught.lanes
    assert (soul.whole, [row[2] for row in soul.rows]) == (False, ["c", "a"])
    assert sorted(soul.touched) == [("org:acme", "a"), ("org:acme", "c")]
    assert (rule.whole, rule.rows, rule.touched) == (False, [], ())
    assert (moved_out.whole, moved_out.rows, moved_out.touched) == (False, [], (("org:acme", "a"),))
    assert (whole.whole, [row[2] for row in whole.rows]) == (True, ["b"])
    tail = engine.tail(ADA, requests[:3])
    assert tail is not None
    assert (tail.heads, list(tail.lanes)) == (caught.heads, [soul, rule, moved_out])
    assert engine.tail(ADA, requests) is None


def test_a_row_without_properties_has_none(store: Any, engine: Engine) -> None:
    store.put(node(source="chat", trust="user", recorded_at=None))
    ((row,),) = (lane.rows for lane in engine.catch_up(ADA, [LaneRequest("")]).lanes)
    assert tuple(row) == ("SOUL:prefers tea", None, "n1", ADA.path, "chat", "user", START, None)


# The past


def test_a_lane_is_read_as_it_was(store: Any, clock: SteppingClock) -> None:
    moments: list[tuple[Heads, list[Any]]] = []

    def keep() -> None:
        moments.append((store.heads(ADA), list(store.query_nodes(ADA))))
        clock.tick()

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


def test_the_past_of_an_erased_node_is_its_id(store: Any) -> None:
    before_all = store.heads(ADA)
    store.put(node("a", "SOUL:secret"))
    store.put(node("b", "RULE:b"))
    both = store.heads(ADA)
    store.erase(ADA, "a")
    after = store.heads(ADA)
    store.put(node("c", "SOUL:c"))
    store.erase(ADA, "c")
    assert ids(store.nodes_as_of(ADA, both).nodes) == ["b"]
    assert store.nodes_as_of(ADA, both).erased == ("a",)
    assert store.nodes_as_of(ADA, both, label_prefix="RULE:").erased == ("a",)
    assert store.nodes_as_of(ADA, before_all) == type(store.nodes_as_of(ADA, both))((), ())
    assert (ids(store.nodes_as_of(ADA, after).nodes), store.nodes_as_of(ADA, after).erased) == (["b"], ())
    assert "secret" not in repr(store.nodes_as_of(ADA, both))


def test_history_holds_every_version(store: Any, clock: SteppingClock) -> None:
    versions = [store.put(node())]
    for number in range(5):
        clock.tick()
        versions.append(store.put(attrs.evolve(versions[-1], label=f"SOUL:{number}"), expected=versions[-1]))
    clock.tick()
    versions.append(store.retract(ADA, "n1"))
    history = store.history(ADA, "n1")
    assert history.versions == tuple(versions)
    assert history.testimonies == ()
    with pytest.raises(NodeNotFoundError):
        store.history(BOB, "n1")


def test_what_is_compacted_is_said_to_be(open_backend: Callable[..., Engine]) -> None:
    engine = open_backend(log_limit=10)
    store = BlockingStore(engine)
    store.put(node("elder", scope=ACME))
    current = store.put(node())
    oldest = store.heads(ADA)
    for number in range(500):
        current = store.put(attrs.evolve(current, label=f"SOUL:{number}"), expected=current)
    recent = store.heads(ADA)
    for number in range(9):
        current = store.put(attrs.evolve(current, label=f"SOUL:new {number}"), expected=current)
    assert store.changes(ADA, oldest).changes is None
    assert engine.catch_up(ADA, [LaneRequest("SOUL:", oldest)]).lanes[0].whole
    with pytest.raises(CompactedError):
        store.nodes_as_of(ADA, oldest)
    changes = store.changes(ADA, recent).changes
    assert changes is not None
    assert len(changes) == 9
    assert [each.label for each in store.nodes_as_of(ADA, recent).nodes] == ["SOUL:499", "SOUL:prefers tea"]
    assert 10 <= len(store.history(ADA, "n1").versions) < 300
    # A level that nobody changed for long is still known by its head.
    assert ids(store.nodes_as_of(ACME, store.heads(ACME)).nodes) == ["elder"]
    assert ids(store.query_nodes(ADA)) == ["n1", "elder"]


# Snapshots


def test_a_snapshot_keeps_what_it_saw(store: Any, clock: SteppingClock) -> None:
    stored = [store.put(node(name, scope=scope)) for name, scope in (("a", ADA), ("b", ACME), ("c", ADA))]
    heads = {scope: store.heads(scope) for scope in (ADA, ACME, DEPLOYMENT)}
    with store.snapshot() as snapshot:
        clock.tick()
        store.put(attrs.evolve(stored[0], label="SOUL:changed"), expected=stored[0])
        store.retract(ACME, "b")
        store.erase(ADA, "c")
        store.put(node("d"))
        for _ in range(2):
            assert list(snapshot.query_nodes(ADA)) == stored
            assert list(snapshot.query_nodes(ADA, label_prefix="SOUL:changed")) == []
            assert list(snapshot.query_nodes(ADA, limit=1)) == stored[:1]
            assert snapshot.get(ADA, "b") == stored[1]
            assert {scope: snapshot.heads(scope) for scope in heads} == heads
        with pytest.raises(NodeNotFoundError):
            snapshot.get(ADA, "d")
        with pytest.raises(InvalidInputError, match="limit"):
            snapshot.query_nodes(ADA, limit=-1)
    assert [each.label for each in store.query_nodes(ADA)] == ["SOUL:changed", "SOUL:prefers tea"]
    with pytest.raises(StoreClosedError):
        snapshot.query_nodes(ADA)


def test_snapshots_of_different_moments_stand_beside_each_other(store: Any) -> None:
    with store.snapshot() as empty:
        store.put(node("a"))
        with store.snapshot() as one:
            store.put(node("b"))
            with store.snapshot() as two:
                store.erase(ADA, "a")
                assert [ids(each.query_nodes(ADA)) for each in (empty, one, two, store)] == [
                    [], ["a"], ["a", "b"], ["b"],
                ]  # fmt: skip


def test_a_failed_write_does_not_show_in_a_snapshot(store: Any) -> None:
    first = store.put(node("a"))
    with store.snapshot() as snapshot:
        with pytest.raises(NodeNotFoundError):
            store.apply([Put(node("b")), Retract(ADA, "a"), Erase(ADA, "missing")])
        store.apply([Put(node("b")), Erase(ADA, "a")], dry_run=True)
        assert list(snapshot.query_nodes(ADA)) == list(store.query_nodes(ADA)) == [first]


# Threads


def test_writers_and_readers_in_many_threads_see_whole_transactions(engine: Engine) -> None:
    """Each transaction writes a pair; a lane never holds half of one, and equal heads are equal lanes."""
    lanes: dict[Heads, list[str]] = {}
    wrong: list[str] = []
    done = threading.Event()

    def write(worker: int) -> None:
        random_ = random.Random(worker)
        for number in range(15):
            pair = [Put(node(f"{worker}-{number}-{half}", f"SOUL:{random_.random()}")) for half in "ab"]
            engine.apply(pair)

    def read() -> None:
        while not done.is_set():
            caught = engine.catch_up(ADA, [LaneRequest("SOUL:")])
            found = sorted(row[2] for row in caught.lanes[0].rows)
            if len(found) % 2 or lanes.setdefault(caught.heads, found) != found:
                wrong.append(f"{caught.heads}: {found}")

    writers = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in (*writers, *readers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert wrong == []
    assert len(engine.query_nodes(ADA, "SOUL:", None)) == 120
    assert engine.heads(ADA).seq == 120
