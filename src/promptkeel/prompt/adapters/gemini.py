"""Gemini's generateContent, as google-genai spells it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from promptkeel.errors import InvalidInputError
from promptkeel.prompt.adapters.answering import answered
from promptkeel.prompt.adapters.arranging import TOOL_NAME, Message, preamble, with_tail
from promptkeel.prompt.adapters.asked import Asked
from promptkeel.prompt.adapters.checking import checked_messages, checked_settings, refused
from promptkeel.prompt.adapters.tools import canonical
from promptkeel.prompt.requests import CachedPrefix, Handle, Request
from promptkeel.properties import dump_json

_ROLES: Final = frozenset({"user", "model", "function"})
_MADE: Final = {"contents": "give messages="}
_MADE_OF_CONFIG: Final = {
    "system_instruction": "declare a block",
    "systemInstruction": "declare a block",
    "tools": "give tools=",
    "cached_content": "give handle=",
    "cachedContent": "give handle=",
}


@final
class GeminiSpelling:
    """The contents of generateContent."""

    alternates = False

    def user(self, texts: Sequence[str]) -> Message:
        """A message of the user's, a part for each text."""
        return {"role": "user", "parts": [{"text": text} for text in texts]}

    def assistant(self, text: str) -> Message:
        """A message of the model's."""
        return {"role": "model", "parts": [{"text": text}]}

    def call(self, call_id: str) -> Message:
        """A call of the tool in the model's name."""
        return {"role": "model", "parts": [{"function_call": {"id": call_id, "name": TOOL_NAME, "args": {}}}]}

    def results(self, call_id: str, results: Sequence[str], texts: Sequence[str]) -> list[Message]:
        """The message that holds the results of a call, and texts of the user's behind them."""
        response = {"id": call_id, "name": TOOL_NAME, "response": {"result": "\n\n".join(results)}}
        return [{"role": "user", "parts": [{"function_response": response}, *({"text": text} for text in texts)]}]

    def with_texts(self, message: Any, texts: Sequence[str]) -> Message | None:
        """A copy of a user's message with texts at its end."""
        return {**message, "parts": [*message["parts"], *({"text": text} for text in texts)]}

    def is_user(self, message: Any) -> bool:
        """Whether this is a message of the user's, or holds results of tools."""
        return bool(message["role"] == "user")

    def opens_turn(self, message: Any) -> bool:
        """Whether this is a message of the user's that is not only results of tools."""
        return self.is_user(message) and not any(
            "function_response" in part or "functionResponse" in part for part in message["parts"]
        )

    def answers(self, message: Any) -> bool:
        """Whether the model said this."""
        return bool(message["role"] == "model")


SPELLING: Final = GeminiSpelling()


def gemini_request(
    asked: Asked, config: Mapping[str, Any] | None, handle: Handle | None, backend: str, ttl: int | None
) -> Request:
    """The keyword arguments of ``client.models.generate_content``, and what a handle could be made of.

    Raises:
        InvalidInputError: names the message, tool or setting that the API would refuse.
    """
    checked_settings(asked.settings, _MADE)
    if handle is not None and not isinstance(handle, Handle):
        raise InvalidInputError(f"must be a Handle, with its key, not {type(handle).__name__}", field="handle")
    if ttl is not None and (type(ttl) is not int or ttl < 1):
        raise InvalidInputError(f"must be a whole number of seconds from 1, not {ttl!r}", field="ttl")
    rest = _checked_config(config)
    messages = checked_messages(asked.messages, _ROLES)
    for index, message in enumerate(messages):
        parts = message.get("parts")
        if not isinstance(parts, Sequence) or isinstance(parts, str | bytes):
            raise refused(index, f"must have a list of parts, not {type(parts).__name__}")
        for part in parts:
            if type(part) is not dict and not isinstance(part, Mapping):
                raise refused(index, f"must have parts that are mappings, not {type(part).__name__}")
    before = preamble(asked.layout, SPELLING)
    # The calls of a turn that is going on must bear signatures of the model's own.
    arranged = with_tail(messages, asked.tail, SPELLING, in_turn=False)
    sent = [*messages[: arranged.kept - arranged.inside], *arranged.after]
    kept = _kept_part(asked, before, rest)
    prefix, notes = _prefix(asked, kept, backend, ttl)
    superseded = None
    if handle is not None and prefix is not None and handle.key == prefix.key:
        bare = {name: value for name, value in rest.items() if name not in ("tool_config", "toolConfig")}
        arguments = {"model": asked.model, "contents": sent, "config": {**bare, "cached_content": handle.name}}
    else:
        superseded = None if handle is None else handle.name
        whole = {name: value for name, value in kept.items() if name != "contents"}
        arguments = {"model": asked.model, "contents": [*before, *sent], "config": {**rest, **whole}}
    if not arguments["config"]:
        del arguments["config"]
    arguments.update(asked.settings)
    return answered(asked, arguments, messages, notes=notes, prefix=prefix, superseded=superseded)


def _checked_config(config: object) -> dict[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise InvalidInputError(f"must be a mapping, not {type(config).__name__}", field="config")
    checked_settings(config, _MADE_OF_CONFIG)
    return dict(config)


def _kept_part(asked: Asked, before: Sequence[Message], config: Mapping[str, Any]) -> dict[str, Any]:
    """What a handle would stand for, as the configuration of a request and the contents before the caller's."""
    kept: dict[str, Any] = {}
    system = asked.layout.of("system")
    if system:
        kept["system_instruction"] = {"parts": [{"text": section.text} for section in system]}
    tools = canonical("gemini", asked.tools, asked.counter)
    if tools is not None:
        kept["tools"] = tools.fresh()
        choice = config.get("tool_config", config.get("toolConfig"))
        if choice is not None:
            kept["tool_config"] = choice
    if before:
        kept["contents"] = list(before)
    return kept


def _prefix(
    asked: Asked, kept: Mapping[str, Any], backend: str, ttl: int | None
) -> tuple[CachedPrefix | None, tuple[str, ...]]:
    rules = asked.rules
    if rules.scheme != "handle" or not kept:
        return None, ()
    text = dump_json(kept)
    tokens = asked.tokens_of(text)
    if tokens < rules.minimum:
        return None, (f"no handle: the prefix has about {tokens} tokens, and {rules.minimum} are the least",)
    key = hashlib.sha256(dump_json([backend, asked.model, text]).encode()).hexdigest()
    seconds = rules.ttls[0] if ttl is None else ttl
    # An empty list is refused for ever, where nothing at all is taken.
    config = {"contents": None, **json.loads(text), "ttl": f"{seconds}s", "display_name": f"promptkeel {key[:12]}"}
    return CachedPrefix(key, {"model": asked.model, "config": config}), ()
