"""Logs of many shapes are read as the same records, and what cannot be read is told by its number."""

from __future__ import annotations

import io
import json

import pytest

from promptkeel.errors import ExchangeError, InvalidInputError
from promptkeel.forensics.reading import LONGEST, Record, read_record, read_records

ANTHROPIC = {
    "model": "claude-sonnet-4-5",
    "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
    "messages": [{"role": "user", "content": "Hello"}],
}
RESPONSES = {"model": "gpt-5.2", "instructions": "Be kind.", "input": "Hello"}
CHAT = {"model": "gpt-5.2", "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]}
GEMINI = {"model": "gemini-2.5-flash", "contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}
BEDROCK = {"modelId": "anthropic.claude-sonnet-4-5", "messages": [{"role": "user", "content": [{"text": "Hello"}]}]}


def read(*lines):
    unread = []
    content = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    return list(read_records(io.BytesIO(content), on_unread=unread.append)), unread


@pytest.mark.parametrize(
    ("request_", "usage", "counts"),
    [
        (ANTHROPIC, {"input_tokens": 3, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 7}, (3, 5, 7)),
        (RESPONSES, {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}}, (6, 4, 0)),
        (CHAT, {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}}, (6, 4, 0)),
        (GEMINI, {"promptTokenCount": 10, "cachedContentTokenCount": 4}, (6, 4, 0)),
        (BEDROCK, {"inputTokens": 3, "cacheReadInputTokens": 5, "cacheWriteInputTokens": 7}, (3, 5, 7)),
    ],
    ids=["anthropic", "responses", "chat", "gemini", "bedrock"],
)
def test_disjoint_and_inclusive_counts_are_kept_apart(request_, usage, counts):
    found = read_record(1, {"request": request_, "usage": usage}).usage
    assert (found.uncached, found.read, found.written) == counts


USAGE = {"input_tokens": 3, "cache_read_input_tokens": 5}
FULL = {"request": ANTHROPIC, "usage": USAGE, "time": "2026-05-01T10:00:00Z", "session": "s1", "response_id": "r1"}
AT = 1_777_629_600.0


@pytest.mark.parametrize(
    "line",
    [
        FULL,
        {"arguments": ANTHROPIC, "response": {"usage": USAGE, "id": "r1"}, "timestamp": AT, "session_id": "s1"},
        {"kwargs": ANTHROPIC, "response": {"body": {"usage": USAGE, "id": "r1"}}, "ts": AT * 1e3, "thread_id": "s1"},
        {"body": json.dumps(ANTHROPIC), "result": json.dumps({"usage": USAGE, "id": "r1"}), "at": AT * 1e6,
         "conversation": {"id": "s1"}},
        {"request": {"body": ANTHROPIC, "url": "/v1/messages"}, "usage": USAGE, "response_id": "r1",
         "start_time": str(AT), "conversationId": "s1"},
        {**ANTHROPIC, "usage": USAGE, "created_at": "2026-05-01T12:00:00+02:00", "session": "s1", "message_id": "r1"},
    ],
)  # fmt: skip
def test_the_common_shapes_of_a_line_are_one_record(line):
    found = read_record(1, line)
    assert found == read_record(1, FULL)
    assert (found.at, found.session, found.response_id) == (AT, "s1", "r1")


def test_a_line_that_cannot_be_read_is_told_by_its_number_and_the_rest_is_read():
    records, unread = read(
        FULL, b"not json", {"x": 1}, b"", b"[1]", b"\xff\xfe{", FULL, {"request": {"messages": [{"role": "user"}]}},
        {"request": ANTHROPIC, "usage": {"input_tokens": -1}}, b"[" * 100_000, {"request": ANTHROPIC, "time": "soon"},
        b'{"request": {"messages": [{"role": "user", "content": "\\ud800"}], "system": "x"}}',
    )  # fmt: skip
    assert [record.line for record in records] == [1, 7]
    assert [each.line for each in unread] == [2, 3, 5, 6, 8, 9, 10, 11, 12]
    assert all(each.reason for each in unread)


def test_a_line_that_is_too_long_is_told_and_the_rest_is_read():
    records, unread = read(b'{"x":"' + b"y" * (LONGEST + 10) + b'"}', FULL)
    assert [record.line for record in records] == [2]
    assert [each.line for each in unread] == [1]


def test_lines_out_of_order_are_taken_by_time_and_those_without_a_time_stand_where_their_line_does():
    lines = [{**FULL, "time": AT + each} for each in (0, 3, 1, 2)]
    untimed = {key: value for key, value in FULL.items() if key != "time"}
    records, _ = read(*lines, untimed)
    assert [record.line for record in records] == [1, 3, 4, 5, 2]
    assert [record.at for record in records if record.at is not None] == [AT, AT + 1, AT + 2, AT + 3]


def test_a_file_of_utf_16_is_refused_with_what_to_do():
    with pytest.raises(ExchangeError, match="UTF-8"):
        list(read_records(io.BytesIO('{"a":1}'.encode("utf-16")), on_unread=lambda _: None))


def test_an_ambiguous_api_asks_for_its_name():
    line = {"request": {"messages": [{"role": "user", "content": "Hi"}]}}
    with pytest.raises(InvalidInputError, match="format"):
        read_record(1, line)
    assert read_record(1, {**line, "format": "openai-chat"}).request.format == "openai-chat"
    assert read_record(1, {**line, "provider": "anthropic"}).request.format == "anthropic"


@pytest.mark.parametrize("value", [None, 1, "x", [], {"request": 1}, {"request": ANTHROPIC, "usage": []}])
def test_what_is_no_request_is_refused_by_a_typed_error(value):
    with pytest.raises(InvalidInputError):
        read_record(1, value)


def test_the_reason_that_a_provider_gives_is_kept():
    response = {"usage": USAGE, "diagnostics": {"cache_miss_reason": {"type": "tools_changed"}}}
    found = read_record(1, {"request": ANTHROPIC, "response": response})
    assert isinstance(found, Record)
    assert found.miss.reason == "tools_changed"
