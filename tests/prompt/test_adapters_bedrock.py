"""Bedrock's Converse: cache points behind the content, and turns that alternate."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversing import FACTS, FORMATS, prompt_of, specs
from promptkeel.errors import InvalidInputError
from promptkeel.prompt.adapters.arranging import TOOL_NAME
from promptkeel.providers.automaton import UNSENT, check
from promptkeel.providers.rules import rules_for
from promptkeel.providers.wire import read_request
from sdk_types import CHECKS

FORM = FORMATS["bedrock"]
PROMPT = prompt_of()
FOREIGN = prompt_of([*FACTS, ("PREF:read on a web page", "third-party"), ("FOCUS:a page says so", "third-party")])
POINT = {"cachePoint": {"type": "default"}}


def ask(messages, prompt=PROMPT, **more):
    return FORM.request(prompt, messages, **more)


def points(request):
    found = [*request.get("toolConfig", {}).get("tools", ()), *request.get("system", ())]
    found += [block for message in request["messages"] for block in message["content"]]
    return [block["cachePoint"] for block in found if "cachePoint" in block]


def is_legal(request):
    return check(UNSENT, read_request("bedrock", dict(request)), rules_for("bedrock", FORM.model), 0.0) == ()


def test_points_stand_behind_what_they_keep_and_no_mark_of_anthropics_is_anywhere():
    request = ask(FORM.conversation(3), tools=FORM.tools())
    assert request["modelId"] == FORM.model
    assert request["system"][-1] == POINT
    *_, asked, point, tail = request["messages"][-1]["content"]
    assert (asked, point) == ({"text": "question 2"}, POINT)
    assert "journey" in tail["text"]
    assert "cache_control" not in json.dumps(dict(request))
    assert is_legal(request)


@pytest.mark.parametrize("model", ["us.amazon.nova-pro-v1:0", "meta.llama4-maverick-17b-instruct-v1:0", "my-profile"])
def test_a_model_that_is_not_known_to_take_points_gets_none_and_that_is_said(model):
    request = ask(FORM.conversation(2), model=model, tools=FORM.tools())
    assert points(request) == []
    assert any("no cache points" in note for note in request.notes)
    known = {"bedrock": {"models": {model: {"scheme": "marks", "marks": 4}}}}
    taken = ask(FORM.conversation(2), model=model, tools=FORM.tools(), overrides=[known])
    assert points(taken)
    assert taken.notes == ()


def test_a_callers_points_are_taken_out_where_the_model_would_refuse_them():
    messages = FORM.conversation(2)
    messages[0]["content"].append(POINT)
    assert points(ask(messages, model="us.amazon.nova-pro-v1:0", tools=[*FORM.tools(), POINT])) == []
    assert messages[0]["content"][-1] == POINT


@given(st.integers(1, 4), st.integers(0, 2), st.sampled_from([PROMPT, FOREIGN, prompt_of([])]))
def test_turns_alternate_and_begin_with_the_users(turns, calls, prompt):
    roles = [message["role"] for message in ask(FORM.conversation(turns, calls), prompt)["messages"]]
    assert roles == [("user", "assistant")[index % 2] for index in range(len(roles))]


def test_every_tool_that_was_called_is_declared():
    request = ask(FORM.conversation(1), FOREIGN)
    assert [tool["toolSpec"]["name"] for tool in request["toolConfig"]["tools"] if "toolSpec" in tool] == [TOOL_NAME]
    own = ask(FORM.conversation(1), FOREIGN, tools=FORM.tools(), tool_choice={"auto": {}})
    names = [tool["toolSpec"]["name"] for tool in own["toolConfig"]["tools"] if "toolSpec" in tool]
    assert names == ["tool_0", "tool_1", "tool_2"]
    assert own["toolConfig"]["toolChoice"] == {"auto": {}}
    CHECKS["bedrock"](own)
    assert "toolConfig" not in ask(FORM.conversation(1), prompt_of([], specs()[:2]))


@given(st.lists(st.integers(0, 8), max_size=6), st.integers(2, 4), st.booleans())
def test_the_callers_own_points_are_counted_and_never_more_than_four_are_sent(places, turns, in_tools):
    messages = FORM.conversation(turns)
    for place in sorted(set(places)):
        if place < len(messages):
            messages[place]["content"].append(copy.deepcopy(POINT))
    tools = [*FORM.tools(), *([copy.deepcopy(POINT)] if in_tools else [])]
    before = copy.deepcopy(messages)
    request = ask(messages, tools=tools)
    assert messages == before
    assert len(points(request)) <= 4
    assert is_legal(request)
    CHECKS["bedrock"](request)


def test_no_point_stands_behind_reasoning_or_behind_documents_alone():
    reasoning = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    document = {"document": {"format": "txt", "name": "a", "source": {"bytes": b"text"}}}
    for last in ({"role": "assistant", "content": [reasoning]}, {"role": "user", "content": [document]}):
        messages = [FORM.user("hello"), FORM.assistant("yes"), FORM.user("more"), FORM.assistant("yes"), last]
        messages = messages if last["role"] == "user" else [*messages[:3], last]
        request = ask(messages, prompt_of([]))
        assert request["messages"][-1] == last
        assert is_legal(request)
        CHECKS["bedrock"](request)


@pytest.mark.parametrize("point", [{"ttl": "2h"}, {"ttl": []}, "default", []], ids=repr)
def test_a_point_that_the_api_would_refuse_is_refused_by_the_index_of_its_message(point):
    with pytest.raises(InvalidInputError, match="ttl of 5m or 1h") as caught:
        ask([FORM.user("hello"), {"role": "user", "content": [{"text": "x"}, {"cachePoint": point}]}])
    assert caught.value.where == "message 1"


@pytest.mark.parametrize("content", ["text", None, 7, ["text"], [POINT], [{"text": "x"}, POINT, POINT]])
def test_content_that_is_none_is_refused_by_the_index_of_its_message(content):
    with pytest.raises(InvalidInputError) as caught:
        ask([FORM.user("hello"), {"role": "user", "content": content}])
    assert caught.value.where == "message 1"


def test_other_arguments_are_handed_on_and_none_takes_the_place_of_the_prompt():
    request = ask(FORM.conversation(1), inferenceConfig={"maxTokens": 100})
    assert request["inferenceConfig"] == {"maxTokens": 100}
    for name in ("system", "toolConfig", "modelId"):
        with pytest.raises(InvalidInputError, match="made from the prompt"):
            ask(FORM.conversation(1), **{name: []})


def test_a_model_that_must_begin_by_thinking_has_no_call_made_in_its_name_within_its_turn():
    fields = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    messages = [*FORM.conversation(2), *FORM.call("call_9", "result")]
    request = ask(messages, FOREIGN, tools=FORM.tools(), additionalModelRequestFields=fields)
    opening = next(i for i, each in enumerate(request["messages"]) if "question 1" in json.dumps(each))
    assert TOOL_NAME not in json.dumps(request["messages"][opening:])
    assert "a page says so" in json.dumps(request["messages"][:opening])
    assert is_legal(request)
