"""Requests of every format, drawn together with the segments that reading them must give."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from promptkeel.providers.segments import Mark, Segment

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TTLS = {"anthropic": {"5m": 300, "1h": 3600}, "bedrock": {"5m": 300, "1h": 3600}, "openai": {"30m": 1800, "12h": 43200}}
SCHEMA = {"type": "object", "properties": {"cache_control": {"type": "string"}, "cachePoint": {"type": "string"}}}
"""Names that a mark has elsewhere; here they are a caller's own."""
FUNCTION = {"type": "function", "strict": False}
NAMED = {"parameters": SCHEMA}
EXIT = {"outcome": {"type": "exit", "exit_code": 0}, "stderr": "", "stdout": "done"}
SEARCH = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "x"}}


def dumped(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def drawn_mark(draw, ttls):
    """The spelling of a mark and the mark; two Nones for no mark."""
    if draw(st.integers(0, 3)):
        return None, None
    ttl = draw(st.sampled_from([None, *ttls]))
    return ({} if ttl is None else {"ttl": ttl}), Mark(None if ttl is None else ttls[ttl])


class _Drawing:
    """Blocks as they are sent, and as they must be read."""

    def __init__(self, draw, provider, key=None, kind=None):
        self.draw, self.ttls, self.key, self.kind = draw, TTLS.get(provider, {}), key, kind
        self.segments = []

    def block(self, section, kind, role, block, message=-1, markable=True, content=None):
        """A block as it is sent; its segment is noted."""
        spelled, mark = drawn_mark(self.draw, self.ttls) if markable and self.key else (None, None)
        self.segments.append(Segment(section, kind, role, dumped(block if content is None else content), message, mark))
        return block if spelled is None else {**block, self.key: {**self.kind, **spelled}}


@st.composite
def anthropic(draw):
    made = _Drawing(draw, "anthropic", "cache_control", {"type": "ephemeral"})
    tools = [
        made.block("tools", "tool", "", {"name": f"t{n}", "input_schema": SCHEMA})
        for n in range(draw(st.integers(0, 3)))
    ]
    system = [
        made.block("system", "text", "system", {"type": "text", "text": draw(words)})
        for _ in range(draw(st.integers(0, 2)))
    ]
    messages = []
    for index in range(draw(st.integers(0, 4))):
        role = ("user", "assistant")[index % 2]
        blocks = []
        for _ in range(draw(st.integers(1, 3))):
            kind, block, content = draw(st.sampled_from(_anthropic_blocks(draw(words), role)))
            markable = kind not in ("reasoning", "other")
            blocks.append(made.block("messages", kind, role, block, index, markable, content))
        messages.append({"role": role, "content": blocks})
    return {"model": "claude-x", "tools": tools, "system": system, "messages": messages}, tuple(made.segments)


def _anthropic_blocks(text, role):
    base64 = {"type": "base64", "media_type": "image/png", "data": "iVBO"}
    if role == "assistant":
        return [
            (
                "text",
                {"type": "text", "text": text, "citations": [{"type": "char_location", "cited_text": text}]},
                None,
            ),
            ("tool_use", {"type": "tool_use", "id": "1", "name": "t0", "input": {"cache_control": {"a": text}}}, None),
            ("tool_use", {"type": "server_tool_use", "id": "2", "name": "web_search", "input": {}}, None),
            ("tool_result", {"type": "web_search_tool_result", "tool_use_id": "2", "content": []}, None),
            ("tool_result", {"type": "code_execution_tool_result", "tool_use_id": "2", "content": {}}, None),
            ("reasoning", {"type": "thinking", "thinking": text, "signature": "c2ln"}, None),
            ("reasoning", {"type": "redacted_thinking", "data": "ZGF0YQ"}, None),
            ("other", {"type": "not_known_yet", "value": text}, None),
        ]
    parts = [{"type": "text", "text": text}]
    return [
        ("text", {"type": "text", "text": text}, None),
        ("image", {"type": "image", "source": base64}, None),
        ("document", {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}, None),
        ("tool_result", {"type": "tool_result", "tool_use_id": "1", "content": parts}, None),
        (
            "tool_result",
            {"type": "tool_result", "tool_use_id": "1", "content": text},
            {"type": "tool_result", "tool_use_id": "1", "content": parts},
        ),
    ]


@st.composite
def responses(draw):
    made = _Drawing(draw, "openai", "prompt_cache_breakpoint", {"mode": "explicit"})
    tools = [
        made.block("tools", "tool", "", {**FUNCTION, "name": f"t{n}", "parameters": SCHEMA}, markable=False)
        for n in range(draw(st.integers(0, 3)))
    ]
    arguments = {"model": "gpt-x", "tools": tools}
    if draw(st.booleans()):
        arguments["instructions"] = "Be brief. " + draw(words)
        content = {"type": "input_text", "text": arguments["instructions"]}
        made.block("system", "text", "system", content, markable=False)
    items, led = [], True
    for index in range(draw(st.integers(0, 5))):
        spelled = draw(st.sampled_from(["message", "answer", "developer", "item"]))
        led = led and spelled == "developer"
        if spelled == "item":
            kind, role, item = draw(st.sampled_from(_items(draw(words))))
            items.append(made.block("messages", kind, role, item, index, markable=False))
            continue
        role = {"message": "user", "answer": "assistant"}.get(spelled, spelled)
        text = draw(words)
        if role == "assistant":
            content = {"type": "output_text", "text": text}
            made.block("messages", "text", role, content, index, markable=False)
            items.append({"role": role, "content": text})
            continue
        section, place = ("system", -1) if led else ("messages", index)
        part = made.block(section, "text", role, {"type": "input_text", "text": text}, place)
        items.append({"role": role, "content": [part]})
    return {**arguments, "input": items}, tuple(made.segments)


def _items(text):
    return [
        ("tool_use", "assistant", {"type": "function_call", "call_id": "1", "name": "t0", "arguments": text}),
        ("tool_use", "assistant", SEARCH),
        ("tool_result", "tool", {"type": "function_call_output", "call_id": "1", "output": text}),
        ("tool_result", "tool", {"type": "shell_call_output", "call_id": "1", "output": [EXIT]}),
        ("reasoning", "assistant", {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "Z" * 900}),
        ("other", "assistant", {"type": "item_reference", "id": "x"}),
    ]


@st.composite
def chat(draw):
    made = _Drawing(draw, "openai", "prompt_cache_breakpoint", {"mode": "explicit"})
    tools = [
        made.block("tools", "tool", "", {"type": "function", "function": {**NAMED, "name": f"t{n}"}}, markable=False)
        for n in range(draw(st.integers(0, 3)))
    ]
    messages, led = [], True
    for index in range(draw(st.integers(0, 5))):
        role = draw(st.sampled_from(["system", "user", "assistant", "tool"]))
        led = led and role == "system"
        section, place = ("system", -1) if led else ("messages", index)
        if role == "tool":
            text = draw(words)
            content = {"content": [{"type": "text", "text": text}], "tool_call_id": "1"}
            made.block("messages", "tool_result", "tool", {}, index, markable=False, content=content)
            messages.append({"role": "tool", "content": text, "tool_call_id": "1"})
            continue
        message = {"role": role}
        if role == "assistant" and draw(st.booleans()):
            message["reasoning_content"] = "Hm. " + draw(words)
            content = {"reasoning_content": message["reasoning_content"]}
            made.block(section, "reasoning", role, content, place, markable=False)
        parts = [{"type": "text", "text": draw(words)} for _ in range(draw(st.integers(0, 2)))]
        message["content"] = [made.block(section, "text", role, part, place, role != "assistant") for part in parts]
        if role == "assistant" and draw(st.booleans()):
            call = {"id": "1", "type": "function", "function": {"name": "t0", "arguments": draw(words)}}
            message["tool_calls"] = [made.block(section, "tool_use", role, call, place, markable=False)]
        messages.append(message)
    return {"model": "gpt-x", "tools": tools, "messages": messages}, tuple(made.segments)


@st.composite
def gemini(draw):
    made = _Drawing(draw, "gemini")
    functions = [
        made.block("tools", "tool", "", {"name": f"t{n}", "parameters": SCHEMA}) for n in range(draw(st.integers(0, 3)))
    ]
    tools = [{"functionDeclarations": functions}] if functions else []
    if draw(st.booleans()):
        tools.append(made.block("tools", "tool", "", {"googleSearch": {}}))
    system = {"parts": [made.block("system", "text", "system", {"text": draw(words)})]}
    contents = []
    for index in range(draw(st.integers(0, 4))):
        role = ("user", "model")[index % 2]
        kinds = draw(st.lists(st.sampled_from(_gemini_parts(draw(words), role)), min_size=1, max_size=3))
        contents.append(
            {"role": role, "parts": [made.block("messages", kind, role, part, index) for kind, part in kinds]}
        )
    config = {"systemInstruction": system, "tools": tools}
    return {"model": "gemini-x", "contents": contents, "config": config}, tuple(made.segments)


def _gemini_parts(text, role):
    if role == "model":
        return [
            ("text", {"text": text}),
            ("reasoning", {"text": text, "thought": True}),
            ("tool_use", {"functionCall": {"name": "t0", "args": {"some_key": text}}, "thoughtSignature": "c2ln"}),
            ("tool_use", {"executableCode": {"language": "PYTHON", "code": text}}),
            ("tool_result", {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": text}}),
        ]
    return [
        ("text", {"text": text}),
        ("image", {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}),
        ("document", {"inlineData": {"mimeType": "application/pdf", "data": "JVBE"}}),
        ("document", {"fileData": {"fileUri": "files/a", "mimeType": "application/pdf"}}),
        ("tool_result", {"functionResponse": {"name": "t0", "response": {"some_key": text}}}),
    ]


@st.composite
def bedrock(draw):
    segments = []

    def blocks(section, role, found, message=-1):
        sent = []
        for kind, block in found:
            point, mark = drawn_mark(draw, TTLS["bedrock"])
            segments.append(Segment(section, kind, role, dumped(block), message, mark))
            sent += [block] if point is None else [block, {"cachePoint": {"type": "default", **point}}]
        return sent

    spec = {"inputSchema": {"json": SCHEMA}}
    found = [("tool", {"toolSpec": {"name": f"t{n}", **spec}}) for n in range(draw(st.integers(0, 3)))]
    arguments = {"modelId": "x", "toolConfig": {"tools": blocks("tools", "", found)}}
    found = [("text", {"text": draw(words)}) for _ in range(draw(st.integers(0, 2)))]
    arguments["system"] = blocks("system", "system", found)
    arguments["messages"] = []
    for index in range(draw(st.integers(0, 4))):
        role = ("user", "assistant")[index % 2]
        kinds = draw(st.lists(st.sampled_from(_bedrock_blocks(draw(words), role)), min_size=1, max_size=3))
        arguments["messages"].append({"role": role, "content": blocks("messages", role, kinds, index)})
    return arguments, tuple(segments)


def _bedrock_blocks(text, role):
    if role == "assistant":
        return [
            ("text", {"text": text}),
            ("tool_use", {"toolUse": {"toolUseId": "1", "name": "t0", "input": {"cachePoint": text}}}),
            ("reasoning", {"reasoningContent": {"reasoningText": {"text": text, "signature": "c2ln"}}}),
            ("other", {"citationsContent": {"content": [{"text": text}], "citations": []}}),
        ]
    return [
        ("text", {"text": text}),
        ("tool_result", {"toolResult": {"toolUseId": "1", "content": [{"text": text}], "status": "success"}}),
        ("document", {"document": {"format": "txt", "name": "a", "source": {"text": text}}}),
        ("other", {"guardContent": {"text": {"text": text}}}),
    ]


REQUESTS = {
    "anthropic": anthropic(),
    "openai-responses": responses(),
    "openai-chat": chat(),
    "gemini": gemini(),
    "bedrock": bedrock(),
}
"""By the format: the arguments of a call, and the segments that they hold."""
