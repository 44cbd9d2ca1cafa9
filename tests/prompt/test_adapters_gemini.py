"""Gemini: handles whose life follows what they stand for."""

from __future__ import annotations

import json

import pytest

from conversing import FACTS, FORMATS, LONG, prompt_of, specs
from promptkeel.errors import InvalidInputError
from promptkeel.prompt.requests import Handle
from promptkeel.providers.automaton import UNSENT, check
from promptkeel.providers.rules import rules_for
from promptkeel.providers.wire import read_request
from sdk_types import CHECKS, check_cached_content

FORM = FORMATS["gemini"]
PROMPT = prompt_of()
TOOLS = FORM.tools()


def ask(prompt=PROMPT, turns=2, **more):
    return FORM.request(prompt, FORM.conversation(turns), **{"tools": TOOLS, **more})


def test_a_prefix_says_what_a_handle_is_made_of_and_the_handle_takes_its_place():
    first = ask()
    check_cached_content(first.prefix.create)
    json.dumps(first.prefix.create)
    config = first.prefix.create["config"]
    assert config["system_instruction"] == first["config"]["system_instruction"]
    assert config["tools"] == first["config"]["tools"]
    assert config["ttl"] == "3600s"
    assert "prefers tea" in json.dumps(config["contents"])
    second = ask(turns=3, handle=Handle(first.prefix.key, "cachedContents/abc"))
    assert second["config"] == {"cached_content": "cachedContents/abc"}
    assert second.superseded is None
    assert "prefers tea" not in json.dumps(second["contents"])
    assert second["contents"][0] == FORM.user("question 0")
    CHECKS["gemini"](second)
    rules = rules_for("gemini", FORM.model)
    assert check(UNSENT, read_request("gemini", dict(second)), rules, 0.0) == ()


def test_a_change_to_the_request_is_none_to_what_its_handle_is_made_of():
    request = ask()
    before = json.dumps(request.prefix.create)
    request["config"]["tools"].append("spoilt")
    request["contents"][0]["parts"].append("spoilt")
    request["config"]["system_instruction"]["parts"].clear()
    assert json.dumps(request.prefix.create) == before


def test_a_handle_of_something_else_is_not_used_and_is_named_to_be_deleted():
    old = Handle(ask().prefix.key, "cachedContents/abc")
    later = prompt_of([*FACTS, ("SOUL:has a dog", "user")])
    request = ask(later, handle=old)
    assert request.superseded == "cachedContents/abc"
    assert "cached_content" not in request["config"]
    assert request["config"]["system_instruction"]
    assert "has a dog" in json.dumps(request["contents"])
    assert request.prefix.key != old.key


def test_a_volatile_change_or_a_longer_conversation_leaves_the_handle_as_it_is():
    other = prompt_of([*FACTS[:3], ("FOCUS:packs a bag", "user")])
    assert ask(other, turns=5).prefix == ask().prefix


@pytest.mark.parametrize(
    "more",
    [
        {"model": "gemini-2.5-pro"},
        {"backend": "vertex/projects/p/locations/l"},
        {"tools": FORM.tools(2)},
        {"tools": None},
        {"config": {"tool_config": {"function_calling_config": {"mode": "NONE"}}}},
    ],
    ids=str,
)
def test_everything_that_a_handle_stands_for_is_in_its_key(more):
    assert ask(**more).prefix.key != ask().prefix.key
    assert ask(**more).prefix.key == ask(**more).prefix.key


def test_other_configuration_is_handed_on_and_is_no_part_of_the_key():
    config = {"temperature": 0.5, "max_output_tokens": 100}
    request = ask(config=config)
    assert request.prefix.key == ask().prefix.key
    assert {name: request["config"][name] for name in config} == config
    choice = {"tool_config": {"function_calling_config": {"mode": "ANY"}}}
    kept = ask(config={**config, **choice})
    used = ask(config={**config, **choice}, handle=Handle(kept.prefix.key, "cachedContents/abc"))
    assert used["config"] == {**config, "cached_content": "cachedContents/abc"}, "the handle stands for the choice too"
    assert kept.prefix.create["config"]["tool_config"] == choice["tool_config"]
    assert kept["config"]["tool_config"] == choice["tool_config"]


def test_a_prefix_without_contents_says_none_and_no_empty_list():
    request = ask(prompt_of([]))
    assert request.prefix.create["config"]["contents"] is None
    check_cached_content(request.prefix.create)


def test_a_prefix_shorter_than_the_least_gets_no_handle_and_that_is_said():
    short = prompt_of(blocks=specs()[1:])
    request = ask(short)
    assert request.prefix is None
    (note,) = request.notes
    assert "no handle" in note
    assert "2048" in note
    assert ask(short, overrides=[{"gemini": {"models": {"gemini-2.5-flash": {"minimum": 10}}}}]).prefix is not None
    assert ask(short, handle=Handle("key", "cachedContents/abc")).superseded == "cachedContents/abc"


def test_a_handle_is_kept_for_as_long_as_is_asked():
    assert ask(ttl=60).prefix.create["config"]["ttl"] == "60s"
    assert ask(ttl=60).prefix.key == ask().prefix.key


@pytest.mark.parametrize(
    "name", ["system_instruction", "systemInstruction", "tools", "cached_content", "cachedContent"]
)
def test_no_configuration_takes_the_place_of_the_prompt(name):
    with pytest.raises(InvalidInputError, match="made from the prompt"):
        ask(config={name: "mine"})


@pytest.mark.parametrize("wrong", [{"config": "text"}, {"contents": []}, {"handle": "cachedContents/abc"}, {"ttl": 0}])
def test_what_means_nothing_is_refused(wrong):
    with pytest.raises(InvalidInputError):
        ask(**wrong)


@pytest.mark.parametrize("parts", [None, "text", 7, {}])
def test_a_content_without_parts_is_refused_by_its_index(parts):
    with pytest.raises(InvalidInputError) as caught:
        FORM.request(PROMPT, [FORM.user("hello"), {"role": "user", "parts": parts}])
    assert caught.value.where == "message 1"


def test_calls_that_the_host_makes_stand_in_front_of_the_turn_whose_calls_are_signed():
    blocks = specs(focus={"channel": "tool_result"})
    messages = [*FORM.conversation(2), *FORM.call("call_9", "result")]
    request = FORM.request(prompt_of(blocks=blocks), messages, tools=TOOLS)
    sent = request["contents"]
    opening = next(index for index, each in enumerate(sent) if "question 1" in json.dumps(each))
    assert "journey" in json.dumps(sent[:opening])
    assert sent[opening:] == messages[-3:]
    CHECKS["gemini"](request)


def test_memory_is_never_what_the_operator_says():
    assert LONG.split(";")[0] in json.dumps(ask()["config"]["system_instruction"])
    assert "prefers tea" not in json.dumps(ask()["config"]["system_instruction"])
