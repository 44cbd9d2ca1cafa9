"""An import killed in the middle of its chunks is finished by the next one: nothing doubled, nothing missing."""

from __future__ import annotations

import json
import subprocess
import sys

from promptkeel.blocking import open_store
from promptkeel.scope import TenantScope

LINES = 20_000
CHUNK = 500
USERS = 7


def _line(number):
    if number % 2500 == 0:
        return "{"
    path = f"org:acme/user:u{number % USERS}"
    return json.dumps({"scope": path, "label": f"SOUL:fact {number}", "source": f"s{number % 5}", "recorded_at": None})


def _labels(store):
    found = []
    for user in range(USERS):
        nodes = store.query_nodes(TenantScope.parse(f"org:acme/user:u{user}"))
        found += [node.label for node in nodes]
    return found


def _import_command(tmp_path, file):
    address = f"sqlite:///{tmp_path}/memory.db"
    return [
        sys.executable, "-m", "promptkeel.cli", "import", str(file), "--store", address, "--chunk", str(CHUNK), "--json"
    ]  # fmt: skip


def test_a_killed_import_of_20000_lines_is_finished_by_the_next(tmp_path):
    file = tmp_path / "memory.jsonl"
    file.write_text("".join(_line(number) + "\n" for number in range(LINES)), encoding="utf-8")
    command = _import_command(tmp_path, file)
    address = f"sqlite:///{tmp_path}/memory.db"
    committed = 0
    for kill in range(3):
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open_store(address) as store:
            while running.poll() is None and len(_labels(store)) <= committed + kill * CHUNK:
                pass
            running.kill()
            running.wait()
            before, committed = committed, len(_labels(store))
            assert committed % CHUNK in range(CHUNK - 8, CHUNK) or committed % CHUNK == 0
            assert before < committed < LINES
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(finished.stdout)
    assert finished.returncode == 3
    assert report["resumed"] >= committed
    assert report["rejected"] == LINES // 2500
    assert [each["line"] for each in report["rejected_lines"]] == [number + 1 for number in range(0, LINES, 2500)]
    with open_store(address) as store:
        labels = _labels(store)
        assert sorted(labels) == sorted(f"SOUL:fact {number}" for number in range(LINES) if number % 2500)
        assert not any(store.core.engine.mark(key) for key in _mark_keys(file))


def _mark_keys(file):
    from promptkeel.exchange import ImportSettings

    return [ImportSettings(name=str(file.resolve())).mark_key]
