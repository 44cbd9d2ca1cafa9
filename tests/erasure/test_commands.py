"""The command line lists before it erases, hands over what goes, asks, and prints a receipt without text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from erasure.disk import left_on_disk
from promptkeel.cli import main

SCOPE = "org:acme/user:ada"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("PROMPTKEEL_STORE", "PROMPTKEEL_SCOPE", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def stored(call: Callable[..., Any], folder: Path) -> Path:
    """A store with a person's statements at two scopes, and what was derived from one of them."""
    lines = [
        {"scope": SCOPE, "id": "email", "label": "SOUL:tok-a reads mail", "properties": {"email": "a@example.org"}},
        {"scope": SCOPE, "id": "derived", "label": "SOUL:tok-b is reachable"},
        {"scope": SCOPE + "/run:1", "id": "run", "label": "SOUL:tok-c waits"},
        {"scope": SCOPE, "id": "health", "label": "HEALTH:tok-d sleeps"},
        {"scope": "org:acme/user:adam", "id": "adam", "label": "SOUL:tok-e stays"},
        {"scope": SCOPE, "edge": {"start": "derived", "type": "derived_from", "end": "email"}},
    ]
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert call("import", "in.jsonl", "--store", "memory.db")[0] == 0
    return folder / "memory.db"


@pytest.fixture
def at(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda name, *arguments: call(name, "--store", "memory.db", "--scope", SCOPE, *arguments)


def exported_ids(call: Callable[..., Any]) -> list[str]:
    _, out, _ = call("export", "--store", "memory.db")
    return sorted(line["id"] for line in map(json.loads, out.splitlines()) if "id" in line)


def test_a_dry_run_lists_and_changes_nothing(call: Any, at: Any, stored: Path) -> None:
    before = exported_ids(call)
    code, out, err = at("erase", "--subject", "email=a@example.org", "--dry-run")
    assert code == 0
    assert "tok-a reads mail" in out
    assert "derived" in out
    assert "2 nodes would go" in err
    _, out, _ = at("erase", "--below", "--dry-run", "--json")
    assert sorted(each["id"] for each in json.loads(out)["nodes"]) == ["derived", "email", "health", "run"]
    assert at("erase", "email", "--dry-run")[0] == 0
    assert exported_ids(call) == before


def test_a_prefix_is_erased_at_the_scope_alone_or_below_too(call: Any, at: Any, stored: Path) -> None:
    assert at("erase", "--prefix", "SOUL:", "--yes")[0] == 0
    assert exported_ids(call) == ["adam", "health", "run"]
    assert at("erase", "--prefix", "SOUL:", "--below", "--yes")[0] == 0
    assert exported_ids(call) == ["adam", "health"]


def test_a_subject_goes_with_what_was_derived_and_is_handed_over_first(call: Any, at: Any, stored: Path) -> None:
    code, out, _ = at("erase", "--subject", "email=a@example.org", "--export", "out.jsonl", "--yes", "--json")
    assert code == 0
    receipt = json.loads(out)["receipt"]
    assert (receipt["kind"], receipt["state"], receipt["nodes"]) == ("subject", "scrubbed", 2)
    assert "tok" not in out
    assert "example.org" not in out
    assert left_on_disk(stored, ["tok-a reads", "tok-b is re"]) == []
    lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert sorted(line.get("id", "edge") for line in lines) == ["derived", "edge", "email"]
    code, _, err = call("import", "out.jsonl", "--store", "memory.db")
    assert code == 3
    assert "was erased" in err
    assert exported_ids(call) == ["adam", "health", "run"]
    assert call("import", "out.jsonl", "--store", "memory.db", "--force-erased")[0] == 0
    assert exported_ids(call) == ["adam", "derived", "email", "health", "run"]


def test_many_nodes_do_not_go_without_a_yes(call: Any, at: Any, stored: Path) -> None:
    code, _, err = at("erase", "--below")
    assert code == 2
    assert "--yes" in err
    assert len(exported_ids(call)) == 5


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("--prefix", ""), 1),
        (("email", "--below"), 2),
        (("--about", "x", "--below"), 2),
        (("--subject", "nonsense"), 2),
    ],
)
def test_an_unclear_request_is_refused(call: Any, at: Any, stored: Path, arguments: tuple[str, ...], code: int) -> None:
    assert at("erase", "--yes", *arguments)[0] == code
    assert len(exported_ids(call)) == 5


def test_settling_says_what_is_left(call: Any, at: Any, stored: Path) -> None:
    at("erase", "email", "--yes")
    code, out, _ = call("settle", "--store", "memory.db")
    assert code == 0
    assert out == "1 erased node scrubbed, 0 unreadable\n"
