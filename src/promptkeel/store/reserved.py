"""The namespaces that belong to promptkeel: labels and ids that nobody who may remember can take. Pure.

What is kept there are nodes like any other, so that heads, log, snapshots, copies, backups, audits and erasures hold
for it; it is in no lane, and each namespace is written in one way alone.
"""

from __future__ import annotations

from typing import Final

from promptkeel.errors import ReservedLabelError
from promptkeel.model import MemoryNode

AUTHORED: Final = "@block:"
"""Labels and ids that begin with this belong to authored blocks."""
CONVERSATIONS: Final = "@conversation:"
"""Labels and ids that begin with this belong to the state of conversations."""

_OWNERS: Final = {
    AUTHORED: "authored blocks: they change by appending a revision",
    CONVERSATIONS: "the state of conversations, which their turns write",
}


def check_not_reserved(text: object, *, field: str, where: str | None = None) -> None:
    """Nothing, where a label or an id belongs to no reserved namespace.

    Raises:
        ReservedLabelError: it does.
    """
    if not isinstance(text, str):
        return
    for namespace, owner in _OWNERS.items():
        if text.startswith(namespace):
            raise ReservedLabelError(
                f"begins with {namespace!r}, which is reserved for {owner}", field=field, where=where
            )


def reached_namespace(label_prefix: str) -> str | None:
    """The reserved namespace that a lane of this prefix could show something of; None where there is none."""
    for namespace in _OWNERS:
        if label_prefix.startswith(namespace) or namespace.startswith(label_prefix):
            return namespace
    return None


def is_conversation_state(node: MemoryNode) -> bool:
    """Whether a node belongs to the state of conversations, by its label or its id."""
    return node.label.startswith(CONVERSATIONS) or node.id.startswith(CONVERSATIONS)
