"""OpenAI's Chat Completions, and what is compatible with them, as a cache sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from promptkeel.providers.sdk_objects import as_plain
from promptkeel.providers.segments import Kind, Mark, Section, Segment, WireRequest
from promptkeel.providers.wire.blocks import (
    as_items,
    as_mapping,
    seconds,
    segment,
    settings_of,
    text_parts,
    without_marks,
)

BREAKPOINT: Final = "prompt_cache_breakpoint"
MARKS: Final = (BREAKPOINT, "cache_control")
"""How parts are marked: as OpenAI does it, and as gateways to other providers take it."""
_KINDS: Final[Mapping[str, Kind]] = {
    "text": "text",
    "refusal": "text",
    "image_url": "image",
    "input_audio": "other",
    "file": "document",
    "thinking": "reasoning",
}
_PASSING: Final = ("comparison_response_id", "prewarm")
_KNOWN: Final = (
    "role", "content", "name", "refusal", "tool_calls", "function_call", "reasoning_content", "reasoning",
    "reasoning_details", *MARKS,
)  # fmt: skip
SYSTEM_ROLES: Final = ("system", "developer")
_SETTINGS: Final = (
    "tool_choice", "reasoning_effort", "response_format", "verbosity", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "cache_salt", "service_tier", "modalities", "functions", "parallel_tool_calls",
)  # fmt: skip


def read_openai_chat(arguments: Mapping[str, Any]) -> WireRequest:
    """A request as its prefix.

    Raises:
        InvalidInputError: it cannot be read; names the place.
    """
    arguments = with_lasting_options(arguments)
    return WireRequest(
        "openai-chat",
        str(arguments.get("model") or ""),
        tuple(_segments(arguments)),
        settings_of(arguments, _SETTINGS),
        implicit_mark(arguments),
    )


def with_lasting_options(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments without those options of the cache that decide nothing about what is found."""
    options = as_plain(arguments.get("prompt_cache_options"), field="prompt_cache_options")
    if not isinstance(options, dict):
        return arguments
    lasting = {name: value for name, value in options.items() if name not in _PASSING and value is not None}
    return {**arguments, "prompt_cache_options": lasting or None}


def implicit_mark(arguments: Mapping[str, Any]) -> Mark | None:
    """The mark that OpenAI sets by itself, unless it is told not to."""
    options = as_plain(arguments.get("prompt_cache_options"))
    if not isinstance(options, dict):
        return Mark()
    if options.get("mode") == "explicit":
        return None
    return Mark(seconds(options.get("ttl"), "prompt_cache_options.ttl"))


def tools_of(arguments: Mapping[str, Any]) -> Iterator[Segment]:
    """The tools of a request."""
    for index, tool in enumerate(as_items(arguments.get("tools"), "tools")):
        field = f"tools[{index}]"
        block, mark = marked(as_mapping(tool, field), field)
        yield segment("tools", "tool", "", block, mark=mark, field=field)


def marked(block: Any, field: str) -> tuple[Any, Mark | None]:
    """A block without its mark, and the mark."""
    found = None
    for name in MARKS:
        block, mark = without_marks(block, name, field)
        found = mark or found
    return block, found


def _segments(arguments: Mapping[str, Any]) -> Iterator[Segment]:
    yield from tools_of(arguments)
    leads = True
    for index, given in enumerate(as_items(arguments.get("messages"), "messages")):
        field = f"messages[{index}]"
        message = as_mapping(given, field)
        role = str(message.get("role", ""))
        leads = leads and role in SYSTEM_ROLES
        found = list(_message(message, role, "system" if leads else "messages", -1 if leads else index, field))
        if any(name in message for name in MARKS) and found and found[-1].mark is None:
            _, mark = marked({name: message[name] for name in MARKS if name in message}, field)
            found[-1] = attrs.evolve(found[-1], mark=mark)
        yield from found


def _message(message: dict[str, Any], role: str, section: Section, index: int, field: str) -> Iterator[Segment]:
    if role in ("tool", "function"):
        block, mark = marked({name: item for name, item in message.items() if name != "role"}, field)
        block = {**block, "content": text_parts(block.get("content"))}
        yield segment(section, "tool_result", role, block, message=index, mark=mark, field=field)
        return
    for name in ("reasoning_content", "reasoning", "reasoning_details"):
        if message.get(name):
            yield segment(section, "reasoning", role, {name: message[name]}, message=index, field=field)
    parts = as_items(text_parts(message.get("content")), f"{field}.content")
    if message.get("refusal"):
        parts.append({"type": "refusal", "refusal": message["refusal"]})
    extra = {"name": message["name"]} if message.get("name") else {}
    for number, part in enumerate(parts):
        place = f"{field}.content[{number}]"
        block, mark = marked(as_mapping(part, place), place)
        kind = _KINDS.get(str(block.get("type")), "other")
        yield segment(section, kind, role, {**block, **extra}, message=index, mark=mark, field=place)
    for name in sorted(message):
        if name not in _KNOWN and message[name]:
            yield segment(section, "other", role, {name: message[name]}, message=index, field=f"{field}.{name}")
    calls = as_items(message.get("tool_calls"), f"{field}.tool_calls")
    if message.get("function_call"):
        calls.append({"type": "function", "function": message["function_call"]})
    for number, call in enumerate(calls):
        place = f"{field}.tool_calls[{number}]"
        block, mark = marked(as_mapping(call, place), place)
        yield segment(section, "tool_use", role, block, message=index, mark=mark, field=place)
