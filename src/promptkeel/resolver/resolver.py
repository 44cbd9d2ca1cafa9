"""Which blocks, how fresh: the resolver asks its readers, and keeps the answer.

A resolve asks gates first, then probes the store once and reads everything else beside it. Where nothing moved, it
answers what it answered before. A source that fails is a matter of its block's policy, and never an empty block.
"""

from __future__ import annotations

import hmac
import operator
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, final

import attrs

from promptkeel.blocks.failures import check_seconds
from promptkeel.blocks.lanes import MemoryLane
from promptkeel.blocks.spec import PromptBlockSpec, in_prompt_order
from promptkeel.errors import BlockResolutionError, InvalidDeclarationError, InvalidInputError
from promptkeel.render import RenderedBlock
from promptkeel.resolver.cache import BoundedCache
from promptkeel.resolver.composing import Answer, Composer, Found, Stored
from promptkeel.resolver.gates import GateKeeper
from promptkeel.resolver.known_good import LastKnownGood
from promptkeel.resolver.lanes import UNPROBED, LaneReader
from promptkeel.resolver.outcomes import Failed
from promptkeel.resolver.past import blocks_as_of
from promptkeel.resolver.plans import Plan, View, places_of, scoped, scopeless
from promptkeel.resolver.probing import SharedProbe
from promptkeel.resolver.rendering import Rendering
from promptkeel.resolver.scanning import SCAN_TIMEOUT, LaneScanner
from promptkeel.resolver.sources import Loader, SourceReader
from promptkeel.resolver.states import KeptLanes, newer
from promptkeel.resolver.values import BlockEvent, Counters, Observer, Resolution, ResolvedBlock
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.steps import Call, Steps, as_async, as_blocking
from promptkeel.store.base import HEADS, Engine, Heads

CACHE_BYTES: Final = 64 * 1024 * 1024
"""The default bound of rendered text that is kept."""
CACHE_FACTS: Final = 1_000_000
"""The default bound of facts that are kept in lanes."""
_PLANS: Final = 256
"""How many sets of shut gates are kept apart; with more, everything kept is forgotten once in a while."""

_NO_LANES: Final = KeptLanes(0, None, None, (), ())  # type: ignore[arg-type]


@final
@attrs.frozen(eq=False)
class _Kept:
    """What is kept of a scope: its lanes as they were read last, and the answer given last."""

    lanes: KeptLanes
    answer: Answer | None = None


@final
class Unsettled:
    """That the answer given before may not hold any more.

    Attributes:
        token: what the probe said, so that the same call does not probe again.
    """

    __slots__ = ("token",)

    def __init__(self, token: object) -> None:
        self.token = token


