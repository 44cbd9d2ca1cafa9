"""Gemini's generateContent as a cache sees it: in the SDK's spelling and in that of REST."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from promptkeel.providers.segments import Kind, Section, Segment, WireRequest
from promptkeel.providers.wire.blocks import as_items, as_mapping, as_plain, segment, settings_of

_KINDS: Final[tuple[tuple[str, Kind], ...]] = (
    ("functionCall", "tool_use"),
    ("executableCode", "tool_use"),
    ("functionResponse", "tool_result"),
    ("codeExecutionResult", "tool_result"),
    ("inlineData", "image"),
    ("fileData", "document"),
    ("text", "text"),
)
_SETTINGS: Final = ("toolConfig", "thinkingConfig", "responseSchema", "responseMimeType", "responseJsonSchema")
_UNDERSCORE: Final = re.compile(r"_([a-z])")


def read_gemini(arguments: Mapping[str, Any]) -> WireRequest:
    """A request as its prefix.

    Raises:
        InvalidInputError: it cannot be read; names the place.
    """
    given = _spelled(arguments)
    for inner in ("config", "generationConfig"):
        if isinstance(given.get(inner), Mapping):
            given = {**_spelled(given[inner]), **given}
    handle = given.get("cachedContent")
    return WireRequest(
        "gemini",
        str(given.get("model") or ""),
        tuple(_segments(given)),
        settings_of(given, _SETTINGS),
        handle=None if handle is None else str(handle),
    )


def _spelled(value: Any) -> dict[str, Any]:
    """An object with its own keys as REST spells them."""
    return {_UNDERSCORE.sub(lambda found: found[1].upper(), name): item for name, item in as_plain(value).items()}


def _segments(given: Mapping[str, Any]) -> Iterator[Segment]:
    for index, tool in enumerate(as_items(given.get("tools"), "tools")):
        field = f"tools[{index}]"
        spelled = _spelled(as_mapping(tool, field))
        functions = spelled.pop("functionDeclarations", None)
        for function in as_items(functions, field):
            yield segment("tools", "tool", "", _spelled(as_mapping(function, field)), field=field)
        if spelled:
            yield segment("tools", "tool", "", spelled, field=field)
    system = given.get("systemInstruction")
    if system is not None:
        yield from _content(system, "system", "system", -1, "systemInstruction")
    contents = given.get("contents")
    if isinstance(contents, str | Mapping):
        contents = [contents]
    for index, content in enumerate(as_items(contents, "contents")):
        yield from _content(content, "messages", "user", index, f"contents[{index}]")


def _content(value: Any, section: Section, role: str, message: int, field: str) -> Iterator[Segment]:
    """A content, or what the SDK takes for one: a text, a part, or a list of these."""
    if isinstance(value, str):
        value = {"parts": [value]}
    elif isinstance(value, list | tuple):
        value = {"parts": value}
    else:
        value = as_mapping(value, field)
        if "parts" not in value and "role" not in value:
            value = {"parts": [value]}
    role = str(value.get("role") or role)
    for index, given in enumerate(as_items(value.get("parts"), f"{field}.parts")):
        place = f"{field}.parts[{index}]"
        part = _spelled({"text": given} if isinstance(given, str) else as_mapping(given, place))
        if section == "messages" and part.get("thought") is True:
            kind: Kind = "reasoning"
        else:
            kind = next((kind for name, kind in _KINDS if name in part), "other")
        yield segment(section, kind, role, part, message=message, field=place)
