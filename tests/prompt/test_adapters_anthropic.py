"""Anthropic's Messages API: marks, system messages, thinking, and calls that the host makes."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import promptkeel as pk
from conversing import FACTS, FORMATS, prompt_of, specs
from promptkeel.errors import InvalidInputError
from promptkeel.prompt.adapters.arranging import TOOL_NAME
from promptkeel.providers.automaton import UNSENT, advance, check
from promptkeel.providers.rules import rules_for
from promptkeel.providers.wire import read_request
from sdk_types import CHECKS

FORM = FORMATS["anthropic"]
PROMPT = prompt_of()
FOREIGN = prompt_of([*FACTS, ("PREF:read on a web page", "third-party"), ("FOCUS:a page says so", "third-party")])
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def ask(messages, prompt=PROMPT, **more):
    return prompt.anthropic(**{"model": "claude-opus-4-8", "max_tokens": 100, "messages": messages, **more})


def marks(value):
    """Every mark in a request, in its order."""
    if isinstance(value, dict):
        found = [value["cache_control"]] if "cache_control" in value else []
        return found + [mark for name, each in value.items() if name != "cache_control" for mark in marks(each)]
    return [mark for each in value for mark in marks(each)] if isinstance(value, list) else []


def is_legal(request, model="claude-opus-4-8"):
    return check(UNSENT, read_request("anthropic", dict(request)), rules_for("anthropic", model), 0.0) == ()


def test_marks_stand_at_the_end_of_what_all_share_of_the_base_and_of_the_history():
    request = ask(FORM.conversation(3), tools=FORM.tools())
    assert [marks(block) for block in request["system"]] == [[MARK]]
    *_, last = request["messages"][0]["content"]
    assert last["cache_control"] == MARK, "memory stands in the first message, and ends the base"
    asked, tail = request["messages"][-1]["content"]
    assert asked == {"type": "text", "text": "question 2", "cache_control": MARK}
    assert "journey" in tail["text"]
    assert len(marks(dict(request))) == 3


def test_a_prefix_shorter_than_the_least_that_is_kept_gets_no_mark_and_that_is_said():
    short = prompt_of(blocks=specs()[1:])
    request = ask(FORM.conversation(1), short, model="claude-opus-4-6")
    assert marks(dict(request)) == []
    (note,) = request.notes
    assert "4096" in note
    assert "no mark" in note
    assert marks(dict(ask(FORM.conversation(1), short, model="claude-opus-4-6",
                          overrides=[{"anthropic": {"minimum": 10}}])))  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from([MARK, HOUR])), max_size=6), st.integers(2, 4))
def test_the_callers_own_marks_are_counted_and_never_more_than_four_are_sent(places, turns):
    messages = FORM.conversation(turns)
    for place, mark in places:
        message = messages[place % len(messages)]
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
        message["content"][-1]["cache_control"] = dict(mark)
    before = copy.deepcopy(messages)
    tools = FORM.tools()
    tools[-1]["cache_control"] = dict(MARK)
    request = ask(messages, tools=tools)
    assert messages == before
    assert len(marks(dict(request))) <= 4
    assert is_legal(request)
    CHECKS["anthropic"](request)


def test_a_mark_at_the_top_of_the_request_takes_one_of_the_four():
    request = ask(FORM.conversation(3), tools=FORM.tools(), cache_control=MARK)
    assert request["cache_control"] == MARK
    # It stands at the end of the messages, where none is needed beside it.
    assert len(marks([request["tools"], request["system"], request["messages"]])) == 2
    assert marks(request["messages"][1:]) == []
    assert is_legal(request)


def test_a_prefix_can_be_kept_for_longer_by_who_shares_it_and_later_marks_for_no_longer():
    request = ask(FORM.conversation(2), ttls={"deployment": 3600})
    assert request["system"][0]["cache_control"] == HOUR
    assert marks(request["messages"]) == [MARK, MARK]
    assert marks(dict(ask(FORM.conversation(2), ttls={"conversation": 3600}))) == [HOUR, HOUR, HOUR]


@pytest.mark.parametrize(
    "ttls", ["1h", {"everybody": 300}, {"tenant": 0}, {"tenant": "1h"}, {"tenant": True}], ids=repr
)
def test_a_time_that_means_nothing_is_refused(ttls):
    with pytest.raises(InvalidInputError, match="ttls"):
        ask(FORM.conversation(1), ttls=ttls)


@pytest.mark.parametrize("content", ["", "  ", [{"type": "text", "text": "\n"}], []])
def test_no_mark_stands_on_empty_text(content):
    request = ask([FORM.user("hello"), FORM.assistant("yes"), {"role": "user", "content": content}])
    assert is_legal(request) or content == []
    assert marks(request["messages"][-1]) == []
    assert marks(dict(request))


def test_no_mark_follows_thinking():
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    messages = [FORM.user("hello"), {"role": "assistant", "content": [thinking]}]
    request = ask(messages, prompt_of([]))
    assert is_legal(request)
    assert request["messages"][-1] == messages[-1]


def test_a_turn_of_many_blocks_gets_a_mark_from_which_what_was_written_is_still_found():
    calls = [{"type": "tool_use", "id": f"c{n}", "name": "tool_0", "input": {}} for n in range(15)]
    results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": f"result {n}"} for n in range(15)]
    asked = FORM.conversation(2)
    messages = [*asked, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    request = ask(messages)
    assert len(marks(dict(request))) == 4
    positions = read_request("anthropic", dict(request)).segments
    marked = [index for index, each in enumerate(positions) if each.mark is not None]
    # The request before this one ended with the second question.
    written = max(index for index, each in enumerate(positions) if "question 1" in each.content)
    assert any(written <= mark < written + 20 for mark in marked)
    assert request.notes == ()


def test_where_the_count_forbids_such_a_mark_the_loss_is_told():
    calls = [{"type": "tool_use", "id": f"c{n}", "name": "tool_0", "input": {}} for n in range(15)]
    results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": f"result {n}"} for n in range(15)]
    results[-1]["cache_control"] = results[-2]["cache_control"] = results[-3]["cache_control"] = MARK
    messages = [*FORM.conversation(2), {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    request = ask(messages)
    assert len(marks(dict(request))) == 4
    assert any("are not read from the cache" in note for note in request.notes)


@pytest.mark.parametrize("mark", ["5m", 300, {"ttl": "2h"}, {"ttl": 300}, {"ttl": []}, []], ids=repr)
def test_a_mark_that_the_api_would_refuse_is_refused_by_the_index_of_its_message(mark):
    messages = [FORM.user("hello"), {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": mark}]}]
    with pytest.raises(InvalidInputError, match="ttl of 5m or 1h") as caught:
        ask(messages)
    assert caught.value.where == "message 1"


@pytest.mark.parametrize("content", [None, 7, b"bytes", ["text"], {"type": "text"}])
def test_content_that_is_none_is_refused_by_the_index_of_its_message(content):
    with pytest.raises(InvalidInputError) as caught:
        ask([FORM.user("hello"), {"role": "user", "content": content}])
    assert caught.value.where == "message 1"


@pytest.mark.parametrize("name", ["system"])
def test_no_setting_takes_the_place_of_the_prompt(name):
    with pytest.raises(InvalidInputError, match="made from the prompt"):
        ask(FORM.conversation(1), **{name: "Obey."})


def test_settings_are_handed_on():
    request = ask(FORM.conversation(1), temperature=0.5, metadata={"user_id": "u1"}, stop_sequences=["x"])
    assert (request["temperature"], request["metadata"], request["stop_sequences"]) == (0.5, {"user_id": "u1"}, ["x"])
    CHECKS["anthropic"](request)


def test_system_messages_keep_their_place_where_the_model_takes_them_and_are_refused_elsewhere():
    late = [FORM.user("hello"), {"role": "system", "content": "Be brief."}]
    request = ask(late)
    assert request["messages"][-1] == late[-1]
    assert is_legal(request)
    with pytest.raises(InvalidInputError, match="does not take") as caught:
        ask(late, model="claude-opus-4-5")
    assert caught.value.where == "message 1"
    for wrong in ([late[1], late[0]], [late[0], FORM.assistant("yes"), late[1]]):
        with pytest.raises(InvalidInputError, match="right after a user's"):
            ask(wrong)


def test_what_third_parties_wrote_stands_in_results_of_calls_that_are_answered_and_known():
    request = ask(FORM.conversation(2), FOREIGN)
    for text in ("web page", "a page says so"):
        assert text in json.dumps([block for message in request["messages"] for block in message["content"]
                                   if isinstance(block, dict) and block["type"] == "tool_result"])  # fmt: skip
    said = json.dumps([request["system"], *(
        block["text"] for message in request["messages"] for block in message["content"]
        if isinstance(block, dict) and block["type"] == "text"
    )])  # fmt: skip
    assert "web page" not in said
    assert "a page says so" not in said
    assert [tool["name"] for tool in request["tools"]] == [TOOL_NAME]
    assert request["tool_choice"] == {"type": "none"}
    assert is_legal(request)


def test_a_caller_with_tools_gets_no_other_one_and_its_own_choice():
    request = ask(FORM.conversation(2), FOREIGN, tools=FORM.tools(), tool_choice={"type": "any"})
    assert [tool["name"] for tool in request["tools"]] == ["tool_0", "tool_1", "tool_2"]
    assert request["tool_choice"] == {"type": "any"}
    assert "tool_choice" not in ask(FORM.conversation(2), FOREIGN, tools=FORM.tools())


def test_the_tools_of_a_conversation_do_not_change_when_a_third_party_is_first_heard():
    assert ask(FORM.conversation(1))["tools"] == ask(FORM.conversation(1), FOREIGN)["tools"]
    authored = prompt_of([], specs()[:2])
    assert "tools" not in ask(FORM.conversation(1), authored)


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_a_model_that_must_begin_by_thinking_has_no_call_made_in_its_name_within_its_turn(calls):
    messages = FORM.conversation(2)
    messages += [each for number in range(calls) for each in FORM.call(f"call_{number}", "result")]
    thinking = {"type": "enabled", "budget_tokens": 2000}
    request = ask(messages, FOREIGN, tools=FORM.tools(), thinking=thinking, max_tokens=4000)
    assert is_legal(request)
    CHECKS["anthropic"](request)
    roles = [(message["role"], message["content"]) for message in request["messages"]]
    opening = max(index for index, (role, content) in enumerate(roles) if "question 1" in str(content))
    since = [content for role, content in roles[opening:] if role == "assistant"]
    assert TOOL_NAME not in str(since)
    assert "a page says so" in str(roles[:opening])
    adaptive = ask(messages, FOREIGN, tools=FORM.tools(), thinking={"type": "adaptive"})
    assert TOOL_NAME in str(adaptive["messages"][-2])
    assert is_legal(adaptive)


def test_marks_behind_a_tail_in_front_of_the_turn_are_counted_too():
    messages = FORM.conversation(2)
    for number in range(3):
        call, result = FORM.call(f"call_{number}", "result")
        result["content"][0]["cache_control"] = MARK
        messages += [call, result]
    request = ask(messages, FOREIGN, tools=FORM.tools(), thinking={"type": "enabled", "budget_tokens": 2000})
    assert len(marks(dict(request))) == 4
    assert is_legal(request)


def test_what_the_model_has_begun_to_say_stays_the_last_thing():
    begun = FORM.assistant("The answer is (")
    for prompt in (PROMPT, FOREIGN):
        request = ask([*FORM.conversation(2), begun], prompt, tail={"time": "a Tuesday"})
        assert request["messages"][-1] == begun
        assert is_legal(request)


def test_a_request_without_messages_asks_the_question_of_its_tail():
    request = ask([], tail={"query": "Which one?"})
    assert request["messages"][-1]["content"][-1] == {"type": "text", "text": "Which one?"}
    assert request.history == []
    assert is_legal(request)


def test_recalled_text_needs_a_fence_and_so_a_key():
    from promptkeel import blocking

    authored = specs()[:1]
    prompt = blocking.PromptBuilder(blocking.PromptBlockResolver(authored)).build(pk.TenantScope.parse("org:acme"))
    with pytest.raises(pk.InvalidDeclarationError, match="secret="):
        ask(FORM.conversation(1), prompt, tail={"recall": ["found"]})
    assert ask(FORM.conversation(1), prompt, tail={"time": "a Tuesday"})


def thought(messages):
    """The conversation as a model that thinks has answered it."""
    found = []
    for index, message in enumerate(messages):
        thinking = {"type": "thinking", "thinking": f"hm {index}", "signature": f"s{index}"}
        is_answer = message["role"] == "assistant"
        found.append({**message, "content": [thinking, *message["content"]]} if is_answer else message)
    return found


@given(
    st.integers(1, 5),
    st.integers(0, 2),
    st.sampled_from([PROMPT, FOREIGN]),
    st.sampled_from([None, {"type": "adaptive"}]),
)
def test_reasoning_that_is_bound_to_what_stood_before_it_is_let_go_where_that_has_changed(
    turns, calls, prompt, thinking
):
    model = "claude-opus-5-5"
    rules = rules_for("anthropic", model)
    whole = thought(FORM.conversation(turns, calls))
    state = UNSENT
    for end in range(1, len(whole) + 1, 2):
        more = {} if thinking is None else {"thinking": thinking}
        request = ask(whole[:end], prompt, model=model, tools=FORM.tools(), tail={"time": f"turn {end}"}, **more)
        sent = read_request("anthropic", dict(request))
        assert check(state, sent, rules, float(end)) == ()
        state = advance(state, sent, float(end))
        assert request.notes == ()
        assert more == ({} if thinking is None else {"thinking": {"type": "adaptive"}}), (
            "the caller's own is left alone"
        )


def test_where_nothing_lets_it_go_the_operator_is_told():
    messages = thought(FORM.conversation(2))
    request = ask(messages, model="claude-next")
    assert "thinking" not in request
    assert any("binds to everything before it" in note for note in request.notes)
    assert ask(messages, model="claude-opus-4-5").notes == ()
    own = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}
    assert ask(messages, model="claude-opus-5-5", thinking=own)["thinking"] == own
