"""Requests as SDKs get them, each with one thing that its provider refuses or reads otherwise, and mended."""

from __future__ import annotations

import copy

import pytest

from promptkeel.providers.automaton import UNSENT, advance, check
from promptkeel.providers.rules import rules_for
from promptkeel.providers.wire import read_request

MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
POINT = {"cachePoint": {"type": "default"}}
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}


def anthropic(*messages, **more):
    return {"model": "claude-opus-4-8", "max_tokens": 9, "messages": list(messages), **more}


def bedrock(*messages, **more):
    return {"modelId": "us.anthropic.claude-opus-4-5-20251101-v1:0", "messages": list(messages), **more}


def responses(*items, **more):
    return {"model": "gpt-5.6-sol", "input": list(items), **more}


def chat(*messages, **more):
    return {"model": "gpt-5.6-sol", "messages": list(messages), **more}


def gemini(*contents, **more):
    return {"model": "gemini-2.5-pro", "contents": list(contents), **more}


def user(*content):
    return {"role": "user", "content": list(content)}


def assistant(*content):
    return {"role": "assistant", "content": list(content)}


def words(text="Hello.", **more):
    return {"type": "text", "text": text, **more}


def part(text="Hello.", **more):
    return {"type": "input_text", "text": text, **more}


BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}
CALL = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "found"}
BEDROCK_CALL = {"toolUse": {"toolUseId": "c", "name": "look", "input": {}}}
BEDROCK_RESULT = {"toolResult": {"toolUseId": "c", "content": [{"text": "found"}]}}
THOUGHT = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}}

CASES = {
    "five marks, one of them on a tool": (
        "anthropic",
        "too-many-marks",
        anthropic(
            user(*(words(str(each), cache_control=MARK) for each in range(4))), tools=[{**TOOL, "cache_control": MARK}]
        ),
        anthropic(user(*(words(str(each), cache_control=MARK) for each in range(4))), tools=[TOOL]),
    ),
    "four marks and the automatic one": (
        "anthropic",
        "too-many-marks",
        anthropic(user(*(words(str(each), cache_control=MARK) for each in range(4)), words()), cache_control=MARK),
        anthropic(user(*(words(str(each), cache_control=MARK) for each in range(3)), words()), cache_control=MARK),
    ),
    "an hour after a bare mark": (
        "anthropic",
        "ttl-increases",
        anthropic(
            user(words()), system=[words("Be brief.", cache_control=HOUR)], tools=[{**TOOL, "cache_control": MARK}]
        ),
        anthropic(
            user(words()), system=[words("Be brief.", cache_control=MARK)], tools=[{**TOOL, "cache_control": HOUR}]
        ),
    ),
    "a mark on nothing": (
        "anthropic",
        "mark-on-empty",
        anthropic(user(words()), system=[words("", cache_control=MARK)]),
        anthropic(user(words()), system=[words("Be brief.", cache_control=MARK)]),
    ),
    "the automatic mark on a mark of another time": (
        "anthropic",
        "automatic-mark-conflict",
        anthropic(user(words(cache_control=HOUR)), cache_control=MARK),
        anthropic(user(words(cache_control=HOUR)), cache_control=HOUR),
    ),
    "a mark after thinking": (
        "anthropic",
        "mark-after-reasoning",
        anthropic(
            user(words()),
            assistant({"type": "thinking", "thinking": "Hm.", "signature": "s", "cache_control": MARK}),
            user(words()),
        ),
        anthropic(
            user(words()),
            assistant({"type": "thinking", "thinking": "Hm.", "signature": "s"}, words(cache_control=MARK)),
            user(words()),
        ),
    ),
    "a system message after the answer": (
        "anthropic",
        "system-turn",
        anthropic(user(words()), assistant(words()), {"role": "system", "content": "Now in French."}, user(words())),
        anthropic(user(words()), assistant(words()), user(words()), {"role": "system", "content": "Now in French."}),
    ),
    "text before the result": (
        "anthropic",
        "tool-result-not-first",
        anthropic(user(words()), assistant(CALL), user(words("Also:"), RESULT)),
        anthropic(user(words()), assistant(CALL), user(RESULT, words("Also:"))),
    ),
    "a result of nothing": (
        "anthropic",
        "tool-result-unmatched",
        anthropic(user(words()), assistant(words()), user(RESULT)),
        anthropic(user(words()), assistant(words(), CALL), user(RESULT)),
    ),
    "a call without a result": (
        "anthropic",
        "tool-call-unanswered",
        anthropic(user(words()), assistant(CALL), user(words("Never mind."))),
        anthropic(user(words()), assistant(CALL), user(RESULT, words("Never mind."))),
    ),
    "no messages": ("anthropic", "empty-contents", anthropic(system="Be brief."), anthropic(user(words()))),
    "two cache points in a row": (
        "bedrock",
        "adjacent-cache-points",
        bedrock(user({"text": "Hello."}, POINT, POINT)),
        bedrock(user({"text": "Hello."}, POINT)),
    ),
    "a cache point first": (
        "bedrock",
        "mark-on-empty",
        bedrock(user(POINT, {"text": "Hello."})),
        bedrock(user({"text": "Hello."}, POINT)),
    ),
    "a cache point after a document alone": (
        "bedrock",
        "cache-point-after-document",
        bedrock(user({"document": {"name": "d", "format": "txt", "source": {"text": "…"}}}, POINT)),
        bedrock(user({"document": {"name": "d", "format": "txt", "source": {"text": "…"}}}, {"text": "Read."}, POINT)),
    ),
    "a cache point after reasoning": (
        "bedrock",
        "mark-after-reasoning",
        bedrock(user({"text": "a"}), assistant(THOUGHT, POINT), user({"text": "b"})),
        bedrock(user({"text": "a"}), assistant(THOUGHT, {"text": "Yes."}, POINT), user({"text": "b"})),
    ),
    "a result late on Bedrock": (
        "bedrock",
        "tool-result-not-first",
        bedrock(user({"text": "a"}), assistant(BEDROCK_CALL), user({"text": "b"}, BEDROCK_RESULT)),
        bedrock(user({"text": "a"}), assistant(BEDROCK_CALL), user(BEDROCK_RESULT, {"text": "b"})),
    ),
    "an hour where there are five minutes": (
        "bedrock",
        "unknown-ttl",
        {
            **bedrock(user({"text": "a"}, {"cachePoint": {"type": "default", "ttl": "1h"}})),
            "modelId": "anthropic.claude-next",
        },
        bedrock(user({"text": "a"}, {"cachePoint": {"type": "default", "ttl": "1h"}})),
    ),
    "explicit without a mark": (
        "openai-responses",
        "caching-off",
        responses(user(part()), prompt_cache_options={"mode": "explicit"}),
        responses(user(part(**BREAKPOINT)), prompt_cache_options={"mode": "explicit"}),
    ),
    "four marks and the implicit one": (
        "openai-chat",
        "too-many-marks",
        chat(*(user(words(str(each), **BREAKPOINT)) for each in range(4)), user(words())),
        chat(*(user(words(str(each), **BREAKPOINT)) for each in range(3)), user(words())),
    ),
    "an output of no call": (
        "openai-responses",
        "tool-result-unmatched",
        responses(user(part()), {"type": "function_call_output", "call_id": "c", "output": "found"}),
        responses(
            user(part()),
            {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "found"},
        ),
    ),
    "a message of a tool that was not called": (
        "openai-chat",
        "tool-result-unmatched",
        chat(user(words()), {"role": "tool", "tool_call_id": "c", "content": "found"}),
        chat(
            user(words()),
            {
                "role": "assistant",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "found"},
        ),
    ),
    "a handle beside its own instructions": (
        "gemini",
        "handle-with-prefix",
        gemini(
            {"role": "user", "parts": [{"text": "a"}]},
            config={"cached_content": "cachedContents/a", "system_instruction": "Be brief."},
        ),
        gemini({"role": "user", "parts": [{"text": "a"}]}, config={"cached_content": "cachedContents/a"}),
    ),
    "no contents": (
        "gemini",
        "empty-contents",
        gemini(),
        gemini({"role": "user", "parts": [{"text": "a"}]}),
    ),
}


