"""Random programs, run on both stores at once and in plain Python, agree at every step.

``BothStores`` runs writes, reads, snapshots and reopenings; ``RawEdits`` adds a stock SQLite client that edits the file
behind the store's back.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from promptkeel.errors import PromptkeelError
from promptkeel.model import NOT_GIVEN, MemoryEdge, MemoryNode
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.store.base import Engine, Heads, LaneRequest, LaneRow
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import Correct, Erase, Link, Operation, Outcome, Put, Remember, Retract
from promptkeel.testing.model import Key, ModelStore, order, shown
from store.examples import ACME, ADA, BOB, OTHER, SteppingClock
from store.stock_client import StockClient

SCOPES = (DEPLOYMENT, ACME, ADA, BOB, OTHER)
PREFIXES = ("", "S", "SOUL:", "SOUL:a", "SOUL:%", "RULE:")
scopes = st.sampled_from(SCOPES)
ids = st.sampled_from("abcd")
labels = st.sampled_from(["SOUL:a", "SOUL:ab", "SOUL:%", "SOUL:é\U0010ffff", "RULE:a", "S"])
sources = st.sampled_from([None, "chat", "import"])
trusts = st.sampled_from([None, "user", "inferred"])
moments = st.sampled_from([None, 0, 1_000_000, 2_000_000_000_000_000, NOT_GIVEN])
properties = st.sampled_from([{}, {"role": "CTO"}, {"role": 1}, {"role": True}, {"tags": ["x", {"y": None}]}])
edge_types = st.sampled_from(["about", "supersedes", "derived_from"])

nodes = st.builds(
    MemoryNode,
    id=ids, scope=scopes, label=labels, properties=properties, source=sources, recorded_at=moments, trust=trusts,
)  # fmt: skip
corrections = st.builds(
    Correct,
    scope=scopes, node_id=ids, label=labels, source=sources, recorded=moments, trust=trusts,
    properties=st.sampled_from([{}, {"role": "CEO"}, {"role": None}, {"role": 2, "tags": []}]),
)  # fmt: skip
edges = st.builds(MemoryEdge, scope=scopes, start=ids, type=edge_types, end=ids)
operations = st.one_of(
    st.builds(Put, nodes),
    st.builds(Remember, nodes),
    corrections,
    st.builds(Retract, scopes, ids),
    st.builds(Erase, scopes, ids),
    st.builds(Link, edges),
)


def comparable(outcome: Outcome) -> Outcome:
    """An outcome without what may differ: only a file can be scrubbed."""
    if outcome.receipt is None:
        return outcome
    return attrs.evolve(outcome, receipt=attrs.evolve(outcome.receipt, state="unreadable"))


def row_of(node: MemoryNode) -> tuple[Any, ...]:
    return (node.label, node.recorded, node.id, node.scope.path, node.source, node.trust, node.updated)


def rows_of(rows: list[LaneRow]) -> list[tuple[Any, ...]]:
    """Rows in lane order, without properties: what a row's text of them says is checked where it is read."""
    return sorted((row[:7] for row in rows), key=lambda row: (row[0], row[1] is not None, row[1] or 0, row[2], row[3]))


@attrs.frozen
class Memory:
    """What a test saw at one moment: of a scope, its heads and everything visible."""

    scope: TenantScope
    heads: Heads
    events: int
    visible: dict[Key, MemoryNode]
    lane: list[MemoryNode]


@attrs.define
class Reader:
    """A lane that someone keeps and brings up to date now and then, on one store."""

    scope: TenantScope
    prefix: str
    rows: dict[str, dict[Key, LaneRow]] = attrs.field(factory=dict)
    heads: dict[str, Heads] = attrs.field(factory=dict)


