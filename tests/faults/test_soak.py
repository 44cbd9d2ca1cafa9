"""Processes that write and resolve the same scopes for a minute: nothing lost, stale or torn, and no lock error.

A minute in the profiles ``ci`` and ``deep``, five seconds in ``dev``; the length and the figures are printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from faults.soak_worker import PREFIXES, SCOPES, SIZE, label, node_id
from promptkeel import blocking
from promptkeel.model import MemoryNode
from promptkeel.upkeep.checking import check

WORKER = Path(__file__).with_name("soak_worker.py")


def seconds() -> float:
    return 5.0 if settings.get_current_profile_name() == "dev" else 60.0


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'memory.db'}"
        return
    databases = request.getfixturevalue("databases")
    address = databases.store()
    yield address
    databases.give_back(address)


@pytest.mark.parametrize("processes", [2, 8])
def test_processes_lose_nothing_and_see_nothing_stale_or_torn(url, processes, tmp_path, capsys):
    with blocking.open_store(url) as store:
        for scope, place in enumerate(SCOPES):
            for prefix in PREFIXES:
                store.put(MemoryNode(id=node_id(scope, prefix), scope=place, label=label(scope, prefix, 0)))
    shared = tmp_path / "acknowledged"
    shared.write_bytes(bytes(SIZE))
    environment = {**os.environ, "PYTHONPATH": str(WORKER.parent.parent)}
    workers = [
        subprocess.Popen(
            [sys.executable, WORKER, url, str(number), str(seconds()), shared],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for number in range(processes)
    ]  # fmt: skip
    try:
        found = [worker.communicate(timeout=seconds() * 3 + 60) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    for worker, (_, errors) in zip(workers, found, strict=True):
        assert worker.returncode == 0, errors
    reports = [json.loads(output) for output, _ in found]
    with blocking.open_store(url) as store:
        for scope, place in enumerate(SCOPES):
            counted = sum(report["counted"][scope] for report in reports)
            labels = {store.get(place, node_id(scope, prefix)).label for prefix in PREFIXES}
            assert labels == {label(scope, prefix, counted) for prefix in PREFIXES}
    audit = check(url)
    assert audit.is_healthy, audit.findings
    sums = {name: sum(report[name] for report in reports) for name in ("writes", "conflicts", "prompts")}
    assert all(report["prompts"] for report in reports)
    assert sums["writes"] > processes
    with capsys.disabled():
        sys.stdout.write(f"\n  soak, {url.partition(':')[0]}, {processes} processes, {seconds():.0f} s: {sums}\n")
