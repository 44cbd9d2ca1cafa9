"""A log of requests as records: JSON Lines of many shapes, one line after another, in bounded memory.

A line holds the request's arguments, under ``request`` or as the line itself, and beside them, each where it is known:
``usage`` or the whole ``response``, ``time``, ``session``, ``response_id``, ``format``, ``gateway``, ``latency``. What
is read of each is listed in ``_NAMES``. A line that cannot be read is told by its number and does not stop the rest.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Final, cast, final

import attrs

from promptkeel.errors import ExchangeError, InvalidInputError, PromptkeelError
from promptkeel.forensics.spelling import key_orders
from promptkeel.instants import parse_instant
from promptkeel.providers.segments import WIRE_FORMATS, Usage, WireFormat, WireRequest
from promptkeel.providers.usage import ReportedMiss, read_miss, read_usage
from promptkeel.providers.wire import detect_format, read_request

LONGEST: Final = 64 * 1024 * 1024
"""The bytes of the longest line that is read."""
_BLOCK: Final = 1024 * 1024
_WAITING: Final = 64
"""So many records are held back to put them in order of time."""
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "request": ("request", "arguments", "kwargs", "request_body", "body", "params", "json"),
    "response": ("response", "response_body", "result", "completion"),
    "usage": ("usage", "usageMetadata", "usage_metadata"),
    "time": ("time", "timestamp", "started_at", "start_time", "startTime", "created_at", "requested_at", "at", "ts",
             "created"),
    "session": ("session", "session_id", "sessionId", "conversation", "conversation_id", "conversationId", "thread_id",
                "threadId", "thread"),
    "response_id": ("response_id", "responseId", "message_id"),
    "format": ("format", "api", "provider", "vendor"),
    "gateway": ("gateway", "base_url", "endpoint", "workspace", "workspace_id", "organization", "region",
                "api_key_id"),
    "latency": ("latency", "latency_seconds", "time_to_first_token", "ttft"),
}  # fmt: skip
_BODIES: Final = ("messages", "contents", "input")
_FORMATS: Final[Mapping[str, WireFormat]] = {
    "claude": "anthropic",
    "openai.responses": "openai-responses",
    "responses": "openai-responses",
    "chat": "openai-chat",
    "chat.completions": "openai-chat",
    "google": "gemini",
    "vertex": "gemini",
    "aws": "bedrock",
    "converse": "bedrock",
    **{each: each for each in WIRE_FORMATS},
}


@final
@attrs.frozen(order=False)
class Record:
    """One request of a log, and what came of it.

    Attributes:
        line: the number of its line, from 1.
        request: what the provider's cache sees of it.
        usage: what the provider counted; None where the log does not say.
        at: when it started, in seconds since the epoch; None where the log does not say.
        session: which conversation it belongs to; None where the log does not say.
        response_id: the id of its answer.
        gateway: by what route it went, each name with its value.
        latency: after how many seconds the answer began; None where the log does not say.
        miss: what the provider itself says of a miss.
        key_orders: the order of keys in calls and schemas, which canonical JSON hides.
    """

    line: int
    request: WireRequest
    usage: Usage | None = None
    at: float | None = None
    session: str | None = None
    response_id: str | None = None
    gateway: tuple[tuple[str, str], ...] = ()
    latency: float | None = None
    miss: ReportedMiss | None = None
    key_orders: tuple[tuple[tuple[str, int], int], ...] = ()


@final
@attrs.frozen(order=False)
class Unread:
    """A line that could not be read.

    Attributes:
        line: its number, from 1.
        reason: why.
    """

    line: int
    reason: str


def read_records(
    stream: BinaryIO,
    *,
    on_unread: Callable[[Unread], None],
    on_progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Record]:
    """The records of a log, by time as far as lines are not more than 64 requests out of order.

    Args:
        stream: the log, as bytes.
        on_unread: told of each line that cannot be read.
        on_progress: told how many bytes were read.

    Raises:
        ExchangeError: the file cannot be read, or is no text of lines at all.
    """
    return _in_order(_records(stream, on_unread, on_progress))


def read_record(line: int, value: object) -> Record:
    """One line's value as a record.

    Raises:
        InvalidInputError: it holds no request that can be read; names the place.
    """
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"must be a JSON object, not {type(value).__name__}", field="line")
    arguments = _request(value)
    response = _response(value)
    wire_format = _format(value, arguments)
    request = read_request(wire_format, arguments)
    if not request.segments and request.handle is None:
        raise InvalidInputError("holds nothing of a prompt", field="request")
    if not request.model and isinstance(value.get("model"), str):
        request = attrs.evolve(request, model=value["model"])
    usage = _first(value, "usage")
    usage = _first(response, "usage") if usage is None else usage
    response_id = _first(value, "response_id") or response.get("id") or response.get("responseId")
    at = _first(value, "time")
    return Record(
        line,
        request,
        None if usage is None else read_usage(wire_format, usage),
        _seconds(response.get("created") or response.get("created_at") if at is None else at),
        _text(_first(value, "session")),
        _text(response_id),
        tuple((name, _text(value[name]) or "") for name in _NAMES["gateway"] if value.get(name) is not None),
        _latency(value),
        read_miss(wire_format, response) or read_miss(wire_format, value),
        key_orders(arguments),
    )


def _records(
    stream: BinaryIO, on_unread: Callable[[Unread], None], on_progress: Callable[[int], None]
) -> Iterator[Record]:
    done = 0
    for number in itertools.count(1):
        content = _read(stream, LONGEST + 2)
        if not content:
            return
        done += len(content)
        if number == 1:
            if content.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise ExchangeError("the file is UTF-16 or UTF-32 text; save it as UTF-8")
            content = content.removeprefix(b"\xef\xbb\xbf")
        is_long = len(content) > LONGEST and not content.endswith(b"\n")
        while is_long and content and not content.endswith(b"\n"):
            content = _read(stream, _BLOCK)
            done += len(content)
        on_progress(done)
        if is_long:
            on_unread(Unread(number, f"is longer than {LONGEST} bytes"))
        elif content.strip():
            found = _record(number, content)
            if isinstance(found, Record):
                yield found
            else:
                on_unread(found)


def _record(number: int, content: bytes) -> Record | Unread:
    try:
        return read_record(number, json.loads(content))
    except UnicodeDecodeError as error:
        return Unread(number, f"is not UTF-8 at byte {error.start + 1}")
    except RecursionError:
        return Unread(number, "is nested too deeply")
    except PromptkeelError as error:
        return Unread(number, str(error))
    except ValueError as error:
        return Unread(number, f"is not JSON: {error}")


def _read(stream: BinaryIO, size: int) -> bytes:
    try:
        return stream.readline(size)
    except OSError as error:
        raise ExchangeError(f"the file cannot be read: {error.strerror or error}") from error


def _in_order(records: Iterable[Record]) -> Iterator[Record]:
    waiting: list[tuple[float, int, Record]] = []
    latest = -math.inf
    for record in records:
        # A request without a time stands where its line does.
        latest = latest if record.at is None else record.at
        heapq.heappush(waiting, (latest, record.line, record))
        if len(waiting) > _WAITING:
            yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]


def _first(value: Mapping[str, Any], what: str) -> Any:
    return next((value[name] for name in _NAMES[what] if value.get(name) is not None), None)


def _request(value: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in _NAMES["request"]:
        inner = value.get(name)
        if isinstance(inner, str):
            inner = _parsed(inner)
        if isinstance(inner, Mapping):
            # Some logs keep the arguments one level deeper, as the body of what was sent.
            deeper = inner.get("body") or inner.get("json")
            deeper = _parsed(deeper) if isinstance(deeper, str) else deeper
            has_body = any(each in inner for each in _BODIES)
            return deeper if isinstance(deeper, Mapping) and not has_body else inner
    if any(name in value for name in _BODIES):
        return value
    raise InvalidInputError(
        "holds no request: it is expected under 'request', or as the line itself with 'messages', 'input' or "
        "'contents'", field="line",
    )  # fmt: skip


def _response(value: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _first(value, "response")
    found = _parsed(found) if isinstance(found, str) else found
    if not isinstance(found, Mapping):
        return {}
    inner = found.get("body")
    return inner if isinstance(inner, Mapping) and "usage" not in found else found


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _format(value: Mapping[str, Any], arguments: Mapping[str, Any]) -> WireFormat:
    named = next((value[name] for name in _NAMES["format"] if isinstance(value.get(name), str)), None)
    if named is not None and named.lower() in _FORMATS:
        return _FORMATS[named.lower()]
    found = detect_format(arguments)
    if found is None and named is not None and named.lower() in ("openai", "azure", "litellm", "openrouter"):
        found = "openai-responses" if "messages" not in arguments else "openai-chat"
    if found is None:
        raise InvalidInputError(
            f'cannot tell which API this is; add "format": one of {", ".join(WIRE_FORMATS)}', field="request"
        )
    return found


def _text(value: object) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("id")
    return None if value is None else str(value)


def _latency(value: Mapping[str, Any]) -> float | None:
    found = _first(value, "latency")
    if found is None and _is_number(value.get("latency_ms")):
        found = value["latency_ms"] / 1000
    return float(found) if _is_number(found) and found >= 0 else None


_LARGEST: Final = 1e11
"""Seconds since the epoch are less; more of them are milliseconds, and so on."""


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return parse_instant(value, field="time") / 1e6
    if not _is_number(value):
        raise InvalidInputError(f"must be a number of seconds or ISO 8601 text, not {value!r:.40}", field="time")
    seconds = float(cast("float", value))
    while abs(seconds) >= _LARGEST:
        seconds /= 1000
    return seconds


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
