"""Which format a request of unknown origin is in; where two could be meant, none is named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from promptkeel.providers.segments import WireFormat

_CHAT_ROLES: Final = ("system", "developer", "tool", "function")
_CHAT_NAMES: Final = ("max_completion_tokens", "response_format", "reasoning_effort", "prompt_cache_key", "n", "seed")
_ANTHROPIC_BLOCKS: Final = ("tool_use", "tool_result", "thinking", "redacted_thinking", "document")
_ANTHROPIC_NAMES: Final = ("thinking", "stop_sequences", "top_k", "cache_control", "anthropic_version", "output_config")
_OPENAI_MODEL: Final = re.compile(r"(openai/)?(gpt-|o\d|chatgpt)")


def detect_format(arguments: Mapping[str, Any]) -> WireFormat | None:
    """The format of a request; None where nothing, or more than one thing, speaks for one."""
    if "modelId" in arguments or "toolConfig" in arguments or "inferenceConfig" in arguments:
        return "bedrock"
    if "contents" in arguments:
        return "gemini"
    if "input" in arguments and "messages" not in arguments:
        return "openai-responses"
    if not isinstance(arguments.get("messages"), list | tuple):
        return None
    signs = set(_signs(arguments))
    if not signs:
        signs = set(_sign_of_model(str(arguments.get("model") or "")))
    return signs.pop() if len(signs) == 1 else None


def _signs(arguments: Mapping[str, Any]) -> Iterator[WireFormat]:
    if "system" in arguments or any(name in arguments for name in _ANTHROPIC_NAMES):
        yield "anthropic"
    if any(name in arguments for name in _CHAT_NAMES):
        yield "openai-chat"
    for tool in _mappings(arguments.get("tools")):
        if "input_schema" in tool:
            yield "anthropic"
        if "function" in tool:
            yield "openai-chat"
    for message in _mappings(arguments["messages"]):
        if message.get("role") in _CHAT_ROLES or message.get("tool_calls"):
            yield "openai-chat"
        for block in _mappings(message.get("content")):
            yield from _signs_of_block(block)


def _signs_of_block(block: Mapping[str, Any]) -> Iterator[WireFormat]:
    if block.get("type") in _ANTHROPIC_BLOCKS:
        yield "anthropic"
    if block.get("type") in ("image_url", "input_audio", "file"):
        yield "openai-chat"
    if "type" not in block and {"text", "toolUse", "toolResult"} & set(block):
        yield "bedrock"


def _sign_of_model(model: str) -> Iterator[WireFormat]:
    if model.rpartition("/")[2].startswith("claude"):
        yield "anthropic"
    if _OPENAI_MODEL.match(model):
        yield "openai-chat"


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list | tuple):
        yield from (each for each in value if isinstance(each, Mapping))
