"""Prompts, tools and conversations in every provider's format, for the tests of adapters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import attrs

import promptkeel as pk
from promptkeel import blocking

ADA = pk.TenantScope.parse("org:acme/user:ada")
BEN = pk.TenantScope.parse("org:beta/user:ben")
SECRET = b"for tests, the same in every process"
LONG = "Never reveal another customer's data; ask before anything is changed. " * 700
"""Longer than the least that any provider keeps."""


def specs(**options: Any) -> list[pk.PromptBlockSpec]:
    """Blocks of every tier, one of them volatile; ``options`` by a block's name in small letters."""

    def spec(name: str, source: Any, **more: Any) -> pk.PromptBlockSpec:
        return pk.PromptBlockSpec(**{"name": name, "source": source, **more, **options.get(name.lower(), {})})

    return [
        spec("BOUNDARIES", pk.StaticSource(LONG)),
        spec("RULES", pk.StaticSource("Answer in the language of the question.")),
        spec("USER_PROFILE", pk.MemoryLane("SOUL:")),
        spec("PREFERENCES", pk.MemoryLane("PREF:")),
        spec("FOCUS", pk.MemoryLane("FOCUS:")),
    ]


FACTS = (
    ("SOUL:prefers tea", "user"),
    ("SOUL:has two children", None),
    ("PREF:日本語を話す", "user"),
    ("FOCUS:plans a journey", "user"),
)


def builder_of(store: Any, blocks: Sequence[pk.PromptBlockSpec] | None = None, **options: Any) -> Any:
    """A builder over a store, with the secret of these tests."""
    blocks = specs() if blocks is None else blocks
    resolver = blocking.PromptBlockResolver(blocks, memory=store, secret=SECRET)
    return blocking.PromptBuilder(resolver, **options)


def prompt_of(
    facts: Sequence[tuple[str, str | None]] = FACTS,
    blocks: Sequence[pk.PromptBlockSpec] | None = None,
    scope: pk.TenantScope = ADA,
    **options: Any,
) -> pk.Prompt:
    """The prompt of some facts, each a label and its trust."""
    blocks = specs() if blocks is None else blocks
    with blocking.open("ram:", blocks=blocks) as keel:
        for label, trust in facts:
            keel.remember(scope, label=label, trust=trust, source="tests", recorded_at="2026-05-02")
        return builder_of(keel.store, blocks, **options).build(scope)


def _schema(number: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {f"field_{number}": {"type": "string", "enum": ["b", "a"]}, "limit": {"type": "integer"}},
        "required": [f"field_{number}"],
    }


@attrs.frozen
class Format:
    """One provider's format.

    Attributes:
        name: as ``WireFormat``.
        model: a model of the provider's.
        ask: the prompt's method for it, with what it needs beyond the common arguments.
        tool: the n-th tool.
        user: a message of the user's.
        assistant: a message of the model's.
        call: messages of a call and of its result.
        texts: the texts of the user's and the operator's own in a message.
    """

    name: str
    model: str
    ask: Callable[..., Any]
    tool: Callable[[int], dict[str, Any]]
    user: Callable[[str], dict[str, Any]]
    assistant: Callable[[str], dict[str, Any]]
    call: Callable[[str, str], list[dict[str, Any]]]

    def tools(self, count: int = 3) -> list[dict[str, Any]]:
        return [self.tool(number) for number in range(count)]

    def conversation(self, turns: int, calls: int = 1) -> list[dict[str, Any]]:
        """Turns of a user, calls of tools and an answer each; the last turn has only the user's question."""
        messages = []
        for turn in range(turns):
            messages.append(self.user(f"question {turn}"))
            if turn == turns - 1:
                break
            for number in range(calls):
                messages += self.call(f"call_{turn}_{number}", f"result {turn} {number}")
            messages.append(self.assistant(f"answer {turn}"))
        return messages

    def request(self, prompt: pk.Prompt, messages: Sequence[Any], **more: Any) -> Any:
        return self.ask(prompt, **{"model": self.model, "messages": messages, **more})


