"""Times: one parser, one canonical form, one clock.

An instant is a whole number of microseconds since 1970-01-01T00:00:00Z; that is what is stored, compared and sorted.
A naive time is read as UTC. More than six digits of a second are cut. The grammar is the same on every Python
version: ``YYYY-MM-DD``, then optionally ``T`` or a space, ``HH:MM``, ``:SS``, a fraction after a point, and ``Z`` or an
offset ``+HH``, ``+HHMM`` or ``+HH:MM``. Week dates, ordinal dates, the basic form, hour 24 and second 60 are refused.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from dateutil.parser import isoparser

from promptkeel.errors import InvalidInstantError

Clock = Callable[[], int]
"""Answers the present instant in microseconds since the epoch, UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the naive twin, for arithmetic on naive times
_MICROSECOND = timedelta(microseconds=1)
EARLIEST = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The first instant that UTC can hold."""
LATEST = (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The last instant that UTC can hold."""

_CANONICAL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{6})?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_GRAMMAR = re.compile(
    r"\d{4}-\d\d-\d\d"
    r"(?:[T ](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?:Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?)?",
    re.ASCII,
)
_isoparse = isoparser().isoparse


def system_clock() -> int:
    """The present instant by the machine's clock."""
    return time.time_ns() // 1000


def instant_of(moment: datetime) -> int:
    """The instant of a datetime; a naive one is read as UTC.

    Raises:
        InvalidInstantError: UTC cannot hold it.
    """
    try:
        if moment.utcoffset() is None:
            return (moment.replace(tzinfo=None) - _NAIVE_EPOCH) // _MICROSECOND
        instant = (moment - _EPOCH) // _MICROSECOND
    except Exception as error:
        # A time zone is a caller's code and may raise anything.
        raise InvalidInstantError(f"the time zone of a datetime failed: {type(error).__name__}: {error}") from error
    if not EARLIEST <= instant <= LATEST:
        raise InvalidInstantError(f"UTC cannot hold {moment.isoformat()}")
    return instant


def parse_instant(value: object, *, field: str | None = None, where: str | None = None) -> int:
    """The instant of a datetime or of ISO 8601 text.

    Raises:
        InvalidInstantError: it is neither, or UTC cannot hold it.
    """
    try:
        if isinstance(value, datetime):
            return instant_of(value)
        if isinstance(value, str):
            return _parse_text(value)
    except InvalidInstantError as error:
        raise InvalidInstantError(error.reason, field=field, where=where) from None
    raise InvalidInstantError(
        f"must be a datetime or ISO 8601 text, not {type(value).__name__}", field=field, where=where
    )


def stored_instant(value: object, *, field: str | None = None, where: str | None = None) -> int:
    """The instant of a datetime, of ISO 8601 text, or of what is an instant already.

    Raises:
        InvalidInstantError: it is none of them, or UTC cannot hold it.
    """
    if type(value) is not int:
        return parse_instant(value, field=field, where=where)
    if not EARLIEST <= value <= LATEST:
        raise InvalidInstantError(f"UTC cannot hold the instant {value}", field=field, where=where)
    return value


def _parse_text(text: str) -> int:
    if not _GRAMMAR.fullmatch(text):
        raise InvalidInstantError(f"{text[:40]!r} is not a time; write it as 2026-05-02T10:00:00Z")
    try:
        moment = datetime.fromisoformat(text) if _CANONICAL.fullmatch(text) else _isoparse(text)
    except (ValueError, OverflowError):
        raise InvalidInstantError(f"{text[:40]!r} names no real date or time") from None
    return instant_of(moment)


def read_instant(value: object) -> int | None:
    """The instant of a value that a store returned; None where it cannot be read. Never raises."""
    try:
        return parse_instant(value)
    except InvalidInstantError:
        return None


def datetime_of(instant: int) -> datetime:
    """The aware UTC datetime of an instant."""
    return _EPOCH + timedelta(microseconds=instant)


def format_instant(instant: int) -> str:
    """The canonical text: UTC, ``Z``, microseconds only where there are any."""
    return (_NAIVE_EPOCH + timedelta(microseconds=instant)).isoformat() + "Z"


def format_date(instant: int) -> str:
    """The UTC date as ``YYYY-MM-DD``."""
    return format_instant(instant)[:10]
