"""Every lost token has exactly one cause, whatever a log says; and the causes that simulated caches do not have."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.forensics.analysis import Analysis
from promptkeel.forensics.causes import Cause
from promptkeel.forensics.reading import read_record
from promptkeel.forensics.report import DIMENSIONS, Report, document_of

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")
LONG = " ".join(f"Rule {number}: never promise what the policy does not say." for number in range(200))


def judge(lines):
    analysis, report = Analysis(), Report()
    findings = []
    for number, line in enumerate(lines, 1):
        finding = analysis.take(read_record(number, json.loads(json.dumps(line))))
        report.add(finding)
        findings.append(finding)
    return findings, report


def message(role, text):
    return {"role": role, "content": [{"type": "text", "text": text}]}


def request(messages, *, system=LONG, model="claude-sonnet-4-5", **more):
    messages = copy.deepcopy(messages)
    messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return {"model": model, "system": system, "messages": messages, **more}


def usage(total, read):
    return {"input_tokens": 10, "cache_read_input_tokens": read, "cache_creation_input_tokens": total - read - 10}


TALK = [message("user", "Hello"), message("assistant", "What do you need?"), message("user", "A flight")]


def two(second, *, read=0, first=None, **more):
    """Two requests of a conversation, of which the second reads so much; what is said of the second."""
    lines = [
        {"request": first or request(TALK[:1]), "usage": usage(3000, 0), "time": 1_780_000_000, "session": "s"},
        {"request": second, "usage": usage(3050, read), "time": 1_780_000_020, "session": "s", **more},
    ]
    findings, report = judge(lines)
    return findings[1].attribution, report


def causes(attribution):
    return {blame.cause for blame in attribution.blames}


lines = st.lists(
    st.fixed_dictionaries({
        "session": st.sampled_from([None, "a", "b"]),
        "time": st.one_of(st.none(), st.integers(0, 5000)),
        "model": st.sampled_from(["claude-sonnet-4-5", "gpt-5.2", "claude-opus-4-6"]),
        "system": st.lists(st.sampled_from([*WORDS, LONG]), max_size=3),
        "tools": st.lists(st.sampled_from(WORDS), max_size=3, unique=True),
        "talk": st.lists(st.sampled_from(WORDS), min_size=1, max_size=9),
        "marks": st.booleans(),
        "total": st.integers(1, 9000),
        "share": st.floats(0, 1),
        "has_usage": st.booleans(),
    }),
    max_size=8,
)  # fmt: skip


def line_of(each):
    messages = [message(("user", "assistant")[index % 2], text) for index, text in enumerate(each["talk"])]
    if each["marks"]:
        messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    read = int(each["total"] * each["share"])
    counts = {"input_tokens": each["total"] - read, "cache_read_input_tokens": read}
    line = {
        "request": {
            "model": each["model"],
            "system": [{"type": "text", "text": text} for text in each["system"]],
            "tools": [{"name": name, "input_schema": {"type": "object"}} for name in each["tools"]],
            "messages": messages,
        },
        "time": each["time"],
        "session": each["session"],
    }
    return {**line, "usage": counts} if each["has_usage"] else line


@given(lines)
def test_every_lost_token_has_exactly_one_cause(drawn):
    findings, report = judge([line_of(each) for each in drawn])
    lost = 0
    for finding in findings:
        found = finding.attribution
        if found is None:
            assert finding.usage is None
            continue
        assert found.lost == sum(blame.tokens for blame in found.blames)
        assert all(blame.tokens > 0 for blame in found.blames)
        assert 0 <= found.expected <= max(finding.usage.prompt, found.read)
        lost += found.lost
    assert report.lost_tokens == lost
    for dimension in DIMENSIONS:
        assert sum(each.tokens for _, each in report.rows(dimension)) == lost
    assert sum(each.tokens for _, _, each in report.pairs()) == lost
    json.dumps(document_of(report))


def test_a_prefix_that_was_read_whole_has_lost_nothing():
    found, _ = two(request(TALK), read=3000)
    assert (found.expected, found.lost, found.blames) == (3000, 0, ())


def test_the_same_bytes_that_were_not_read_have_an_unknown_cause_and_the_provider_is_asked():
    found, _ = two(request(TALK))
    assert causes(found) == {Cause.UNKNOWN}
    assert found.lost == 3000
    response = {"diagnostics": {"cache_miss_reason": {"type": "system_changed", "cache_missed_input_tokens": 9}}}
    found, _ = two(request(TALK), response=response)
    assert causes(found) == {Cause.SYSTEM_EDITED}


def test_a_provider_that_names_another_reason_is_said_to_contradict():
    other = request(TALK, system=LONG.replace("Rule 9:", "Rule nine:"))
    said = {"diagnostics": {"cache_miss_reason": {"type": "tools_changed"}}}
    found, report = two(other, response=said)
    assert causes(found) == {Cause.SYSTEM_EDITED}
    assert found.is_contradicted
    assert (report.contradicted, report.reasons) == (1, 1)
    said = {"diagnostics": {"cache_miss_reason": {"type": "system_changed"}}}
    found, report = two(other, response=said)
    assert not found.is_contradicted


def test_the_order_of_keys_in_a_tool_counts_where_nothing_else_differs():
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    turned = {"properties": {"b": {"type": "string"}, "a": {"type": "string"}}, "type": "object"}
    first = request(TALK[:1], tools=[{"name": "find", "input_schema": schema}])
    second = request(TALK, tools=[{"name": "find", "input_schema": turned}])
    found, _ = two(second, first=first)
    assert causes(found) == {Cause.KEY_ORDER}
    found, _ = two(second, first=first, read=3000)
    assert found.lost == 0


def test_a_branch_that_reads_up_to_where_it_leaves_loses_nothing():
    said = [*TALK, message("assistant", "From where?"), message("user", "From Rome")]
    branch = [*TALK, message("assistant", "To which place?"), message("user", "To Oslo")]
    stamps = [1_780_000_000 + 20 * each for each in range(3)]
    findings, _ = judge([
        {"request": request(TALK), "usage": usage(3000, 0), "time": stamps[0]},
        {"request": request(said), "usage": usage(3040, 3000), "time": stamps[1]},
        {"request": request(branch), "usage": usage(3040, 3000), "time": stamps[2]},
    ])  # fmt: skip
    assert findings[2].continues == 1
    assert findings[2].attribution.lost == 0


def test_requests_that_start_beside_each_other_are_told_apart_from_those_that_follow():
    sibling = {"request": request(TALK[:1]), "usage": usage(3000, 0), "session": "s"}
    findings, _ = judge([{**sibling, "time": 1_780_000_000}, {**sibling, "time": 1_780_000_000.2}])
    assert causes(findings[1].attribution) == {Cause.PARALLEL_START}
    findings, _ = judge([{**sibling, "time": 1_780_000_000}, {**sibling, "time": 1_780_000_060}])
    assert causes(findings[1].attribution) == {Cause.UNKNOWN}


@pytest.mark.parametrize(("one", "other"), [(7, 9), (9, 7), (1, 5000)])
def test_a_number_of_ones_own_in_the_system_of_another_conversation_is_no_loss(one, other):
    findings, _ = judge([
        {"request": request(TALK[:1], system=f"Customer {number}. {LONG}"), "usage": usage(3000, 0), "session": name}
        for number, name in ((one, "a"), (other, "b"))
    ])  # fmt: skip
    assert findings[1].attribution.lost == 0


def test_a_clock_time_in_the_system_of_another_conversation_is_a_loss():
    def system(number):
        text = f"Now: 10:0{number}. {LONG}"
        return [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]

    findings, _ = judge([
        {"request": request(TALK[:1], system=system(number)), "usage": usage(3000, 0), "session": name}
        for number, name in ((1, "a"), (2, "b"))
    ])  # fmt: skip
    assert causes(findings[1].attribution) == {Cause.TIMESTAMP}


def test_what_had_expired_is_written_anew_and_not_prolonged():
    sibling = {"request": request(TALK[:1]), "usage": usage(3000, 0), "session": "s", "latency": 1}
    findings, _ = judge([{**sibling, "time": 1_780_000_000 + each} for each in (0, 200, 400, 800, 800.5)])
    assert [causes(each.attribution) for each in findings[1:]] == [
        {Cause.UNKNOWN}, {Cause.UNKNOWN}, {Cause.TTL_OVER}, {Cause.PARALLEL_START},
    ]  # fmt: skip


def gemini(text, read, total, **more):
    counts = {"promptTokenCount": total, "cachedContentTokenCount": read}
    contents = [{"role": "user", "parts": [{"text": each}]} for each in text]
    return {"request": {"model": "gemini-2.5-flash", "contents": contents, **more}, "usage": counts, "session": "s"}


def test_a_handle_that_was_made_anew_or_had_expired_is_a_cause():
    first = gemini(["Hello"], 5000, 5010, cachedContent="cachedContents/a")
    for second in (
        gemini(["Hello", "More"], 0, 5030, cachedContent="cachedContents/b"),
        gemini(["Hello", "More"], 0, 5030),
    ):
        findings, _ = judge([first, second])
        assert [(each.cause, each.tokens) for each in findings[1].attribution.blames] == [(Cause.HANDLE_CHANGED, 5000)]
    kept = gemini(["Hello", "More"], 5000, 5030, cachedContent="cachedContents/a")
    findings, _ = judge([first, kept])
    assert findings[1].attribution.lost == 0


def test_a_response_that_another_continues_is_expected_to_be_read():
    def line(read, total, at, **more):
        counts = {"input_tokens": total, "input_tokens_details": {"cached_tokens": read}}
        return {"request": {"model": "gpt-5.2", "input": "Go on", **more}, "usage": counts, "time": at}

    first = {**line(0, 4000, 0), "response_id": "resp_1"}
    findings, _ = judge([first, line(0, 4100, 30, previous_response_id="resp_1")])
    assert [(each.cause, each.tokens) for each in findings[1].attribution.blames] == [(Cause.UNKNOWN, 3968)]
    findings, _ = judge([first, line(0, 4100, 4000, previous_response_id="resp_1")])
    assert causes(findings[1].attribution) == {Cause.TTL_OVER}
    findings, _ = judge([first, line(3968, 4100, 30, previous_response_id="resp_1")])
    assert findings[1].attribution.lost == 0


def test_requests_without_usage_among_others_are_counted_and_not_judged():
    line = {"request": request(TALK[:1]), "session": "s", "time": 0}
    findings, report = judge([{**line, "usage": usage(3000, 0)}, {**line, "request": request(TALK), "time": 9}])
    assert findings[1].attribution is None
    assert (report.requests, report.without_usage, report.simulated) == (2, 1, 0)


def test_a_log_without_any_usage_is_judged_by_simulated_caches():
    line = {"session": "s"}
    stamped = [f"Now: 2026-05-01T10:00:0{each}Z. {LONG}" for each in range(3)]
    findings, report = judge([
        {**line, "request": request(TALK[:1], system=stamped[0]), "time": 0},
        {**line, "request": request(TALK, system=stamped[1]), "time": 9},
    ])  # fmt: skip
    assert causes(findings[1].attribution) == {Cause.TIMESTAMP}
    assert report.simulated == 2


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        ("at 10:00:01", "at 10:00:09", Cause.TIMESTAMP),
        ("on 2026-05-01", "on 2026-05-02", Cause.TIMESTAMP),
        ("on Monday", "on Tuesday", Cause.TIMESTAMP),
        ("epoch 1780000000", "epoch 1780000060", Cause.TIMESTAMP),
        ("id 3f2b1c9e-0b1a-4c1d-9e7f-aa00bb11cc22", "id 77777777-0b1a-4c1d-9e7f-aa00bb11cc23", Cause.IDENTIFIER),
        ("run req_8f3a91bc02", "run req_771bc02ff1", Cause.IDENTIFIER),
        ("message 4 of it", "message 6 of it", Cause.COUNTER),
        ("price 100 euros", "price 30 euros", Cause.SYSTEM_EDITED),
        ("seen 5 minutes ago", "seen 2 hours ago", Cause.AGE),
        ("a  b\nc", "a b\n\nc", Cause.WHITE_SPACE),
        ("caf\u00e9", "cafe\u0301", Cause.NORMALISATION),
        ("be kind", "be brief", Cause.SYSTEM_EDITED),
    ],
)
def test_volatile_bytes_are_named_by_what_they_are(before, after, cause):
    found, _ = two(request(TALK, system=f"{after}. {LONG}"), first=request(TALK[:1], system=f"{before}. {LONG}"))
    assert causes(found) == {cause}


def test_the_excerpt_shows_where_the_texts_part():
    lines_ = [
        {"request": request(TALK[:1]), "usage": usage(3000, 0), "time": 0, "session": "s"},
        {"request": request(TALK, system=LONG.replace("Rule 9:", "Rule nine:")), "usage": usage(3050, 0), "time": 9,
         "session": "s"},
    ]  # fmt: skip
    findings, _ = judge(lines_)
    before, after = findings[1].excerpt
    assert "»9:" in before
    assert "»nine:" in after
