"""What providers counted and what they said of a miss, in one shape: disjoint parts whose sum is the prompt.

Anthropic and Bedrock count what was read and written beside the rest; OpenAI and Gemini count it inside. Taking one for
the other counts a cached prompt twice, or finds less than nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import attrs

from promptkeel.errors import InvalidInputError
from promptkeel.providers.sdk_objects import as_plain
from promptkeel.providers.segments import WIRE_FORMATS, Usage, WireFormat


@final
@attrs.frozen(order=False)
class ReportedMiss:
    """Why a provider says that a prefix was not found.

    Attributes:
        reason: as the provider spells it.
        tokens: how many were missed, where it says so.
    """

    reason: str
    tokens: int | None = None


def read_usage(wire_format: WireFormat, usage: object) -> Usage:
    """The counts of one answer.

    Args:
        wire_format: of the request.
        usage: the answer's usage object: ``usage``, or Gemini's ``usageMetadata``.

    Raises:
        InvalidInputError: it is no object, a count is no whole number from 0, or the counts contradict each other.
    """
    reader = _READERS.get(wire_format)
    if reader is None:
        raise InvalidInputError(f"{wire_format!r:.40} is none of {', '.join(WIRE_FORMATS)}", field="wire_format")
    plain = as_plain(usage, field="usage")
    if not isinstance(plain, Mapping):
        raise InvalidInputError(f"must be a JSON object, not {type(usage).__name__}", field="usage")
    return reader(plain)


def read_miss(wire_format: WireFormat, response: object) -> ReportedMiss | None:
    """What the provider itself says of a miss; None where it says nothing.

    Args:
        wire_format: of the request.
        response: the whole answer.
    """
    if wire_format == "anthropic":
        found = _held(_held(response, "diagnostics"), "cache_miss_reason")
        return _miss(found, _held(found, "type"), "cache_missed_input_tokens")
    if not wire_format.startswith("openai"):
        return None
    found = _held(response, "prompt_cache_diagnostics")
    spelled = _held(found, "type")
    # Of a hit there is nothing to say; of what could not be compared, that it could not.
    reason = {"cache_miss": _held(found, "reason"), "cache_hit": None}.get(str(spelled), spelled)
    return _miss(found, reason, "cache_missed_tokens")


def _miss(found: Any, reason: Any, counted: str) -> ReportedMiss | None:
    if not isinstance(reason, str):
        return None
    tokens = _held(found, counted)
    return ReportedMiss(reason, tokens if type(tokens) is int and tokens >= 0 else None)


def _held(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _anthropic(usage: Mapping[str, Any]) -> Usage:
    written = _count(usage, "cache_creation_input_tokens")
    parts = _inner(usage, "cache_creation")
    long = _count(parts, "ephemeral_1h_input_tokens", "cache_creation")
    short = _count(parts, "ephemeral_5m_input_tokens", "cache_creation")
    if parts and usage.get("cache_creation_input_tokens") is None:
        written = long + short
    if long + short > written:
        raise _contradiction("cache_creation_input_tokens", written, "its parts by TTL", long + short)
    return Usage(
        _count(usage, "input_tokens"),
        _count(usage, "cache_read_input_tokens"),
        written,
        long,
        _count(usage, "output_tokens"),
    )


def _responses(usage: Mapping[str, Any]) -> Usage:
    return _inclusive(usage, "input_tokens", "input_tokens_details", "output_tokens")


def _chat(usage: Mapping[str, Any]) -> Usage:
    # What is compatible with Chat Completions spells its usage in either way.
    if "prompt_tokens" not in usage and "input_tokens" in usage:
        return _responses(usage)
    return _inclusive(usage, "prompt_tokens", "prompt_tokens_details", "completion_tokens")


def _inclusive(usage: Mapping[str, Any], total_name: str, details_name: str, output_name: str) -> Usage:
    total = _count(usage, total_name)
    details = _inner(usage, details_name)
    # As DeepSeek counts, whose API is otherwise Chat Completions.
    other = _count(usage, "prompt_cache_hit_tokens")
    read = other if details.get("cached_tokens") is None else _count(details, "cached_tokens", details_name)
    written = _count(details, "cache_write_tokens", details_name)
    if read + written > total:
        raise _contradiction(total_name, total, "cached and written tokens", read + written)
    by_ttl = _inner(details, "cache_write_tokens_details")
    long = _count(by_ttl, "ttl_12h_tokens", f"{details_name}.cache_write_tokens_details")
    if long > written:
        raise _contradiction(f"{details_name}.cache_write_tokens", written, "its part of 12 hours", long)
    return Usage(total - read - written, read, written, long, _count(usage, output_name))


def _gemini(usage: Mapping[str, Any]) -> Usage:
    def of(camel: str, snake: str) -> int:
        return _count(usage, camel if usage.get(camel) is not None else snake)

    total = of("promptTokenCount", "prompt_token_count")
    total += of("toolUsePromptTokenCount", "tool_use_prompt_token_count")
    read = of("cachedContentTokenCount", "cached_content_token_count")
    if read > total:
        raise _contradiction("promptTokenCount", total, "cachedContentTokenCount", read)
    output = of("candidatesTokenCount", "candidates_token_count") + of("thoughtsTokenCount", "thoughts_token_count")
    return Usage(total - read, read, 0, 0, output)


def _bedrock(usage: Mapping[str, Any]) -> Usage:
    written = _count(usage, "cacheWriteInputTokens")
    details = usage.get("cacheDetails")
    long = 0
    for index, detail in enumerate(details if isinstance(details, list | tuple) else ()):
        if isinstance(detail, Mapping) and detail.get("ttl") == "1h":
            long += _count(detail, "inputTokens", f"cacheDetails[{index}]")
    if long > written:
        raise _contradiction("cacheWriteInputTokens", written, "cacheDetails", long)
    return Usage(
        _count(usage, "inputTokens"),
        _count(usage, "cacheReadInputTokens"),
        written,
        long,
        _count(usage, "outputTokens"),
    )


def _inner(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = usage.get(name)
    return found if isinstance(found, Mapping) else {}


def _count(usage: Mapping[str, Any], name: str, where: str | None = None) -> int:
    count = usage.get(name)
    if count is None:
        return 0
    if type(count) is not int or count < 0:
        place = name if where is None else f"{where}.{name}"
        raise InvalidInputError(f"must be a whole number from 0, not {count!r:.40}", field=f"usage.{place}")
    return count


def _contradiction(name: str, count: int, parts: str, sum_of_parts: int) -> InvalidInputError:
    return InvalidInputError(f"is {count}, and {parts} come to {sum_of_parts}, which is more", field=f"usage.{name}")


_READERS: Final[Mapping[WireFormat, Callable[[Mapping[str, Any]], Usage]]] = {
    "anthropic": _anthropic,
    "openai-responses": _responses,
    "openai-chat": _chat,
    "gemini": _gemini,
    "bedrock": _bedrock,
}
