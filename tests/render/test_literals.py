"""A value stays inside its literal, decodes to what was stored, and is as readable as that allows."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import promptkeel.render
from promptkeel.render import literals
from promptkeel.render.literals import lines, literal, spells_fence
from render.block_reader import SEPARATORS
from render.hostile import BRACKETS, FENCE_SPELLINGS, ORDINARY, texts

EVERY_CHARACTER = """
import hashlib
from promptkeel.render.literals import lines, literal, spells_fence
digest = hashlib.sha256()
for code in range(0x110000):
    digest.update(literal(chr(code)).encode())
for code in (*range(0x3400), *range(0xA000, 0xAC00), *range(0xD7A0, 0x13000), *range(0x1C000, 0x20000), 0xE0075):
    character = chr(code)
    for text in (f"a{character}\\ufe0f", f"<untrusted{character}data>", f"{character}/untrusted-data"):
        digest.update(literal(text).encode())
    digest.update(b"%d%d" % (spells_fence(f"un{character}rusted data"), lines(f"x\\n{character}") is None))
print(digest.hexdigest())
"""
GOLDEN = "308d8975a9b49a043c7d5fb69068410854eac8391998c3e3c9a5344998eb419c"


@given(texts)
def test_a_literal_decodes_to_the_stored_text(text):
    assert json.loads(literal(text)) == text


@given(st.text(st.characters(), min_size=1))
def test_a_literal_is_one_encodable_line_whatever_the_text(text):
    spelled = literal(text)
    assert SEPARATORS.search(spelled) is None
    assert len(spelled.splitlines()) == 1
    spelled.encode()


@given(texts)
def test_no_quote_ends_a_literal_early(text):
    inside = literal(text)[1:-1]
    assert '"' not in inside.replace("\\\\", "").replace('\\"', "")


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_as_it_is(text):
    assert literal(text) == f'"{text}"'


@pytest.mark.parametrize("spelling", FENCE_SPELLINGS)
def test_a_disguised_fence_keeps_no_bracket(spelling):
    assert spells_fence(spelling)
    assert not set(literal(f"before {spelling} after")) & set(BRACKETS)


@given(st.sampled_from(FENCE_SPELLINGS), st.text(max_size=5), st.text(max_size=5))
def test_text_around_a_disguised_fence_does_not_hide_it(spelling, before, after):
    hidden = f"{before} {spelling} {after}"
    assert not set(literal(hidden)) & set("<>❮❯")


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ('"\\', '"\\"\\\\"'),
        ("a\tb\nc\r", '"a\\tb\\nc\\r"'),
        ("\x00\x1b\x7f\x9b", '"\\u0000\\u001b\\u007f\\u009b"'),
        ("\x85\u2028\u2029\x0b\x0c", '"\\u0085\\u2028\\u2029\\u000b\\f"'),
        ("\u202e\u2066\u200f\u061c", '"\\u202e\\u2066\\u200f\\u061c"'),
        ("\u2800\u115f\u1160\u3164\uffa0", '"\\u2800\\u115f\\u1160\\u3164\\uffa0"'),
        ("\u00ad\u200b\u2060\ufeff\u034f\u180e", '"\\u00ad\\u200b\\u2060\\ufeff\\u034f\\u180e"'),
        ("\U000e0068i", '"\\udb40\\udc68i"'),
        ("\U0001f3f4\U000e0075\U000e0073\U000e007f", '"\U0001f3f4\\udb40\\udc75\\udb40\\udc73\\udb40\\udc7f"'),
        ("❤\ufe0f\ufe0f", '"❤\\ufe0f\\ufe0f"'),
        ("a\ufe0f", '"a\\ufe0f"'),
        ("a\U000e0101", '"a\\udb40\\udd01"'),
        ("\ufe0f", '"\\ufe0f"'),
        ("\u200d\u200c", '"\\u200d\\u200c"'),
        ("\ue000\U0010ffff\u0378", '"\\ue000\\udbff\\udfff\\u0378"'),
        ("\ud800", '"\\ud800"'),
    ],
)
def test_what_has_no_ink_or_breaks_or_turns_a_line_is_escaped(text, spelled):
    assert literal(text) == spelled


def test_a_lone_surrogate_costs_its_escape_not_the_prompt():
    assert json.loads(literal("a\udcffb")) == "a\udcffb"
    literal("a\udcffb").encode()


@given(texts)
def test_block_lines_are_verbatim(text):
    found = lines(text)
    if found is not None:
        assert "\n".join(found) == text
        assert not any(SEPARATORS.search(line) for line in found)


def test_code_may_stand_in_block_form_and_a_fence_may_not():
    assert lines('def f():\n\treturn "x\\n"\n') == ["def f():", '\treturn "x\\n"', ""]
    assert lines("one line") is None
    for spelling in FENCE_SPELLINGS:
        assert lines(f"x\n{spelling}") is None
    for hidden in ("x\ny\u200b", "x\r\ny", "x\n\ufe0fy", "x\u2028\ny"):
        assert lines(hidden) is None


def test_every_code_point_is_spelled_as_it_always_was():
    assert _digest(sys.executable) == GOLDEN


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_other_interpreters_spell_alike(version):
    python = shutil.which(f"python{version}")
    if python is None or f"{sys.version_info[0]}.{sys.version_info[1]}" == version:
        pytest.skip(f"no other python{version} here")
    if subprocess.run([python, "-c", "import attrs"], env=_environment(), capture_output=True, check=False).returncode:
        pytest.skip(f"python{version} does not start here")
    assert _digest(python) == GOLDEN


def _environment() -> dict[str, str]:
    import attrs

    sources = Path(promptkeel.render.__file__).parents[2]
    return {
        "PYTHONPATH": f"{sources}:{Path(attrs.__file__).parents[1]}",
        "PATH": os.environ["PATH"],
        "PYTHONHASHSEED": "random",
    }


def _digest(python: str) -> str:
    ran = subprocess.run(
        [python, "-c", EVERY_CHARACTER], capture_output=True, text=True, env=_environment(), check=True
    )
    return ran.stdout.strip()


def test_rendering_asks_the_interpreter_nothing_about_unicode():
    asked = {"casefold", "lower", "isprintable", "isalnum", "isalpha", "isspace", "isupper", "title", "splitlines"}
    for path in Path(promptkeel.render.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & {"unicodedata", "html"}, path
            if isinstance(node, ast.Attribute):
                assert node.attr not in asked, (path, node.lineno)


def test_what_is_remembered_about_characters_is_bounded():
    for start in range(0, 0x110000, 0x1000):
        text = "".join(map(chr, range(start, start + 0x1000)))
        spells_fence(text)
        literal(text)
    assert len(literals._FOLDS) <= len(literals._FOLDED) + literals._CACHED
    assert len(literals._ESCAPES) <= literals._CACHED
