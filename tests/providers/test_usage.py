"""Usage in disjoint parts, whichever way a provider counts: what goes in comes out, and contradictions are refused."""

from __future__ import annotations

import pytest
from anthropic.types import Message
from anthropic.types import Usage as AnthropicUsage
from google.genai.types import GenerateContentResponseUsageMetadata
from hypothesis import given
from hypothesis import strategies as st
from openai.types import CompletionUsage
from openai.types.beta import BetaResponse
from openai.types.responses import ResponseUsage

from promptkeel.errors import InvalidInputError
from promptkeel.providers.segments import WIRE_FORMATS, Usage
from promptkeel.providers.usage import ReportedMiss, read_miss, read_usage
from sdk_types import converse_usage_problems

counts = st.integers(0, 2_000_000)


def anthropic(usage):
    short = usage.written - usage.written_long
    return {
        "input_tokens": usage.uncached,
        "cache_creation_input_tokens": usage.written,
        "cache_read_input_tokens": usage.read,
        "cache_creation": {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": usage.written_long},
        "output_tokens": usage.output,
    }


def inclusive(usage, total, output):
    by_ttl = {"ttl_12h_tokens": usage.written_long, "ttl_30m_tokens": usage.written - usage.written_long}
    details = {"cached_tokens": usage.read, "cache_write_tokens": usage.written, "cache_write_tokens_details": by_ttl}
    return {
        f"{total}_tokens": usage.prompt,
        f"{total}_tokens_details": details,
        f"{output}_tokens": usage.output,
        f"{output}_tokens_details": {"reasoning_tokens": usage.output // 2},
        "total_tokens": usage.prompt + usage.output,
    }


def gemini(usage):
    thoughts = usage.output // 3
    found = usage.prompt // 4
    return {
        "promptTokenCount": usage.prompt - found if usage.prompt - found >= usage.read else usage.prompt,
        "toolUsePromptTokenCount": found if usage.prompt - found >= usage.read else 0,
        "cachedContentTokenCount": usage.read,
        "candidatesTokenCount": usage.output - thoughts,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": usage.prompt + usage.output,
    }


def bedrock(usage):
    return {
        "inputTokens": usage.uncached,
        "outputTokens": usage.output,
        "totalTokens": usage.prompt + usage.output,
        "cacheReadInputTokens": usage.read,
        "cacheWriteInputTokens": usage.written,
        "cacheDetails": [
            {"ttl": "5m", "inputTokens": usage.written - usage.written_long},
            {"ttl": "1h", "inputTokens": usage.written_long},
        ],
    }


SPELLED = {
    "anthropic": (anthropic, AnthropicUsage.model_validate),
    "openai-responses": (lambda usage: inclusive(usage, "input", "output"), ResponseUsage.model_validate),
    "openai-chat": (lambda usage: inclusive(usage, "prompt", "completion"), CompletionUsage.model_validate),
    "gemini": (gemini, GenerateContentResponseUsageMetadata.model_validate),
    "bedrock": (bedrock, None),
}


@st.composite
def usages(draw, wire_format):
    written = 0 if wire_format == "gemini" else draw(counts)
    long = draw(st.integers(0, written))
    return Usage(draw(counts), draw(counts), written, long, draw(counts))


@pytest.mark.parametrize("wire_format", WIRE_FORMATS)
@given(st.data())
def test_what_a_provider_counts_comes_out_in_parts_that_add_up_to_the_prompt(wire_format, data):
    usage = data.draw(usages(wire_format))
    spell, build = SPELLED[wire_format]
    spelled = spell(usage)
    assert read_usage(wire_format, spelled) == usage
    if build is None:
        assert converse_usage_problems(spelled) == ""
    else:
        assert read_usage(wire_format, build(spelled)) == usage


def test_an_additive_count_is_not_taken_for_an_inclusive_one():
    spelled = {"input_tokens": 50, "cache_read_input_tokens": 100_000, "output_tokens": 9}
    assert read_usage("anthropic", spelled) == Usage(50, 100_000, 0, 0, 9)
    with pytest.raises(InvalidInputError, match=r"is 50, and .* come to 100000"):
        read_usage("openai-responses", {"input_tokens": 50, "input_tokens_details": {"cached_tokens": 100_000}})


@pytest.mark.parametrize("wire_format", WIRE_FORMATS)
@pytest.mark.parametrize("usage", [{}, {"unheard_of": 1}])
def test_counters_that_are_missing_are_nothing(wire_format, usage):
    assert read_usage(wire_format, usage) == Usage()


NULLS = {
    "anthropic": {"input_tokens": 5, "cache_creation_input_tokens": None, "cache_creation": None},
    "openai-responses": {"input_tokens": 5, "input_tokens_details": None},
    "openai-chat": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": None, "cache_write_tokens": None}},
    "gemini": {"promptTokenCount": 5, "cachedContentTokenCount": None},
    "bedrock": {"inputTokens": 5, "cacheDetails": None},
}


@pytest.mark.parametrize("wire_format", WIRE_FORMATS)
def test_counters_that_are_null_are_nothing(wire_format):
    assert read_usage(wire_format, NULLS[wire_format]) == Usage(5)


CONTRADICTIONS = [
    ("anthropic", {"cache_creation_input_tokens": 5, "cache_creation": {"ephemeral_1h_input_tokens": 6}},
     "cache_creation_input_tokens"),
    ("openai-responses", {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 5}},
     "input_tokens"),
    ("openai-responses",
     {"input_tokens": 9, "input_tokens_details": {"cache_write_tokens": 5,
                                                  "cache_write_tokens_details": {"ttl_12h_tokens": 6}}},
     "input_tokens_details.cache_write_tokens"),
    ("openai-chat", {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 10}}, "prompt_tokens"),
    ("gemini", {"promptTokenCount": 9, "cachedContentTokenCount": 10}, "promptTokenCount"),
    ("bedrock", {"cacheWriteInputTokens": 1, "cacheDetails": [{"ttl": "1h", "inputTokens": 2}]},
     "cacheWriteInputTokens"),
]  # fmt: skip


