"""Which blocks, how fresh: the driver of the state machine in ``states``.

A resolve probes the store once. Where nothing moved, it answers what it answered before; where something did, it
compares heads, asks what was touched, brings only those lanes up to date and renders only blocks whose revision
moved. All lanes of one answer hold at one vector of heads. A source that fails is an error that names block and
scope, never an empty block.
"""

from __future__ import annotations

import itertools
import operator
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import attrs

from promptkeel.blocks.sources import ComputedSource, FileReader, FileSource, StaticSource, authored, check_computed
from promptkeel.blocks.spec import PromptBlockSpec, in_prompt_order
from promptkeel.errors import BlockResolutionError, InvalidDeclarationError, InvalidInputError
from promptkeel.lane import Lane, scan_steps
from promptkeel.model import BlockRevision
from promptkeel.render import RENDER_VERSION, RenderedBlock, RenderPolicy, render_block
from promptkeel.resolver.cache import BoundedCache
from promptkeel.resolver.flights import Flights
from promptkeel.resolver.states import (
    Fresh,
    KeptLanes,
    Moved,
    after_heads,
    after_probe,
    caught_up,
    changed_positions,
    is_inline,
    is_untouched,
    newer,
    requests_since,
)
from promptkeel.resolver.values import Action, BlockEvent, Observer, Resolution, ResolvedBlock
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Obtain, Steps, as_async, as_blocking
from promptkeel.store.base import HEADS, CatchUp, Engine, Heads, LaneRequest, LaneUpdate, fence_id

CACHE_BYTES: Final = 64 * 1024 * 1024
"""The default bound of rendered text that is kept."""
CACHE_FACTS: Final = 1_000_000
"""The default bound of facts that are kept in lanes."""


@attrs.define
class Counters:
    """How much work a resolver has done; for tests and tables."""

    probes: int = 0
    head_reads: int = 0
    deltas: int = 0
    scans: int = 0
    renders: int = 0
    file_reads: int = 0


@attrs.frozen(eq=False)
class _Kept:
    """A scope's lanes and the whole answer that was made of them."""

    lanes: KeptLanes
    resolution: Resolution
    sources: tuple[BlockRevision, ...]


@final
class Unsettled:
    """That the answer given before may not hold any more.

    Attributes:
        token: what the probe said, so that the same call does not probe again.
    """

    __slots__ = ("token",)

    def __init__(self, token: object) -> None:
        self.token = token


