"""What an SDK would send of a value that a caller hands to it: its own objects, and bytes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from promptkeel.errors import InvalidInputError


def as_plain(value: Any, *, field: str = "value") -> Any:
    """A value with objects of the SDKs (pydantic models) as mappings, and bytes as base64.

    What the SDKs keep for themselves, such as parsed output, is left out as they leave it out.

    Raises:
        InvalidInputError: an object cannot be written, or everything is nested too deeply.
    """
    try:
        return _plain(value)
    except RecursionError:
        raise InvalidInputError("is nested too deeply", field=field) from None
    except ValueError as error:
        raise InvalidInputError(
            f"holds an object that cannot be written as JSON: {error!s:.200}", field=field
        ) from None


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        unsent = getattr(value, "__api_exclude__", None)
        return _plain(dump(mode="json", exclude_unset=True, by_alias=True, exclude=unsent))
    return value


def is_absent(value: object) -> bool:
    """Whether a value is how the SDKs spell an argument that is not given."""
    return type(value).__name__ in ("NotGiven", "Omit")
