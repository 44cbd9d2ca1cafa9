"""What every adapter checks of what a caller passes, before any of it is used."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from promptkeel.errors import InvalidInputError
from promptkeel.prompt.layout import DURABILITIES, Durability
from promptkeel.providers.sdk_objects import as_sent


def checked_model(model: object) -> str:
    """The model's name.

    Raises:
        InvalidInputError: it is no text, or blank.
    """
    if not isinstance(model, str) or not model.strip():
        raise InvalidInputError(f"must be the name of a model, not {model!r}", field="model")
    return model


def checked_ttls(ttls: object) -> Mapping[Durability, int]:
    """For how many seconds a prefix is to be kept, by who shares it.

    Raises:
        InvalidInputError: names what is no number of seconds, or nobody that shares anything.
    """
    if ttls is None:
        return {}
    if not isinstance(ttls, Mapping):
        raise InvalidInputError(f"must be a mapping, not {type(ttls).__name__}", field="ttls")
    for name, seconds in ttls.items():
        if name not in DURABILITIES:
            raise InvalidInputError(f"{name!r} is none of {', '.join(DURABILITIES)}", field="ttls")
        if type(seconds) is not int or seconds < 1:
            raise InvalidInputError(f"must be a whole number of seconds from 1, not {seconds!r}", field=f"ttls.{name}")
    return dict(ttls)


def checked_messages(messages: object, roles: Collection[str], *, typed: bool = False) -> Sequence[Mapping[str, Any]]:
    """The messages, each a mapping with a role that the format knows; objects of the SDKs as what these would send.

    Args:
        messages: what was given.
        roles: the roles.
        typed: whether what has a ``type`` needs no role.

    Raises:
        InvalidInputError: names the index of the message that is none.
    """
    if messages is None:
        return ()
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise InvalidInputError(f"must be a list of messages, not {type(messages).__name__}", field="messages")
    messages = as_sent(messages)
    for index, message in enumerate(messages):
        # A plain dictionary is by far the commonest.
        if type(message) is not dict and not isinstance(message, Mapping):
            raise refused(index, f"must be a mapping, not {type(message).__name__}")
        role = message.get("role")
        if role is None and typed and isinstance(message.get("type"), str):
            continue
        if not isinstance(role, str) or role not in roles:
            raise refused(index, f"must have a role of {', '.join(sorted(roles))}, not {role!r}")
    return messages


def checked_settings(settings: Mapping[str, Any], kept: Mapping[str, str]) -> None:
    """Check that no setting takes the place of what the adapter makes.

    Raises:
        InvalidInputError: one does; says what to do instead.
    """
    for name, instead in kept.items():
        if name in settings:
            raise InvalidInputError(f"is made from the prompt: {instead}", field=name)


def refused(index: int, reason: str) -> InvalidInputError:
    """The error of one message of the caller's."""
    return InvalidInputError(reason, field="messages", where=f"message {index}")
