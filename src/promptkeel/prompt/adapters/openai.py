"""OpenAI's Responses and Chat Completions, and servers that speak the latter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, final, get_args

from promptkeel.errors import InvalidDeclarationError, InvalidInputError
from promptkeel.prompt.adapters.answering import answered
from promptkeel.prompt.adapters.arranging import TOOL_NAME, Message, preamble, with_tail
from promptkeel.prompt.adapters.asked import Asked
from promptkeel.prompt.adapters.checking import checked_messages, checked_settings, refused
from promptkeel.prompt.adapters.places import Places, kind_of, previous_end
from promptkeel.prompt.adapters.tools import canonical
from promptkeel.prompt.breakpoints import MarkPlan
from promptkeel.prompt.requests import Request
from promptkeel.providers.segments import KINDS, Kind, Mark

Server = Literal["openai", "vllm"]
"""Whose server it is: OpenAI's, or one that keeps prefixes apart by a salt, as vLLM does."""
SERVERS: Final[tuple[Server, ...]] = get_args(Server)

_RESPONSES_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
_CHAT_ROLES: Final = frozenset({"user", "assistant", "system", "developer", "tool", "function"})
_MADE: Final = {
    "instructions": "declare a block",
    "prompt_cache_key": "it follows from the scope; declare who shares it with salt=",
    "cache_salt": "it follows from the scope; declare who shares it with salt=",
}
_MARK: Final = "prompt_cache_breakpoint"
_PART_KINDS: Final[Mapping[str, Kind]] = {
    "text": "text",
    "input_text": "text",
    "image_url": "image",
    "input_image": "image",
    "input_audio": "image",
    "file": "document",
    "input_file": "document",
}
_MARKABLE: Final[frozenset[Kind]] = frozenset({"text", "image", "document"})
_UNMARKABLE: Final[frozenset[Kind]] = frozenset(KINDS) - _MARKABLE
_SECONDS: Final = {None: None, "30m": 1800, "12h": 43_200}
_TTLS: Final = {seconds: ttl for ttl, seconds in _SECONDS.items()}


@final
class ResponsesSpelling:
    """The input items of Responses."""

    alternates = False

    def part(self, text: str) -> dict[str, Any]:
        """A part of a message."""
        return _input_text(text)

    def user(self, texts: Sequence[str]) -> Message:
        """A message of the user's, a part for each text."""
        return {"type": "message", "role": "user", "content": [_input_text(text) for text in texts]}

    def developer(self, texts: Sequence[str]) -> Message:
        """A message of the operator's."""
        return {"type": "message", "role": "developer", "content": [_input_text(text) for text in texts]}

    def assistant(self, text: str) -> Message:
        """A message of the model's."""
        return {"role": "assistant", "content": text}

    def call(self, call_id: str) -> Message:
        """A call of the tool in the model's name."""
        return {"type": "function_call", "call_id": call_id, "name": TOOL_NAME, "arguments": "{}"}

    def results(self, call_id: str, results: Sequence[str], texts: Sequence[str]) -> list[Message]:
        """The items that hold the results of a call, and texts of the user's behind them."""
        output = {"type": "function_call_output", "call_id": call_id, "output": "\n\n".join(results)}
        return [output, *([self.user(texts)] if texts else [])]

    def with_texts(self, message: Any, texts: Sequence[str]) -> Message | None:  # noqa: ARG002 - of the protocol
        """None: a message of their own costs nothing here."""
        return None

    def is_user(self, message: Any) -> bool:
        """Whether this is a message of the user's, or holds results of tools."""
        return message.get("role") == "user" or str(message.get("type", "")).endswith("_output")

    def opens_turn(self, message: Any) -> bool:
        """Whether this is a message of the user's."""
        return bool(message.get("role") == "user")

    def answers(self, message: Any) -> bool:
        """Whether the model said this."""
        kind = str(message.get("type") or "message")
        return message.get("role") == "assistant" if kind == "message" else not kind.endswith("_output")


@final
class ChatSpelling:
    """The messages of Chat Completions."""

    alternates = False

    def part(self, text: str) -> dict[str, Any]:
        """A part of a message."""
        return _text(text)

    def user(self, texts: Sequence[str]) -> Message:
        """A message of the user's, a part for each text."""
        return {"role": "user", "content": [_text(text) for text in texts]}

    def assistant(self, text: str) -> Message:
        """A message of the model's."""
        return {"role": "assistant", "content": text}

    def call(self, call_id: str) -> Message:
        """A call of the tool in the model's name."""
        function = {"name": TOOL_NAME, "arguments": "{}"}
        return {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]}

    def results(self, call_id: str, results: Sequence[str], texts: Sequence[str]) -> list[Message]:
        """The messages that hold the results of a call, and texts of the user's behind them."""
        result = {"role": "tool", "tool_call_id": call_id, "content": "\n\n".join(results)}
        return [result, *([self.user(texts)] if texts else [])]

    def with_texts(self, message: Any, texts: Sequence[str]) -> Message | None:  # noqa: ARG002 - of the protocol
        """None: a message of their own costs nothing here."""
        return None

    def is_user(self, message: Any) -> bool:
        """Whether this is a message of the user's, or holds results of tools."""
        return message["role"] in ("user", "tool", "function")

    def opens_turn(self, message: Any) -> bool:
        """Whether this is a message of the user's."""
        return bool(message["role"] == "user")

    def answers(self, message: Any) -> bool:
        """Whether the model said this."""
        return bool(message["role"] == "assistant")


