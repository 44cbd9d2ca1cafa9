"""``promptkeel demo`` shows what was read again, which bytes changed, and that the rest is the very same string."""

from __future__ import annotations

import json
import unicodedata
from importlib.resources import files

import pytest

from cli_terminal import on_terminal, width, without_styles
from promptkeel.cli.demo import CORRECTED, LABEL, changed_bytes
from promptkeel.exchange import JsonLines


@pytest.fixture(scope="module")
def sample():
    lines = files("promptkeel.cli").joinpath("sample.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_the_sample_is_an_office(sample):
    statements = [line for line in sample if "label" in line]
    assert len(statements) >= 60
    scopes = {line["scope"] for line in statements}
    assert {"", "org:harbour"} < scopes
    assert len([scope for scope in scopes if "/user:" in scope]) >= 3
    letters = {unicodedata.name(char).split()[0] for line in statements for char in line["label"] if char.isalpha()}
    assert {"LATIN", "HIRAGANA", "KATAKANA", "CJK"} <= letters
    assert {line.get("trust") for line in statements} == {"operator", "user", "third-party", "inferred", None}
    assert any(line["recorded_at"] is None for line in statements)
    assert any(line.get("properties") for line in statements)
    for line in sample:
        JsonLines().parse(json.dumps(line))


def test_one_lane_is_read_again_and_the_rest_is_the_same_string(call):
    document = call("demo", "--json").document
    first, second = document["prompts"]
    assert document["imported"]["statements"] >= 60
    worked = {each["block"] for each in second["work"] if each["action"] != "read"}
    assert worked == {"FOCUS"}
    assert document["same_string_object"] == ["BOUNDARIES", "RULES", "USER_PROFILE", "PREFERENCES"]
    assert document["third_prompt_is_second"]
    changed = document["changed_bytes"]
    assert document["correction"]["arguments"] == [LABEL, CORRECTED]
    assert changed["after"] == [f'- "{LABEL.removeprefix("FOCUS:")}"']
    before, after = first["text"].encode(), second["text"].encode()
    start, end = changed["offset"], changed["offset"] + changed["inserted"]
    assert before[:start] + after[start:end] + before[start + changed["removed"] :] == after
    assert [block["revision"] for block in first["blocks"]][:4] == [block["revision"] for block in second["blocks"]][:4]
    assert first["fingerprint"] != second["fingerprint"]


def test_there_is_a_block_of_each_kind_a_failure_of_each_policy_and_an_edit(call):
    found = call("demo", "--json").document["blocks"]
    assert {row["kind"] for row in found["kinds"]} == {"static", "file", "computed", "stored", "lane"}
    assert all(row["says"] for row in found["kinds"])
    policies = found["policies"]
    assert policies["fail_closed"].startswith("BlockResolutionError: block WEATHER")
    assert "could not be read now" in policies["omit"]
    assert "Rain" not in policies["omit"]
    assert "Rain until noon." in policies["last_known_good"]
    assert len(policies["last_known_good"]) > len("Rain until noon.")
    assert "-Open from 9 to 17.\n+Open from 9 to 18.\n" in found["diff"]
    shown = call("demo").out
    assert "-Open from 9 to 17." in shown
    assert "last_known_good\t" in shown


def test_a_pipe_gets_plain_text(call):
    found = call("demo")
    assert found.code == 0
    assert "\x1b" not in found.out
    assert "USER_PROFILE\t" in found.out
    assert "reused" in found.out


def test_a_screen_without_the_letters_is_no_reason_to_fail(process):
    found = process("demo", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (found.code, found.err) == (0, "")
    assert "\\u53d7\\u4ed8" in found.out


def test_it_fits_a_terminal_of_80_columns_and_is_coloured():
    code, shown = on_terminal("demo")
    assert code == 0
    assert "\x1b[" in shown
    lines = without_styles(shown).split("\n")
    assert [line for line in lines if width(line.rstrip()) > 80] == []
    assert any("│ FOCUS" in line and "updated, rendered" in line for line in lines)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("a\nbc\nd", "a\nbxc\nd", (3, 0, 1, ("bc",), ("bxc",))),
        ("a\nbc\nd", "a\nd", (2, 3, 0, ("bc", "d"), ("d",))),
        ("日本", "日語", (3, 3, 3, ("日本",), ("日語",))),
        ("aa", "a", (1, 1, 0, ("aa",), ("a",))),
        ("same", "same", (4, 0, 0, ("same",), ("same",))),
    ],
)
def test_changed_bytes_are_those_between_what_both_begin_and_end_with(before, after, found):
    change = changed_bytes(before, after)
    assert (change.offset, change.removed, change.inserted, change.before, change.after) == found
