"""A reader of rendered blocks, as strict as a reader can be: what it cannot place is an error."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

OPENING = re.compile(r'<untrusted-data-([0-9a-f]{4,32}) block="([A-Za-z0-9._:-]+)">')
HEADER = re.compile(r"\[(?:provenance not recorded|(?:recorded|source=|trust=).*)\]")
NOTICE = re.compile(r"\[(\d+) facts? left out: .*\]")
# The greedy label takes every quoted literal but the last, so that a field's name may hold anything.
LINE = re.compile(r'- (?:([A-Za-z0-9_.-]+|"(?:[^"\\]|\\.)*"): )?("(?:[^"\\]|\\.)*"|\|)')
SEPARATORS = re.compile("[\x0b\x0c\r\x1c-\x1e\x85\u2028\u2029]")


class Statement(NamedTuple):
    field: str | None
    text: str
    header: str


def read_block(text: str) -> list[Statement]:
    """The statements of a learned block; ValueError where a line is not what the format allows."""
    assert SEPARATORS.search(text) is None, "a line ends where no newline is"
    lines = text.split("\n")
    if not lines[0].startswith("### "):
        raise ValueError(lines[0])
    opening = OPENING.fullmatch(lines[1])
    if opening is None or lines[-1] != f"</untrusted-data-{opening.group(1)}>":
        raise ValueError("no fence around the block")
    found: list[Statement] = []
    header: str | None = None
    block_form: tuple[str | None, list[str]] | None = None

    def finish() -> None:
        nonlocal block_form
        if block_form is not None:
            assert header is not None
            found.append(Statement(block_form[0], "\n".join(block_form[1]), header))
            block_form = None

    for number, line in enumerate(lines[2:-1]):
        if line.startswith("| "):
            if block_form is None:
                raise ValueError(line)
            block_form[1].append(line[2:])
            continue
        finish()
        if number == 0 and NOTICE.fullmatch(line):
            continue
        if HEADER.fullmatch(line):
            header = line
            continue
        match = LINE.fullmatch(line)
        if match is None or header is None:
            raise ValueError(line)
        name, value = match.groups()
        field = json.loads(name) if name and name.startswith('"') else name
        if value == "|":
            block_form = (field, [])
        else:
            found.append(Statement(field, json.loads(value), header))
    finish()
    return found
