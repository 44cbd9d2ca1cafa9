"""Each command does to memory what it says, and shows it."""

from __future__ import annotations

import hashlib
import json

import pytest

SCOPE = "org:acme/user:u1"


def test_what_is_remembered_is_a_fact_with_its_provenance(at, remembered):
    node_id = remembered(
        "prefers tea", "--source", "onboarding", "--recorded-at", "2026-05-02T10:00:00+02:00", "--trust", "user"
    )
    (block,) = at("facts", "--block", "USER_PROFILE", "--json").document["blocks"]
    assert block["facts"] == [
        {
            "value": "prefers tea",
            "field": None,
            "source": "onboarding",
            "recorded_at": "2026-05-02T08:00:00Z",
            "trust": "user",
            "node_id": node_id,
        }
    ]
    assert at("facts").out.splitlines() == [
        "block\tfact\tsource\trecorded\ttrust\tid",
        f"USER_PROFILE\tprefers tea\tonboarding\t2026-05-02\tuser\t{node_id}",
    ]


def test_a_label_is_prefix_and_text_at_once(at):
    assert (
        at("remember", "--label", "FOCUS:ships on Friday", "--id", "n1").out == "inserted n1: FOCUS:ships on Friday\n"
    )


def test_a_time_of_none_is_not_recorded(at, remembered):
    node_id = remembered("a", "--recorded-at", "none")
    assert at("why", node_id, "--json").document["node"]["recorded_at"] is None


def test_saying_it_again_is_a_confirmation(at, remembered):
    first = remembered("prefers tea", "--source", "onboarding")
    assert remembered("prefers tea", "--source", "chat") == first
    (testimony,) = at("history", first, "--json").document["testimonies"]
    assert (testimony["kind"], testimony["source"]) == ("confirmed", "chat")
    assert "confirmed by chat" in at("history", first).out


def test_a_correction_changes_the_prompt_and_keeps_the_old_version(at, remembered):
    node_id = remembered("prefers tea")
    version = at("why", node_id, "--json").document["node"]["version"]
    found = at("correct", node_id, "--text", "prefers coffee", "--source", "chat", "--expected", version)
    assert found.out == f"updated {node_id}: SOUL:prefers coffee\n"
    assert [each["label"] for each in at("history", node_id, "--json").document["versions"]] == [
        "SOUL:prefers tea",
        "SOUL:prefers coffee",
    ]
    assert '"prefers coffee"' in at("prompt").out


def test_fields_are_set_as_json_where_they_are_json_and_taken_away(at, remembered):
    node_id = remembered("profile", "--set", "role=CTO")
    at("correct", node_id, "--lane", "USER_PROFILE=SOUL:role,age", "--set", "age=41", "--unset", "role")
    assert at("why", node_id, "--json").document["node"]["properties"]["age"] == 41
    facts = at("facts", "--lane", "USER_PROFILE=SOUL:role,age", "--json").document["blocks"][0]["facts"]
    assert [fact["value"] for fact in facts] == ["profile", "age: 41"]


def test_what_is_retracted_leaves_the_prompt_and_stays_in_history(at, remembered):
    node_id = remembered("prefers tea")
    assert at("retract", node_id).code == 0
    assert at("prompt").out == ""
    assert at("why", node_id, "--json").document["blocks"] == []
    assert [each["state"] for each in at("history", node_id, "--json").document["versions"]] == ["live", "retracted"]


def test_what_is_erased_is_gone_and_its_receipt_holds_no_text(at, remembered, folder):
    node_id = remembered("prefers oolong")
    found = at("erase", node_id, "--yes", "--json")
    assert found.document["receipt"]["node_id"] == node_id
    assert "oolong" not in found.out
    assert at("history", node_id).code == 4
    assert b"oolong" not in b"".join(path.read_bytes() for path in folder.iterdir())


def test_why_shows_blocks_versions_and_lineage(at, call, remembered, folder):
    remembered("a delegation comes", "--id", "n1")
    remembered("needs badges", "--id", "n2", "--source", "chat")
    edge = {"scope": SCOPE, "edge": {"start": "n2", "type": "derived_from", "end": "n1"}}
    (folder / "edges.jsonl").write_text(json.dumps(edge))
    assert call("import", "edges.jsonl").code == 0
    shown = at("why", "n2").out
    assert "shown in  USER_PROFILE" in shown
    assert "derived_from n1: SOUL:a delegation comes" in shown
    document = at("why", "n2", "--json").document
    assert document["blocks"] == ["USER_PROFILE"]
    assert [each["node"]["id"] for each in document["lineage"]] == ["n1"]
    assert document["versions"][0]["source"] == "chat"


def test_a_prompt_has_the_authored_blocks_that_were_declared(at, remembered, folder):
    remembered("prefers tea")
    (folder / "rules.md").write_text("- Be brief.\n", encoding="utf-8")
    arguments = ("--static", "BOUNDARIES=Never guess = never.", "--file", "RULES=rules.md")
    document = at("prompt", *arguments, "--json").document
    assert [block["name"] for block in document["blocks"]] == [
        "BOUNDARIES",
        "RULES",
        "USER_PROFILE",
        "PREFERENCES",
        "FOCUS",
    ]
    assert "Never guess = never." in document["text"]
    assert "- Be brief." in document["text"]
    assert hashlib.sha256(document["text"].encode()).hexdigest() == document["fingerprint"]


def test_a_prompt_is_printed_byte_for_byte(at, process, remembered):
    remembered("日本語\u2028x")
    text = at("prompt", "--json").document["text"]
    found = process("prompt", "--scope", SCOPE, PYTHONIOENCODING="ascii")
    assert (found.code, found.out) == (0, text)


def test_lanes_are_added_and_put_in_the_place_of_the_defaults(at, remembered):
    remembered("early riser", "--lane", "HABITS=HABIT:", block="HABITS")
    assert [each["name"] for each in at("facts", "--json").document["blocks"]] == [
        "USER_PROFILE",
        "PREFERENCES",
        "FOCUS",
    ]
    found = at("facts", "--lane", "HABITS=HABIT:", "--lane", "FOCUS=NOW:", "--json").document["blocks"]
    assert [(each["name"], len(each["facts"])) for each in found] == [
        ("USER_PROFILE", 0),
        ("PREFERENCES", 0),
        ("HABITS", 1),
        ("FOCUS", 0),
    ]


@pytest.mark.parametrize("name", ["other.db", "with space%20#?.db", "deep/er/x.db"])
def test_a_store_is_named_by_its_file_or_its_address(call, folder, name):
    remember = ("remember", "--scope", SCOPE, "--label", "SOUL:a")
    assert call(*remember, "--store", name).code == 0
    assert (folder / name).exists()
    assert call("facts", "--scope", SCOPE, "--store", str(folder / name)).out.count("\n") == 2


def test_the_environment_names_store_and_scope(call, folder, monkeypatch):
    monkeypatch.setenv("PROMPTKEEL_STORE", "sqlite:///env.db")
    monkeypatch.setenv("PROMPTKEEL_SCOPE", SCOPE)
    assert call("remember", "--label", "SOUL:a").code == 0
    assert (folder / "env.db").exists()
    assert call("facts").out.count("\n") == 2


def test_text_that_would_steer_a_terminal_is_spelled_out(at, remembered):
    remembered("\x9b31mred\u202e\u200b", "--source", "a\nb")
    assert "\\x9b31mred\\u202e\\u200b\ta\\nb\t" in at("facts").out
