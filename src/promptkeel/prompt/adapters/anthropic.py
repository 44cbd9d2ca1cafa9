"""Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from promptkeel.errors import InvalidInputError
from promptkeel.prompt.adapters.answering import answered
from promptkeel.prompt.adapters.arranging import TOOL_DESCRIPTION, TOOL_NAME, Message, preamble, with_tail
from promptkeel.prompt.adapters.asked import Asked
from promptkeel.prompt.adapters.binding import with_binding
from promptkeel.prompt.adapters.checking import checked_messages, checked_settings, refused
from promptkeel.prompt.adapters.places import Places, kind_of, previous_end
from promptkeel.prompt.adapters.tools import canonical
from promptkeel.prompt.requests import Request
from promptkeel.providers.rules import SystemTurns
from promptkeel.providers.segments import Kind, Mark

_ROLES: Final = frozenset({"user", "assistant", "system"})
_KINDS: Final[Mapping[str, Kind]] = {
    "text": "text",
    "image": "image",
    "document": "document",
    "tool_use": "tool_use",
    "server_tool_use": "tool_use",
    "mcp_tool_use": "tool_use",
    "tool_result": "tool_result",
    "mcp_tool_result": "tool_result",
    "web_search_tool_result": "tool_result",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
}
_MADE: Final = {
    "system": "declare a block, or give rules of a model that takes system messages among the messages",
    "model": "give model=",
    "tools": "give tools=",
    "messages": "give messages=",
}
_MARK: Final = "cache_control"
_TTLS: Final = {300: "5m", 3600: "1h"}
_SECONDS: Final = {None: None, "5m": 300, "1h": 3600}


@final
class AnthropicSpelling:
    """The messages of the Messages API."""

    alternates = False

    def user(self, texts: Sequence[str]) -> Message:
        """A message of the user's, a part for each text."""
        return {"role": "user", "content": [_text(text) for text in texts]}

    def assistant(self, text: str) -> Message:
        """A message of the model's."""
        return {"role": "assistant", "content": [_text(text)]}

    def call(self, call_id: str) -> Message:
        """A call of the tool in the model's name."""
        return {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": f"toolu_{call_id}", "name": TOOL_NAME, "input": {}}],
        }

    def results(self, call_id: str, results: Sequence[str], texts: Sequence[str]) -> list[Message]:
        """The message that holds the results of a call, and texts of the user's behind them."""
        result = {
            "type": "tool_result",
            "tool_use_id": f"toolu_{call_id}",
            "content": [_text(text) for text in results],
        }
        return [{"role": "user", "content": [result, *map(_text, texts)]}]

    def with_texts(self, message: Any, texts: Sequence[str]) -> Message | None:
        """A copy of a user's message with texts at its end."""
        content = message.get("content")
        if isinstance(content, str):
            content = [_text(content)] if content.strip() else []
        return {**message, "content": [*content, *map(_text, texts)]}

    def is_user(self, message: Any) -> bool:
        """Whether this is a message of the user's, or holds results of tools."""
        return bool(message["role"] == "user")

    def opens_turn(self, message: Any) -> bool:
        """Whether this is a message of the user's that is not only results of tools."""
        content = message.get("content")
        return self.is_user(message) and (
            isinstance(content, str) or not any(block.get("type") == "tool_result" for block in content)
        )

    def answers(self, message: Any) -> bool:
        """Whether the model said this."""
        return bool(message["role"] == "assistant")


SPELLING: Final = AnthropicSpelling()


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def anthropic_request(asked: Asked) -> Request:
    """The keyword arguments of ``client.messages.create``.

    Raises:
        InvalidInputError: names the message, tool or setting that the API would refuse.
    """
    checked_settings(asked.settings, _MADE)
    messages = checked_messages(asked.messages, _ROLES)
    _check_placement(messages, asked.rules.system_turns)
    settings = dict(asked.settings)
    places = Places(asked)
    tools = _tools(asked, settings, places)
    places.add_system()
    system = [_text(section.text) for section in asked.layout.of("system")]
    before = preamble(asked.layout, SPELLING)
    _add_preamble(places, asked, before)
    base = len(before)
    for index, message in enumerate(messages, base):
        _add_message(places, message, index, index - base)
    thinking, notes = with_binding(settings.get("thinking"), places.found, asked.rules)
    if thinking is not None:
        settings["thinking"] = thinking
    arranged = with_tail(messages, asked.tail, SPELLING, in_turn=not _thinks_by_hand(settings))
    sent: list[Any] = [*before, *messages[: arranged.kept - arranged.inside], *arranged.after]
    last = previous_end(messages, SPELLING.answers)
    planned = places.plan(
        base + arranged.kept, None if last is None else base + last, automatic=_mark_of(settings, "", 0)
    )
    for place, mark in planned.changed():
        if place.section == "messages":
            sent[place.message] = _marked(sent[place.message], place.part, mark)
        else:
            blocks = tools if place.section == "tools" else system
            blocks[place.part] = _with_mark(blocks[place.part], mark)
    arguments: dict[str, Any] = {"model": asked.model}
    if tools:
        arguments["tools"] = tools
    if system:
        arguments["system"] = system
    arguments["messages"] = sent
    arguments.update(settings)
    return answered(asked, arguments, messages, planned.plan, notes)


