"""The MCP memory server's graph becomes entities, observations and relations, and comes out as it went in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exchange_calls import counts, export_lines, import_bytes, spelled
from promptkeel.blocking import open_store
from promptkeel.errors import ExchangeError, InvalidDeclarationError, InvalidInputError
from promptkeel.exchange import KnowledgeGraph
from promptkeel.scope import TenantScope
from promptkeel.store.operations import Correct
from strategies import statements

SCOPE = TenantScope.parse("org:acme/user:u1")
GRAPH = KnowledgeGraph(SCOPE)
LIFT = {"type": "entity", "name": "east lift", "entityType": "device", "observations": ["out of service", "blue"]}
HALL = {"type": "entity", "name": "hall", "entityType": "place", "observations": []}
STANDS_IN = {"type": "relation", "from": "east lift", "to": "hall", "relationType": "stands in"}


def take(store, *lines, graph=GRAPH, **settings):
    return import_bytes(store, spelled(lines), graph, **settings)


def graph_of(store):
    return [json.loads(line) for line in export_lines(store, SCOPE, format="mcp")]


entities = st.dictionaries(
    statements, st.tuples(statements | st.just(""), st.lists(statements, unique=True, max_size=3)), max_size=4
)
relation_types = statements | st.sampled_from(["about", "supersedes", "derived_from", "mcp:about", "mcp:mcp:x"])


@st.composite
def graphs(draw):
    found = draw(entities)
    lines = [
        {"type": "entity", "name": name, "entityType": kind, "observations": observations}
        for name, (kind, observations) in sorted(found.items())
    ]
    for line in lines:  # what is said of somebody may begin with the name
        if draw(st.booleans()):
            line["observations"] += [f"{line['name']}: {text}" for text in line["observations"]]
    if found:
        names = st.sampled_from(sorted(found))
        triples = draw(st.sets(st.tuples(names, names, relation_types), max_size=4))
        lines += [
            {"type": "relation", "from": start, "to": end, "relationType": kind} for start, end, kind in sorted(triples)
        ]
    return lines


def sorted_graph(lines):
    return sorted(json.dumps(line, sort_keys=True) for line in lines)


@given(graphs(), st.sampled_from(["SOUL:", "NOTE:ABOUT:", "X"]))
def test_a_graph_comes_out_as_it_went_in_and_going_in_again_changes_nothing(lines, prefix):
    graph = KnowledgeGraph(SCOPE, prefix=prefix)
    with open_store("ram:") as store, open_store("ram:") as other:
        assert take(store, *lines, graph=graph).rejected == 0
        heads = store.heads(SCOPE)
        out = [json.loads(line) for line in export_lines(store, SCOPE, format="mcp", prefix=prefix)]
        assert sorted_graph(out) == sorted_graph(lines)
        again = take(store, *lines, graph=graph)
        assert (again.inserted, again.linked, again.updated, again.rejected) == (0, 0, 0, 0)
        assert store.heads(SCOPE) == heads
        jsonl = export_lines(store)
        import_bytes(other, spelled(jsonl))
        assert export_lines(other) == jsonl


def test_an_observation_is_a_fact_about_its_entity_whose_time_is_not_recorded(store):
    assert counts(take(store, LIFT, HALL, STANDS_IN)) == {"inserted": 4, "linked": 3}
    observed = store.query_nodes(SCOPE, label_prefix="SOUL:")
    assert [(node.label, node.source, node.recorded, node.trust) for node in observed] == [
        ("SOUL:east lift: blue", None, None, None),
        ("SOUL:east lift: out of service", None, None, None),
    ]
    (neighbour,) = store.neighbours(SCOPE, observed[0].id)
    assert (neighbour.edge.type, neighbour.node.label) == ("about", "ENTITY:east lift")
    assert neighbour.node.properties["entityType"] == "device"
    (place,) = store.neighbours(SCOPE, neighbour.node.id)
    assert (place.edge.type, place.node.label) == ("stands in", "ENTITY:hall")


def test_an_observation_says_whom_it_is_about_once_and_gives_back_what_was_there(store):
    line = {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["works at Acme", "Ada: is quiet"]}
    take(store, line)
    labels = [node.label for node in store.query_nodes(SCOPE, label_prefix="SOUL:")]
    assert labels == ["SOUL:Ada: Ada: is quiet", "SOUL:Ada: works at Acme"]
    assert graph_of(store) == [line]


def test_the_caller_says_where_observations_go_and_whose_words_they_are(store):
    graph = KnowledgeGraph(SCOPE, prefix="FOCUS:", source="old-memory", trust="inferred")
    take(store, LIFT, graph=graph)
    assert {(node.source, node.trust) for node in store.query_nodes(SCOPE)} == {("old-memory", "inferred")}
    assert len(store.query_nodes(SCOPE, label_prefix="FOCUS:")) == 2


def test_one_observation_about_two_entities_is_two_facts(store):
    take(store, {**LIFT, "observations": ["blue"]}, {**HALL, "observations": ["blue"]})
    assert [each["observations"] for each in graph_of(store)] == [["blue"], ["blue"]]


def test_an_observation_said_twice_is_one_fact(store):
    assert counts(take(store, {**LIFT, "observations": ["blue", "blue"]})) == {"inserted": 2, "linked": 1}


def test_a_new_observation_in_front_moves_no_other(store):
    take(store, LIFT)
    report = take(store, {**LIFT, "observations": ["noisy", *LIFT["observations"]]})
    assert counts(report) == {"inserted": 1, "linked": 1, "unchanged": 5}


def test_a_correction_outlives_the_next_import(store):
    take(store, LIFT)
    blue = store.query_nodes(SCOPE, label_prefix="SOUL:east lift: blue")[0]
    store.apply([Correct(scope=SCOPE, node_id=blue.id, label="SOUL:green", source="user")])
    assert counts(take(store, LIFT)) == {"unchanged": 5}
    assert graph_of(store)[0]["observations"] == ["out of service", "green"]


def test_a_refused_line_leaves_nothing_of_itself_behind(store):
    take(store, LIFT)
    blue = store.query_nodes(SCOPE, label_prefix="SOUL:east lift: blue")[0]
    store.erase(SCOPE, blue.id)
    before = store.heads(SCOPE)
    report = take(store, {**LIFT, "observations": ["new", "blue", "newer"]})
    assert "was erased" in report.first_rejected[0].reason
    assert store.heads(SCOPE) == before


def test_statements_that_the_format_cannot_say_are_counted(store):
    take(store, LIFT)
    import_bytes(store, spelled([{"scope": SCOPE.path, "label": "SOUL:prefers tea"}]))
    from promptkeel.exchange import export_steps
    from promptkeel.steps import drive_blocking

    export = drive_blocking(export_steps(store.core, SCOPE, format="mcp"))
    assert (export.statements, export.edges, export.left_out) == (3, 0, 1)


def test_a_relation_needs_both_of_its_entities(store):
    report = take(store, STANDS_IN, HALL)
    assert counts(report) == {"inserted": 1, "rejected": 1}
    assert "is visible at scope" in report.first_rejected[0].reason
    assert counts(take(store, STANDS_IN, LIFT)) == {"inserted": 3, "linked": 3}


def test_another_type_of_a_known_entity_is_refused_unless_it_is_replaced(store):
    take(store, HALL)
    other = {**HALL, "entityType": "room"}
    assert counts(take(store, other)) == {"rejected": 1}
    assert counts(take(store, other, replace=True)) == {"updated": 1}
    assert graph_of(store) == [other]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"type": "node"}, "'type' must be 'entity' or 'relation'"),
        ({**LIFT, "observation": []}, "did you mean 'observations'?"),
        ({**STANDS_IN, "relation_type": "x"}, "did you mean 'relationType'?"),
        ({"type": "entity", "name": "a"}, "an entity needs 'entityType'"),
        ({**LIFT, "observations": "blue"}, "must be a list of texts"),
        ({"type": "relation", "from": "a", "relationType": "b"}, "a relation needs 'to'"),
    ],
)
def test_a_line_that_is_none_is_refused_with_its_reason(line, reason):
    with pytest.raises(ExchangeError) as refused:
        GRAPH.parse(json.dumps(line))
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "line", [{**LIFT, "observations": ["a", " "]}, {**LIFT, "name": ""}, {**STANDS_IN, "relationType": "\u0000"}]
)
def test_text_that_no_store_can_take_is_refused(line):
    with pytest.raises(InvalidInputError):
        GRAPH.parse(json.dumps(line))


@pytest.mark.parametrize("prefix", ["", "ENTITY:", "ENT", "ENTITY:x"])
def test_observations_cannot_be_mistaken_for_entities(prefix):
    with pytest.raises(InvalidDeclarationError):
        KnowledgeGraph(SCOPE, prefix=prefix)
