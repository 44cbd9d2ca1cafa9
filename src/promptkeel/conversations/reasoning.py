"""Reasoning in a caller's messages that a provider holds against what stood before it, and how it is let go. Pure.

Outside of a turn that is going on, reasoning may be left out of what is sent: all of it, since a gap between two pieces
breaks the later one. Within a turn, between a call of a tool and the answer, the model must find it; there, a setting
of the request lets the provider drop what does not fit any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from promptkeel.conversations.messages import Message
from promptkeel.providers.segments import WireFormat

_TYPES: Final = ("thinking", "redacted_thinking")
_RESULTS: Final = ("tool_result", "toolResult")


REASONED: Final[tuple[WireFormat, ...]] = ("anthropic", "bedrock", "openai-responses")
"""The formats in which reasoning comes back in the messages as something of its own."""


def holds_reasoning(messages: Sequence[Message], wire_format: WireFormat) -> bool:
    """Whether there is reasoning in the messages that could be bound to what stands before it."""
    return wire_format in REASONED and any(map(_has_reasoning, messages))


def without_reasoning(messages: Sequence[Message], until: int | None = None) -> tuple[list[Message], list[int]]:
    """The messages without reasoning, and the index of each as given; one that held nothing else is gone.

    Args:
        messages: the caller's.
        until: the index of the first message that keeps its reasoning; None is none.
    """
    found: list[Message] = []
    origins: list[int] = []
    for index, given in enumerate(messages):
        message = given
        if (until is None or index < until) and _has_reasoning(given):
            if _is_item(given):
                continue
            message = {**given, "content": [part for part in given["content"] if not _is_reasoning(part)]}
            if not message["content"]:
                continue
        found.append(message)
        origins.append(index)
    return found, origins


def is_turn_open(messages: Sequence[Message]) -> bool:
    """Whether the model is to go on with a turn in which it has reasoned: it waits for the result of a tool."""
    waits = False
    for message in reversed(messages):
        if message.get("role") == "assistant" or message.get("type") == "function_call":
            if not waits:
                return False
            if _has_reasoning(message):
                return True
        elif _is_item(message):
            return waits
        elif _has_result(message):
            waits = True
        else:
            return False
    return False


def dropping(settings: Mapping[str, Any], wire_format: WireFormat) -> dict[str, Any]:
    """The settings with the one that lets the provider drop reasoning that does not fit any more."""
    drop = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    if wire_format == "bedrock":
        fields = dict(settings.get("additionalModelRequestFields") or {})
        thinking = fields.get("thinking") or {"type": "adaptive"}
        return {**settings, "additionalModelRequestFields": {**fields, "thinking": {**thinking, **drop}}}
    return {**settings, "thinking": {**(settings.get("thinking") or {"type": "adaptive"}), **drop}}


def _has_reasoning(message: Message) -> bool:
    content = message.get("content")
    return _is_item(message) or (isinstance(content, list | tuple) and any(map(_is_reasoning, content)))


def _is_item(message: Message) -> bool:
    return bool(message.get("type") == "reasoning")


def _is_reasoning(part: Any) -> bool:
    return isinstance(part, Mapping) and (part.get("type") in _TYPES or "reasoningContent" in part)


def _has_result(message: Message) -> bool:
    content = message.get("content")
    if message.get("type") == "function_call_output":
        return True
    return isinstance(content, list | tuple) and any(
        isinstance(part, Mapping) and (part.get("type") in _RESULTS or "toolResult" in part) for part in content
    )
