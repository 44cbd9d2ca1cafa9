"""One spelling of JSON and of tools: insertion order, hash seed and process change no byte, and nothing is mended."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import json
import os
import subprocess
import sys
from collections import OrderedDict
from enum import IntEnum, StrEnum
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.errors import InvalidInputError
from promptkeel.providers.canonical import canonical_json, canonical_tools, plain_json, tool_name
from promptkeel.providers.segments import WIRE_FORMATS

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=5))


def shuffled(value, draw):
    """An equal value with the keys of every object in another order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key], draw) for key in draw(st.permutations(list(value)))}
    return [shuffled(item, draw) for item in value] if isinstance(value, list) else value


def of_other_types(value):
    """An equal value in types that are no builtin ones."""
    if isinstance(value, dict):
        return MappingProxyType(OrderedDict((key, of_other_types(item)) for key, item in value.items()))
    return tuple(of_other_types(item) for item in value) if isinstance(value, list) else value


@given(values, st.data())
def test_the_order_of_insertion_changes_no_byte(value, data):
    assert canonical_json(shuffled(value, data.draw)) == canonical_json(value)


@given(values)
def test_nothing_is_lost_and_the_spelling_is_its_own_canonical_form(value):
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text
    text.encode()


@given(values)
def test_the_types_that_hold_a_value_do_not_matter(value):
    assert canonical_json(of_other_types(value)) == canonical_json(value)


@given(st.dictionaries(words, scalars, min_size=2, max_size=6))
def test_keys_stand_in_the_order_of_their_code_points(value):
    assert list(json.loads(canonical_json(value))) == sorted(value, key=lambda key: [ord(each) for each in key])


def test_subclasses_are_what_they_are_as_json():
    class Colour(StrEnum):
        RED = "red"

    class Size(IntEnum):
        BIG = 3

    assert canonical_json({Colour.RED: Size.BIG, "other": Colour.RED}) == '{"other":"red","red":3}'


def nested(depth):
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


LOOP: list[object] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "place", "reason"),
    [
        ({"a": [1, {10: "ten", 9: "nine"}]}, "value.a[1]", "key 10 must be text"),
        ({"a": {None: 1}}, "value.a", "must be text"),
        ({"a": float("nan")}, "value.a", "not a number"),
        ([1, float("-inf")], "value[1]", "not a number"),
        ({"a": {"b": {1, 2}}}, "value.a.b", "set is not JSON"),
        ({"a": b"bytes"}, "value.a", "bytes is not JSON"),
        ({"a": object}, "value.a", "type is not JSON"),
        ({"a": "half \ud83d"}, "value.a", "lone surrogate at position 5"),
        ({"half \udc00": 1}, "value", "lone surrogate"),
        ({"a": 10**5000}, "value.a", "more than 8192 bits"),
        (nested(250), "value[0]", "nested"),
        (nested(100_000), "value", "nested"),
        (LOOP, "value", "nested"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(value, place, reason):
    with pytest.raises(InvalidInputError, match=reason) as caught:
        canonical_json(value)
    assert caught.value.field is not None
    assert caught.value.field.startswith(place)


@pytest.mark.parametrize("left", [60, 150, 250, 400, 700])
def test_nesting_is_written_or_refused_as_such_however_deep_the_caller_already_is(left):
    def deep(levels):
        return deep(levels - 1) if levels else canonical_json(nested(190))

    # How many frames a walk takes is the interpreter's affair; that it runs out of them is never the caller's.
    depth = sum(1 for _ in inspect.stack(0))
    with contextlib.suppress(InvalidInputError):
        assert deep(sys.getrecursionlimit() - depth - left) == canonical_json(nested(190))


@given(st.lists(st.integers(), max_size=4))
def test_lists_keep_their_order(items):
    schema = {"enum": items, "required": [str(item) for item in items]}
    assert json.loads(canonical_json(schema)) == schema


# Tools of every provider's shape.

names = st.text("abcXYZ_é", min_size=1, max_size=5)
schemas = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(words, st.just({"type": "string"}), max_size=4)},
    optional={"required": st.lists(words, max_size=3)},
)
MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
anthropic_tools = st.one_of(
    st.fixed_dictionaries({"name": names, "input_schema": schemas}, optional={"cache_control": st.just({"type": "e"})}),
    st.fixed_dictionaries({"type": st.just("web_search_20250305"), "name": st.just("web_search")}),
)
responses_tools = st.one_of(
    st.fixed_dictionaries({"type": st.just("function"), "name": names, "parameters": schemas}),
    st.sampled_from([{"type": "web_search"}, {"type": "file_search", "vector_store_ids": ["b", "a"]}]),
)
chat_tools = st.fixed_dictionaries(
    {"type": st.just("function"), "function": st.fixed_dictionaries({"name": names, "parameters": schemas})}
)
gemini_tools = st.one_of(
    st.fixed_dictionaries(
        {"functionDeclarations": st.lists(st.fixed_dictionaries({"name": names, "parameters": schemas}), max_size=4)}
    ),
    st.sampled_from([{"googleSearch": {}}, {"codeExecution": {}}]),
)
bedrock_tools = st.fixed_dictionaries(
    {"toolSpec": st.fixed_dictionaries({"name": names, "inputSchema": schemas.map(lambda schema: {"json": schema})})}
)
TOOLS = {
    "anthropic": anthropic_tools,
    "openai-responses": responses_tools,
    "openai-chat": chat_tools,
    "gemini": gemini_tools,
    "bedrock": bedrock_tools,
}
formats = st.sampled_from(WIRE_FORMATS)
POINT = {"cachePoint": {"type": "default"}}


