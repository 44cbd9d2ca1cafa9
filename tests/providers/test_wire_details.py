"""What requests say beside their blocks: settings, handles, automatic marks, objects of SDKs, and large data."""

from __future__ import annotations

import base64
import json

import anthropic
import openai
import pytest
from anthropic.types import Message as Answer
from google.genai import types as genai
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from promptkeel.errors import InvalidInputError
from promptkeel.providers.segments import WIRE_FORMATS, Mark
from promptkeel.providers.wire import read_request

PICTURE = bytes(range(256)) * 40
TEXT = base64.b64encode(PICTURE).decode()
SAFE = base64.urlsafe_b64encode(PICTURE).decode()


def user(content):
    return [{"role": "user", "content": content}]


def read(wire_format, **arguments):
    return read_request(wire_format, arguments)


# Marks that are set at the top.


@pytest.mark.parametrize(
    ("control", "expected"),
    [({"type": "ephemeral"}, Mark()), ({"type": "ephemeral", "ttl": "1h"}, Mark(3600)), (None, None)],
)
def test_caching_at_the_top_of_an_anthropic_request_is_an_automatic_mark(control, expected):
    found = read("anthropic", cache_control=control, messages=user("hi"))
    assert found.automatic == expected
    assert found.segments[0].mark is None


@pytest.mark.parametrize("wire_format", ["openai-responses", "openai-chat"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, Mark()),
        ({}, Mark()),
        ({"mode": "implicit", "ttl": "12h"}, Mark(43200)),
        ({"mode": "explicit"}, None),
        (openai.NOT_GIVEN, Mark()),
    ],
)
def test_openai_marks_by_itself_unless_it_is_told_not_to(wire_format, options, expected):
    assert read(wire_format, prompt_cache_options=options).automatic == expected


@pytest.mark.parametrize("wire_format", ["gemini", "bedrock"])
def test_where_nothing_is_marked_by_itself_there_is_no_automatic_mark(wire_format):
    assert read(wire_format).automatic is None


@pytest.mark.parametrize("ttl", ["forever", 300, "5", ["5m"], "5m "])
def test_a_ttl_that_is_no_time_is_refused_by_its_place(ttl):
    block = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": ttl}}
    with pytest.raises(InvalidInputError) as caught:
        read("anthropic", messages=user([block]))
    assert caught.value.field == "messages[0].content[0].cache_control.ttl"


def test_a_mark_on_a_chat_message_is_on_its_last_part():
    messages = [{"role": "user", "content": "hi", "cache_control": {"type": "ephemeral"}}]
    (found,) = read("openai-chat", messages=messages).segments
    assert (found.mark, json.loads(found.content)) == (Mark(), {"type": "text", "text": "hi"})


def test_a_mark_inside_a_tool_result_is_the_results():
    inner = {"type": "text", "text": "found", "cache_control": {"type": "ephemeral"}}
    (found,) = read(
        "anthropic", messages=user([{"type": "tool_result", "tool_use_id": "1", "content": [inner]}])
    ).segments
    assert found.mark == Mark()
    assert "cache_control" not in found.content


def test_bedrock_cache_points_that_follow_nothing_are_positions_of_their_own():
    point = {"cachePoint": {"type": "default"}}
    long = {"cachePoint": {"type": "default", "ttl": "1h"}}
    found = read("bedrock", system=[point, {"text": "a"}, point, long]).segments
    assert [(each.kind, each.content, each.mark) for each in found] == [
        ("other", "", Mark()),
        ("text", '{"text":"a"}', Mark()),
        ("other", "", Mark(3600)),
    ]


# Settings and handles.

