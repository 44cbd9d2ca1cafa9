"""The request of a turn: spelled by the adapter of its format, whole or as what goes on a chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from promptkeel.conversations.chains import NEW_CHAIN, Chain, is_chained, unchained
from promptkeel.conversations.messages import Message
from promptkeel.conversations.situations import Asked
from promptkeel.prompt import Prompt
from promptkeel.prompt.requests import Request
from promptkeel.providers.automaton import UNSENT, SentState, advance, check
from promptkeel.providers.rules import ModelRules
from promptkeel.providers.segments import WireFormat, WireRequest


def chained(
    asked: Asked, history: Sequence[Message], settings: Mapping[str, Any], chain: Chain | None
) -> tuple[Sequence[Message], Mapping[str, Any], tuple[str, ...]]:
    """The messages that are sent, the settings, and what was done about a chain."""
    if not is_chained(asked.format, settings):
        return history, settings, ()
    if chain is None:
        return history, unchained(settings), (NEW_CHAIN,)
    return history[chain.held :], settings, ()


def request_of(
    asked: Asked, base: Prompt, current: Prompt, history: Sequence[Message], settings: Mapping[str, Any]
) -> Request:
    """The request.

    Args:
        asked: the turn.
        base: the pinned prompt.
        current: what memory says now; its volatile blocks and notices are the tail.
        history: the messages, with what changed.
        settings: other arguments of the call.

    Raises:
        InvalidInputError: names the message, tool or setting that the provider would refuse.
    """
    given: dict[str, Any] = {
        "model": asked.model,
        "messages": history,
        "tools": asked.tools,
        "tail": asked.tail,
        "current": current,
        "overrides": asked.overrides,
        **settings,
    }
    match asked.format:
        case "anthropic":
            return base.anthropic(**given)
        case "bedrock":
            return base.bedrock(**given)
        case "gemini":
            return base.gemini(**given)
        case "openai-chat":
            return base.openai(api="chat", **given)
        case "openai-responses":
            return base.openai(api="responses", **given)


def marks_of(wire: WireRequest, rules: ModelRules) -> tuple[tuple[int, int], ...]:
    """Where a request asks to be kept: positions among its segments, each with its seconds."""
    if rules.scheme != "marks":
        return ()
    default = rules.ttls[0]
    return tuple(
        (index, default if segment.mark.ttl is None else segment.mark.ttl)
        for index, segment in enumerate(wire.segments)
        if segment.mark is not None
    )


@final
class Watch:
    """What a worker has sent of one conversation, held against the rules of each provider and model.

    A request is what the planner made of the caller's messages; whatever these hold that the provider would refuse is
    known before it is sent.
    """

    def __init__(self) -> None:
        self._sent: dict[tuple[WireFormat, str], SentState] = {}

    def notes(self, wire: WireRequest, rules: ModelRules, at: float) -> tuple[str, ...]:
        """Which rules a request breaks after those before it, a line each.

        What the model answered is only known from the messages: of reasoning that came back after a turn which was
        asked several times nobody can tell which of them it was the answer to.

        Args:
            wire: the request.
            rules: of its provider and model.
            at: when, in seconds.
        """
        state = self._sent.get((wire.format, wire.model), UNSENT)
        return tuple(
            f"{'may be refused' if each.refuses else each.effect} by {rules.provider}, {each.rule}: {each.reason}"
            for each in check(state, wire, rules, at)
        )

    def sent(self, wire: WireRequest, at: float) -> None:
        """Note that a request is sent."""
        key = wire.format, wire.model
        self._sent[key] = advance(self._sent.get(key, UNSENT), wire, at)
