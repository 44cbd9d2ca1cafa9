"""Instants: one grammar on every Python version, one canonical form, UTC throughout."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest
from dateutil.parser import isoparser
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.errors import InvalidInstantError
from promptkeel.instants import (
    EARLIEST,
    LATEST,
    datetime_of,
    format_date,
    format_instant,
    instant_of,
    parse_instant,
    read_instant,
)
from strategies import instants, zones

NAIVE_EPOCH = datetime.fromisoformat("1970-01-01")


def utc(*parts: int) -> int:
    return (datetime(*parts, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


ACCEPTED = {
    "2026-05-02T10:00:00Z": utc(2026, 5, 2, 10),
    "2026-05-02T10:00:00+00:00": utc(2026, 5, 2, 10),
    "2026-05-02T10:00:00-00:00": utc(2026, 5, 2, 10),
    "2026-05-02T10:00:00+02:00": utc(2026, 5, 2, 8),
    "2026-05-02T10:00:00+0230": utc(2026, 5, 2, 7, 30),
    "2026-05-02T10:00:00-05": utc(2026, 5, 2, 15),
    "2026-05-02 10:00:00": utc(2026, 5, 2, 10),
    "2026-05-02T10:00": utc(2026, 5, 2, 10),
    "2026-05-02T10:00Z": utc(2026, 5, 2, 10),
    "2026-05-02": utc(2026, 5, 2),
    "2026-05-02T10:00:00.5": utc(2026, 5, 2, 10, 0, 0, 500000),
    "2026-05-02T10:00:00.123456Z": utc(2026, 5, 2, 10, 0, 0, 123456),
    "2026-05-02T10:00:00.123456789Z": utc(2026, 5, 2, 10, 0, 0, 123456),
    "2026-05-02T10:00:00.9999999+00:00": utc(2026, 5, 2, 10, 0, 0, 999999),
    "2024-02-29": utc(2024, 2, 29),
    "0001-01-01T00:00Z": EARLIEST,
    "9999-12-31T23:59:59.999999Z": LATEST,
    "9999-12-31T23:59:59.9999999Z": LATEST,
    "0001-01-01T23:00:00+23:00": EARLIEST,
}
REFUSED = [
    "", " ", "now", "2026", "2026-05", "2026-5-2", "20260502", "20260502T100000Z", "2026-W18-6", "2026W186",
    "2026-122", "2026-05-02T24:00:00Z", "2026-05-02T23:59:60Z", "2026-05-02T10:60Z", "2026-05-02T10:00:00z",
    "2026-05-02t10:00:00Z", "2026-05-02T10", "2026-05-02T10Z", "2026-05-02T1000", "2026-05-02T10:00:00,5Z",
    "2026-05-02T10:00:00.Z", " 2026-05-02", "2026-05-02 ", "2026-05-02\n", "2026-05-02  10:00:00",
    "2026-05-02T10:00:00 Z", "2026-05-02T10:00:00+24:00", "2026-05-02T10:00:00+02:60", "2026-05-02T10:00:00+2",
    "2026-05-02T10:00:00+02:00:00", "2026-05-02Z", "2026-05-02T", "2026-02-29", "2026-13-01", "2026-00-10",
    "2026-04-31", "0000-01-01", "-2026-05-02", "10000-01-01", "٢٠٢٦-٠٥-٠٢", "2026-05-02T10:00:00UTC",
    "2026-05-02T10:00:00Z+00:00", "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "1777716000", "2026/05/02",
]  # fmt: skip


@pytest.mark.parametrize(("text", "instant"), ACCEPTED.items())
def test_accepted(text: str, instant: int) -> None:
    assert parse_instant(text) == instant


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(InvalidInstantError):
        parse_instant(text)
    assert read_instant(text) is None


@pytest.mark.parametrize("value", [None, 7, 1.5, True, b"2026-05-02", ["2026-05-02"], timedelta(1)])
def test_only_datetimes_and_text_are_times(value: Any) -> None:
    with pytest.raises(InvalidInstantError, match="recorded_at"):
        parse_instant(value, field="recorded_at", where="node 'n'")


def test_an_error_names_the_field_and_the_node() -> None:
    with pytest.raises(InvalidInstantError) as caught:
        parse_instant("soon", field="recorded_at", where="node 'n'")
    assert (caught.value.field, caught.value.where) == ("recorded_at", "node 'n'")
    assert str(caught.value).startswith("node 'n': recorded_at: ")


@given(instants)
def test_the_canonical_form_is_read_back(instant: int) -> None:
    text = format_instant(instant)
    assert parse_instant(text) == instant
    assert text.endswith("Z")
    assert format_date(instant) == text[:10]
    assert instant_of(datetime_of(instant)) == instant
    assert datetime_of(instant).utcoffset() == timedelta(0)


@given(instants, instants)
def test_canonical_dates_sort_as_instants_do(one: int, other: int) -> None:
    assert one > other or format_date(one) <= format_date(other)


@given(st.datetimes(timezones=st.just(UTC)), zones, st.sampled_from(["auto", "seconds", "microseconds"]))
def test_the_fast_path_says_what_the_slow_one_says(moment: datetime, zone: tzinfo | None, precision: str) -> None:
    text = moment.replace(tzinfo=zone).isoformat(timespec=precision)
    slow = isoparser().isoparse(text)
    try:
        expected: int | None = instant_of(slow)
    except InvalidInstantError:
        expected = None
    assert read_instant(text) == expected
    # Naive is UTC, and Z is an offset of none.
    if zone is None:
        assert read_instant(text + "Z") == expected


@given(st.datetimes(), zones)
def test_a_datetime_is_its_instant_or_refused(moment: datetime, zone: tzinfo | None) -> None:
    zoned = moment.replace(tzinfo=zone)
    offset = zoned.utcoffset() or timedelta(0)
    expected = (moment - NAIVE_EPOCH) // timedelta(microseconds=1) - offset // timedelta(microseconds=1)
    assert read_instant(zoned) == (expected if EARLIEST <= expected <= LATEST else None)


@given(st.text(max_size=30))
def test_reading_never_raises(text: str) -> None:
    assert read_instant(text) is None or isinstance(read_instant(text), int)


class NoOffset(tzinfo):
    """A zone that says nothing, as datetime allows."""

    def utcoffset(self, _: datetime | None) -> timedelta | None:
        return None

    def tzname(self, _: datetime | None) -> str | None:
        return None

    def dst(self, _: datetime | None) -> timedelta | None:
        return None


def test_a_zone_without_an_offset_is_naive() -> None:
    assert parse_instant(datetime(2026, 5, 2, tzinfo=NoOffset())) == utc(2026, 5, 2)


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata", "XXX-13:45"])
def machine_zone(request: pytest.FixtureRequest) -> Iterator[str]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def test_the_machines_zone_changes_nothing(machine_zone: str) -> None:
    assert {text: parse_instant(text) for text in ACCEPTED} == ACCEPTED
    assert parse_instant(datetime.fromisoformat("2026-05-02T10:00:00")) == utc(2026, 5, 2, 10)
    assert format_instant(utc(2026, 5, 2, 10)) == "2026-05-02T10:00:00Z"


def test_offsets_of_seconds_are_exact() -> None:
    zone = timezone(timedelta(hours=1, seconds=30))
    assert parse_instant(datetime(2026, 5, 2, 10, tzinfo=zone)) == utc(2026, 5, 2, 8, 59, 30)