SETTINGS = [
    ("anthropic", {"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "any"}}),
    (
        "anthropic",
        {"thinking": {"type": "adaptive"}, "betas": ["b"]},
        {"thinking": {"type": "adaptive"}, "betas": ["b"]},
    ),
    ("anthropic", {"output_config": {"effort": "low"}}, {"output_config": {"effort": "low"}}),
    ("anthropic", {"extra_headers": {"Anthropic-Beta": "x", "X-Trace": "1"}}, {"anthropic-beta": "x"}),
    ("anthropic", {"max_tokens": 9, "temperature": 1, "metadata": {"user_id": "u1"}, "stream": True}, {}),
    (
        "openai-chat",
        {"prompt_cache_key": "k", "reasoning_effort": "low"},
        {"prompt_cache_key": "k", "reasoning_effort": "low"},
    ),
    ("openai-chat", {"extra_body": {"cache_salt": "s"}}, {"cache_salt": "s"}),
    (
        "openai-chat",
        {"response_format": {"type": "json_object"}, "seed": 1},
        {"response_format": {"type": "json_object"}},
    ),
    (
        "openai-responses",
        {"reasoning": {"effort": "low"}, "text": {"verbosity": "low"}},
        {"reasoning": {"effort": "low"}, "text": {"verbosity": "low"}},
    ),
    ("openai-responses", {"prompt_cache_retention": "24h"}, {"prompt_cache_retention": "24h"}),
    (
        "openai-responses",
        {"prompt_cache_options": {"ttl": "12h", "comparison_response_id": "r", "prewarm": True}},
        {"prompt_cache_options": {"ttl": "12h"}},
    ),
    ("openai-responses", {"prompt_cache_options": {"comparison_response_id": "r"}}, {}),
    ("gemini", {"config": {"thinking_config": {"thinkingBudget": 1}}}, {"thinkingConfig": {"thinkingBudget": 1}}),
    (
        "gemini",
        {"generationConfig": {"responseMimeType": "application/json"}},
        {"responseMimeType": "application/json"},
    ),
    ("bedrock", {"toolConfig": {"tools": [], "toolChoice": {"any": {}}}}, {"toolChoice": {"any": {}}}),
    ("bedrock", {"additionalModelRequestFields": {"thinking": 1}}, {"additionalModelRequestFields": {"thinking": 1}}),
    ("bedrock", {"inferenceConfig": {"maxTokens": 1}, "requestMetadata": {"a": "b"}}, {}),
]


@pytest.mark.parametrize(("wire_format", "arguments", "expected"), SETTINGS)
def test_settings_that_key_or_void_a_cache_are_read_and_others_are_not(wire_format, arguments, expected):
    found = read(wire_format, **arguments).settings
    assert {name: json.loads(value) for name, value in found} == expected
    assert [name for name, _ in found] == sorted(expected)


@pytest.mark.parametrize(
    ("wire_format", "arguments", "handle"),
    [
        ("openai-responses", {"previous_response_id": "resp_1"}, "resp_1"),
        ("openai-responses", {"conversation": "conv_1"}, "conv_1"),
        ("openai-responses", {"conversation": {"id": "conv_1"}}, "conv_1"),
        ("openai-responses", {}, None),
        ("gemini", {"config": {"cached_content": "cachedContents/a"}}, "cachedContents/a"),
        ("gemini", {"cachedContent": "cachedContents/a"}, "cachedContents/a"),
    ],
)
def test_what_a_request_continues_is_its_handle(wire_format, arguments, handle):
    assert read(wire_format, **arguments).handle == handle


def test_a_prompt_that_the_provider_keeps_is_part_of_the_prefix():
    one, two = (read("openai-responses", prompt={"id": "pmpt_1", "version": v}, input="hi").segments for v in "12")
    assert one[0].section == "system"
    assert one != two


@pytest.mark.parametrize("wire_format", WIRE_FORMATS)
def test_arguments_that_an_sdk_does_not_send_are_not_there(wire_format):
    absent = dict.fromkeys(("tools", "system", "messages", "input", "toolConfig", "config"), anthropic.NOT_GIVEN)
    assert read(wire_format, **absent, tool_choice=openai.omit) == read(wire_format)


# Several spellings of one content.


@pytest.mark.parametrize(
    ("wire_format", "short", "long"),
    [
        ("anthropic", {"system": "a"}, {"system": [{"type": "text", "text": "a"}]}),
        ("anthropic", {"messages": user("a")}, {"messages": user([{"type": "text", "text": "a"}])}),
        ("openai-chat", {"messages": user("a")}, {"messages": user([{"type": "text", "text": "a"}])}),
        ("openai-responses", {"input": "a"}, {"input": user([{"type": "input_text", "text": "a"}])}),
        ("openai-responses", {"input": user("a")}, {"input": user([{"type": "input_text", "text": "a"}])}),
        ("gemini", {"contents": "a"}, {"contents": [{"role": "user", "parts": [{"text": "a"}]}]}),
        ("gemini", {"contents": {"parts": ["a"]}}, {"contents": [{"role": "user", "parts": [{"text": "a"}]}]}),
        ("gemini", {"config": {"system_instruction": "a"}},
         {"systemInstruction": {"role": "user", "parts": [{"text": "a", "thought": None}]}}),
        ("gemini", {"contents": [{"parts": [{"file_data": {"file_uri": "f"}}]}]},
         {"contents": [{"parts": [{"fileData": {"fileUri": "f"}}]}]}),
    ],
)  # fmt: skip
def test_short_and_long_spellings_are_one_request(wire_format, short, long):
    assert read(wire_format, **short) == read(wire_format, **long)


def test_nothing_of_a_chat_message_is_dropped():
    message = {"role": "assistant", "content": None, "audio": {"id": "a1"}, "unheard_of": [1], "annotations": []}
    found = read("openai-chat", messages=[message]).segments
    assert [(each.kind, each.content) for each in found] == [
        ("other", '{"audio":{"id":"a1"}}'),
        ("other", '{"unheard_of":[1]}'),
    ]


# Pictures and documents.

SOURCE = {"type": "base64", "media_type": "image/png"}
WORDS = {"type": "text", "media_type": "text/plain", "data": "word " * 99}
PICTURES = {
    "anthropic": lambda data: {"messages": user([{"type": "image", "source": {**SOURCE, "data": data}}])},
    "openai-chat": lambda data: {
        "messages": user([{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}])
    },
    "openai-responses": lambda data: {
        "input": user([{"type": "input_image", "image_url": f"data:image/png;base64,{data}"}])
    },
    "gemini": lambda data: {"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": data}}]}]},
    "bedrock": lambda data: {"messages": user([{"image": {"format": "png", "source": {"bytes": data}}}])},
}


