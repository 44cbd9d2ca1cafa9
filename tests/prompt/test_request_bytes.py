"""The same memory gives the same requests: in every process, order, time zone, locale and hash seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import promptkeel
from conversing import ADA, FORMATS, builder_of, shuffled, specs
from promptkeel import blocking
from promptkeel.instants import parse_instant
from promptkeel.prompt import __all__ as public

FACTS = [
    ("SOUL:prefers tea", "user", "2026-05-02T10:00:00Z"),
    ("SOUL:has two children", None, "2026-05-02T23:00:00+02:00"),
    ("PREF:日本語を話す", "third-party", None),
    ("PREF:naïve café", "inferred", "2026-05-01T23:30:00-05:00"),
    ("FOCUS:plans a journey", "user", "2026-06-01"),
]
PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from prompt.test_request_bytes import requests_of
sys.stdout.buffer.write(requests_of({order!r}, {clock!r}, {seed!r}).encode())
"""


def requests_of(order: list[int], clock: str, seed: int) -> str:
    """The requests of every provider as JSON, from facts, tools and keys in some order."""
    with blocking.open("ram:", blocks=specs(), clock=lambda: parse_instant(clock)) as keel:
        for number in order:
            label, trust, at = FACTS[number]
            keel.remember(ADA, label=label, trust=trust, source="tests", recorded_at=at)
        prompt = builder_of(keel.store).build(ADA)
    found = {}
    for form in FORMATS.values():
        tools = [form.tool(number) for number in order]
        request = form.request(
            prompt,
            form.conversation(3, calls=2),
            tools=shuffled(tools, seed),
            tail={"recall": ["found"], "query": "Which?"},
        )
        found[form.name] = dict(request), request.notes
        if request.prefix is not None:
            found["prefix"] = request.prefix.key, request.prefix.create
    return json.dumps(found)


@pytest.fixture(scope="module")
def expected():
    return requests_of([0, 1, 2, 3, 4], "2026-07-01T00:00:00Z", 0)


@pytest.mark.parametrize(
    ("environment", "order", "clock"),
    [
        ({"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C"}, [4, 3, 2, 1, 0], "2026-07-01T00:00:00Z"),
        ({"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8"}, [2, 0, 4, 1, 3], "2031-01-01T00:00:00Z"),
        ({"PYTHONHASHSEED": "4242", "TZ": "America/St_Johns", "LANG": "tr_TR.UTF-8"}, [1, 4, 0, 3, 2], "1999-12-31"),
        ({"PYTHONHASHSEED": "random", "PYTHONUTF8": "1"}, [0, 1, 2, 3, 4], "2026-07-01T00:00:01Z"),
    ],
)  # fmt: skip
def test_another_process_clock_zone_locale_seed_and_order_give_the_same_requests(environment, order, clock, expected):
    program = PROGRAM.format(tests=str(Path(__file__).parents[1]), order=order, clock=clock, seed=order[0] + 1)
    kept = {name: value for name, value in os.environ.items() if name not in ("TZ", "LC_ALL", "LANG", "PYTHONHASHSEED")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env={**kept, **environment})
    assert done.stdout.decode() == expected


def test_the_public_names_of_prompts_are_the_pinned_ones():
    assert set(public) == {
        "BlockingPromptBuilder", "BuilderCore", "CachedPrefix", "Handle", "Layout", "Prompt", "PromptBuilder",
        "Request", "Section", "Tail", "TailPart", "UnprovenBuilder",
    }  # fmt: skip
    assert promptkeel.Prompt is promptkeel.prompt.Prompt
