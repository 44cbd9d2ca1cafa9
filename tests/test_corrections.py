"""A correction puts a value on the right node with its provenance; the newest by its instant wins, and all are kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import promptkeel as pk
from promptkeel import blocking
from promptkeel.errors import InvalidInputError, ReadOnlyNodeError

ADA = pk.TenantScope.parse("org:acme/user:ada")
BLOCKS = [
    pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:", profile_fields={"role"})),
    pk.PromptBlockSpec(name="PREFERENCES", source=pk.MemoryLane("PREFERENCE:")),
]


@pytest.fixture(params=["ram", "sqlite"])
def keel(request, tmp_path):
    url = "ram:" if request.param == "ram" else f"sqlite:///{tmp_path / 'memory.db'}"
    with blocking.open(url, blocks=BLOCKS) as opened:
        yield opened


def role_of(keel):
    found = [fact for fact in keel.facts(ADA, "USER_PROFILE") if fact.field == "role"]
    return (found[0].text, found[0].source) if found else None


@given(st.permutations(range(4)))
def test_the_newest_correction_wins_whatever_the_order_of_arrival(order):
    with blocking.open("ram:", blocks=BLOCKS) as keel:
        node = keel.remember(ADA, "prefers tea", block="USER_PROFILE", recorded_at="2026-01-01")
        newest = -1
        for position in order:
            keel.correct(
                ADA, node.id, properties={"role": f"role {position}"}, source=f"s{position}",
                recorded_at=f"2026-02-0{position + 1}",
            )  # fmt: skip
            newest = max(newest, position)
            # At no time does an older one revert a newer one.
            assert role_of(keel) == (f"role {newest}", f"s{newest}")
        history = keel.why(ADA, node.id).history
        shown = {version.properties.get("role") for version in history.versions}
        late = {testimony.properties.get("role") for testimony in history.testimonies}
        assert {f"role {position}" for position in range(4)} <= shown | late


def test_why_shows_the_chain_of_values_with_who_said_each_and_when(keel):
    node = keel.remember(ADA, "prefers tea", block="USER_PROFILE", source="onboarding", recorded_at="2026-01-01")
    keel.correct(ADA, node.id, text="prefers coffee", source="chat", recorded_at="2026-02-01")
    keel.correct(ADA, node.id, properties={"role": "CTO"}, source="user-correction", recorded_at="2026-03-01")
    keel.correct(ADA, node.id, text="prefers cocoa", source="old letter", recorded_at="2026-01-15")
    why = keel.why(ADA, node.id)
    assert why.blocks == ("USER_PROFILE",)
    assert [(version.label, version.source) for version in why.history.versions] == [
        ("SOUL:prefers tea", "onboarding"),
        ("SOUL:prefers coffee", "chat"),
        ("SOUL:prefers coffee", "chat"),
    ]
    (late,) = why.history.testimonies
    assert (late.kind, late.source) == ("outdated", "old letter")
    text = keel.prompt(ADA).text
    assert '[recorded 2026-02-01, source=chat]\n- "prefers coffee"' in text
    assert '[recorded 2026-03-01, source=user-correction]\n- role: "CTO"' in text


@pytest.mark.parametrize(("block", "field"), [("PREFERENCES", "role"), ("USER_PROFILE", "nickname")])
def test_a_correction_that_no_declared_field_would_show_is_refused(keel, block, field):
    node = keel.remember(ADA, "prefers tea", block=block)
    with pytest.raises(InvalidInputError, match="no block that shows label") as caught:
        keel.correct(ADA, node.id, properties={field: "x"})
    assert caught.value.field == f"properties.{field}"
    assert keel.get(ADA, node.id) == node


def test_a_correction_is_of_the_node_that_it_names_alone(keel):
    first = keel.remember(ADA, "prefers tea", block="USER_PROFILE")
    second = keel.remember(ADA, "likes chess", block="USER_PROFILE")
    above = keel.remember(ADA.parent, "ships on Friday", block="USER_PROFILE")
    keel.correct(ADA, first.id, properties={"role": "CTO"})
    assert keel.get(ADA, second.id) == second
    with pytest.raises(ReadOnlyNodeError):
        keel.correct(ADA, above.id, properties={"role": "CEO"})
    assert keel.get(ADA, above.id) == above
