"""What memory says now against what a conversation says: block by block, each difference in its own channel. Pure.

A block that could not be read is left as it is: an outage is no change, and the tail says that it is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import final

import attrs

from promptkeel.blocks.taxonomy import Channel
from promptkeel.conversations.deltas import AuthoredDelta, Delta, LearnedDelta, Seal
from promptkeel.conversations.pinning import Base
from promptkeel.conversations.standing import (
    authored_difference,
    authored_standing,
    learned_difference,
    learned_standing,
)
from promptkeel.conversations.statements import statements_of
from promptkeel.prompt import Prompt
from promptkeel.prompt.layout import channel_of
from promptkeel.resolver import ResolvedBlock


@final
@attrs.frozen(order=False)
class Difference:
    """What has to be said of one block.

    Attributes:
        delta: what.
        channel: where it may stand.
    """

    delta: Delta
    channel: Channel

    @property
    def is_authored(self) -> bool:
        """Whether it is an operator's text."""
        return isinstance(self.delta, AuthoredDelta)


def differences(
    base: Base, found: Iterable[Delta], prompt: Prompt, seal: Seal, channels: Mapping[str, str]
) -> tuple[Difference, ...]:
    """What has to be said so that base and deltas say what memory says now, in the order of the prompt.

    Args:
        base: the conversation's.
        found: the deltas of this base that are in the messages, in order.
        prompt: what memory says now.
        seal: of the base.
        channels: where learned text of each trust stands.
    """
    said: dict[str, list[Delta]] = {}
    for delta in found:
        said.setdefault(delta.block, []).append(delta)
    return tuple(_differences(base, said, prompt, seal, channels))


def _differences(
    base: Base, said: Mapping[str, list[Delta]], prompt: Prompt, seal: Seal, channels: Mapping[str, str]
) -> Iterator[Difference]:
    pinned = {block.name: block for block in base.prompt.blocks}
    present = {block.name: block for block in prompt.blocks if block.spec.layer == "stable"}
    for name in dict.fromkeys([*present, *pinned, *said]):
        now, then = present.get(name), pinned.get(name)
        if now is not None and now.state == "omitted":
            continue
        base_text = "" if then is None else then.text
        memory_text = "" if now is None else now.text
        deltas = said.get(name, [])
        if not deltas and base_text == memory_text:
            continue
        delta = _difference(name, base_text, memory_text, deltas, seal, is_learned=_is_learned(now, then, deltas))
        if delta is not None:
            yield Difference(delta, "user" if now is None else channel_of(now, channels))


def _difference(
    name: str, base_text: str, memory_text: str, deltas: list[Delta], seal: Seal, *, is_learned: bool
) -> Delta | None:
    if is_learned:
        return learned_difference(name, learned_standing(base_text, deltas), memory_text, seal)
    return authored_difference(name, authored_standing(base_text, deltas), memory_text, seal)


def _is_learned(now: ResolvedBlock | None, then: ResolvedBlock | None, deltas: list[Delta]) -> bool:
    known = now if now is not None else then
    return known.is_learned if known is not None else isinstance(deltas[-1], LearnedDelta)


def shows_what_is_gone(found: Iterable[Delta], prompt: Prompt) -> bool:
    """Whether a delta says something that memory does not say now: of an erasure, nobody can tell which it took."""
    present = {block.name: block for block in prompt.blocks if block.spec.layer == "stable"}
    known = {}
    for delta in found:
        block = present.get(delta.block)
        text = "" if block is None else block.text
        if isinstance(delta, AuthoredDelta):
            if delta.content and delta.content != text:
                return True
            continue
        if delta.block not in known:
            known[delta.block] = set(statements_of(text).values()) if block is not None and block.is_learned else set()
        if any(statement not in known[delta.block] for _, statement in delta.added if not statement.is_notice):
            return True
    return False
