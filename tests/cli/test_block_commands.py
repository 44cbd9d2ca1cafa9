"""``promptkeel block``: edit in a real editor, log, show, diff, restore; conflicts lose no text."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from cli_terminal import on_terminal, without_styles
from promptkeel import blocking
from promptkeel.scope import TenantScope

ORG = "org:acme"
SCOPE = TenantScope.parse(ORG)


@pytest.fixture(autouse=True)
def author(monkeypatch, tmp_path):
    monkeypatch.setenv("PROMPTKEEL_AUTHOR", "user:ada")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.fixture
def editor(tmp_path, monkeypatch):
    """Make ``$EDITOR`` a script whose body sees the file as ``path``."""

    def make(body, variable="EDITOR"):
        script = tmp_path / f"edit with {variable}"
        script.write_text(f"#!{sys.executable}\nimport sys, pathlib\npath = pathlib.Path(sys.argv[-1])\n{body}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv(variable, f"'{script}' --wait")

    return make


@pytest.fixture
def block(call):
    """Run a command on RULES at the organisation."""
    return lambda name, *arguments: call("block", name, "RULES", *arguments, "--scope", ORG)


@pytest.fixture
def append():
    def append_to(content, name="RULES", **given):
        with blocking.open("sqlite:///promptkeel.db") as keel:
            return keel.blocks.append(SCOPE, name, content, author="user:u1", **given)

    return append_to


def left():
    return list(Path("temporary").iterdir())


def test_an_edit_begins_a_block_goes_on_with_it_and_leaves_no_file(block, editor):
    editor("assert path.read_text() == ''; path.write_text('be kind\\n')")
    first = block("edit", "-m", "begin", "--json")
    assert (first.code, first.err) == (0, "")
    editor("assert path.read_text() == 'be kind\\n'; path.write_text('be kind\\nbe brief\\n')")
    second = block("edit", "--json").document
    assert (second["action"], second["revision"]["number"]) == ("appended", 2)
    assert second["revision"]["parent"] == first.document["revision"]["id"]
    assert second["revision"]["author"] == "user:ada"
    assert block("show").out == "be kind\nbe brief\n"
    assert block("show", "1").out == "be kind\n"
    assert left() == []


def test_visual_comes_before_editor_and_a_missing_line_end_stays_missing(block, editor, append):
    append("be kind")
    editor("raise SystemExit(3)")
    editor("assert path.read_text() == 'be kind\\n'; path.write_text('be brief\\n')", variable="VISUAL")
    assert block("edit", "--json").document["revision"]["content"] == "be brief"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "nothing was changed"),
        ("path.write_text('')", "empty"),
        ("path.write_text(' \\n\\t')", "empty"),
        ("raise SystemExit(3)", "ended with 3"),
    ],
)
def test_an_edit_that_says_nothing_writes_nothing(block, editor, append, body, said):
    append("be kind")
    editor(body)
    found = block("edit")
    assert found.code == 1
    assert said in found.err
    assert [each["number"] for each in block("log", "--json").document["revisions"]] == [1]
    assert left() == []


def test_no_store_is_made_where_nothing_is_written(block, editor):
    editor("")
    assert block("edit").code == 1
    assert not Path("promptkeel.db").exists()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("path.write_text('mine'); raise SystemExit(3)", 1),
        ("path.write_bytes(b'mine \\xff')", 1),
        ("path.write_text('mine \\x01')", 1),
        ("path.write_text('mine' * 300000)", 1),
    ],
)
def test_an_edit_that_cannot_be_taken_is_kept(block, editor, append, body, code):
    append("be kind")
    editor(body)
    found = block("edit")
    assert found.code == code
    (kept,) = left()
    assert str(kept.name) in found.err
    assert kept.read_bytes().startswith(b"mine")


APPEND_MEANWHILE = """
from promptkeel import blocking, TenantScope
with blocking.open("sqlite:///promptkeel.db") as keel:
    keel.blocks.append(TenantScope.parse("org:acme"), "RULES", "theirs", author="user:u1")
