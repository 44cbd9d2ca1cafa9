"""Whatever declaration constructs also resolves; whatever cannot mean anything says what to write instead."""

from __future__ import annotations

import anyio
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import promptkeel as pk
from promptkeel.blocks import CANONICAL, CHANNELS, LAYERS, PERMISSIONS, TIERS, FailurePolicy
from promptkeel.blocks.stored import StoredSource
from promptkeel.model import BlockFact, BlockRevision

ADA = pk.TenantScope.parse("org:acme/user:ada")
SHARED = ("deployment", "tenant", "scope")


class Own:
    """A caller's own source."""

    kind = "own"
    sharing = SHARED
    declared = ("own",)

    def __init__(self, is_learned):
        self.is_learned = is_learned

    def load(self, scope):
        return BlockRevision(
            content=f"own of {scope}", revision="r", facts=(BlockFact("own"),) if self.is_learned else None
        )


class OwnLater(Own):
    """The same, asynchronous."""

    async def load(self, scope):
        await anyio.lowlevel.checkpoint()
        return Own.load(self, scope)


async def later(scope):
    return f"for {scope}", "r"


async def open_later(_):
    return True


nonsense = st.sampled_from([None, 0, 1, -1, "", "x", True, 1.5, [], {}, b"", float("nan"), object()])
SOURCES = [
    pk.StaticSource("static"),
    pk.FileSource(__file__, max_bytes=10**6),
    pk.ComputedSource(lambda scope: (f"for {scope}", "r")),
    pk.ComputedSource(later),
    pk.MemoryLane("SOUL:", profile_fields={"role"}),
    StoredSource("deployment", required=False),
    StoredSource("scope", learned=True),
    Own(is_learned=True),
    Own(is_learned=False),
    OwnLater(is_learned=True),
    "static",
    None,
    pk.StaticSource,
    object(),
]


def mostly(*values):
    return st.sampled_from(values * 4) | nonsense


declarations = st.fixed_dictionaries(
    {"name": mostly(*CANONICAL, "NOTES", "HABITS"), "source": st.sampled_from(SOURCES)},
    optional={
        "tier": mostly(None, *TIERS),
        "shared": mostly(None, *SHARED),
        "layer": mostly(None, *LAYERS),
        "order": mostly(None, 3, 10**30),
        "channel": mostly(None, *CHANNELS),
        "policy": mostly(pk.RenderPolicy(), pk.RenderPolicy(max_facts=1)),
        "render_when": mostly(None, lambda _: True, lambda _: False, open_later),
        "gate_timeout": mostly(20, 20.5),
        "on_failure": mostly(None, "fail_closed", "omit", "last_known_good", FailurePolicy("omit")),
        "timeout": mostly(None, 20, 20.5),
        "inherit": mostly(None, True, False),
        "permissions": mostly(None, ["read"], {"read", "add"}, frozenset(PERMISSIONS)),
    },
)


@settings(max_examples=400)
@given(st.lists(declarations, min_size=1, max_size=6))
def test_every_declaration_that_constructs_also_resolves(given_declarations):
    specs, reasons = {}, []
    for fields in given_declarations:
        try:
            spec = pk.PromptBlockSpec(**fields)
        except pk.InvalidDeclarationError as error:
            reasons.append(error.reason)
            continue
        assert type(spec.inherit) is bool
        assert spec.permissions >= {"read"}
        assert spec.shared in spec.source.sharing
        assert attrs.evolve(spec).fingerprint == spec.fingerprint
        specs[spec.name] = spec

    assert all(len(reason) > 10 for reason in reasons)

    async def main():
        async with pk.open("ram:", blocks=list(specs.values())) as keel:
            prompt = await keel.prompt(ADA)
            assert {block.name for block in prompt.blocks} == set(specs)
            assert {block.state for block in prompt.blocks} <= {"fresh", "gated"}
            assert (await keel.prompt(ADA)).text == prompt.text
            needed = [s for s in specs.values() if s.shared != "deployment" and s.on_failure.action != "omit"]
            if needed:
                with pytest.raises(pk.BlockResolutionError, match="needs a scope"):
                    await keel.prompt()
            else:
                alone = await keel.prompt()
                assert {block.name for block in alone.blocks} | set(alone.left_out) == set(specs)

    anyio.run(main)


TEXT = pk.StaticSource("text")
LANE = pk.MemoryLane("SOUL:")


