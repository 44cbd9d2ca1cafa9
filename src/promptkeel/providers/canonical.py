"""One spelling of JSON and of tool definitions: the same bytes whatever the order in which anything was inserted.

Objects are sorted by key. Lists keep their order, ``enum`` and ``required`` of a JSON Schema among them: there it can
be meaning. Of tools it is none, so that they are sorted by name. Keys must be text: JSON would turn numbers into text
after they were sorted, and two spellings of one object would come out. Numbers stay as they are: ``1`` and ``1.0`` are
two spellings for a provider too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from promptkeel.errors import InvalidInputError
from promptkeel.providers.sdk_objects import as_plain
from promptkeel.providers.segments import WireFormat

_DEEPEST: Final = 200
"""Levels of nesting; no provider takes a tool that is nested so deeply."""
_LONGEST: Final = 8192
"""Bits of a whole number. Python writes none of more than 4,300 digits, and may be told to write less."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_HOLDERS: Final = frozenset({dict, list, tuple})


class _Unusual(Exception):  # noqa: N818 - no error: it asks for the careful walk, which finds the place
    pass


def canonical_json(value: object, *, field: str = "value") -> str:
    """JSON in its one spelling.

    Args:
        value: mappings, lists, tuples, text, numbers, booleans and None.
        field: what an error calls the value.

    Raises:
        InvalidInputError: it is no JSON; names the place.
    """
    return written(plain_json(value, field=field))


def written(plain: Any) -> str:
    """What ``plain_json`` made, as text."""
    return _ENCODER.encode(plain)


def plain_json(value: object, *, field: str = "value") -> Any:
    """A copy in plain dicts and lists, with the keys of every object in order.

    Raises:
        InvalidInputError: it is no JSON; names the place.
    """
    try:
        return _copied(value, 0)
    except _Unusual:
        pass
    except RecursionError:
        raise InvalidInputError("is nested too deeply", field=field) from None
    try:
        return _plain(value, field, 0)
    except RecursionError:
        raise InvalidInputError("is nested too deeply", field=field) from None


def _copied(value: Any, depth: int) -> Any:
    """What ``_plain`` makes of the builtin types, without keeping track of the place."""
    kind = type(value)
    if kind is str:
        if value.isascii():
            return value
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Unusual from None
        return value
    if kind not in _HOLDERS:
        return _copied_scalar(value, kind)
    if depth > _DEEPEST:
        raise _Unusual
    if kind is not dict:
        return [_copied(item, depth + 1) for item in value]
    for key in value:
        if type(key) is not str or not key.isascii():
            raise _Unusual
    return {key: _copied(value[key], depth + 1) for key in sorted(value)}


def _copied_scalar(value: Any, kind: type) -> Any:
    if kind is bool or value is None:
        return value
    if (kind is int and value.bit_length() <= _LONGEST) or (kind is float and math.isfinite(value)):
        return value
    raise _Unusual


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
        if int(value).bit_length() > _LONGEST:
            raise InvalidInputError(f"is a number of more than {_LONGEST} bits", field=place)
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

    A cache point of Bedrock's stays behind the tool that it followed, and in front where it followed none. Definitions
    of one name are all kept: some providers refuse them, others take them, and either shows as it would without this.

    Args:
        wire_format: how they are spelled.
        tools: as the request holds them; an SDK's own objects too.

    Raises:
        InvalidInputError: they are no list of JSON objects.
    """
    given: object = tools
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InvalidInputError(f"must be a list of tools, not {type(tools).__name__}", field="tools")
    sent = [as_plain(tool, field=f"tools[{index}]") for index, tool in enumerate(tools)]
    for index, tool in enumerate(sent):
        if not isinstance(tool, dict):
            raise InvalidInputError(
                f"must be a JSON object, not {type(tools[index]).__name__}", field=f"tools[{index}]"
            )
    plain: list[dict[str, Any]] = [plain_json(tool, field=f"tools[{index}]") for index, tool in enumerate(sent)]
    if wire_format == "gemini":
        plain = [_with_sorted_functions(tool) for tool in plain]
    leading: list[dict[str, Any]] = []
    groups: list[list[dict[str, Any]]] = []
    for tool in plain:
        if wire_format != "bedrock" or "cachePoint" not in tool:
            groups.append([tool])
        else:
            (groups[-1] if groups else leading).append(tool)
    groups.sort(key=lambda group: (tool_name(group[0]), *map(written, group)))
    return leading + [tool for group in groups for tool in group]


def _with_sorted_functions(tool: dict[str, Any]) -> dict[str, Any]:
    for key in ("functionDeclarations", "function_declarations"):
        functions = tool.get(key)
        if isinstance(functions, list) and all(isinstance(each, dict) for each in functions):
            ordered = sorted(functions, key=lambda each: (str(each.get("name", "")), written(each)))
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
