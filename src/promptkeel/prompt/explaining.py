"""Which write moved a prompt: the difference of two prompts, and what the store knows of the facts in it."""

from __future__ import annotations

from typing import final

import attrs

from promptkeel.errors import NodeErasedError, NodeNotFoundError
from promptkeel.model import MemoryNode
from promptkeel.prompt.comparing import Divergence
from promptkeel.prompt.prompt import Prompt
from promptkeel.providers.rules import ModelRules
from promptkeel.steps import Steps
from promptkeel.store.facade import StoreCore


@final
@attrs.frozen(order=False)
class Write:
    """What the store says of a node whose fact came or went.

    Attributes:
        node_id: which node.
        what: ``remembered``, ``corrected``, ``retracted``, ``superseded`` or ``erased``; ``unknown`` where the scope
            does not see it any more.
        node: the node as it is now; None of an erased or unknown one.
    """

    node_id: str
    what: str
    node: MemoryNode | None = None


@final
@attrs.frozen(order=False)
class Explanation:
    """Why a prompt is not what it was.

    Attributes:
        divergence: the first byte that differs, and what it costs.
        writes: what was done to each node whose facts came or went there, in the order of the facts.
    """

    divergence: Divergence
    writes: tuple[Write, ...]


def explain_steps(
    store: StoreCore, before: Prompt, after: Prompt, *, rules: ModelRules | None = None, kept_behind: int = 0
) -> Steps[Explanation | None]:
    """Why a prompt is not what it was; None where it is.

    Args:
        store: the open store.
        before: the earlier prompt.
        after: the later one, of the same scope.
        rules: of the model, for prices.
        kept_behind: tokens that a cache kept behind the earlier prompt, as the history of a conversation.

    Raises:
        StoreUnavailableError: the store could not be read.
    """
    divergence = after.explain(before, rules=rules, kept_behind=kept_behind)
    if divergence is None:
        return None
    writes = []
    node_ids = dict.fromkeys(change.fact.node_id for change in divergence.facts if change.fact.node_id is not None)
    for node_id in node_ids:
        write = yield from _write(store, after, node_id)
        writes.append(write)
    return Explanation(divergence, tuple(writes))


def _write(store: StoreCore, prompt: Prompt, node_id: str) -> Steps[Write]:
    try:
        history = yield from store.history(prompt.scope, node_id)
    except NodeErasedError:
        return Write(node_id, "erased")
    except NodeNotFoundError:
        return Write(node_id, "unknown")
    node = history.versions[-1]
    if node.state == "live":
        return Write(node_id, "remembered" if len(history.versions) == 1 else "corrected", node)
    return Write(node_id, node.state, node)
