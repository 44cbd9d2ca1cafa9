"""``promptkeel forensics``: reports on logs, and the gate."""

from __future__ import annotations

import csv
import json

import pytest

LONG = " ".join(f"Rule {number}: never promise what the policy does not say." for number in range(200))
START = 1_780_000_000


def line(turn, *, system=LONG, read=0, total=3000, **more):
    messages = []
    for number in range(turn + 1):
        messages += [{"role": "user", "content": f"Question {'x' * number}"}]
        messages += [{"role": "assistant", "content": f"Answer {'y' * number}"}] if number < turn else []
    messages[-1]["content"] = [{"type": "text", "text": messages[-1]["content"], "cache_control": {}}]
    request = {"model": "claude-sonnet-4-5", "system": system, "messages": messages}
    usage = {"input_tokens": 10, "cache_read_input_tokens": read, "cache_creation_input_tokens": total - read - 10}
    return {"request": request, "usage": usage, "time": START + 60 * turn, "session": "s1", **more}


GOOD = [line(0), line(1, read=2990, total=3020), line(2, read=3010, total=3040)]
BAD = [line(turn, system=f"Now: 10:0{turn}. {LONG}", total=3000 + 20 * turn) for turn in range(3)]


@pytest.fixture
def log(folder):
    def write(name, lines):
        (folder / name).write_text(
            "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines)
        )
        return name

    return write


def rows(out):
    return list(csv.DictReader(out.splitlines()[2:], delimiter="\t"))


def test_lost_tokens_are_reported_by_cause_block_and_time_with_what_they_cost(call, log):
    found = call("forensics", log("bad.jsonl", BAD), "--json")
    assert found.code == 0, found.err
    document = found.document
    assert document["lost_tokens"] == 3000 + 3020
    assert document["by"]["cause"] == [
        {"name": "timestamp", "tokens": 6020, "dollars": pytest.approx(6020 * 3 * 1.15 / 1e6, rel=0.01), "requests": 2}
    ]
    assert [each["name"] for each in document["by"]["block"]] == ["system[0]"]
    assert [each["name"] for each in document["by"]["session"]] == ["s1"]
    assert [each["tokens"] for each in document["by"]["time"]] == [3000, 3020]
    worst = document["worst"][0]
    assert (worst["line"], worst["continues"], worst["expected"], worst["read"]) == (3, 2, 3020, 0)
    assert "»10:01" in worst["before"]
    assert "»10:02" in worst["after"]
    assert "round it" in document["causes"]["timestamp"]["remedy"]


@pytest.mark.parametrize("table", ["cause", "block", "time", "model", "session", "worst"])
def test_one_table_can_be_chosen(call, log, table):
    found = call("forensics", log("bad.jsonl", BAD), "--by", table)
    assert found.code == 0, found.err
    first = rows(found.out)[0]
    assert first["lost" if table == "worst" else "tokens"] in ("6,020", "3,020", "3,000")


def test_all_tables_are_printed_where_none_is_chosen(call, log):
    out = call("forensics", log("bad.jsonl", BAD)).out
    for heading in ("cause\ttokens", "block\ttokens", "time\ttokens", "line\tcontinues"):
        assert heading in out


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "no request to judge"),
        (GOOD[:1], "nothing could be lost"),
        (GOOD, "no cached token was lost"),
        ([{key: each[key] for key in each if key != "usage"} for each in GOOD], "simulated"),
        (["nonsense"], "1 line could not be read"),
    ],
    ids=["empty", "one", "good", "no-usage", "unread"],
)
def test_a_log_with_nothing_to_find_is_said_in_a_line(call, log, lines, says):
    found = call("forensics", log("log.jsonl", lines))
    assert found.code == 0
    assert says in found.out


def test_lines_that_cannot_be_read_are_named_and_the_rest_is_reported(call, log):
    found = call("forensics", log("log.jsonl", [BAD[0], "nonsense", *BAD[1:], {"x": 1}]), "--json")
    assert found.code == 0
    assert [each["line"] for each in found.document["unread"]] == [2, 5]
    assert found.document["lost_tokens"] == 6020
    assert "line 2" in found.err


def test_since_and_until_bound_what_is_reported_and_not_what_is_compared(call, log):
    name = log("bad.jsonl", BAD)
    since = call("forensics", name, "--since", "2026-05-28T20:28:00Z", "--json").document
    until = call("forensics", name, "--until", "2026-05-28T20:28:00Z", "--json").document
    assert (since["requests"], since["lost_tokens"]) == (1, 3020)
    assert (until["requests"], until["lost_tokens"]) == (2, 3000)
    assert call("forensics", name, "--since", "soon").code == 2


def test_standard_input_is_read(process):
    text = "".join(json.dumps(each) + "\n" for each in BAD)
    found = process("forensics", "-", "--json", stdin=text)
    assert found.code == 0, found.err
    assert found.document["lost_tokens"] == 6020


def test_the_gate_fails_where_the_prefix_got_dearer_and_says_by_what(call, log):
    good, bad = log("good.jsonl", GOOD), log("bad.jsonl", BAD)
    assert call("forensics", "gate", good, good).code == 0
    assert call("forensics", "gate", bad, good).code == 0
    found = call("forensics", "gate", good, bad)
    assert found.code == 1
    assert "timestamp\tsystem[0]\t+2,007" in found.out
    document = call("forensics", "gate", good, bad, "--json").document
    assert document["is_dearer"]
    assert [(each["cause"], each["block"]) for each in document["blamed"]] == [("timestamp", "system[0]")]
    assert call("forensics", "gate", good, bad, "--threshold", "500").code == 0


def test_the_gate_takes_a_baseline_in_the_place_of_a_log(call, log, folder):
    good, bad = log("good.jsonl", GOOD), log("bad.jsonl", BAD)
    assert call("forensics", good, "--write-baseline", "base.json").code == 0
    assert call("forensics", "gate", "base.json", good).code == 0
    assert call("forensics", "gate", "base.json", bad).code == 1
    (folder / "base.json").write_text('{"promptkeel_forensics_baseline": 9}')
    found = call("forensics", "gate", "base.json", bad)
    assert found.code == 1
    assert "another version" in found.err


def test_the_gate_allows_what_is_within_the_threshold_and_no_more(call, log):
    good = log("good.jsonl", [line(0, total=2000)])
    assert call("forensics", "gate", good, log("same.jsonl", [line(0, total=2018)])).code == 0
    assert call("forensics", "gate", good, log("more.jsonl", [line(0, total=2025)])).code == 1


@pytest.mark.parametrize(
    "arguments", [("gate", "good.jsonl"), ("gate", "good.jsonl", "absent"), ("gate", "good.jsonl", "empty.jsonl"),
                  ("absent.jsonl",), ("good.jsonl", "--by", "colour"), ("good.jsonl", "--write-baseline", "good.jsonl")]
)  # fmt: skip
def test_a_wrong_command_line_is_told_from_a_dearer_prefix(call, log, arguments):
    log("good.jsonl", GOOD)
    log("empty.jsonl", [])
    found = call("forensics", *arguments)
    assert found.code == 2
    assert found.err


def test_rules_of_a_file_go_before_the_packaged_ones(call, log, folder):
    (folder / "rules.toml").write_text('[anthropic.models."claude-sonnet-4-5"]\ninput_price = 300')
    name = log("bad.jsonl", BAD)
    plain = call("forensics", name, "--json").document["lost_dollars"]
    dear = call("forensics", name, "--rules", "rules.toml", "--json").document["lost_dollars"]
    assert dear == pytest.approx(100 * plain, rel=0.001)
