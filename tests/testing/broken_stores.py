"""Stores that each break one promise, and the test of the kit that says so.

Each is the store in memory behind a wrapper that gets one thing wrong, as real stores have.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import attrs

from promptkeel.errors import (
    ConflictError,
    CycleError,
    InvalidInputError,
    InvalidTextError,
    NodeExistsError,
    NodeNotFoundError,
    StoreClosedError,
)
from promptkeel.instants import Clock
from promptkeel.model import NOT_GIVEN, MemoryEdge, MemoryNode
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.store.base import HEADS, HISTORY, WATCH, Changes, Head, Heads, History, Neighbour, PastLane, Receipt
from promptkeel.store.facade import BlockingStore
from promptkeel.store.history import lane_order
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import Operation, Outcome


class Wrapper:
    """A store that hands everything on; it can be opened again on the same memory."""

    breaks: ClassVar[str] = ""
    """The test of the kit whose name says what is broken."""
    seen_by_programs: ClassVar[bool] = True
    """Whether random programs, which know nothing of this fault, find it too."""
    capabilities = frozenset({HEADS, HISTORY, WATCH})

    def __init__(self, clock: Clock, shared: BlockingStore | None = None) -> None:
        self.clock = clock
        self.shared = BlockingStore(open_engine("ram:", clock=clock)) if shared is None else shared
        self.closed = False

    def again(self) -> Wrapper:
        return type(self)(self.clock, self.shared)

    @property
    def inner(self) -> BlockingStore:
        if self.closed:
            raise StoreClosedError("the store is closed")
        return self.shared

    @property
    def state(self) -> Any:
        engine: Any = self.inner.core.engine
        return engine._state

    def everything(self) -> Sequence[MemoryNode]:
        return self.inner.stored(DEPLOYMENT).nodes

    def put(self, node: MemoryNode, *, expected: MemoryNode | str | None = None) -> MemoryNode:
        return self.inner.put(node, expected=expected)

    def get(self, scope: TenantScope, node_id: str) -> MemoryNode:
        return self.inner.get(scope, node_id)

    def query_nodes(
        self, scope: TenantScope, *, label_prefix: str | None = None, limit: int | None = None
    ) -> Sequence[MemoryNode]:
        return self.inner.query_nodes(scope, label_prefix=label_prefix, limit=limit)

    def retract(self, scope: TenantScope, node_id: str, *, expected: MemoryNode | str | None = None) -> MemoryNode:
        return self.inner.retract(scope, node_id, expected=expected)

    def erase(self, scope: TenantScope, node_id: str) -> Receipt:
        return self.inner.erase(scope, node_id)

    def link(self, edge: MemoryEdge) -> MemoryEdge:
        return self.inner.link(edge)

    def unlink(self, edge: MemoryEdge) -> None:
        self.inner.unlink(edge)

    def neighbours(
        self, scope: TenantScope, node_id: str, *, edge_type: str | None = None, direction: Any = "out"
    ) -> Sequence[Neighbour]:
        return self.inner.neighbours(scope, node_id, edge_type=edge_type, direction=direction)

    def heads(self, scope: TenantScope) -> Heads:
        return self.inner.heads(scope)

    def changes(self, scope: TenantScope, since: Heads, *, label_prefix: str | None = None) -> Changes:
        return self.inner.changes(scope, since, label_prefix=label_prefix)

    def nodes_as_of(self, scope: TenantScope, heads: Heads, *, label_prefix: str | None = None) -> PastLane:
        return self.inner.nodes_as_of(scope, heads, label_prefix=label_prefix)

    def history(self, scope: TenantScope, node_id: str) -> History:
        return self.inner.history(scope, node_id)

    def receipts(self, scope: TenantScope) -> Sequence[Receipt]:
        return self.inner.receipts(scope)

    def apply(self, operations: Sequence[Operation], *, dry_run: bool = False) -> tuple[Outcome, ...]:
        return self.inner.apply(operations, dry_run=dry_run)

    def watch(self, scope: TenantScope, label_prefix: str) -> Iterator[Any]:
        return iter(self.inner.watch(scope, label_prefix, interval=0.01))

    @contextmanager
    def snapshot(self) -> Iterator[Any]:
        with self.inner.snapshot() as snapshot:
            yield snapshot

    def close(self) -> None:
        self.closed = True


class FilteredScan(Wrapper):
    """A scan that decides by itself which labels have the prefix."""

    def has_prefix(self, label: str, prefix: str) -> bool:
        raise NotImplementedError

    def query_nodes(self, scope, *, label_prefix=None, limit=None):
        self.inner.query_nodes(scope, label_prefix=label_prefix, limit=limit)
        nodes = self.inner.query_nodes(scope)
        return [each for each in nodes if self.has_prefix(each.label, label_prefix or "")][:limit]


class ChangedHeads(Wrapper):
    """Heads that are made up, and understood again where they are handed in."""

    def __init__(self, clock: Clock, shared: BlockingStore | None = None) -> None:
        super().__init__(clock, shared)
        self.meant: dict[Heads, Heads] = {}

    def disguised(self, heads: Heads) -> Heads:
        raise NotImplementedError

    def heads(self, scope):
        real = self.inner.heads(scope)
        shown = self.disguised(real)
        self.meant[shown] = real
        return shown

    def changes(self, scope, since, *, label_prefix=None):
        found = self.inner.changes(scope, self.meant.get(since, since), label_prefix=label_prefix)
        return attrs.evolve(found, heads=self.heads(scope))

    def nodes_as_of(self, scope, heads, *, label_prefix=None):
        return self.inner.nodes_as_of(scope, self.meant.get(heads, heads), label_prefix=label_prefix)

    @contextmanager
    def snapshot(self):
        with self.inner.snapshot() as snapshot:
            yield DisguisedSnapshot(snapshot, self)


@attrs.frozen
class DisguisedSnapshot:
    snapshot: Any
    store: ChangedHeads

    def heads(self, scope):
        return self.store.disguised(self.snapshot.heads(scope))

    def get(self, scope, node_id):
        return self.snapshot.get(scope, node_id)

    def query_nodes(self, scope, *, label_prefix=None, limit=None):
        return self.snapshot.query_nodes(scope, label_prefix=label_prefix, limit=limit)


# Complete


class LikeWildcards(FilteredScan):
    breaks = "test_complete_wildcards_in_a_prefix_are_ordinary_characters"

    def has_prefix(self, label, prefix):
        pattern = "".join({"%": ".*", "_": "."}.get(character) or re.escape(character) for character in prefix)
        return re.match(pattern, label, re.DOTALL) is not None


class GlobWildcards(FilteredScan):
    breaks = "test_complete_wildcards_in_a_prefix_are_ordinary_characters"
    seen_by_programs = False

    def has_prefix(self, label, prefix):
        pattern = "".join({"*": ".*", "?": "."}.get(character) or re.escape(character) for character in prefix)
        return re.match(pattern, label, re.DOTALL) is not None


class PrefixAnywhere(FilteredScan):
    breaks = "test_complete_wildcards_in_a_prefix_are_ordinary_characters"

    def has_prefix(self, label, prefix):
        return prefix in label


class CaseFolded(FilteredScan):
    breaks = "test_complete_a_prefix_keeps_to_its_case"

    def has_prefix(self, label, prefix):
        return label.casefold().startswith(prefix.casefold())


class UpperBoundAtTheLastCodePoint(FilteredScan):
    breaks = "test_complete_a_prefix_may_end_in_the_last_code_points"

    def has_prefix(self, label, prefix):
        return prefix <= label < prefix + "\U0010ffff"


class UpperBoundWithoutCarry(FilteredScan):
    breaks = "test_complete_a_prefix_may_end_in_the_last_code_points"

    def has_prefix(self, label, prefix):
        high = prefix[:-1] + chr(min(ord(prefix[-1]) + 1, 0x10FFFF)) if prefix else None
        return prefix <= label and (high is None or label < high)


class CutAtFifty(Wrapper):
    breaks = "test_complete_a_long_lane_is_not_cut"
    seen_by_programs = False

    def query_nodes(self, scope, *, label_prefix=None, limit=None):
        return self.inner.query_nodes(scope, label_prefix=label_prefix, limit=50 if limit is None else limit)


class ZeroIsNoLimit(Wrapper):
    breaks = "test_complete_a_limit_is_at_most_so_many_and_zero_is_none"

    def query_nodes(self, scope, *, label_prefix=None, limit=None):
        return self.inner.query_nodes(scope, label_prefix=label_prefix, limit=limit or None)


class OneOfEqualStatements(Wrapper):
    breaks = "test_complete_equal_statements_are_all_there"

    def query_nodes(self, scope, *, label_prefix=None, limit=None):
        nodes = self.inner.query_nodes(scope, label_prefix=label_prefix, limit=limit)
        return list({each.label: each for each in nodes}.values())


class RetractedStillScanned(Wrapper):
    breaks = "test_complete_retracted_and_superseded_nodes_are_in_no_lane"

    def query_nodes(self, scope, *, label_prefix=None, limit=None):
        self.inner.query_nodes(scope, label_prefix=label_prefix, limit=limit)
        found = [
            each
            for each in self.everything()
            if scope.sees(each.scope) and each.state != "superseded" and each.label.startswith(label_prefix or "")
        ]
        return sorted(found, key=lane_order)[:limit]


class UnrecordedLeftOut(Wrapper):
    breaks = "test_complete_a_lane_holds_every_visible_live_node_of_its_prefix"

    def query_nodes(self, scope, *, label_prefix=None, limit=None):
        nodes = self.inner.query_nodes(scope, label_prefix=label_prefix, limit=limit)
        return [each for each in nodes if each.recorded is not None]


class LostLogEntries(Wrapper):
    breaks = "test_complete_the_log_names_every_change_and_its_labels"

    def changes(self, scope, since, *, label_prefix=None):
        found = self.inner.changes(scope, since, label_prefix=label_prefix)
        return attrs.evolve(found, changes=None if found.changes is None else found.changes[1:])


class LogThatForgetsWhatLeft(Wrapper):
    breaks = "test_complete_the_log_names_every_change_and_its_labels"

    def changes(self, scope, since, *, label_prefix=None):
        found = self.inner.changes(scope, since, label_prefix=label_prefix)
        if found.changes is None or label_prefix is None:
            return found
        kept = [each for each in found.changes if (each.label_after or "").startswith(label_prefix)]
        return attrs.evolve(found, changes=tuple(kept))


class GuessesAfterAnErasure(Wrapper):
    breaks = "test_sound_changes_since_an_erasure_are_never_a_guess"

    def changes(self, scope, since, *, label_prefix=None):
        found = self.inner.changes(scope, since, label_prefix=label_prefix)
        return attrs.evolve(found, changes=found.changes or ())


# Deterministic, sensitive, stable, attributed


class UnstableTies(Wrapper):
    breaks = "test_deterministic_a_lane_is_in_order_of_label_instant_and_id"
    turn = 0

    def query_nodes(self, scope, *, label_prefix=None, limit=None):
        self.turn += 1
        nodes = self.inner.query_nodes(scope, label_prefix=label_prefix, limit=limit)
        return sorted(nodes[:: 1 if self.turn % 2 else -1], key=lambda each: each.label)


class Normalises(Wrapper):
    breaks = "test_sensitive_text_is_kept_as_given"
    seen_by_programs = False

    def put(self, node, *, expected=None):
        return self.inner.put(attrs.evolve(node, label=unicodedata.normalize("NFC", node.label)), expected=expected)


class TrueIsOne(Wrapper):
    breaks = "test_sensitive_values_keep_their_kind"

    def put(self, node, *, expected=None):
        plain = {name: 1 if value is True else value for name, value in node.own_properties.items()}
        return self.inner.put(attrs.evolve(node, properties=plain), expected=expected)


class TrustDropped(Wrapper):
    breaks = "test_sensitive_every_part_of_a_node_is_in_the_revision"

    def put(self, node, *, expected=None):
        return self.inner.put(attrs.evolve(node, trust=None), expected=expected)


class ReadsThatWrite(Wrapper):
    breaks = "test_stable_a_read_moves_nothing"

    def query_nodes(self, scope, *, label_prefix=None, limit=None):
        nodes = self.inner.query_nodes(scope, label_prefix=label_prefix, limit=limit)
        return [attrs.evolve(each, updated_at=self.clock()) for each in nodes]


class ReadsThatMoveHeads(ChangedHeads):
    breaks = "test_stable_a_read_or_an_equal_rewrite_moves_no_head"
    reads = 0

    def get(self, scope, node_id):
        self.reads += 1
        return self.inner.get(scope, node_id)

    def disguised(self, heads):
        return attrs.evolve(
            heads, levels=tuple(attrs.evolve(head, nonce=head.nonce + self.reads) for head in heads.levels)
        )


class EqualRewriteIsAChange(Wrapper):
    breaks = "test_stable_a_rewrite_of_equal_content_changes_nothing"

    def put(self, node, *, expected=None):
        stored = self.inner.put(node, expected=expected)
        if expected is not None and stored.version == getattr(expected, "version", expected):
            passing = self.inner.put(attrs.evolve(stored, source="rewriting"), expected=stored)
            stored = self.inner.put(attrs.evolve(passing, source=stored.source), expected=passing)
        return stored


class LosesCreated(Wrapper):
    breaks = "test_attributed_a_change_keeps_when_the_node_was_created"

    def seen(self, node):
        changed = len(self.inner.history(node.scope, node.id).versions) > 1
        return attrs.evolve(node, created_at=node.updated) if changed else node

    def put(self, node, *, expected=None):
        return self.seen(self.inner.put(node, expected=self.meant(node, expected)))

    def meant(self, node, expected):
        current = None if expected is None else self.inner.get(node.scope, node.id)
        same = current is not None and self.seen(current).version == getattr(expected, "version", expected)
        return current if same else expected

    def get(self, scope, node_id):
        return self.seen(self.inner.get(scope, node_id))

    def query_nodes(self, scope, *, label_prefix=None, limit=None):
        return [self.seen(each) for each in self.inner.query_nodes(scope, label_prefix=label_prefix, limit=limit)]


class UnrecordedIsNow(Wrapper):
    breaks = "test_attributed_an_absent_time_is_stamped_and_an_explicit_none_is_kept"

    def put(self, node, *, expected=None):
        recorded = NOT_GIVEN if node.recorded is None else node.recorded
        return self.inner.put(attrs.evolve(node, recorded_at=recorded), expected=expected)


# Fresh, sound heads


class StaleSecondHandle(Wrapper):
    breaks = "test_fresh_a_committed_write_is_in_the_next_read_of_every_handle"

    def __init__(self, clock: Clock, shared: BlockingStore | None = None) -> None:
        super().__init__(clock, shared)
        self.kept: dict[Any, Any] = {}
        for name in ("put", "retract", "erase", "link", "apply", "unlink"):
            setattr(self, name, self.forgetting(getattr(self, name)))

    def forgetting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.kept.clear()
            return method(*args, **kwargs)

        return call

    def query_nodes(self, scope, *, label_prefix=None, limit=None):
        asked = (scope, label_prefix, limit)
        if self.closed or asked not in self.kept:
            self.kept[asked] = self.inner.query_nodes(scope, label_prefix=label_prefix, limit=limit)
        return self.kept[asked]


class WatchOfTheFirst(Wrapper):
    breaks = "test_fresh_a_watch_tells_each_later_revision"
    seen_by_programs = False

    def watch(self, scope, label_prefix):
        first = next(self.inner.watch(scope, label_prefix))
        while True:
            yield first


class WatchOfEmptiness(Wrapper):
    breaks = "test_fresh_a_watch_begins_with_the_present_revision"
    seen_by_programs = False

    def watch(self, scope, label_prefix):
        first = next(self.inner.watch(scope, "of no lane"))
        yield first
        yield from self.inner.watch(scope, label_prefix)


class WatchOfOwnWrites(Wrapper):
    breaks = "test_fresh_a_watch_sees_the_writes_of_another_handle"
    seen_by_programs = False
    written = 0

    def put(self, node, *, expected=None):
        self.written += 1
        return self.inner.put(node, expected=expected)

    def watch(self, scope, label_prefix):
        told = next(self.inner.watch(scope, label_prefix))
        while True:
            yield told
            if self.written:
                told = next(self.inner.watch(scope, label_prefix))


class StaleHeads(ChangedHeads):
    breaks = "test_sound_heads_move_with_every_visible_change"

    def disguised(self, heads):
        # Moved by what was inserted, as a trigger on INSERT alone would do it.
        last = max((entry.head.seq for entry in self.state.log if entry.label_before is None), default=0)
        return attrs.evolve(
            heads, levels=tuple(head if head.seq <= last else Head(head.scope, last, 1) for head in heads.levels)
        )


class HeadsOfTheScopeAlone(ChangedHeads):
    breaks = "test_sound_heads_move_with_every_visible_change"

    def disguised(self, heads):
        return attrs.evolve(heads, levels=(*(Head(head.scope) for head in heads.levels[:-1]), heads.levels[-1]))


class AbaHeads(ChangedHeads):
    breaks = "test_sound_heads_never_come_back"

    def disguised(self, heads):
        def level(head: Head) -> Head:
            nodes = [each for each in self.everything() if each.scope.path == head.scope]
            says = sorted((each.id, each.label, each.state, repr(each.properties)) for each in nodes)
            return Head(head.scope, len(says), hash(tuple(says)))

        return attrs.evolve(heads, levels=tuple(level(head) for head in heads.levels))


class HeadsThatCount(ChangedHeads):
    breaks = "test_sound_heads_of_two_stores_differ"
    seen_by_programs = False

    def disguised(self, heads):
        return attrs.evolve(
            heads, levels=tuple(attrs.evolve(head, nonce=1 if head.seq else 0) for head in heads.levels)
        )


class OneHeadForAll(ChangedHeads):
    breaks = "test_isolated_heads_move_only_for_those_who_see_the_change"
    seen_by_programs = False

    def disguised(self, heads):
        return attrs.evolve(
            heads, levels=tuple(Head(head.scope, self.state.seq, self.state.seq) for head in heads.levels)
        )


# One point in time, accountable


class LiveSnapshot(Wrapper):
    breaks = "test_one_point_in_time_the_scans_of_a_snapshot_belong_together"

    @contextmanager
    def snapshot(self):
        yield self


@attrs.define
class FirstReadSnapshot:
    store: Wrapper
    opened: Any = None
    inner: Any = None

    def begun(self):
        if self.inner is None:
            self.opened = self.store.inner.snapshot()
            self.inner = self.opened.__enter__()
        return self.inner

    def heads(self, scope):
        return self.begun().heads(scope)

    def get(self, scope, node_id):
        return self.begun().get(scope, node_id)

    def query_nodes(self, scope, *, label_prefix=None, limit=None):
        return self.begun().query_nodes(scope, label_prefix=label_prefix, limit=limit)


class SnapshotBegunByItsFirstRead(Wrapper):
    breaks = "test_one_point_in_time_a_snapshot_keeps_what_it_saw"

    @contextmanager
    def snapshot(self):
        snapshot = FirstReadSnapshot(self)
        yield snapshot
        if snapshot.opened is not None:
            snapshot.opened.__exit__(None, None, None)


class PresentHeadsSnapshot(FirstReadSnapshot):
    def heads(self, scope):
        return self.store.heads(scope)


class SnapshotWithPresentHeads(Wrapper):
    breaks = "test_one_point_in_time_a_snapshot_has_the_heads_of_what_it_saw"

    @contextmanager
    def snapshot(self):
        with self.inner.snapshot() as snapshot:
            yield PresentHeadsSnapshot(self, inner=snapshot)


class AsOfShowsThePresent(Wrapper):
    breaks = "test_accountable_a_lane_is_read_as_it_was"

    def nodes_as_of(self, scope, heads, *, label_prefix=None):
        past = self.inner.nodes_as_of(scope, heads, label_prefix=label_prefix)
        return attrs.evolve(past, nodes=tuple(self.inner.query_nodes(scope, label_prefix=label_prefix)))


class AsOfIsApproximate(Wrapper):
    breaks = "test_accountable_heads_that_are_not_known_are_a_typed_error"
    seen_by_programs = False

    def nodes_as_of(self, scope, heads, *, label_prefix=None):
        try:
            return self.inner.nodes_as_of(scope, heads, label_prefix=label_prefix)
        except LookupError:
            return PastLane(tuple(self.inner.query_nodes(scope, label_prefix=label_prefix)))


class HistoryOfTwo(Wrapper):
    breaks = "test_accountable_history_holds_every_version"

    def history(self, scope, node_id):
        found = self.inner.history(scope, node_id)
        return attrs.evolve(found, versions=found.versions[-2:])


# Isolated


class LeakedSibling(Wrapper):
    breaks = "test_isolated_a_scope_sees_its_ancestors_and_itself_and_nothing_else"
    seen_by_programs = False

    def query_nodes(self, scope, *, label_prefix=None, limit=None):
        self.inner.query_nodes(scope, label_prefix=label_prefix, limit=limit)
        found = [
            each
            for each in self.everything()
            if scope.path.startswith(each.scope.path)
            and each.state == "live"
            and each.label.startswith(label_prefix or "")
        ]
        return sorted(found, key=lane_order)[:limit]


class GetByIdAlone(Wrapper):
    breaks = "test_isolated_a_node_is_got_where_it_is_visible_and_nowhere_else"

    def get(self, scope, node_id):
        try:
            return self.inner.get(scope, node_id)
        except NodeNotFoundError:
            for each in self.everything():
                if each.id == node_id and each.scope.root == scope.root:
                    return each
            raise


class SiblingIdAccepted(Wrapper):
    breaks = "test_isolated_an_id_is_in_use_under_its_whole_root"

    def put(self, node, *, expected=None):
        try:
            return self.inner.put(node, expected=expected)
        except NodeExistsError:
            taken = self.state.find(node.scope.root, node.id)
            if taken.scope == node.scope:
                raise
            return attrs.evolve(node, created_at=0, updated_at=0, recorded_at=0)


class AncestorWritable(Wrapper):
    breaks = "test_isolated_an_ancestors_node_is_read_only"

    def owner(self, scope, node_id):
        try:
            return self.inner.get(scope, node_id).scope
        except NodeNotFoundError:
            return scope

    def put(self, node, *, expected=None):
        scope = node.scope if expected is None else self.owner(node.scope, node.id)
        return self.inner.put(attrs.evolve(node, scope=scope), expected=expected)

    def retract(self, scope, node_id, *, expected=None):
        return self.inner.retract(self.owner(scope, node_id), node_id, expected=expected)

    def erase(self, scope, node_id):
        return self.inner.erase(self.owner(scope, node_id), node_id)


class EdgesOfSiblingsSeen(Wrapper):
    breaks = "test_isolated_an_edge_is_seen_where_its_start_is"

    def neighbours(self, scope, node_id, *, edge_type=None, direction="out"):
        found = {}
        node = self.inner.get(scope, node_id)
        for path in {scope, *(each.scope for each in self.everything() if each.scope.sees(node.scope))}:
            for each in self.inner.neighbours(path, node_id, edge_type=edge_type, direction=direction):
                if self.inner.get(path, node_id).scope == node.scope:
                    found[each.edge] = each
        return sorted(found.values(), key=lambda each: (each.edge.type, each.node.id, each.edge.start))


# Durable


class CompareAndSetIgnored(Wrapper):
    breaks = "test_durable_a_change_against_an_old_version_is_refused"

    def put(self, node, *, expected=None):
        while True:
            try:
                return self.inner.put(node, expected=expected)
            except ConflictError:
                expected = self.inner.get(node.scope, node.id)


class CheckThenAct(Wrapper):
    breaks = "test_durable_no_update_is_lost_among_concurrent_writers"
    seen_by_programs = False

    def put(self, node, *, expected=None):
        current = None if expected is None else self.inner.get(node.scope, node.id)
        if current is None or current.version != getattr(expected, "version", expected):
            return self.inner.put(node, expected=expected)
        # Between the look and the leap, another writer comes first.
        passing = self.state.find(node.scope.root, node.id)
        stored = self.inner.put(node, expected=passing)
        if "count" in stored.properties and stored.properties["count"] == 2:
            lost = attrs.evolve(stored, properties={"count": 1})
            return self.inner.put(lost, expected=stored)
        return stored


class PartialBatch(Wrapper):
    breaks = "test_durable_a_batch_happens_whole_or_not_at_all"

    def apply(self, operations, *, dry_run=False):
        if dry_run:
            return self.inner.apply(operations, dry_run=True)
        return tuple(self.inner.apply([operation])[0] for operation in operations)


class DryRunThatRuns(Wrapper):
    breaks = "test_stable_a_dry_run_says_what_would_happen_and_does_nothing"
    seen_by_programs = False

    def apply(self, operations, **_):
        return self.inner.apply(operations)


class LastWriteInABuffer(Wrapper):
    breaks = "test_durable_what_was_acknowledged_is_there_after_reopening"

    def __init__(self, clock: Clock, shared: BlockingStore | None = None) -> None:
        super().__init__(clock, shared)
        if shared is not None:
            # What the closed handle still held in its buffer is not there.
            links = list(self.state.graph.edges(keys=True))
            for place in links[-1:]:
                self.state.graph.remove_edge(*place)


class CyclesAccepted(Wrapper):
    breaks = "test_refused_a_cycle_of_lineage"

    def link(self, edge):
        try:
            return self.inner.link(edge)
        except CycleError:
            place = ((edge.scope.root, edge.start), (edge.scope.root, edge.end), edge.type)
            self.state.graph.add_edge(*place, edge=edge)
            return edge


class Upserts(Wrapper):
    breaks = "test_refused_a_change_needs_a_node"

    def put(self, node, *, expected=None):
        try:
            return self.inner.put(node, expected=expected)
        except NodeNotFoundError:
            return self.inner.put(node)


class ImpossiblePrefixIsEmpty(Wrapper):
    breaks = "test_refused_a_prefix_that_no_label_can_have"
    seen_by_programs = False

    def query_nodes(self, scope, *, label_prefix=None, limit=None):
        try:
            return self.inner.query_nodes(scope, label_prefix=label_prefix, limit=limit)
        except InvalidTextError:
            return []


class HeadsOfAnyChainTaken(Wrapper):
    breaks = "test_refused_heads_of_another_chain"
    seen_by_programs = False

    def changes(self, scope, since, *, label_prefix=None):
        try:
            return self.inner.changes(scope, since, label_prefix=label_prefix)
        except InvalidInputError:
            return Changes(self.heads(scope), None)


class BareKeyError(Wrapper):
    breaks = "test_refused_writes_raise_errors_of_one_tree"
    seen_by_programs = False

    def retract(self, scope, node_id, *, expected=None):
        try:
            return self.inner.retract(scope, node_id, expected=expected)
        except NodeNotFoundError:
            raise KeyError(node_id) from None


class AnswersWhenClosed(Wrapper):
    breaks = "test_a_closed_store_refuses_everything"
    seen_by_programs = False

    def close(self):
        """Stays open."""


class CapabilitiesOfAnyKind(Wrapper):
    breaks = "test_a_store_has_every_method_of_the_protocol"
    seen_by_programs = False
    capabilities = ("heads", "history")  # type: ignore[assignment]


class HeadsOfTheHandle(ChangedHeads):
    breaks = "test_durable_heads_outlive_the_handle"

    def disguised(self, heads):
        return attrs.evolve(
            heads, levels=tuple(attrs.evolve(head, nonce=head.nonce ^ id(self)) for head in heads.levels)
        )


# Edges


class NeighboursInAnyOrder(Wrapper):
    breaks = "test_deterministic_neighbours_are_by_edge_type_then_id"

    def neighbours(self, scope, node_id, *, edge_type=None, direction="out"):
        return self.inner.neighbours(scope, node_id, edge_type=edge_type, direction=direction)[::-1]


class SelfLoopsTwice(Wrapper):
    breaks = "test_complete_a_self_loop_is_one_neighbour"

    def neighbours(self, scope, node_id, *, edge_type=None, direction="out"):
        found = self.inner.neighbours(scope, node_id, edge_type=edge_type, direction=direction)
        loops = [each for each in found if direction == "both" and each.edge.start == each.edge.end]
        return [*found, *loops]


class FirstLinkStays(Wrapper):
    breaks = "test_durable_linking_again_changes_the_properties"
    seen_by_programs = False

    def link(self, edge):
        near = self.inner.neighbours(edge.scope, edge.start)
        return (
            edge
            if (edge.type, edge.end) in [(each.edge.type, each.edge.end) for each in near]
            else self.inner.link(edge)
        )


class UnlinksEveryType(Wrapper):
    breaks = "test_durable_unlinking_removes_one_edge"
    seen_by_programs = False

    def unlink(self, edge):
        self.inner.unlink(edge)
        for each in self.inner.neighbours(edge.scope, edge.start):
            if each.edge.end == edge.end:
                self.inner.unlink(each.edge)


class LinksToNowhere(Wrapper):
    breaks = "test_isolated_an_edge_starts_at_its_own_scope_and_reaches_what_is_visible"

    def link(self, edge):
        try:
            return self.inner.link(edge)
        except NodeNotFoundError:
            return edge


class SupersededStays(Wrapper):
    breaks = "test_complete_what_is_superseded_leaves_its_lane"

    def link(self, edge):
        linked = self.inner.link(edge)
        end = self.inner.get(edge.scope, edge.end)
        if end.state == "superseded":
            self.inner.put(attrs.evolve(end, state="live"), expected=end)
        return linked


# Erased


class ErasedTextInHistory(Wrapper):
    breaks = "test_erased_text_is_in_no_history_and_in_no_past_lane"

    def __init__(self, clock: Clock, shared: BlockingStore | None = None) -> None:
        super().__init__(clock, shared)
        self.kept: list[MemoryNode] = []

    def erase(self, scope, node_id):
        kept = [each for each in self.everything() if each.id == node_id and each.scope == scope]
        receipt = self.inner.erase(scope, node_id)
        self.kept += kept
        return receipt

    def nodes_as_of(self, scope, heads, *, label_prefix=None):
        past = self.inner.nodes_as_of(scope, heads, label_prefix=label_prefix)
        found = [each for each in self.kept if each.id in past.erased and scope.sees(each.scope)]
        found = [each for each in found if each.label.startswith(label_prefix or "")]
        return attrs.evolve(past, nodes=tuple(sorted([*past.nodes, *found], key=lane_order)))


class ErasedIdHandedOutAgain(Wrapper):
    breaks = "test_erased_an_id_is_not_handed_out_again"

    def put(self, node, *, expected=None):
        if expected is None:
            self.state.erased.pop((node.scope.root, node.id), None)
        return self.inner.put(node, expected=expected)


class ErasedIsRetracted(Wrapper):
    breaks = "test_erased_a_node_is_gone_from_every_read"

    def erase(self, scope, node_id):
        node = self.inner.retract(scope, node_id)
        return Receipt(node_id, scope.path, node.updated or 0)


class ErasedNodeLeavesItsEdges(Wrapper):
    breaks = "test_erased_a_node_takes_its_edges_with_it"
    seen_by_programs = False

    def __init__(self, clock: Clock, shared: BlockingStore | None = None) -> None:
        super().__init__(clock, shared)
        self.dangling: dict[tuple[str, str], list[Neighbour]] = {}

    def erase(self, scope, node_id):
        for each in self.inner.neighbours(scope, node_id, direction="in"):
            gone = Neighbour(each.edge, self.inner.get(scope, node_id))
            self.dangling.setdefault((scope.root, each.node.id), []).append(gone)
        return self.inner.erase(scope, node_id)

    def neighbours(self, scope, node_id, *, edge_type=None, direction="out"):
        found = self.inner.neighbours(scope, node_id, edge_type=edge_type, direction=direction)
        left = self.dangling.get((scope.root, node_id), []) if direction != "in" else []
        return [*found, *left]


def subclasses(kind: type[Wrapper]) -> Iterator[type[Wrapper]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


BROKEN = [each for each in subclasses(Wrapper) if each.breaks]
