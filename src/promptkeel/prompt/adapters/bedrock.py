"""Bedrock's Converse API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from promptkeel.errors import InvalidInputError
from promptkeel.prompt.adapters.answering import answered
from promptkeel.prompt.adapters.arranging import TOOL_DESCRIPTION, TOOL_NAME, Message, preamble, with_tail
from promptkeel.prompt.adapters.asked import Asked
from promptkeel.prompt.adapters.binding import with_binding
from promptkeel.prompt.adapters.checking import checked_messages, checked_settings, refused
from promptkeel.prompt.adapters.places import Place, Places, previous_end
from promptkeel.prompt.adapters.tools import canonical
from promptkeel.prompt.requests import Request
from promptkeel.providers.segments import Kind, Mark

_ROLES: Final = frozenset({"user", "assistant"})
_KINDS: Final[Mapping[str, Kind]] = {
    "text": "text",
    "image": "image",
    "video": "image",
    "document": "document",
    "toolUse": "tool_use",
    "toolResult": "tool_result",
    "reasoningContent": "reasoning",
}
_MADE: Final = {
    "modelId": "give model=",
    "system": "declare a block",
    "messages": "give messages=",
    "toolConfig": "give tools= and tool_choice=",
}
_POINT: Final = "cachePoint"
_NO_POINTS: Final = (
    "no cache points: nothing is known of this model that says that it takes them, and others refuse a request that "
    "has any; overrides= can say so"
)
_FIELDS: Final = "additionalModelRequestFields"
_TTLS: Final = {300: "5m", 3600: "1h"}
_SECONDS: Final = {None: None, "5m": 300, "1h": 3600}


@final
class BedrockSpelling:
    """The messages of Converse."""

    alternates = True

    def user(self, texts: Sequence[str]) -> Message:
        """A message of the user's, a part for each text."""
        return {"role": "user", "content": [{"text": text} for text in texts]}

    def assistant(self, text: str) -> Message:
        """A message of the model's."""
        return {"role": "assistant", "content": [{"text": text}]}

    def call(self, call_id: str) -> Message:
        """A call of the tool in the model's name."""
        return {
            "role": "assistant",
            "content": [{"toolUse": {"toolUseId": call_id, "name": TOOL_NAME, "input": {}}}],
        }

    def results(self, call_id: str, results: Sequence[str], texts: Sequence[str]) -> list[Message]:
        """The message that holds the results of a call, and texts of the user's behind them."""
        result = {"toolResult": {"toolUseId": call_id, "content": [{"text": text} for text in results]}}
        return [{"role": "user", "content": [result, *({"text": text} for text in texts)]}]

    def with_texts(self, message: Any, texts: Sequence[str]) -> Message | None:
        """A copy of a user's message with texts at its end."""
        return {**message, "content": [*message["content"], *({"text": text} for text in texts)]}

    def is_user(self, message: Any) -> bool:
        """Whether this is a message of the user's, or holds results of tools."""
        return bool(message["role"] == "user")

    def opens_turn(self, message: Any) -> bool:
        """Whether this is a message of the user's that is not only results of tools."""
        return self.is_user(message) and not any("toolResult" in block for block in message["content"])

    def answers(self, message: Any) -> bool:
        """Whether the model said this."""
        return bool(message["role"] == "assistant")


SPELLING: Final = BedrockSpelling()


def bedrock_request(asked: Asked, tool_choice: Mapping[str, Any] | None = None) -> Request:
    """The keyword arguments of ``client.converse``.

    Raises:
        InvalidInputError: names the message, tool or setting that the API would refuse.
    """
    checked_settings(asked.settings, _MADE)
    messages = checked_messages(asked.messages, _ROLES)
    places = Places(asked)
    tools = _tools(asked, places)
    places.add_system()
    system: list[Any] = [{"text": section.text} for section in asked.layout.of("system")]
    before = preamble(asked.layout, SPELLING)
    _add_preamble(places, asked, before)
    base = len(before)
    for index, message in enumerate(messages, base):
        _add_message(places, message, index, index - base)
    settings = dict(asked.settings)
    thinking, notes = with_binding(_thinking(settings), places.found, asked.rules)
    if thinking is not None:
        settings[_FIELDS] = {**(settings.get(_FIELDS) or {}), "thinking": thinking}
    arranged = with_tail(messages, asked.tail, SPELLING, in_turn=not _thinks_by_hand(settings))
    sent: list[Any] = [*before, *messages[: arranged.kept - arranged.inside], *arranged.after]
    last = previous_end(messages, SPELLING.answers)
    planned = places.plan(base + arranged.kept, None if last is None else base + last)
    # From the last to the first, so that the positions in front stay what they are.
    for place, mark in sorted(planned.changed(), key=_place_of, reverse=True):
        if place.section == "messages":
            content = _with_point(sent[place.message]["content"], place, mark)
            sent[place.message] = {**sent[place.message], "content": content}
        elif place.section == "tools":
            tools = _with_point(tools, place, mark)
        else:
            system = _with_point(system, place, mark)
    arguments: dict[str, Any] = {"modelId": asked.model}
    if system:
        arguments["system"] = system
    arguments["messages"] = sent
    if tools:
        arguments["toolConfig"] = {"tools": tools, **({} if tool_choice is None else {"toolChoice": tool_choice})}
    arguments.update(settings)
    if not asked.rules.marks:
        notes = (*notes, _NO_POINTS)
    return answered(asked, arguments, messages, planned.plan, notes)


