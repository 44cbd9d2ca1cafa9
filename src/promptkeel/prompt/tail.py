"""What a caller adds to one request and no other: the time, what was recalled, and the question.

All of it stands after everything that a provider keeps. What was recalled is learned text and contained like memory;
the time and the question are the caller's own words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, final

import attrs

from promptkeel.blocks.taxonomy import Channel
from promptkeel.errors import InvalidDeclarationError, InvalidInputError
from promptkeel.instants import format_instant, parse_instant
from promptkeel.model import BlockFact, BlockRevision
from promptkeel.prompt.layout import NOTICES, TailPart, headed, learned_channel, tail_part
from promptkeel.prompt.salts import PromptKeys
from promptkeel.render import RenderPolicy, render_block
from promptkeel.text import check_text

_RECALL: Final = "RECALL"


def _time(time: object) -> str | None:
    if isinstance(time, datetime):
        return format_instant(parse_instant(time, field="tail.time"))
    return None if time is None else check_text(time, field="tail.time")


def _facts(recall: object) -> tuple[BlockFact, ...]:
    if recall is None:
        return ()
    if isinstance(recall, str | bytes | BlockFact) or not isinstance(recall, Iterable):
        raise InvalidInputError("must be a list of texts or of BlockFact", field="tail.recall")
    facts = []
    for given in recall:
        if not isinstance(given, str | BlockFact):
            raise InvalidInputError(f"must hold texts or BlockFact, not {type(given).__name__}", field="tail.recall")
        facts.append(given if isinstance(given, BlockFact) else BlockFact(check_text(given, field="tail.recall")))
    return tuple(facts)


def _query(query: object) -> str | None:
    return None if query is None else check_text(query, field="tail.query")


@final
@attrs.frozen(kw_only=True, order=False)
class Tail:
    """What one request says beyond its prompt and its messages.

    Attributes:
        time: a datetime, given as ISO 8601 in UTC, or the host's own words; read from no clock.
        recall: what a search found, as texts or as facts with their provenance; contained like memory.
        query: what the user asks now, where it is in no message; the last thing that the model reads.

    Raises:
        InvalidInputError: names what cannot be said.
    """

    time: str | None = attrs.field(default=None, converter=_time)
    recall: tuple[BlockFact, ...] = attrs.field(default=(), converter=_facts)
    query: str | None = attrs.field(default=None, converter=_query)


EMPTY_TAIL: Final = Tail()


def as_tail(given: object) -> Tail:
    """A tail, or a mapping with its fields; None is an empty one.

    Raises:
        InvalidInputError: it is neither, or a field is unknown or cannot be said.
    """
    if given is None:
        return EMPTY_TAIL
    if isinstance(given, Tail):
        return given
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"must be a Tail or a mapping, not {type(given).__name__}", field="tail")
    known = [field.name for field in attrs.fields(Tail)]
    fields: dict[str, Any] = dict(given)
    for name in fields:
        if name not in known:
            raise InvalidInputError(f"{name!r} is none of {', '.join(known)}", field="tail")
    return Tail(**fields)


def parts_of(
    tail: Tail,
    volatile: Sequence[TailPart],
    explained: Iterable[Channel],
    channels: Mapping[str, str],
    keys: PromptKeys | None,
) -> Sequence[TailPart]:
    """Every part of a request's tail: volatile blocks, what was recalled, notices, the time, and the question.

    Args:
        tail: what the caller adds.
        volatile: the volatile blocks and notices.
        explained: the channels that say already what their fences mean.
        channels: the channel of learned text by its trust.
        keys: what the fence of recalled text is made of.

    Raises:
        InvalidDeclarationError: something was recalled, and there is no secret for its fence.
    """
    blocks = [part for part in volatile if part.name != NOTICES]
    if tail.recall:
        if keys is None:
            raise InvalidDeclarationError(
                "recalled text needs a fence, and there is no key for one: give the resolver a store, or secret=",
                field="tail.recall",
            )
        revision = BlockRevision(content="", revision="recalled", facts=tail.recall)
        block = render_block(_RECALL, revision, tier="session", policy=RenderPolicy(fence=keys.fence))
        blocks.append(tail_part(_RECALL, learned_channel(tail.recall, channels), block.text))
    parts = headed(blocks, explained)
    parts += [part for part in volatile if part.name == NOTICES]
    if tail.time is not None:
        parts.append(TailPart("time", "user", f"[now: {tail.time}]"))
    if tail.query is not None:
        parts.append(TailPart("query", "user", tail.query))
    return parts
