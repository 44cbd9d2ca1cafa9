"""The request of a turn: spelled by the adapter of its format, whole or as what goes on a chain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from promptkeel.conversations.chains import NEW_CHAIN, Chain, is_chained, unchained
from promptkeel.conversations.messages import Message
from promptkeel.conversations.situations import Asked
from promptkeel.prompt import Prompt
from promptkeel.prompt.requests import Request
from promptkeel.providers.rules import ModelRules
from promptkeel.providers.segments import WireFormat
from promptkeel.providers.wire import read_request

_SECONDS: Final = {"5m": 300, "1h": 3600}


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


def marks_of(wire_format: WireFormat, request: Request, rules: ModelRules) -> tuple[tuple[int, int], ...]:
    """Where a request asks to be kept: positions among its segments, each with its seconds."""
    if rules.scheme != "marks":
        return ()
    default = rules.ttls[0]
    if wire_format == "anthropic":
        return tuple(_anthropic_marks(request.arguments, default))
    segments = read_request(wire_format, request.arguments).segments
    return tuple(
        (index, default if segment.mark.ttl is None else segment.mark.ttl)
        for index, segment in enumerate(segments)
        if segment.mark is not None
    )


def _anthropic_marks(arguments: Mapping[str, Any], default: int) -> Iterator[tuple[int, int]]:
    """The same, without spelling every segment."""
    contents = [arguments.get("tools"), arguments.get("system"), *(each["content"] for each in arguments["messages"])]
    index = 0
    for content in contents:
        for part in [content] if isinstance(content, str) else content or ():
            mark = part.get("cache_control") if isinstance(part, Mapping) else None
            if mark is not None:
                yield index, _SECONDS.get(mark.get("ttl"), default)
            index += 1
