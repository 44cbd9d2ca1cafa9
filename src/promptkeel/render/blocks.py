"""One block's text: authored text verbatim, learned facts inside a fence, limits kept and said.

Structure stands only at the start of a line, and no learned text begins a line. What a limit leaves out is counted in
the block and listed in the result.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Final, final

import attrs

from promptkeel.errors import InvalidDeclarationError, InvalidTextError
from promptkeel.model import BlockFact, BlockRevision
from promptkeel.render.facts import body_of, newest_last
from promptkeel.render.literals import FENCE_NAME
from promptkeel.render.policy import RenderPolicy
from promptkeel.text import trim
from promptkeel.tokens import token_counter

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")


@final
@attrs.frozen(order=False)
class Omission:
    """A fact that a limit left out of a block.

    Attributes:
        fact: which fact.
        reason: which limit.
    """

    fact: BlockFact
    reason: str


@final
@attrs.frozen(kw_only=True, order=False)
class RenderedBlock:
    """One block as the model gets it.

    Attributes:
        name: the block's name.
        tier: its tier.
        text: header and all; "" where there is nothing to say.
        omitted: what limits left out, in rendered order.
        facts_shown: how many facts are in the text.
        fingerprint: SHA-256 of the text as UTF-8.
    """

    name: str
    tier: str
    text: str
    omitted: tuple[Omission, ...] = ()
    facts_shown: int = 0
    fingerprint: str = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "fingerprint", hashlib.sha256(self.text.encode()).hexdigest())


def render_block(
    name: str, revision: BlockRevision, *, tier: str, policy: RenderPolicy, room: int | None = None
) -> RenderedBlock:
    """The block of a revision: learned where the revision has facts, authored where it has none.

    Args:
        name: the block's name.
        revision: what it says.
        tier: its tier.
        policy: how it is rendered.
        room: the most tokens that the rest of a prompt leaves to a learned block; None is any number.

    Raises:
        InvalidDeclarationError: the name or the tier is no plain word, or a learned block has no fence.
        InvalidTextError: authored text is not encodable as UTF-8.
    """
    for field, word in (("name", name), ("tier", tier)):
        if _NAME.fullmatch(word) is None:
            raise InvalidDeclarationError(
                "must be 1 to 64 ASCII letters, digits, points, hyphens, underscores or colons, the first a letter "
                f"or a digit, not {word!r}",
                field=field,
            )
    header = f"### {tier.upper()} / {name}"
    if revision.facts is None:
        return RenderedBlock(name=name, tier=tier, text=_authored(name, header, revision.content))
    if policy.fence is None:
        raise InvalidDeclarationError(
            "is not given, and learned text needs one; take it from the store: fence_id(secret, scope.root)",
            field="RenderPolicy.fence",
            where=f"block {name}",
        )
    fence = f"{FENCE_NAME}-{policy.fence}"
    opening = f'{header}\n<{fence} block="{name}">'
    text, omitted = _learned(revision.facts, policy, room, opening, f"</{fence}>")
    return RenderedBlock(
        name=name, tier=tier, text=text, omitted=omitted, facts_shown=len(revision.facts) - len(omitted)
    )


def _authored(name: str, header: str, content: str) -> str:
    if not trim(content):
        return ""
    try:
        content.encode()
    except UnicodeEncodeError as error:
        raise InvalidTextError(
            f"holds a lone surrogate at position {error.start}; remove it", field="content", where=f"block {name}"
        ) from None
    return f"{header}\n" + content.strip("\r\n")


def _learned(
    facts: Sequence[BlockFact], policy: RenderPolicy, room: int | None, opening: str, closing: str
) -> tuple[str, tuple[Omission, ...]]:
    ordered = newest_last(facts)
    too_long, too_many, too_costly = _reasons(policy)
    limit = policy.max_tokens
    if room is not None and (limit is None or room < limit):
        # Without the number, which moves whenever anything else in the prompt does.
        limit, too_costly = room, "over the budget of the prompt"
    reasons: list[str | None] = [None] * len(ordered)
    if policy.max_fact_characters is not None:
        for position, fact in enumerate(ordered):
            if len(fact.text) > policy.max_fact_characters:
                reasons[position] = too_long
    kept = [position for position, reason in enumerate(reasons) if reason is None]
    if policy.max_facts is not None and len(kept) > policy.max_facts:
        for position in kept[: -policy.max_facts]:
            reasons[position] = too_many
        kept = kept[-policy.max_facts :]
    longs = reasons.count(too_long)
    manys = reasons.count(too_many)
    body = body_of([ordered[position] for position in kept], block_form=policy.block_form)

    def text_of_newest(number: int) -> str:
        left_out = ((manys, too_many), (len(kept) - number, too_costly), (longs, too_long))
        notice = _notice([(count, reason) for count, reason in left_out if count])
        inner = [*notice, *body.since(len(kept) - number)]
        return "\n".join([opening, *inner, closing]) if inner else ""

    number = len(kept)
    if limit is not None:
        count_tokens = token_counter(policy.token_counter)
        found = _most(number, lambda newest: count_tokens(text_of_newest(newest)) <= limit)
        number = found or 0
        for position in kept[: len(kept) - number]:
            reasons[position] = too_costly
        text = "" if found is None else text_of_newest(number)
    else:
        text = text_of_newest(number)
    omitted = tuple(Omission(fact, reason) for fact, reason in zip(ordered, reasons, strict=True) if reason)
    return text, omitted


def _reasons(policy: RenderPolicy) -> tuple[str, str, str]:
    def some(number: int | None, noun: str) -> str:
        return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

    return (
        f"longer than {some(policy.max_fact_characters, 'character')}",
        f"over the limit of {some(policy.max_facts, 'fact')}",
        f"over the limit of {some(policy.max_tokens, 'token')}",
    )


def _notice(left_out: Sequence[tuple[int, str]]) -> list[str]:
    if not left_out:
        return []
    total = sum(count for count, _ in left_out)
    facts = "fact" if total == 1 else "facts"
    return [f"[{total} {facts} left out: {', '.join(f'{count} {reason}' for count, reason in left_out)}]"]


def _most(total: int, fits: Callable[[int], bool]) -> int | None:
    """The largest number up to ``total`` that fits, None where not even 0 does.

    Tried from below in doubling steps, so that the work follows what fits, not what there is.
    """
    if fits(total):
        return total
    low, high = 0, 1
    while high < total and fits(high):
        low, high = high, high * 2
    high = min(high, total)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low if low or fits(0) else None
