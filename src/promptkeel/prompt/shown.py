"""Which nodes of the store resolved blocks show, and whether any of them has been erased since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from promptkeel.blocks import StoredSource
from promptkeel.errors import NodeNotFoundError
from promptkeel.resolver import ResolvedBlock
from promptkeel.scope import TenantScope
from promptkeel.store.authored import revision_id
from promptkeel.store.base import Engine, Heads


def shown_nodes(blocks: Iterable[ResolvedBlock], scope: TenantScope) -> frozenset[str]:
    """The ids of the nodes that the store's own blocks say something of."""
    return frozenset(node_id for block in blocks for node_id in _shown_by(block, scope))


def _shown_by(block: ResolvedBlock, scope: TenantScope) -> Iterator[str]:
    if block.state == "omitted":
        return
    if isinstance(block.spec.source, StoredSource) and block.text:
        number = int(block.revision_id.split(":")[1])
        yield revision_id(block.spec.source.place(scope), block.name, number)
        return
    for fact in block.facts:
        if fact.node_id is not None:
            yield fact.node_id


def unerased_at(engine: Engine, scope: TenantScope, since: Heads, shown: frozenset[str]) -> Heads | None:
    """The present heads, where everything that is shown is still there in some state; else None.

    Args:
        engine: the store.
        scope: who asks.
        since: heads at which all of it was there.
        shown: the ids of nodes.

    Raises:
        StoreUnavailableError: the store could not be read.
    """
    changes = engine.changes(scope, since, None)
    if changes.changes is None:
        # The log was cut: by an erasure, or by a compaction, which takes nothing away that is shown.
        suspects = shown
    else:
        suspects = frozenset(change.node_id for change in changes.changes if change.label_after is None) & shown
    for node_id in suspects:
        try:
            engine.get(scope, node_id)
        except NodeNotFoundError:
            return None
    return changes.heads
