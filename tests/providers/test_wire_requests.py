"""Requests of every format are read as exactly the segments that they hold, in cache order, marks beside content."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import MappingProxyType

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.errors import InvalidInputError
from promptkeel.providers.segments import SECTIONS, WIRE_FORMATS, Mark
from promptkeel.providers.wire import detect_format, read_request
from sdk_types import CHECKS
from wire_requests import REQUESTS

ALL = pytest.mark.parametrize("wire_format", WIRE_FORMATS)
MARKS = ("cache_control", "prompt_cache_breakpoint")
TAU = Path(__file__).parents[3] / "shared" / "data" / "tau-bench-airline.json"


def without_marks(value, inside=False):
    """A request without any mark that stands where a mark may stand."""
    if isinstance(value, list):
        return [without_marks(item, inside) for item in value if not (isinstance(item, dict) and "cachePoint" in item)]
    if not isinstance(value, dict):
        return value
    own = ("input", "parameters", "input_schema", "inputSchema")
    return {
        key: item
        if (key in own and key != "input") or (key == "input" and isinstance(item, dict))
        else without_marks(item)
        for key, item in value.items()
        if key not in MARKS
    }


def unmarked(segments):
    return [attrs.evolve(segment, mark=None) for segment in segments]


@ALL
@given(st.data())
def test_reading_gives_the_segments_that_a_request_was_built_from(wire_format, data):
    arguments, segments = data.draw(REQUESTS[wire_format])
    before = copy.deepcopy(arguments)

    found = read_request(wire_format, arguments)

    assert found.segments == segments
    assert found.format == wire_format
    assert found.model == arguments.get("model", arguments.get("modelId"))
    assert [SECTIONS.index(each.section) for each in segments] == sorted(SECTIONS.index(s.section) for s in segments)
    assert arguments == before


@ALL
@given(st.data())
def test_the_requests_read_here_are_of_the_sdks_own_types(wire_format, data):
    arguments, _ = data.draw(REQUESTS[wire_format])
    text = json.dumps(arguments)
    # Kinds that no SDK knows yet, and what must be longer there, are read but not built.
    if "not_known_yet" in text or '""' in text or "[]" in text:
        return
    required = {"max_tokens": 8} if wire_format == "anthropic" else {}
    if wire_format == "bedrock" and not arguments["toolConfig"]["tools"]:
        arguments = {name: value for name, value in arguments.items() if name != "toolConfig"}
    CHECKS[wire_format]({**arguments, **required})


@ALL
@given(st.data())
def test_marks_change_no_content(wire_format, data):
    arguments, segments = data.draw(REQUESTS[wire_format])
    bare = read_request(wire_format, without_marks(arguments))
    assert list(bare.segments) == unmarked(segments)


@ALL
@given(st.data())
def test_keys_in_another_order_and_other_mappings_give_the_same_request(wire_format, data):
    arguments, segments = data.draw(REQUESTS[wire_format])

    def other(value):
        if isinstance(value, dict):
            return MappingProxyType({key: other(value[key]) for key in data.draw(st.permutations(list(value)))})
        return tuple(other(item) for item in value) if isinstance(value, list) else value

    assert read_request(wire_format, other(arguments)).segments == segments


@ALL
@given(st.data())
def test_what_goes_into_the_body_beside_is_read_as_the_body(wire_format, data):
    arguments, _ = data.draw(REQUESTS[wire_format])
    names = data.draw(st.sets(st.sampled_from(sorted(arguments))))
    outside = {name: value for name, value in arguments.items() if name not in names}
    inside = {name: arguments[name] for name in names}
    assert read_request(wire_format, {**outside, "extra_body": inside}) == read_request(wire_format, arguments)


@ALL
@given(st.data())
def test_bad_input_is_a_typed_error_wherever_it_stands(wire_format, data):
    arguments, _ = data.draw(REQUESTS[wire_format])
    bad = data.draw(
        st.sampled_from([object(), float("nan"), {1: 2}, {"a": "\ud800"}, {None: 1}, 7, True, b"\xff", [[]]])
    )
    name = data.draw(st.sampled_from(["tools", "system", "messages", "input", "contents", "toolConfig", "config"]))
    place = data.draw(st.sampled_from(["whole", "item", "content"]))
    value = {"whole": bad, "item": [bad], "content": [{"role": "user", "content": [bad], "parts": [bad]}]}[place]
    refused = None
    try:
        read_request(wire_format, {**arguments, name: value})
    except InvalidInputError as error:
        refused = error
    assert refused is None or refused.field


@ALL
@pytest.mark.parametrize("arguments", [None, [], "model", 7, {1: 2}, {None: "x"}])
def test_what_is_no_request_is_refused(wire_format, arguments):
    with pytest.raises(InvalidInputError):
        read_request(wire_format, arguments)


def test_an_unknown_format_is_refused():
    with pytest.raises(InvalidInputError, match="is none of anthropic"):
        read_request("cohere", {})


@ALL
def test_deep_nesting_is_a_typed_error(wire_format):
    deep: object = "x"
    for _ in range(50_000):
        deep = [deep]
    names = {"gemini": "contents", "openai-responses": "input"}
    block = {"role": "user", "content": [{"type": "text", "deep": deep}], "parts": [{"deep": deep}]}
    with pytest.raises(InvalidInputError, match="nested"):
        read_request(wire_format, {names.get(wire_format, "messages"): [block]})


@ALL
@given(st.data())
def test_a_request_is_either_detected_as_what_it_is_or_not_at_all(wire_format, data):
    arguments, _ = data.draw(REQUESTS[wire_format])
    assert detect_format(arguments) in (wire_format, None)


DETECTED = [
    ({"model": "claude-opus-5", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}, "anthropic"),
    ({"model": "x", "system": "be brief", "messages": [{"role": "user", "content": "hi"}]}, "anthropic"),
    ({"model": "x", "system": "a", "messages": [{"role": "user", "content": "hi"}, {"role": "system", "content": "b"}]},
     "anthropic"),
    ({"model": "gpt-5.6", "messages": [{"role": "user", "content": "hi"}]}, "openai-chat"),
    ({"model": "x", "messages": [{"role": "system", "content": "be brief"}]}, "openai-chat"),
    ({"model": "x", "input": "hi"}, "openai-responses"),
    ({"model": "x", "contents": "hi"}, "gemini"),
    ({"modelId": "x", "messages": [{"role": "user", "content": [{"text": "hi"}]}]}, "bedrock"),
    ({"messages": [{"role": "user", "content": [{"text": "hi"}]}], "system": [{"text": "a"}]}, "bedrock"),
    # Nothing speaks for one of them, or more than one thing does.
    ({"model": "anthropic/claude-opus-5", "messages": [{"role": "user", "content": "hi"}]}, None),
    ({"model": "claude-opus-5", "messages": [{"role": "user", "content": "hi"}]}, None),
    ({"model": "mistral-large", "messages": [{"role": "user", "content": "hi"}]}, None),
    ({"system": "a", "messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, None),
    ({"modelId": "x", "body": "{}"}, None),
    ({"model": "text-embedding-3-small", "input": "hi"}, None),
    ({"input": "hi", "contents": "hi"}, None),
    ({}, None),
    ({"messages": "hi"}, None),
    ([], None),
    ("contents", None),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "expected"), DETECTED)
def test_a_format_is_named_only_where_everything_speaks_for_one(arguments, expected):
    assert detect_format(arguments) == expected


# Real traffic.


@pytest.mark.skipif(not TAU.exists(), reason=f"the real runs are not here: {TAU}")
def test_real_runs_with_tools_are_read_whole_and_each_turn_continues_the_one_before():
    runs = json.loads(TAU.read_text(encoding="utf-8"))
    kinds = {}
    for run in runs:
        messages = run["traj"]
        whole = read_request("openai-chat", {"model": "gpt-4o", "messages": messages}).segments
        assert whole[0].section == "system"
        assert detect_format({"model": "gpt-4o", "messages": messages}) == "openai-chat"
        calls = sum(len(message.get("tool_calls") or ()) for message in messages)
        assert sum(each.kind == "tool_use" for each in whole) == calls
        assert sum(each.kind == "tool_result" for each in whole) == sum(m["role"] == "tool" for m in messages)
        said = "".join(json.loads(each.content)["text"] for each in whole if each.kind == "text")
        assert said == "".join(m["content"] or "" for m in messages if m["role"] != "tool")
        half = read_request("openai-chat", {"messages": messages[: len(messages) // 2]}).segments
        assert whole[: len(half)] == half
        for each in whole:
            kinds[each.kind] = kinds.get(each.kind, 0) + 1
    assert len(runs) == 200
    assert set(kinds) == {"text", "tool_use", "tool_result"}


@ALL
@given(st.data())
def test_every_mark_of_a_request_is_found_once(wire_format, data):
    arguments, segments = data.draw(REQUESTS[wire_format])
    text = json.dumps(arguments)
    spelled = text.count('{"type": "ephemeral"') + text.count('{"mode": "explicit"') + text.count('{"type": "default"')
    found = [segment.mark for segment in read_request(wire_format, arguments).segments]
    assert len([mark for mark in found if isinstance(mark, Mark)]) == spelled
    assert len([segment for segment in segments if segment.mark is not None]) == spelled
