"""From what was found to an answer: each block by its own policy, and as much of the answer before as still holds."""

from __future__ import annotations

from typing import Any, Final, final

import attrs

from promptkeel.blocks.spec import PromptBlockSpec
from promptkeel.errors import BlockContractError, BlockResolutionError
from promptkeel.lane import Lane
from promptkeel.model import BlockRevision
from promptkeel.render import RenderedBlock
from promptkeel.resolver.heads import StoredHead
from promptkeel.resolver.known_good import LastKnownGood
from promptkeel.resolver.outcomes import Failed, Reading, Wrong, after_failure, marked
from promptkeel.resolver.plans import Plan
from promptkeel.resolver.rendering import Rendering
from promptkeel.resolver.scanning import Scanned
from promptkeel.resolver.states import INLINE_FACTS, KeptLanes
from promptkeel.resolver.values import Freshness, Resolution, ResolvedBlock, failed
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Steps

Stored = KeptLanes | tuple[Scanned, ...] | Failed | None
"""What came of the blocks that the store holds: all at one point in time, one by one, nothing, or none asked for."""


@final
@attrs.frozen(eq=False)
class Found:
    """What one resolve found.

    Attributes:
        stored: of the blocks that the store holds.
        readings: of all others.
        began: when the resolve began.
        epoch: of the last known good, then.
    """

    stored: Stored
    readings: tuple[Reading, ...]
    began: float
    epoch: int


@final
@attrs.frozen(eq=False)
class Answer:
    """An answer, and what it was made of.

    Attributes:
        lanes: what was read of the store.
        resolution: the answer.
        sources: what was read elsewhere.
        is_whole: whether every block in it was verified; else the answer is given once.
    """

    lanes: KeptLanes
    resolution: Resolution
    sources: tuple[Reading, ...]
    is_whole: bool


@final
class Composer:
    """Makes answers.

    Args:
        rendering: renders blocks.
        good: the last known good.
    """

    def __init__(self, rendering: Rendering, good: LastKnownGood) -> None:
        self._rendering = rendering
        self._good = good

    def compose(
        self, plan: Plan, scope: TenantScope, found: Found, before: Answer | None, now: float
    ) -> Steps[Resolution]:
        """The answer.

        Args:
            plan: how it was read.
            scope: who asks.
            found: what was found.
            before: what is kept of the answer before.
            now: by the clock of ``found.began``.

        Raises:
            BlockResolutionError: a block's policy, or a defect of its source, makes it an error; the first in prompt
                order.
        """
        blocks = []
        last = (None,) * len(plan.places) if before is None else before.resolution.blocks
        for spec, place, old in zip(plan.view.specs, plan.places, last, strict=True):
            kind, position = place
            if kind == "gated":
                block = _unread(spec, "gated") if old is None or old.state != "gated" else old
            else:
                part = _part(found.stored, position) if kind == "stored" else found.readings[position]
                block = yield from self._block(spec, scope, part, old, now)
                if block.state == "fresh" and spec.on_failure.action == "last_known_good":
                    self._good.offer(scope.path, block, found.began, found.epoch)
            blocks.append(block)
        return _answer(plan, scope, tuple(blocks), found.stored, before)

    def _block(
        self, spec: PromptBlockSpec, scope: TenantScope, part: Any, old: ResolvedBlock | None, now: float
    ) -> Steps[ResolvedBlock]:
        if isinstance(part, Wrong):
            if isinstance(part.error, BlockResolutionError):
                raise part.error
            raise BlockContractError(part.reason, block=spec.name, scope=scope.path) from part.error
        if isinstance(part, Failed):
            return self._failed(spec, scope, part.error, now)
        if isinstance(part, BlockRevision):
            rendered = yield from self._rendered(spec, scope, part, old)
            return _reused(old, spec, rendered, part)
        content, rendered = part
        return _reused(old, spec, rendered, content)

    def _rendered(
        self, spec: PromptBlockSpec, scope: TenantScope, revision: BlockRevision, old: ResolvedBlock | None
    ) -> Steps[RenderedBlock]:
        if not spec.is_learned:
            return self._rendering.authored(spec, revision)
        # A caller's own revision need not tell its facts apart; the facts themselves do.
        if old is not None and old.state == "fresh" and old.facts == revision.facts:
            return old.rendered
        if len(revision.require_facts()) <= INLINE_FACTS:
            return self._rendering.learned(spec, scope, revision)
        rendered: RenderedBlock = yield Call(self._rendering.learned, spec, scope, revision)
        return rendered

    def _failed(self, spec: PromptBlockSpec, scope: TenantScope, error: OSError, now: float) -> ResolvedBlock:
        failure = failed(spec, scope, error)
        good = self._good.get(scope.path, spec.name) if spec.on_failure.action == "last_known_good" else None
        age = None if good is None else max(0.0, now - good.at)
        outcome = after_failure(spec.on_failure, age)
        if outcome == "omitted":
            return _unread(spec, "omitted", failure)
        if outcome == "error" or good is None:
            raise failure from error
        rendered = marked(good.block.rendered, spec.on_failure)
        return ResolvedBlock(spec, rendered, good.block.content, "stale", failure, age)


