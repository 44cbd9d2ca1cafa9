"""On a terminal there are tables, colours and a question before an erasure."""

from __future__ import annotations

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