def bag(tools):
    """What tools there are, whatever their order."""
    found = []
    for tool in tools:
        functions = tool.get("functionDeclarations")
        inner = tool if functions is None else {"functionDeclarations": sorted(canonical_json(f) for f in functions)}
        found.append(canonical_json(inner))
    return sorted(found)


@given(formats, st.data())
def test_tools_in_any_order_have_one_spelling_and_nothing_is_lost(wire_format, data):
    tools = data.draw(st.lists(TOOLS[wire_format], max_size=6))
    again = [shuffled(tool, data.draw) for tool in data.draw(st.permutations(tools))]
    for tool in again:
        if "functionDeclarations" in tool:
            tool["functionDeclarations"] = data.draw(st.permutations(tool["functionDeclarations"]))
    given_before = copy.deepcopy(tools)

    spelled = canonical_tools(wire_format, tools)

    assert json.dumps(canonical_tools(wire_format, again)) == json.dumps(spelled)
    assert json.dumps(canonical_tools(wire_format, spelled)) == json.dumps(spelled)
    assert bag(spelled) == bag(tools)
    assert [tool_name(tool) for tool in spelled] == sorted(tool_name(tool) for tool in spelled)
    assert tools == given_before


@given(formats, st.data())
def test_what_is_done_to_the_spelled_tools_does_not_reach_the_callers(wire_format, data):
    tools = data.draw(st.lists(TOOLS[wire_format], min_size=1, max_size=3))
    before = copy.deepcopy(tools)
    for tool in canonical_tools(wire_format, tools):
        for inner in tool.values():
            if isinstance(inner, dict | list):
                inner.clear()
        tool.clear()
    assert tools == before


@given(st.lists(bedrock_tools | st.just(POINT), max_size=8))
def test_a_cache_point_stays_behind_its_tool_however_often_tools_are_spelled(tools):
    spelled = canonical_tools("bedrock", tools)
    assert canonical_tools("bedrock", spelled) == spelled
    assert spelled.count(POINT) == tools.count(POINT)
    behind = {canonical_json(a) for a, b in itertools.pairwise(tools) if b == POINT and a != POINT}
    found = {canonical_json(a) for a, b in itertools.pairwise(spelled) if b == POINT and a != POINT}
    assert found == behind


def test_marks_stay_on_their_tools_and_tools_of_one_name_are_both_kept():
    tools = [{"name": "b", **MARK}, {"name": "a"}, {"name": "a", "description": "another"}]
    assert canonical_tools("anthropic", tools) == [{"description": "another", "name": "a"}, {"name": "a"}, tools[0]]


def test_objects_of_an_sdk_are_taken_as_what_it_sends():
    from google.genai import types

    declared = types.FunctionDeclaration(name="look", parameters=types.Schema(type="OBJECT", properties={}))
    plain = {"functionDeclarations": [{"name": "look", "parameters": {"properties": {}, "type": "OBJECT"}}]}
    assert canonical_tools("gemini", [types.Tool(function_declarations=[declared])]) == [plain]


@pytest.mark.parametrize("tools", ["look", None, {"name": "look"}, [["look"]], ["look"], [None]])
def test_what_is_no_list_of_tools_is_refused(tools):
    with pytest.raises(InvalidInputError) as caught:
        canonical_tools("anthropic", tools)
    assert str(caught.value.field).startswith("tools")


IN_A_PROCESS = """
import json, random, sys
from promptkeel.providers.canonical import canonical_json, canonical_tools
names = {f"tool_{n}" for n in range(65)}  # a set: its order hangs on the seed
tools = [dict.fromkeys({"name", "description", "input_schema"}) | {"name": name, "input_schema": dict.fromkeys(
    {"type", "properties", "required"}, 1)} for name in names]
random.Random(int(sys.argv[1])).shuffle(tools)
print(json.dumps(canonical_tools("anthropic", tools)), canonical_json(dict.fromkeys(names, 1)))
"""


def test_processes_of_every_hash_seed_write_the_same_bytes():
    written = set()
    for number, seed in enumerate(["0", "1", "4242", "random"]):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS, str(number)], env=environment, capture_output=True, check=True
        )
        written.add(run.stdout)
    assert len(written) == 1
    assert written.pop().count(b'"input_schema"') == 65


def test_a_copy_shares_nothing_with_what_was_given():
    given_value = {"a": [{"b": []}]}
    made = plain_json(given_value)
    made["a"][0]["b"].append(1)
    assert given_value == {"a": [{"b": []}]}
