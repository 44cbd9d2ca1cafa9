"""Legal conversations in each format, as positions, and the means to break them one rule at a time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import attrs
from hypothesis import strategies as st

from promptkeel.providers.segments import Kind, Mark, Section, Segment, WireRequest

FORMATS = ("anthropic", "bedrock", "openai-responses", "openai-chat", "gemini")
PROVIDER_OF = {
    "anthropic": "anthropic",
    "bedrock": "bedrock",
    "openai-responses": "openai",
    "openai-chat": "openai",
    "gemini": "gemini",
}
_CALLS = {
    "anthropic": lambda name: {"id": name, "input": {}, "name": "look", "type": "tool_use"},
    "bedrock": lambda name: {"toolUse": {"input": {}, "name": "look", "toolUseId": name}},
    "openai-responses": lambda name: {"arguments": "{}", "call_id": name, "id": f"fc_{name}", "type": "function_call"},
    "openai-chat": lambda name: {"function": {"arguments": "{}", "name": "look"}, "id": name, "type": "function"},
    "gemini": lambda name: {"functionCall": {"args": {}, "id": f"g{name}", "name": name}},
}
_RESULTS = {
    "anthropic": lambda name: {"content": "found", "tool_use_id": name, "type": "tool_result"},
    "bedrock": lambda name: {"toolResult": {"content": [{"text": "found"}], "toolUseId": name}},
    "openai-responses": lambda name: {"call_id": name, "output": "found", "type": "function_call_output"},
    "openai-chat": lambda name: {"content": "found", "tool_call_id": name},
    "gemini": lambda name: {"functionResponse": {"name": name, "response": {}}},
}


def dumped(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def text(words: str) -> str:
    return dumped({"text": words, "type": "text"})


def tool(name: str = "look", mark: Mark | None = None) -> Segment:
    return Segment("tools", "tool", "", dumped({"name": name}), mark=mark)


def system(words: str = "Be brief.", mark: Mark | None = None) -> Segment:
    return Segment("system", "text", "system", text(words), mark=mark)


def said(
    role: str, words: str = "Hello.", message: int = 0, *, kind: Kind = "text", mark: Mark | None = None
) -> Segment:
    return Segment("messages", kind, role, text(words), message, mark)


def call(format_: str, name: str, message: int) -> Segment:
    role = "model" if format_ == "gemini" else "assistant"
    return Segment("messages", "tool_use", role, dumped(_CALLS[format_](name)), message)


def result(format_: str, name: str, message: int, role: str | None = None) -> Segment:
    role = role or ("tool" if format_.startswith("openai") else "user")
    return Segment("messages", "tool_result", role, dumped(_RESULTS[format_](name)), message)


def request(
    *segments: Segment,
    format_: str = "anthropic",
    settings: Sequence[tuple[str, str]] = (),
    automatic: Mark | None = None,
    handle: str | None = None,
) -> WireRequest:
    return WireRequest(format_, "m", tuple(segments), tuple(settings), automatic, handle)


def marked(found: WireRequest, index: int, ttl: int | None = None) -> WireRequest:
    """The request with a mark at a segment."""
    segments = list(found.segments)
    segments[index] = attrs.evolve(segments[index], mark=Mark(ttl))
    return attrs.evolve(found, segments=tuple(segments))


def places(found: WireRequest, kinds: Sequence[str] = ("text", "tool", "tool_result"), section: Section | None = None):
    """The indexes of the segments that may bear a mark."""
    return [
        index for index, each in enumerate(found.segments) if each.kind in kinds and section in (None, each.section)
    ]


@st.composite
def conversations(draw, format_: str, *, system_turns: bool = False) -> WireRequest:
    """A legal request in the middle of a conversation with tools, reasoning and, where asked for, system turns."""
    numbers = itertools.count()
    answering = "model" if format_ == "gemini" else "assistant"
    segments = [tool(f"t{each}") for each in range(draw(st.integers(0, 2)))]
    segments += [system(f"Rule {each}.") for each in range(draw(st.integers(0, 2)))]
    message, waiting = 0, []
    for turn in range(draw(st.integers(1, 4))):
        # Results come first in the user's turn, which only texts may follow.
        for name in waiting:
            segments.append(result(format_, name, message))
        if waiting and format_.startswith("openai"):
            message += 1
        for _ in range(draw(st.integers(0 if waiting else 1, 2))):
            segments.append(said("user", f"Words {next(numbers)}.", message))
        if system_turns and draw(st.booleans()):
            message += 1
            segments.append(said("system", f"From now on {next(numbers)}.", message))
        message += 1
        if draw(st.booleans()) or turn == 0:
            segments.append(said(answering, f"Thought {next(numbers)}.", message, kind="reasoning"))
        for _ in range(draw(st.integers(0, 2))):
            segments.append(said(answering, f"Answer {next(numbers)}.", message))
        waiting = [f"call{next(numbers)}" for _ in range(draw(st.integers(0, 2)))]
        segments += [call(format_, name, message) for name in waiting]
        if segments[-1].message != message:
            segments.append(said(answering, f"Answer {next(numbers)}.", message))
        message += 1
    segments += [result(format_, name, message) for name in waiting]
    if format_.startswith("openai") and waiting:
        message += 1
    segments.append(said("user", f"Words {next(numbers)}.", message))
    return request(*segments, format_=format_)
