"""A block that cannot mean anything does not construct; the order of blocks is total."""

from __future__ import annotations

import itertools

import pytest

from promptkeel.blocks import CANONICAL, MemoryLane, PromptBlockSpec, StaticSource, in_prompt_order
from promptkeel.errors import InvalidDeclarationError
from promptkeel.render import RenderPolicy

TEXT = StaticSource("text")
LANE = MemoryLane("SOUL:")


def test_a_canonical_name_brings_its_tier_and_order():
    for name, canonical in CANONICAL.items():
        source = LANE if canonical.tier in ("profile", "session") else TEXT
        spec = PromptBlockSpec(name=name, source=source)
        assert (spec.tier, spec.order) == (canonical.tier, canonical.order)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "lower", "source": TEXT}, "capitals"),
        ({"name": "", "source": TEXT}, "capitals"),
        ({"name": "A\nB", "source": TEXT}, "capitals"),
        ({"name": "RULES", "source": "text"}, "must be a StaticSource"),
        ({"name": "RULES", "source": TEXT, "tier": "platform"}, "is always 'operating'"),
        ({"name": "USER_PROFILE", "source": TEXT}, "learned text|authored text belongs"),
        ({"name": "NOTES", "source": LANE, "tier": "platform"}, "learned text belongs in profile or session"),
        ({"name": "NOTES", "source": TEXT, "tier": "session"}, "authored text belongs in platform or operating"),
        ({"name": "NOTES", "source": TEXT, "tier": "nobility"}, "must be one of platform"),
        ({"name": "NOTES", "source": TEXT, "order": 1.5}, "whole number"),
        ({"name": "NOTES", "source": TEXT, "policy": {}}, "must be a RenderPolicy"),
    ],
)
def test_a_wrong_declaration_says_what_to_write(arguments, message):
    with pytest.raises(InvalidDeclarationError, match=message):
        PromptBlockSpec(**arguments)


def test_prompt_order_is_authority_then_order_then_name_whatever_the_order_of_declaration():
    specs = [
        PromptBlockSpec(name="USER_PROFILE", source=LANE),
        PromptBlockSpec(name="RULES", source=TEXT),
        PromptBlockSpec(name="BOUNDARIES", source=TEXT),
        PromptBlockSpec(name="FOCUS", source=MemoryLane("FOCUS:")),
        PromptBlockSpec(name="ASIDE", source=TEXT),
    ]
    for permutation in itertools.permutations(specs):
        names = [spec.name for spec in in_prompt_order(permutation)]
        assert names == ["BOUNDARIES", "RULES", "ASIDE", "USER_PROFILE", "FOCUS"]


def test_a_name_declared_twice_or_something_that_is_no_block_is_refused():
    spec = PromptBlockSpec(name="RULES", source=TEXT)
    with pytest.raises(InvalidDeclarationError, match="declared twice"):
        in_prompt_order([spec, spec])
    with pytest.raises(InvalidDeclarationError, match="PromptBlockSpec"):
        in_prompt_order(["RULES"])


def test_the_fingerprint_moves_with_anything_declared():
    base = {"name": "NOTES", "source": LANE}
    variants = [
        base,
        {**base, "tier": "session"},
        {**base, "order": 3},
        {**base, "name": "OTHER"},
        {**base, "source": MemoryLane("SOUL:", profile_fields={"role"})},
        {**base, "source": MemoryLane("SOU")},
        {**base, "policy": RenderPolicy(max_facts=3)},
    ]
    fingerprints = [PromptBlockSpec(**arguments).fingerprint for arguments in variants]
    assert len(set(fingerprints)) == len(variants)
    assert fingerprints[0] == PromptBlockSpec(**base).fingerprint
