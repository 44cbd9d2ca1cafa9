"""``promptkeel lint``: authored blocks of every source, and nothing of memory."""

from __future__ import annotations

SCOPE = "org:acme/user:u1"


def test_a_clean_file_is_clean_and_no_store_is_made(call, folder):
    (folder / "rules.md").write_text("Be brief.\n")
    found = call("lint", "--file", "RULES=rules.md")
    assert (found.code, found.out) == (0, "nothing volatile in 1 authored block\n")
    assert not (folder / "promptkeel.db").exists()


def test_a_timestamp_is_reported_with_its_place(call, folder):
    (folder / "rules.md").write_text("Be brief.\nCompiled at 2026-12-01T10:31:04Z.\n")
    found = call("lint", "--json", "--file", "RULES=rules.md")
    assert found.code == 1
    (finding,) = found.document["findings"]
    assert (finding["block"], finding["line"], finding["column"], finding["kind"]) == ("RULES", 2, 13, "moment")
    assert "moment" in call("lint", "--file", "RULES=rules.md").out


def test_a_date_fails_only_where_that_is_asked_for(call, folder):
    (folder / "rules.md").write_text("Valid from 2026-01-01 on.\n")
    assert call("lint", "--file", "RULES=rules.md").code == 0
    assert call("lint", "--strict", "--file", "RULES=rules.md").code == 1


def test_memory_is_not_looked_at(call, at, folder):
    at("remember", "--block", "USER_PROFILE", "arrived at 10:31:04")
    assert call("lint", "--scope", SCOPE, "--static", "RULES=Be brief.").code == 0


def test_what_a_function_answers_differently_is_found_whatever_it_looks_like(process, folder):
    (folder / "mine.py").write_text(
        "import itertools\n"
        "words = iter(['apple', 'pear', 'plum', 'fig', 'lime', 'kiwi'] * 100)\n"
        "def greeting(scope):\n"
        "    word = next(words)\n"
        "    return f'Be kind.\\nThink of a {word}.', word\n"
    )
    (folder / "promptkeel.toml").write_text(
        '[store]\nurl = "sqlite:///memory.db"\n\n[blocks.GREETING]\nfunction = "mine:greeting"\n'
    )
    found = process("lint", "--json", "--scope", SCOPE, PYTHONPATH=str(folder))
    assert found.code == 1, found.err
    (finding,) = found.document["findings"]
    assert (finding["block"], finding["line"], finding["kind"]) == ("GREETING", 2, "unstable")