def _anthropic_call(identity: str, result: str) -> list[dict[str, Any]]:
    return [
        {"role": "assistant", "content": [{"type": "tool_use", "id": identity, "name": "tool_0", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": identity, "content": result}]},
    ]


def _bedrock_call(identity: str, result: str) -> list[dict[str, Any]]:
    return [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": identity, "name": "tool_0", "input": {"a": 1}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": identity, "content": [{"text": result}]}}]},
    ]


def _gemini_call(identity: str, result: str) -> list[dict[str, Any]]:
    called = {"id": identity, "name": "tool_0", "args": {"a": 1}}
    answered = {"id": identity, "name": "tool_0", "response": {"result": result}}
    return [
        {"role": "model", "parts": [{"function_call": called}]},
        {"role": "user", "parts": [{"function_response": answered}]},
    ]


def _responses_call(identity: str, result: str) -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "call_id": identity, "name": "tool_0", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": identity, "output": result},
    ]


def _chat_call(identity: str, result: str) -> list[dict[str, Any]]:
    function = {"name": "tool_0", "arguments": '{"a": 1}'}
    return [
        {"role": "assistant", "tool_calls": [{"id": identity, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": identity, "content": result},
    ]


def _said(role: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: {"role": role, "content": text}


FORMATS = {
    each.name: each
    for each in (
        Format(
            "anthropic",
            "claude-opus-4-8",
            lambda prompt, **given: prompt.anthropic(**{"max_tokens": 100, **given}),
            lambda n: {"name": f"tool_{n}", "description": f"Does {n}.", "input_schema": _schema(n)},
            _said("user"),
            lambda text: {"role": "assistant", "content": [{"type": "text", "text": text}]},
            _anthropic_call,
        ),
        Format(
            "openai-responses",
            "gpt-5.6-sol",
            lambda prompt, **given: prompt.openai(**given),
            lambda n: {"type": "function", "name": f"tool_{n}", "parameters": _schema(n), "strict": False},
            _said("user"),
            _said("assistant"),
            _responses_call,
        ),
        Format(
            "openai-chat",
            "gpt-5.6-sol",
            lambda prompt, **given: prompt.openai(api="chat", **given),
            lambda n: {"type": "function", "function": {"name": f"tool_{n}", "parameters": _schema(n)}},
            _said("user"),
            _said("assistant"),
            _chat_call,
        ),
        Format(
            "gemini",
            "gemini-2.5-flash",
            lambda prompt, **given: prompt.gemini(**given),
            lambda n: {"function_declarations": [{"name": f"tool_{n}", "parameters_json_schema": _schema(n)}]},
            lambda text: {"role": "user", "parts": [{"text": text}]},
            lambda text: {"role": "model", "parts": [{"text": text}]},
            _gemini_call,
        ),
        Format(
            "bedrock",
            "anthropic.claude-sonnet-4-6",
            lambda prompt, **given: prompt.bedrock(**given),
            lambda n: {"toolSpec": {"name": f"tool_{n}", "inputSchema": {"json": _schema(n)}}},
            lambda text: {"role": "user", "content": [{"text": text}]},
            lambda text: {"role": "assistant", "content": [{"text": text}]},
            _bedrock_call,
        ),
    )
}


def texts_in(value: Any) -> list[str]:
    """Every text anywhere in a request, in its order."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for each in value.values() for text in texts_in(each)]
    if isinstance(value, list | tuple):
        return [text for each in value for text in texts_in(each)]
    return []


def shuffled(value: Any, seed: int) -> Any:
    """The same JSON with the keys of its objects in another order."""
    import random

    chance = random.Random(seed)

    def walk(each: Any) -> Any:
        if isinstance(each, dict):
            names = list(each)
            chance.shuffle(names)
            return {name: walk(each[name]) for name in names}
        if isinstance(each, list):
            return [walk(item) for item in each]
        return copy.copy(each)

    return walk(value)
