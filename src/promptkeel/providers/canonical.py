"""One spelling of JSON and of tool definitions: the same bytes whatever the order in which anything was inserted.

Objects are sorted by key. Lists keep their order, ``enum`` and ``required`` of a JSON Schema among them: there it can
be meaning. Of tools it is none, so that they are sorted by name. Keys must be text: JSON would turn numbers into text
after they were sorted, and two spellings of one object would come out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from promptkeel.errors import InvalidInputError
from promptkeel.providers.segments import WireFormat

_DEEPEST: Final = 200
"""Levels of nesting; no provider takes a tool that is nested so deeply."""


def canonical_json(value: object, *, field: str = "value") -> str:
    """JSON in its one spelling.

    Args:
        value: mappings, lists, tuples, text, numbers, booleans and None.
        field: what an error calls the value.

    Raises:
        InvalidInputError: it is no JSON; names the place.
    """
    plain = plain_json(value, field=field)
    return json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def plain_json(value: object, *, field: str = "value") -> Any:
    """A copy in plain dicts and lists, with the keys of every object in order.

    Raises:
        InvalidInputError: it is no JSON; names the place.
    """
    return _plain(value, field, 0)


def _plain(value: object, place: str, depth: int) -> Any:
    if depth > _DEEPEST:
        raise InvalidInputError(f"is nested more than {_DEEPEST} levels deep", field=f"{place:.80}")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InvalidInputError(f"key {key!r:.80} must be text", field=place)
        return {_text(key, place): _plain(value[key], f"{place}.{key}", depth + 1) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{place}[{index}]", depth + 1) for index, item in enumerate(value)]
    return _scalar(value, place)


def _scalar(value: object, place: str) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, place)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInputError("is not a number that JSON has", field=place)
        return float(value)
    raise InvalidInputError(f"{type(value).__name__} is not JSON", field=place)


def _text(text: str, place: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"holds a lone surrogate at position {error.start}; remove it", field=place) from None
    return str.__str__(text)


def canonical_tools(wire_format: WireFormat, tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The definitions in one order and one spelling, made anew; marks stay on their tools.

    A cache point of Bedrock's stays behind the tool that it followed. Definitions of one name are all kept: which of
    them counts is the provider's to say, as it would be without this.

    Args:
        wire_format: how they are spelled.
        tools: as the request holds them.

    Raises:
        InvalidInputError: they are no list of JSON objects.
    """
    given: object = tools
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InvalidInputError(f"must be a list of tools, not {type(tools).__name__}", field="tools")
    for index, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise InvalidInputError(f"must be a JSON object, not {type(tool).__name__}", field=f"tools[{index}]")
    plain: list[dict[str, Any]] = [plain_json(tool, field=f"tools[{index}]") for index, tool in enumerate(tools)]
    if wire_format == "gemini":
        plain = [_with_sorted_functions(tool) for tool in plain]
    groups: list[list[dict[str, Any]]] = []
    for tool in plain:
        if wire_format == "bedrock" and "cachePoint" in tool and groups:
            groups[-1].append(tool)
        else:
            groups.append([tool])
    groups.sort(key=lambda group: (tool_name(group[0]), json.dumps(group, ensure_ascii=False)))
    return [tool for group in groups for tool in group]


def _with_sorted_functions(tool: dict[str, Any]) -> dict[str, Any]:
    for key in ("functionDeclarations", "function_declarations"):
        functions = tool.get(key)
        if isinstance(functions, list) and all(isinstance(each, dict) for each in functions):
            ordered = sorted(
                functions, key=lambda each: (str(each.get("name", "")), json.dumps(each, ensure_ascii=False))
            )
            tool = {**tool, key: ordered}
    return tool


def tool_name(tool: Mapping[str, Any]) -> str:
    """The name of a tool in whichever format; its type where it has none, as tools of the provider's own."""
    for inner in (tool, tool.get("function"), tool.get("toolSpec"), tool.get("custom")):
        if isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
            return str(inner["name"])
    functions = tool.get("functionDeclarations") or tool.get("function_declarations")
    if isinstance(functions, list) and functions and isinstance(functions[0], Mapping):
        return str(functions[0].get("name", ""))
    kind = tool.get("type")
    return kind if isinstance(kind, str) else next(iter(tool), "")