@final
class ResolverCore:
    """The resolver's methods as steps. Arguments as ``PromptBlockResolver``."""

    def __init__(
        self,
        blocks: Sequence[PromptBlockSpec],
        *,
        memory: Any = None,
        secret: bytes | None = None,
        cache_bytes: int = CACHE_BYTES,
        cache_facts: int = CACHE_FACTS,
        observe: Observer | None = None,
    ) -> None:
        self.specs = in_prompt_order(blocks)
        self.counters = Counters()
        self._observe = observe
        self._lane_specs = tuple(spec for spec in self.specs if spec.is_learned)
        self._source_specs = tuple(spec for spec in self.specs if not spec.is_learned)
        self._fingerprints = {spec.name: spec.fingerprint for spec in self.specs}
        self._prefixes = tuple(_lane_source(spec).label_prefix for spec in self._lane_specs)
        if self._lane_specs and not hasattr(memory, "query_nodes"):
            raise InvalidDeclarationError(
                "needs a store or scanner: give memory=, an object with query_nodes",
                where=f"block {self._lane_specs[0].name}",
            )
        self._memory = memory
        self._engine: Engine | None = _engine_of(memory)
        if secret is None and self._engine is not None:
            secret = self._engine.secret()
        if secret is None and any(spec.policy.fence is None for spec in self._lane_specs):
            raise InvalidDeclarationError(
                "memory that is no promptkeel store has no key for fences: give secret=, random bytes that you keep"
            )
        self._secret = secret or b""
        self._readers = tuple(
            FileReader(spec.source) if isinstance(spec.source, FileSource) else None for spec in self._source_specs
        )
        self._static = tuple(
            authored(spec.source.text) if isinstance(spec.source, StaticSource) else None for spec in self._source_specs
        )
        texts = [text for text in self._static if text is not None]
        self._all_static = tuple(texts) if len(texts) == len(self._static) else ()
        self._has_computed = any(isinstance(spec.source, ComputedSource) for spec in self._source_specs)
        self._files = tuple(position for position, reader in enumerate(self._readers) if reader is not None)
        self._tickets = itertools.count(1)
        self._flights: Flights[KeptLanes] = Flights()
        self._rendered: BoundedCache[tuple[str, ...], RenderedBlock] = BoundedCache(cache_bytes, _text_bytes)
        self._kept: BoundedCache[str, _Kept] = BoundedCache(cache_facts, _weigh_kept)

    def look(self, scope: TenantScope) -> Resolution | Unsettled:
        """The answer given before, if one probe and one stat per file show that it still holds; else what they said.

        Raises:
            InvalidInputError: this is no scope.
        """
        if not isinstance(scope, TenantScope):
            raise InvalidInputError(f"must be a TenantScope, not {type(scope).__name__}", field="scope")
        kept = self._kept.get(scope.path)
        if kept is None or self._has_computed:
            return _UNSEEN
        token: object = None
        if self._engine is not None and self._lane_specs:
            if not self._engine.is_local:
                return _UNSEEN
            self.counters.probes += 1
            token = self._engine.probe()
            if kept.lanes.token != token:
                return Unsettled(token)
        for position in self._files:
            reader = self._readers[position]
            if reader is None or reader.current() is not kept.sources[position]:
                return Unsettled(token)
        return kept.resolution

    def resolve(self, scope: TenantScope, seen: Unsettled | None = None) -> Steps[Resolution]:
        """All blocks of the scope; ``seen`` is what ``look`` has just answered.

        Raises:
            BlockResolutionError: a source could not be read; names the block and the scope.
        """
        if seen is None:
            found = self.look(scope)
            if isinstance(found, Resolution):
                return found
            seen = found
        sources = self._all_static or (yield from self._read_sources(scope))
        if self._engine is not None and self._lane_specs:
            try:
                lanes = yield from self._read_lanes(self._engine, scope, seen)
            except OSError as error:
                raise self._failed(self._lane_specs[0], scope, error) from error
            return self._compose(scope, lanes, sources)
        blocks = yield from self._scan_lanes(scope)
        if not self._lane_specs:
            return self._compose(scope, _NO_LANES, sources)
        return self._resolution(scope, blocks + self._source_blocks(None, sources), None)

    def clear(self) -> None:
        """Forget everything that is kept."""
        self._kept.clear()
        self._rendered.clear()

    # -- authored blocks

    def _read_sources(self, scope: TenantScope) -> Steps[tuple[BlockRevision, ...]]:
        found = []
        for position, spec in enumerate(self._source_specs):
            try:
                found.append((yield from self._read_source(position, spec, scope)))
            except OSError as error:
                raise self._failed(spec, scope, error) from error
        return tuple(found)

    def _read_source(self, position: int, spec: PromptBlockSpec, scope: TenantScope) -> Steps[BlockRevision]:
        static = self._static[position]
        if static is not None:
            return static
        reader = self._readers[position]
        started = time.perf_counter_ns()
        if reader is not None:
            current = reader.current()
            if current is None:
                self.counters.file_reads += 1
                current = yield Call(reader.read)
                self._tell(spec, scope.path, "read", started)
            return current
        answer = yield Obtain(spec.source.function, scope)  # type: ignore[union-attr]
        revision = check_computed(answer, f"block {spec.name}")
        self._tell(spec, scope.path, "computed", started)
        return revision

    def _source_blocks(self, kept: _Kept | None, sources: tuple[BlockRevision, ...]) -> list[ResolvedBlock]:
        blocks = []
        for spec, revision in zip(self._source_specs, sources, strict=True):
            key = (self._fingerprints[spec.name], revision.content_hash or revision.revision)
            rendered = self._rendered.get(key)
            if rendered is None:
                rendered = self._render(spec, revision, spec.policy, "")
                self._rendered.put(key, rendered)
            blocks.append(_reused(kept, spec, rendered, revision))
        return blocks

    # -- memory lanes of a store with heads

    def _read_lanes(self, engine: Engine, scope: TenantScope, seen: Unsettled) -> Steps[KeptLanes]:
        kept = self._kept.get(scope.path)
        before = None if kept is None else kept.lanes
        ticket = next(self._tickets)
        token = seen.token
        if token is _UNPROBED and engine.is_local:
            self.counters.probes += 1
            token = engine.probe()
        state = after_probe(before, token, self._prefixes)
        if isinstance(state, Fresh):
            return state.kept
        self.counters.head_reads += 1
        if isinstance(state, Moved) and engine.is_local:
            # One short read tells both whether heads have moved and, mostly, that no lane was touched.
            update = engine.tail(scope, requests_since(state.kept, self._prefixes))
            if update is not None:
                return (yield from self._settle(scope, state.kept, update, ticket, token))
        heads = engine.heads(scope) if engine.is_local else (yield Call(engine.heads, scope))
        if isinstance(state, Moved):
            now = after_heads(state.kept, heads, self._prefixes, ticket=ticket, token=token)
            if isinstance(now, Fresh):
                return now.kept
            requests = now.requests
        else:
            requests = state.requests
        work = self._read_again(engine, scope, before, requests, ticket, token)
        return (yield from self._flights.join((scope.path, heads), lambda: work))

    def _settle(
        self, scope: TenantScope, kept: KeptLanes, update: CatchUp, ticket: int, token: object
    ) -> Steps[KeptLanes]:
        if is_untouched(update):
            return KeptLanes(ticket, token, update.heads, kept.lanes, kept.rendered)
        self.counters.deltas += 1
        work = self._follow(scope, kept, update, ticket, token)
        return (yield from self._flights.join((scope.path, update.heads), lambda: work))

    def _read_again(
        self,
        engine: Engine,
        scope: TenantScope,
        before: KeptLanes | None,
        requests: tuple[LaneRequest, ...],
        ticket: int,
        token: object,
    ) -> Steps[KeptLanes]:
        found: KeptLanes = yield Call(self._read_in_worker, engine, scope, before, requests, ticket, token)
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
        engine: Engine,
        scope: TenantScope,
        before: KeptLanes | None,
        requests: tuple[LaneRequest, ...],
        ticket: int,
        token: object,
    ) -> KeptLanes:
        self.counters.scans += 1
        update = engine.catch_up(scope, requests)
        lanes = self._caught_up(before, update, scope)
        return self._keep(scope, before, update, lanes, ticket, token)

    def _caught_up(self, before: KeptLanes | None, update: CatchUp, scope: TenantScope) -> tuple[Lane, ...]:
        def build(position: int, lane: Lane | None, change: LaneUpdate) -> Lane:
            spec = self._lane_specs[position]
            source = _lane_source(spec)
            started = time.perf_counter_ns()
            if lane is None:
                built = Lane.build(change.rows, prefix=source.label_prefix, profile_fields=source.profile_fields)
                self._tell(spec, scope.path, "scanned", started)
            else:
                built = lane.updated(change)
                self._tell(spec, scope.path, "updated", started)
            return built

        lanes: tuple[Lane | None, ...] = (None,) * len(self._lane_specs) if before is None else before.lanes
        return caught_up(lanes, update, build)

    def _keep(
        self,
        scope: TenantScope,
        before: KeptLanes | None,
        update: CatchUp,
        lanes: tuple[Lane, ...],
        ticket: int,
        token: object,
    ) -> KeptLanes:
        changed = set(changed_positions(before, lanes))
        rendered = tuple(
            self._rendered_lane(spec, lane, scope)
            if before is None
            or position in changed
            or (lane is not before.lanes[position] and before.rendered[position].omitted)
            else before.rendered[position]
            for position, (spec, lane) in enumerate(zip(self._lane_specs, lanes, strict=True))
        )
        return KeptLanes(ticket, token, update.heads, lanes, rendered)

    def _rendered_lane(self, spec: PromptBlockSpec, lane: Lane, scope: TenantScope) -> RenderedBlock:
        policy = self._policy(spec, scope)
        key = self._key(spec, scope, lane.revision, policy)
        rendered = self._rendered.get(key)
        # What was left out names its nodes, which the revision does not.
        if rendered is None or rendered.omitted:
            rendered = self._render(spec, lane.to_revision(), policy, scope.path)
            self._rendered.put(key, rendered)
        return rendered

    # -- memory of a scanner without heads

    def _scan_lanes(self, scope: TenantScope) -> Steps[list[ResolvedBlock]]:
        blocks = []
        for spec in self._lane_specs:
            source = _lane_source(spec)
            started = time.perf_counter_ns()
            self.counters.scans += 1
            try:
                revision = yield from scan_steps(self._memory, scope, source.label_prefix, source.profile_fields)
            except OSError as error:
                raise self._failed(spec, scope, error) from error
            self._tell(spec, scope.path, "scanned", started)
            policy = self._policy(spec, scope)
            key = self._key(spec, scope, revision.revision, policy)
            rendered = self._rendered.get(key)
            if rendered is None:
                rendered = yield Call(self._render, spec, revision, policy, scope.path)
                self._rendered.put(key, rendered)
            blocks.append(ResolvedBlock(spec, rendered, revision))
        return blocks

    # -- putting it together

    def _compose(self, scope: TenantScope, lanes: KeptLanes, sources: tuple[BlockRevision, ...]) -> Resolution:
        kept = self._kept.get(scope.path)
        heads = lanes.heads if self._lane_specs else None
        if kept is None or not _same(kept.sources, sources) or kept.lanes.rendered != lanes.rendered:
            resolution = self._resolution(scope, self._all_blocks(kept, lanes, sources), heads)
        elif not all(map(operator.is_, kept.lanes.lanes, lanes.lanes)):
            # Other facts under equal texts, as another time of the same day. The memo goes along: it is about texts.
            resolution = self._resolution(scope, self._all_blocks(kept, lanes, sources), heads, kept.resolution.memo)
        elif kept.resolution.heads != heads:
            resolution = Resolution(scope, kept.resolution.blocks, heads, memo=kept.resolution.memo)
        else:
            resolution = kept.resolution
        offered = _Kept(lanes, resolution, sources)

        def choose(present: _Kept | None) -> _Kept:
            if present is None or newer(present.lanes, lanes) is lanes:
                return offered
            return present

        self._kept.settle(scope.path, choose)
        return resolution

    def _all_blocks(
        self, kept: _Kept | None, lanes: KeptLanes, sources: tuple[BlockRevision, ...]
    ) -> list[ResolvedBlock]:
        triples = zip(self._lane_specs, lanes.lanes, lanes.rendered, strict=True)
        lane_blocks = [_reused(kept, spec, rendered, lane) for spec, lane, rendered in triples]
        return lane_blocks + self._source_blocks(kept, sources)

    def _resolution(
        self,
        scope: TenantScope,
        blocks: list[ResolvedBlock],
        heads: Heads | None,
        memo: dict[object, Any] | None = None,
    ) -> Resolution:
        by_name = {block.name: block for block in blocks}
        ordered = tuple(by_name[spec.name] for spec in self.specs)
        return Resolution(scope, ordered, heads, memo={} if memo is None else memo)

    def _key(self, spec: PromptBlockSpec, scope: TenantScope, revision: str, policy: RenderPolicy) -> tuple[str, ...]:
        return scope.path, self._fingerprints[spec.name], revision, policy.fingerprint, str(RENDER_VERSION)

    def _policy(self, spec: PromptBlockSpec, scope: TenantScope) -> RenderPolicy:
        if spec.policy.fence is not None:
            return spec.policy
        return attrs.evolve(spec.policy, fence=fence_id(self._secret, scope.root))

    def _render(self, spec: PromptBlockSpec, revision: BlockRevision, policy: RenderPolicy, path: str) -> RenderedBlock:
        started = time.perf_counter_ns()
        self.counters.renders += 1
        rendered = render_block(spec.name, revision, tier=spec.tier, policy=policy)
        self._tell(spec, path, "rendered", started)
        return rendered

    def _tell(self, spec: PromptBlockSpec, path: str, action: Action, started: int) -> None:
        if self._observe is not None:
            self._observe(BlockEvent(spec.name, path, action, (time.perf_counter_ns() - started) / 1000))

    def _failed(self, spec: PromptBlockSpec, scope: TenantScope, error: OSError) -> BlockResolutionError:
        return BlockResolutionError(str(error) or type(error).__name__, block=spec.name, scope=scope.path)


