"""On a terminal there are tables, colours and a question before an erasure."""

from __future__ import annotations

import re

import pytest

from cli_terminal import on_terminal, width, without_styles

SCOPE = "org:acme/user:u1"


def test_facts_are_a_table_that_shows_ids_whole(remembered):
    long = remembered("has a statement that takes more than the half of one line of a terminal to be shown")
    remembered("prefers tea", "--source", "onboarding", "--id", "n1", "--recorded-at", "2026-05-02")
    code, shown = on_terminal("facts", "--scope", SCOPE)
    assert code == 0
    assert "│ prefers tea" in without_styles(shown)
    assert "│ onboarding, 2026-05-02" in without_styles(shown)
    assert f"│ {long} │" in without_styles(shown)
    assert "USER_PROFILE: 2 facts" in without_styles(shown)
    assert max(width(line.rstrip()) for line in without_styles(shown).split("\n")) <= 80
    assert "\x1b[1m" in shown


def test_an_erasure_is_asked_about_and_can_be_refused(at, remembered):
    remembered("prefers tea", "--id", "n1")
    code, shown = on_terminal("erase", "n1", "--scope", SCOPE, keys="n\n")
    assert code == 1
    assert "Erase n1" in shown
    assert "nothing was erased" in shown
    assert at("history", "n1").code == 0
    code, _ = on_terminal("erase", "n1", "--scope", SCOPE, keys="y\n")
    assert code == 0
    assert at("history", "n1").code == 4


def test_an_erasure_without_a_question(at, remembered):
    remembered("prefers tea", "--id", "n1")
    code, shown = on_terminal("erase", "n1", "--scope", SCOPE, "--yes")
    assert (code, "Erase n1" in shown) == (0, False)


def test_an_import_of_more_than_a_second_shows_how_far_it_has_come(folder):
    lines = (
        f'{{"scope": "{SCOPE}", "label": "SOUL:{number}", "properties": {{"n": {number}}}}}\n'
        for number in range(25_000)
    )
    (folder / "memory.jsonl").write_text("".join(lines))
    code, shown = on_terminal("import", "memory.jsonl")
    assert code == 0
    assert "importing" in without_styles(shown)
    assert "%" in shown
    code, shown = on_terminal("export", "--output", "out.jsonl")
    assert (code, "importing" in shown) == (0, False)


LONG = "has a statement that takes more than one line of a narrow terminal, 日本語も"


@pytest.mark.parametrize("columns", [20, 40, 60])
def test_a_narrow_terminal_shows_statements_and_ids_whole(remembered, columns):
    node_id = remembered(LONG, "--source", "onboarding", "--recorded-at", "2026-05-02", "--trust", "user")
    code, shown = on_terminal("facts", "--scope", SCOPE, columns=columns)
    lines = [line.rstrip() for line in without_styles(shown).split("\n")]
    assert code == 0
    assert max(width(line) for line in lines if not line.endswith("no facts")) <= columns
    for word in LONG.split():
        assert word in "\n".join(lines)
    assert node_id in "".join(lines)


@pytest.mark.parametrize("columns", [20, 40, 80, 120])
def test_a_history_shows_everything_at_every_width(at, remembered, columns):
    node_id = remembered("prefers tea", "--source", "onboarding", "--recorded-at", "2026-05-02", "--trust", "user")
    at("correct", node_id, "--text", "prefers coffee", "--source", "chat", "--recorded-at", "2026-06-01")
    _, shown = on_terminal("history", node_id, "--scope", SCOPE, columns=columns)
    lines = without_styles(shown)
    for word in ("SOUL:prefers tea", "SOUL:prefers coffee", "onboarding", "chat", "2026-05-02", "live", "user"):
        assert word.replace(" ", "") in lines.replace("│", "").replace(" ", "").replace("\n", "")
    assert re.search(r"\d\d:\d\d:\d\dZ", lines)
    assert "…" not in lines


def test_titles_are_one_line_and_count_one_as_one(remembered):
    remembered("prefers tea", "--recorded-at", "2026-05-02")
    _, shown = on_terminal("facts", "--scope", SCOPE)
    lines = [line.rstrip() for line in without_styles(shown).split("\n")]
    assert lines[0].startswith("USER_PROFILE: 1 fact at mem:1:")
    assert lines[-3:] == ["PREFERENCES: no facts", "FOCUS: no facts", ""]


def test_facts_stand_in_the_order_of_the_prompt(at, remembered):
    for text, when in (("a", "2026-06-01"), ("b", "2026-05-01"), ("c", "none")):
        remembered(text, "--recorded-at", when)
    assert [line.split("\t")[1] for line in at("facts").out.splitlines()[1:]] == ["c", "b", "a"]
    assert [fact["value"] for fact in at("facts", "--json").document["blocks"][0]["facts"]] == ["c", "b", "a"]
    prompt = at("prompt").out
    assert prompt.index('"c"') < prompt.index('"b"') < prompt.index('"a"')
