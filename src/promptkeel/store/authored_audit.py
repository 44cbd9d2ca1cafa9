"""What is wrong with the stored histories of authored blocks: hashes, parents, heads. Pure, the same for every store.

What an audit can know: a content or a provenance that does not have its own hash, a revision that is gone and was never
erased, one that is no head and should be, or the other way round, and rows of the reserved namespace that are no
revision at all. Who can write the database can write new hashes too: no signature is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from promptkeel.errors import PromptkeelError
from promptkeel.model import MemoryNode, State
from promptkeel.scope import TenantScope
from promptkeel.store.audit import Finding, shown_scope
from promptkeel.store.authored import (
    REMEDY,
    AuthoredRevision,
    block_of,
    head_label,
    is_of_namespace,
    revision_id,
    revision_of,
)


def chain_findings(nodes: Iterable[MemoryNode], is_erased: Callable[[str, str], bool]) -> Iterator[Finding]:
    """Everything that is wrong with the histories of authored blocks.

    Args:
        nodes: at least every one of the reserved namespace, in every state.
        is_erased: whether a node of this root and id was erased.
    """
    chosen = sorted(filter(is_of_namespace, nodes), key=lambda node: (*_history_of(node), node.id))
    for _, group in groupby(chosen, key=_history_of):
        members = list(group)
        revisions: list[AuthoredRevision] = []
        for node in members:
            try:
                revisions.append(revision_of(node))
            except PromptkeelError as error:
                yield _finding(node.id, node.scope, str(error))
        yield from _chain(sorted(revisions, key=lambda each: each.number), members, is_erased)


def _history_of(node: MemoryNode) -> tuple[str, str]:
    return node.scope.path, block_of(node.label)


def _chain(
    revisions: Sequence[AuthoredRevision], nodes: Sequence[MemoryNode], is_erased: Callable[[str, str], bool]
) -> Iterator[Finding]:
    states: dict[str, State] = {node.id: node.state for node in nodes}
    labels = {node.id: node.label for node in nodes}
    present = {each.number for each in revisions}

    def is_gone(revision: AuthoredRevision, number: int) -> bool:
        return is_erased(revision.scope.root, revision_id(revision.scope, revision.block, number))

    for each in revisions:
        if not each.is_intact:
            yield _finding(each.id, each.scope, "is not what its author wrote: content or provenance was changed")
        before = each.number - 1
        expected = revision_id(each.scope, each.block, before) if before else None
        if before and before not in present and not is_gone(each, before):
            yield _finding(each.id, each.scope, f"follows revision {before}, which is gone and was never erased")
        if each.parent != expected and not (each.parent is None and is_gone(each, before)):
            yield _finding(each.id, each.scope, "names another revision as its parent than the one before it")
        is_last = each is revisions[-1]
        if (states[each.id] == "live") != (labels[each.id] == head_label(each.block)):
            yield _finding(each.id, each.scope, f"is {states[each.id]} under the label {labels[each.id]!r}")
        if states[each.id] == "live" and not is_last:
            yield _finding(each.id, each.scope, "is a head although later revisions are there")
        elif states[each.id] == "retracted":
            yield _finding(each.id, each.scope, "is retracted, which no revision can be")
        elif states[each.id] == "superseded" and is_last and not is_gone(each, each.number + 1):
            yield _finding(each.id, each.scope, "is the last revision and no head: the block has none")


def _finding(node_id: str, scope: TenantScope, what: str) -> Finding:
    return Finding("revision_wrong", f"revision {node_id!r} at {shown_scope(scope.path)}", what, REMEDY)