def _place_of(changed: tuple[Place, Mark | None]) -> tuple[int, int]:
    return changed[0].message, changed[0].part


def _with_point(content: Sequence[Any], place: Place, mark: Mark | None) -> list[Any]:
    """Blocks with another mark, or none, right after one of them."""
    rest = content[place.part + 1 :]
    if rest and _POINT in rest[0]:
        rest = rest[1:]
    point = [] if mark is None else [{_POINT: _point(mark)}]
    return [*content[: place.part + 1], *point, *rest]


def _point(mark: Mark) -> dict[str, str]:
    return {"type": "default"} if mark.ttl is None else {"type": "default", "ttl": _TTLS[mark.ttl]}


def _tools(asked: Asked, places: Places) -> list[Any]:
    tools = canonical("bedrock", asked.tools, asked.counter)
    if tools is None:
        if not asked.calls:
            return []
        # Converse wants every tool declared that was ever called.
        schema = {"json": {"type": "object", "properties": {}}}
        places.add("tools", "tool", asked.tokens_of(TOOL_DESCRIPTION), "deployment")
        return [{"toolSpec": {"name": TOOL_NAME, "description": TOOL_DESCRIPTION, "inputSchema": schema}}]
    spelled = tools.fresh()
    for part, tokens in enumerate(tools.tokens):
        if _POINT in spelled[part]:
            places.mark_last(_mark_of(spelled[part], "tools", part))
        else:
            places.add("tools", "tool", tokens, "deployment", part=part)
    return spelled


def _add_preamble(places: Places, asked: Asked, before: Sequence[Message]) -> None:
    durabilities = [section.durability for section in asked.layout.sections if section.channel != "system"]
    for index, message in enumerate(before):
        for part, block in enumerate(message["content"]):
            ((name, content),) = block.items()
            text = content if isinstance(content, str) else "".join(each["text"] for each in content.get("content", ()))
            places.add("messages", _KINDS[name], asked.tokens_of(text), durabilities[-1], index, part)


def _add_message(places: Places, message: Mapping[str, Any], index: int, given: int) -> None:
    content = message.get("content")
    if not isinstance(content, Sequence) or isinstance(content, str | bytes):
        raise refused(given, f"must have a list of blocks as content, not {type(content).__name__}")
    first = len(places.found)
    kinds = set()
    for part, block in enumerate(content):
        if type(block) is not dict and not isinstance(block, Mapping):
            raise refused(given, f"block {part} must be a mapping, not {type(block).__name__}")
        if _POINT in block:
            if part == 0 or _POINT in content[part - 1]:
                raise refused(given, f"block {part} is a {_POINT} with nothing before it to keep; take it out")
            places.mark_last(_mark_of(block, "messages", given))
            continue
        name = next(iter(block), "")
        kind = _KINDS.get(name, "other")
        kinds.add(kind)
        places.add_part(kind, block.get(name, ""), index, part)
    if kinds == {"document"}:
        # A message of documents alone takes no mark, as if it held nothing.
        places.found[first:] = [place._replace(tokens=0) for place in places.found[first:]]


def _mark_of(block: Mapping[str, Any], field: str, index: int) -> Mark:
    given = block[_POINT]
    ttl = given.get("ttl") if isinstance(given, Mapping) else ""
    if not isinstance(ttl, str | None) or ttl not in _SECONDS:
        raise InvalidInputError(
            f"{_POINT} must be {{'type': 'default'}}, with a ttl of 5m or 1h, not {given!r}",
            field=field,
            where=f"{field[:-1]} {index}",
        )
    return Mark(_SECONDS[ttl])


def _thinking(settings: Mapping[str, Any]) -> Any:
    fields = settings.get(_FIELDS)
    return fields.get("thinking") if isinstance(fields, Mapping) else None


def _thinks_by_hand(settings: Mapping[str, Any]) -> bool:
    """Whether the model must begin each of its messages by thinking, so that none can be made in its name."""
    thinking = _thinking(settings)
    return isinstance(thinking, Mapping) and thinking.get("type") == "enabled"
