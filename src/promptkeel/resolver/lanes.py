"""Memory lanes and stored blocks: the driver of the state machine in ``states``.

Where the store has heads, only what was touched is read, all lanes of one answer hold at one vector of heads, and only
blocks whose revision moved are rendered. Calls that need the same reading share it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Final, final

from promptkeel.blocks.lanes import MemoryLane
from promptkeel.blocks.spec import PromptBlockSpec
from promptkeel.lane import Lane
from promptkeel.model import BlockRevision
from promptkeel.render import RenderedBlock
from promptkeel.resolver.flights import Flights
from promptkeel.resolver.heads import StoredHead, read_head
from promptkeel.resolver.rendering import Rendering
from promptkeel.resolver.shared import Move, SharedDifferences, applied, moved_above
from promptkeel.resolver.states import (
    Fresh,
    Kept,
    KeptLanes,
    Moved,
    after_heads,
    after_probe,
    caught_up,
    changed_positions,
    is_inline,
    is_untouched,
    requests_since,
)
from promptkeel.resolver.values import Counters
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Steps
from promptkeel.store.authored import head_label
from promptkeel.store.base import CatchUp, Engine, Heads, LaneRequest, LaneUpdate


class _Unprobed:
    """Equals nothing, itself included: what was read from an engine that is not probed is compared by its heads."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


UNPROBED: Final = _Unprobed()
"""The token of an engine that was not probed."""


