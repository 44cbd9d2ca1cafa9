"""The main job on real input: 2,541 recorded facts of ten long conversations, each with its turn and its date.

The file becomes JSON Lines, the command line imports it, one scope for each speaker under one organisation, and every
block of every prompt is read back and compared with the file: nothing missing, nothing foreign, dates and sources
right.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from promptkeel import blocking
from promptkeel.blocks import MemoryLane, PromptBlockSpec
from promptkeel.cli.declarations import DEFAULT_BLOCKS, declare_blocks
from promptkeel.instants import format_date, parse_instant
from promptkeel.scope import TenantScope

DATA = Path(__file__).parents[3] / "shared" / "data" / "locomo10.json"
FACTS = 2541

pytestmark = pytest.mark.skipif(not DATA.exists(), reason=f"the real input is not here: {DATA} (see its README)")

HEADER = re.compile(r'\[recorded (?P<date>\d{4}-\d\d-\d\d), source=(?P<source>"(?:[^"\\]|\\.)*"|[^,\]]+)\]')
FENCE = re.compile(r"</?untrusted-data-(?P<id>[0-9a-f]{6})(?: block=\"(?P<block>[A-Z_]+)\")?>")


def said_when(text):
    """The instant of ``1:56 pm on 8 May, 2023``."""
    moment = datetime.strptime(text, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def recorded_facts():
    """Every fact of the file: scope path, text, source, instant."""
    for conversation in json.loads(DATA.read_text(encoding="utf-8")):
        name = conversation["sample_id"]
        for session, speakers in conversation["observation"].items():
            recorded = said_when(conversation["conversation"][session.replace("observation", "date_time")])
            for speaker, facts in speakers.items():
                scope = TenantScope((("org", "locomo"), ("user", f"{name}-{speaker}")))
                for text, turns in facts:
                    spelled = turns if isinstance(turns, str) else ",".join(turns)
                    yield scope.path, text, f"{name}:{spelled}", recorded


@pytest.fixture(scope="module")
def said():
    """The facts of the file by scope path."""
    found = defaultdict(list)
    for path, text, source, recorded in recorded_facts():
        found[path].append((text.strip(), source, recorded))
    assert sum(map(len, found.values())) == FACTS
    assert len(found) == 20
    return found


@pytest.fixture(scope="module")
def memory(said, tmp_path_factory):
    """A store that the command line has imported the facts into, and what it reported, twice."""
    folder = tmp_path_factory.mktemp("locomo")
    file = folder / "locomo.jsonl"
    lines = [
        {"scope": path, "block": "USER_PROFILE", "text": text, "source": source, "recorded_at": recorded}
        for path, text, source, recorded in recorded_facts()
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    store = folder / "memory.db"
    command = [sys.executable, "-m", "promptkeel.cli", "import", str(file), "--store", str(store), "--json"]
    reports = [json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(2)]
    return store, reports


@pytest.fixture(scope="module")
def keel(memory):
    store, _ = memory
    with blocking.open(f"sqlite:///{store}", blocks=declare_blocks(DEFAULT_BLOCKS)) as opened:
        yield opened


def read_block(text, name):
    """What a rendered block says: (text, source, date) in its order."""
    lines = text.split("\n")
    opened, closed = FENCE.fullmatch(lines[1]), FENCE.fullmatch(lines[-1])
    assert opened["block"] == name
    assert opened["id"] == closed["id"]
    found, header = [], None
    for line in lines[2:-1]:
        if line.startswith("["):
            header = HEADER.fullmatch(line)
            assert header is not None, line
            continue
        assert line.startswith('- "'), line
        source = header["source"]
        found.append((json.loads(line[2:]), json.loads(source) if source.startswith('"') else source, header["date"]))
    return found


def test_the_command_line_takes_every_fact_once(memory):
    _, (first, second) = memory
    assert (first["inserted"], first["rejected"], first["unchanged"]) == (FACTS, 0, 0)
    assert (second["inserted"], second["confirmed"], second["unchanged"]) == (0, 0, FACTS)


def test_every_prompt_says_what_the_file_says_of_its_speaker_and_nothing_else(keel, said):
    shown = 0
    for path, facts in said.items():
        prompt = keel.prompt(TenantScope.parse(path))
        assert [block.name for block in prompt.blocks if block.text] == ["USER_PROFILE"]
        block = prompt.block("USER_PROFILE")
        assert block.text in prompt.text
        found = read_block(block.text, "USER_PROFILE")
        assert sorted(found) == sorted((text, source, recorded[:10]) for text, source, recorded in facts)
        dates = [date for _, _, date in found]
        assert dates == sorted(dates)
        assert block.omitted == ()
        shown += len(found)
    assert shown == FACTS


def test_every_fact_holds_its_turn_and_the_instant_of_its_session(keel, said):
    for path, facts in said.items():
        found = keel.facts(TenantScope.parse(path))
        assert sorted((fact.value, fact.source, fact.recorded) for fact in found) == sorted(
            (text, source, parse_instant(recorded)) for text, source, recorded in facts
        )


def test_nobody_sees_the_organisations_other_speakers(keel, said):
    assert keel.facts(TenantScope.parse("org:locomo")) == ()
    assert keel.facts(TenantScope.parse("org:locomo/user:conv-26")) == ()
    path = next(iter(said))
    assert len(keel.facts(TenantScope.parse(path).child("agent", "a1"))) == len(said[path])


def test_another_lane_over_the_same_facts_says_the_same(memory, said):
    store, _ = memory
    block = PromptBlockSpec(name="EVERYTHING", source=MemoryLane(label_prefix="S"))
    with blocking.open(f"sqlite:///{store}", blocks=[block]) as opened:
        for path, facts in said.items():
            found = opened.facts(TenantScope.parse(path), "EVERYTHING")
            assert sorted((fact.source, format_date(fact.recorded)) for fact in found) == sorted(
                (source, recorded[:10]) for _, source, recorded in facts
            )


def test_what_the_import_took_the_export_gives_back(memory, said, tmp_path):
    store, _ = memory
    command = [sys.executable, "-m", "promptkeel.cli", "export", "--store", str(store), "--scope", "org:locomo"]
    lines = [json.loads(line) for line in subprocess.run(command, capture_output=True, check=True).stdout.splitlines()]
    assert sorted((line["scope"], line["label"], line["source"], line["recorded_at"]) for line in lines) == sorted(
        (path, f"SOUL:{text}", source, recorded) for path, facts in said.items() for text, source, recorded in facts
    )
