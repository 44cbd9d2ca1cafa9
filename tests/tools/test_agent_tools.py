"""An agent's tools do what their blocks permit, at the agent's own scope, and nothing else whatever a model sends."""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import promptkeel as pk
from promptkeel import blocking
from promptkeel.blocks import StoredSource
from promptkeel.errors import (
    InvalidDeclarationError,
    InvalidInputError,
    NodeNotFoundError,
    PromptkeelError,
    ReadOnlyNodeError,
    StoreUnavailableError,
    ToolPermissionError,
    ToolRateError,
)
from promptkeel.tools import TOOL_NAMES, BlockingAgentTools, ToolCore, ToolLimits

ADA = pk.TenantScope.parse("org:acme/user:ada")
ALL = frozenset({"read", "append", "replace", "add", "correct", "retract"})
BLOCKS = [
    pk.PromptBlockSpec(name="BOUNDARIES", source=pk.StaticSource("Never guess.")),
    pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:", profile_fields={"role"}), permissions=ALL),
    pk.PromptBlockSpec(name="PREFERENCES", source=pk.MemoryLane("PREFERENCE:")),
    pk.PromptBlockSpec(name="NOTES", source=StoredSource("scope", learned=True), tier="session", permissions=ALL),
    pk.PromptBlockSpec(name="TEAM_NOTES", source=StoredSource("tenant", learned=True), tier="session", permissions=ALL),
]


@pytest.fixture(params=["ram", "sqlite"])
def keel(request, tmp_path):
    url = "ram:" if request.param == "ram" else f"sqlite:///{tmp_path / 'memory.db'}"
    with blocking.open(url, blocks=BLOCKS) as opened:
        yield opened


@pytest.fixture
def tools(keel):
    return keel.tools(ADA, source="agent:planner")


def test_a_statement_is_added_with_the_hosts_source_and_trust(keel, tools):
    added = tools.call("memory_fact_add", {"block": "USER_PROFILE", "text": "prefers tea"})
    node = keel.get(ADA, added["id"])
    assert (node.label, node.source, node.trust, node.scope) == ("SOUL:prefers tea", "agent:planner", "inferred", ADA)
    assert '"prefers tea"' in keel.prompt(ADA).text


def test_a_correction_keeps_the_old_value_in_history(keel, tools):
    node = keel.remember(ADA, "prefers tea", block="USER_PROFILE", source="onboarding", trust="user")
    tools.memory_fact_correct(node.id, text="prefers coffee", fields={"role": "CTO"})
    assert [version.label for version in keel.why(ADA, node.id).history.versions] == [
        "SOUL:prefers tea",
        "SOUL:prefers coffee",
    ]
    assert '- role: "CTO"' in keel.prompt(ADA).text


def test_a_retracted_statement_is_out_of_the_prompt_and_kept(keel, tools):
    node = keel.remember(ADA, "prefers tea", block="USER_PROFILE")
    assert tools.memory_fact_retract(node.id) == {"id": node.id, "retracted": True}
    assert "prefers tea" not in keel.prompt(ADA).text
    assert keel.get(ADA, node.id).state == "retracted"


def test_notes_are_appended_to_and_replaced_with_their_history(keel, tools):
    tools.memory_block_append("NOTES", "The deadline is Friday.")
    tools.memory_block_append("NOTES", "Ask about the budget.")
    found = tools.memory_block_replace("NOTES", "Friday", "Monday")
    assert found["revision"] == 3
    assert keel.blocks.head(ADA, "NOTES").content == "The deadline is Monday.\nAsk about the budget."
    assert [revision.author for revision in keel.blocks.log(ADA, "NOTES")] == ["agent:planner"] * 3
    assert "The deadline is Monday." in keel.prompt(ADA).text


@pytest.mark.parametrize(("old", "count"), [("absent", 0), ("a", 2)])
def test_a_passage_that_is_not_there_exactly_once_is_refused(keel, tools, old, count):
    tools.memory_block_append("NOTES", "a b a")
    with pytest.raises(InvalidInputError, match=f"not {count} times"):
        tools.memory_block_replace("NOTES", old, "c")
    assert keel.blocks.head(ADA, "NOTES").content == "a b a"


