"""OpenAI's Responses and Chat, and servers that speak Chat: marks, chains, roles and salts."""

from __future__ import annotations

import json

import pytest

import promptkeel as pk
from conversing import FORMATS, prompt_of, specs
from promptkeel import blocking
from promptkeel.errors import InvalidDeclarationError, InvalidInputError
from sdk_types import CHECKS

RESPONSES, CHAT = FORMATS["openai-responses"], FORMATS["openai-chat"]
BOTH = pytest.mark.parametrize("form", [RESPONSES, CHAT], ids=["responses", "chat"])
PROMPT = prompt_of()
STABLE = prompt_of(blocks=[spec for spec in specs() if spec.name != "FOCUS"])
MARK = "prompt_cache_breakpoint"


def sent(request):
    return request["input"] if "input" in request else request["messages"]


def parts(request):
    """Every part of a message in a request, in its order."""
    contents = [message.get("content") for message in sent(request)]
    return [part for content in contents if isinstance(content, list) for part in content]


def marked(request):
    return [part[MARK] for part in parts(request) if MARK in part]


@BOTH
def test_the_prompt_is_the_operators_first_message_a_part_for_each_section(form):
    request = form.request(PROMPT, form.conversation(1))
    first = sent(request)[0]
    assert first["role"] == "developer"
    assert "\n\n".join(part["text"] for part in first["content"]) == PROMPT.prefix
    assert sent(request)[1]["role"] == "user"


@BOTH
def test_with_a_tail_the_marks_are_the_only_ones_and_one_stands_where_the_request_before_had_it(form):
    request = form.request(PROMPT, form.conversation(3))
    assert request["prompt_cache_options"] == {"mode": "explicit"}
    assert len(marked(request)) == 4
    texts = [part["text"] for part in parts(request) if MARK in part]
    assert texts[-2:] == ["question 1", "question 2"]
    CHECKS[form.name](request)


@BOTH
def test_without_a_tail_the_providers_own_mark_is_left_to_it(form):
    request = form.request(STABLE, form.conversation(3))
    assert "prompt_cache_options" not in request
    assert 1 <= len(marked(request)) <= 3
    assert all(MARK not in json.dumps(message) for message in sent(request)[1:])


@BOTH
def test_a_callers_choice_of_mode_is_kept_to(form):
    options = {"mode": "implicit", "ttl": "12h"}
    request = form.request(PROMPT, form.conversation(3), prompt_cache_options=options)
    assert request["prompt_cache_options"] == options
    assert len(marked(request)) <= 3
    request = form.request(STABLE, form.conversation(3), prompt_cache_options={"mode": "explicit"})
    assert request["prompt_cache_options"] == {"mode": "explicit"}
    assert marked(request)


@BOTH
def test_models_that_keep_prefixes_by_themselves_get_no_marks(form):
    request = form.request(PROMPT, form.conversation(3), model="gpt-4.1")
    assert marked(request) == []
    assert "prompt_cache_options" not in request
    CHECKS[form.name](request)


@BOTH
def test_system_and_developer_messages_of_the_caller_keep_their_place(form):
    messages = [
        {"role": "system", "content": "First."},
        form.user("hello"),
        {"role": "developer", "content": "Then."},
        form.user("more"),
    ]
    request = form.request(STABLE, messages)
    assert sent(request)[1:] == messages


@BOTH
def test_the_key_follows_from_the_scope_and_nothing_that_a_caller_passes_takes_its_place(form):
    assert form.request(PROMPT, form.conversation(1))["prompt_cache_key"] == PROMPT.keys.tenant
    for choice in ("deployment", "tenant", "scope"):
        request = form.request(PROMPT, form.conversation(1), salt=choice)
        assert request["prompt_cache_key"] == getattr(PROMPT.keys, choice)
    for name in ("prompt_cache_key", "cache_salt", "instructions"):
        with pytest.raises(InvalidInputError, match="made from the prompt"):
            form.request(PROMPT, form.conversation(1), **{name: "mine"})
    with pytest.raises(InvalidInputError, match="deployment, tenant, scope"):
        form.request(PROMPT, form.conversation(1), salt="everybody")


