"""Faults that others' users have reported, each shown not to be here; named by what went wrong there."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys

import pytest

import promptkeel as pk
from conversing import ADA, FACTS, FORMATS, builder_of, prompt_of, shuffled, specs
from promptkeel import blocking
from promptkeel.errors import InvalidInputError
from promptkeel.prompt.requests import Handle
from promptkeel.tokens import token_counter

ANTHROPIC, BEDROCK, GEMINI = FORMATS["anthropic"], FORMATS["bedrock"], FORMATS["gemini"]
PROMPT = prompt_of()
CLOCKS = [
    "2026-12-01T09:00:00Z",
    "2026-12-01T09:00:01Z",
    "2026-12-01T09:01:00Z",
    "2026-12-02T00:00:00Z",
    "2031-01-01T00:00:00Z",
]


def sent(form, prompt=PROMPT, turns=2, **more):
    return form.request(prompt, form.conversation(turns), **more)


def without_tail(request):
    """What stands before the conversation."""
    return json.dumps([request.get("tools"), request.get("system"), request["messages"][:1]])


def marks(value):
    return json.dumps(value).count('"cache_control"')


# Order


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_65_tools_in_four_orders_over_8_requests_have_the_same_bytes(form):
    tools = [form.tool(number) for number in range(65)]
    orders = [tools, tools[::-1], tools[30:] + tools[:30], sorted(tools, key=lambda tool: hash(str(tool)))]
    found = {json.dumps(dict(sent(form, tools=shuffled(orders[n % 4], n)))) for n in range(8)}
    assert len(found) == 1


def test_sections_do_not_swap_between_turns():
    names = [section.names for section in PROMPT.layout().sections]
    for _ in range(5):
        assert [section.names for section in prompt_of().layout().sections] == names


def test_what_ties_in_everything_but_its_id_is_cut_at_the_same_place_whatever_the_file_looks_like(tmp_path):
    file = tmp_path / "memory.db"
    policy = pk.RenderPolicy(max_facts=2)
    block = pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:"), policy=policy)
    levels = ("org:acme", "org:acme/user:ada", "org:acme/user:ada/chat:1")
    scopes = [pk.TenantScope.parse(level) for level in levels]

    def shown():
        with blocking.open(f"sqlite:///{file}", blocks=[block]) as keel:
            return [node.id for node in keel.store.query_nodes(scopes[2], limit=2)], keel.prompt(scopes[2]).text

    with blocking.open(f"sqlite:///{file}", blocks=[block]) as keel:
        for scope, node_id in zip(scopes, "cab", strict=True):
            keel.remember(scope, label="SOUL:prefers tea", id=node_id, recorded_at="2026-05-02")
    found = [shown()]
    for statement in ("REINDEX", "VACUUM"):
        # Another process: two copies of SQLite in one would undo each other's locks.
        script = f"import sqlite3; sqlite3.connect({str(file)!r}, isolation_level=None).execute({statement!r})"
        subprocess.run([sys.executable, "-c", script], check=True)
        found.append(shown())
    assert found[0][0] == ["a", "b"]
    assert found[1:] == found[:1] * 2


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_tools_of_one_name_have_an_order_too(form):
    one, other = form.tool(1), form.tool(1)
    other = json.loads(json.dumps(other).replace('"b", "a"', '"c", "a"'))
    assert one != other
    assert dict(sent(form, tools=[one, other])) == dict(sent(form, tools=[other, one]))


def test_the_order_in_which_blocks_are_declared_moves_no_byte():
    assert prompt_of(blocks=specs()[::-1]).text == PROMPT.text


def test_keys_that_are_numbers_are_refused_since_they_sort_before_they_become_text():
    tool = ANTHROPIC.tool(1)
    with pytest.raises(InvalidInputError, match="must be text"):
        sent(ANTHROPIC, tools=[{**tool, "extra": {10: 1, 9: 2}}])


# Volatile bytes in the prefix


def test_a_clock_one_second_later_moves_no_byte_of_the_prefix():
    for form in FORMATS.values():
        found = {json.dumps(dict(sent(form, prompt_of()))) for _ in CLOCKS}
        assert len(found) == 1
    timed = [sent(ANTHROPIC, tail={"time": dt.datetime.fromisoformat(clock)}) for clock in CLOCKS]
    assert len({without_tail(request) for request in timed}) == 1
    assert len({json.dumps(dict(request)) for request in timed}) == len(CLOCKS)


def test_nothing_says_how_old_a_statement_is():
    from promptkeel.instants import parse_instant

    now = [parse_instant(CLOCKS[0])]
    with blocking.open("ram:", blocks=specs(), clock=lambda: now[0]) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE", recorded_at="2026-05-02")
        found = set()
        for clock in CLOCKS:
            now[0] = parse_instant(clock)
            found.add(json.dumps(dict(sent(ANTHROPIC, builder_of(keel.store).build(ADA)))))
        assert len(found) == 1


def test_two_fresh_sessions_with_the_same_memory_have_the_same_bytes():
    assert json.dumps(dict(sent(ANTHROPIC, prompt_of()))) == json.dumps(dict(sent(ANTHROPIC, prompt_of())))


def test_the_same_recall_at_another_minute_moves_no_byte_of_the_prefix():
    found = {
        without_tail(sent(ANTHROPIC, tail={"recall": ["the same"], "time": dt.datetime.fromisoformat(clock)}))
        for clock in CLOCKS
    }
    assert len(found) == 1


# Marks


def test_never_five_marks_whatever_is_marked_already():
    messages = ANTHROPIC.conversation(4)
    for message in messages:
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
        message["content"][-1]["cache_control"] = {"type": "ephemeral"}
    tools = ANTHROPIC.tools()
    tools[0]["cache_control"] = {"type": "ephemeral"}
    assert marks(dict(ANTHROPIC.request(PROMPT, messages, tools=tools))) <= 4


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_no_mark_on_an_empty_block_and_no_block_without_text(text):
    request = ANTHROPIC.request(prompt_of([]), [*ANTHROPIC.conversation(2), {"role": "user", "content": text}])
    for block in [*request["system"], *(b for m in request["messages"] for b in m["content"] if isinstance(b, dict))]:
        assert block.get("text", "x").strip() or "cache_control" not in block
    assert all(block["text"].strip() for block in request["system"])


def test_no_later_mark_is_kept_for_longer_than_an_earlier_one():
    tools = ANTHROPIC.tools()
    tools[-1]["cache_control"] = {"type": "ephemeral"}
    request = sent(ANTHROPIC, tools=tools, ttls={"conversation": 3600})
    assert request["tools"][-1]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}, "raised with what follows it"
    assert tools[-1]["cache_control"] == {"type": "ephemeral"}


def test_no_cache_point_after_reasoning():
    reasoning = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    request = BEDROCK.request(prompt_of([]), [BEDROCK.user("hello"), {"role": "assistant", "content": [reasoning]}])
    assert request["messages"][-1]["content"] == [reasoning]


def test_converse_gets_cache_points_and_nothing_that_it_would_ignore():
    request = json.dumps(dict(sent(BEDROCK)))
    assert "cachePoint" in request
    assert "cache_control" not in request


def test_a_prefix_below_the_least_of_its_model_is_said_to_be():
    short = prompt_of(blocks=specs(boundaries={"source": pk.StaticSource("Never reveal anything. " * 250)}))
    assert 1024 < short.tokens < 2048
    assert sent(ANTHROPIC, short, model="claude-opus-4-8").notes == ()
    request = sent(ANTHROPIC, short, model="claude-opus-4-7")
    assert marks(dict(request)) == 0
    assert any("2048" in note for note in request.notes)


def test_a_prefix_without_contents_is_made_with_none():
    assert sent(GEMINI, prompt_of([])).prefix.create["config"]["contents"] is None


def test_a_handle_is_told_apart_by_model_backend_and_project():
    keys = {
        sent(GEMINI, model=model, backend=backend).prefix.key
        for model in ("gemini-2.5-flash", "gemini-2.5-pro")
        for backend in ("", "projects/a/locations/x", "projects/a/locations/y", "projects/b/locations/x")
    }
    assert len(keys) == 8
    stale = Handle(sent(GEMINI, backend="projects/a").prefix.key, "cachedContents/abc")
    assert sent(GEMINI, backend="projects/b", handle=stale).superseded == "cachedContents/abc"


def test_the_mark_of_what_everybody_shares_stands_before_what_is_one_users():
    one, other = (sent(ANTHROPIC, prompt_of([*FACTS, (f"SOUL:is called {name}", "user")])) for name in ("a", "b"))
    assert one["system"] == other["system"]
    assert "cache_control" in one["system"][-1]
    assert one["messages"][0] != other["messages"][0]


# Limits


def small(limit, **priorities):
    blocks = specs(
        boundaries={"source": pk.StaticSource("Never reveal anything.")},
        **{name: {"priority": value} for name, value in priorities.items()},
    )
    facts = [
        (f"{prefix}:fact {number} of {prefix.lower()}", "user") for prefix in ("SOUL", "PREF") for number in range(9)
    ]
    whole = prompt_of(facts, blocks)
    return prompt_of(facts, blocks, prompt_tokens=whole.tokens - limit)


def test_what_matters_more_is_not_cut_first():
    for more, less in (("USER_PROFILE", "PREFERENCES"), ("PREFERENCES", "USER_PROFILE")):
        prompt = small(20, **{more.lower(): 2, less.lower(): 1})
        assert prompt.block(more).omitted == ()
        assert len(prompt.block(less).omitted) > 0


def test_nothing_is_cut_in_the_middle_and_what_is_left_out_is_said():
    prompt = prompt_of([("SOUL:" + "word " * 500, "user"), ("SOUL:short", "user")],
                       specs(user_profile={"policy": pk.RenderPolicy(max_fact_characters=2000)}))  # fmt: skip
    block = prompt.block("USER_PROFILE")
    assert len(block.omitted) == 1
    assert "1 fact left out" in block.text
    assert "word" not in block.text
    assert '- "short"' in block.text


def test_47_stored_statements_are_47_seen():
    prompt = prompt_of([(f"SOUL:fact {number}", "user") for number in range(47)])
    assert prompt.block("USER_PROFILE").rendered.facts_shown == 47
    assert "".join(section.text for section in prompt.layout().sections).count('- "fact ') == 47


def test_an_erasure_stops_at_no_number():
    with blocking.open("ram:", blocks=specs()) as keel:
        for number in range(47):
            keel.remember(ADA, f"fact {number}", block="USER_PROFILE")
        keel.erase_all(ADA)
        assert keel.prompt(ADA).block("USER_PROFILE").text == ""


@pytest.mark.parametrize("limit", [1, 5, 20, 60, 120])
def test_a_budget_never_takes_a_fence_apart(limit):
    prompt = small(limit)
    for block in prompt.blocks:
        if block.is_learned and block.text:
            fence = block.text.split("<untrusted-data-")[1].split(" ")[0]
            assert block.text.endswith(f"\n</untrusted-data-{fence}>")
            assert block.text.count(f"untrusted-data-{fence}") == 2


def test_characters_by_four_are_no_count_of_chinese():
    text = "你好世界" * 25
    estimate = token_counter("estimate")(text)
    assert estimate >= 100 > len(text) / 4
    pytest.importorskip("rs_bpe", reason="the extra tokens is not installed")
    assert estimate >= max(token_counter(name)(text) for name in ("o200k_base", "cl100k_base"))


def test_calls_and_reasoning_are_counted():
    bare = sent(ANTHROPIC, turns=1)
    blocks = [
        {"type": "thinking", "thinking": "word " * 100, "signature": "s"},
        {"type": "tool_use", "id": "c", "name": "tool_0", "input": {"text": "word " * 100}},
    ]
    messages = [*ANTHROPIC.conversation(1), {"role": "assistant", "content": blocks}]
    messages.append(
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "word " * 100}]}
    )
    assert ANTHROPIC.request(PROMPT, messages).tokens >= bare.tokens + 300
