"""``promptkeel diff``: prompts, requests and texts, and what it says of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SCOPE = "org:acme/user:u1"


def saved(at, folder, name):
    path = folder / name
    path.write_text(at("prompt", "--json").out, encoding="utf-8")
    return str(path)


@pytest.fixture
def prompts(at, folder):
    """Two prompts, the later one after a correction."""
    node = at("remember", "--block", "USER_PROFILE", "--source", "chat", "--json", "prefers tea").document
    before = saved(at, folder, "before.json")
    found = at("correct", "--source", "user-correction", "--text", "prefers jam", node["node"]["id"])
    assert found.code == 0, found.err
    return before, saved(at, folder, "after.json"), node["node"]["id"]


def test_equal_prompts_are_equal_and_the_exit_code_is_zero(call, prompts):
    found = call("diff", prompts[0], prompts[0])
    assert (found.code, found.out) == (0, "equal, byte for byte\n")
    assert call("diff", "--json", prompts[0], prompts[0]).document == {"equal": True, "difference": None}


def test_a_correction_is_named_by_byte_block_fact_write_and_cost(call, prompts):
    before, after, node_id = prompts
    found = call("diff", "--json", "--model", "anthropic/claude-opus-4-8", before, after)
    assert found.code == 1
    difference = found.document["difference"]
    one, other = (json.loads(Path(path).read_text(encoding="utf-8"))["text"].encode() for path in (before, after))
    offset = difference["offset"]
    assert one[:offset] == other[:offset]
    assert one[offset] != other[offset]
    assert (difference["part"], difference["kind"]) == ("USER_PROFILE", "changed")
    assert [(each["change"], each["value"]) for each in difference["facts"]] == [
        ("gone", "prefers tea"), ("new", "prefers jam")
    ]  # fmt: skip
    assert {each["node_id"] for each in difference["facts"]} == {node_id}
    assert "source user-correction" in difference["facts"][1]["last_write"]
    assert difference["lost_tokens"] > 0
    assert difference["lost_dollars"] > 0


def test_people_get_the_same_in_lines(call, prompts):
    out = call("diff", *prompts[:2]).out
    assert "in USER_PROFILE, which is changed" in out
    assert "gone\tprefers tea" in out
    assert "cached tokens lost: about " in out


def test_a_prompt_and_its_text_are_the_same(call, at, folder, prompts):
    text = folder / "after.txt"
    text.write_text(at("prompt").out, encoding="utf-8")
    assert call("diff", prompts[1], str(text)).code == 0
    assert "USER_PROFILE" in call("diff", prompts[0], str(text)).out


def test_without_the_store_the_difference_is_still_told(call, prompts):
    found = call("diff", "--json", "--store", "elsewhere.db", *prompts[:2])
    assert found.code == 1
    assert [each["last_write"] for each in found.document["difference"]["facts"]] == [None, None]


def test_requests_are_compared_in_any_format(call, folder):
    request = {
        "model": "claude-opus-4-8", "max_tokens": 10, "system": "Be brief.",
        "tools": [{"name": "search", "input_schema": {}}], "messages": [{"role": "user", "content": "Hello"}],
    }  # fmt: skip
    (folder / "a.json").write_text(json.dumps(request))
    (folder / "b.json").write_text(json.dumps({"request": {**request, "system": "Be kind."}}))
    found = call("diff", "--json", "a.json", "b.json").document["difference"]
    assert (found["part"], found["kind"]) == ("system[0]", "changed")
    assert found["lost_dollars"] is not None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff", "is not UTF-8"),
        (b'{"a": 1}', "say which with --format"),
        (b'{"blocks": [1], "text": "x"}', "no prompt"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(call, folder, content, reason):
    (folder / "a").write_bytes(content)
    found = call("diff", "a", "a")
    assert found.code == 1
    assert reason in found.err
    assert found.err.count("\n") == 1


def test_a_request_is_not_compared_with_a_text(call, folder):
    (folder / "a.json").write_text(json.dumps({"contents": []}))
    (folder / "b").write_text("text")
    assert "two of one kind" in call("diff", "a.json", "b").err


def test_the_command_line_is_checked(call, folder):
    (folder / "a").write_text("text")
    assert call("diff", "a", "missing").code == 2
    assert call("diff", "-", "-").code == 2
    assert call("diff", "--model", "opus", "a", "a").code == 2


def test_standard_input_is_one_of_the_two(process, folder):
    (folder / "a").write_text("Be brief.")
    assert process("diff", "a", "-", stdin=b"Be brief.").code == 0
