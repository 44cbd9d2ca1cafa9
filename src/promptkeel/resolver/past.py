"""Blocks that the store holds, as they were at heads of the past, rendered as blocks are today."""

from __future__ import annotations

from collections.abc import Sequence

from promptkeel.blocks.lanes import MemoryLane
from promptkeel.blocks.spec import PromptBlockSpec
from promptkeel.lane import Lane
from promptkeel.model import BlockRevision
from promptkeel.render import RenderedBlock
from promptkeel.resolver.heads import read_head
from promptkeel.resolver.rendering import Rendering
from promptkeel.resolver.values import ResolvedBlock
from promptkeel.scope import TenantScope
from promptkeel.store.authored import head_label
from promptkeel.store.base import Engine, Heads, LaneUpdate
from promptkeel.store.history import lane_row


def blocks_as_of(
    engine: Engine, specs: Sequence[PromptBlockSpec], rendering: Rendering, scope: TenantScope, heads: Heads
) -> dict[str, ResolvedBlock]:
    """Blocks by name; what was erased since, or cannot be read as a block, is not among them or not in their text.

    Raises:
        CompactedError: the history no longer reaches back to these heads, or they are not of this store.
        StoreUnavailableError: the store could not be read.
    """
    found = {}
    for spec in specs:
        content = _content_as_of(engine, spec, scope, heads)
        if content is not None:
            found[spec.name] = ResolvedBlock(spec, _rendered(rendering, spec, scope, content), content)
    return found


def _content_as_of(
    engine: Engine, spec: PromptBlockSpec, scope: TenantScope, heads: Heads
) -> Lane | BlockRevision | None:
    source = spec.source
    prefix = source.label_prefix if isinstance(source, MemoryLane) else head_label(spec.name)
    rows = [lane_row(node) for node in engine.nodes_as_of(scope, heads, prefix).nodes]
    if isinstance(source, MemoryLane):
        return Lane.build(rows, prefix=prefix, profile_fields=source.profile_fields)
    content = read_head(LaneUpdate(rows, whole=True), spec, scope).found
    return content if isinstance(content, BlockRevision) else None


def _rendered(
    rendering: Rendering, spec: PromptBlockSpec, scope: TenantScope, content: Lane | BlockRevision
) -> RenderedBlock:
    if not spec.is_learned:
        assert isinstance(content, BlockRevision)  # noqa: S101 - a lane is learned
        return rendering.authored(spec, content)
    kept = rendering.kept(spec, scope, content.revision)
    if kept is not None:
        return kept
    return rendering.learned(spec, scope, content.to_revision() if isinstance(content, Lane) else content)
