"""What looks as if it changed by itself, and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.prompt.linting import lint, lint_readings

VOLATILE = [
    ("moment", "The time is 2026-12-01T10:31:04Z."),
    ("moment", "Now: 2026-12-01 10:31"),
    ("moment", "Today is December 1, 2026, 10:31."),
    ("clock time", "It is 10:31:04 in the office."),
    ("Unix time", "started at 1764585064"),
    ("Unix time", "started at 1764585064.123"),
    ("age", "snapshot 4m old"),
    ("age", "Seen 3 minutes ago."),
    ("age", "Updated just now."),
    ("UUID", "Session 0b5e2c1a-9d3f-4b7a-8c2e-1f0a9b8c7d6e"),
    ("random identifier", "trace-8f3a91c2b7"),
    ("random identifier", "session_a1B2c3D4"),
    ("hash", "build 3f79bb7b435b05321651daefd374cd21"),
    ("counter", "This is turn 17 of the conversation."),
    ("counter", "Previous message count: 12"),
    ("counter", "12 previous messages"),
    ("temporary path", "Working folder: /tmp/tmp8x2k1q/work"),
    ("process", "pid 4711"),
    ("process", "<object at 0x7f604ba228d0>"),
    ("date", "Today is 2026-12-01."),
    ("date", "1 December 2026"),
]
LASTING = [
    "Never reveal another customer's data.",
    "Answer within 3 days, and call back between 9:00 and 17:30.",
    "Use Python 3.11 or 3.12 and HTTP 1.1; never port 8080.",
    "The refund limit is 1500 dollars, or 25 % of the price.",
    "Prices: 1234567890 yen is a lot.",
    "Flight HAT271 leaves from gate 12.",
    "Step by step: first ask, then act.",
    "Call 911 in an emergency. See section 4.2.1, rule #3.",
    "Error codes E1000 to E1999 are the network's.",
    "ISO 8601, RFC 9110, SHA-256, UTF-8, 0x1F.",
    "返金は三日以内に行う。",
    "An hour before departure nothing can be changed.",
]


@pytest.mark.parametrize(("kind", "text"), VOLATILE)
def test_what_changes_by_itself_is_found(kind, text):
    assert [finding.kind for finding in lint("RULES", text)] == [kind]


@pytest.mark.parametrize("text", LASTING)
def test_what_a_person_wrote_for_good_is_not(text):
    assert lint("RULES", text) == ()


def test_dates_and_hashes_may_be_meant_and_are_warnings():
    text = "From 2026-01-01 on the new rules hold; build 3f79bb7b435b05321651daefd374cd21."
    assert {finding.level for finding in lint("RULES", text)} == {"warning"}


def test_a_finding_says_where_it_is_and_what_to_do():
    (finding,) = lint("RULES", "Be brief.\nIt is 10:31:04 now.")
    assert (finding.block, finding.line, finding.column, finding.text) == ("RULES", 2, 7, "10:31:04")
    assert "tail" in finding.advice


@given(st.lists(st.sampled_from([text for _, text in VOLATILE] + LASTING), max_size=6))
def test_every_finding_stands_where_it_says(lines):
    text = "\n".join(lines)
    for finding in lint("A", text):
        line = text.split("\n")[finding.line - 1]
        assert line[finding.column - 1 :].startswith(finding.text)


@given(st.text(max_size=80), st.text(max_size=80))
def test_two_readings_differ_exactly_where_they_do(first, second):
    findings = lint_readings("A", first, second)
    assert bool(findings) == (first != second)
    assert all(finding.kind == "unstable" for finding in findings)


def test_only_the_lines_that_differ_are_named():
    findings = lint_readings("A", "one\ntwo 1\nthree", "one\ntwo 2\nthree")
    assert [(finding.line, finding.text) for finding in findings] == [(2, "two 1")]
