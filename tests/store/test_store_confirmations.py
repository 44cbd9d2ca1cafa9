"""A statement that is remembered again: nothing that was given with it is lost, and nothing shown is replaced."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.model import FIELD_PROVENANCE, MemoryNode
from promptkeel.properties import dump_json
from promptkeel.scope import TenantScope
from promptkeel.store.decisions import extended_by
from promptkeel.store.operations import Correct, Outcome, Remember
from store.examples import ADA, node

PROVENANCE = {"source": "crm", "recorded_at": "2026-03-01T00:00:00Z", "trust": "user"}
SAID: dict[str, Any] = {"source": "crm", "recorded_at": "2026-03-01", "trust": "user"}


@pytest.fixture(params=["ram", "sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def remember(engine: Any, *, extends: bool = True, **fields: Any) -> Outcome:
    outcome: Outcome
    (outcome,) = engine.apply([Remember(node("other", **fields), extends=extends)])
    return outcome


def test_a_field_that_the_node_does_not_have_is_added_with_its_own_provenance(engine: Any) -> None:
    first = engine.apply([Remember(node(source="chat", recorded_at="2026-01-01", properties={"city": "Rome"}))])[0].node
    again = remember(engine, properties={"role": "CTO", "city": "Rome"}, **SAID)
    assert again.kind == "updated"
    found = engine.get(ADA, "n1")
    assert found == again.node
    assert dict(found.own_properties) == {"city": "Rome", "role": "CTO", FIELD_PROVENANCE: {"role": PROVENANCE}}
    assert (found.source, found.recorded, found.trust) == ("chat", first.recorded, None), "the statement's own stays"
    history = engine.history(ADA, "n1")
    assert history.versions == (first, found)
    assert [(said.source, dict(said.properties)) for said in history.testimonies] == [("crm", {})]
    assert remember(engine, properties={"role": "CTO"}, **SAID).kind == "unchanged"


def test_a_field_that_the_node_has_otherwise_is_in_its_history(engine: Any) -> None:
    engine.apply([Remember(node(properties={"role": "CTO", "level": 1}))])
    before = engine.get(ADA, "n1")
    again = remember(engine, properties={"role": "CEO", "level": True}, **SAID)
    assert (again.kind, again.node) == ("confirmed", before)
    assert engine.get(ADA, "n1") == before
    (said,) = engine.history(ADA, "n1").testimonies
    assert said.properties == {"role": "CEO", "level": True}
    assert (said.kind, said.source, said.trust, said.scope) == ("confirmed", "crm", "user", ADA.path)
    assert remember(engine, properties={"role": "CEO", "level": True}, **SAID).kind == "unchanged"
    assert remember(engine, properties={"role": "CFO"}, **SAID).kind == "confirmed", "not what was said before"
    assert len(engine.history(ADA, "n1").testimonies) == 2


def test_given_provenance_of_a_field_goes_with_it(engine: Any) -> None:
    engine.apply([Remember(node())])
    own = {"source": "badge", "recorded_at": "2020-01-01T00:00:00Z", "trust": "operator"}
    found = remember(engine, properties={"role": "CTO", "city": "Rome", FIELD_PROVENANCE: {"role": own}}, **SAID).node
    assert found is not None
    assert found.own_properties[FIELD_PROVENANCE] == {"role": own, "city": PROVENANCE}


def test_the_provenance_of_an_added_field_is_what_a_correction_has_to_be_newer_than(engine: Any) -> None:
    engine.apply([Remember(node(recorded_at="2026-01-01"))])
    remember(engine, properties={"role": "CTO"}, **SAID)
    engine.apply([Correct(scope=ADA, node_id="n1", properties={"role": "CEO"}, recorded="2026-02-01T00:00:00Z")])
    assert engine.get(ADA, "n1").own_properties["role"] == "CTO"


def test_properties_can_be_left_out_of_account(engine: Any) -> None:
    engine.apply([Remember(node(properties={"role": "CTO"}))])
    before = engine.get(ADA, "n1")
    assert remember(engine, extends=False, properties={"role": "CEO", "city": "Rome"}, **SAID).kind == "confirmed"
    assert engine.get(ADA, "n1") == before
    assert engine.history(ADA, "n1").testimonies[0].properties == {}


values = st.sampled_from([1, 1.0, True, "x", None, ["x"], {"a": 1}])
objects = st.dictionaries(st.sampled_from("abc"), values)


@given(has=objects, said=objects)
def test_every_property_is_in_the_node_as_it_was_added_to_it_or_said_otherwise(
    has: dict[str, Any], said: dict[str, Any]
) -> None:
    def made(properties: dict[str, Any]) -> MemoryNode:
        return MemoryNode(id="n1", scope=TenantScope.parse("org:a"), label="SOUL:x", properties=properties)

    extended, others = extended_by(made(has), made(said), None)
    shown = dict(extended.own_properties)
    provenance = shown.pop(FIELD_PROVENANCE, {})
    assert dump_json(shown) == dump_json({**said, **has})
    assert sorted(provenance) == sorted(said.keys() - has.keys())
    for name, value in said.items():
        same = name in shown and dump_json(shown[name]) == dump_json(value)
        assert same != (name in others)
    assert dump_json(others) == dump_json({name: said[name] for name in others})
