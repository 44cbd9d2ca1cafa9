"""A caller's messages in any format: where text stands in them, and how own parts are taken out again. Pure.

With a text that was the result of a call that this library made in the model's name, the call goes too. What is not
touched is the caller's very object.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import attrs

from promptkeel.errors import InvalidInputError
from promptkeel.prompt.adapters.arranging import ACKNOWLEDGEMENT, REQUEST
from promptkeel.providers.sdk_objects import as_sent
from promptkeel.providers.segments import WireFormat

Message = Any
"""One message of a caller's, as the format spells it."""

OWN_CALL: Final = "standing_memory_delta_"
"""What the ids of calls that were made for deltas hold, and no others."""
_PARTS: Final[dict[WireFormat, str]] = {"gemini": "parts"}
_RESULTS: Final = ("toolResult", "function_response", "functionResponse")
_ANSWERING: Final = ("assistant", "model")

Cut = Callable[[str], str]
"""Answers what is left of a text: the very text where there is nothing to be taken out."""


def check_messages(messages: object) -> list[Message]:
    """The messages as a list, objects of the SDKs as what these would send.

    Raises:
        InvalidInputError: they are no list of mappings.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes | bytearray):
        raise InvalidInputError(f"must be a list of messages, not {type(messages).__name__}", field="messages")
    sent = as_sent(messages)
    for index, message in enumerate(sent):
        if type(message) is not dict and not isinstance(message, Mapping):
            raise InvalidInputError(
                f"must be a mapping, not {type(message).__name__}", field="messages", where=f"message {index}"
            )
    return sent


def parts_name(wire_format: WireFormat) -> str:
    """Under what name a message holds its parts."""
    return _PARTS.get(wire_format, "content")


@final
@attrs.frozen(order=False)
class Taken:
    """Messages without some parts.

    Attributes:
        messages: what is left; a message that held nothing else is gone.
        origins: the index of each among the messages as given.
    """

    messages: list[Message]
    origins: list[int]


def without_parts(messages: Sequence[Message], wire_format: WireFormat, cut: Cut) -> Taken:
    """The messages without what ``cut`` takes out of their texts; a part of which nothing is left is gone.

    Args:
        messages: as the caller sends them.
        wire_format: how they are spelled.
        cut: called with each text, in order.
    """
    taking = _Taking(parts_name(wire_format), cut)
    left = [taking.message(message) for message in messages]
    if taking.calls:
        _drop_calls(left, taking.calls, parts_name(wire_format))
    origins = [index for index, message in enumerate(left) if message is not None]
    return Taken([left[index] for index in origins], origins)


@final
class _Taking:
    """Takes own parts out of messages, and notes which calls their results were of."""

    def __init__(self, name: str, cut: Cut) -> None:
        self._name = name
        self._cut = cut
        self.calls: set[str] = set()

    def message(self, message: Message) -> Message | None:
        """What is left of a message; None where nothing is."""
        call = message.get("tool_call_id") or (message.get("call_id") if "output" in message else None)
        name = "output" if "output" in message else self._name
        content = message.get(name)
        left = self._content(content)
        if left is content:
            return message
        if left:
            return {**message, name: left}
        if isinstance(call, str) and OWN_CALL not in call:
            # The result of somebody else's call: the call is still to be answered.
            return {**message, name: ""}
        self._note(call)
        return None

    def _content(self, content: Any) -> Any:
        if isinstance(content, str):
            left = self._cut(content)
            return content if left is content else left or None
        if not isinstance(content, list | tuple):
            return content
        parts = [(part, self._part(part)) for part in content]
        if all(part is left for part, left in parts):
            return content
        return [left for _, left in parts if left is not None]

    def _part(self, part: Any) -> Any:
        if isinstance(part, str):
            left = self._cut(part)
            return part if left is part else left or None
        if not isinstance(part, Mapping):
            return part
        text = part.get("text")
        if isinstance(text, str):
            left = self._cut(text)
            return part if left is text else {**part, "text": left} if left else None
        if part.get("type") == "tool_result":
            return self._result(part, part.get("tool_use_id"))
        for wrapper in _RESULTS:
            inner = part.get(wrapper)
            if isinstance(inner, Mapping):
                result = self._result(inner, inner.get("toolUseId", inner.get("id")))
                return part if result is inner else None if result is None else {**part, wrapper: result}
        return part

    def _result(self, result: Mapping[str, Any], call: object) -> Mapping[str, Any] | None:
        """What is left of a tool's result; None of one that held nothing else and whose call is own."""
        response = result.get("response")
        holder: Mapping[str, Any] = response if isinstance(response, Mapping) else result
        name = "content" if holder is result else "result"
        content = holder.get(name)
        left = self._content(content)
        if left is content:
            return result
        if not left and isinstance(call, str) and OWN_CALL in call:
            self._note(call)
            return None
        changed = {**holder, name: [] if left is None else left}
        return changed if holder is result else {**result, "response": changed}

    def _note(self, call: object) -> None:
        if isinstance(call, str) and OWN_CALL in call:
            self.calls.add(call)


