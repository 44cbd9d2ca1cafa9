"""The main paths one by one: ``pytest benchmarks --benchmark-enable``. Without the flag, each runs once.

Figures of different machines, or of different minutes on a shared one, cannot be compared: ``ratios.py`` measures each
against its floor instead.
"""

from __future__ import annotations

import io
import itertools
import json

import pytest

import promptkeel as pk
from memories import ADA, PREFIXES, Elsewhere, make_store, memory_specs, rows_of, statement, static_specs, url_of
from promptkeel import blocking
from promptkeel.exchange import JsonLines, import_steps
from promptkeel.model import BlockFact, BlockRevision
from promptkeel.steps import drive_blocking

LANE = 200


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("bench") / "memory.db", LANE)


@pytest.fixture
def keel(path):
    with blocking.open(url_of(path), blocks=[*static_specs(), *memory_specs()]) as opened:
        opened.prompt(ADA)
        yield opened


def test_warm_prompt(benchmark, keel):
    first = keel.prompt(ADA)
    assert benchmark(keel.prompt, ADA) is first


def test_prompt_after_one_change_in_a_lane(benchmark, keel, path):
    other = Elsewhere(path)
    before = keel.prompt(ADA)

    def commit():
        other.touch(PREFIXES[0], LANE)

    after = benchmark.pedantic(lambda: keel.prompt(ADA).text, setup=commit, rounds=100)
    other.close()
    assert after != before.text


def test_cold_lane(benchmark, path):
    store = blocking.open_store(url_of(path))
    revision = benchmark(blocking.scan_memory_lane, store, ADA, PREFIXES[0])
    store.close()
    assert len(revision.facts) == LANE


def test_render_200_facts(benchmark):
    facts = []
    for number in range(LANE):
        text, source, recorded = statement(number)
        facts.append(BlockFact(text, source, recorded))
    revision = BlockRevision(content="", revision="r", facts=tuple(facts))
    policy = pk.RenderPolicy(fence="7f3a9c")
    rendered = benchmark(pk.render_block, "USER_PROFILE", revision, tier="profile", policy=policy)
    assert rendered.facts_shown == LANE


def test_remember(benchmark, keel):
    numbers = itertools.count()
    node = benchmark(lambda: keel.remember(ADA, label=f"EVENT:{next(numbers)} {benchmark.name}", source="chat"))
    assert node.source == "chat"


def test_import_of_1000_lines(benchmark, tmp_path):
    lines = b"".join(
        json.dumps({"scope": row[0], "label": row[1], "id": row[2], "source": row[3]}).encode() + b"\n"
        for row in rows_of(ADA, [(PREFIXES[0], number) for number in range(1000)])
    )
    numbers = itertools.count()

    def into_a_new_store():
        return (blocking.open_store(url_of(tmp_path / f"{next(numbers)}.db")).core,), {}

    report = benchmark.pedantic(
        lambda store: drive_blocking(import_steps(store, io.BytesIO(lines), JsonLines())),
        setup=into_a_new_store,
        rounds=10,
    )
    assert report.inserted == 1000