def _tools(asked: Asked, settings: dict[str, Any], places: Places) -> list[Any]:
    tools = canonical("anthropic", asked.tools, asked.counter)
    if tools is not None:
        spelled = tools.fresh()
        for part, tokens in enumerate(tools.tokens):
            places.add("tools", "tool", tokens, "deployment", part=part, mark=_mark_of(spelled[part], "tools", part))
        return spelled
    if not asked.calls:
        return []
    # A tool that was called must be known; the model, which was given none, must not call it.
    tool = {"name": TOOL_NAME, "description": TOOL_DESCRIPTION, "input_schema": {"type": "object", "properties": {}}}
    settings.setdefault("tool_choice", {"type": "none"})
    places.add("tools", "tool", asked.tokens_of(TOOL_DESCRIPTION), "deployment")
    return [tool]


def _add_preamble(places: Places, asked: Asked, before: Sequence[Message]) -> None:
    durabilities = [section.durability for section in asked.layout.sections if section.channel != "system"]
    for index, message in enumerate(before):
        for part, block in enumerate(message["content"]):
            kind = _KINDS[block["type"]]
            text = block.get("text") or "".join(each["text"] for each in block.get("content", ()))
            places.add("messages", kind, asked.tokens_of(text), durabilities[-1], index, part)


def _add_message(places: Places, message: Mapping[str, Any], index: int, given: int) -> None:
    content = message.get("content")
    if isinstance(content, str):
        places.add_part("text", content if content.strip() else "", index, 0, None)
        return
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise refused(given, f"must have a text or a list of blocks as content, not {type(content).__name__}")
    for part, block in enumerate(content):
        if type(block) is not dict and not isinstance(block, Mapping):
            raise refused(given, f"block {part} must be a mapping, not {type(block).__name__}")
        mark = _mark_of(block, "messages", given) if _MARK in block else None
        kind = kind_of(block, _KINDS)
        inner: Any = block.get("text") if kind == "text" else block.get("content", block)
        places.add_part(kind, inner if not isinstance(inner, str) or inner.strip() else "", index, part, mark)


def _mark_of(block: Mapping[str, Any], field: str, index: int) -> Mark | None:
    given = block.get(_MARK)
    if given is None:
        return None
    ttl = given.get("ttl") if isinstance(given, Mapping) else ""
    if not isinstance(ttl, str | None) or ttl not in _SECONDS:
        raise InvalidInputError(
            f"must be {{'type': 'ephemeral'}}, with a ttl of 5m or 1h, not {given!r}",
            field=f"{field}.{_MARK}" if field else _MARK,
            where=f"{field[:-1]} {index}" if field else None,
        )
    return Mark(_SECONDS[ttl])


def _marked(message: Mapping[str, Any], part: int, mark: Mark | None) -> dict[str, Any]:
    content = message["content"]
    if isinstance(content, str):
        content = [_text(content)]
    return {**message, "content": [*content[:part], _with_mark(content[part], mark), *content[part + 1 :]]}


def _with_mark(block: Mapping[str, Any], mark: Mark | None) -> dict[str, Any]:
    found = {name: value for name, value in block.items() if name != _MARK}
    if mark is not None:
        found[_MARK] = {"type": "ephemeral"} if mark.ttl is None else {"type": "ephemeral", "ttl": _TTLS[mark.ttl]}
    return found


def _check_placement(messages: Sequence[Mapping[str, Any]], turns: SystemTurns) -> None:
    for index, message in enumerate(messages):
        if message["role"] != "system":
            continue
        if turns == "refused":
            raise refused(index, "is a system message, which this model does not take: declare an authored block")
        if turns == "after-user" and (index == 0 or messages[index - 1]["role"] != "user"):
            raise refused(index, "is a system message that does not stand right after a user's, where it must")


def _thinks_by_hand(settings: Mapping[str, Any]) -> bool:
    """Whether the model must begin each of its messages by thinking, so that none can be made in its name."""
    thinking = settings.get("thinking")
    return isinstance(thinking, Mapping) and thinking.get("type") == "enabled"
