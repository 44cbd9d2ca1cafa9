"""A delta stands behind everything that was sent, in the channel of its trust, and comes out again without a trace."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.conversations.messages import check_messages, prefix_hashes, without_parts
from promptkeel.conversations.placing import DeltaPart, with_parts
from promptkeel.errors import InvalidInputError
from promptkeel.prompt.adapters.arranging import ACKNOWLEDGEMENT, REQUEST

OWN = "[own]"


def text(words, wire_format):
    if wire_format in ("gemini", "bedrock"):
        return {"text": words}
    return {"type": "input_text" if wire_format == "openai-responses" else "text", "text": words}


def message(role, wire_format, *words):
    name = "parts" if wire_format == "gemini" else "content"
    role = "model" if role == "assistant" and wire_format == "gemini" else role
    return {"role": role, name: [text(each, wire_format) for each in words]}


def called(wire_format):
    """A call of a tool, and its result."""
    if wire_format == "anthropic":
        return [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "found"}]},
        ]
    if wire_format == "bedrock":
        result = {"toolUseId": "t1", "content": [{"text": "found"}]}
        return [
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "look", "input": {}}}]},
            {"role": "user", "content": [{"toolResult": result}]},
        ]
    if wire_format == "openai-chat":
        function = {"name": "look", "arguments": "{}"}
        return [
            {"role": "assistant", "tool_calls": [{"id": "t1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "t1", "content": "found"},
        ]
    if wire_format == "openai-responses":
        return [
            {"type": "function_call", "call_id": "t1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "t1", "output": "found"},
        ]
    response = {"id": "t1", "name": "look", "response": {"result": "found"}}
    return [
        {"role": "model", "parts": [{"function_call": {"id": "t1", "name": "look", "args": {}}}]},
        {"role": "user", "parts": [{"function_response": response}]},
    ]


def cutting(seen):
    def cut(words):
        if words.startswith(OWN):
            seen.append(words)
            return ""
        return words

    return cut


FORMATS = st.sampled_from(["anthropic", "openai-chat", "openai-responses", "gemini", "bedrock"])
PARTS = st.lists(
    st.builds(
        DeltaPart,
        channel=st.sampled_from(["system", "user", "tool_result"]),
        text=st.integers(0, 9).map(lambda number: f"{OWN} {number}"),
        id=st.uuids().map(lambda each: each.hex[:8]),
    ),
    min_size=1,
    max_size=3,
)


@st.composite
def histories(draw, wire_format):
    found = []
    for number in range(draw(st.integers(1, 4))):
        found.append(message("user", wire_format, f"question {number}"))
        if draw(st.booleans()):
            found += called(wire_format)
        found.append(message("assistant", wire_format, f"answer {number}"))
    end = draw(st.sampled_from(["question", "result", "nothing"]))
    if end != "nothing":
        found.append(message("user", wire_format, "last question"))
    if end == "result":
        found += called(wire_format)
    return found


@given(st.data(), FORMATS, PARTS, st.booleans(), st.booleans())
def test_what_was_put_in_comes_out_and_leaves_what_was_there(data, wire_format, parts, authored, thinks):
    messages = data.draw(histories(wire_format))
    before = copy.deepcopy(messages)
    if authored and wire_format not in ("gemini", "bedrock"):
        parts = [*parts, DeltaPart("system", f"{OWN} authored", "aa", is_authored=True)]
    settings = {"thinking": {"type": "enabled"}} if thinks else {}
    placed = with_parts(messages, parts, wire_format, settings)
    assert messages == before
    seen = []
    taken = without_parts(placed, wire_format, cutting(seen))
    assert sorted(seen) == sorted(part.text for part in parts)
    assert taken.origins == sorted(set(taken.origins))
    start = "0" * 64
    assert prefix_hashes(taken.messages, wire_format, start) == prefix_hashes(messages, wire_format, start)
    # Nothing before the turn that goes on has moved.
    last = max(index for index, each in enumerate(messages) if each.get("role") == "user" or "output" in each)
    if not thinks and wire_format != "gemini":
        assert placed[:last] == messages[:last]


@given(st.data(), FORMATS)
def test_messages_without_own_parts_are_handed_on_as_they_are(data, wire_format):
    messages = data.draw(histories(wire_format))
    seen = []
    taken = without_parts(messages, wire_format, cutting(seen))
    assert seen == []
    assert all(mine is theirs for mine, theirs in zip(taken.messages, messages, strict=True))


def test_a_delta_stands_after_the_results_of_tools_of_its_message():
    messages = [message("user", "anthropic", "hi"), *called("anthropic")]
    *_, last = with_parts(messages, [DeltaPart("user", OWN, "a1")], "anthropic", {})
    assert [part["type"] for part in last["content"]] == ["tool_result", "text"]
    *_, last = with_parts(messages, [DeltaPart("tool_result", OWN, "a1")], "anthropic", {})
    assert last["content"][0]["content"] == [{"type": "text", "text": "found"}, {"type": "text", "text": OWN}]


def test_text_of_third_parties_is_the_result_of_a_call_where_no_result_is_there():
    messages = [message("user", "anthropic", "hi")]
    asked, call, result = with_parts(messages, [DeltaPart("tool_result", OWN, "a1")], "anthropic", {})
    assert asked is messages[0]
    assert call["content"][0]["id"] == result["content"][0]["tool_use_id"] == "toolu_standing_memory_delta_a1"
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    found = with_parts(messages, [DeltaPart("tool_result", OWN, "a1")], "anthropic", thinking)
    assert [each["role"] for each in found] == ["user", "assistant", "user", "assistant", "user"]
    assert found[0]["content"][0]["text"] == REQUEST
    assert found[3]["content"][0]["text"] == ACKNOWLEDGEMENT
    assert found[4] is messages[0]


def test_marks_and_the_spelling_of_a_text_are_no_part_of_a_prefix():
    plain = [{"role": "user", "content": "hi"}]
    marked = [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}]
    other = [{"role": "user", "content": "ho"}]
    assert prefix_hashes(plain, "anthropic", "s") == prefix_hashes(marked, "anthropic", "s")
    assert prefix_hashes(plain, "anthropic", "s")[1] != prefix_hashes(other, "anthropic", "s")[1]
    assert prefix_hashes(plain, "anthropic", "s")[1] != prefix_hashes(plain, "anthropic", "t")[1]


@pytest.mark.parametrize("wrong", [None, "hi", b"hi", 3, ["hi"], [None], {"role": "user"}])
def test_what_are_no_messages_is_refused_by_type(wrong):
    with pytest.raises(InvalidInputError, match="messages"):
        check_messages(wrong)