def _drop_calls(messages: list[Message | None], calls: set[str], name: str) -> None:
    """Drop the messages that hold nothing but these calls, and what was said around them for their sake."""
    for index, message in enumerate(messages):
        if message is None or not calls.intersection(_calls_of(message, name)):
            continue
        messages[index] = None
        if index and _only_text(messages[index - 1], name) == REQUEST:
            messages[index - 1] = None
        after = index + 2
        if (
            after < len(messages)
            and _only_text(messages[after], name) == ACKNOWLEDGEMENT
            and messages[index + 1] is None
        ):
            messages[after] = None


def _calls_of(message: Mapping[str, Any], name: str) -> list[str]:
    if message.get("type") == "function_call":
        return [str(message.get("call_id"))]
    found = [call.get("id") for call in message.get("tool_calls") or () if isinstance(call, Mapping)]
    content = message.get(name)
    for part in content if isinstance(content, list | tuple) else ():
        if not isinstance(part, Mapping):
            continue
        inner = part.get("toolUse", part.get("function_call", part.get("functionCall", part)))
        if isinstance(inner, Mapping):
            found.append(inner.get("toolUseId", inner.get("id")))
    return [call for call in found if isinstance(call, str)]


def _only_text(message: Message | None, name: str) -> str | None:
    """The text of a message that holds one text and nothing else."""
    content = None if message is None else message.get(name)
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple) and len(content) == 1 and isinstance(content[0], Mapping):
        text = content[0].get("text")
        return text if isinstance(text, str) else None
    return None


# The hash of a prefix

_MARKS: Final = frozenset({"cache_control", "prompt_cache_breakpoint"})


def prefix_hashes(messages: Sequence[Message], wire_format: WireFormat, start: str) -> list[str]:
    """A hash of each prefix of the messages, the empty one first; marks are no part of them, spellings neither.

    Args:
        messages: without own parts.
        wire_format: how they are spelled.
        start: what the first hash is.

    Raises:
        InvalidInputError: a message is no JSON; names it.
    """
    hashes = [start]
    name = parts_name(wire_format)
    for index, message in enumerate(messages):
        digest = hashlib.sha256(hashes[-1].encode())
        try:
            plain = json.dumps(_plain_message(message, name), sort_keys=True, default=_plain)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"cannot be written as JSON: {error!s:.80}", field="messages", where=f"message {index}"
            ) from None
        digest.update(plain.encode())
        hashes.append(digest.hexdigest())
    return hashes


def _plain_message(message: Message, name: str) -> Any:
    content = message.get(name)
    if isinstance(content, str):
        return {**message, name: [content]}
    if not isinstance(content, list | tuple):
        return message
    return {**message, name: [_plain_part(part) for part in content if not _is_point(part)]}


def _plain_part(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    # A text alone is one text, however its part is spelled.
    if "text" in part and part.get("type") in ("text", "input_text", "output_text", None):
        left = {key: value for key, value in part.items() if key not in _MARKS and key not in ("type", "text")}
        return {**left, "text": part["text"]} if left else part["text"]
    plain = {key: value for key, value in part.items() if key not in _MARKS}
    if part.get("type") == "tool_result":
        content = part.get("content")
        inner = [content] if isinstance(content, str) and content else content or ()
        plain["content"] = [_plain_part(each) for each in inner]
    return plain


def _is_point(part: Any) -> bool:
    return isinstance(part, Mapping) and len(part) == 1 and "cachePoint" in part


def _plain(value: object) -> Any:
    if isinstance(value, bytes | bytearray):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, Mapping):
        return dict(value)
    return repr(value)


def characters_of(messages: Sequence[Message]) -> int:
    """How long the messages are, as JSON."""
    return len(json.dumps(list(messages), ensure_ascii=False, default=_plain))
