"""Anthropic's Messages API as a cache sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from promptkeel.providers.segments import Kind, Mark, Section, Segment, WireRequest
from promptkeel.providers.wire.blocks import as_items, as_mapping, seconds, segment, settings_of, without_marks

_MARK: Final = "cache_control"
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
_SETTINGS: Final = (
    "tool_choice", "thinking", "output_config", "output_format", "betas", "context_management", "speed",
    "inference_geo", "mcp_servers", "container",
)  # fmt: skip


def read_anthropic(arguments: Mapping[str, Any]) -> WireRequest:
    """A request as its prefix.

    Raises:
        InvalidInputError: it cannot be read; names the place.
    """
    automatic = arguments.get(_MARK)
    ttl = automatic.get("ttl") if isinstance(automatic, Mapping) else None
    return WireRequest(
        "anthropic",
        str(arguments.get("model") or ""),
        tuple(_segments(arguments)),
        settings_of(arguments, _SETTINGS),
        None if automatic is None else Mark(seconds(ttl, f"{_MARK}.ttl")),
    )


def _segments(arguments: Mapping[str, Any]) -> Iterator[Segment]:
    for index, tool in enumerate(as_items(arguments.get("tools"), "tools")):
        field = f"tools[{index}]"
        block, mark = without_marks(as_mapping(tool, field), _MARK, field)
        yield segment("tools", "tool", "", block, mark=mark, field=field)
    yield from _blocks(arguments.get("system"), "system", "system", -1, "system")
    for index, given in enumerate(as_items(arguments.get("messages"), "messages")):
        message = as_mapping(given, f"messages[{index}]")
        role = str(message.get("role", ""))
        yield from _blocks(message.get("content"), "messages", role, index, f"messages[{index}].content")


def _blocks(content: Any, section: Section, role: str, message: int, field: str) -> Iterator[Segment]:
    if content is None:
        return
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for index, given in enumerate(as_items(content, field)):
        place = f"{field}[{index}]"
        block, mark = without_marks(as_mapping(given, place), _MARK, place)
        kind = _KINDS.get(str(block.get("type")), "other")
        yield segment(section, kind, role, block, message=message, mark=mark, field=place)