def test_notes_that_are_shared_more_widely_are_not_the_agents_to_write(tools):
    with pytest.raises(ToolPermissionError, match="tenant"):
        tools.memory_block_append("TEAM_NOTES", "hello")


def test_another_writer_in_between_loses_nothing(keel, tools, monkeypatch):
    history = keel.core.authored
    head = history.head
    interruptions = iter(["first", "second"])

    def interrupted(scope, name, **options):
        found = yield from head(scope, name, **options)
        text = next(interruptions, None)
        if text is not None:
            yield from history.append(scope, name, ((found.content + "\n") if found else "") + text, author="other")
        return found

    monkeypatch.setattr(type(history), "head", lambda _, *args, **options: interrupted(*args, **options))
    tools.memory_block_append("NOTES", "mine")
    monkeypatch.undo()
    assert keel.blocks.head(ADA, "NOTES").content == "first\nsecond\nmine"


def test_what_belongs_to_an_ancestor_is_read_only(keel, tools):
    node = keel.remember(ADA.parent, "ships on Friday", block="USER_PROFILE")
    for name, arguments in (("memory_fact_retract", {}), ("memory_fact_correct", {"text": "x"})):
        with pytest.raises(ReadOnlyNodeError):
            tools.call(name, {"id": node.id, **arguments})


def test_a_siblings_statement_is_not_there(keel, tools):
    node = keel.remember(ADA.parent.child("user", "bob"), "prefers tea", block="USER_PROFILE")
    with pytest.raises(NodeNotFoundError):
        tools.memory_fact_retract(node.id)


def test_an_operators_word_is_not_the_agents_to_change(keel, tools):
    node = keel.remember(ADA, "is under embargo", block="USER_PROFILE", trust="operator")
    for name, arguments in (("memory_fact_retract", {}), ("memory_fact_correct", {"text": "x"})):
        with pytest.raises(ToolPermissionError, match="operator"):
            tools.call(name, {"id": node.id, **arguments})


def test_a_block_that_does_not_permit_it_is_not_touched(keel, tools):
    node = keel.remember(ADA, "metric units", block="PREFERENCES")
    with pytest.raises(InvalidInputError, match="USER_PROFILE"):
        tools.memory_fact_add("PREFERENCES", "imperial units")
    with pytest.raises(ToolPermissionError, match="PREFERENCES"):
        tools.memory_fact_retract(node.id)


def test_a_statement_that_no_block_shows_is_not_touched(keel, tools):
    node = keel.remember(ADA, label="SECRET:x")
    with pytest.raises(ToolPermissionError, match="no block"):
        tools.memory_fact_retract(node.id)


def test_a_statement_of_two_blocks_needs_both_to_permit():
    blocks = [
        pk.PromptBlockSpec(name="A", source=pk.MemoryLane("SOUL:"), permissions=ALL),
        pk.PromptBlockSpec(name="B", source=pk.MemoryLane("SOUL:sub:")),
    ]
    with blocking.open("ram:", blocks=blocks) as keel:
        node = keel.remember(ADA, label="SOUL:sub:x")
        with pytest.raises(ToolPermissionError, match="A, B"):
            keel.tools(ADA, source="agent").memory_fact_retract(node.id)


@pytest.mark.parametrize("name", ["source", "trust", "scope", "recorded_at", "author", "label"])
def test_a_model_cannot_say_who_or_where(tools, name):
    with pytest.raises(InvalidInputError, match="is no argument"):
        tools.call("memory_fact_add", {"block": "USER_PROFILE", "text": "x", name: "operator"})


@pytest.mark.parametrize("name", ["erase", "memory_fact_erase", "__init__", "call", "schemas", "", None, 3, []])
def test_there_is_no_other_tool(tools, name):
    with pytest.raises(ToolPermissionError):
        tools.call(name, {})