@pytest.mark.parametrize("wire_format", WIRE_FORMATS)
def test_pictures_are_told_apart_by_the_hash_of_their_data(wire_format):
    (found,) = read(wire_format, **PICTURES[wire_format](TEXT)).segments
    (other,) = read(wire_format, **PICTURES[wire_format](TEXT[:-8] + "AAAAAAA=")).segments
    assert found.kind == "image"
    assert len(found.content) < 300
    assert "sha256:" in found.content
    assert found != other


@pytest.mark.parametrize("wire_format", ["gemini", "bedrock"])
def test_a_picture_is_the_same_as_bytes_and_in_either_alphabet_of_base64(wire_format):
    picture = PICTURES[wire_format]
    assert read(wire_format, **picture(PICTURE)) == read(wire_format, **picture(TEXT))
    assert read(wire_format, **picture(SAFE)) == read(wire_format, **picture(TEXT))


@pytest.mark.parametrize(
    ("wire_format", "arguments"),
    [
        ("anthropic", {"messages": user([{"type": "document", "source": WORDS}])}),
        ("anthropic", {"messages": user([{"type": "tool_result", "tool_use_id": "1", "content": "word " * 99}])}),
        (
            "gemini",
            {"contents": [{"parts": [{"functionResponse": {"name": "a", "response": {"data": "word " * 99}}}]}]},
        ),
        ("openai-responses", {"input": [{"type": "function_call_output", "call_id": "1", "output": "word " * 99}]}),
    ],
)
def test_text_is_kept_as_text_wherever_it_stands(wire_format, arguments):
    (found,) = read(wire_format, **arguments).segments
    assert found.content.count("word") == 99


# Objects of the SDKs, as an agent hands an answer back.


def test_blocks_of_an_anthropic_answer_are_read_as_what_is_sent_of_them():
    body = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
        "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "text", "text": "Let me look.", "citations": None},
            {"type": "tool_use", "id": "t", "name": "look", "input": {"a": [1]}},
        ],
    }  # fmt: skip
    answer = Answer.model_validate(body)
    messages = [*user("hi"), {"role": "assistant", "content": answer.content}]
    plain = [*user("hi"), {"role": "assistant", "content": body["content"]}]
    found = read("anthropic", messages=messages)
    assert found == read("anthropic", messages=plain)
    assert [each.kind for each in found.segments] == ["text", "reasoning", "text", "tool_use"]


def test_a_message_of_a_chat_answer_is_read_as_what_is_sent_of_it():
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    message = {"role": "assistant", "content": "Let me look.", "tool_calls": [call]}
    answer = ChatCompletion.model_validate(
        {"id": "1", "object": "chat.completion", "created": 1, "model": "m",
         "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
    )  # fmt: skip
    sent = [*user("hi"), answer.choices[0].message]
    assert read("openai-chat", messages=sent) == read("openai-chat", messages=[*user("hi"), message])


def test_the_items_of_a_response_are_read_as_the_text_that_they_say():
    part = {"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}
    item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [part]}
    answer = Response.model_validate(
        {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": [item], "tools": [],
         "parallel_tool_calls": True, "tool_choice": "auto"}
    )  # fmt: skip
    sent = [*user("hi"), *answer.output]
    assert read("openai-responses", input=sent) == read(
        "openai-responses", input=[*user("hi"), {"role": "assistant", "content": "Hello."}]
    )


def test_contents_of_googles_sdk_are_read_as_what_is_sent_of_them():
    parts = [genai.Part.from_text(text="look"), genai.Part.from_bytes(data=PICTURE, mime_type="image/png")]
    config = genai.GenerateContentConfig(system_instruction="be brief", thinking_config=genai.ThinkingConfig())
    plain = {"role": "user", "parts": [{"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": TEXT}}]}
    sent = read("gemini", contents=[genai.Content(role="user", parts=parts)], config=config)
    assert sent == read("gemini", contents=[plain], systemInstruction="be brief", thinkingConfig={})


def test_an_object_that_cannot_be_written_is_refused():
    class Unwritable:
        def model_dump(self, **_):
            raise ValueError("no JSON")

    with pytest.raises(InvalidInputError, match="cannot be written") as caught:
        read("anthropic", messages=[*user("hi"), Unwritable()])
    assert caught.value.field == "messages[1]"
