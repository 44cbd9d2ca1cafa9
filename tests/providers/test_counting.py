"""Tokens of positions: every kind counts, text as text, and what is read again is not counted twice."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.providers.counting import PICTURE_TOKENS, tokens_of
from promptkeel.providers.segments import WIRE_FORMATS, Segment
from promptkeel.providers.wire import read_request
from promptkeel.tokens import token_counter
from wire_requests import REQUESTS

COUNTER = token_counter("estimate")
PICTURE = base64.b64encode(bytes(range(256)) * 400).decode()
SOURCE = {"type": "base64", "media_type": "image/png", "data": PICTURE}
WORDS = "What was found is a long text of many words. " * 40


def count(kind, block, role="user"):
    return tokens_of(Segment("messages", kind, role, json.dumps(block)), COUNTER)


def counts(*blocks, role="user"):
    request = {"messages": [{"role": role, "content": list(blocks)}]}
    return [tokens_of(each, COUNTER) for each in read_request("anthropic", request).segments]


@pytest.mark.parametrize("wire_format", WIRE_FORMATS)
@given(st.data())
def test_every_position_that_says_something_counts(wire_format, data):
    _arguments, segments = data.draw(REQUESTS[wire_format])
    for segment in segments:
        block = json.loads(segment.content)
        empty = segment.kind == "text" and not block["text"] and set(block) <= {"type", "text"}
        assert (tokens_of(segment, COUNTER) == 0) == empty


def test_a_position_without_content_counts_nothing():
    assert tokens_of(Segment("system", "other", "system", ""), COUNTER) == 0


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_text_counts_as_the_counter_counts_it_without_its_json(words):
    for block in ({"type": "text", "text": words}, {"text": words}, {"type": "input_text", "text": words}):
        assert count("text", block) == COUNTER(words)


@pytest.mark.parametrize(
    ("role", "block"),
    [
        ("assistant", {"type": "tool_use", "id": "1", "name": "look", "input": {"query": WORDS}}),
        ("assistant", {"type": "thinking", "thinking": WORDS, "signature": "c2ln"}),
        ("assistant", {"type": "text", "text": "See.", "citations": [{"type": "page_location", "cited_text": WORDS}]}),
        ("assistant", {"type": "web_search_tool_result", "tool_use_id": "1", "content": [{"title": WORDS}]}),
        ("user", {"type": "tool_result", "tool_use_id": "1", "content": WORDS}),
        ("user", {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": WORDS}]}),
        ("user", {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": WORDS}}),
        ("user", {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": WORDS}]}),
        ("user", {"type": "unheard_of", "value": WORDS}),
    ],
)
def test_calls_results_reasoning_citations_and_unknown_blocks_count_their_words(role, block):
    (found,) = counts(block, role=role)
    assert COUNTER(WORDS) <= found <= 1.2 * COUNTER(WORDS) + 40


def test_reasoning_counts_what_is_shown_of_it_and_else_what_stands_for_it():
    signature = "Zm9v" * 500
    shown, hidden = counts(
        {"type": "thinking", "thinking": WORDS, "signature": signature},
        {"type": "thinking", "thinking": "", "signature": signature},
        role="assistant",
    )
    assert shown == COUNTER(WORDS)
    assert hidden >= COUNTER(signature)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": SOURCE},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "document", "source": {**SOURCE, "media_type": "application/pdf"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
    ],
)
def test_a_picture_counts_a_round_figure_however_large_its_data(block):
    assert counts(block) == [PICTURE_TOKENS]


def test_pictures_in_a_result_count_beside_its_text():
    picture = {"type": "image", "source": SOURCE}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": WORDS}, picture, picture]}
    (found,) = counts(result)
    assert 2 * PICTURE_TOKENS + COUNTER(WORDS) <= found <= 2 * PICTURE_TOKENS + 1.2 * COUNTER(WORDS) + 300


@pytest.mark.parametrize(
    "block",
    [
        {"type": "tool_result", "tool_use_id": "1", "content": json.dumps({"image": "sha256:" + "0" * 64})},
        {"type": "unheard_of", "digest": "sha256:" + "0" * 64},
    ],
)
def test_a_digest_in_a_text_is_no_picture(block):
    (found,) = counts(block)
    assert found < PICTURE_TOKENS


def test_a_tool_counts_its_whole_definition():
    tool = {"name": "look", "description": WORDS, "input_schema": {"type": "object", "properties": {}}}
    (segment,) = read_request("anthropic", {"tools": [tool]}).segments
    assert tokens_of(segment, COUNTER) == COUNTER(segment.content)


@pytest.mark.parametrize("content", ["not json", "[1]", "null", '"words"', '{"text": 1}'])
def test_content_that_is_no_block_counts_as_it_stands(content):
    assert tokens_of(Segment("messages", "text", "user", content), COUNTER) == COUNTER(content)