@final
class LaneReader:
    """Keeps what a store with heads holds up to date: memory lanes, and the heads of stored blocks.

    Args:
        engine: the store.
        specs: the blocks that the store holds, in the order of every tuple here.
        rendering: renders them.
        counters: where work is counted.
    """

    def __init__(
        self, engine: Engine, specs: tuple[PromptBlockSpec, ...], rendering: Rendering, counters: Counters
    ) -> None:
        self._engine = engine
        self._specs = specs
        self._rendering = rendering
        self._counters = counters
        self._prefixes = tuple(map(_prefix_of, specs))
        self._tickets = itertools.count(1)
        self._flights: Flights[KeptLanes] = Flights()
        self._shared = SharedDifferences()

    def probe(self) -> object:
        """One short statement; ``UNPROBED`` where the engine is not on this machine.

        Raises:
            StoreUnavailableError: the store could not be read.
        """
        if not self._engine.is_local:
            return UNPROBED
        self._counters.probes += 1
        return self._engine.probe()

    def read(self, scope: TenantScope, present: Callable[[], KeptLanes | None], token: object) -> Steps[KeptLanes]:
        """The scope's lanes now.

        Args:
            scope: who asks.
            present: answers what is kept of them at present.
            token: what ``probe`` answered in this call; ``UNPROBED`` to have it asked.

        Raises:
            StoreUnavailableError: the store could not be read.
        """
        if not self._engine.is_local:
            return (yield from self._read_remote(scope, present))
        return (yield from self._read_local(scope, present(), self.probe() if token is UNPROBED else token))

    def _read_local(self, scope: TenantScope, before: KeptLanes | None, token: object) -> Steps[KeptLanes]:
        ticket = next(self._tickets)
        state = after_probe(before, token, self._prefixes)
        if isinstance(state, Fresh):
            return state.kept
        self._counters.head_reads += 1
        update = None
        if isinstance(state, Moved):
            # One short read tells both whether heads have moved and, mostly, that no lane was touched.
            update = self._engine.tail(scope, requests_since(state.kept, self._prefixes))
            if update is not None and is_untouched(update):
                return KeptLanes(ticket, token, update.heads, state.kept.lanes, state.kept.rendered)
        # Whoever saw the same token needs the same read: nothing was committed between their probe and this one.
        work = self._read_moved(scope, before, update, ticket, token)
        return (yield from self._flights.join((scope.path, "probed", token), lambda: work))

    def _read_moved(
        self, scope: TenantScope, before: KeptLanes | None, update: CatchUp | None, ticket: int, token: object
    ) -> Steps[KeptLanes]:
        if before is not None and update is not None:
            return (yield from self._settle(scope, before, update, ticket, token))
        return (yield from self._read_at(self._engine.heads(scope), scope, before, ticket, token))

    def _read_remote(self, scope: TenantScope, present: Callable[[], KeptLanes | None]) -> Steps[KeptLanes]:
        ticket = next(self._tickets)
        self._counters.head_reads += 1
        heads: Heads = yield Call(self._engine.heads, scope)
        # Others may have read while this call waited for the heads.
        return (yield from self._read_at(heads, scope, present(), ticket, UNPROBED))

    def _read_at(
        self, heads: Heads, scope: TenantScope, before: KeptLanes | None, ticket: int, token: object
    ) -> Steps[KeptLanes]:
        if before is None:
            requests = tuple(LaneRequest(prefix) for prefix in self._prefixes)
        else:
            state = after_heads(before, heads, self._prefixes, ticket=ticket, token=token)
            if isinstance(state, Fresh):
                return state.kept
            requests = state.requests
            move = moved_above(before.heads, heads)
            if move is not None:
                shared = self._read_shared(heads, move, scope, before, requests, ticket, token)
                return (yield from self._flights.join((scope.path, heads), lambda: shared))
        work = self._read_again(scope, before, requests, ticket, token)
        return (yield from self._flights.join((scope.path, heads), lambda: work))

    def _read_shared(
        self,
        heads: Heads,
        move: Move,
        scope: TenantScope,
        before: KeptLanes,
        requests: tuple[LaneRequest, ...],
        ticket: int,
        token: object,
    ) -> Steps[KeptLanes]:
        found = yield from self._shared.find(before.heads, move, lambda: self._engine.catch_up(scope, requests))
        if found is None:
            return (yield from self._read_again(scope, before, requests, ticket, token))
        update = CatchUp(heads, applied(found, before.lanes, move[1].scope))
        if is_untouched(update):
            return KeptLanes(ticket, token, heads, before.lanes, before.rendered)
        self._counters.deltas += 1
        return (yield from self._follow(scope, before, update, ticket, token))

    def clear(self) -> None:
        """Forget what scopes share."""
        self._shared.clear()

    def _settle(
        self, scope: TenantScope, kept: KeptLanes, update: CatchUp, ticket: int, token: object
    ) -> Steps[KeptLanes]:
        self._counters.deltas += 1
        work = self._follow(scope, kept, update, ticket, token)
        return (yield from self._flights.join((scope.path, update.heads), lambda: work))

    def _read_again(
        self,
        scope: TenantScope,
        before: KeptLanes | None,
        requests: tuple[LaneRequest, ...],
        ticket: int,
        token: object,
    ) -> Steps[KeptLanes]:
        found: KeptLanes = yield Call(self._read_in_worker, scope, before, requests, ticket, token)
        return found

    def _follow(
        self, scope: TenantScope, before: KeptLanes, update: CatchUp, ticket: int, token: object
    ) -> Steps[KeptLanes]:
        lanes = self._caught_up(before, update, scope)
        arguments = (scope, before, update, lanes, ticket, token)
        if is_inline(lanes, changed_positions(before, lanes)):
            return self._keep(*arguments)
        rendered: KeptLanes = yield Call(self._keep, *arguments)
        return rendered

    def _read_in_worker(
        self,
        scope: TenantScope,
        before: KeptLanes | None,
        requests: tuple[LaneRequest, ...],
        ticket: int,
        token: object,
    ) -> KeptLanes:
        self._counters.scans += 1
        update = self._engine.catch_up(scope, requests)
        lanes = self._caught_up(before, update, scope)
        return self._keep(scope, before, update, lanes, ticket, token)

    def _caught_up(self, before: KeptLanes | None, update: CatchUp, scope: TenantScope) -> tuple[Kept, ...]:
        def build(position: int, kept: Kept | None, change: LaneUpdate) -> Kept:
            spec = self._specs[position]
            started = time.perf_counter_ns()
            built = _built(spec, kept, change, scope)
            self._rendering.tell(spec, scope.path, "scanned" if kept is None else "updated", started)
            return built

        lanes: tuple[Kept | None, ...] = (None,) * len(self._specs) if before is None else before.lanes
        return caught_up(lanes, update, build)

    def _keep(
        self,
        scope: TenantScope,
        before: KeptLanes | None,
        update: CatchUp,
        lanes: tuple[Kept, ...],
        ticket: int,
        token: object,
    ) -> KeptLanes:
        changed = set(changed_positions(before, lanes))
        rendered = tuple(
            self._rendered(spec, lane, scope)
            if before is None
            or position in changed
            or (lane is not before.lanes[position] and before.rendered[position].omitted)
            else before.rendered[position]
            for position, (spec, lane) in enumerate(zip(self._specs, lanes, strict=True))
        )
        return KeptLanes(ticket, token, update.heads, lanes, rendered)

    def _rendered(self, spec: PromptBlockSpec, kept: Kept, scope: TenantScope) -> RenderedBlock:
        found = kept if isinstance(kept, Lane) else kept.found
        if not isinstance(found, Lane | BlockRevision):
            return RenderedBlock(name=spec.name, tier=spec.tier, text="")
        if isinstance(found, BlockRevision) and not spec.is_learned:
            return self._rendering.authored(spec, found)
        rendered = self._rendering.kept(spec, scope, found.revision)
        if rendered is not None:
            return rendered
        return self._rendering.learned(spec, scope, found.to_revision() if isinstance(found, Lane) else found)


def _prefix_of(spec: PromptBlockSpec) -> str:
    return spec.source.label_prefix if isinstance(spec.source, MemoryLane) else head_label(spec.name)


def _built(spec: PromptBlockSpec, kept: Kept | None, change: LaneUpdate, scope: TenantScope) -> Kept:
    """What is kept of a block after a change."""
    source = spec.source
    if isinstance(source, MemoryLane):
        if isinstance(kept, Lane):
            return kept.updated(change)
        return Lane.build(change.rows, prefix=source.label_prefix, profile_fields=source.profile_fields)
    return kept.followed(change, spec, scope) if isinstance(kept, StoredHead) else read_head(change, spec, scope)
