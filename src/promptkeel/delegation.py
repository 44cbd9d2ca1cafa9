"""What a delegated agent sees: the same bytes for its whole run.

A run freezes the prompt of a scope when it is first asked for it, without the blocks that are not inherited. Later
writes do not move it; an erasure of anything that it shows ends it, at the first question after that. Each question
therefore probes the store, and an unreachable store is an error: nobody could say that nothing was erased.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Final, Self, final

import attrs

from promptkeel.core import KeelCore
from promptkeel.errors import RunEndedError
from promptkeel.forks import after_fork
from promptkeel.model import Trust
from promptkeel.prompt import Prompt
from promptkeel.prompt.shown import shown_nodes, unerased_at
from promptkeel.resolver import Freshness
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Steps, as_async, as_blocking, drive, drive_blocking
from promptkeel.store.arguments import check_scope
from promptkeel.store.base import Heads
from promptkeel.tools import AgentTools, BlockingAgentTools, ToolCore, ToolLimits

_FROZEN: Final = "frozen for a delegated run"


@attrs.frozen(eq=False)
class _Frozen:
    """A prompt as a run keeps it.

    Attributes:
        prompt: what the child sees.
        shown: the scope and the id of every node that it shows.
        heads: at which nothing of it was known to be erased; None where it shows nothing of the store.
        token: the store's, at these heads; None where the store is on another machine.
    """

    prompt: Prompt
    shown: frozenset[str]
    heads: Heads | None
    token: object


@final
class RunCore:
    """One delegated run, as steps.

    Args:
        keel: the open keel.
        scope: for whom the run is; None is the whole deployment.
    """

    def __init__(self, keel: KeelCore, scope: TenantScope | None) -> None:
        self._keel = keel
        self.scope = scope if scope is None else check_scope(scope)
        self._lock = threading.Lock()
        self._frozen: dict[str | None, _Frozen] = {}
        self._ended: str | None = "has not been entered; use 'with' or 'async with'"
        after_fork(self, RunCore._unlock)

    def _unlock(self) -> None:
        self._lock = threading.Lock()

    def start(self) -> Steps[None]:
        """Freeze the prompt of the run's own scope.

        Raises:
            RunEndedError: the run was entered before.
            BlockResolutionError: a block's source could not be read.
        """
        if self._frozen or self._ended is None:
            raise RunEndedError("the run was entered before; begin another")
        self._ended = None
        try:
            yield from self.prompt()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the run and forget what it showed."""
        with self._lock:
            self._frozen = {}
            self._ended = "is over"

    def prompt(self, scope: TenantScope | None = None) -> Steps[Prompt]:
        """The prompt of the run's scope, or of another one: always the same object in this run.

        Raises:
            RunEndedError: the run is over, or something that it shows was erased.
            BlockResolutionError: a block's source could not be read; a frozen one is not read again.
            StoreUnavailableError: the store cannot say whether something was erased.
        """
        asked = self.scope if scope is None else check_scope(scope)
        key = None if asked is None else asked.path
        self._check()
        frozen = self._frozen.get(key)
        if frozen is None:
            made = yield from self._freeze(asked)
            with self._lock:
                self._check()
                # Of two that ask at once, both get what the first one froze.
                frozen = self._frozen.setdefault(key, made)
            return frozen.prompt
        current = yield from self._verified(frozen, asked)
        with self._lock:
            self._check()
            self._frozen[key] = current
        return current.prompt

    def _check(self) -> None:
        if self._ended is not None:
            raise RunEndedError(f"the run {self._ended}")

    def _freeze(self, scope: TenantScope | None) -> Steps[_Frozen]:
        engine = self._keel.store.engine
        token = engine.probe() if engine.is_local else None
        builder = yield from self._keel.inherited()
        prompt = yield from builder.build(scope)
        resolution = prompt.resolution
        detail = (*resolution.freshness.detail, _FROZEN)
        frozen = attrs.evolve(resolution, freshness=Freshness(strict=False, detail=detail))
        shown = shown_nodes(resolution.blocks, resolution.scope)
        return _Frozen(attrs.evolve(prompt, resolution=frozen), shown, resolution.heads, token)

    def _verified(self, frozen: _Frozen, scope: TenantScope | None) -> Steps[_Frozen]:
        """The same prompt, where nothing that it shows has been erased."""
        engine = self._keel.store.engine
        if frozen.heads is None or not frozen.shown:
            return frozen
        token = engine.probe() if engine.is_local else None
        if token is not None and token == frozen.token:
            return frozen
        asking = TenantScope() if scope is None else scope
        heads: Heads | None = yield Call(unerased_at, engine, asking, frozen.heads, frozen.shown)
        if heads is None:
            self._end("ended: something that it showed was erased; begin another")
        return attrs.evolve(frozen, heads=heads, token=token)

    def _end(self, reason: str) -> None:
        with self._lock:
            self._frozen = {}
            self._ended = reason
        self._check()

    def tool_core(
        self, scope: TenantScope, *, source: str, trust: Trust, limits: ToolLimits | None, grant: Collection[str]
    ) -> ToolCore:
        """The tools of the child, which has none unless they are granted by name."""
        self._check()
        inherited = [spec for spec in self._keel.specs if spec.inherit]
        return ToolCore(
            self._keel,
            scope,
            source=source,
            trust=trust,
            limits=limits,
            grant=grant,
            specs=inherited,
            check=self._check,
        )


class _Facade:
    def __init__(self, core: RunCore) -> None:
        self.core = core

    @property
    def scope(self) -> TenantScope | None:
        """For whom the run is."""
        return self.core.scope


@final
class DelegatedRun(_Facade):
    """What a delegated agent sees; made by ``Keel.delegate`` and used with ``async with``."""

    prompt = as_async(RunCore.prompt)

    def tools(
        self,
        scope: TenantScope,
        *,
        source: str,
        trust: Trust = "inferred",
        limits: ToolLimits | None = None,
        grant: Collection[str] = (),
    ) -> AgentTools:
        """The child's tools: none but those that are granted by name. Arguments and errors as ``Keel.tools``."""
        return AgentTools(self.core.tool_core(scope, source=source, trust=trust, limits=limits, grant=grant))

    async def __aenter__(self) -> Self:
        await drive(self.core.start())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.core.stop()


@final
class BlockingDelegatedRun(_Facade):
    """The blocking twin of ``DelegatedRun``."""

    prompt = as_blocking(RunCore.prompt)

    def tools(
        self,
        scope: TenantScope,
        *,
        source: str,
        trust: Trust = "inferred",
        limits: ToolLimits | None = None,
        grant: Collection[str] = (),
    ) -> BlockingAgentTools:
        """The child's tools: none but those that are granted by name. Arguments and errors as ``Keel.tools``."""
        return BlockingAgentTools(self.core.tool_core(scope, source=source, trust=trust, limits=limits, grant=grant))

    def __enter__(self) -> Self:
        drive_blocking(self.core.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.core.stop()
