"""What it means to append a revision to an authored block, decided once for every store, inside its transaction.

An append is a compare-and-set on the head: the newest revision goes out of its lane as superseded, and the new one
takes its place. Nothing here reads a clock.
"""

from __future__ import annotations

from typing import cast

import attrs

from promptkeel.errors import NodeErasedError, NodeNotFoundError, RevisionConflictError, StoreDamagedError
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.authored import (
    NO_REVISION,
    AuthoredRevision,
    block_of,
    head_label,
    number_of,
    past_label,
    revision_id,
    revision_node,
    revision_of,
)
from promptkeel.store.operations import AdoptRevision, AppendBlock, Outcome, Transaction
from promptkeel.store.stamping import stamped


def append(transaction: Transaction, operation: AppendBlock, now: int) -> Outcome:
    """Append what is not the head's content already.

    Raises:
        RevisionConflictError: the head is not the expected one.
    """
    scope, block = operation.scope, operation.block
    head = transaction.find_live(scope, head_label(block))
    _check_head(operation, head)
    if head is not None and _says(head, operation.content):
        return Outcome("unchanged", head)
    number = 1 if head is None else number_of(head, block) + 1
    while _is_used(transaction, scope, revision_id(scope, block, number)):
        number += 1
    node = revision_node(
        scope=scope,
        block=block,
        number=number,
        content=operation.content,
        author=operation.author,
        recorded=now,
        message=operation.message,
        parent=None if head is None else head.id,
        restored=operation.restored,
        trust=operation.trust,
    )
    return Outcome("appended", _become_head(transaction, node, head, now))


def _check_head(operation: AppendBlock, head: MemoryNode | None) -> None:
    expected = cast("str | None", operation.expected_head)
    if expected is None or expected == (NO_REVISION if head is None else head.id):
        return
    now = "there is none" if head is None else f"the head is {head.id!r}"
    saw = f"not {expected!r}" if expected else "and none was expected"
    raise RevisionConflictError(
        f"{now}, {saw}; read it again and append to what is there",
        block=operation.block,
        scope=operation.scope.path,
        expected=expected,
        actual=None if head is None else head.id,
    )


def _says(head: MemoryNode, content: str) -> bool:
    try:
        revision = revision_of(head)
    except StoreDamagedError:
        # A new revision is what mends a head that was changed past promptkeel.
        return False
    return revision.is_intact and revision.content == content


def _is_used(transaction: Transaction, scope: TenantScope, node_id: str) -> bool:
    return transaction.find(scope.root, node_id) is not None or transaction.is_erased(scope.root, node_id)


def _become_head(transaction: Transaction, node: MemoryNode, head: MemoryNode | None, now: int) -> MemoryNode:
    if head is not None:
        past = attrs.evolve(head, state="superseded", label=past_label(block_of(head.label)), updated_at=now)
        transaction.update(past, head)
    node = stamped(node, now)
    transaction.insert(node)
    return node


def adopt(transaction: Transaction, operation: AdoptRevision, now: int) -> Outcome:
    """Take a revision of another store as the head.

    Raises:
        RevisionConflictError: it does not follow the head that is here.
        NodeErasedError: it was erased here.
        NodeNotFoundError: the one that it follows is not here.
    """
    revision = revision_of(operation.node)
    scope, root = revision.scope, revision.scope.root
    present = transaction.find(root, revision.id)
    if present is not None:
        if revision_of(present).digest != revision.digest:
            raise _unfit(revision, "is there and says something else", present)
        return Outcome("unchanged", present)
    if transaction.is_erased(root, revision.id) and not operation.force_erased:
        raise NodeErasedError(f"revision {revision.number} of block {revision.block} was erased")
    head = transaction.find_live(scope, operation.node.label)
    if head is not None and number_of(head, revision.block) > revision.number:
        raise _unfit(revision, "is older than the head", head)
    _check_parent(transaction, operation, head, now)
    node = attrs.evolve(operation.node, state="live", created_at=None, updated_at=None)
    return Outcome("inserted", _become_head(transaction, node, head, now))


def _check_parent(transaction: Transaction, operation: AdoptRevision, head: MemoryNode | None, now: int) -> None:
    """Whether a revision follows what is here; what is missing before it counts as erased where that is allowed."""
    revision = revision_of(operation.node)
    before = revision.number - 1
    expected = revision_id(revision.scope, revision.block, before) if before else None
    if revision.parent not in (None, expected):
        raise _unfit(revision, "names another revision as its parent than the one before it", head)
    if head is not None and head.id == expected and revision.parent is None:
        raise _unfit(revision, "does not name the head as its parent", head)
    if expected is None or _is_used(transaction, revision.scope, expected):
        return
    if not operation.bridges:
        raise NodeNotFoundError(f"revision {before} of block {revision.block}, which it follows, is not there")
    transaction.erase(MemoryNode(id=expected, scope=revision.scope, label="-"), now)


def _unfit(revision: AuthoredRevision, what: str, head: MemoryNode | None) -> RevisionConflictError:
    return RevisionConflictError(
        f"revision {revision.number} {what}",
        block=revision.block,
        scope=revision.scope.path,
        expected=revision.parent or NO_REVISION,
        actual=None if head is None else head.id,
    )
