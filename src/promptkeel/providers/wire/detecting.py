"""Which format a request of unknown origin is in; where two could be meant, none is named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from promptkeel.providers.segments import WireFormat

_CHAT_ROLES: Final = ("developer", "tool", "function")
_ANTHROPIC_BLOCKS: Final = (
    "tool_use", "tool_result", "thinking", "redacted_thinking", "document", "image", "search_result", "server_tool_use",
)  # fmt: skip
_NAMES: Final[Mapping[WireFormat, tuple[str, ...]]] = {
    "anthropic": ("thinking", "stop_sequences", "top_k", "cache_control", "anthropic_version", "output_config"),
    "openai-responses": ("input",),
    "openai-chat": (
        "max_completion_tokens", "response_format", "reasoning_effort", "prompt_cache_key", "n", "seed",
    ),
    "gemini": ("contents",),
    "bedrock": ("modelId", "toolConfig", "inferenceConfig"),
}  # fmt: skip
"""Arguments beside the messages that one format alone has."""
_OPENAI_MODEL: Final = re.compile(r"(openai/)?(gpt-|o\d|chatgpt)")
_NO_PROMPT: Final = re.compile(r"embed|moderation|tts|whisper|transcribe")
"""In the names of models that take an input and keep no prefix of it."""


def detect_format(arguments: Mapping[str, Any]) -> WireFormat | None:
    """The format of a request; None where nothing, or more than one thing, speaks for one.

    A model's name decides only where nothing else does, and only without a prefix: ``anthropic/claude-...`` names a
    model to gateways, whose format is another one.
    """
    given: object = arguments
    if not isinstance(given, Mapping):
        return None
    model = str(arguments.get("model") or arguments.get("modelId") or "")
    if "body" in arguments or _NO_PROMPT.search(model):
        return None
    if not isinstance(arguments.get("messages"), list | tuple):
        if "contents" in arguments:
            return None if "input" in arguments else "gemini"
        return "openai-responses" if "input" in arguments and "modelId" not in arguments else None
    signs = set(_signs(arguments))
    if not signs:
        signs = set(_sign_of_model(model, limited="max_tokens" in arguments))
    return signs.pop() if len(signs) == 1 else None


def _signs(arguments: Mapping[str, Any]) -> Iterator[WireFormat]:
    for wire_format, names in _NAMES.items():
        if any(name in arguments for name in names):
            yield wire_format
    if "system" in arguments:
        blocks = list(_mappings(arguments["system"]))
        yield "bedrock" if blocks and all("type" not in block for block in blocks) else "anthropic"
    for tool in _mappings(arguments.get("tools")):
        if "input_schema" in tool:
            yield "anthropic"
        if "function" in tool:
            yield "openai-chat"
    messages = list(_mappings(arguments["messages"]))
    if messages and messages[0].get("role") == "system":  # Anthropic's come after a user's
        yield "openai-chat"
    for message in messages:
        yield from _signs_of_message(message)


def _signs_of_message(message: Mapping[str, Any]) -> Iterator[WireFormat]:
    if message.get("role") in _CHAT_ROLES or message.get("tool_calls"):
        yield "openai-chat"
    for block in _mappings(message.get("content")):
        yield from _signs_of_block(block)


def _signs_of_block(block: Mapping[str, Any]) -> Iterator[WireFormat]:
    if block.get("type") in _ANTHROPIC_BLOCKS:
        yield "anthropic"
    if block.get("type") in ("image_url", "input_audio", "file"):
        yield "openai-chat"
    if "type" not in block and {"text", "toolUse", "toolResult", "cachePoint"} & set(block):
        yield "bedrock"


def _sign_of_model(model: str, *, limited: bool) -> Iterator[WireFormat]:
    if model.startswith("claude") and limited:  # max_tokens, which Anthropic's API requires
        yield "anthropic"
    if _OPENAI_MODEL.match(model):
        yield "openai-chat"


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list | tuple):
        yield from (each for each in value if isinstance(each, Mapping))
