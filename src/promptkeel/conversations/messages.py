"""A caller's messages in any format: where text stands in them, how own parts are taken out, and put in. Pure.

Formats are told apart only where they differ in how a part is spelled. What is not touched is the caller's very object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import attrs

from promptkeel.errors import InvalidInputError
from promptkeel.providers.segments import WireFormat

Message = Any
"""One message of a caller's, as the format spells it: a mapping, or an object of the provider's SDK."""

_TEXT_PART: Final[dict[WireFormat, dict[str, str]]] = {
    "anthropic": {"type": "text"},
    "openai-chat": {"type": "text"},
    "openai-responses": {"type": "input_text"},
    "gemini": {},
    "bedrock": {},
}
_PARTS: Final[dict[WireFormat, str]] = {"gemini": "parts"}
_SYSTEM_ROLE: Final[dict[WireFormat, str]] = {"openai-chat": "developer", "openai-responses": "developer"}


def check_messages(messages: object, wire_format: WireFormat) -> list[Message]:
    """The messages as a list; the text of a whole input counts as one message of the user.

    Raises:
        InvalidInputError: they are no sequence of messages.
    """
    if isinstance(messages, str):
        return [{"role": "user", _PARTS.get(wire_format, "content"): [text_part(messages, wire_format)]}]
    if not isinstance(messages, Sequence) or isinstance(messages, bytes | bytearray | Mapping):
        raise InvalidInputError(f"must be a list of messages, not {type(messages).__name__}", field="messages")
    checked = list(messages)
    for position, message in enumerate(checked):
        if message is None or isinstance(message, str | bytes | int | float | list | tuple):
            raise InvalidInputError(f"must be a message, not {type(message).__name__}", field=f"messages[{position}]")
    return checked


def text_part(text: str, wire_format: WireFormat) -> dict[str, str]:
    """A content part with a text."""
    return {**_TEXT_PART[wire_format], "text": text}


@final
@attrs.frozen(order=False)
class Taken:
    """Messages without some parts.

    Attributes:
        messages: what is left; a message that held nothing else is gone.
        origins: the index of each in the messages as given.
        texts: what was taken out, in order, each with the index of its message as given.
    """

    messages: list[Message]
    origins: list[int]
    texts: list[tuple[int, str]]


def without_parts(
    messages: Sequence[Message], wire_format: WireFormat, is_taken: Callable[[str], bool], *, hint: str
) -> Taken:
    """The messages without the text parts for which ``is_taken`` answers True.

    Args:
        messages: as the caller sends them.
        wire_format: how they are spelled.
        is_taken: called with the whole text of each part.
        hint: what every such text holds.
    """
    taken = Taken([], [], [])
    for index, message in enumerate(messages):
        found: list[str] = []
        left = _without(message, wire_format, is_taken, hint, found)
        taken.texts.extend((index, text) for text in found)
        if left is not None:
            taken.messages.append(left)
            taken.origins.append(index)
    return taken


def _without(
    message: Message, wire_format: WireFormat, is_taken: Callable[[str], bool], hint: str, found: list[str]
) -> Message | None:
    if not isinstance(message, Mapping):
        return message
    name = _PARTS.get(wire_format, "content")
    content = message.get(name)
    left = _without_content(content, is_taken, hint, found)
    if left is content:
        return message
    if left is None or left == []:
        return None
    return {**message, name: left}


def _without_content(content: Any, is_taken: Callable[[str], bool], hint: str, found: list[str]) -> Any:
    """What is left of a content: itself where nothing was taken, None where nothing is left."""
    if isinstance(content, str):
        if hint in content and is_taken(content):
            found.append(content)
            return None
        return content
    if not isinstance(content, list | tuple):
        return content
    parts = []
    for part in content:
        left = _without_part(part, is_taken, hint, found)
        if left is not None:
            parts.append(left)
    return content if len(parts) == len(content) and all(map(lambda a, b: a is b, parts, content)) else parts


def _without_part(part: Any, is_taken: Callable[[str], bool], hint: str, found: list[str]) -> Any:
    text = part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None
    if isinstance(text, str):
        if hint in text and is_taken(text):
            found.append(text)
            return None
        return part
    if isinstance(part, Mapping) and part.get("type") == "tool_result":
        inner = part.get("content")
        left = _without_content(inner, is_taken, hint, found)
        return part if left is inner else {**part, "content": [] if left is None else left}
    return part


def with_user_part(messages: Sequence[Message], text: str, wire_format: WireFormat) -> list[Message]:
    """The messages with a text as the last part of the last user message, or in one of its own behind them.

    A part of its own after everything else, tool results among it, so that no byte before it changes. Where the
    messages end with the beginning of an answer, what asks for it is the user message before.
    """
    name = _PARTS.get(wire_format, "content")
    position = len(messages) - 1
    while position >= 0 and _role(messages[position]) in ("assistant", "model"):
        position -= 1
    last = messages[position] if position >= 0 else None
    if not isinstance(last, Mapping) or _role(last) != "user":
        return [
            *messages[: position + 1],
            {"role": "user", name: [text_part(text, wire_format)]},
            *messages[position + 1 :],
        ]
    content = last.get(name)
    parts = [text_part(content, wire_format)] if isinstance(content, str) else list(content or ())
    return [
        *messages[:position],
        {**last, name: [*parts, text_part(text, wire_format)]},
        *messages[position + 1 :],
    ]


def _role(message: Message) -> Any:
    return message.get("role") if isinstance(message, Mapping) else getattr(message, "role", None)


def with_system_message(messages: Sequence[Message], text: str, wire_format: WireFormat) -> list[Message]:
    """The messages with a text as an operator's message at their end."""
    role = _SYSTEM_ROLE.get(wire_format, "system")
    return [*messages, {"role": role, _PARTS.get(wire_format, "content"): text}]
