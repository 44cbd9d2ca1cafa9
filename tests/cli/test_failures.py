"""Whatever goes wrong is one line that says what to do, an exit code that scripts can use, and no traceback."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCOPE = "org:acme/user:u1"
COMMANDS = (
    "demo", "remember", "correct", "retract", "erase", "facts", "prompt", "import", "export", "why", "history"
)  # fmt: skip

SUBCOMMANDS = {"forensics": (("report",), ("gate",)), "block": (("edit",), ("log",), ("show",), ("diff",))}


def one_line(found):
    assert found.err.count("\n") == 1, found.err
    assert found.err.startswith("promptkeel: ")
    assert "Traceback" not in found.err
    return found.err


CASES = [
    (("facts", "--scope", SCOPE), 4, "there is no store at"),
    (("facts",), 2, "Missing option '--scope'"),
    (("facts", "--scope", "acme"), 2, "must be kind:id"),
    (("facts", "--scope", SCOPE, "--colour"), 2, "No such option"),
    (("fact",), 2, "No such command"),
    (("remember", "--scope", SCOPE), 2, "give TEXT and --block, or --label"),
    (("remember", "--scope", SCOPE, "--label", "SOUL: "), 1, "is blank"),
    (("remember", "--scope", SCOPE, "--label", "SOUL:a", "--recorded-at", "monday"), 2, "is not a time"),
    (("remember", "--scope", SCOPE, "--label", "SOUL:a", "--set", "role"), 2, "must be NAME=VALUE"),
    (("remember", "--scope", SCOPE, "--label", "SOUL:a", "--lane", "X=SOUL"), 2, "has no label prefix"),
    (("remember", "--scope", SCOPE, "--label", "SOUL:a", "--lane", "x=SOUL:"), 2, "must be capitals"),
    (("remember", "--scope", SCOPE, "--label", "SOUL:a", "--store", "mysql://x"), 1, "names no kind of store"),
    (("remember", "--scope", SCOPE, "--label", "SOUL:a", "--store", "notes.txt"), 1, "notes.txt"),
    (("import", "missing.jsonl"), 2, "does not exist"),
]


@pytest.fixture
def text_file(folder):
    (folder / "notes.txt").write_text("not a store, " * 100)


@pytest.mark.parametrize(("arguments", "code", "reason"), CASES, ids=[" ".join(case[0])[:40] for case in CASES])
@pytest.mark.usefixtures("text_file")
def test_an_error_is_one_line_with_its_code(call, arguments, code, reason):
    found = call(*arguments)
    assert found.code == code
    assert reason in one_line(found)
    assert found.out == ""
    told = call(*arguments, "--json")
    assert told.code == code
    assert told.document["error"]["exit_code"] == code
    assert reason in told.document["error"]["message"]


def test_nodes_that_are_missing_or_erased_are_not_found(at, remembered):
    remembered("a", "--id", "n1")
    at("erase", "n1", "--yes")
    for command in (("correct", "--text", "b"), ("retract",), ("erase", "--yes"), ("why",), ("history",)):
        for node_id in ("n0", "n1"):
            found = at(command[0], node_id, *command[1:])
            assert found.code == 4
            one_line(found)


def test_conflicts_have_a_code_of_their_own(at, remembered):
    remembered("a", "--id", "n1")
    assert at("remember", "b", "--block", "FOCUS", "--id", "n1").code == 5
    assert at("correct", "n1", "--text", "b", "--expected", "x").code == 5
    assert at("retract", "n1", "--expected", "x").code == 5


def test_an_ancestors_node_is_read_only(at, call, remembered):
    call("remember", "--scope", "org:acme", "--label", "SOUL:a", "--id", "n1")
    found = at("retract", "n1")
    assert found.code == 1
    assert "write at its own scope" in one_line(found)


def test_a_reading_command_makes_no_store(call, folder):
    for name in ("facts", "prompt"):
        assert call(name, "--scope", SCOPE).code == 4
    assert call("export").code == 4
    assert list(folder.iterdir()) == []


def test_real_processes_end_with_these_codes(process):
    for code, arguments in (
        (0, ("remember", "--scope", SCOPE, "--label", "SOUL:a", "--id", "n1")),
        (5, ("remember", "--scope", SCOPE, "--label", "SOUL:b", "--id", "n1")),
        (4, ("why", "--scope", SCOPE, "n2")),
        (2, ("why", "--scope", SCOPE)),
        (1, ("remember", "--scope", SCOPE, "--label", "SOUL: ")),
    ):
        found = process(*arguments)
        assert found.code == code
        assert (found.err == "") == (code == 0)
        if code:
            one_line(found)


def test_without_the_extra_there_is_one_line_with_its_install_command(process, folder):
    (folder / "blocked" / "click").mkdir(parents=True)
    (folder / "blocked" / "click" / "__init__.py").write_text("raise ModuleNotFoundError(name='click')")
    found = process("demo", PYTHONPATH=str(folder / "blocked"))
    assert found.code == 1
    assert "pip install 'promptkeel[cli]'" in one_line(found)


def test_a_reader_that_goes_away_is_no_error(folder, process):
    lines = "".join(f'{{"scope": "{SCOPE}", "label": "SOUL:{number} {"x" * 200}"}}\n' for number in range(2000))
    assert process("import", "-", stdin=lines).code == 0
    exporting = subprocess.Popen(
        [sys.executable, "-m", "promptkeel.cli", "export"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    exporting.stdout.read(10)
    exporting.stdout.close()
    error = exporting.stderr.read()
    exporting.stderr.close()
    assert exporting.wait() == 141
    assert error == b""


def test_an_interrupted_import_ends_with_one_line_and_nothing_written(folder, process):
    file = folder / "memory.jsonl"
    file.write_text("".join(f'{{"scope": "{SCOPE}", "label": "SOUL:{number}"}}\n' for number in range(200_000)))
    importing = subprocess.Popen(
        [sys.executable, "-m", "promptkeel.cli", "import", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    # The log beside the file is made when the store has been opened, long before the import is done.
    while not (folder / "promptkeel.db-wal").exists() and importing.poll() is None:
        pass
    error = None
    while error is None:
        os.kill(importing.pid, signal.SIGINT)
        # Python drops an interrupt that arrives while it runs a finalizer: then somebody presses the keys again.
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, error = importing.communicate(timeout=1)
    assert importing.returncode == 130
    assert error == b"promptkeel: interrupted; what was not committed is not there\n"
    assert process("export").out == ""


def test_every_command_says_its_exit_codes_and_common_options(call):
    assert set(re.findall(r"^  (\w+) ", call("--help").out, re.MULTILINE)) >= set(COMMANDS)
    for command in COMMANDS:
        shown = call(command, "--help").out
        assert "--json" in shown
        for code in (0, 1, 2, 3, 4, 5):
            assert re.search(rf"^ +{code}  +\w", shown, re.MULTILINE), (command, code)
        if command != "demo":
            assert {"--store", "--scope", "--lane"} <= set(re.findall(r"--[a-z]+", shown))


def test_the_help_of_import_shows_both_formats(call):
    shown = call("import", "--help").out
    assert re.search(r'^ +jsonl  \{"scope", "label"', shown, re.MULTILINE)
    assert re.search(r"^ +mcp    the knowledge-graph file", shown, re.MULTILINE)


def test_the_readme_names_only_commands_and_options_that_exist(call):
    readme = Path(__file__).parents[2] / "README.md"
    blocks = re.findall(r"^```\w*\n(.*?)^```", readme.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    used = re.findall(r"(?:^|&& |\$ )promptkeel ([a-z]+)(.*)$", "\n".join(blocks), re.MULTILINE)
    known = set(re.findall(r"^  ([a-z]+) ", call("--help").out, re.MULTILINE))
    for command, rest in used:
        assert command in known
        shown = "".join(call(command, *more, "--help").out for more in ((), *SUBCOMMANDS.get(command, ())))
        for option in re.findall(r"(?<!\S)--[a-z-]+", rest):
            assert option in shown, f"promptkeel {command} {option}"