class _Unprobed:
    """Equals nothing, itself included: what was read from an engine that is not probed is compared by its heads."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


_UNPROBED: Final = _Unprobed()
_UNSEEN: Final = Unsettled(_UNPROBED)
_NO_LANES: Final = KeptLanes(0, None, None, (), ())  # type: ignore[arg-type]


def _lane_source(spec: PromptBlockSpec) -> Any:
    return spec.source


def _engine_of(memory: Any) -> Engine | None:
    engine: Engine | None = getattr(getattr(memory, "core", None), "engine", None)
    return engine if engine is not None and HEADS in engine.capabilities else None


def _reused(
    kept: _Kept | None, spec: PromptBlockSpec, rendered: RenderedBlock, content: Lane | BlockRevision
) -> ResolvedBlock:
    """The block of the answer before where neither its text nor its content moved, else a new one."""
    for block in () if kept is None else kept.resolution.blocks:
        if block.spec is spec and block.rendered is rendered and block.content is content:
            return block
    return ResolvedBlock(spec, rendered, content)


def _same(before: tuple[BlockRevision, ...], after: tuple[BlockRevision, ...]) -> bool:
    return all(
        old is new or (old.content == new.content and old.revision == new.revision)
        for old, new in zip(before, after, strict=True)
    )


def _text_bytes(block: RenderedBlock) -> int:
    return sys.getsizeof(block.text)


def _weigh_kept(kept: _Kept) -> int:
    return 1 + sum(lane.count for lane in kept.lanes.lanes)


class _ResolverFacade:
    def __init__(
        self,
        blocks: Sequence[PromptBlockSpec],
        *,
        memory: Any = None,
        secret: bytes | None = None,
        cache_bytes: int = CACHE_BYTES,
        cache_facts: int = CACHE_FACTS,
        observe: Callable[[BlockEvent], object] | None = None,
    ) -> None:
        self.core = ResolverCore(
            blocks,
            memory=memory,
            secret=secret,
            cache_bytes=cache_bytes,
            cache_facts=cache_facts,
            observe=observe,
        )

    @property
    def specs(self) -> tuple[PromptBlockSpec, ...]:
        """The declared blocks, in prompt order."""
        return self.core.specs


@final
class PromptBlockResolver(_ResolverFacade):
    """Resolves declared blocks for a scope, and keeps what it may.

    Args:
        blocks: the declared blocks.
        memory: where memory lanes are read: a promptkeel store, or anything with ``query_nodes``.
        secret: the key of the fences' ids; a promptkeel store brings its own.
        cache_bytes: how many bytes of rendered text are kept.
        cache_facts: how many facts are kept in lanes.
        observe: called with each ``BlockEvent``.

    Raises:
        InvalidDeclarationError: the blocks cannot be resolved with what was given.
    """

    resolve = as_async(ResolverCore.resolve)


@final
class BlockingPromptBlockResolver(_ResolverFacade):
    """The blocking twin of ``PromptBlockResolver``."""

    resolve = as_blocking(ResolverCore.resolve)
