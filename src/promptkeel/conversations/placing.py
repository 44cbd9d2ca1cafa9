"""Where a delta is put into a caller's messages: behind all that a provider has kept, in the channel of its trust.

Learned text is a part of its own at the end of the user's last message. Where its trust asks for a tool's result, it is
a part of the last result that is there, else the result of a call that is made in the model's name; where the model
must begin its messages by thinking, that call stands in front of the turn that begins. An operator's text is a message
of the operator's behind the user's. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import attrs

from promptkeel.blocks.taxonomy import Channel
from promptkeel.conversations.messages import OWN_CALL, Message, parts_name
from promptkeel.prompt.adapters import anthropic, bedrock, gemini, openai
from promptkeel.prompt.adapters.arranging import ACKNOWLEDGEMENT, REQUEST, Spelling
from promptkeel.providers.segments import WireFormat

SPELLINGS: Final[Mapping[WireFormat, Spelling]] = {
    "anthropic": anthropic.SPELLING,
    "openai-responses": openai.RESPONSES,
    "openai-chat": openai.CHAT,
    "gemini": gemini.SPELLING,
    "bedrock": bedrock.SPELLING,
}
SYSTEM_ROLES: Final[Mapping[WireFormat, str]] = {
    "anthropic": "system",
    "openai-responses": "developer",
    "openai-chat": "developer",
}
"""The role of an operator's messages, in the formats that have one."""


@final
@attrs.frozen(order=False)
class DeltaPart:
    """One text of a delta.

    Attributes:
        channel: where it may stand; ``system`` is an operator's own text, or learned text that may stand anywhere.
        text: what the model gets.
        id: tells it apart from every other.
        is_authored: whether it is an operator's.
    """

    channel: Channel
    text: str
    id: str
    is_authored: bool = False


def with_parts(
    messages: Sequence[Message], parts: Sequence[DeltaPart], wire_format: WireFormat, settings: Mapping[str, Any]
) -> list[Message]:
    """The messages with the parts of a delta.

    Args:
        messages: the caller's.
        parts: in the order in which they are read.
        wire_format: how the messages are spelled.
        settings: the call's other arguments.
    """
    spelling = SPELLINGS[wire_format]
    found = list(messages)
    end = _end(found, spelling)
    results = [part for part in parts if part.channel == "tool_result" and not part.is_authored]
    texts = [part.text for part in parts if part.channel != "tool_result" and not part.is_authored]
    if results:
        found, end = _with_results(found, end, results, wire_format, in_turn=_calls_in_turn(wire_format, settings))
    if texts:
        last = found[end - 1] if end else None
        copied = spelling.with_texts(last, texts) if last is not None and spelling.is_user(last) else None
        if copied is None:
            found.insert(end, spelling.user(texts))
            end += 1
        else:
            found[end - 1] = copied
    authored = [part.text for part in parts if part.is_authored]
    if authored:
        # One message: where system messages have a place, a second one has none.
        kind = "input_text" if wire_format == "openai-responses" else "text"
        content = [{"type": kind, "text": text} for text in authored]
        found.insert(end, {"role": SYSTEM_ROLES[wire_format], "content": content})
    return found


def _end(messages: Sequence[Message], spelling: Spelling) -> int:
    """Behind the last message that is the user's: what the model has begun to say itself stays the last thing."""
    for index in range(len(messages) - 1, -1, -1):
        if spelling.is_user(messages[index]):
            return index + 1
    return len(messages)


def _with_results(
    messages: list[Message], end: int, parts: Sequence[DeltaPart], wire_format: WireFormat, *, in_turn: bool
) -> tuple[list[Message], int]:
    spelling = SPELLINGS[wire_format]
    inside = _inside_result(messages[end - 1], [part.text for part in parts], wire_format) if end else None
    if inside is not None:
        return [*messages[: end - 1], inside, *messages[end:]], end
    added: list[Message] = []
    for part in parts:
        call = f"{OWN_CALL}{part.id}"
        added += [spelling.call(call), *spelling.results(call, [part.text], ())]
    if in_turn and end and spelling.is_user(messages[end - 1]):
        return [*messages[:end], *added, *messages[end:]], end + len(added)
    # In front of the turn that begins: nothing of it has been sent.
    at = next((index for index in range(end - 1, -1, -1) if spelling.opens_turn(messages[index])), end)
    around = [spelling.user([REQUEST]), *added, spelling.assistant(ACKNOWLEDGEMENT)]
    return [*messages[:at], *around, *messages[at:]], end + len(around)


def _inside_result(message: Message, texts: Sequence[str], wire_format: WireFormat) -> Message | None:
    """The message with texts in the last result of a tool that it holds; None where it holds none that takes parts."""
    name = parts_name(wire_format)
    content = message.get(name)
    for index in range(len(content) - 1, -1, -1) if isinstance(content, list | tuple) else ():
        part = content[index]
        changed = _result_with(part, texts, wire_format) if isinstance(part, Mapping) else None
        if changed is not None:
            return {**message, name: [*content[:index], changed, *content[index + 1 :]]}
    return None


def _result_with(part: Mapping[str, Any], texts: Sequence[str], wire_format: WireFormat) -> dict[str, Any] | None:
    if wire_format == "anthropic" and part.get("type") == "tool_result":
        content = part.get("content")
        before = [{"type": "text", "text": content}] if isinstance(content, str) and content else list(content or ())
        return {**part, "content": [*before, *({"type": "text", "text": text} for text in texts)]}
    result = part.get("toolResult")
    if wire_format == "bedrock" and isinstance(result, Mapping):
        added = [*(result.get("content") or ()), *({"text": text} for text in texts)]
        return {**part, "toolResult": {**result, "content": added}}
    return None


def _calls_in_turn(wire_format: WireFormat, settings: Mapping[str, Any]) -> bool:
    """Whether a call may be made in the model's name within the turn that is going on."""
    if wire_format == "gemini":
        # The calls of a turn must bear signatures of the model's own.
        return False
    fields = settings.get("additionalModelRequestFields")
    thinking = settings.get("thinking") or (fields.get("thinking") if isinstance(fields, Mapping) else None)
    return not (isinstance(thinking, Mapping) and thinking.get("type") == "enabled")
