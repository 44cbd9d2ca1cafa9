"""Requests of every provider as what their caches see: ``WireRequest``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from promptkeel.errors import InvalidInputError
from promptkeel.providers.sdk_objects import as_plain, is_absent
from promptkeel.providers.segments import WIRE_FORMATS, WireFormat, WireRequest
from promptkeel.providers.wire.anthropic import read_anthropic
from promptkeel.providers.wire.bedrock import read_bedrock
from promptkeel.providers.wire.detecting import detect_format
from promptkeel.providers.wire.gemini import read_gemini
from promptkeel.providers.wire.openai_chat import read_openai_chat
from promptkeel.providers.wire.openai_responses import read_openai_responses

__all__ = ["detect_format", "read_request"]

_READERS: Final[Mapping[WireFormat, Callable[[Mapping[str, Any]], WireRequest]]] = {
    "anthropic": read_anthropic,
    "openai-responses": read_openai_responses,
    "openai-chat": read_openai_chat,
    "gemini": read_gemini,
    "bedrock": read_bedrock,
}


def read_request(wire_format: WireFormat, arguments: Mapping[str, Any]) -> WireRequest:
    """A request as its provider's cache sees it.

    Kinds of blocks that are not known are kept as "other". Objects of the SDKs are taken as what they would send, and
    ``extra_body`` as the part of the body that it becomes.

    Args:
        wire_format: how it is spelled.
        arguments: the keyword arguments of the SDK's call, or the JSON body.

    Raises:
        InvalidInputError: it cannot be read; names the place.
    """
    reader = _READERS.get(wire_format)
    if reader is None:
        raise InvalidInputError(f"{wire_format!r:.40} is none of {', '.join(WIRE_FORMATS)}", field="wire_format")
    given: object = arguments
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"must be a JSON object, not {type(given).__name__}", field="arguments")
    try:
        return reader(_sent(arguments))
    except RecursionError:
        raise InvalidInputError("is nested too deeply", field="arguments") from None


def _sent(arguments: Mapping[str, Any]) -> dict[str, Any]:
    sent: dict[str, Any] = {}
    for name, value in arguments.items():
        given: object = name
        if not isinstance(given, str):
            raise InvalidInputError(f"name {name!r:.80} must be text", field="arguments")
        if not is_absent(value):
            sent[name] = value
    extra = as_plain(sent.pop("extra_body", None), field="extra_body")
    return {**sent, **extra} if isinstance(extra, dict) else sent
