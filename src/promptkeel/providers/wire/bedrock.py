"""Amazon Bedrock's Converse as a cache sees it: cache points are blocks of their own behind what they keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from promptkeel.providers.segments import Kind, Mark, Section, Segment, WireRequest
from promptkeel.providers.wire.blocks import as_items, as_mapping, seconds, segment, settings_of

_POINT: Final = "cachePoint"
_KINDS: Final[tuple[tuple[str, Kind], ...]] = (
    ("text", "text"),
    ("image", "image"),
    ("document", "document"),
    ("toolUse", "tool_use"),
    ("toolResult", "tool_result"),
    ("reasoningContent", "reasoning"),
)
_SETTINGS: Final = (
    "toolChoice", "additionalModelRequestFields", "performanceConfig", "guardrailConfig", "serviceTier",
    "outputConfig", "promptVariables",
)  # fmt: skip


def read_bedrock(arguments: Mapping[str, Any]) -> WireRequest:
    """A request as its prefix.

    Raises:
        InvalidInputError: it cannot be read; names the place.
    """
    tools = arguments.get("toolConfig")
    config = {} if tools is None else as_mapping(tools, "toolConfig")
    return WireRequest(
        "bedrock",
        str(arguments.get("modelId") or ""),
        tuple(_segments(arguments, config)),
        settings_of({**arguments, "toolChoice": config.get("toolChoice")}, _SETTINGS),
    )


def _segments(arguments: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Segment]:
    yield from _blocks(as_items(config.get("tools"), "toolConfig.tools"), "tools", "", -1, "toolConfig.tools")
    yield from _blocks(as_items(arguments.get("system"), "system"), "system", "system", -1, "system")
    for index, given in enumerate(as_items(arguments.get("messages"), "messages")):
        field = f"messages[{index}]"
        message = as_mapping(given, field)
        content = as_items(message.get("content"), f"{field}.content")
        yield from _blocks(content, "messages", str(message.get("role", "")), index, f"{field}.content")


def _blocks(blocks: Iterable[Any], section: Section, role: str, message: int, field: str) -> Iterator[Segment]:
    waiting: Segment | None = None
    for index, given in enumerate(blocks):
        place = f"{field}[{index}]"
        block = as_mapping(given, place)
        point = block.get(_POINT)
        if point is not None:
            ttl = point.get("ttl") if isinstance(point, dict) else None
            mark = Mark(seconds(ttl, f"{place}.{_POINT}.ttl"))
            if waiting is not None and waiting.mark is None:
                waiting = attrs.evolve(waiting, mark=mark)
                continue
            if waiting is not None:
                yield waiting
            # Behind another point, or behind nothing: a place of its own, without content.
            waiting = Segment(section, "other", role, "", message, mark)
            continue
        if waiting is not None:
            yield waiting
        kind: Kind = "tool" if section == "tools" else next((kind for name, kind in _KINDS if name in block), "other")
        waiting = segment(section, kind, role, block, message=message, field=place)
    if waiting is not None:
        yield waiting
