"""OpenAI's Responses API as a cache sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from promptkeel.providers.sdk_objects import as_plain
from promptkeel.providers.segments import Kind, Section, Segment, WireRequest
from promptkeel.providers.wire.blocks import as_items, as_mapping, segment, settings_of
from promptkeel.providers.wire.openai_chat import SYSTEM_ROLES, implicit_mark, marked, tools_of, with_lasting_options

_PARTS: Final[Mapping[str, Kind]] = {
    "input_text": "text",
    "output_text": "text",
    "refusal": "text",
    "input_image": "image",
    "input_file": "document",
}
_ITEMS: Final[Mapping[str, Kind]] = {
    "reasoning": "reasoning",
}
_SETTINGS: Final = (
    "tool_choice", "reasoning", "text", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "cache_salt", "service_tier", "truncation", "context_management", "parallel_tool_calls",
)  # fmt: skip


def read_openai_responses(arguments: Mapping[str, Any]) -> WireRequest:
    """A request as its prefix.

    Raises:
        InvalidInputError: it cannot be read; names the place.
    """
    arguments = with_lasting_options(arguments)
    conversation = as_plain(arguments.get("conversation"))
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    handle = arguments.get("previous_response_id") or conversation
    return WireRequest(
        "openai-responses",
        str(arguments.get("model") or ""),
        tuple(_segments(arguments)),
        settings_of(arguments, _SETTINGS),
        implicit_mark(arguments),
        None if handle is None else str(handle),
    )


def _segments(arguments: Mapping[str, Any]) -> Iterator[Segment]:
    yield from tools_of(arguments)
    if arguments.get("prompt") is not None:
        # A prompt that the provider keeps: its text is not here, but what it is decides about the prefix.
        yield segment("system", "other", "system", {"prompt": as_plain(arguments["prompt"])}, field="prompt")
    instructions = arguments.get("instructions")
    if instructions:
        block = {"type": "input_text", "text": as_plain(instructions)}
        yield segment("system", "text", "system", block, field="instructions")
    given = arguments.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else as_items(given, "input")
    leads = True
    for index, each in enumerate(items):
        field = f"input[{index}]"
        item = as_mapping(each, field)
        role = str(item.get("role", ""))
        leads = leads and role in SYSTEM_ROLES
        if "role" in item:
            yield from _message(item, role, "system" if leads else "messages", -1 if leads else index, field)
            continue
        kind = _kind(str(item.get("type")))
        block, mark = marked(item, field)
        role = "tool" if kind == "tool_result" else "assistant"
        yield segment("messages", kind, role, block, message=index, mark=mark, field=field)


def _message(item: dict[str, Any], role: str, section: Section, index: int, field: str) -> Iterator[Segment]:
    content = item.get("content")
    if isinstance(content, str):
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": content}]
    for number, part in enumerate(as_items(content, f"{field}.content")):
        place = f"{field}.content[{number}]"
        block, mark = marked(_sent(as_mapping(part, place)), place)
        part_kind = _PARTS.get(str(block.get("type")), "other")
        yield segment(section, part_kind, role, block, message=index, mark=mark, field=place)


def _kind(spelled: str) -> Kind:
    if spelled.endswith("_call"):
        return "tool_use"
    return "tool_result" if spelled.endswith("_call_output") else _ITEMS.get(spelled, "other")


def _sent(part: dict[str, Any]) -> dict[str, Any]:
    """A part without what an answer holds beside its text, so that it is the text that a caller would send again."""
    return {name: item for name, item in part.items() if name != "logprobs" and (name != "annotations" or item)}
