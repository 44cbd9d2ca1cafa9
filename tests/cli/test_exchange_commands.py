"""``import`` and ``export``: what goes in comes out, what is bad is named, and nothing changes twice."""

from __future__ import annotations

import hashlib
import json

import pytest

SCOPE = "org:acme/user:u1"
TEA = {
    "scope": SCOPE,
    "id": "n1",
    "label": "SOUL:prefers tea",
    "source": "onboarding",
    "recorded_at": "2026-05-02T10:00:00Z",
}


@pytest.fixture
def file(folder):
    def write(*lines, name="memory.jsonl"):
        path = folder / name
        path.write_text(
            "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), encoding="utf-8"
        )
        return str(path)

    return write


def digest_of(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("promptkeel.db"))}


def test_what_was_imported_is_exported_byte_for_byte(call, file, folder):
    path = file(TEA, {**TEA, "id": "n2", "label": "SOUL:日本語", "recorded_at": None})
    assert call("import", path).code == 0
    assert [json.loads(line) for line in call("export").out.splitlines()] == [
        json.loads(line) for line in (folder / "memory.jsonl").read_text().splitlines()
    ]
    assert call("export", "--output", "out/again.jsonl").code == 0
    first = (folder / "out" / "again.jsonl").read_bytes()
    assert call("import", "out/again.jsonl", "--store", "other.db").code == 0
    assert call("export", "--store", "other.db", "--output", "third.jsonl").code == 0
    assert (folder / "third.jsonl").read_bytes() == first


def test_importing_twice_changes_no_byte_of_the_store(call, file, folder):
    path = file(TEA, {"scope": SCOPE, "block": "FOCUS", "text": "ships on Friday"})
    assert call("import", path, "--json").document["inserted"] == 2
    before = digest_of(folder)
    assert before
    again = call("import", path, "--json").document
    assert (again["unchanged"], again["inserted"], again["confirmed"]) == (2, 0, 0)
    assert digest_of(folder) == before


def test_bad_lines_are_named_and_kept_and_the_others_taken(call, file, folder):
    path = file("{", TEA, {"scope": SCOPE, "lable": "SOUL:a"})
    found = call("import", path)
    rejects = folder / "memory.rejected.jsonl"
    assert found.code == 3
    assert found.err.splitlines() == [
        "promptkeel: line 1: is not JSON: Expecting property name enclosed in double quotes at character 2",
        "promptkeel: line 3: unknown key \"lable\"; did you mean 'label'?",
        f"promptkeel: 2 of 3 lines rejected, the other lines were taken; all of them are in {rejects}",
    ]
    kept = [json.loads(line) for line in (folder / "memory.rejected.jsonl").read_text().splitlines()]
    assert [(each["line"], each["text"]) for each in kept] == [
        (1, "{"),
        (3, '{"scope": "org:acme/user:u1", "lable": "SOUL:a"}'),
    ]
    assert all(each["reason"] for each in kept)
    assert call("export").out.count("\n") == 1


def test_a_strict_import_takes_nothing_where_a_line_is_bad(call, file):
    found = call("import", file(TEA, "{"), "--strict", "--json")
    assert (found.code, found.document["committed"], found.document["rejected"]) == (3, False, 1)
    assert "nothing was written" in found.err
    assert call("export").out == ""


def test_a_dry_run_says_what_would_change_and_writes_no_file(call, file, folder):
    found = call("import", file(TEA, "{"), "--dry-run", "--json")
    assert (found.code, found.document["inserted"], found.document["committed"]) == (3, 1, False)
    assert [path.name for path in folder.iterdir()] == ["memory.jsonl"]
    assert call("import", file(TEA)).code == 0
    before = digest_of(folder)
    found = call("import", file({**TEA, "trust": "user"}), "--dry-run", "--replace", "--json")
    assert (found.code, found.document["updated"]) == (0, 1)
    assert "nothing was written" in call("import", file(TEA), "--dry-run").err
    assert digest_of(folder) == before


def test_rejects_go_where_they_are_sent(call, file, folder):
    assert call("import", file("{"), "--rejects", "bad/lines.jsonl").code == 3
    assert (folder / "bad" / "lines.jsonl").exists()
    assert call("import", file("{"), "--rejects", "memory.jsonl").code == 2


def test_standard_input_is_a_file_too(process, folder):
    line = json.dumps(TEA)
    found = process("import", "-", "--chunk", "1", "--json", stdin=f"{line}\n{{\n")
    assert (found.code, found.document["inserted"], found.document["rejects"]) == (3, 1, None)
    piped = process("export")
    assert json.loads(piped.out) == TEA
    assert process("import", "-", "--store", "other.db", "--json", stdin=piped.out).document["inserted"] == 1


def test_a_knowledge_graph_needs_a_scope_and_comes_back(call, file, folder):
    lines = (
        {"type": "entity", "name": "lift", "entityType": "device", "observations": ["blue", "out of service"]},
        {"type": "entity", "name": "hall", "entityType": "place", "observations": []},
        {"type": "relation", "from": "lift", "to": "hall", "relationType": "stands in"},
    )
    path = file(*lines, name="memory.json")
    assert call("import", path, "--format", "mcp").code == 2
    wrong = call("import", path)
    assert wrong.code == 3
    assert "--format mcp" in wrong.err
    arguments = ("--format", "mcp", "--scope", SCOPE)
    assert call("import", path, *arguments, "--prefix", "FOCUS:", "--source", "old", "--json").document["inserted"] == 4
    exported = call("export", *arguments, "--prefix", "FOCUS:")
    assert sorted(exported.out.splitlines()) == sorted(json.dumps(line) for line in lines)
    assert '- "out of service"' in call("prompt", "--scope", SCOPE).out


def test_what_the_graph_format_cannot_say_is_told(call, file):
    call("import", file(TEA))
    found = call("export", "--format", "mcp", "--scope", SCOPE)
    assert (found.code, found.out) == (0, "")
    assert "1 statement about no entity" in found.err


def test_the_json_of_an_export_is_one_document(call, file):
    call("import", file(TEA))
    assert call("export", "--json").document["lines"] == [TEA]
    assert call("export", "--json", "--output", "o.jsonl").document["output"] == "o.jsonl"


def test_retracted_statements_are_exported_on_request(call, file):
    call("import", file(TEA))
    call("retract", "n1", "--scope", SCOPE)
    assert call("export").out == ""
    assert json.loads(call("export", "--all").out) == {**TEA, "state": "retracted"}
