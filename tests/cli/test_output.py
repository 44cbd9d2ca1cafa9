"""Where the output goes may be full, closed, gone or without colours: one line and the right exit code all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli_terminal import on_terminal

SCOPE = "org:acme/user:u1"
TEA = ("remember", "--scope", SCOPE, "--label", "SOUL:prefers tea")
FULL = "/dev/full"


def shell(line, **environment):
    """What a shell makes of a line in which ``promptkeel`` is this command."""
    found = subprocess.run(
        ["bash", "-c", f'promptkeel() {{ "{sys.executable}" -m promptkeel.cli "$@"; }}\n{line}'],
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
    )
    return found.returncode, found.stdout.decode(), found.stderr.decode()


needs_full_disk = pytest.mark.skipif(not Path(FULL).exists(), reason="there is no device that is always full")


@needs_full_disk
@pytest.mark.parametrize("command", ["facts", "facts --json", "prompt", "export", "export --json", "--help", "demo"])
def test_a_full_disk_behind_the_output_is_one_line(call, command):
    call(*TEA)
    scope = "" if command in ("--help", "demo") or "export" in command else f" --scope {SCOPE}"
    code, _, error = shell(f"promptkeel {command}{scope} >{FULL}")
    assert (code, error.count("\n")) == (1, 1), error
    assert error.startswith("promptkeel: ")
    assert "No space left on device" in error


@needs_full_disk
def test_where_nothing_can_be_said_at_all_the_exit_code_says_it():
    code, _, _ = shell(f"promptkeel facts --scope {SCOPE} >{FULL} 2>{FULL}")
    assert code == 4


def test_a_closed_output_is_refused_before_anything_is_done(folder):
    code, _, error = shell(f"promptkeel {' '.join(TEA[:-1])} 'SOUL:prefers tea' >&-")
    assert (code, error.count("\n")) == (1, 1), error
    assert "standard output is closed, nothing was done" in error
    assert list(folder.iterdir()) == []


def test_a_closed_error_stream_costs_no_command(folder):
    (folder / "memory.jsonl").write_text(json.dumps({"scope": SCOPE, "label": "SOUL:a"}) + "\n{\n")
    code, out, _ = shell("promptkeel import memory.jsonl --json 2>&-")
    assert (code, json.loads(out)["inserted"]) == (3, 1)


@pytest.mark.parametrize("command", ["import -", "remember - --block FOCUS", "erase n1"])
def test_a_closed_input_is_one_line(command):
    code, _, error = shell(f"promptkeel {command} --scope {SCOPE} <&-")
    assert (code, error.count("\n")) == (2, 1), error


def test_a_reader_of_the_demo_that_has_seen_enough_is_no_failure():
    code, out, error = shell("set -o pipefail; promptkeel demo | true")
    assert (code, out, error) == (141, "", "")


def test_no_color_is_not_a_single_escape(call, monkeypatch):
    call(*TEA)
    _, shown = on_terminal("facts", "--scope", SCOPE)
    assert "\x1b" in shown
    monkeypatch.setenv("NO_COLOR", "1")
    for arguments in (("facts", "--scope", SCOPE), ("demo",)):
        code, shown = on_terminal(*arguments)
        assert code == 0
        assert "\x1b" not in shown


PROGRAM = """
import os, sys
from promptkeel.cli.application import run
if os.geteuid() == 0:
    os.setuid(65534)  # no folder keeps root out
sys.exit(run(sys.argv[1:]))
"""


def test_a_folder_that_may_not_be_entered_is_one_line(folder):
    (folder / "secret").mkdir(mode=0o000)
    folder.chmod(0o755)
    for json_too in ((), ("--json",)):
        found = subprocess.run(
            [sys.executable, "-c", PROGRAM, "facts", "--scope", SCOPE, "--store", "secret/s.db", *json_too],
            capture_output=True,
            check=False,
        )
        error = found.stderr.decode()
        assert (found.returncode, error.count("\n")) == (1, 1), error
        assert "cannot look at secret/s.db: Permission denied" in error
        if json_too:
            assert json.loads(found.stdout)["error"]["type"] == "StoreUnavailableError"


def test_a_working_folder_that_is_gone_is_one_line(folder):
    (folder / "gone").mkdir()
    code, _, error = shell(f"cd gone && rmdir ../gone && promptkeel {' '.join(TEA[:-1])} SOUL:a")
    assert (code, error.count("\n")) == (1, 1), error


UNSPOKEN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_words_are_utf_8_whatever_the_locale(process, call):
    found = process("remember", "--block", "USER_PROFILE", "--scope", "user:zoé", "aime le thé", **UNSPOKEN)
    assert found.code == 0, found.err
    (block,) = call("facts", "--scope", "user:zoé", "--block", "USER_PROFILE", "--json").document["blocks"]
    assert [fact["value"] for fact in block["facts"]] == ["aime le thé"]
    (block,) = process("facts", "--block", "USER_PROFILE", "--json", PROMPTKEEL_SCOPE="user:zoé", **UNSPOKEN).document[
        "blocks"
    ]
    assert len(block["facts"]) == 1


def test_files_have_their_names_whatever_the_locale(process, folder):
    (folder / "mémoire.jsonl").write_text(json.dumps({"scope": SCOPE, "label": "SOUL:a"}) + "\n{\n")
    assert process("import", "mémoire.jsonl", **UNSPOKEN).code == 3
    assert (folder / "mémoire.jsonl.rejected.jsonl").exists()
    assert process("export", "--output", "thé.jsonl", **UNSPOKEN).code == 0
    assert (folder / "thé.jsonl").exists()


@pytest.mark.parametrize("option", [("--store", "mémoire.db"), ("--file", "RULES=règles.md")])
def test_a_name_that_the_locale_cannot_spell_is_one_line(process, call, folder, option):
    call(*TEA)
    (folder / "règles.md").write_text("Be brief.")
    found = process("prompt", "--scope", SCOPE, *option, **UNSPOKEN)
    assert (found.code, found.err.count("\n")) == (1, 1), found.err
    assert "set LC_ALL=C.UTF-8" in found.err