class BothStores(RuleBasedStateMachine):
    """The same program on both stores, and on the file with either library."""

    backends: tuple[str, ...] = ("ram", "sqlite", "sqlite3")
    exact_changes = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="keel-machine-"))
        self.file = self.folder / "memory.db"
        self.clock = SteppingClock()
        self.engines: dict[str, Engine] = {}
        self.model = ModelStore()
        self.memories: list[tuple[str, Memory]] = []
        self.stood: dict[Key, set[str]] = {}
        self.seen: dict[str, dict[Heads, dict[Key, MemoryNode]]] = {}
        self.readers: list[Reader] = []
        self.snapshots: list[tuple[Any, ModelStore]] = []

    @initialize()
    def open(self) -> None:
        for backend in self.backends:
            self.engines[backend] = self.open_engine(backend)
            self.seen[backend] = {}

    def open_engine(self, backend: str) -> Engine:
        addresses = {
            "ram": "ram:",
            "sqlite": f"sqlite:///{self.file}",
            "sqlite3": f"sqlite:///{self.folder / 'standard.db'}?driver=sqlite3",
        }
        return open_engine(addresses[backend], clock=self.clock)

    def teardown(self) -> None:
        for snapshot, _ in self.snapshots:
            snapshot.close()
        for engine in self.engines.values():
            engine.close()
        shutil.rmtree(self.folder)

    # Writes

    def apply(self, batch: list[Operation], *, dry_run: bool = False) -> None:
        now = self.clock.tick()
        model = self.model.copy()
        expected: Any
        try:
            expected = [model.perform(operation, now) for operation in batch]
        except PromptkeelError as error:
            expected = type(error)
        answers: list[Any] = []
        for engine in self.engines.values():
            token = engine.probe()
            try:
                outcomes = engine.apply(batch, dry_run=dry_run)
            except PromptkeelError as error:
                answers.append((type(error), str(error)))
                got: Any = type(error)
            else:
                answers.append([comparable(outcome) for outcome in outcomes])
                got = [outcome.kind for outcome in outcomes]
            assert got == expected
            # A correction that came too late changes nothing that is shown, and is kept all the same.
            kept = isinstance(expected, list) and not dry_run and vars(model) != vars(self.model)
            assert (engine.probe() != token) == kept
        assert all(answer == answers[0] for answer in answers)
        if isinstance(expected, list) and not dry_run:
            self.model = model

    @rule(node=nodes)
    def put(self, node: MemoryNode) -> None:
        self.apply([Put(node)])

    @rule(operation=operations)
    def operate(self, operation: Operation) -> None:
        if self.is_clear(operation):
            self.apply([operation])

    @rule(batch=st.lists(operations, min_size=2, max_size=4), dry_run=st.booleans())
    def batch(self, batch: list[Operation], dry_run: bool) -> None:
        if all(self.is_clear(operation) for operation in batch):
            self.apply(batch, dry_run=dry_run)

    def is_clear(self, operation: Operation) -> bool:
        # One id under two roots may be meant by an edge: which one it reached is not said by ids.
        return not isinstance(operation, Link) or ("", operation.edge.end) not in self.model.nodes

    @rule(data=st.data(), node=nodes, stale=st.booleans(), by_version=st.booleans())
    @precondition(lambda self: self.model.nodes)
    def compare_and_set(self, data: st.DataObject, node: MemoryNode, stale: bool, by_version: bool) -> None:
        current = data.draw(st.sampled_from(sorted(self.model.nodes.values(), key=order)))
        expected = attrs.evolve(current, source="stale") if stale else current
        changed = attrs.evolve(node, id=current.id, scope=current.scope, state=current.state)
        self.apply([Put(changed, expected.version if by_version else expected)])

    @rule(data=st.data(), erase=st.booleans())
    @precondition(lambda self: self.model.nodes)
    def remove(self, data: st.DataObject, erase: bool) -> None:
        node = data.draw(st.sampled_from(sorted(self.model.nodes.values(), key=order)))
        self.apply([Erase(node.scope, node.id) if erase else Retract(node.scope, node.id)])

    # Reads

    @invariant()
    def lanes_are_what_the_model_says(self) -> None:
        for engine in self.engines.values():
            for scope in SCOPES:
                for prefix in PREFIXES:
                    assert engine.query_nodes(scope, prefix, None) == self.model.lane(scope, prefix)
                assert engine.query_nodes(scope, None, 2) == self.model.lane(scope)[:2]

    @invariant()
    def heads_move_with_what_is_visible_and_with_nothing_else(self) -> None:
        seqs: list[list[list[int]]] = []
        for backend, engine in self.engines.items():
            seqs.append([])
            for scope in SCOPES:
                heads = engine.heads(scope)
                visible = self.model.visible(scope)
                assert self.seen[backend].setdefault(heads, visible) == visible
                last = [self.model.last(path) for path in scope.chain]
                assert not self.exact_changes or [head.seq for head in heads.levels] == last
                seqs[-1].append([head.seq for head in heads.levels])
        assert all(each == seqs[0] for each in seqs)

    @rule(scope=scopes, id_=ids)
    def get(self, scope: TenantScope, id_: str) -> None:
        expected = self.model.get(scope, id_)
        answers: list[Any] = []
        for engine in self.engines.values():
            try:
                found = engine.get(scope, id_)
            except PromptkeelError as error:
                assert expected is None
                answers.append((type(error), str(error)))
            else:
                assert found == expected
                history = engine.history(scope, id_)
                assert history.versions[-1] == found
                answers.append((history, engine.neighbours(scope, id_, None, "both"), engine.receipts(scope)[:0]))
        assert all(answer == answers[0] for answer in answers)

    @rule(scope=scopes)
    def keep_a_moment(self, scope: TenantScope) -> None:
        self.remember(scope)

    def remember(self, scope: TenantScope) -> None:
        """Keep what is visible now, to ask for it later."""
        for backend, engine in self.engines.items():
            memory = Memory(
                scope, engine.heads(scope), len(self.model.events), self.model.visible(scope), self.model.lane(scope)
            )
            self.memories.append((backend, memory))

    @invariant()
    def the_last_moments_are_still_known(self) -> None:
        """Ask at every step for what was kept last: most faults need a write between two questions."""
        for key, node in self.model.nodes.items():
            self.stood.setdefault(key, set()).add(node.scope.path)
        for backend, memory in self.memories[-6:]:
            self.check_past(backend, memory, "")
            self.check_changes(backend, memory, "")
        if self.engines and len(self.model.events) % 3 == 1:
            self.remember(SCOPES[len(self.model.events) % len(SCOPES)])

    @rule(prefix=st.sampled_from(PREFIXES), data=st.data())
    @precondition(lambda self: self.memories)
    def the_past_is_as_it_was(self, prefix: str, data: st.DataObject) -> None:
        backend, memory = data.draw(st.sampled_from(self.memories))
        self.check_past(backend, memory, prefix)

    def check_past(self, backend: str, memory: Memory, prefix: str) -> None:
        past = self.engines[backend].nodes_as_of(memory.scope, memory.heads, prefix)
        gone = {key for key in memory.visible if key in self.model.erased}
        lane = [node for node in memory.lane if (node.scope.root, node.id) not in gone]
        assert list(past.nodes) == [node for node in lane if node.label.startswith(prefix)]
        # A receipt knows where its node was when it was erased, not where raw SQL had let the identity stand before.
        moved = {key for key, paths in self.stood.items() if len(paths) > 1}
        stayed = {id_ for root, id_ in gone if (root, id_) not in moved}
        assert stayed <= set(past.erased) <= stayed | {id_ for _, id_ in moved}
        assert list(past.erased) == sorted(set(past.erased))

    @rule(prefix=st.sampled_from(PREFIXES), data=st.data())
    @precondition(lambda self: self.memories)
    def changes_name_what_was_touched(self, prefix: str, data: st.DataObject) -> None:
        backend, memory = data.draw(st.sampled_from(self.memories))
        self.check_changes(backend, memory, prefix)

    def check_changes(self, backend: str, memory: Memory, prefix: str) -> None:
        engine = self.engines[backend]
        changes = engine.changes(memory.scope, memory.heads, prefix or None)
        assert changes.heads == engine.heads(memory.scope)
        expected = self.model.events_since(memory.scope, memory.events, prefix)
        if expected is None or changes.changes is None:
            assert (expected, changes.changes) == (None, None)
            return
        if self.exact_changes:
            named = [(c.seq, c.scope, c.node_id, c.label_before, c.label_after) for c in changes.changes]
            assert named == [attrs.astuple(event) for event in expected]
        else:
            touched = {(change.scope, change.node_id) for change in changes.changes}
            assert touched == {(event.scope, event.id) for event in expected}

    @rule(scope=scopes, prefix=st.sampled_from(PREFIXES))
    @precondition(lambda self: len(self.readers) < 4)
    def begin_reading(self, scope: TenantScope, prefix: str) -> None:
        self.readers.append(Reader(scope, prefix))
        self.catch_up(self.readers[-1], tail=False)

    @rule(data=st.data(), tail=st.booleans())
    @precondition(lambda self: self.readers)
    def read_on(self, data: st.DataObject, tail: bool) -> None:
        self.catch_up(data.draw(st.sampled_from(self.readers)), tail=tail)

    def catch_up(self, reader: Reader, *, tail: bool) -> None:
        for backend, engine in self.engines.items():
            since = reader.heads.get(backend)
            request = LaneRequest(reader.prefix, since)
            caught = engine.tail(reader.scope, [request]) if tail else engine.catch_up(reader.scope, [request])
            if caught is None:
                assert tail
                continue
            (update,) = caught.lanes
            assert caught.heads == engine.heads(reader.scope)
            assert since is not None or update.whole
            assert not (update.whole and update.touched)
            rows = {} if update.whole else dict(reader.rows[backend])
            for key in update.touched:
                rows.pop(key, None)
            rows.update({(row[3].partition("/")[0], row[2]): row for row in update.rows})
            cold = engine.catch_up(reader.scope, [LaneRequest(reader.prefix)]).lanes[0]
            assert sorted(rows.values(), key=repr) == sorted(cold.rows, key=repr)
            expected = [row_of(node) for node in self.model.lane(reader.scope, reader.prefix)]
            assert rows_of(list(rows.values())) == expected
            if since == caught.heads:
                assert (update.rows, update.touched, update.whole) == ([], (), False)
            reader.rows[backend], reader.heads[backend] = rows, caught.heads

    @rule()
    @precondition(lambda self: len(self.snapshots) < 4)
    def hold_a_snapshot(self) -> None:
        self.snapshots.extend((engine.open_snapshot(), self.model.copy()) for engine in self.engines.values())

    @rule(scope=scopes, prefix=st.sampled_from(PREFIXES), id_=ids)
    @precondition(lambda self: self.snapshots)
    def a_snapshot_keeps_what_it_saw(self, scope: TenantScope, prefix: str, id_: str) -> None:
        for snapshot, model in self.snapshots:
            assert snapshot.query_nodes(scope, prefix, None) == model.lane(scope, prefix)
            expected = model.get(scope, id_)
            with contextlib.nullcontext() if expected else contextlib.suppress(PromptkeelError):
                assert snapshot.get(scope, id_) == expected

    @rule()
    @precondition(lambda self: self.snapshots)
    def let_the_snapshots_go(self) -> None:
        for snapshot, _ in self.snapshots:
            snapshot.close()
        self.snapshots.clear()

    @rule()
    def reopen(self) -> None:
        self.let_the_snapshots_go()
        for backend in set(self.backends) - {"ram"}:
            before = [self.engines[backend].heads(scope) for scope in SCOPES]
            self.engines[backend].close()
            self.engines[backend] = self.open_engine(backend)
            assert [self.engines[backend].heads(scope) for scope in SCOPES] == before


