"""What building a request costs, against writing the result as JSON, which every SDK does next.

    python benchmarks/requesting.py [--pairs N] [--json FILE]

A prompt of 8 warm blocks, 40 tools and a conversation of 200 messages and a question, for each provider: each request
built anew, with a tail and planned marks. Interleaved pairs in one process, the median of their ratios. Nothing is
asserted.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

import promptkeel as pk
from measured import Row
from memories import ADA, memory_specs, static_specs
from pairs import compare, repeated
from promptkeel import blocking
from table import print_table

_GOAL: Final = 3.0
_TOOLS: Final = 40
_MESSAGES: Final = 201
"""The last of them the user's."""
_FACTS: Final = 25
_WORDS: Final = ("customer", "reservation", "changed", "flight", "cancelled", "because", "of", "the", "weather", "card",
                 "insurance", "payment", "membership", "agent", "looks", "up", "before", "answering")  # fmt: skip

Ask = Callable[[pk.Prompt, list[Any], list[Any]], Any]


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=31, help="interleaved pairs for each row")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every row to this file")
    arguments = parser.parse_args()
    specs = [*static_specs(), *memory_specs()]
    with blocking.open("ram:", blocks=specs) as keel:
        for spec in specs:
            if spec.is_learned:
                for number in range(_FACTS):
                    keel.remember(ADA, f"{_text(9, number)} ({number})", block=spec.name, source="chat")
        prompt = keel.prompt(ADA)
    rows = [_row(name, prompt, *_FORMATS[name], arguments.pairs) for name in _FORMATS]
    print_table(rows)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([attrs.asdict(row) for row in rows], indent=2))


def _row(name: str, prompt: pk.Prompt, ask: Ask, tool: Any, turn: Any, pairs: int) -> Row:
    tools = [tool(f"tool_{number:02}", _text(25, number), _schema(number)) for number in range(_TOOLS)]
    messages: list[Any] = []
    while len(messages) < _MESSAGES:
        messages += turn(len(messages))
    messages = messages[:_MESSAGES]
    made = dict(ask(prompt, tools, messages))
    found = compare(repeated(lambda: ask(prompt, tools, messages)), repeated(lambda: json.dumps(made)), pairs)
    return Row(
        work=f"{name}: 8 warm blocks, {_TOOLS} tools, {len(messages)} messages, {len(json.dumps(made)):,} bytes",
        against="json.dumps",
        measured=found.ratio,
        goal=_GOAL,
        peer_note="",
        took=found.subject,
        base=found.base,
        pairs=found.pairs,
    )


def _text(words: int, seed: int) -> str:
    chance = random.Random(seed)
    return " ".join(chance.choice(_WORDS) for _ in range(words))


def _schema(number: int) -> dict[str, Any]:
    properties = {f"field_{each}": {"type": "string", "description": _text(8, number + each)} for each in range(4)}
    return {"type": "object", "properties": properties, "required": ["field_0"]}


def _anthropic_turn(number: int) -> list[Any]:
    call = {"type": "tool_use", "id": f"call_{number}", "name": "tool_01", "input": {"field_0": _text(4, number)}}
    result = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": _text(60, number)}
    return [
        {"role": "user", "content": _text(30, number)},
        {"role": "assistant", "content": [{"type": "text", "text": _text(20, number)}, call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": _text(40, number)}]},
    ]


def _bedrock_turn(number: int) -> list[Any]:
    call = {"toolUse": {"toolUseId": f"call_{number}", "name": "tool_01", "input": {"field_0": _text(4, number)}}}
    result = {"toolResult": {"toolUseId": f"call_{number}", "content": [{"text": _text(60, number)}]}}
    return [
        {"role": "user", "content": [{"text": _text(30, number)}]},
        {"role": "assistant", "content": [{"text": _text(20, number)}, call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"text": _text(40, number)}]},
    ]


def _responses_turn(number: int) -> list[Any]:
    arguments = json.dumps({"field_0": _text(4, number)})
    return [
        {"role": "user", "content": _text(30, number)},
        {"type": "function_call", "call_id": f"call_{number}", "name": "tool_01", "arguments": arguments},
        {"type": "function_call_output", "call_id": f"call_{number}", "output": _text(60, number)},
        {"role": "assistant", "content": _text(40, number)},
    ]


def _chat_turn(number: int) -> list[Any]:
    function = {"name": "tool_01", "arguments": json.dumps({"field_0": _text(4, number)})}
    return [
        {"role": "user", "content": _text(30, number)},
        {"role": "assistant", "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": _text(60, number)},
        {"role": "assistant", "content": _text(40, number)},
    ]


def _gemini_turn(number: int) -> list[Any]:
    called = {"name": "tool_01", "args": {"field_0": _text(4, number)}}
    return [
        {"role": "user", "parts": [{"text": _text(30, number)}]},
        {"role": "model", "parts": [{"text": _text(20, number)}, {"function_call": called}]},
        {"role": "user", "parts": [{"function_response": {"name": "tool_01", "response": {"is": _text(60, number)}}}]},
        {"role": "model", "parts": [{"text": _text(40, number)}]},
    ]


_TAIL: Final = {"time": "2026-12-01T10:00:00Z"}
_FORMATS: Final[dict[str, tuple[Ask, Any, Any]]] = {
    "Anthropic": (
        lambda prompt, tools, messages: prompt.anthropic(
            model="claude-opus-4-6", tools=tools, messages=messages, tail=_TAIL, max_tokens=1024
        ),
        lambda name, text, schema: {"name": name, "description": text, "input_schema": schema},
        _anthropic_turn,
    ),
    "OpenAI Responses": (
        lambda prompt, tools, messages: prompt.openai(model="gpt-5.6-sol", tools=tools, messages=messages, tail=_TAIL),
        lambda name, text, schema: {"type": "function", "name": name, "description": text, "parameters": schema},
        _responses_turn,
    ),
    "OpenAI Chat": (
        lambda prompt, tools, messages: prompt.openai(
            model="gpt-5.6-sol", tools=tools, messages=messages, tail=_TAIL, api="chat"
        ),
        lambda name, text, schema: {
            "type": "function",
            "function": {"name": name, "description": text, "parameters": schema},
        },
        _chat_turn,
    ),
    "Gemini": (
        lambda prompt, tools, messages: prompt.gemini(
            model="gemini-2.5-flash", tools=tools, messages=messages, tail=_TAIL
        ),
        lambda name, text, schema: {
            "function_declarations": [{"name": name, "description": text, "parameters_json_schema": schema}]
        },
        _gemini_turn,
    ),
    "Bedrock": (
        lambda prompt, tools, messages: prompt.bedrock(
            model="anthropic.claude-sonnet-4-6", tools=tools, messages=messages, tail=_TAIL
        ),
        lambda name, text, schema: {"toolSpec": {"name": name, "description": text, "inputSchema": {"json": schema}}},
        _bedrock_turn,
    ),
}


if __name__ == "__main__":
    _main()