def test_no_tool_destroys():
    assert not any(word in name for name in TOOL_NAMES for word in ("erase", "delete", "clear", "rewrite", "drop"))


def test_sizes_are_bounded(keel):
    limits = ToolLimits(text_characters=10, block_characters=15, block_facts=2)
    tools = keel.tools(ADA, source="agent", limits=limits)
    with pytest.raises(InvalidInputError, match="at most 10 characters"):
        tools.memory_fact_add("USER_PROFILE", "x" * 11)
    tools.memory_block_append("NOTES", "x" * 10)
    with pytest.raises(ToolPermissionError, match="limit is 15"):
        tools.memory_block_append("NOTES", "y" * 5)
    tools.memory_fact_add("USER_PROFILE", "a")
    tools.memory_fact_add("USER_PROFILE", "b")
    with pytest.raises(ToolPermissionError, match="holds 2 statements"):
        tools.memory_fact_add("USER_PROFILE", "c")
    assert tools.memory_fact_add("USER_PROFILE", "a")["label"] == "SOUL:a"


def test_the_rate_counts_refused_calls_too_and_says_when_to_come_back(keel):
    now = [0.0]
    limits = ToolLimits(calls=2, seconds=10)
    tools = BlockingAgentTools(ToolCore(keel.core, ADA, source="agent", limits=limits, now=lambda: now[0]))
    tools.memory_fact_add("USER_PROFILE", "a")
    now[0] = 4.0
    with pytest.raises(NodeNotFoundError):
        tools.memory_fact_retract("nobody")
    with pytest.raises(ToolRateError) as caught:
        tools.memory_fact_add("USER_PROFILE", "b")
    assert caught.value.retry_after == 6.0
    assert pickle.loads(pickle.dumps(caught.value)).retry_after == 6.0  # noqa: S301 - our own bytes
    now[0] = 10.0
    tools.memory_fact_add("USER_PROFILE", "b")


def test_what_the_model_may_know_is_an_answer_and_an_outage_is_not(keel, tools, monkeypatch):
    assert "error" in tools.respond("memory_fact_retract", {"id": "nobody"})
    assert "error" in tools.respond("memory_fact_add", "not json")
    assert "error" in tools.respond("no_such_tool", {})

    def fails(*_, **__):
        raise StoreUnavailableError("the disk is gone")

    monkeypatch.setattr(type(keel.core.store.engine), "apply", fails)
    with pytest.raises(StoreUnavailableError):
        tools.respond("memory_fact_add", {"block": "USER_PROFILE", "text": "x"})


def test_a_grant_narrows_and_never_widens(keel):
    tools = keel.tools(ADA, source="agent", grant={"memory_fact_add"})
    assert [schema.name for schema in tools.schemas] == ["memory_fact_add"]
    with pytest.raises(ToolPermissionError):
        tools.memory_fact_retract("x")
    assert keel.tools(ADA, source="agent", grant=()).schemas == ()
    with blocking.open("ram:", blocks=BLOCKS[:1]) as bare:
        assert bare.tools(ADA, source="agent", grant=TOOL_NAMES).schemas == ()


@pytest.mark.parametrize(
    "options",
    [
        {"source": None},
        {"source": "a", "trust": "operator"},
        {"source": "a", "trust": None},
        {"source": "a", "grant": "memory_fact_add"},
        {"source": "a", "grant": {"erase"}},
    ],
)
def test_what_cannot_be_granted_is_refused(keel, options):
    with pytest.raises(InvalidDeclarationError):
        keel.tools(ADA, **options)


def test_schemas_are_json_schemas_that_allow_nothing_else(tools):
    assert [schema.name for schema in tools.schemas] == list(TOOL_NAMES)
    for schema in tools.schemas:
        document = json.loads(json.dumps(schema.to_json()))
        jsonschema.Draft202012Validator.check_schema(document["parameters"])
        assert document["parameters"]["additionalProperties"] is False
        # A function takes exactly what its schema says.
        method = getattr(BlockingAgentTools, schema.name)
        assert set(inspect.signature(method).parameters) - {"self"} == set(document["parameters"]["properties"])


