"""The JSON objects that nodes and edges hold: checked to their depths, frozen, and spelled in one way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from promptkeel.errors import InvalidPropertiesError
from promptkeel.text import plain, refused_character

_LARGEST: Final = 10**1000


def check_properties(properties: object, *, where: str | None = None) -> dict[str, Any]:
    """A plain copy of a JSON object, checked to its depths.

    Raises:
        InvalidPropertiesError: it is no JSON object, or some text in it cannot be stored.
    """
    if not isinstance(properties, Mapping):
        raise InvalidPropertiesError(
            f"must be a JSON object, not {type(properties).__name__}", field="properties", where=where
        )
    try:
        return _plain_object(properties, "properties", where)
    except RecursionError:
        raise InvalidPropertiesError("is nested too deeply", field="properties", where=where) from None


def _plain_object(properties: Mapping[Any, Any], field: str, where: str | None) -> dict[str, Any]:
    return {_plain_key(key, field, where): _plain(value, f"{field}.{key}", where) for key, value in properties.items()}


def _plain_key(key: object, field: str, where: str | None) -> str:
    if not isinstance(key, str):
        raise InvalidPropertiesError(f"key {key!r} must be text", field=field, where=where)
    found = refused_character(key)
    if found:
        raise InvalidPropertiesError(f"a key holds {found}", field=field, where=where)
    return plain(key)


def _plain(value: object, field: str, where: str | None) -> Any:
    if isinstance(value, Mapping):
        return _plain_object(value, field, where)
    if isinstance(value, list | tuple):
        return [_plain(item, f"{field}[{position}]", where) for position, item in enumerate(value)]
    return _plain_scalar(value, field, where)


def _plain_scalar(value: object, field: str, where: str | None) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > _LARGEST:
            raise InvalidPropertiesError("is a number of more than 1,000 digits", field=field, where=where)
        return int(value)
    if isinstance(value, str):
        found = refused_character(value)
        if found:
            raise InvalidPropertiesError(f"holds {found}; remove it", field=field, where=where)
        return plain(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise InvalidPropertiesError("is not a number that JSON has", field=field, where=where)
        return float(value)
    raise InvalidPropertiesError(f"{type(value).__name__} is not JSON", field=field, where=where)


def _refuse_change(*_: object, **__: object) -> Any:
    raise TypeError("what a node or an edge holds cannot be changed; make a new one")


class _ReadOnlyList(list[Any]):
    """A list inside a frozen value; a copy of it is a plain list."""

    __slots__ = ()
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse_change
    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse_change

    def __reduce_ex__(self, _: object) -> tuple[Any, ...]:
        return list, (list(self),)


class _ReadOnlyDict(dict[str, Any]):
    """An object inside a frozen value; a copy of it is a plain dict."""

    __slots__ = ()
    clear = pop = popitem = setdefault = update = _refuse_change
    __delitem__ = __ior__ = __setitem__ = _refuse_change

    def __reduce_ex__(self, _: object) -> tuple[Any, ...]:
        return dict, (dict(self),)


def frozen(value: Any) -> Any:
    """JSON that nobody can change; it compares, and is written, as the same in plain dicts and lists."""
    if isinstance(value, Mapping):
        return _ReadOnlyDict({key: frozen(item) for key, item in value.items()})
    if isinstance(value, list):
        return _ReadOnlyList([frozen(item) for item in value])
    return value


def frozen_properties(properties: dict[str, Any]) -> Mapping[str, Any]:
    """Checked properties that nobody can change any more."""
    return MappingProxyType({key: frozen(value) for key, value in properties.items()})


def thawed(value: Any) -> Any:
    """A plain copy that its holder may change."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [thawed(item) for item in value]
    return value


def dump_json(value: object) -> str:
    """JSON in one spelling: sorted keys, no white space, no needless escapes."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def spelling(properties: Mapping[str, Any]) -> str:
    """What tells properties apart."""
    # Python's 1, 1.0 and True are equal; what JSON says with them is not.
    return dump_json(dict(properties))
