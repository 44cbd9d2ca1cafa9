"""Answers of the SDKs go back into the messages as they came: objects are what the SDKs would send of them."""

from __future__ import annotations

import json

import attrs
import pytest
from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock
from google.genai import types as genai
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseReasoningItem

from conversing import ADA, prompt_of, specs
from promptkeel import blocking
from promptkeel.errors import InvalidInputError

ANTHROPIC = [
    {"role": "user", "content": "Find tea."},
    {
        "role": "assistant",
        "content": [
            ThinkingBlock(type="thinking", thinking="hm", signature="s"),
            TextBlock(type="text", text="I look."),
            ToolUseBlock(type="tool_use", id="t1", name="search", input={"q": "tea"}),
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "found"}]},
]
RESPONSES = [
    {"role": "user", "content": "Find tea."},
    ResponseReasoningItem(id="r1", type="reasoning", summary=[]),
    ResponseOutputMessage.model_validate(
        {"id": "m1", "type": "message", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "I look.", "annotations": []}]}
    ),
    ResponseFunctionToolCall(type="function_call", call_id="c1", name="search", arguments="{}"),
    {"type": "function_call_output", "call_id": "c1", "output": "found"},
]  # fmt: skip
CHAT = [
    {"role": "user", "content": "Find tea."},
    ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": None,
         "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}]}
    ),
    {"role": "tool", "tool_call_id": "c1", "content": "found"},
]  # fmt: skip
GEMINI = [
    {"role": "user", "parts": [genai.Part(text="Find tea.")]},
    genai.Content(role="model", parts=[genai.Part(text="I look.")]),
    {"role": "user", "parts": [{"text": "Well?"}]},
]
CASES = {
    "anthropic": (ANTHROPIC, lambda prompt, messages: prompt.anthropic(model="claude-opus-4-8", messages=messages)),
    "openai-responses": (RESPONSES, lambda prompt, messages: prompt.openai(model="gpt-5.6", messages=messages)),
    "openai-chat": (CHAT, lambda prompt, messages: prompt.openai(model="gpt-4o", api="chat", messages=messages)),
    "gemini": (GEMINI, lambda prompt, messages: prompt.gemini(model="gemini-2.5-flash", messages=messages)),
}
MODELS = {
    "anthropic": "claude-opus-4-8", "openai-responses": "gpt-5.6", "openai-chat": "gpt-4o",
    "gemini": "gemini-2.5-flash",
}  # fmt: skip


def written(message):
    """A message as its SDK sends it."""
    dump = getattr(message, "model_dump", None)
    if dump is not None:
        return dump(mode="json", exclude_unset=True, by_alias=True)
    if isinstance(message, dict):
        return {name: written(value) for name, value in message.items()}
    return [written(each) for each in message] if isinstance(message, list) else message


@pytest.mark.parametrize("name", CASES)
def test_a_request_holds_what_the_sdk_would_send_of_its_own_objects(name):
    messages, ask = CASES[name]
    prompt = prompt_of()
    plain = [written(message) for message in messages]
    assert dict(ask(prompt, messages)) == dict(ask(prompt, plain))
    assert list(ask(prompt, messages).history) == plain
    json.dumps(dict(ask(prompt, messages)))


@pytest.mark.parametrize("name", CASES)
def test_a_conversation_takes_them_too(name):
    messages, _ = CASES[name]
    with blocking.open("ram:", blocks=specs()) as keel:
        conversation = keel.conversation(ADA, "c1")
        asked = {"format": name, "model": MODELS[name]}
        turn = conversation.turn(messages, **asked)
        again = conversation.turn([written(message) for message in messages], **asked)
    assert turn.arguments == again.arguments


def test_messages_that_hold_no_objects_are_handed_on_as_they_are():
    message = {"role": "user", "content": [{"type": "text", "text": "Find tea."}]}
    request = prompt_of().anthropic(model="claude-opus-4-8", messages=[message, {"role": "assistant", "content": "ok"}])
    assert request.history[0] is message


def test_what_no_sdk_would_send_is_refused_by_its_place():
    @attrs.frozen
    class Odd:
        role: str = "user"

    with pytest.raises(InvalidInputError, match="message 0"):
        prompt_of().anthropic(model="claude-opus-4-8", messages=[Odd()])
