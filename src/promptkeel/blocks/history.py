"""The history of authored blocks: appended to, read, compared, and brought back by appending again.

Written once as steps; ``keel.blocks`` is its two public forms. Every revision is kept until it is erased, whatever the
log's retention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from promptkeel.blocks.difference import RevisionDiff, difference
from promptkeel.errors import InvalidInputError, NodeErasedError, NodeNotFoundError
from promptkeel.model import Trust
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Steps, as_async, as_blocking
from promptkeel.store.arguments import check_limit, check_scope
from promptkeel.store.authored import (
    CONTENT_LIMIT,
    AuthoredRevision,
    check_block_name,
    head_label,
    intact,
    revision_id,
    revision_ids,
    revision_of,
)
from promptkeel.store.base import Engine, Heads
from promptkeel.store.facade import StoreCore
from promptkeel.store.operations import AppendBlock

_FEW: Final = 50
"""As many revisions are read one by one; more in one scan of the history."""

RevisionName = AuthoredRevision | str | int
"""A revision, its id, or its number."""


@final
class HistoryCore:
    """The history of authored blocks, as steps.

    Args:
        store: answers the open store.
    """

    def __init__(self, store: Callable[[], StoreCore]) -> None:
        self._store = store

    def append(
        self,
        scope: TenantScope,
        name: str,
        content: str,
        *,
        author: str,
        message: str | None = None,
        expected_head: AuthoredRevision | str | None = None,
        trust: Trust = "operator",
        max_bytes: int = CONTENT_LIMIT,
    ) -> Steps[AuthoredRevision]:
        """Append a revision; where the head says exactly this already, it is answered and nothing is written.

        Args:
            scope: where the block is stored, which is the level that its source declares.
            name: the block's name.
            content: the text, kept as it is given.
            author: who writes it.
            message: why.
            expected_head: the revision that was read, or its id: refused if it is the head no more. "" is that there
                is none yet; None is whatever is there.
            trust: whose words these are; only an operator's are shown as authored text.
            max_bytes: the bound of the content in UTF-8.

        Raises:
            RevisionConflictError: the head is another than expected.
            ContentTooLargeError: the content is larger than that.
            InvalidInputError: something else is nothing that a store can take.
        """
        appended = AppendBlock(
            scope=scope,
            block=name,
            content=content,
            author=author,
            message=message,
            expected_head=expected_head,
            trust=trust,
            max_bytes=max_bytes,
        )
        return (yield from self._append(appended))

    def _append(self, operation: AppendBlock) -> Steps[AuthoredRevision]:
        (outcome,) = yield from self._store().apply((operation,))
        assert outcome.node is not None  # noqa: S101 - what an append answers
        return revision_of(outcome.node)

    def head(self, scope: TenantScope, name: str, *, as_of: Heads | None = None) -> Steps[AuthoredRevision | None]:
        """The newest revision at exactly this scope; None where there is none.

        Args:
            scope: where the block is stored.
            name: the block's name.
            as_of: the store's heads at a time in the past, for the head then.

        Raises:
            CompactedError: the history no longer reaches back to these heads.
        """
        label = head_label(check_block_name(name))
        store = self._store()
        if as_of is None:
            nodes = yield from store.query_nodes(scope, label_prefix=label)
        else:
            nodes = (yield from store.nodes_as_of(scope, as_of, label_prefix=label)).nodes
        found = [revision_of(node) for node in nodes if node.scope == scope]
        return max(found, key=lambda each: each.number, default=None)

    def log(self, scope: TenantScope, name: str, *, limit: int | None = None) -> Steps[Sequence[AuthoredRevision]]:
        """Every revision at exactly this scope, newest first; at most ``limit`` of them, where one is given."""
        check_scope(scope)
        check_block_name(name)
        limit = check_limit(limit)
        found: list[AuthoredRevision] | None = None
        if limit is not None and limit <= _FEW:
            found = yield Call(_newest, self._store().engine, scope, name, limit)
        if found is None:
            found = yield Call(_every, self._store().engine, scope, name)
        return tuple(found[:limit])

    def show(self, scope: TenantScope, name: str, revision: RevisionName) -> Steps[AuthoredRevision]:
        """One revision, by its id or its number.

        Raises:
            NodeErasedError: it was erased.
            NodeNotFoundError: there is none at this scope.
            StoreDamagedError: it is not what its author wrote.
        """
        check_scope(scope)
        check_block_name(name)
        asked = _id_of(scope, name, revision)
        shown = f"revision {revision}" if isinstance(revision, int) else f"revision {asked!r}"
        where = f"block {name} at scope {scope.path or '(deployment)'}"
        try:
            node = yield from self._store().get(scope, asked)
        except NodeErasedError:
            raise NodeErasedError(f"{shown} of {where} was erased") from None
        except NodeNotFoundError:
            raise NodeNotFoundError(f"there is no {shown} of {where}") from None
        if node.scope != scope or not node.id.startswith(revision_ids(scope, name)):
            raise NodeNotFoundError(f"there is no {shown} of {where}")
        return intact(revision_of(node))

    def diff(self, scope: TenantScope, name: str, old: RevisionName, new: RevisionName) -> Steps[RevisionDiff]:
        """What differs between two revisions; errors as for ``show``."""
        first = yield from self.show(scope, name, old)
        second = yield from self.show(scope, name, new)
        return difference(first, second)

    def restore(
        self,
        scope: TenantScope,
        name: str,
        revision: RevisionName,
        *,
        author: str,
        message: str | None = None,
        expected_head: AuthoredRevision | str | None = None,
    ) -> Steps[AuthoredRevision]:
        """Append an older revision's content again; the new one names it in ``restored`` and has its trust.

        Raises:
            RevisionConflictError: the head is another than expected.
            NodeNotFoundError: there is no such revision, or it was erased.
        """
        old = yield from self.show(scope, name, revision)
        appended = AppendBlock(
            scope=scope,
            block=name,
            content=old.content,
            author=author,
            message=message,
            expected_head=expected_head,
            restored=old.id,
            trust="operator" if old.trust is None else old.trust,
            max_bytes=max(CONTENT_LIMIT, len(old.content.encode())),
        )
        return (yield from self._append(appended))


def _every(engine: Engine, scope: TenantScope, name: str) -> list[AuthoredRevision]:
    return sorted(map(revision_of, engine.revisions(scope, name)), key=lambda each: -each.number)


def _newest(engine: Engine, scope: TenantScope, name: str, limit: int) -> list[AuthoredRevision] | None:
    """The newest revisions, one by one; None where there is no head to begin with."""
    label = head_label(name)
    heads = [node for node in engine.query_nodes(scope, label, None) if node.scope == scope]
    if not heads:
        return None
    found = [revision_of(heads[0])]
    number = found[0].number
    while len(found) < limit and number > 1:
        number -= 1
        try:
            node = engine.get(scope, revision_id(scope, name, number))
        except NodeNotFoundError:
            continue  # it was erased
        found.append(revision_of(node))
    return found[:limit]


def _id_of(scope: TenantScope, name: str, revision: RevisionName) -> str:
    if isinstance(revision, AuthoredRevision):
        return revision.id
    if type(revision) is int:
        return revision_id(scope, name, revision)
    if isinstance(revision, str):
        return revision
    raise InvalidInputError(f"must be a revision, its id or its number, not {revision!r:.40}", field="revision")


@final
class BlockHistory:
    """The history of authored blocks, asynchronous: ``keel.blocks``."""

    def __init__(self, core: HistoryCore) -> None:
        self.core = core

    append = as_async(HistoryCore.append)
    head = as_async(HistoryCore.head)
    log = as_async(HistoryCore.log)
    show = as_async(HistoryCore.show)
    diff = as_async(HistoryCore.diff)
    restore = as_async(HistoryCore.restore)


@final
class BlockingBlockHistory:
    """The history of authored blocks, blocking: ``keel.blocks`` of ``promptkeel.blocking``."""

    def __init__(self, core: HistoryCore) -> None:
        self.core = core

    append = as_blocking(HistoryCore.append)
    head = as_blocking(HistoryCore.head)
    log = as_blocking(HistoryCore.log)
    show = as_blocking(HistoryCore.show)
    diff = as_blocking(HistoryCore.diff)
    restore = as_blocking(HistoryCore.restore)
