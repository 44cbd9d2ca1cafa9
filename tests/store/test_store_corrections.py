"""Remember and correct: who says so, since when, and which word is shown."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import pytest

from promptkeel.errors import ConflictError, InvalidInputError, NodeNotFoundError, ReadOnlyNodeError
from promptkeel.instants import format_instant
from promptkeel.model import FIELD_PROVENANCE
from promptkeel.store.operations import Correct, Put, Remember, Retract
from store.examples import ACME, ADA, START, SteppingClock, ids, node


def kinds(store: Any, *operations: Any) -> list[str]:
    return [outcome.kind for outcome in store.apply(operations)]


def correct(store: Any, node_id: str = "n1", **changes: Any) -> Any:
    (outcome,) = store.apply([Correct(scope=ADA, node_id=node_id, **changes)])
    return outcome


# Remember


def test_an_equal_memory_is_confirmed_and_not_doubled(store: Any, clock: SteppingClock) -> None:
    first = store.put(node(source="chat", recorded_at=5, trust="user"))
    heads = store.heads(ADA)
    at = clock.tick()
    again = Remember(node("n2", source="import", recorded_at=9))
    assert kinds(store, again) == ["confirmed"]
    assert kinds(store, again, again) == ["unchanged", "unchanged"]
    assert kinds(store, Remember(node("n3", source="chat", recorded_at=5, trust="user"))) == ["unchanged"]
    assert list(store.query_nodes(ADA)) == [first]
    assert store.heads(ADA) == heads
    (testimony,) = store.history(ADA, "n1").testimonies
    assert attrs.astuple(testimony) == ("confirmed", "import", 9, None, at, {}, ADA.path)


def test_a_confirmation_without_a_time_was_said_now(store: Any, clock: SteppingClock) -> None:
    store.put(node(recorded_at=5))
    at = clock.tick()
    assert kinds(store, Remember(node("n2"))) == ["confirmed"]
    assert [testimony.recorded for testimony in store.history(ADA, "n1").testimonies] == [at]
    assert kinds(store, Remember(node("n2", recorded_at=None))) == ["confirmed"]


def test_only_the_same_scope_and_label_is_equal(store: Any) -> None:
    store.put(node())
    assert kinds(
        store,
        Remember(node("n2", "SOUL:prefers  tea")),
        Remember(node("n3", "SOUL:Prefers tea")),
        Remember(node("n4", scope=ACME)),
    ) == ["inserted"] * 3  # fmt: skip


def test_what_was_retracted_may_be_remembered_anew(store: Any) -> None:
    store.put(node())
    store.retract(ADA, "n1")
    assert kinds(store, Remember(node("n2"))) == ["inserted"]
    assert ids(store.query_nodes(ADA)) == ["n2"]


def test_of_several_equal_nodes_the_least_id_is_confirmed(store: Any) -> None:
    store.apply([Put(node(name)) for name in ("b", "a", "c")])
    (outcome,) = store.apply([Remember(node("d", source="chat"))])
    assert (outcome.kind, outcome.node.id) == ("confirmed", "a")


# Correct


def test_a_corrected_label_carries_the_corrections_provenance(store: Any, clock: SteppingClock) -> None:
    first = store.put(node(source="import", trust="third-party", properties={"role": "CTO"}))
    at = clock.tick()
    changed = correct(store, label="SOUL:prefers coffee", source="user-correction", trust="user").node
    assert (changed.label, changed.source, changed.recorded, changed.trust) == (
        "SOUL:prefers coffee", "user-correction", at, "user",
    )  # fmt: skip
    assert (changed.created, changed.updated) == (START, at)
    assert dict(changed.own_properties) == {"role": "CTO"}
    assert store.get(ADA, "n1") == changed
    assert store.history(ADA, "n1").versions == (first, changed)


def test_a_corrected_field_carries_its_own_provenance(store: Any, clock: SteppingClock) -> None:
    store.put(node(source="import", properties={"role": "CTO", "team": "core"}))
    at = clock.tick()
    changed = correct(store, properties={"role": "CEO"}, source="user-correction", trust="user").node
    assert (changed.label, changed.source, changed.recorded) == ("SOUL:prefers tea", "import", START)
    assert changed.properties["role"] == "CEO"
    assert changed.properties["team"] == "core"
    assert changed.properties[FIELD_PROVENANCE] == {
        "role": {"source": "user-correction", "recorded_at": format_instant(at), "trust": "user"}
    }


SAID = [(10, "SOUL:ten", "X"), (20, "SOUL:twenty", "XX"), (30, "SOUL:thirty", "XXX")]


@pytest.mark.parametrize("arrival", list(itertools.permutations(SAID)), ids=str)
def test_the_newest_word_is_shown_whatever_the_order_of_arrival(store: Any, clock: SteppingClock, arrival: Any) -> None:
    store.put(node(label="SOUL:five", recorded_at=5, properties={"role": "V"}))
    for recorded, label, role in arrival:
        clock.tick()
        correct(store, label=label, properties={"role": role}, recorded=recorded, source=f"s{recorded}")
    shown = store.get(ADA, "n1")
    assert (shown.label, shown.recorded, shown.source) == ("SOUL:thirty", 30, "s30")
    assert shown.properties["role"] == "XXX"
    assert shown.properties[FIELD_PROVENANCE]["role"]["source"] == "s30"
    late = [testimony for testimony in store.history(ADA, "n1").testimonies if testimony.kind == "outdated"]
    newest = 5
    expected = []
    for recorded, label, role in arrival:
        if recorded < newest:
            expected.append((recorded, {"label": label, "role": role}))
        newest = max(newest, recorded)
    assert [(testimony.recorded, testimony.properties) for testimony in late] == expected


def test_a_word_without_a_time_never_replaces_one_that_has_one(store: Any) -> None:
    store.put(node(recorded_at=5, properties={"role": "CTO"}))
    outcome = correct(store, label="SOUL:other", properties={"role": "CEO"}, recorded=None)
    assert outcome.kind == "unchanged"
    assert store.get(ADA, "n1").label == "SOUL:prefers tea"
    (late,) = store.history(ADA, "n1").testimonies
    assert late.properties == {"label": "SOUL:other", "role": "CEO"}


def test_a_word_without_a_time_is_replaced_by_any(store: Any) -> None:
    store.put(node(recorded_at=None))
    assert correct(store, label="SOUL:other", recorded=None, source="a").kind == "updated"
    assert correct(store, label="SOUL:third", recorded=-5, source="b").kind == "updated"
    assert store.get(ADA, "n1").recorded == -5


def test_a_field_may_be_taken_back(store: Any) -> None:
    store.put(node(properties={"role": "CTO"}))
    correct(store, properties={"role": "CEO"})
    changed = correct(store, properties={"role": None}).node
    assert dict(changed.own_properties) == {}


def test_a_new_field_needs_no_newer_word(store: Any) -> None:
    store.put(node(recorded_at=100))
    changed = correct(store, properties={"role": "CTO"}, recorded=50).node
    assert changed.properties["role"] == "CTO"


def test_a_correction_that_says_the_same_changes_nothing(store: Any, clock: SteppingClock) -> None:
    store.put(node(source="chat", recorded_at=5))
    heads = store.heads(ADA)
    clock.tick()
    assert correct(store, label="SOUL:prefers tea", source="chat", recorded=5).kind == "unchanged"
    assert store.heads(ADA) == heads
    assert store.history(ADA, "n1").testimonies == ()


def test_a_correction_is_a_compare_and_set_where_asked(store: Any) -> None:
    first = store.put(node())
    changed = correct(store, label="SOUL:b", expected=first).node
    with pytest.raises(ConflictError):
        correct(store, label="SOUL:c", expected=first.version)
    assert correct(store, label="SOUL:c", expected=changed.version).kind == "updated"


def test_a_correction_is_of_an_own_node(store: Any) -> None:
    store.put(node(scope=ACME))
    with pytest.raises(ReadOnlyNodeError):
        correct(store, label="SOUL:b")
    with pytest.raises(NodeNotFoundError):
        correct(store, "missing", label="SOUL:b")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({}, "correction"),
        ({"label": " "}, "label"),
        ({"label": "SOUL:\x00"}, "label"),
        ({"properties": {"source": "x"}}, "properties.source"),
        ({"properties": {FIELD_PROVENANCE: {}}}, f"properties.{FIELD_PROVENANCE}"),
        ({"properties": {"role": b"x"}}, "properties.role"),
        ({"label": "SOUL:b", "recorded": "soon"}, "recorded_at"),
        ({"label": "SOUL:b", "recorded": 10**18}, "recorded_at"),
        ({"label": "SOUL:b", "trust": "admin"}, "trust"),
        ({"label": "SOUL:b", "source": ""}, "source"),
        ({"label": "SOUL:"}, "label"),
    ],
)
def test_a_bad_correction_names_its_field_and_changes_nothing(store: Any, changes: Any, field: str) -> None:
    first = store.put(node())
    with pytest.raises(InvalidInputError) as caught:
        correct(store, **changes)
    assert (caught.value.field, caught.value.where) == (field, "node 'n1'")
    assert store.get(ADA, "n1") == first
    assert store.history(ADA, "n1").testimonies == ()


def test_a_correction_does_not_bring_back_what_was_retracted(store: Any) -> None:
    store.put(node())
    assert kinds(store, Retract(ADA, "n1"), Correct(scope=ADA, node_id="n1", label="SOUL:b")) == [
        "retracted",
        "updated",
    ]
    assert store.query_nodes(ADA) == []
    assert store.get(ADA, "n1").state == "retracted"
