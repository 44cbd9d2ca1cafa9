"""Which blocks, how fresh: the resolver puts together what its readers find and keeps the answer.

A resolve probes the store once. Where nothing moved, it answers what it answered before. A source that fails is an
error that names block and scope, never an empty block.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import attrs

from promptkeel.blocks.spec import PromptBlockSpec, in_prompt_order
from promptkeel.errors import InvalidDeclarationError, InvalidInputError
from promptkeel.lane import Lane
from promptkeel.model import BlockRevision
from promptkeel.render import RenderedBlock
from promptkeel.resolver.cache import BoundedCache
from promptkeel.resolver.lanes import UNPROBED, LaneReader, LaneScanner
from promptkeel.resolver.rendering import Rendering
from promptkeel.resolver.sources import SourceReader
from promptkeel.resolver.states import KeptLanes, newer
from promptkeel.resolver.values import BlockEvent, Counters, Observer, Resolution, ResolvedBlock
from promptkeel.scope import TenantScope
from promptkeel.steps import Steps, as_async, as_blocking
from promptkeel.store.base import HEADS, Engine, Heads

CACHE_BYTES: Final = 64 * 1024 * 1024
"""The default bound of rendered text that is kept."""
CACHE_FACTS: Final = 1_000_000
"""The default bound of facts that are kept in lanes."""

_NO_LANES: Final = KeptLanes(0, None, None, (), ())  # type: ignore[arg-type]


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


_UNSEEN: Final = Unsettled(UNPROBED)


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
        learned = tuple(spec for spec in self.specs if spec.is_learned)
        engine = _engine_of(memory)
        self._rendering = Rendering(
            self.specs,
            secret=_check_memory(learned, memory, engine, secret),
            cache_bytes=cache_bytes,
            counters=self.counters,
            observe=observe,
        )
        self._learned = learned
        self._lanes: LaneReader | None = None
        self._scanner: LaneScanner | None = None
        if learned and engine is not None:
            self._lanes = LaneReader(engine, learned, self._rendering, self.counters)
        elif learned:
            self._scanner = LaneScanner(memory, learned, self._rendering, self.counters)
        authored = tuple(spec for spec in self.specs if not spec.is_learned)
        self._sources = SourceReader(authored, self._rendering, self.counters)
        self._kept: BoundedCache[str, _Kept] = BoundedCache(cache_facts, _weigh_kept)

    def look(self, scope: TenantScope) -> Resolution | Unsettled:
        """The answer given before, if one probe and one stat per file show that it still holds; else what they said.

        Raises:
            InvalidInputError: this is no scope.
            BlockResolutionError: the store could not be read.
        """
        if not isinstance(scope, TenantScope):
            raise InvalidInputError(f"must be a TenantScope, not {type(scope).__name__}", field="scope")
        kept = self._kept.get(scope.path)
        if kept is None or self._sources.has_computed:
            return _UNSEEN
        token: object = None
        if self._lanes is not None:
            token = self._lanes.probe(scope)
            if kept.lanes.token != token:
                return Unsettled(token)
        return kept.resolution if self._sources.are_unmoved(kept.sources) else Unsettled(token)

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
        sources = yield from self._sources.read(scope)
        if self._scanner is not None:
            blocks = yield from self._scanner.scan(scope)
            return self._resolution(scope, blocks + self._authored_blocks(None, sources), None)
        lanes = _NO_LANES
        if self._lanes is not None:
            lanes = yield from self._lanes.read(scope, lambda: self._kept_lanes(scope), seen.token)
        return self._compose(scope, lanes, sources)

    def _kept_lanes(self, scope: TenantScope) -> KeptLanes | None:
        kept = self._kept.get(scope.path)
        return None if kept is None else kept.lanes

    def clear(self) -> None:
        """Forget everything that is kept."""
        self._kept.clear()
        self._rendering.clear()

    def _compose(self, scope: TenantScope, lanes: KeptLanes, sources: tuple[BlockRevision, ...]) -> Resolution:
        kept = self._kept.get(scope.path)
        heads = lanes.heads if self._learned else None
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
        triples = zip(self._learned, lanes.lanes, lanes.rendered, strict=True)
        learned = [_reused(kept, spec, rendered, lane) for spec, lane, rendered in triples]
        return learned + self._authored_blocks(kept, sources)

    def _authored_blocks(self, kept: _Kept | None, sources: tuple[BlockRevision, ...]) -> list[ResolvedBlock]:
        pairs = zip(self._sources.specs, sources, strict=True)
        return [_reused(kept, spec, self._rendering.authored(spec, revision), revision) for spec, revision in pairs]

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


def _check_memory(
    learned: tuple[PromptBlockSpec, ...], memory: Any, engine: Engine | None, secret: bytes | None
) -> bytes:
    """The key of the fences, once it is clear that the learned blocks can be read and contained."""
    if learned and not hasattr(memory, "query_nodes"):
        raise InvalidDeclarationError(
            "needs a store or scanner: give memory=, an object with query_nodes", where=f"block {learned[0].name}"
        )
    if secret is not None:
        return secret
    if engine is not None:
        return engine.secret()
    if any(spec.policy.fence is None for spec in learned):
        raise InvalidDeclarationError(
            "memory that is no promptkeel store has no key for fences: give secret=, random bytes that you keep"
        )
    return b""


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
