"""Bases: prompts that are pinned, made again from what is kept of them, and held against erasures.

A base is made again by reading the store as of its heads and rendering that as it is rendered today; each block is then
held against the seal that was kept with it. What was erased, compacted, declared otherwise or rendered by another
version does not have it any more: the base is lost, and the conversation needs another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, final

import attrs

from promptkeel.blocks import PromptBlockSpec
from promptkeel.conversations.records import BaseRecord, PinnedBlock, keyed_hash
from promptkeel.errors import CompactedError
from promptkeel.model import BlockFact, BlockRevision
from promptkeel.prompt import BuilderCore, Prompt
from promptkeel.prompt.shown import shown_nodes
from promptkeel.render import RenderedBlock
from promptkeel.resolver import Freshness, Resolution, ResolvedBlock
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Steps
from promptkeel.store.base import Engine, Heads
from promptkeel.tokens import TokenCounter

PINNED: Final = "pinned for a conversation: what has changed since stands in its messages"
_OVER_BUDGET: Final = "over the budget of the prompt"


@final
@attrs.frozen(eq=False)
class Base:
    """A pinned prompt.

    Attributes:
        record: how it can be made again.
        prompt: its stable blocks, marked as pinned.
        shown: the ids of the store's nodes that it shows.
        verified: the heads at which nothing that it shows was erased.
        is_clean: whether nothing at all was erased, where the scope sees it, between its own heads and these.
    """

    record: BaseRecord
    prompt: Prompt
    shown: frozenset[str]
    verified: Heads
    is_clean: bool = True

    @property
    def id(self) -> str:
        """The id, which follows from the text."""
        return self.record.id


def pinned(prompt: Prompt, heads: Heads, *, erasures: str, at: int, secret: bytes, key: str) -> Base:
    """The base that a prompt makes.

    Args:
        prompt: what memory says now.
        heads: at which it holds.
        erasures: a seal of the erasures known then.
        at: the present instant.
        secret: the store's.
        key: the conversation's.
    """
    blocks = [block for block in prompt.blocks if block.spec.layer == "stable"]
    kept = tuple(_pinned_block(block, prompt.counter, secret, key) for block in blocks)
    # After an erasure the id is another one even for equal blocks: what was said under the old one no longer counts.
    known = erasures or repr(heads.to_json())
    parts = (part for block in kept for part in (block.name, block.seal))
    # Short, since every delta names it; a conversation has a handful of bases.
    base_id = keyed_hash(secret, "base", key, known, *parts)[:6]
    record = BaseRecord(base_id, at, heads, erasures, kept)
    shown = shown_nodes(blocks, prompt.scope)
    return Base(record, _prompt_of(blocks, heads, prompt), shown, heads, bool(erasures))


def _pinned_block(block: ResolvedBlock, counter: TokenCounter, secret: bytes, key: str) -> PinnedBlock:
    narrowed = any(omission.reason == _OVER_BUDGET for omission in block.omitted)
    # Text of memory is never copied: what cannot be read again at these heads cannot be made again.
    is_memory = block.spec.is_stored and bool(block.text)
    return PinnedBlock(
        name=block.name,
        tier=block.spec.tier,
        state=block.state,
        seal=_seal(secret, key, block.name, block.text),
        text=None if is_memory else block.text,
        room=counter(block.text) if narrowed and block.text else None,
        facts=None if is_memory or not block.is_learned or block.state == "omitted" else tuple(map(tuple, block.facts)),
    )


def _seal(secret: bytes, key: str, name: str, text: str) -> str:
    return keyed_hash(secret, "block", key, name, text)[:32]


def _prompt_of(blocks: Iterable[ResolvedBlock], heads: Heads, like: Prompt) -> Prompt:
    resolution = Resolution(like.scope, tuple(blocks), heads, Freshness(strict=False, detail=(PINNED,)))
    return Prompt(resolution, like.counter, like.keys, like.rules)


def made_again(
    record: BaseRecord, builder: BuilderCore, like: Prompt, *, secret: bytes, key: str
) -> Steps[Base | None]:
    """The base of a record; None where its bytes cannot be made again.

    Args:
        record: what was kept of it.
        builder: builds the prompts of the keel.
        like: a prompt of the same scope.
        secret: the store's.
        key: the conversation's.

    Raises:
        StoreUnavailableError: the store could not be read.
    """
    scope, counter = like.scope, like.counter
    declared = {spec.name: spec for spec in builder.resolver.specs if spec.layer == "stable"}
    wanted = [block.name for block in record.blocks if block.text is None]
    try:
        past = yield from builder.resolver.as_of(scope, record.heads, wanted)
    except CompactedError:
        return None
    blocks = []
    for block in record.blocks:
        spec = declared.get(block.name)
        found = None if spec is None or spec.tier != block.tier else _found(block, spec, past)
        if found is not None and block.room is not None:
            rendered: RenderedBlock = yield Call(builder.resolver.narrowed, found, scope, block.room, counter.name)
            found = attrs.evolve(found, rendered=rendered)
        if found is None or _seal(secret, key, block.name, found.text) != block.seal:
            return None
        blocks.append(found)
    return Base(record, _prompt_of(blocks, record.heads, like), shown_nodes(blocks, scope), record.heads)


def _found(block: PinnedBlock, spec: PromptBlockSpec, past: dict[str, ResolvedBlock]) -> ResolvedBlock | None:
    if block.text is None:
        return past.get(block.name)
    if block.text and (block.facts is not None) != spec.is_learned:
        return None
    facts = tuple(map(_fact_of, block.facts or ())) if spec.is_learned else None
    content = BlockRevision(content="", revision="pinned", facts=facts)
    rendered = RenderedBlock(name=block.name, tier=block.tier, text=block.text)
    return ResolvedBlock(spec, rendered, content, block.state)


def _fact_of(parts: tuple[Any, ...]) -> BlockFact:
    # Unchecked, as it was when it was pinned.
    return tuple.__new__(BlockFact, parts)


@final
@attrs.frozen(order=False)
class Erasures:
    """Every erasure that a scope sees.

    Attributes:
        seal: a keyed hash of them, without how far each has come.
        nodes: the ids of the nodes that were erased.
    """

    seal: str
    nodes: frozenset[str]


def erasures_at(engine: Engine, scope: TenantScope, secret: bytes) -> Erasures:
    """Every erasure that a scope sees.

    Raises:
        StoreUnavailableError: the store could not be read.
    """
    known = [receipt for level in scope.chain for receipt in engine.receipts(TenantScope.parse(level))]
    spelled = sorted(f"{receipt.scope}\0{receipt.node_id}\0{receipt.at}" for receipt in known)
    seal = keyed_hash(secret, "erasures", *spelled)[:32]
    return Erasures(seal, frozenset(receipt.node_id for receipt in known))


def may_be_erased(engine: Engine, scope: TenantScope, since: Heads) -> tuple[Heads, frozenset[str] | None]:
    """The present heads, and the ids of the nodes that may have been erased since; None: nobody can say which.

    Raises:
        StoreUnavailableError: the store could not be read.
    """
    changes = engine.changes(scope, since, None)
    if changes.changes is None:
        return changes.heads, None
    return changes.heads, frozenset(change.node_id for change in changes.changes if change.label_after is None)
