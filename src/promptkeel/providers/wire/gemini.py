"""Gemini's generateContent as a cache sees it: in the SDK's spelling and in that of REST."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from promptkeel.errors import InvalidInputError
from promptkeel.providers.segments import Kind, Section, Segment, WireRequest
from promptkeel.providers.wire.blocks import as_items, as_mapping, segment, settings_of

_KINDS: Final[tuple[tuple[str, Kind], ...]] = (
    ("functionCall", "tool_use"),
    ("executableCode", "tool_use"),
    ("functionResponse", "tool_result"),
    ("codeExecutionResult", "tool_result"),
    ("inlineData", "document"),
    ("fileData", "document"),
    ("text", "text"),
)
_SETTINGS: Final = ("toolConfig", "thinkingConfig", "responseSchema", "responseMimeType", "responseJsonSchema")
_OBJECTS: Final = (
    "functionCall",
    "functionResponse",
    "inlineData",
    "fileData",
    "executableCode",
    "codeExecutionResult",
)
_UNDERSCORE: Final = re.compile(r"_([a-z])")


def read_gemini(arguments: Mapping[str, Any]) -> WireRequest:
    """A request as its prefix.

    Raises:
        InvalidInputError: it cannot be read; names the place.
    """
    given = _spelled(as_mapping(arguments, "arguments"), "arguments")
    for inner in ("config", "generationConfig"):
        if given.get(inner) is not None:
            given = {**_spelled(as_mapping(given[inner], inner), inner), **given}
    handle = given.get("cachedContent")
    return WireRequest(
        "gemini",
        str(given.get("model") or ""),
        tuple(_segments(given)),
        settings_of(given, _SETTINGS),
        handle=None if handle is None else str(handle),
    )


def _spelled(value: Mapping[str, Any], field: str) -> dict[str, Any]:
    """An object with its own keys as REST spells them; what is null is not there."""
    spelled = {}
    for name, item in value.items():
        given: object = name
        if not isinstance(given, str):
            raise InvalidInputError(f"key {name!r:.80} must be text", field=field)
        if item is not None:
            spelled[_UNDERSCORE.sub(lambda found: found[1].upper(), name)] = item
    return spelled


def _part(value: Mapping[str, Any], field: str) -> tuple[Kind, dict[str, Any]]:
    part = _spelled(value, field)
    for name in _OBJECTS:
        if isinstance(part.get(name), dict):
            part[name] = _spelled(part[name], f"{field}.{name}")
    name, kind = next((pair for pair in _KINDS if pair[0] in part), ("", "other"))
    held = part.get(name)
    if kind == "document" and isinstance(held, dict) and str(held.get("mimeType")).startswith("image/"):
        kind = "image"
    return kind, part


def _segments(given: Mapping[str, Any]) -> Iterator[Segment]:
    for index, tool in enumerate(as_items(given.get("tools"), "tools")):
        field = f"tools[{index}]"
        spelled = _spelled(as_mapping(tool, field), field)
        functions = spelled.pop("functionDeclarations", None)
        for number, function in enumerate(as_items(functions, f"{field}.functionDeclarations")):
            place = f"{field}.functionDeclarations[{number}]"
            yield segment("tools", "tool", "", _spelled(as_mapping(function, place), place), field=place)
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
    role = str(value.get("role") or role) if section == "messages" else role
    for index, given in enumerate(as_items(value.get("parts"), f"{field}.parts")):
        place = f"{field}.parts[{index}]"
        kind, part = _part({"text": given} if isinstance(given, str) else as_mapping(given, place), place)
        if section == "messages" and part.get("thought") is True:
            kind = "reasoning"
        yield segment(section, kind, role, part, message=message, field=place)