def _input_text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


RESPONSES: Final = ResponsesSpelling()
CHAT: Final = ChatSpelling()


def openai_request(asked: Asked, api: str, server: Server) -> Request:
    """The keyword arguments of one of the two APIs."""
    if api not in ("responses", "chat"):
        raise InvalidInputError(f"must be 'responses' or 'chat', not {api!r}", field="api")
    if server not in SERVERS:
        raise InvalidInputError(f"must be one of {', '.join(SERVERS)}, not {server!r}", field="server")
    return responses_request(asked, server) if api == "responses" else chat_request(asked, server)


def responses_request(asked: Asked, server: Server) -> Request:
    """The keyword arguments of ``client.responses.create``.

    Raises:
        InvalidInputError: names the message, tool or setting that the API would refuse.
        InvalidDeclarationError: there is no secret to make a salt of.
    """
    checked_settings(asked.settings, {**_MADE, "input": "give messages="})
    messages = checked_messages(asked.messages, _RESPONSES_ROLES, typed=True)
    arguments: dict[str, Any] = {"model": asked.model}
    if asked.settings.get("previous_response_id") or asked.settings.get("conversation"):
        return _chained(asked, server, messages, arguments)
    before = preamble(asked.layout, RESPONSES)
    system = asked.layout.of("system")
    if system:
        before = [RESPONSES.developer([section.text for section in system]), *before]
    return _made(asked, server, messages, before, "input", arguments)


def chat_request(asked: Asked, server: Server) -> Request:
    """The keyword arguments of ``client.chat.completions.create``.

    Raises:
        InvalidInputError: names the message, tool or setting that the API would refuse.
        InvalidDeclarationError: there is no secret to make a salt of.
    """
    checked_settings(asked.settings, _MADE)
    messages = checked_messages(asked.messages, _CHAT_ROLES)
    before = preamble(asked.layout, CHAT)
    system = asked.layout.of("system")
    if system and server == "openai":
        before = [{"role": "developer", "content": [_text(section.text) for section in system]}, *before]
    elif system:
        # Chat templates of open models know no developer, and not all of them know parts.
        before = [{"role": "system", "content": asked.layout.text("system")}, *before]
    return _made(asked, server, messages, before, "messages", {"model": asked.model})


def _made(
    asked: Asked,
    server: Server,
    messages: Sequence[Mapping[str, Any]],
    before: list[Message],
    field: Literal["input", "messages"],
    arguments: dict[str, Any],
) -> Request:
    spelling = RESPONSES if field == "input" else CHAT
    places = Places(asked)
    tools = canonical("openai-responses" if field == "input" else "openai-chat", asked.tools, asked.counter)
    for part, tokens in enumerate(() if tools is None else tools.tokens):
        places.add("tools", "tool", tokens, "deployment", part=part)
    _add_before(places, asked, before)
    base = len(before)
    for index, message in enumerate(messages, base):
        _add_message(places, message, index, index - base)
    arranged = with_tail(messages, asked.tail, spelling)
    sent: list[Any] = [*before, *messages[: arranged.kept], *arranged.after]
    settings = dict(asked.settings)
    plan = None
    if asked.rules.scheme == "marks" and server == "openai":
        last = previous_end(messages, spelling.answers)
        written = None if last is None else base + last
        plan = _mark(places, sent, settings, spelling, end=base + arranged.kept, written=written)
    if tools is not None:
        arguments["tools"] = tools.fresh()
    arguments[field] = sent
    arguments.update(settings)
    return answered(asked, arguments, messages, plan, _add_salt(asked, server, arguments))


def _chained(asked: Asked, server: Server, messages: Sequence[Mapping[str, Any]], arguments: dict[str, Any]) -> Request:
    """A request that goes on from what the provider keeps: the prompt is sent where nothing of it is kept there."""
    for section in asked.layout.sections:
        if section.channel != "system":
            raise InvalidInputError(
                f"a chain would keep {', '.join(section.names)} in each of its requests, since the channel is "
                f"{section.channel!r}: declare the channel 'system', or send the whole conversation",
                field="previous_response_id",
            )
    notes = []
    if asked.tail:
        notes.append(f"the chain keeps {', '.join(part.name for part in asked.tail)} of this request's tail")
    system = asked.layout.text("system")
    if system:
        arguments["instructions"] = system
    tools = canonical("openai-responses", asked.tools, asked.counter)
    if tools is not None:
        arguments["tools"] = tools.fresh()
    arranged = with_tail(messages, asked.tail, RESPONSES)
    arguments["input"] = [*messages[: arranged.kept], *arranged.after]
    arguments.update(asked.settings)
    notes += _add_salt(asked, server, arguments)
    return answered(asked, arguments, messages, notes=notes)


