"""The command line in a folder of its own: in this process, in another, and on a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import attrs
import pytest

SCOPE = "org:acme/user:u1"


@attrs.frozen
class Finished:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def document(self):
        """The one JSON document that it printed."""
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("PROMPTKEEL_STORE", "PROMPTKEEL_SCOPE", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def call(capsys):
    """Run a command in this process."""
    from promptkeel.cli import main

    def run(*arguments):
        code = main(arguments)
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return run


@pytest.fixture
def at(call):
    """Run a command at a scope in this process."""
    return lambda name, *arguments: call(name, "--scope", SCOPE, *arguments)


@pytest.fixture
def process():
    """Run a command in a process of its own."""

    def run(*arguments, stdin="", **environment):
        found = subprocess.run(
            [sys.executable, "-m", "promptkeel.cli", *arguments],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            env={**os.environ, **environment},
            check=False,
        )
        return Finished(found.returncode, found.stdout.decode(), found.stderr.decode())

    return run


@pytest.fixture
def remembered(at):
    """Remember a statement; its id."""

    def remember(text, *arguments, block="USER_PROFILE"):
        found = at("remember", text, "--block", block, "--json", *arguments)
        assert found.code == 0, found.err
        return found.document["node"]["id"]

    return remember