def rules_of(arguments, wire_format):
    provider = wire_format.partition("-")[0]
    return rules_for(provider, arguments.get("model") or arguments["modelId"])


@pytest.mark.parametrize("case", CASES)
def test_one_thing_is_wrong_and_nothing_once_it_is_mended(case):
    wire_format, rule, broken, mended = CASES[case]
    found = check(UNSENT, read_request(wire_format, broken), rules_of(broken, wire_format), 0.0)
    assert [each.rule for each in found] == [rule]
    assert check(UNSENT, read_request(wire_format, mended), rules_of(mended, wire_format), 0.0) == ()


def test_thinking_is_refused_after_a_changed_system_prompt_unless_the_request_lets_it_be_dropped():
    first = {"model": "claude-opus-5-5", "max_tokens": 9, "system": "Monday.", "messages": [user(words())]}
    thinking = {"type": "thinking", "thinking": "", "signature": "sig"}
    rules = rules_for("anthropic", "claude-opus-5-5")
    state = advance(UNSENT, read_request("anthropic", first), 0.0)
    second = copy.deepcopy(first)
    second["messages"] += [assistant(thinking, words("Yes.")), user(words("More."))]
    assert check(state, read_request("anthropic", second), rules, 1.0) == ()
    second["system"] = "Tuesday."
    found = check(state, read_request("anthropic", second), rules, 1.0)
    assert [(each.rule, each.effect) for each in found] == [("bound-reasoning", "refused")]
    second["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert check(state, read_request("anthropic", second), rules, 1.0) == ()


def test_a_response_that_is_continued_takes_only_what_is_new():
    state = advance(UNSENT, read_request("openai-responses", responses(user(part("a")))), 0.0, response="resp_1")
    rules = rules_for("openai", "gpt-5.6-sol")
    answer = {"role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}
    for items, due in (
        ([user(part("b"))], []),
        ([user(part("a")), answer, user(part("b"))], ["repeated-history"]),
        ([user(part("erased")), answer, user(part("b"))], ["changed-history"]),
    ):
        request = read_request("openai-responses", responses(*items, previous_response_id="resp_1"))
        assert [each.rule for each in check(state, request, rules, 1.0)] == due
