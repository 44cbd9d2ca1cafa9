"""Rendered blocks, each text made once: by block, scope, revision and policy, bounded by bytes.

What a block says is decided elsewhere; here is only when it must be rendered anew, and under which fence.
"""

from __future__ import annotations

import sys
import time
from typing import final

import attrs

from promptkeel.blocks import PromptBlockSpec
from promptkeel.model import BlockRevision
from promptkeel.render import RENDER_VERSION, RenderedBlock, RenderPolicy, render_block
from promptkeel.resolver.cache import BoundedCache
from promptkeel.resolver.outcomes import marked
from promptkeel.resolver.values import Action, BlockEvent, Counters, Observer, ResolvedBlock
from promptkeel.scope import TenantScope
from promptkeel.store.base import fence_id


@final
class Rendering:
    """Renders the declared blocks of one resolver.

    Args:
        specs: the declared blocks.
        secret: the key of the fences' ids.
        cache_bytes: how many bytes of text are kept.
        counters: where work is counted.
        observe: called with each event.
    """

    def __init__(
        self,
        specs: tuple[PromptBlockSpec, ...],
        *,
        secret: bytes,
        cache_bytes: int,
        counters: Counters,
        observe: Observer | None,
    ) -> None:
        self._secret = secret
        self._counters = counters
        self._observe = observe
        self._fingerprints = {spec.name: spec.fingerprint for spec in specs}
        self._texts: BoundedCache[tuple[str, ...], RenderedBlock] = BoundedCache(cache_bytes, _text_bytes)

    def authored(self, spec: PromptBlockSpec, revision: BlockRevision) -> RenderedBlock:
        """An authored block, the same at every scope."""
        key = (self._fingerprints[spec.name], revision.content_hash or revision.revision)
        rendered = self._texts.get(key)
        if rendered is None:
            rendered = self._render(spec, revision, spec.policy, "")
            self._texts.put(key, rendered)
        return rendered

    def kept(self, spec: PromptBlockSpec, scope: TenantScope, revision_id: str) -> RenderedBlock | None:
        """A learned block of this revision, where it is kept and needs no second look."""
        rendered = self._texts.get(self._key(spec, scope, revision_id, self._policy(spec, scope)))
        # What was left out names its nodes, which the revision does not.
        return None if rendered is None or rendered.omitted else rendered

    def learned(self, spec: PromptBlockSpec, scope: TenantScope, revision: BlockRevision) -> RenderedBlock:
        """A learned block, rendered now."""
        policy = self._policy(spec, scope)
        rendered = self._render(spec, revision, policy, scope.path)
        self._texts.put(self._key(spec, scope, revision.revision, policy), rendered)
        return rendered

    def narrowed(self, block: ResolvedBlock, scope: TenantScope, max_tokens: int, token_counter: str) -> RenderedBlock:
        """A learned block in at most so many tokens, fewer than were declared; not kept."""
        spec = block.spec
        policy = attrs.evolve(self._policy(spec, scope), token_counter=token_counter)
        rendered = self._render(spec, block.revision, policy, scope.path, max_tokens)
        return marked(rendered, spec.on_failure) if block.state == "stale" else rendered

    def tell(self, spec: PromptBlockSpec, path: str, action: Action, started: int) -> None:
        """Tell the observer of work that began at ``started``, in nanoseconds of the performance counter."""
        if self._observe is not None:
            self._observe(BlockEvent(spec.name, path, action, (time.perf_counter_ns() - started) / 1000))

    def clear(self) -> None:
        """Forget every text."""
        self._texts.clear()

    def _key(self, spec: PromptBlockSpec, scope: TenantScope, revision: str, policy: RenderPolicy) -> tuple[str, ...]:
        return scope.path, self._fingerprints[spec.name], revision, policy.fingerprint, str(RENDER_VERSION)

    def _policy(self, spec: PromptBlockSpec, scope: TenantScope) -> RenderPolicy:
        if spec.policy.fence is not None:
            return spec.policy
        return attrs.evolve(spec.policy, fence=fence_id(self._secret, scope.root))

    def _render(
        self,
        spec: PromptBlockSpec,
        revision: BlockRevision,
        policy: RenderPolicy,
        path: str,
        room: int | None = None,
    ) -> RenderedBlock:
        started = time.perf_counter_ns()
        self._counters.renders += 1
        rendered = render_block(spec.name, revision, tier=spec.tier, policy=policy, room=room)
        self.tell(spec, path, "rendered", started)
        return rendered


def _text_bytes(block: RenderedBlock) -> int:
    return sys.getsizeof(block.text)
