"""What the formats have in common: blocks as plain JSON, without marks, and without megabytes of pictures."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from promptkeel.errors import InvalidInputError
from promptkeel.providers.canonical import canonical_json, plain_json
from promptkeel.providers.segments import Kind, Mark, Section, Segment

_LONG: Final = 256
"""Data of pictures and documents longer than this is told apart by its hash."""
_DATA: Final = ("data", "bytes", "url", "image_url", "file_data", "uri")
_TTL: Final = re.compile(r"(\d{1,6})([smh])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}
_PICTURES: Final = ("image", "document")


def as_plain(value: Any) -> Any:
    """What an SDK would send of a value: its own objects as mappings, bytes as their hash."""
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return as_plain(dump(mode="python", exclude_unset=True, by_alias=True))
    if isinstance(value, bytes | bytearray):
        return f"sha256:{hashlib.sha256(value).hexdigest()}"
    if isinstance(value, Mapping):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return value


def as_mapping(value: Any, field: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        InvalidInputError: it is none.
    """
    plain = as_plain(value)
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
    if kind in _PICTURES or kind == "tool_result":
        content = _without_data(content)
    return Segment(section, kind, role, canonical_json(content, field=field), message, mark)


def _without_data(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _without_data(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_data(item) for item in value]
    if isinstance(value, str) and len(value) > _LONG and key in _DATA:
        return f"sha256:{hashlib.sha256(value.encode()).hexdigest()}"
    return value


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
    """A block without the marks of this name in it, at any depth, and the last of them."""
    found: list[Mark] = []

    def walk(inner: Any) -> Any:
        if isinstance(inner, dict):
            given = inner.get(name)
            if given is not None:
                ttl = given.get("ttl") if isinstance(given, dict) else None
                found.append(Mark(seconds(ttl, f"{field}.{name}.ttl")))
            return {key: walk(item) for key, item in inner.items() if key != name}
        return [walk(item) for item in inner] if isinstance(inner, list) else inner

    return walk(value), found[-1] if found else None


def settings_of(arguments: Mapping[str, Any], names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The settings that decide what a cache finds, by name; what an SDK passes on under other names among them."""
    found = {name: arguments[name] for name in names if arguments.get(name) is not None}
    for extra in ("extra_body", "extra_headers"):
        given = as_plain(arguments.get(extra))
        if isinstance(given, dict):
            wanted = (*names, *_HEADERS)
            found.update({name: value for name, value in given.items() if name.lower() in wanted})
    return tuple((name, canonical_json(as_plain(found[name]), field=name)) for name in sorted(found))


_HEADERS: Final = ("cache_salt", "anthropic-beta", "openai-beta")