UNSEEN: Final = Unsettled(UNPROBED)
"""That nothing is known yet."""


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
        scan_timeout: float = SCAN_TIMEOUT,
        now: Callable[[], float] = time.monotonic,
        admit: Callable[[TenantScope], object] | None = None,
    ) -> None:
        check_seconds(scan_timeout, "scan_timeout")
        self._admit = admit
        self.specs = in_prompt_order(blocks)
        self.counters = Counters()
        self._memory = memory
        self._engine = _engine_of(memory)
        self._scan_timeout = scan_timeout
        self._now = now
        self._secret = _check_memory(self.specs, memory, self._engine, secret)
        self._rendering = Rendering(
            self.specs,
            secret=self._secret,
            cache_bytes=cache_bytes,
            counters=self.counters,
            observe=observe,
        )
        tell = self.counters.leave_behind
        self._gates = GateKeeper(self.specs, tell)
        self._loaders = {spec.name: Loader(spec, tell) for spec in self.specs if not spec.is_stored}
        self._good = LastKnownGood()
        self._keeps_good = any(spec.on_failure.action == "last_known_good" for spec in self.specs)
        self._composer = Composer(self._rendering, self._good)
        self._kept: BoundedCache[Any, _Kept] = BoundedCache(cache_facts, _weigh_kept)
        self._scoped, self._scopeless = scoped(self.specs), scopeless(self.specs)
        self._plans: dict[tuple[str, frozenset[str]], Plan] = {}
        # The plan of every call that names a scope, where no gate has a say in it.
        self._plain = None if self._scoped.gated else self._plan(self._scoped, frozenset())

    def look(self, scope: TenantScope | None) -> Resolution | Unsettled:
        """The answer given before, if one probe and one stat per file show that it still holds; else what they said.

        Raises:
            InvalidInputError: this is no scope.
        """
        if scope is None:
            return UNSEEN
        if not isinstance(scope, TenantScope):
            raise InvalidInputError(f"must be a TenantScope, not {type(scope).__name__}", field="scope")
        plan = self._plain
        return UNSEEN if plan is None else self._look(plan, scope, scope.path)

    def _look(self, plan: Plan, scope: TenantScope, key: object) -> Resolution | Unsettled:
        kept = self._kept.get(key)
        answer = None if kept is None else kept.answer
        if answer is None or plan.sources.has_asked or not answer.is_whole:
            return UNSEEN
        began = self._now() if self._keeps_good else 0.0
        epoch = self._good.epoch
        token: object = None
        if plan.lanes is not None:
            try:
                token = plan.lanes.probe()
            except OSError:
                return UNSEEN
            if answer.lanes.token != token:
                return Unsettled(token)
        if not plan.sources.are_unmoved(answer.sources):
            return Unsettled(token)
        if self._keeps_good:
            self._still_good(scope, answer.resolution, began, epoch)
        return answer.resolution

    def resolve(self, scope: TenantScope | None, seen: Unsettled | None = None) -> Steps[Resolution]:
        """All blocks of the scope; without one, those that the whole deployment shares.

        Args:
            scope: who asks.
            seen: what ``look`` has just answered.

        Raises:
            BlockResolutionError: a block's policy makes a failed read an error, its source or its gate has a defect,
                or it must not be missing and needs a scope; names the block and the scope.
        """
        if seen is None:
            found = self.look(scope)
            if isinstance(found, Resolution):
                return found
            seen = found
        if self._admit is not None and scope is not None:
            self._admit(scope)
        view = self._scoped if scope is not None else self._scopeless
        asking = DEPLOYMENT if scope is None else scope
        for spec in view.needed:
            raise BlockResolutionError(
                "needs a scope, and must not be missing: give a scope, or declare it on_failure='omit'",
                block=spec.name,
                scope=asking.path,
            )
        plan = self._plain if scope is not None else None
        if plan is None:
            closed = (yield from self._gates.ask(view.gated, asking)) if view.gated else frozenset()
            plan = self._plan(view, closed)
            looked = self._look(plan, asking, plan.key(asking))
            if isinstance(looked, Resolution):
                return looked
            seen = looked
        return (yield from self._read(plan, asking, seen.token))

    def _read(self, plan: Plan, scope: TenantScope, token: object) -> Steps[Resolution]:
        began, epoch = self._now(), self._good.epoch
        key = plan.key(scope)
        readings, stored = yield from plan.sources.read(scope, self._read_stored(plan, scope, key, token))
        found = Found(stored, readings, began, epoch)
        kept = self._kept.get(key)
        before = None if kept is None else kept.answer
        if before is not None and _is_unmoved(before, found):
            resolution = before.resolution
            if isinstance(stored, KeptLanes) and resolution.heads != stored.heads:
                resolution = Resolution(
                    scope, resolution.blocks, stored.heads, left_out=resolution.left_out, memo=resolution.memo
                )
            if self._keeps_good:
                self._still_good(scope, resolution, began, epoch)
        else:
            resolution = yield from self._composer.compose(plan, scope, found, before, self._now())
        if plan.scanner is None and not isinstance(stored, Failed):
            self._keep(key, stored, resolution, found)
        return resolution

    def _read_stored(self, plan: Plan, scope: TenantScope, key: object, token: object) -> Steps[Stored]:
        if plan.scanner is not None:
            return (yield from plan.scanner.scan(scope))
        if plan.lanes is None:
            return None
        try:
            if token is UNPROBED and plan.sources.has_asked and plan.probe is not None:
                token = yield from plan.probe.token()
            lanes = yield from plan.lanes.read(scope, lambda: self._kept_lanes(key), token)
        except OSError as error:
            return Failed(error)
        if not plan.sources.is_static:
            # Other calls need not read it again while this one still waits for other sources.
            self._settle(key, lanes, None)
        return lanes

    def _kept_lanes(self, key: object) -> KeptLanes | None:
        kept = self._kept.get(key)
        return None if kept is None else kept.lanes

    def _keep(self, key: object, stored: Stored, resolution: Resolution, found: Found) -> None:
        lanes = stored if isinstance(stored, KeptLanes) else _NO_LANES
        self._settle(key, lanes, Answer(lanes, resolution, found.readings, resolution.freshness.strict))

    def _settle(self, key: object, lanes: KeptLanes, answer: Answer | None) -> None:
        """Keep what was found, unless what is kept was read later."""

        def choose(present: _Kept | None) -> _Kept:
            if present is None:
                return _Kept(lanes, answer)
            last = present.answer
            if last is None or (answer is not None and newer(last.lanes, lanes) is lanes):
                last = answer
            return _Kept(newer(present.lanes, lanes), last)

        self._kept.settle(key, choose)

    def _still_good(self, scope: TenantScope, resolution: Resolution, began: float, epoch: int) -> None:
        for block in resolution.blocks:
            if block.state == "fresh" and block.spec.on_failure.action == "last_known_good":
                self._good.offer(scope.path, block, began, epoch)

    def _plan(self, view: View, closed: frozenset[str]) -> Plan:
        plan = self._plans.get((view.name, closed))
        if plan is None:
            if len(self._plans) >= _PLANS:
                self._plans.clear()
                self._kept.clear()
            plan = self._plans.setdefault((view.name, closed), self._make_plan(view, closed))
        return plan

    def _make_plan(self, view: View, closed: frozenset[str]) -> Plan:
        read = [spec for spec in view.specs if spec.name not in closed]
        stored = tuple(spec for spec in read if spec.is_stored)
        lanes: LaneReader | None = None
        scanner: LaneScanner | None = None
        if stored and self._engine is not None:
            lanes = LaneReader(self._engine, stored, self._rendering, self.counters)
        elif stored:
            scanner = LaneScanner(
                self._memory,
                stored,
                self._rendering,
                self.counters,
                seconds=self._scan_timeout,
                tell=self.counters.leave_behind,
            )
        loaders = tuple(self._loaders[spec.name] for spec in read if not spec.is_stored)
        sources = SourceReader(loaders, self._rendering, self.counters)
        probe = None if lanes is None else SharedProbe(lanes.probe)
        return Plan(view, closed, stored, lanes, probe, scanner, sources, places_of(view.specs, closed))

    def narrowed(self, block: ResolvedBlock, scope: TenantScope, max_tokens: int, token_counter: str) -> RenderedBlock:
        """A learned block in at most so many tokens; empty where not even what is left out can be said in them."""
        return self._rendering.narrowed(block, scope, max_tokens, token_counter)

    def as_of(self, scope: TenantScope, heads: Heads, names: Collection[str]) -> Steps[dict[str, ResolvedBlock]]:
        """The store's own blocks among these, as they were at heads of the past, by name.

        Raises:
            CompactedError: the history no longer reaches back to these heads, or they are not of this store.
            StoreUnavailableError: the store could not be read.
        """
        specs = [spec for spec in self.specs if spec.name in names and spec.is_stored]
        if self._engine is None or not specs:
            return {}
        found: dict[str, ResolvedBlock] = yield Call(blocks_as_of, self._engine, specs, self._rendering, scope, heads)
        return found

    def keyed(self, message: bytes) -> bytes | None:
        """The hash of a message with the key of the fences; None where there is none."""
        return hmac.digest(self._secret, message, "sha256") if self._secret else None

    def clear(self) -> None:
        """Forget everything that is kept."""
        self._kept.clear()
        for plan in tuple(self._plans.values()):
            if plan.lanes is not None:
                plan.lanes.clear()
        self._rendering.clear()
        self._good.forget()


