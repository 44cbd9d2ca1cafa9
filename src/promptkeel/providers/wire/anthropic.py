"""Anthropic's Messages API as a cache sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

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

_MARK: Final = "cache_control"
_KINDS: Final[Mapping[str, Kind]] = {
    "text": "text",
    "image": "image",
    "document": "document",
    "tool_use": "tool_use",
    "server_tool_use": "tool_use",
    "mcp_tool_use": "tool_use",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
}
_RESULT: Final = "tool_result"
"""How the types of results end, those of the provider's own tools among them."""
_SETTINGS: Final = (
    "tool_choice", "thinking", "output_config", "output_format", "betas", "context_management", "speed",
    "inference_geo", "mcp_servers", "container", "anthropic_beta",
)  # fmt: skip


def read_anthropic(arguments: Mapping[str, Any]) -> WireRequest:
    """A request as its prefix.

    Raises:
        InvalidInputError: it cannot be read; names the place.
    """
    automatic = as_plain(arguments.get(_MARK), field=_MARK)
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
    for index, given in enumerate(as_items(text_parts(content), field)):
        place = f"{field}[{index}]"
        block, mark = without_marks(as_mapping(given, place), _MARK, place)
        spelled = str(block.get("type"))
        kind: Kind = "tool_result" if spelled.endswith(_RESULT) else _KINDS.get(spelled, "other")
        if spelled == _RESULT and isinstance(block.get("content"), str):
            block = {**block, "content": text_parts(block["content"])}
        yield segment(section, kind, role, block, message=message, mark=mark, field=place)
