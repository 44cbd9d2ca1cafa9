"""Processes that append to one block at once: each number has one winner, and no acknowledged revision is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from promptkeel import blocking
from promptkeel.scope import TenantScope
from promptkeel.upkeep.checking import check_engine

ACME = TenantScope.parse("org:acme")
PROCESSES, APPENDS = 4, 12

RACER = """
import json, sys
from promptkeel import blocking, TenantScope
from promptkeel.errors import RevisionConflictError
url, name, compares, appends = sys.argv[1], sys.argv[2], sys.argv[3] == "compare", int(sys.argv[4])
scope = TenantScope.parse("org:acme")
won, conflicts = [], 0
with blocking.open(url, busy_timeout=60) as keel:
    print("ready", flush=True)
    sys.stdin.readline()
    while len(won) < appends:
        head = keel.blocks.head(scope, "RULES")
        expected = ("" if head is None else head.id) if compares else None
        try:
            found = keel.blocks.append(scope, "RULES", f"{name} {len(won)}", author=name, expected_head=expected)
        except RevisionConflictError as error:
            assert error.expected == expected and error.actual != expected
            conflicts += 1
        else:
            assert found.parent == (expected or None) if compares else True
            won.append([found.number, found.content])
print(json.dumps({"won": won, "conflicts": conflicts}))
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'memory.db'}"
        return
    databases = request.getfixturevalue("databases")
    found = databases.store()
    yield found
    databases.give_back(found)


@pytest.mark.parametrize("way", ["compare", "whatever"])
def test_of_racing_appends_one_wins_each_number_and_none_is_lost(url, way):
    blocking.open_store(url).close()
    command = [sys.executable, "-c", RACER, url]
    racers = [
        subprocess.Popen(
            [*command, f"user:u{number}", way, str(APPENDS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(PROCESSES)
    ]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    results = []
    for racer in racers:
        out, _ = racer.communicate(timeout=120)
        assert racer.returncode == 0
        results.append(json.loads(out))
    won = [tuple(each) for result in results for each in result["won"]]
    assert set(Counter(number for number, _ in won).values()) == {1}
    with blocking.open(url) as keel:
        log = keel.blocks.log(ACME, "RULES")
        assert sorted((each.number, each.content) for each in log) == sorted(won)
        assert [each.number for each in log] == list(range(PROCESSES * APPENDS, 0, -1))
        assert [each.parent for each in log] == [each.id for each in log[1:]] + [None]
        assert [each.number for each in log if each.is_head] == [PROCESSES * APPENDS]
        assert check_engine(keel.store.core.engine).is_healthy
    if way == "whatever":
        assert not any(result["conflicts"] for result in results)
