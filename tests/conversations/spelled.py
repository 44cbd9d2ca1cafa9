"""Messages in every format, as a host that knows its provider would write them."""

from __future__ import annotations

from typing import Any

FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini", "bedrock")
MODELS = {
    "anthropic": ("claude-opus-5", "claude-opus-5-5", "claude-haiku-4-5", "claude-nobody-knows"),
    "openai-chat": ("gpt-5.5", "gpt-4o"),
    "openai-responses": ("gpt-5.5", "gpt-nobody-knows"),
    "gemini": ("gemini-3-pro", "gemini-2.5-flash"),
    "bedrock": ("anthropic.claude-opus-4-5-20251101-v1:0", "anthropic.claude-nobody-knows"),
}
PROVIDERS = {
    "anthropic": "anthropic",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "gemini": "gemini",
    "bedrock": "bedrock",
}


def said(wire_format: str, role: str, text: str) -> dict[str, Any]:
    """A message of the user's or the assistant's."""
    if wire_format == "gemini":
        return {"role": "model" if role == "assistant" else role, "parts": [{"text": text}]}
    if wire_format == "bedrock":
        return {"role": role, "content": [{"text": text}]}
    return {"role": role, "content": text}


def thought(wire_format: str, text: str, number: int) -> dict[str, Any]:
    """An answer with reasoning before it, where the format has such a thing."""
    if wire_format == "anthropic":
        reasoning = {"type": "thinking", "thinking": f"thought {number}", "signature": f"sig{number}"}
        return {"role": "assistant", "content": [reasoning, {"type": "text", "text": text}]}
    if wire_format == "bedrock":
        reasoning = {"reasoningContent": {"reasoningText": {"text": f"thought {number}", "signature": f"sig{number}"}}}
        return {"role": "assistant", "content": [reasoning, {"text": text}]}
    return said(wire_format, "assistant", text)


def called(wire_format: str, number: int, *, reasoned: bool) -> list[dict[str, Any]]:
    """A call of a tool, with reasoning before it or not, and its result."""
    name, call = "look", f"call{number}"
    if wire_format == "anthropic":
        content: list[Any] = [{"type": "tool_use", "id": call, "name": name, "input": {}}]
        if reasoned:
            content.insert(0, {"type": "thinking", "thinking": f"thought {number}", "signature": f"sig{number}"})
        result = {"type": "tool_result", "tool_use_id": call, "content": f"found {number}"}
        return [{"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
    if wire_format == "bedrock":
        content = [{"toolUse": {"toolUseId": call, "name": name, "input": {}}}]
        if reasoned:
            thinking = {"reasoningText": {"text": f"thought {number}", "signature": f"sig{number}"}}
            content.insert(0, {"reasoningContent": thinking})
        inner = {"toolUseId": call, "content": [{"text": f"found {number}"}]}
        return [{"role": "assistant", "content": content}, {"role": "user", "content": [{"toolResult": inner}]}]
    if wire_format == "openai-chat":
        function = {"name": name, "arguments": "{}"}
        return [
            {"role": "assistant", "tool_calls": [{"id": call, "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": call, "content": f"found {number}"},
        ]
    if wire_format == "openai-responses":
        return [
            {"type": "function_call", "call_id": call, "name": name, "arguments": "{}"},
            {"type": "function_call_output", "call_id": call, "output": f"found {number}"},
        ]
    response = {"id": call, "name": name, "response": {"result": f"found {number}"}}
    return [
        {"role": "model", "parts": [{"function_call": {"id": call, "name": name, "args": {}}}]},
        {"role": "user", "parts": [{"function_response": response}]},
    ]


def tools(wire_format: str, *names: str) -> list[dict[str, Any]]:
    """Definitions of tools."""
    schema = {"type": "object", "properties": {}}
    found: list[dict[str, Any]] = []
    for name in names:
        if wire_format == "anthropic":
            found.append({"name": name, "description": f"Does {name}.", "input_schema": schema})
        elif wire_format == "bedrock":
            found.append({"toolSpec": {"name": name, "description": f"Does {name}.", "inputSchema": {"json": schema}}})
        elif wire_format == "gemini":
            found.append(
                {"function_declarations": [{"name": name, "description": f"Does {name}.", "parameters": schema}]}
            )
        elif wire_format == "openai-chat":
            found.append({"type": "function", "function": {"name": name, "parameters": schema}})
        else:
            found.append({"type": "function", "name": name, "parameters": schema})
    return found