def _is_unmoved(before: Answer, found: Found) -> bool:
    """Whether all that was found is the very same as before."""
    if not before.is_whole or isinstance(found.stored, Failed | tuple):
        return False
    lanes = _NO_LANES if found.stored is None else found.stored
    return (
        len(lanes.lanes) == len(before.lanes.lanes)
        and all(map(operator.is_, before.lanes.lanes, lanes.lanes))
        and all(map(operator.is_, before.lanes.rendered, lanes.rendered))
        and all(map(operator.is_, before.sources, found.readings))
    )


def _check_memory(
    specs: tuple[PromptBlockSpec, ...], memory: Any, engine: Engine | None, secret: bytes | None
) -> bytes:
    """The key of the fences, once it is clear that what is stored can be read and what is learned contained."""
    for spec in specs:
        if not spec.is_stored or engine is not None:
            continue
        if not hasattr(memory, "query_nodes"):
            raise InvalidDeclarationError(
                "needs a store or scanner: give memory=, an object with query_nodes", where=f"block {spec.name}"
            )
        if not isinstance(spec.source, MemoryLane):
            raise InvalidDeclarationError("needs a promptkeel store: give it as memory=", where=f"block {spec.name}")
    if secret is not None:
        return secret
    if engine is not None:
        return engine.secret()
    if any(spec.is_learned and spec.policy.fence is None for spec in specs):
        raise InvalidDeclarationError(
            "memory that is no promptkeel store has no key for fences: give secret=, random bytes that you keep"
        )
    return b""


def _engine_of(memory: Any) -> Engine | None:
    engine: Engine | None = getattr(getattr(memory, "core", None), "engine", None)
    return engine if engine is not None and HEADS in engine.capabilities else None


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
        scan_timeout: float = SCAN_TIMEOUT,
    ) -> None:
        self.core = ResolverCore(
            blocks,
            memory=memory,
            secret=secret,
            cache_bytes=cache_bytes,
            cache_facts=cache_facts,
            observe=observe,
            scan_timeout=scan_timeout,
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
        scan_timeout: how long a scan of memory that is no promptkeel store may take, in seconds.

    Raises:
        InvalidDeclarationError: the blocks cannot be resolved with what was given.
    """

    resolve = as_async(ResolverCore.resolve)


@final
class BlockingPromptBlockResolver(_ResolverFacade):
    """The blocking twin of ``PromptBlockResolver``."""

    resolve = as_blocking(ResolverCore.resolve)