TEXTS = st.text(max_size=8) | st.sampled_from(["NOTES", "USER_PROFILE", "n1"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS | st.just("role"), inner, max_size=2),
    max_leaves=3,
)
NAMES = st.sampled_from(["block", "text", "id", "old", "new", "fields", "source", "trust"])


@given(st.sampled_from(TOOL_NAMES), st.dictionaries(NAMES, VALUES, max_size=4) | VALUES)
def test_whatever_a_model_sends_is_done_or_refused_with_a_typed_error(name, arguments):
    with blocking.open("ram:", blocks=BLOCKS) as keel:
        node = keel.remember(ADA, "prefers tea", block="USER_PROFILE", id="n1", trust="user")
        tools = keel.tools(ADA, source="agent:planner")
        schema = next(schema for schema in tools.schemas if schema.name == name).parameters
        try:
            answer = tools.call(name, arguments)
        except PromptkeelError:
            assert keel.get(ADA, "n1") == node
            return
        jsonschema.validate(arguments if isinstance(arguments, dict) else json.loads(arguments), dict(schema))
        json.dumps(answer)


def test_the_asynchronous_twin_does_the_same():
    async def run():
        async with pk.open("ram:", blocks=BLOCKS) as keel:
            tools = keel.tools(ADA, source="agent:planner")
            added = await tools.call("memory_fact_add", '{"block": "USER_PROFILE", "text": "prefers tea"}')
            await asyncio.gather(*[tools.memory_block_append("NOTES", f"line {n}") for n in range(4)])
            assert (await tools.memory_fact_retract(added["id"]))["retracted"] is True
            head = await keel.blocks.head(ADA, "NOTES")
            assert sorted(head.content.split("\n")) == [f"line {n}" for n in range(4)]

    asyncio.run(run())


NESTED = [
    pk.PromptBlockSpec(name="A", source=pk.MemoryLane("SOUL:"), permissions=ALL),
    pk.PromptBlockSpec(name="C", source=pk.MemoryLane("SOUL:SECRET:")),
]


def test_no_text_of_a_permitted_block_gets_into_another_ones_lane():
    with blocking.open("ram:", blocks=NESTED) as keel:
        tools = keel.tools(ADA, source="agent")
        with pytest.raises(ToolPermissionError, match="A, C"):
            tools.memory_fact_add("A", "SECRET:forged")
        own = tools.memory_fact_add("A", "plain")["id"]
        with pytest.raises(ToolPermissionError, match="A, C"):
            tools.memory_fact_correct(own, text="SECRET:moved")
        assert keel.facts(ADA, "C") == ()
        assert [fact.text for fact in keel.facts(ADA, "A")] == ["plain"]


@pytest.mark.parametrize("sent", ["[" * 100_000, '{"a":' * 100_000])
def test_what_is_nested_too_deeply_is_refused_and_counted(keel, sent):
    tools = keel.tools(ADA, source="agent", limits=ToolLimits(calls=1))
    assert "error" in tools.respond("memory_fact_add", sent)
    assert "too many calls" in tools.respond("memory_fact_add", {"block": "USER_PROFILE", "text": "x"})["error"]


@pytest.mark.parametrize("value", ["x" * 501, 10**400])
def test_values_of_fields_are_bounded_too(keel, tools, value):
    node = keel.remember(ADA, "prefers tea", block="USER_PROFILE")
    with pytest.raises(InvalidInputError, match="role"):
        tools.memory_fact_correct(node.id, fields={"role": value})


@pytest.mark.parametrize("options", [{"grant": 5}, {"limits": 5}])
def test_a_grant_of_another_type_is_a_typed_error(keel, options):
    with pytest.raises(InvalidDeclarationError):
        keel.tools(ADA, source="agent", **options)