path.write_text("mine")
"""


def test_a_concurrent_edit_is_a_conflict_that_keeps_the_text(block, editor, append):
    append("be kind")
    editor(APPEND_MEANWHILE)
    found = block("edit", "--json")
    assert found.code == 5
    assert found.document["error"]["type"] == "RevisionConflictError"
    (kept,) = left()
    assert kept.name in found.err
    assert kept.read_text() == "mine"
    assert block("show").out == "theirs"
    again = block("edit", "--file", str(kept), "--json")
    assert again.document["revision"]["number"] == 3


def test_an_editor_that_is_not_there_is_said(block, monkeypatch):
    monkeypatch.setenv("EDITOR", "/nowhere/editor")
    found = block("edit")
    assert found.code == 1
    assert "set VISUAL or EDITOR" in found.err
    assert left() == []


def test_a_file_and_standard_input_are_taken_byte_for_byte(block, process):
    Path("rules.md").write_bytes("be kind\r\né".encode())
    assert block("edit", "--file", "rules.md", "--json").document["revision"]["content"] == "be kind\r\né"
    again = block("edit", "--file", "rules.md", "--json")
    assert (again.code, again.document["action"]) == (0, "unchanged")
    found = process("block", "edit", "RULES", "--file", "-", "--scope", ORG, stdin="from a pipe\n")
    assert found.code == 0
    assert process("block", "show", "RULES", "--scope", ORG).out == "from a pipe\n"
    assert left() == []


def test_standard_input_that_is_refused_is_kept(block, process, append):
    append("be kind")
    found = process(
        "block", "edit", "RULES", "--file", "-", "--scope", ORG, "--expected", "gone", stdin="from a pipe"
    )  # fmt: skip
    assert found.code == 5
    (kept,) = left()
    assert kept.name in found.err
    assert kept.read_text() == "from a pipe"


def test_the_log_is_newest_first_with_a_limit(block, append):
    for number in range(3):
        append(f"rule {number}", message=f"change {number}")
    found = block("log", "--json").document
    assert [(each["number"], each["message"], each["is_head"]) for each in found["revisions"]] == [
        (3, "change 2", True), (2, "change 1", False), (1, "change 0", False),
    ]  # fmt: skip
    assert "content" not in found["revisions"][0]
    lines = block("log", "--limit", "1").out.splitlines()
    assert lines[0].split("\t") == ["number", "at", "author", "message", "id"]
    assert lines[1].split("\t")[::2] == ["3", "user:u1", found["revisions"][0]["id"]]
    assert len(lines) == 2


def test_a_diff_of_the_last_change_of_one_and_of_two_revisions(block, append):
    append("be kind\n")
    append("be kind\nbe brief\n")
    append("be brief\n")
    assert block("diff").out == ("--- RULES revision 2\n+++ RULES revision 3\n@@ -1,2 +1 @@\n-be kind\n be brief\n")
    assert "RULES revision 1\n+++ RULES revision 3" in block("diff", "1").out
    found = block("diff", "1", "2", "--json").document
    assert (found["old"]["number"], found["new"]["number"]) == (1, 2)
    assert [part["kind"] for part in found["parts"]] == ["equal", "insert"]
    assert block("diff", "2", "2").out == ""


def test_a_restore_appends_the_old_text_and_says_whence(block, append):
    first = append("be kind")
    append("be brief")
    found = block("restore", "1", "-m", "too short", "--json").document
    assert found["action"] == "restored"
    assert (found["revision"]["number"], found["revision"]["restored"]) == (3, first.id)
    assert found["revision"]["content"] == "be kind"
    assert "(restored revision 1)" in block("log").out
    assert block("restore", first.id, "--json").document["action"] == "unchanged"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("show", "7"), 4),
        (("show", "somebody"), 4),
        (("diff", "1", "7"), 4),
        (("diff",), 4),
        (("restore", "7"), 4),
        (("restore", "1", "--expected", ""), 5),
        (("log", "--limit", "0"), 2),
        (("edit", "--file", "nowhere.md"), 2),
    ],
)
def test_what_is_not_there_and_what_is_wrong_have_their_exit_codes(block, append, arguments, code):
    append("be kind")
    found = block(*arguments, "--json")
    assert found.code == code
    assert found.document["error"]["exit_code"] == code


def test_a_block_that_nobody_wrote_and_a_store_that_is_not_there_are_said(block, call, append):
    assert block("show").code == 4
    append("be kind")
    found = call("block", "show", "OTHER", "--scope", ORG)
    assert found.code == 4
    assert "'promptkeel block edit' writes one" in found.err
    assert call("block", "log", "rules", "--scope", ORG).code == 1


def test_a_declared_level_says_where_a_block_is_kept(call):
    Path("promptkeel.toml").write_text('[blocks.RULES]\nstored = "tenant"\n[blocks.PLAN]\nstored = "scope"\n')
    Path("text.md").write_text("be kind")
    for name, place in (("RULES", "org:acme"), ("PLAN", "org:acme/user:ada")):
        found = call("block", "edit", name, "--file", "text.md", "--scope", "org:acme/user:ada", "--json")
        assert found.document["revision"]["scope"] == place
    shown = call("prompt", "--scope", "org:acme/user:ada").out
    assert "### OPERATING / RULES\nbe kind" in shown
    assert "### OPERATING / PLAN\nbe kind" in shown


def test_an_edit_in_a_real_editor_on_a_real_terminal(append, editor):
    append("be kind\nbe brief\n")
    editor("assert sys.stdin.isatty() and sys.stdout.isatty()\npath.write_text(path.read_text() + 'be swift\\n')")
    code, shown = on_terminal("block", "edit", "RULES", "--scope", ORG, "-m", "faster")
    assert (code, "appended RULES revision 2" in without_styles(shown)) == (0, True)
    code, shown = on_terminal("block", "diff", "RULES", "--scope", ORG)
    assert code == 0
    assert "+be swift" in without_styles(shown)
    assert "\x1b[32m" in shown
    code, shown = on_terminal("block", "log", "RULES", "--scope", ORG)
    assert re.search(r"2 .*user:ada .*faster", without_styles(shown))


def test_stored_text_steers_no_terminal(append):
    append("a\u202e\u009b31mb")
    code, shown = on_terminal("block", "show", "RULES", "--scope", ORG)
    assert code == 0
    assert "\u202e" not in shown
    assert "\u009b" not in shown


def test_the_author_is_the_login_name_where_nobody_says(call, monkeypatch):
    monkeypatch.delenv("PROMPTKEEL_AUTHOR")
    monkeypatch.setenv("LOGNAME", "u7")
    Path("text.md").write_text("be kind")
    found = call("block", "edit", "RULES", "--file", "text.md", "--scope", ORG, "--json")
    assert found.document["revision"]["author"] == "user:u7"
    assert json.loads(found.out)["revision"]["trust"] == "operator"
    assert os.environ["LOGNAME"] == "u7"
