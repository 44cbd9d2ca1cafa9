"""``import`` and ``export``: what goes in comes out, what is bad is named, and nothing changes twice."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

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
    rejects = folder / "memory.jsonl.rejected.jsonl"
    assert found.code == 3
    assert found.err.splitlines() == [
        "promptkeel: line 1: is not JSON: Expecting property name enclosed in double quotes at character 2",
        "promptkeel: line 3: unknown key \"lable\"; did you mean 'label'?",
        f"promptkeel: 2 of 3 lines rejected, the other lines were taken; all of them are in {rejects}",
    ]
    kept = [json.loads(line) for line in (folder / "memory.jsonl.rejected.jsonl").read_text().splitlines()]
    assert [(each["line"], each["text"]) for each in kept] == [
        (1, "{"),
        (3, '{"scope": "org:acme/user:u1", "lable": "SOUL:a"}'),
    ]
    assert all(each["reason"] for each in kept)
    assert call("export").out.count("\n") == 1


def test_a_strict_import_takes_nothing_where_a_line_is_bad(call, file):
    found = call("import", file(TEA, "{"), "--strict", "--json")
    assert (found.code, found.document["committed"], found.document["rejected"]) == (3, False, 1)
    assert (found.document["inserted"], found.document["would_have"]["inserted"]) == (0, 1)
    assert "1 of 2 lines rejected, nothing was written" in found.err
    assert "without the rejected lines it would have inserted 1" in found.err
    assert call("import", file(TEA, "{"), "--strict").out.splitlines()[1] == "inserted\t0"
    dry = call("import", file(TEA, "{"), "--strict", "--dry-run", "--json").document
    assert (dry["inserted"], dry["would_have"]["inserted"]) == (0, 1)


def test_an_import_that_takes_nothing_makes_no_store(call, file, folder):
    edge = {"scope": SCOPE, "edge": {"start": "n1", "type": "about", "end": "n2"}}
    for lines, *arguments in ((("{", edge),), (("{", edge), "--chunk", "1"), ((TEA, edge), "--strict")):
        found = call("import", file(*lines), *arguments)
        assert found.code == 3
        assert "of 2 lines rejected, nothing was written" in found.err
    assert sorted(path.name for path in folder.iterdir()) == ["memory.jsonl", "memory.jsonl.rejected.jsonl"]
    assert call("import", file(TEA), "--strict").code == 0
    assert call("export").out.count("\n") == 1
    found = call("import", file("{"))
    assert "1 of 1 line rejected, nothing was written" in found.err


def test_a_json_array_is_told_in_one_line(call, file, folder):
    call("import", file(TEA), "--store", "there.db")
    for text in (json.dumps([TEA, TEA]), "\n" + json.dumps([TEA, TEA], indent=2), "[\n" + json.dumps(TEA) + "\n]"):
        for name in ("new.db", "there.db"):
            found = call("import", file(text), "--store", name)
            assert (found.code, found.err.count("\n")) == (1, 1)
            assert "one JSON array; write one object on each line" in found.err
            assert (folder / name).exists() == (name == "there.db")
        assert not (folder / "memory.jsonl.rejected.jsonl").exists()


def test_only_the_first_rejected_lines_are_named(call, file):
    found = call("import", file(*["{"] * 17))
    assert found.err.count("promptkeel: line ") == 10
    assert "and 7 more" in found.err


def test_rejected_lines_are_mended_and_imported_again(call, file, folder):
    rejects = folder / "memory.jsonl.rejected.jsonl"
    call("import", file({**TEA, "recorded_at": "monday"}, {"scope": SCOPE, "lable": "SOUL:b"}))
    again = call("import", str(rejects))
    assert again.code == 3
    assert "mend its 'text', or write the mended line in its place" in again.err
    first, second = (
        json.loads(line) for line in (folder / "memory.jsonl.rejected.jsonl.rejected.jsonl").read_text().splitlines()
    )
    assert json.loads(first["text"])["recorded_at"] == "monday"
    rejects.write_text(
        json.dumps({**first, "text": first["text"].replace("monday", "2026-05-02T10:00:00Z")})
        + "\n"
        + second["text"].replace("lable", "label")
    )
    assert call("import", str(rejects), "--json").document["inserted"] == 2
    assert json.loads(call("export").out.splitlines()[1]) == TEA


def test_rejected_lines_of_before_go_when_all_lines_are_taken(call, file, folder):
    rejects = folder / "memory.jsonl.rejected.jsonl"
    call("import", file(TEA, "{"))
    call("import", file(TEA), "--dry-run")
    assert rejects.exists()
    assert f"removed {rejects}" in call("import", file(TEA)).err
    assert not rejects.exists()
    for mine in ("my notes", json.dumps(TEA), ""):
        rejects.write_text(mine)
        call("import", file(TEA))
        assert rejects.read_text() == mine


def test_rejected_lines_stay_when_another_file_of_the_same_stem_is_imported(call, file, folder):
    call("import", file("{", name="memory.jsonl"))
    before = (folder / "memory.jsonl.rejected.jsonl").read_bytes()
    assert call("import", file(TEA, name="memory.txt")).code == 0
    assert (folder / "memory.jsonl.rejected.jsonl").read_bytes() == before
    assert call("import", file("[]", name="memory.txt")).code == 3
    assert (folder / "memory.jsonl.rejected.jsonl").read_bytes() == before
    assert (folder / "memory.txt.rejected.jsonl").exists()


def test_the_help_names_the_file_of_rejected_lines(call, file, folder):
    call("import", file("{"))
    assert "FILE.rejected.jsonl" in call("import", "--help").out
    assert (folder / "memory.jsonl.rejected.jsonl").exists()


# A process counts as its own what it was when it was forked, so a small one stands between.
PEAK = """
import os, subprocess, sys
running = subprocess.Popen([sys.executable, "-m", "promptkeel.cli", *sys.argv[1:]], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(running.pid, 0)
running.returncode = os.waitstatus_to_exitcode(status)
print(running.returncode, usage.ru_maxrss)
"""


def peak_of(*arguments):
    """What a command took in memory at most."""
    found = subprocess.run([sys.executable, "-c", PEAK, *arguments], capture_output=True, check=True)
    code, peak = map(int, found.stdout.split())
    assert code == 0
    return peak


def test_a_dry_run_without_a_store_takes_no_more_memory_than_the_import(folder):
    lines = (f'{{"scope": "{SCOPE}", "label": "SOUL:{number}"}}\n' for number in range(12_000))
    (folder / "memory.jsonl").write_text("".join(lines))
    assert peak_of("import", "memory.jsonl", "--dry-run") < 1.3 * peak_of("import", "memory.jsonl")


def test_what_stands_after_at_is_said_once(call, file):
    assert "starting at character" in call("import", file('{"scope": "org')).err


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
    assert '- "lift: out of service"' in call("prompt", "--scope", SCOPE).out


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