@pytest.mark.parametrize(("wire_format", "usage", "name"), CONTRADICTIONS)
def test_counts_that_contradict_each_other_are_refused_by_name(wire_format, usage, name):
    with pytest.raises(InvalidInputError, match="which is more") as caught:
        read_usage(wire_format, usage)
    assert caught.value.field == f"usage.{name}"


NAMES = {
    "anthropic": "cache_read_input_tokens",
    "openai-responses": "input_tokens",
    "openai-chat": "completion_tokens",
    "gemini": "thoughtsTokenCount",
    "bedrock": "cacheReadInputTokens",
}


@pytest.mark.parametrize("wire_format", WIRE_FORMATS)
@pytest.mark.parametrize("count", [-1, 1.0, "1", True, [], {}, float("nan")])
def test_a_count_that_is_no_whole_number_is_refused_by_name(wire_format, count):
    with pytest.raises(InvalidInputError, match="whole number") as caught:
        read_usage(wire_format, {NAMES[wire_format]: count})
    assert caught.value.field == f"usage.{NAMES[wire_format]}"


@pytest.mark.parametrize("wire_format", WIRE_FORMATS)
@pytest.mark.parametrize("usage", [None, [], "usage", 7, object()])
def test_what_is_no_usage_is_refused(wire_format, usage):
    with pytest.raises(InvalidInputError):
        read_usage(wire_format, usage)


def test_an_unknown_format_is_refused():
    with pytest.raises(InvalidInputError, match="is none of"):
        read_usage("cohere", {})


def test_writes_given_only_by_their_ttl_are_added_up():
    spelled = {"cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4}}
    assert read_usage("anthropic", spelled) == Usage(0, 0, 7, 4)


def test_deepseeks_names_for_what_was_read_are_known():
    spelled = {"prompt_tokens": 10, "prompt_cache_hit_tokens": 6, "prompt_cache_miss_tokens": 4, "completion_tokens": 2}
    assert read_usage("openai-chat", spelled) == Usage(4, 6, 0, 0, 2)


def test_usage_of_the_other_openai_format_is_read_as_what_it_is():
    details = {"cached_tokens": 4}
    assert read_usage("openai-chat", {"input_tokens": 10, "input_tokens_details": details}) == Usage(6, 4)


# What providers say of a miss.

CHANGED = ["model_changed", "system_changed", "tools_changed", "messages_changed"]
UNCOUNTED = ["previous_message_not_found", "unavailable"]


def anthropic_answer(reason):
    return {
        "id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": "end_turn",
        "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
        "diagnostics": {"cache_miss_reason": reason},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        *[({"type": each, "cache_missed_input_tokens": 9}, ReportedMiss(each, 9)) for each in CHANGED],
        *[({"type": each}, ReportedMiss(each)) for each in UNCOUNTED],
        (None, None),
    ],
)
def test_anthropics_reasons_are_read_from_bodies_and_objects(reason, expected):
    body = anthropic_answer(reason)
    assert read_miss("anthropic", body) == expected
    assert read_miss("anthropic", Message.model_validate(body)) == expected


def openai_answer(diagnostics):
    return {
        "id": "r", "object": "response", "created_at": 1, "model": "m", "output": [], "tools": [],
        "parallel_tool_calls": True, "tool_choice": "auto", "prompt_cache_diagnostics": diagnostics,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("diagnostics", "expected"),
    [
        ({"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 9}, ReportedMiss("tools_changed", 9)),
        ({"type": "comparison_response_not_found"}, ReportedMiss("comparison_response_not_found")),
        ({"type": "unavailable"}, ReportedMiss("unavailable")),
        ({"type": "cache_hit"}, None),
        (None, None),
    ],
)
def test_openais_reasons_are_read_from_bodies_and_objects(diagnostics, expected):
    body = openai_answer(diagnostics)
    assert read_miss("openai-responses", body) == expected
    assert read_miss("openai-responses", BetaResponse.model_validate(body)) == expected


@pytest.mark.parametrize("wire_format", WIRE_FORMATS)
@pytest.mark.parametrize(
    "response",
    [None, [], "x", {}, {"diagnostics": 1, "prompt_cache_diagnostics": 1}, {"diagnostics": {"cache_miss_reason": [1]}}],
)
def test_where_nothing_is_said_of_a_miss_there_is_none(wire_format, response):
    assert read_miss(wire_format, response) is None
