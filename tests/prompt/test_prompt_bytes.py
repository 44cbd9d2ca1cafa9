"""The same memory gives the same bytes: in every process, order of insertion, time zone, locale and hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import promptkeel as pk
from promptkeel import blocking
from promptkeel.instants import parse_instant

FENCE = pk.RenderPolicy(fence="7f3a9c")
ADA = pk.TenantScope.parse("org:acme/user:ada")
BLOCKS = [
    pk.PromptBlockSpec(name="BOUNDARIES", source=pk.StaticSource("Never reveal another customer's data.")),
    pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:", profile_fields={"role"}), policy=FENCE),
]
FACTS = [
    ("prefers tea", "onboarding", "2026-05-02T10:00:00Z"),
    ("has two children", "onboarding", "2026-05-02T23:00:00+02:00"),
    ("日本語を話す", None, None),
    ("naïve café", "crm import", "2026-05-01T23:30:00-05:00"),
]
SHOWN = """\
### PLATFORM / BOUNDARIES
Never reveal another customer's data.

### PROFILE / USER_PROFILE
<untrusted-data-7f3a9c block="USER_PROFILE">
[provenance not recorded]
- "日本語を話す"
[recorded 2026-05-02, source="crm import"]
- "naïve café"
[recorded 2026-05-02, source=onboarding]
- "prefers tea"
- "has two children"
[recorded 2026-06-01, source=user-correction]
- role: "CTO"
</untrusted-data-7f3a9c>"""

PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from prompt.test_prompt_bytes import prompt_of
sys.stdout.buffer.write(prompt_of({url!r}, {order!r}).text.encode())
"""


def prompt_of(url: str, order: list[int]) -> pk.Prompt:
    with blocking.open(url, blocks=BLOCKS) as keel:
        for number in order:
            text, source, recorded = FACTS[number]
            keel.remember(ADA, text, block="USER_PROFILE", source=source, recorded_at=recorded, id=f"n{number}")
        keel.correct(ADA, "n0", properties={"role": "CTO"}, source="user-correction", recorded_at="2026-06-01")
        return keel.prompt(ADA)


def test_the_text_is_exactly_what_the_design_shows():
    text = prompt_of("ram:", [0, 1, 2, 3]).text
    assert text.startswith("## STANDING CONTEXT\n")
    assert text.partition("\n\n")[2] == SHOWN


@pytest.mark.parametrize("backend", ["ram", "sqlite"])
@pytest.mark.parametrize(
    ("order", "environment"),
    [
        ([0, 1, 2, 3], {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C"}),
        ([3, 2, 1, 0], {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8"}),
        ([2, 0, 3, 1], {"PYTHONHASHSEED": "4242", "TZ": "America/St_Johns", "LC_ALL": "tr_TR.UTF-8"}),
    ],
)
def test_another_process_zone_locale_seed_and_order_give_the_same_bytes(tmp_path, backend, order, environment):
    url = "ram:" if backend == "ram" else f"sqlite:///{tmp_path / 'memory.db'}"
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - for the child's path
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(tests=tests, url=url, order=order)],
        env={**os.environ, **environment},
        capture_output=True,
        check=True,
    )
    assert answer.stdout.decode() == prompt_of("ram:", [0, 1, 2, 3]).text


def test_midnight_and_a_clock_set_back_change_no_byte():
    now = [parse_instant("2026-06-01T23:59:59.999999Z")]
    with blocking.open("ram:", blocks=BLOCKS, clock=lambda: now[0]) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE", recorded_at="2026-05-02")
        first = keel.prompt(ADA)
        for text in ("2026-06-02T00:00:00Z", "2030-01-01T00:00:00Z", "1999-01-01T00:00:00Z"):
            now[0] = parse_instant(text)
            assert keel.prompt(ADA) is first


def test_a_rewrite_of_equal_content_leaves_the_bytes_and_the_prompt_as_they_are():
    with blocking.open("ram:", blocks=BLOCKS) as keel:
        node = keel.remember(ADA, "prefers tea", block="USER_PROFILE", source="s", recorded_at="2026-05-02")
        first = keel.prompt(ADA)
        assert keel.remember(ADA, "prefers tea", block="USER_PROFILE", source="other").id == node.id
        keel.store.put(node, expected=node)
        assert keel.prompt(ADA) is first
        assert [testimony.source for testimony in keel.history(ADA, node.id).testimonies] == ["other"]


def test_the_fingerprint_is_the_hash_of_the_bytes_and_tokens_are_counted_per_block():
    import hashlib

    prompt = prompt_of("ram:", [0, 1, 2, 3])
    assert prompt.fingerprint == hashlib.sha256(prompt.text.encode()).hexdigest()
    assert set(prompt.block_tokens) == {"BOUNDARIES", "USER_PROFILE"}
    assert sum(prompt.block_tokens.values()) <= prompt.tokens
    assert prompt.freshness.strict
    assert str(prompt.freshness) == "strict"


def test_a_prompt_without_anything_to_say_is_empty():
    with blocking.open("ram:", blocks=[BLOCKS[1]]) as keel:
        prompt = keel.prompt(ADA)
        assert prompt.text == ""
        assert prompt.block("USER_PROFILE").revision_id == pk.EMPTY_MEMORY_REVISION


def test_a_limit_on_a_block_is_said_in_the_text_and_listed_in_the_result():
    spec = pk.PromptBlockSpec(
        name="USER_PROFILE", source=pk.MemoryLane("SOUL:"), policy=pk.RenderPolicy(max_facts=2, fence="7f3a9c")
    )
    with blocking.open("ram:", blocks=[spec]) as keel:
        for number in range(5):
            keel.remember(ADA, f"fact {number}", block="USER_PROFILE", recorded_at=f"2026-05-0{number + 1}")
        block = keel.prompt(ADA).block("USER_PROFILE")
    assert "[3 facts left out: 3 over the limit of 2 facts]" in block.text
    assert [omission.fact.value for omission in block.omitted] == ["fact 0", "fact 1", "fact 2"]
    assert '- "fact 4"' in block.text
