"""What an SDK would send of a value that a caller hands to it: its own objects, and bytes."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from promptkeel.errors import InvalidInputError

_HOLDERS: Final = ("content", "parts", "tool_calls")
"""Where the blocks of a message are."""


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


def as_sent(messages: Sequence[Any]) -> list[Any]:
    """A conversation with messages, and blocks in them, that are objects of the SDKs as what these would send.

    A message without any is the very object that was given; what is neither is left to whoever checks messages.

    Raises:
        InvalidInputError: an object cannot be written.
    """
    return [_message_as_sent(message, index) for index, message in enumerate(messages)]


def _message_as_sent(message: Any, index: int) -> Any:
    # Plain dictionaries are by far the commonest, and a history has hundreds.
    if type(message) is not dict and not isinstance(message, Mapping):
        return as_plain(message, field=f"messages[{index}]") if _is_object(message) else message
    for name in _HOLDERS:
        blocks = message.get(name)
        if type(blocks) is list or type(blocks) is tuple:
            for each in blocks:
                if type(each) is not dict and _is_object(each):
                    message = {**message, name: [as_plain(one, field=f"messages[{index}].{name}") for one in blocks]}
                    break
    return message


def _is_object(value: object) -> bool:
    return callable(getattr(value, "model_dump", None)) and not isinstance(value, type)


def is_absent(value: object) -> bool:
    """Whether a value is how the SDKs spell an argument that is not given."""
    return type(value).__name__ in ("NotGiven", "Omit")