def _part(stored: Stored, position: int) -> Any:
    """What came of one block that the store holds: its content and its text, or what came instead."""
    if isinstance(stored, KeptLanes):
        kept = stored.lanes[position]
        if not isinstance(kept, StoredHead):
            return kept, stored.rendered[position]
        # The very object that was found, so that an answer is known to be the same.
        return (kept.found, stored.rendered[position]) if isinstance(kept.found, BlockRevision) else kept.found
    return stored if isinstance(stored, Failed) or stored is None else stored[position]


def _unread(spec: PromptBlockSpec, state: Any, failure: BlockResolutionError | None = None) -> ResolvedBlock:
    content = BlockRevision(content="", revision="unread", facts=() if spec.is_learned else None)
    return ResolvedBlock(spec, RenderedBlock(name=spec.name, tier=spec.tier, text=""), content, state, failure)


def _reused(
    old: ResolvedBlock | None, spec: PromptBlockSpec, rendered: RenderedBlock, content: Lane | BlockRevision
) -> ResolvedBlock:
    """The block of the answer before where neither its text nor its content moved, else a new one."""
    if (
        old is not None
        and old.state == "fresh"
        and old.rendered is rendered
        and (old.content is content or _is_same(old.content, content))
    ):
        return old
    return ResolvedBlock(spec, rendered, content)


def _is_same(old: Lane | BlockRevision, new: Lane | BlockRevision) -> bool:
    """Whether authored text, read again, is what it was."""
    return isinstance(old, BlockRevision) and isinstance(new, BlockRevision) and old == new


_STRICT: Final = Freshness()


def _answer(
    plan: Plan, scope: TenantScope, blocks: tuple[ResolvedBlock, ...], stored: Stored, before: Answer | None
) -> Resolution:
    heads = stored.heads if isinstance(stored, KeptLanes) else None
    freshness = _freshness(blocks)
    memo: dict[object, Any] = {}
    if before is not None and freshness is _STRICT and before.is_whole:
        old = before.resolution
        if all(new is one for new, one in zip(blocks, old.blocks, strict=True)):
            if heads == old.heads:
                return old
            blocks = old.blocks
        if all(new.text == one.text for new, one in zip(blocks, old.blocks, strict=True)):
            # Other facts under equal texts, as another time of the same day. The memo goes along: it is about texts.
            memo = old.memo
    return Resolution(scope, blocks, heads, freshness, plan.view.left_out, memo)


def _freshness(blocks: tuple[ResolvedBlock, ...]) -> Freshness:
    detail = []
    for block in blocks:
        if block.failure is not None and block.state == "stale":
            detail.append(f"{block.name}: as it was last read, {block.age:.0f} s ago; {block.failure.reason}")
        elif block.failure is not None:
            detail.append(f"{block.name}: left out; {block.failure.reason}")
    return Freshness(strict=False, detail=tuple(detail)) if detail else _STRICT