def test_a_server_that_takes_salts_gets_one_and_plain_messages():
    request = CHAT.request(PROMPT, CHAT.conversation(2), server="vllm", extra_body={"top_k": 5})
    assert request["extra_body"] == {"top_k": 5, "cache_salt": PROMPT.keys.tenant}
    assert request["messages"][0] == {"role": "system", "content": PROMPT.prefix}
    assert "prompt_cache_key" not in request
    assert marked(request) == []
    CHECKS["openai-chat"](request)
    with pytest.raises(InvalidInputError, match="salt="):
        CHAT.request(PROMPT, CHAT.conversation(2), server="vllm", extra_body={"cache_salt": "mine"})
    with pytest.raises(InvalidInputError, match="server"):
        CHAT.request(PROMPT, CHAT.conversation(2), server="mine")
    with pytest.raises(InvalidInputError, match="api"):
        PROMPT.openai(model="gpt-5.6-sol", api="completions")


def test_without_a_secret_there_is_no_salt_and_that_is_an_error_where_it_must_be_and_a_note_where_not():
    resolver = blocking.PromptBlockResolver(specs()[:2])
    prompt = blocking.PromptBuilder(resolver).build(pk.TenantScope.parse("org:acme"))
    assert prompt.keys is None
    request = CHAT.request(prompt, CHAT.conversation(1))
    assert "prompt_cache_key" not in request
    assert any("no prompt_cache_key" in note for note in request.notes)
    with pytest.raises(InvalidDeclarationError, match="secret="):
        CHAT.request(prompt, CHAT.conversation(1), server="vllm")


def test_a_chain_gets_the_prompt_anew_each_time_where_nothing_of_it_is_kept():
    request = RESPONSES.request(
        PROMPT, [RESPONSES.user("more")], previous_response_id="resp_1", tools=RESPONSES.tools()
    )
    assert request["instructions"] == PROMPT.prefix
    assert request["previous_response_id"] == "resp_1"
    assert [item["role"] for item in request["input"]] == ["user", "user"]
    assert request.notes == ("the chain keeps FOCUS of this request's tail",)
    CHECKS["openai-responses"](request)
    assert RESPONSES.request(STABLE, [RESPONSES.user("more")], conversation="conv_1").notes == ()


def test_a_chain_is_refused_what_it_would_keep():
    prompt = prompt_of(blocks=specs(user_profile={"channel": "user"}))
    with pytest.raises(InvalidInputError, match="USER_PROFILE"):
        RESPONSES.request(prompt, [RESPONSES.user("more")], previous_response_id="resp_1")
    assert RESPONSES.request(prompt, [RESPONSES.user("more")])


@BOTH
def test_declared_channels_are_kept_to(form):
    prompt = prompt_of(blocks=specs(user_profile={"channel": "tool_result"}, preferences={"channel": "user"}))
    request = form.request(prompt, form.conversation(2), tools=form.tools())
    kinds = [message.get("role") or message["type"] for message in sent(request)]
    assert kinds[:5] == (
        ["developer", "user", "function_call", "function_call_output", "assistant"]
        if form is RESPONSES
        else ["developer", "user", "assistant", "tool", "assistant"]
    )
    assert "prefers tea" in json.dumps(sent(request)[3])
    assert "日本語" in sent(request)[1]["content"][0]["text"]
    CHECKS[form.name](request)


@BOTH
@pytest.mark.parametrize("mark", ["30m", {"ttl": "1h"}, []], ids=repr)
def test_a_mark_that_the_api_would_refuse_is_refused_by_the_index_of_its_message(form, mark):
    part = {**parts(form.request(PROMPT, []))[0], MARK: mark}
    with pytest.raises(InvalidInputError, match="ttl of 30m or 12h") as caught:
        form.request(PROMPT, [form.user("hello"), {"role": "user", "content": [part]}])
    assert caught.value.where == "message 1"


def test_items_of_the_models_own_are_handed_on():
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    items = [
        RESPONSES.user("hello"),
        reasoning,
        *RESPONSES.call("call_1", "result"),
        {"type": "item_reference", "id": "x"},
    ]
    request = RESPONSES.request(STABLE, items, tools=RESPONSES.tools())
    assert request["input"][1:] == items
    with pytest.raises(InvalidInputError, match="message 1"):
        RESPONSES.request(STABLE, [RESPONSES.user("hello"), {"role": "user", "content": [7]}])
