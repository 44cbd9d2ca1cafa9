"""What the formats have in common: blocks as plain JSON, without marks, and without megabytes of pictures."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from promptkeel.errors import InvalidInputError
from promptkeel.providers.canonical import canonical_json, plain_json, written
from promptkeel.providers.sdk_objects import as_plain
from promptkeel.providers.segments import Kind, Mark, Section, Segment

_LONG: Final = 256
"""Data of pictures and documents longer than this is told apart by its hash."""
_TYPES: Final = ("media_type", "mimeType", "format")
"""What stands beside data, and says what it is of."""
_STANDARD: Final = str.maketrans("-_", "+/")
_WORDS: Final = ("text", "tool", "tool_use", "reasoning")
_MARKED_INSIDE: Final = ("content", "source", "output", "function")
"""Where the blocks inside a block may bear marks; a key of that name in a schema or in arguments is no mark."""
_TTL: Final = re.compile(r"(\d{1,6})([smh])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}
PICTURE: Final = "data sha256:"
"""How a hash begins that stands for data; digests in texts are spelled otherwise."""


def as_mapping(value: Any, field: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        InvalidInputError: it is none.
    """
    plain = as_plain(value, field=field)
    if not isinstance(plain, dict):
        raise InvalidInputError(f"must be a JSON object, not {type(value).__name__}", field=field)
    return plain


def as_items(value: Any, field: str) -> list[Any]:
    """A list; nothing where there is none.

    Raises:
        InvalidInputError: it is something else.
    """
    if value is None:
        return []
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise InvalidInputError(f"must be a list, not {type(value).__name__}", field=field)
    return list(value)


def segment(
    section: Section,
    kind: Kind,
    role: str,
    block: Any,
    *,
    message: int = -1,
    mark: Mark | None = None,
    field: str = "block",
) -> Segment:
    """A block as a segment."""
    content = plain_json(block, field=field)
    if kind not in _WORDS:
        content = _without_data(content)
    return Segment(section, kind, role, written(content), message, mark)


def text_parts(content: Any) -> Any:
    """A content, with text on its own as the one block that it stands for."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _without_data(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_data(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _hash(item) if isinstance(item, str) and len(item) > _LONG and _is_data(name, item, value)
        else _without_data(item)
        for name, item in value.items()
    }  # fmt: skip


def _is_data(name: str, text: str, around: Mapping[str, Any]) -> bool:
    if text.startswith("data:") or name == "bytes":
        return True
    if name == "result":
        return around.get("type") == "image_generation_call"
    found = next((around[each] for each in _TYPES if each in around), None)
    return name == "data" and found is not None and (around.get("type") != "text")


def _hash(data: str) -> str:
    # The SDKs write base64 in either of its alphabets.
    return PICTURE + hashlib.sha256(data.translate(_STANDARD).encode()).hexdigest()


def parsed(content: str) -> Mapping[str, Any]:
    """A segment's content as a mapping; an empty one where it is none."""
    try:
        value = json.loads(content)
    except ValueError:
        return {}
    return value if isinstance(value, Mapping) else {}


def seconds(ttl: Any, field: str) -> int | None:
    """A TTL in seconds, as "5m", "1h" or "3600s" spell it; None where none is given.

    Raises:
        InvalidInputError: it is something else.
    """
    if ttl is None:
        return None
    found = _TTL.fullmatch(ttl) if isinstance(ttl, str) else None
    if found is None:
        raise InvalidInputError(f"must be a time such as '5m' or '1h', not {ttl!r:.40}", field=field)
    return int(found[1]) * _UNITS[found[2]]


def without_marks(value: Any, name: str, field: str) -> tuple[Any, Mark | None]:
    """A block without the marks of this name on it and on the blocks inside it, and the last of them."""
    found: list[Mark] = []

    def walk(inner: Any) -> Any:
        if isinstance(inner, list):
            return [walk(item) for item in inner]
        if not isinstance(inner, dict):
            return inner
        if name not in inner and not any(isinstance(inner.get(key), dict | list) for key in _MARKED_INSIDE):
            return inner
        bare = {key: walk(item) if key in _MARKED_INSIDE else item for key, item in inner.items() if key != name}
        given = inner.get(name)
        if given is not None:
            ttl = given.get("ttl") if isinstance(given, dict) else None
            found.append(Mark(seconds(ttl, f"{field}.{name}.ttl")))
        return bare

    return walk(value), found[-1] if found else None


def settings_of(arguments: Mapping[str, Any], names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The settings that decide what a cache finds, by name; headers among them, in lower case."""
    found = {name: arguments[name] for name in (*names, "cache_salt") if arguments.get(name) is not None}
    headers = as_plain(arguments.get("extra_headers"), field="extra_headers")
    if isinstance(headers, dict):
        found.update({str(name).lower(): value for name, value in headers.items() if str(name).lower() in _HEADERS})
    return tuple((name, canonical_json(as_plain(found[name], field=name), field=name)) for name in sorted(found))


_HEADERS: Final = ("anthropic-beta", "openai-beta", "anthropic-version")
