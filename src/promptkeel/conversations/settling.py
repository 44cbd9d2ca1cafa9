"""What is sent in place of reasoning that is held against what no longer stands before it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import attrs

from promptkeel.conversations.messages import Message
from promptkeel.conversations.reasoning import dropping, holds_reasoning, is_turn_open, without_reasoning
from promptkeel.conversations.situations import Asked, Situation
from promptkeel.errors import ConversationBoundError


@final
@attrs.frozen(eq=False)
class Settled:
    """Messages and settings in which no reasoning is held against what is no longer before it.

    Attributes:
        messages: the caller's.
        settings: other arguments of the call.
        loose: so many messages may hold reasoning that does not fit.
        notes: what was done.
        is_passing: whether reasoning is there that will not be once the turn is over.
    """

    messages: list[Message]
    settings: Mapping[str, Any]
    loose: int
    notes: tuple[str, ...] = ()
    is_passing: bool = False


def with_reasoning_settled(asked: Asked, situation: Situation, *, is_changed: bool, is_forced: bool) -> Settled:
    """What is sent instead of reasoning whose prefix has changed.

    Args:
        asked: the turn.
        situation: what it finds.
        is_changed: whether something before reasoning in the messages is not what it was.
        is_forced: whether that cannot be undone.

    Raises:
        ConversationBoundError: it cannot, and the turn that goes on needs its reasoning.
    """
    parent, rules, messages = situation.parent, situation.rules, asked.messages
    count = len(situation.origins)
    loose = count if is_changed or parent is None or parent.tailed else parent.loose
    until = situation.origins[loose] if loose < count else len(messages)
    if not holds_reasoning(messages[:until], asked.format):
        return Settled(messages, asked.settings, loose)
    if not rules.binds_reasoning:
        # A later request, to a model that does, will not have it.
        return Settled(messages, asked.settings, loose, is_passing=True)
    if not (until == len(messages) and is_turn_open(messages)):
        left, _ = without_reasoning(messages, until)
        note = "reasoning was left out: this model holds it against what stood before it, which has changed"
        return Settled(left, asked.settings, loose, (note,))
    if rules.drops_reasoning:
        note = "the provider drops reasoning that does not fit any more: it is bound to what stood before it"
        return Settled(messages, dropping(asked.settings, asked.format), loose, (note,), is_passing=True)
    if is_forced:
        raise ConversationBoundError(
            "a turn that goes on holds reasoning, this model binds it to what stood before it, and that cannot be "
            "shown again: leave this turn out, and send the messages up to the user's last one"
        )
    note = "this model may refuse the reasoning of the turn that goes on: something before it has changed"
    return Settled(messages, asked.settings, loose, (note,), is_passing=True)
