"""Nodes, edges, facts and revisions are checked, frozen values that survive pickling and tell every difference."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.errors import (
    InvalidInputError,
    InvalidInstantError,
    InvalidPropertiesError,
    InvalidTextError,
    MissingFactsError,
)
from promptkeel.instants import format_instant
from promptkeel.model import (
    NOT_GIVEN,
    TRUST_LEVELS,
    BlockFact,
    BlockRevision,
    MemoryEdge,
    MemoryNode,
    statement_of,
)
from promptkeel.properties import check_properties, dump_json
from promptkeel.scope import TenantScope
from strategies import instants, json_objects, nodes, pickled, scopes, statements

ADA = TenantScope.parse("org:acme/user:ada")


def node(**changes: Any) -> MemoryNode:
    return MemoryNode(**{"id": "n1", "scope": ADA, "label": "SOUL:prefers tea", **changes})


@given(nodes)
def test_a_node_survives_copies(original: MemoryNode) -> None:
    for again in (pickled(original), copy.deepcopy(original), attrs.evolve(original)):
        assert again == original
        assert again.version == original.version
        assert again.same_content(original)
        assert hash(again) == hash(original)
        assert dict(again.own_properties) == dict(original.own_properties)


def test_what_was_not_given_stays_so_through_a_pickle() -> None:
    assert pickled(node()).recorded is NOT_GIVEN
    assert copy.deepcopy(NOT_GIVEN) is NOT_GIVEN


@given(nodes, nodes)
def test_versions_differ_where_anything_differs(one: MemoryNode, other: MemoryNode) -> None:
    assert (one == other) == (one.version == other.version)


CHANGES: dict[str, list[Any]] = {
    "id": ["n2"],
    "scope": [ADA.parent],
    "label": ["SOUL:prefers tea ", "SOUL:Prefers tea"],
    "properties": [{"a": 1}, {"a": 1.0}, {"a": True}, {"a": "1"}, {"a": [1]}, {"a": [True]}, {"a": None}, {"a": ""}],
    "source": ["x", "y"],
    "recorded_at": [None, 0, 1],
    "trust": list(TRUST_LEVELS),
    "created_at": [0, 1],
    "updated_at": [0, 1],
    "state": ["retracted", "superseded"],
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_version_is_sensitive_to_each_field(field: str) -> None:
    variants = [node(recorded_at=5), *(node(**{"recorded_at": 5, field: value}) for value in CHANGES[field])]
    assert len({variant.version for variant in variants}) == len(variants)
    assert all((one == other) == (one is other) for one in variants for other in variants)
    if field not in ("created_at", "updated_at"):
        assert not any(variants[0].same_content(other) for other in variants[1:])


@given(json_objects)
def test_what_a_node_holds_cannot_be_changed(properties: dict[str, Any]) -> None:
    holder = node(properties={**properties, "deep": [{"list": ["a"]}]})
    before = holder.version
    with pytest.raises(AttributeError):
        holder.label = "SOUL:other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        holder.own_properties["deep"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        holder.own_properties["deep"].append(1)
    with pytest.raises(TypeError):
        holder.own_properties["deep"][0]["list"] += ["b"]
    with pytest.raises(TypeError):
        holder.own_properties["deep"][0].update(list=[])
    holder.properties["deep"][0]["list"].append("b")
    assert holder.version == before
    assert holder.properties["deep"] == [{"list": ["a"]}]


def test_a_node_does_not_share_what_it_was_made_of() -> None:
    given_ = {"tags": ["a"]}
    holder = node(properties=given_)
    given_["tags"].append("b")
    assert holder.properties["tags"] == ["a"]


@given(statements, st.one_of(st.none(), instants), st.sampled_from(TRUST_LEVELS))
def test_reserved_properties_are_columns(source: str, recorded: int | None, trust: Any) -> None:
    spelled = None if recorded is None else format_instant(recorded)
    merged = node(properties={"source": source, "recorded_at": spelled, "trust": trust, "role": "CTO"})
    assert dict(merged.own_properties) == {"role": "CTO"}
    assert (merged.source, merged.recorded, merged.trust) == (source.strip(), recorded, trust)
    assert merged.properties == {"role": "CTO", "source": source.strip(), "recorded_at": spelled, "trust": trust}
    assert node(properties=merged.properties) == merged


def test_an_argument_wins_over_a_reserved_property() -> None:
    merged = node(
        source="chat", recorded_at=7, trust="user",
        properties={"source": "import", "recorded_at": "2026-05-02", "trust": "inferred"},
    )  # fmt: skip
    assert (merged.source, merged.recorded, merged.trust) == ("chat", 7, "user")
    assert node(recorded_at=None, properties={"recorded_at": "2026-05-02"}).recorded is None


def test_an_absent_time_is_not_an_explicit_null() -> None:
    assert node().recorded is NOT_GIVEN
    assert "recorded_at" not in node().properties
    assert node(properties={"recorded_at": None}).recorded is None
    assert node(recorded_at=None).properties["recorded_at"] is None
    assert node().recorded_at is None


BAD: list[tuple[dict[str, Any], type[InvalidInputError], str]] = [
    ({"id": ""}, InvalidTextError, "id"),
    ({"id": 7}, InvalidTextError, "id"),
    ({"id": "a\x00"}, InvalidTextError, "id"),
    ({"scope": "org:acme"}, InvalidInputError, "scope"),
    ({"label": " "}, InvalidTextError, "label"),
    ({"label": "SOUL:"}, InvalidTextError, "label"),
    ({"label": "SOUL: \n"}, InvalidTextError, "label"),
    ({"label": "SOUL:\ud800"}, InvalidTextError, "label"),
    ({"label": "SOUL:\x00"}, InvalidTextError, "label"),
    ({"label": "SOUL:\x1b[31m"}, InvalidTextError, "label"),
    ({"label": None}, InvalidTextError, "label"),
    ({"properties": None}, InvalidPropertiesError, "properties"),
    ({"properties": [1]}, InvalidPropertiesError, "properties"),
    ({"properties": {1: "a"}}, InvalidPropertiesError, "properties"),
    ({"properties": {"\ud800": "a"}}, InvalidPropertiesError, "properties"),
    ({"properties": {"role": "\x07"}}, InvalidPropertiesError, "properties.role"),
    ({"properties": {"role": float("nan")}}, InvalidPropertiesError, "properties.role"),
    ({"properties": {"role": float("-inf")}}, InvalidPropertiesError, "properties.role"),
    ({"properties": {"role": {1, 2}}}, InvalidPropertiesError, "properties.role"),
    ({"properties": {"role": b"x"}}, InvalidPropertiesError, "properties.role"),
    ({"properties": {"role": 10**1001}}, InvalidPropertiesError, "properties.role"),
    ({"properties": {"a": [{"b": ["\ud800"]}]}}, InvalidPropertiesError, "properties.a[0].b[0]"),
    ({"properties": {"a": {"b": {1: 2}}}}, InvalidPropertiesError, "properties.a.b"),
    ({"properties": {"source": 7}}, InvalidTextError, "source"),
    ({"source": " "}, InvalidTextError, "source"),
    ({"source": "a\x00"}, InvalidTextError, "source"),
    ({"recorded_at": "soon"}, InvalidInstantError, "recorded_at"),
    ({"recorded_at": "0001-01-01T00:00+14:00"}, InvalidInstantError, "recorded_at"),
    ({"recorded_at": 10**18}, InvalidInstantError, "recorded_at"),
    ({"recorded_at": True}, InvalidInstantError, "recorded_at"),
    ({"created_at": "2026-02-30"}, InvalidInstantError, "created_at"),
    ({"updated_at": 1.5}, InvalidInstantError, "updated_at"),
    ({"trust": "admin"}, InvalidInputError, "trust"),
    ({"state": "gone"}, InvalidInputError, "state"),
]


@pytest.mark.parametrize(("changes", "kind", "field"), BAD)
def test_bad_input_names_its_field(changes: dict[str, Any], kind: type[InvalidInputError], field: str) -> None:
    with pytest.raises(kind) as caught:
        node(**changes)
    assert caught.value.field == field
    if "id" not in changes:
        assert caught.value.where == "node 'n1'"


def test_properties_nested_too_deeply_are_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidPropertiesError, match="nested too deeply"):
        node(properties={"deep": deep})


def test_properties_alone_may_say_something() -> None:
    assert node(label="SOUL:", properties={"role": "CTO"}).label == "SOUL:"


@given(json_objects)
def test_json_has_one_spelling(properties: dict[str, Any]) -> None:
    text = dump_json(properties)
    assert dump_json(json.loads(text)) == text
    assert dump_json(dict(reversed(properties.items()))) == text
    assert check_properties(properties) == properties
    text.encode()


@given(scopes, json_objects)
def test_an_edge_survives_copies(scope: TenantScope, properties: dict[str, Any]) -> None:
    edge = MemoryEdge(scope=scope, start="a", type="about", end="b", properties=properties)
    for again in (pickled(edge), copy.deepcopy(edge), attrs.evolve(edge)):
        assert again == edge
        assert hash(again) == hash(edge)


@pytest.mark.parametrize("field", ["start", "type", "end"])
def test_an_edge_names_its_bad_field(field: str) -> None:
    with pytest.raises(InvalidTextError) as caught:
        MemoryEdge(**{"scope": ADA, "start": "a", "type": "about", "end": "b", field: " "})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("label", "statement"),
    [
        ("SOUL:prefers tea", "prefers tea"), ("MY_RULE2:x: y", "x: y"), ("prefers: tea", "prefers: tea"),
        ("Soul:x", "Soul:x"), ("SOUL", "SOUL"), (":x", ":x"), ("SOUL:", ""), ("ÄRGER:x", "ÄRGER:x"),
    ],
)  # fmt: skip
def test_the_statement_is_what_follows_the_prefix(label: str, statement: str) -> None:
    assert statement_of(label) == statement


facts = st.builds(
    BlockFact,
    statements,
    st.one_of(st.none(), statements),
    st.one_of(st.none(), st.datetimes().map(lambda moment: moment.replace(tzinfo=UTC))),
    st.none(),
    st.one_of(st.none(), st.sampled_from(TRUST_LEVELS)),
    st.one_of(st.none(), statements),
)


@given(facts)
def test_a_fact_is_a_value_that_equals_only_a_fact(fact: BlockFact) -> None:
    assert pickled(fact) == fact
    assert copy.deepcopy(fact) == fact
    assert fact != tuple(fact)
    assert tuple(fact) != fact
    assert eval(repr(fact), {"BlockFact": BlockFact}) == fact if fact.recorded is None else True  # noqa: S307 - a repr made right here
    with pytest.raises(AttributeError):
        fact.value = "other"  # type: ignore[misc]


def test_a_fact_of_a_field_begins_with_it() -> None:
    fact = BlockFact("role: CTO", field="role", recorded_at=datetime(2026, 5, 2, tzinfo=UTC))
    assert (fact.text, fact.field, fact.recorded_at) == ("CTO", "role", datetime(2026, 5, 2, tzinfo=UTC))
    with pytest.raises(InvalidInputError, match="value"):
        BlockFact("CTO", field="role")
    assert BlockFact("role: CTO") != fact


def test_a_revision_has_facts_or_is_authored() -> None:
    learned = BlockRevision("tea", "mem:1", facts=(BlockFact("tea"),))
    assert learned.is_learned
    assert list(learned) == [BlockFact("tea")]
    authored = BlockRevision("Be brief.", "sha:1")
    assert not authored.is_learned
    with pytest.raises(MissingFactsError):
        authored.require_facts()
    assert pickled(learned) == learned


@pytest.mark.parametrize("changes", [{"revision": " "}, {"revision": None}, {"content": None}, {"facts": ["tea"]}])
def test_a_revision_is_checked(changes: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        BlockRevision(**{"content": "tea", "revision": "mem:1", **changes})