def _add_salt(asked: Asked, server: Server, arguments: dict[str, Any]) -> tuple[str, ...]:
    if server == "vllm":
        if asked.keys is None:
            raise InvalidDeclarationError(
                "there is no key to make a salt of: give the resolver a store, or secret=", field="salt"
            )
        extra = arguments.get("extra_body") or {}
        if "cache_salt" in extra:
            raise InvalidInputError(f"is made from the prompt: {_MADE['cache_salt']}", field="extra_body.cache_salt")
        arguments["extra_body"] = {**extra, "cache_salt": asked.keys.salt(asked.salt)}
        return ()
    if asked.keys is None:
        return ("no prompt_cache_key: there is no key to make one of; give the resolver a store, or secret=",)
    arguments["prompt_cache_key"] = asked.keys.salt(asked.salt)
    return ()


def _add_before(places: Places, asked: Asked, before: Sequence[Message]) -> None:
    durabilities = [section.durability for section in asked.layout.sections]
    system = len(asked.layout.of("system"))
    for index, message in enumerate(before):
        content = message.get("content")
        is_system = message.get("role") in ("developer", "system")
        parts = content if isinstance(content, list) else [{"type": "", "text": content or message.get("output", "")}]
        for part, block in enumerate(parts):
            kind = _PART_KINDS.get(block["type"], "other")
            place = part if is_system and len(parts) == system else len(durabilities) - 1
            places.add("messages", kind, asked.tokens_of(block["text"]), durabilities[place], index, part)


def _add_message(places: Places, message: Mapping[str, Any], index: int, given: int) -> None:
    content = message.get("content")
    if isinstance(content, str):
        kind: Kind = "text" if message.get("role") != "assistant" and message.get("role") != "tool" else "other"
        places.add_part(kind, content if content.strip() else "", index, 0, None)
        return
    if not isinstance(content, Sequence):
        places.add_part("reasoning" if message.get("type") == "reasoning" else "other", message, index, 0, None)
        return
    for part, block in enumerate(content):
        if type(block) is not dict and not isinstance(block, Mapping):
            raise refused(given, f"part {part} must be a mapping, not {type(block).__name__}")
        mark = _mark_of(block, given) if _MARK in block else None
        kind = kind_of(block, _PART_KINDS)
        inner: Any = block.get("text") if kind == "text" else block
        places.add_part(kind, inner if not isinstance(inner, str) or inner.strip() else "", index, part, mark)


def _mark(
    places: Places,
    sent: list[Any],
    settings: dict[str, Any],
    spelling: ResponsesSpelling | ChatSpelling,
    *,
    end: int,
    written: int | None,
) -> MarkPlan:
    """Set marks, and say that there are only these where the provider's own would stand behind the tail."""
    given = settings.get("prompt_cache_options")
    options = dict(given) if isinstance(given, Mapping) else {}
    last = next((place for place in reversed(places.found) if place.message < end), None)
    explicit = len(sent) > end and last is not None and last.kind in _MARKABLE
    if "mode" in options:
        explicit = options["mode"] == "explicit"
    planned = places.plan(end, written, automatic=None if explicit else Mark(), unmarkable=_UNMARKABLE, remark=explicit)
    for place, mark in planned.changed():
        sent[place.message] = _marked(sent[place.message], place.part, mark, spelling)
    if explicit and planned.plan.marks and "mode" not in options:
        settings["prompt_cache_options"] = {**options, "mode": "explicit"}
    return planned.plan


def _mark_of(block: Mapping[str, Any], index: int) -> Mark:
    given = block[_MARK]
    ttl = given.get("ttl") if isinstance(given, Mapping) else ""
    if not isinstance(ttl, str | None) or ttl not in _SECONDS:
        raise refused(index, f"{_MARK} must be {{'mode': 'explicit'}}, with a ttl of 30m or 12h, not {given!r}")
    return Mark(_SECONDS[ttl])


def _marked(
    message: Mapping[str, Any], part: int, mark: Mark | None, spelling: ResponsesSpelling | ChatSpelling
) -> dict[str, Any]:
    content = message["content"]
    if isinstance(content, str):
        content = [spelling.part(content)]
    block = {name: value for name, value in content[part].items() if name != _MARK}
    if mark is not None:
        block[_MARK] = {"mode": "explicit"} if mark.ttl is None else {"mode": "explicit", "ttl": _TTLS[mark.ttl]}
    return {**message, "content": [*content[:part], block, *content[part + 1 :]]}
