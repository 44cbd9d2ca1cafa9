"""A line of JSON Lines says one statement or one edge, and is refused with its reason where it says neither."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from promptkeel.errors import ExchangeError, InvalidInputError
from promptkeel.exchange.entries import derived_id, without_repeats
from promptkeel.exchange.jsonl import JsonLines, edge_line, statement_line
from promptkeel.instants import parse_instant
from promptkeel.model import NOT_GIVEN, MemoryEdge
from promptkeel.scope import TenantScope
from strategies import json_objects, nodes, scopes, statements

FORMAT = JsonLines({"USER_PROFILE": "SOUL:"})
U1 = "org:acme/user:u1"


def parse(line, line_format=FORMAT):
    (entry,) = line_format.parse(line if isinstance(line, str) else json.dumps(line))
    return entry


@given(nodes)
def test_the_line_of_a_node_says_that_node(node):
    line = statement_line(node)
    entry = parse(line)
    assert "\n" not in line
    assert entry.identified
    assert entry.node.same_content(node)


@given(scopes, statements, statements, statements, json_objects)
def test_the_line_of_an_edge_says_that_edge(scope, start, kind, end, properties):
    edge = MemoryEdge(scope=scope, start=start, type=kind, end=end, properties=properties)
    assert parse(edge_line(edge)).edge == edge


def test_a_line_may_name_a_block_and_a_text_in_place_of_a_label():
    assert parse({"scope": U1, "block": "USER_PROFILE", "text": "prefers tea"}).node.label == "SOUL:prefers tea"


def test_a_line_without_an_id_is_known_by_its_scope_and_label():
    line = {"scope": U1, "label": "SOUL:prefers tea"}
    entry = parse({**line, "source": "onboarding"})
    assert not entry.identified
    assert entry.node.id == parse({**line, "source": "another"}).node.id == derived_id(U1, "SOUL:prefers tea")
    assert entry.node.id != parse({**line, "scope": "org:acme/user:u2"}).node.id


@pytest.mark.parametrize(
    ("line", "recorded"),
    [
        ({}, NOT_GIVEN),
        ({"recorded_at": None}, None),
        ({"recorded_at": "2026-05-02T10:00:00+02:00"}, parse_instant("2026-05-02T08:00:00Z")),
    ],
)
def test_an_absent_time_is_not_a_time_that_was_not_recorded(line, recorded):
    assert parse({"scope": U1, "label": "SOUL:a", **line}).node.recorded == recorded


def test_the_scope_of_the_import_is_for_lines_that_name_none():
    line_format = JsonLines(scope=TenantScope.parse(U1))
    assert parse({"label": "SOUL:a"}, line_format).node.scope.path == U1
    assert parse({"label": "SOUL:a", "scope": ""}, line_format).node.scope.path == ""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "is not JSON: Expecting property name enclosed in double quotes at character 2"),
        ('{"scope": ""} x', "Extra data"),
        ("[1]", "must be one JSON object on one line, not a list"),
        ("null", "not null"),
        ('{"scope": "", "scope": ""}', 'says the key "scope" twice'),
        ('{"scope": NaN}', "NaN"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "1" * 5000 + "}", "a number that cannot be read"),
        ({"scope": U1, "lable": "SOUL:a"}, "did you mean 'label'?"),
        ({"scope": U1, "Source": "a", "label": "SOUL:a"}, "did you mean 'source'?"),
        ({"scope": U1, "label": "SOUL:a", "zzz": 1}, "a line has scope, id, label"),
        ({"label": "SOUL:a"}, "a line needs 'scope'"),
        ({"scope": 7, "label": "SOUL:a"}, "'scope' must be text, not a number"),
        ({"scope": U1}, "needs 'label', or 'block' and 'text'"),
        ({"scope": U1, "label": "SOUL:a", "text": "a"}, "either 'label', or 'block' and 'text'"),
        ({"scope": U1, "text": "a"}, "a line with 'text' needs 'block'"),
        ({"scope": U1, "block": "USER_PROFILE"}, "a line with 'block' needs 'text'"),
        ({"scope": U1, "block": "RULES", "text": "a"}, 'block "RULES" is no declared memory block (declared: USER'),
        ({"scope": U1, "label": "SOUL:a", "recorded_at": 12}, "must be ISO 8601 text or null"),
        ({"scope": U1, "label": "SOUL:a", "state": "retracted"}, "needs the 'id'"),
        ({"scope": U1, "edge": 1}, "'edge' must be an object"),
        ({"scope": U1, "edge": {"start": "a", "typ": "about", "end": "b"}}, "did you mean 'type'?"),
        ({"scope": U1, "edge": {"start": "a", "end": "b"}}, "an edge needs 'type'"),
        ({"scope": U1, "label": "a", "edge": {}}, 'unknown key "label"'),
        ({"type": "entity", "name": "a"}, "--format mcp"),
    ],
)
def test_a_line_that_is_none_is_refused_with_its_reason(line, reason):
    with pytest.raises(ExchangeError) as refused:
        parse(line)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


class Key(str):
    """A key that counts how often any is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Key.compared += 1
        return str.__eq__(self, other)


def test_a_key_said_twice_is_found_in_as_many_steps_as_there_are_keys():
    keys = [Key(number) for number in range(2000)]
    with pytest.raises(ExchangeError, match='says the key "1999" twice'):
        without_repeats([(key, 0) for key in (*keys, Key(1999))])
    assert 0 < Key.compared < 10 * len(keys)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ({"scope": "acme", "label": "SOUL:a"}, "kind:id"),
        ({"scope": U1, "label": "SOUL: "}, "label"),
        ({"scope": U1, "label": "SOUL:\u0000"}, "label"),
        ({"scope": U1, "block": "USER_PROFILE", "text": "\ud800"}, "text"),
        ({"scope": U1, "label": "SOUL:a", "source": ""}, "source"),
        ({"scope": U1, "label": "SOUL:a", "trust": "root"}, "trust"),
        ({"scope": U1, "label": "SOUL:a", "recorded_at": "yesterday"}, "recorded_at"),
        ({"scope": U1, "label": "SOUL:a", "recorded_at": "0001-01-01T00:00:00+14:00"}, "recorded_at"),
        ({"scope": U1, "label": "SOUL:a", "properties": []}, "properties"),
        ({"scope": U1, "label": "SOUL:a", "properties": {"role": "\u0001"}}, "properties.role"),
        ({"scope": U1, "label": "SOUL:a", "id": "n", "state": "gone"}, "state"),
    ],
)
def test_what_no_store_can_take_is_refused_with_its_field(line, field):
    with pytest.raises(InvalidInputError) as refused:
        parse(line)
    assert field in str(refused.value)
