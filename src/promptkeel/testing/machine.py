"""Random programs against a store, held against a model in plain Python at every step.

What a store stamps is taken from its answer and held fixed from then on, so that a store with a clock of its own can be
checked as well. A program that fails is printed as the shortest one that does.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from promptkeel.errors import PromptkeelError
from promptkeel.model import NOT_GIVEN, MemoryEdge, MemoryNode
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.store.base import HEADS, HISTORY, Heads
from promptkeel.store.operations import Erase, Link, Operation, Outcome, Put, Retract
from promptkeel.testing.calling import Called, Caller
from promptkeel.testing.clock import SteppingClock
from promptkeel.testing.harness import Delete, Edit, Move, Relabel, StoreMaker
from promptkeel.testing.model import Key, ModelStore, key_of, order
from promptkeel.testing.samples import ACME, ADA, BOB, OTHER

SCOPES = (DEPLOYMENT, ACME, ADA, BOB, OTHER)
LEAVES = (ADA, BOB, OTHER)
IDS = "abcd"
PREFIXES = ("", "S", "SOUL:", "SOUL:a", "SOUL:%", "SOUL:\U0010ffff", "RULE:")

scopes = st.sampled_from(SCOPES)
ids = st.sampled_from(IDS)
places = st.integers(0, 5)
labels = st.sampled_from(
    ["SOUL:a", "SOUL:ab", "SOUL:%", "SOUL:\u00e9", "SOUL:\U0010ffff", "soul:a", "RULE:SOUL:a", "S"]
)
nodes = st.builds(
    MemoryNode,
    id=ids,
    scope=scopes,
    label=labels,
    properties=st.sampled_from([{}, {"role": "CTO"}, {"role": 1}, {"role": True}, {"tags": ["x", {"y": None}]}]),
    source=st.sampled_from([None, "chat", "import"]),
    recorded_at=st.sampled_from([None, 0, 1_000_000, 2_000_000_000_000_000, NOT_GIVEN]),
    trust=st.sampled_from([None, "user", "inferred"]),
)
edges = st.builds(
    MemoryEdge,
    scope=scopes,
    start=ids,
    type=st.sampled_from(["about", "supersedes", "derived_from"]),
    end=ids,
    properties=st.sampled_from([{}, {"weight": 1}]),
)
operations = st.one_of(
    st.builds(Put, nodes, st.sampled_from([None, None, "0" * 32])),
    st.builds(Retract, scopes, ids),
    st.builds(Erase, scopes, ids),
    st.builds(Link, edges),
)


@attrs.frozen
class Moment:
    """What was visible at a scope at one moment."""

    scope: TenantScope
    heads: Heads
    events: int
    visible: dict[Key, MemoryNode]
    lane: list[MemoryNode]


@attrs.frozen
class HeldSnapshot:
    """A snapshot that is open, and the model as it was when it was opened."""

    snapshot: Called
    model: ModelStore
    heads: dict[TenantScope, Heads]
    resources: ExitStack


class StoreMachine(StoreMaker, RuleBasedStateMachine):
    """A Hypothesis state machine; give ``new_store``, and ``open_again`` and ``edit_behind`` where you can.

    ``MyMachine.TestCase`` is what pytest runs; ``StoreSuite`` runs one of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="promptkeel-machine-"))
        self.clock = SteppingClock()
        self.caller = Caller(self.event_loop)
        self.model = ModelStore()
        self.handles: list[Called] = []
        self.moments: list[Moment] = []
        self.snapshots: list[HeldSnapshot] = []
        self.seen: dict[Heads, dict[Key, MemoryNode]] = {}
        self.edited: set[Key] = set()
        self.turn = 0

    @initialize(first=st.lists(nodes, max_size=6), links=st.lists(st.tuples(places, places, edges), max_size=4))
    def open(self, first: list[MemoryNode], links: list[tuple[int, int, MemoryEdge]]) -> None:
        """Every program begins with an empty store and puts a few nodes and edges into it."""
        self.handles = [Called(self.caller, self.caller.call(self.new_store))]
        for node in first:
            self.put(node)
        for start, end, edge in links if self.model.nodes else ():
            starts = sorted(self.model.nodes.values(), key=order)
            self.link_up(edge, starts[start % len(starts)], end)

    def link_up(self, edge: MemoryEdge, start: MemoryNode, end: int) -> None:
        """Link a node that is there to one that it sees."""
        ends = sorted(self.model.visible(start.scope).values(), key=order)
        operation = Link(attrs.evolve(edge, scope=start.scope, start=start.id, end=ends[end % len(ends)].id))
        if self.is_clear(operation):
            self.perform(operation, caller_of(operation))

    def teardown(self) -> None:
        """Let everything go."""
        self.let_the_snapshots_go()
        for handle in self.handles:
            handle.close()
        self.caller.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def store(self) -> Called:
        """One of the open handles, another one each time."""
        self.turn += 1
        return self.handles[self.turn % len(self.handles)]

    def declares(self, *capabilities: str) -> bool:
        """Whether the store has these capabilities."""
        return bool(self.handles) and self.handles[0].wrapped.capabilities.issuperset(capabilities)

    def all_heads(self) -> list[Heads]:
        """The heads of every scope, where the store has heads."""
        return [self.store.heads(scope) for scope in SCOPES] if self.declares(HEADS) else []

    # Writes

    def perform(self, operation: Operation, call: Callable[[Called], Any]) -> None:
        """Do one operation on the store and in the model; their answers must agree."""
        heads = self.all_heads()
        answer, refusal = attempt(lambda: call(self.store))
        model = self.model.copy()
        now = self.stamp([operation], [answer])
        kind, expected = attempt(lambda: model.perform(operation, now))
        if expected is not None:
            assert isinstance(refusal, type(expected)), told(operation, type(expected).__name__, refusal or answer)
            assert self.all_heads() == heads, f"refused, but heads moved: {operation}"
            return
        assert refusal is None, told(operation, kind, refusal)
        if isinstance(answer, MemoryNode):
            assert answer == model.nodes[key_of(answer)], told(operation, model.nodes[key_of(answer)], answer)
        if kind == "unchanged":
            assert self.all_heads() == heads, f"nothing changed, but heads moved: {operation}"
        self.model = model

    def stamp(self, operations: list[Operation], answers: list[Any]) -> int:
        """The instant that the store gave its writes."""
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(answer, Outcome) and answer.kind in ("unchanged", "confirmed"):
                # Its node is as it was: what it is stamped with was given before.
                continue
            node = answer.node if isinstance(answer, Outcome) else answer
            if isinstance(node, MemoryNode) and node.updated is not None:
                return node.updated
            if isinstance(operation, Link):
                edge = operation.edge
                end, _ = attempt(partial(self.store.get, edge.scope, edge.end))
                if isinstance(end, MemoryNode) and end.state == "superseded" and end.updated is not None:
                    return end.updated
        return 0

    def is_clear(self, operation: Operation) -> bool:
        """Whether it is certain what the operation means.

        An edge may mean one id under two roots. What was edited behind the store has left a history under an identity
        or a scope that it no longer has: how much of it an erasure by id takes is the store's own.
        """
        if isinstance(operation, Erase):
            return not self.is_edited(operation.node_id)
        if not isinstance(operation, Link):
            return True
        root, end = operation.edge.scope.root, operation.edge.end
        return not root or ("", end) not in self.model.nodes or (root, end) not in self.model.nodes

    def is_edited(self, node_id: str) -> bool:
        """Whether a node of this id was edited behind the store."""
        return any(edited == node_id for _, edited in self.edited)

    @rule(node=nodes)
    def put(self, node: MemoryNode) -> None:
        """Insert a node, or be refused."""
        self.perform(Put(node), lambda store: store.put(node))

    @rule(operation=operations)
    def operate(self, operation: Operation) -> None:
        """Any one operation."""
        if self.is_clear(operation):
            self.perform(operation, caller_of(operation))

    @rule(data=st.data(), node=nodes, stale=st.booleans(), by_version=st.booleans())
    @precondition(lambda self: self.model.nodes)
    def compare_and_set(self, data: st.DataObject, node: MemoryNode, stale: bool, by_version: bool) -> None:  # noqa: FBT001 - drawn
        """Change a node, against what it is or against what it is not; its label may change its lane."""
        current = self.some_node(data)
        versions = self.model.past[key_of(current)]
        seen = versions[0] if stale else current
        changed = attrs.evolve(node, id=current.id, scope=current.scope, state=current.state)
        operation = Put(changed, seen.version if by_version else seen)
        self.perform(operation, lambda store: store.put(changed, expected=operation.expected))

    @rule(data=st.data(), restamped=st.booleans())
    @precondition(lambda self: self.model.nodes)
    def rewrite_equal_content(self, data: st.DataObject, restamped: bool) -> None:  # noqa: FBT001 - drawn
        """What is written again as it is stays as it is."""
        current = self.some_node(data)
        same = attrs.evolve(current, created_at=None, updated_at=None) if restamped else current
        self.perform(Put(same, current), lambda store: store.put(same, expected=current))

    @rule(data=st.data(), edge=edges, end=places)
    @precondition(lambda self: self.model.nodes)
    def link(self, data: st.DataObject, edge: MemoryEdge, end: int) -> None:
        """Link two nodes that are there, or link them again."""
        self.link_up(edge, self.some_node(data), end)

    @rule(data=st.data(), erase=st.booleans())
    @precondition(lambda self: self.model.nodes)
    def remove(self, data: st.DataObject, erase: bool) -> None:  # noqa: FBT001 - drawn
        """Retract or erase a node that is there."""
        node = self.some_node(data)
        operation = Erase(node.scope, node.id) if erase else Retract(node.scope, node.id)
        if self.is_clear(operation):
            self.perform(operation, caller_of(operation))

    @rule(batch=st.lists(operations, min_size=2, max_size=4), dry_run=st.booleans())
    @precondition(lambda self: self.handles and hasattr(self.handles[0].wrapped, "apply"))
    def apply(self, batch: list[Operation], dry_run: bool) -> None:  # noqa: FBT001 - drawn
        """Several operations in one transaction, or none of them."""
        if not all(self.is_clear(operation) for operation in batch):
            return
        heads = self.all_heads()
        outcomes, refusal = attempt(lambda: self.store.apply(batch, dry_run=dry_run))
        model = self.model.copy()
        now = 0 if outcomes is None else self.stamp(batch, list(outcomes))
        kinds, expected = attempt(lambda: [model.perform(operation, now) for operation in batch])
        if expected is not None:
            assert isinstance(refusal, type(expected)), told(batch, type(expected).__name__, refusal or outcomes)
        else:
            assert refusal is None, told(batch, kinds, refusal)
            assert [outcome.kind for outcome in outcomes] == kinds
        if expected is not None or dry_run:
            assert self.all_heads() == heads, f"nothing was to happen, but heads moved: {batch}"
        else:
            self.model = model

    @rule(seconds=st.sampled_from([-3600, 0.5, 86_400]))
    def time_passes(self, seconds: float) -> None:
        """The clock moves, or is set back."""
        self.clock.tick(seconds)

    # Edits that bypass the library

    def some_node(self, data: st.DataObject) -> MemoryNode:
        """A node that is there."""
        return data.draw(st.sampled_from(sorted(self.model.nodes.values(), key=order)))

    def edit(self, edit: Edit) -> None:
        """Make an edit behind the store's back and forget what only the library would have kept."""
        self.edited.add(key_of(edit.node))
        self.edit_behind(self.handles[0].wrapped, edit)

    @rule(data=st.data(), label=labels)
    @precondition(lambda self: self.has("edit_behind") and self.model.nodes)
    def relabel_behind(self, data: st.DataObject, label: str) -> None:
        """Another client changes a label."""
        node = self.some_node(data)
        if node.label != label:
            self.edit(Relabel(node, label))
            self.model.write(key_of(node), attrs.evolve(node, label=label))

    def has_edges(self, node: MemoryNode) -> bool:
        """Whether an edge leaves or reaches a node."""
        return any(key_of(node) in place[:2] for place in self.model.edges)

    @rule(data=st.data(), scope=st.sampled_from([ACME, ADA, BOB]))
    @precondition(lambda self: self.has("edit_behind") and self.model.nodes)
    def move_behind(self, data: st.DataObject, scope: TenantScope) -> None:
        """Another client moves a node to another scope of its root."""
        node = self.some_node(data)
        if node.scope.root == scope.root and node.scope != scope and not self.has_edges(node):
            self.edit(Move(node, scope))
            self.model.write(key_of(node), None)
            self.model.write(key_of(node), attrs.evolve(node, scope=scope))

    @rule(data=st.data())
    @precondition(lambda self: self.has("edit_behind") and self.model.nodes)
    def delete_behind(self, data: st.DataObject) -> None:
        """Another client deletes a node."""
        node = self.some_node(data)
        if not self.has_edges(node):
            self.edit(Delete(node))
            self.model.write(key_of(node), None)

    # Handles

    @rule()
    @precondition(lambda self: self.has("open_again") and len(self.handles) < 3)
    def open_a_second_handle(self) -> None:
        """From now on, calls take turns between the handles."""
        self.handles.append(Called(self.caller, self.caller.call(self.open_again, self.handles[0].wrapped)))

    @rule()
    @precondition(lambda self: self.has("open_again"))
    def reopen(self) -> None:
        """Close everything and open the store again: nothing has moved."""
        self.let_the_snapshots_go()
        heads = self.all_heads()
        for handle in self.handles:
            handle.close()
        self.handles = [Called(self.caller, self.caller.call(self.open_again, self.handles[0].wrapped))]
        assert self.all_heads() == heads, "heads did not outlive the handle"

    # Reads

    @invariant()
    @precondition(lambda self: self.handles)
    def lanes_are_what_the_model_says(self) -> None:
        """Complete, isolated, in order, and moved by nothing."""
        store = self.store
        for scope in LEAVES:
            assert list(store.query_nodes(scope)) == self.model.lane(scope), f"the lane at {scope}"

    @invariant()
    @precondition(lambda self: self.declares(HEADS))
    def equal_heads_are_equal_lanes(self) -> None:
        """Sound heads."""
        store = self.store
        for scope in LEAVES:
            visible = self.model.visible(scope)
            heads = store.heads(scope)
            assert self.seen.setdefault(heads, visible) == visible, f"heads at {scope} came back for something else"

    @rule(scope=scopes, limit=st.sampled_from([None, 0, 1, 2]))
    def read_the_lanes(self, scope: TenantScope, limit: int | None) -> None:
        """Of any scope, prefix and limit."""
        store = self.store
        for prefix in (None, *PREFIXES):
            found = list(store.query_nodes(scope, label_prefix=prefix, limit=limit))
            assert found == self.model.lane(scope, prefix or "")[:limit], f"the lane {prefix!r} at {scope}"

    @rule(scope=scopes, direction=st.sampled_from(["out", "in", "both"]))
    def read_the_nodes(self, scope: TenantScope, direction: Any) -> None:
        """Each node, its neighbours and its history, or the same refusal for each."""
        for id_ in IDS:
            self.check_node(scope, id_, direction)

    def check_node(self, scope: TenantScope, id_: str, direction: Any) -> None:
        """One node, as a scope sees it."""
        store = self.store
        expected, refusal = attempt(lambda: self.model.seen(scope, id_))
        found, refused = attempt(lambda: store.get(scope, id_))
        assert type(refused) is type(refusal), told(f"get {id_!r} at {scope}", refusal or expected, refused or found)
        if expected is None:
            return
        assert found == expected
        around = [(each.edge, each.node) for each in store.neighbours(scope, id_, direction=direction)]
        assert around == self.model.neighbours(scope, id_, None, direction), f"the neighbours of {id_!r} at {scope}"
        if self.declares(HISTORY):
            versions = store.history(scope, id_).versions
            kept = self.model.history(scope, id_)
            assert versions[-1:] == kept[-1:]
            assert key_of(expected) in self.edited or versions == kept, f"the history of {id_!r} at {scope}"

    @rule()
    @precondition(lambda self: self.declares(HEADS) and len(self.moments) < 3 * len(SCOPES))
    def keep_the_moment(self) -> None:
        """Keep what is visible now, to ask for it later."""
        for scope in SCOPES:
            visible, lane = self.model.visible(scope), self.model.lane(scope)
            self.moments.append(Moment(scope, self.store.heads(scope), len(self.model.events), visible, lane))

    @rule(prefix=st.sampled_from(PREFIXES))
    @precondition(lambda self: self.moments and self.declares(HISTORY))
    def the_past_is_as_it_was(self, prefix: str) -> None:
        """A lane as of a moment is that moment's, without what was erased since."""
        for moment in self.moments:
            self.check_past(moment, prefix)

    def check_past(self, moment: Moment, prefix: str) -> None:
        """One lane as of one moment."""
        past = self.store.nodes_as_of(moment.scope, moment.heads, label_prefix=prefix)
        gone = {key for key in moment.visible if key in self.model.erased}
        lane = [node for node in moment.lane if key_of(node) not in gone and node.label.startswith(prefix)]
        assert list(past.nodes) == lane, f"the lane {prefix!r} at {moment.scope} as it was"
        assert past.erased == tuple(sorted({id_ for _, id_ in gone}))

    @rule(prefix=st.sampled_from(PREFIXES))
    @precondition(lambda self: self.moments)
    def changes_name_what_was_touched(self, prefix: str) -> None:
        """Every change since a moment, or "read everything"; never less."""
        for moment in self.moments:
            self.check_changes(moment, prefix)

    def check_changes(self, moment: Moment, prefix: str) -> None:
        """One lane's changes since one moment."""
        changes = self.store.changes(moment.scope, moment.heads, label_prefix=prefix)
        assert changes.heads == self.store.heads(moment.scope)
        expected = self.model.events_since(moment.scope, moment.events, prefix)
        if changes.changes is None:
            assert expected is None or self.edited, "the log of a short program should reach back"
            return
        named = [(each.scope, each.node_id) for each in changes.changes]
        touched = self.model.touched_since(moment.scope, moment.events, prefix)
        touched = {entry for entry in touched if not self.is_edited(entry[1])}
        assert touched <= set(named), f"lost log entries of {prefix!r} at {moment.scope}: {touched - set(named)}"
        if expected is not None and not self.edited:
            # A change of what is in no lane, before or after, may be named or not.
            labelled = [(each.scope, each.node_id, each.label_before, each.label_after) for each in changes.changes]
            said = [entry for entry in labelled if entry[2:] != (None, None)]
            known = [(each.scope, each.id, each.before, each.after) for each in expected]
            assert said == [entry for entry in known if entry[2:] != (None, None)]

    # Snapshots

    @rule()
    @precondition(lambda self: len(self.snapshots) < 3)
    def hold_a_snapshot(self) -> None:
        """Open a snapshot and keep it open."""
        resources = ExitStack()
        store = self.store
        heads = {scope: store.heads(scope) for scope in SCOPES} if self.declares(HEADS) else {}
        snapshot = resources.enter_context(store.snapshot())
        self.snapshots.append(HeldSnapshot(snapshot, self.model.copy(), heads, resources))

    @rule(scope=scopes, prefix=st.sampled_from(PREFIXES), id_=ids)
    @precondition(lambda self: self.snapshots)
    def a_snapshot_keeps_what_it_saw(self, scope: TenantScope, prefix: str, id_: str) -> None:
        """Lanes, nodes and heads, whatever was written since."""
        for held in self.snapshots:
            found = list(held.snapshot.query_nodes(scope, label_prefix=prefix))
            assert found == held.model.lane(scope, prefix), f"the lane {prefix!r} at {scope} in a snapshot"
            expected = held.model.get(scope, id_)
            node, refusal = attempt(partial(held.snapshot.get, scope, id_))
            assert node == expected, told(f"get {id_!r} at {scope} in a snapshot", expected, refusal or node)
            if held.heads:
                assert held.snapshot.heads(scope) == held.heads[scope]

    @rule()
    @precondition(lambda self: self.snapshots)
    def let_the_snapshots_go(self) -> None:
        """Close the open snapshots."""
        for held in self.snapshots:
            held.resources.close()
        self.snapshots.clear()


def attempt(call: Callable[[], Any]) -> tuple[Any, PromptkeelError | None]:
    """What a call answers, or the refusal."""
    try:
        return call(), None
    except PromptkeelError as error:
        return None, error


def told(what: object, expected: object, got: object) -> str:
    """A sentence on an answer that is not the model's."""
    return f"{what}: the model says {expected!r}, the store {got!r}"


def caller_of(operation: Operation) -> Callable[[Called], Any]:
    """How one operation is asked for through the protocol."""
    match operation:
        case Put(node, expected):
            return lambda store: store.put(node, expected=expected)
        case Retract(scope, node_id, expected):
            return lambda store: store.retract(scope, node_id, expected=expected)
        case Erase(scope, node_id):
            return lambda store: store.erase(scope, node_id)
        case Link(edge):
            return lambda store: store.link(edge)
    raise AssertionError(f"the protocol has no method for {operation!r}")
