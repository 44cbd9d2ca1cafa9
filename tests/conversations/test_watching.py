"""A turn says which rules of its provider the request would break: the automaton that tests hold it to, in use."""

from __future__ import annotations

import contextlib

import pytest

import promptkeel as pk
from conversing import ADA, specs
from promptkeel import blocking

ASKED = {"format": "anthropic", "model": "claude-opus-4-8", "max_tokens": 100}
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "search", "input": {}}]}
USER = {"role": "user", "content": "Find tea."}


@pytest.fixture
def conversation():
    with blocking.open("ram:", blocks=specs()) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE", trust="user")
        yield keel.conversation(ADA, "c1")


def test_a_legal_conversation_has_no_such_notes(conversation):
    first = conversation.turn([USER], **ASKED)
    second = conversation.turn([*first.history, {"role": "assistant", "content": "Found."}, USER], **ASKED)
    assert first.notes == second.notes == ()


def test_what_the_callers_messages_would_have_refused_is_known_before_it_is_sent(conversation):
    found = conversation.turn([USER, CALL, USER], **ASKED)
    assert any(note.startswith("may be refused by anthropic, tool-call-unanswered: ") for note in found.notes)


@pytest.mark.parametrize(("model", "is_refused"), [("claude-unknown", True), ("claude-opus-5-5", False)])
def test_what_breaks_a_rule_only_after_what_was_sent_before_is_known_too(conversation, model, is_refused):
    asked = {**ASKED, "model": model}
    thinking = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "tool_use", "id": "t1", "name": "search", "input": {}},
        ],
    }
    answer = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "found"}]}
    first = conversation.turn([USER], **asked)
    second = conversation.turn([*first.history, thinking, answer], **asked)
    edited = conversation.turn([{"role": "user", "content": "Find jam."}, thinking, answer], **asked)
    # A model that can be told to drop what does not fit is told so, and refuses nothing.
    assert not any("bound-reasoning" in note for note in second.notes)
    assert any("may be refused by anthropic, bound-reasoning" in note for note in edited.notes) == is_refused


def test_an_operators_change_that_another_model_does_not_take_there_becomes_part_of_a_new_base(tmp_path):
    rules = tmp_path / "rules.md"
    rules.write_text("Be brief.", encoding="utf-8")
    blocks = [*specs()[:1], pk.PromptBlockSpec(name="RULES", source=pk.FileSource(str(rules)))]
    thinking = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
                                                 {"type": "text", "text": "Found."}]}  # fmt: skip
    with blocking.open("ram:", blocks=blocks) as keel:
        conversation = keel.conversation(ADA, "c1")
        first = conversation.turn([USER], **ASKED)
        rules.write_text("Be kind.", encoding="utf-8")
        second = conversation.turn([*first.history, thinking, USER], **ASKED)
        assert second.history[-1]["role"] == "system"
        history = [*second.history, thinking, USER]
        third = conversation.turn(history, **{**ASKED, "model": "claude-unknown"})
    assert (third.rewritten, third.withdrawn) == ("model", 1)
    assert "Be kind." in str(third.arguments["system"])
    assert not [message for message in third.arguments["messages"] if message["role"] == "system"]


def _nested(levels):
    part = {"type": "text", "text": "x"}
    for _ in range(levels):
        part = {"type": "tool_result", "tool_use_id": "t1", "content": [part]}
    return part


def _cycle():
    part = {"type": "other"}
    part["inner"] = part
    return part


@pytest.mark.parametrize("wire_format", ["anthropic", "openai-responses", "openai-chat", "gemini", "bedrock"])
@pytest.mark.parametrize(
    "part",
    [{"type": []}, {"type": {}}, _nested(3000), _cycle(), {"type": "other", 1: 2, "a": 3}, {"type": "x", "y": set()}],
)
def test_what_nobody_could_send_is_taken_or_refused_by_name(wire_format, part):
    models = {"anthropic": "claude-opus-4-8", "gemini": "gemini-2.5-flash", "bedrock": "anthropic.claude-opus-4-5"}
    message = {"role": "user", "content": [part], "parts": [part]}
    with blocking.open("ram:", blocks=specs()) as keel, contextlib.suppress(pk.InvalidInputError):
        keel.conversation(ADA, "c1").turn([message], format=wire_format, model=models.get(wire_format, "gpt-5.1"))
