"""What a store itself writes on a node: the times that were left out, and its state. Pure; the instant is handed in."""

from __future__ import annotations

import attrs

from promptkeel.model import NOT_GIVEN, MemoryNode, State
from promptkeel.store.operations import Transaction


def stamped(node: MemoryNode, now: int) -> MemoryNode:
    """A new node with the times that were left out."""
    created = now if node.created is None else node.created
    return attrs.evolve(
        node,
        created_at=created,
        updated_at=now if node.updated is None else node.updated,
        recorded_at=created if node.recorded is NOT_GIVEN else node.recorded,
    )


def with_state(transaction: Transaction, current: MemoryNode, state: State, now: int) -> MemoryNode:
    """The node in another state, which is written."""
    node = attrs.evolve(current, state=state, updated_at=now)
    transaction.update(node, current)
    return node