class RawEdits(BothStores):
    """The SQLite store alone, and a stock client that writes to its file."""

    backends = ("sqlite",)
    exact_changes = False
    client: StockClient

    def sql(self, statement: str, *arguments: Any) -> None:
        """Run one statement as a stock client; the store must see that something was committed."""
        engine = self.engines["sqlite"]
        token, heads = engine.probe(), [engine.heads(scope) for scope in SCOPES]
        self.client.run(self.file, statement, arguments)
        assert engine.probe() != token or [engine.heads(scope) for scope in SCOPES] == heads

    def place(self, node: MemoryNode) -> None:
        """In the model, put a node over whatever has its identity."""
        key = (node.scope.root, node.id)
        victim = self.model.nodes.get(key)
        if victim is not None and victim.scope != node.scope:
            self.model.write(key, None)
        self.model.write(key, node)

    def some_node(self, data: st.DataObject) -> MemoryNode:
        found: MemoryNode = data.draw(st.sampled_from(sorted(self.model.nodes.values(), key=order)))
        return found

    @rule(scope=scopes, id_=ids, label=labels, verb=st.sampled_from(["INSERT", "REPLACE", "INSERT OR IGNORE"]))
    def raw_insert(self, scope: TenantScope, id_: str, label: str, verb: str) -> None:
        key = (scope.root, id_)
        if key in self.model.erased or (key in self.model.nodes and verb == "INSERT"):
            return
        now = self.clock.tick()
        self.sql(
            f"{verb} INTO nodes(scope, label, id, created_at, updated_at, recorded_at) VALUES (?, ?, ?, ?, ?, NULL)",
            scope.path, label, id_, now, now,
        )  # fmt: skip
        node = MemoryNode(id=id_, scope=scope, label=label, created_at=now, updated_at=now, recorded_at=None)
        if verb == "INSERT OR IGNORE" and key in self.model.nodes:
            # The log names the row that was left alone: one more look, never a wrong answer.
            kept = self.model.nodes[key]
            self.model.log(kept.scope.path, id_, shown(kept), shown(kept))
        else:
            self.place(node)

    @rule(data=st.data(), label=labels, source=sources)
    @precondition(lambda self: self.model.nodes)
    def raw_relabel(self, data: st.DataObject, label: str, source: str | None) -> None:
        node = self.some_node(data)
        self.sql(
            "UPDATE nodes SET label = ?, source = ? WHERE root = ? AND id = ?",
            label, source, node.scope.root, node.id,
        )  # fmt: skip
        changed = attrs.evolve(node, label=label, source=source)
        if changed != node:
            self.place(changed)

    @rule(data=st.data(), state=st.sampled_from(["live", "retracted", "superseded"]))
    @precondition(lambda self: self.model.nodes)
    def raw_state(self, data: st.DataObject, state: Any) -> None:
        node = self.some_node(data)
        self.sql("UPDATE nodes SET state = ? WHERE root = ? AND id = ?", state, node.scope.root, node.id)
        if node.state != state:
            self.place(attrs.evolve(node, state=state))

    @rule(data=st.data(), scope=scopes, replace=st.booleans())
    @precondition(lambda self: self.model.nodes)
    def raw_move(self, data: st.DataObject, scope: TenantScope, replace: bool) -> None:
        node = self.some_node(data)
        key = (scope.root, node.id)
        taken = key in self.model.nodes and scope.root != node.scope.root
        if scope == node.scope or key in self.model.erased or (taken and not replace):
            return
        verb = "UPDATE OR REPLACE" if replace else "UPDATE"
        self.sql(f"{verb} nodes SET scope = ? WHERE root = ? AND id = ?", scope.path, node.scope.root, node.id)
        if taken:
            self.model.write(key, None)
        self.model.write((node.scope.root, node.id), None)
        self.model.write(key, attrs.evolve(node, scope=scope))
        self.forget_lineage(node, key)

    @rule(data=st.data())
    @precondition(lambda self: self.model.nodes)
    def raw_delete(self, data: st.DataObject) -> None:
        node = self.some_node(data)
        self.sql("DELETE FROM nodes WHERE root = ? AND id = ?", node.scope.root, node.id)
        self.model.write((node.scope.root, node.id), None)

    def forget_lineage(self, node: MemoryNode, key: Key) -> None:
        """Testimonies and edges stay with the identity that they were made for."""

    def is_clear(self, operation: Operation) -> bool:
        # Raw SQL leaves edges and testimonies behind that no rule of the store would.
        return not isinstance(operation, Link | Remember) or isinstance(operation, Put)


TestBothStores = BothStores.TestCase


class TestRawEdits(RawEdits.TestCase):  # type: ignore[name-defined,misc]
    @classmethod
    def setUpClass(cls) -> None:
        RawEdits.client = cls.enterClassContext(StockClient())