def needs_two(_, __):
    return True


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "BOUNDARIES", "source": TEXT, "on_failure": "omit"}, "on_failure: is always 'fail_closed'"),
        ({"name": "BOUNDARIES", "source": TEXT, "on_failure": "last_known_good"}, "is always 'fail_closed'"),
        ({"name": "BOUNDARIES", "source": TEXT, "render_when": lambda _: True}, "render_when: is always None"),
        ({"name": "BOUNDARIES", "source": TEXT, "inherit": False}, "inherit: is always True"),
        ({"name": "BOUNDARIES", "source": TEXT, "layer": "volatile"}, "layer: is always 'stable'"),
        ({"name": "ONBOARDING", "source": TEXT, "inherit": True}, "inherit: is always False"),
        ({"name": "NOTES", "source": LANE, "shared": "deployment"}, "MemoryLane can only be shared as scope"),
        ({"name": "NOTES", "source": TEXT, "shared": "everyone"}, "deployment or tenant or scope"),
        ({"name": "NOTES", "source": TEXT, "layer": "solid"}, "layer: must be one of stable, volatile"),
        ({"name": "NOTES", "source": TEXT, "channel": "user"}, "channel: is always 'system' for authored text"),
        ({"name": "NOTES", "source": LANE, "channel": "radio"}, "None or one of system, user, tool_result"),
        ({"name": "NOTES", "source": LANE, "inherit": 1}, "inherit: must be True or False"),
        ({"name": "NOTES", "source": TEXT, "permissions": {"read", "append"}}, "authored text are always"),
        ({"name": "NOTES", "source": LANE, "permissions": {"add"}}, "must hold 'read'"),
        ({"name": "NOTES", "source": LANE, "permissions": {"read", "erase"}}, "'erase' is none of read, append"),
        ({"name": "NOTES", "source": LANE, "permissions": "read"}, "must be a set of names"),
        ({"name": "NOTES", "source": LANE, "render_when": True}, "callable with one argument"),
        ({"name": "NOTES", "source": LANE, "render_when": needs_two}, "callable with one argument"),
        ({"name": "NOTES", "source": LANE, "gate_timeout": 0}, "gate_timeout: must be a number of seconds above 0"),
        ({"name": "NOTES", "source": LANE, "on_failure": "give up"}, "one of fail_closed, omit, last_known_good"),
        ({"name": "NOTES", "source": LANE, "on_failure": 3}, "must be a FailurePolicy, or one of"),
        ({"name": "NOTES", "source": LANE, "timeout": 1}, "which bounds its own reads; leave it out"),
        ({"name": "NOTES", "source": TEXT, "timeout": 1}, "static text, which is never waited for"),
        ({"name": "NOTES", "source": pk.FileSource("x"), "timeout": True}, "timeout: must be a number of seconds"),
        ({"name": "NOTES", "source": pk.FileSource("x"), "timeout": float("inf")}, "must be a number of seconds"),
    ],
)
def test_a_wrong_declaration_names_block_and_field_and_says_what_to_write(fields, message):
    with pytest.raises(pk.InvalidDeclarationError, match=message) as caught:
        pk.PromptBlockSpec(**fields)
    assert f"block {fields['name']}: " in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pk.ComputedSource(needs_two), "callable with one argument, the scope"),
        (lambda: pk.ComputedSource(lambda: ("text", "r")), "callable with one argument, the scope"),
        (lambda: FailurePolicy("omit", max_age=3), "goes with last_known_good only"),
        (lambda: FailurePolicy("last_known_good", max_age=0), "seconds above 0"),
        (lambda: FailurePolicy("last_known_good", max_age="long"), "seconds above 0"),
        (lambda: FailurePolicy("last_known_good", mark_text=1), "True or False"),
        (lambda: FailurePolicy(["omit"]), "one of fail_closed"),
    ],
)
def test_a_wrong_source_or_policy_says_what_to_write(make, message):
    with pytest.raises(pk.InvalidDeclarationError, match=message):
        make()


@pytest.mark.parametrize("attribute", ["kind", "is_learned", "sharing", "declared", "load"])
def test_an_own_source_must_offer_all_that_the_protocol_names(attribute):
    class Lacking(Own):
        pass

    members = {"kind": 1, "is_learned": "no", "sharing": ("galaxy",), "declared": [], "load": None}
    source = Lacking(is_learned=False)
    setattr(source, attribute, members[attribute])
    with pytest.raises(pk.InvalidDeclarationError, match="block NOTES: source"):
        pk.PromptBlockSpec(name="NOTES", source=source)


def test_what_is_left_out_comes_from_the_name_and_the_source():
    boundaries = pk.PromptBlockSpec(name="BOUNDARIES", source=TEXT)
    assert (boundaries.shared, boundaries.layer, boundaries.channel) == ("deployment", "stable", "system")
    assert (boundaries.on_failure.action, boundaries.inherit, boundaries.timeout) == ("fail_closed", True, None)
    focus = pk.PromptBlockSpec(name="FOCUS", source=LANE)
    assert (focus.tier, focus.layer, focus.shared, focus.channel) == ("session", "volatile", "scope", None)
    assert (focus.on_failure.action, focus.permissions) == ("omit", {"read"})
    clock = pk.PromptBlockSpec(name="CLOCK", source=pk.ComputedSource(later))
    assert (clock.shared, clock.timeout, clock.gate_timeout) == ("scope", 5.0, 0.5)
    assert FailurePolicy("last_known_good").max_age == 300
    assert pk.PromptBlockSpec(name="ONBOARDING", source=TEXT).inherit is False


def test_the_fingerprint_covers_what_changes_bytes_and_nothing_else():
    base = {"name": "NOTES", "source": Own(is_learned=True)}
    moved = [
        {"layer": "volatile"},
        {"shared": "tenant"},
        {"channel": "user"},
        {"on_failure": "last_known_good"},
        {"on_failure": FailurePolicy("last_known_good", mark_text=False)},
    ]
    prints = [pk.PromptBlockSpec(**base, **fields).fingerprint for fields in [{}, *moved]]
    assert len(set(prints)) == len(prints)
    for fields in ({"timeout": 3}, {"render_when": open_later}, {"inherit": False}, {"permissions": PERMISSIONS}):
        assert pk.PromptBlockSpec(**base, **fields).fingerprint == prints[0]


def test_blocks_stand_by_layer_authority_and_how_widely_they_are_shared():
    def computed(name, shared, **fields):
        return pk.PromptBlockSpec(name=name, source=pk.ComputedSource(later), shared=shared, **fields)

    specs = [
        computed("A", "scope", order=1),
        computed("B", "tenant", order=1),
        computed("C", "deployment", order=500),
        computed("D", "deployment", layer="volatile"),
        computed("E", "scope", tier="platform"),
        pk.PromptBlockSpec(name="USER_PROFILE", source=LANE),
    ]
    assert [spec.name for spec in pk.PromptBlockResolver(specs, memory=pk.open_store("ram:")).specs] == [
        "E", "C", "B", "A", "USER_PROFILE", "D",
    ]  # fmt: skip
