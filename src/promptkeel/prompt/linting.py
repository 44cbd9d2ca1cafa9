"""What in an authored text looks as if it changed by itself: times, ages, identifiers, counters. Pure.

A prefix is cached up to its first changed byte. Text that a person wrote stays; text that a program put together may
hold the moment, the machine or the request that it was put together in. A date alone may be meant, as the day from
which a rule holds, and is only a warning; whatever two readings of one text have differently is certain.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Final, Literal, final

import attrs

Level = Literal["error", "warning"]
_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_UNIT: Final = r"(?:seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|months?|[smhd])"
_RUNS: Final = "req|run|msg|sess|session|conv|trace|span|thread|chatcmpl|call|toolu|resp"
_COUNTED: Final = "turn|iteration|attempt|retry|request|message|compile|visit"
_MESSAGES: Final = r"\bturn \d+ of\b|\b\d+ (?:previous|earlier) messages?\b|\b\d+ messages? so far\b"
_RULES: Final[tuple[tuple[str, Level, str, str], ...]] = (
    (
        "moment",
        "error",
        r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?",
        "put the time into the tail of a request: prompt.anthropic(..., tail={'time': now})",
    ),
    (
        "moment",
        "error",
        rf"\b(?:\d{{1,2}} {_MONTH} \d{{4}}|{_MONTH} \d{{1,2}},? \d{{4}}),? (?:at )?\d{{1,2}}:\d\d(?::\d\d)?",
        "put the time into the tail of a request",
    ),
    ("clock time", "error", r"\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b", "put the time into the tail of a request"),
    (
        "Unix time",
        "error",
        r"(?<![\w.-])1[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?(?![\w-])",
        "put the time into the tail of a request",
    ),
    (
        "age",
        "error",
        rf"\b(?:\d+|an?|few) ?{_UNIT}(?: and \d+ ?{_UNIT})? (?:ago|old|left)\b|\bjust now\b|\bmoments ago\b",
        "say the date of the event, not how long ago it was",
    ),
    (
        "UUID",
        "error",
        r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b",
        "leave identifiers of requests, sessions and runs out; put them into the metadata of the request",
    ),
    (
        "random identifier",
        "error",
        rf"\b(?:{_RUNS})[_-](?=[A-Za-z0-9]*\d)[A-Za-z0-9]{{6,}}\b",
        "leave identifiers of requests, sessions and runs out",
    ),
    (
        "hash",
        "warning",
        r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})\b",
        "leave hashes out, unless they name something that never changes",
    ),
    (
        "counter",
        "error",
        rf"(?i)\b(?:{_COUNTED})s?(?:(?: (?:number|no\.?|count))? ?[:#=] ?| #| number | count )\d+\b|{_MESSAGES}",
        "put what counts requests into the tail of a request",
    ),
    (
        "temporary path",
        "error",
        r"(?:/tmp|/var/tmp|/var/folders|\\Temp)[/\\](?:[\w.-]+[/\\])*[\w.-]+",
        "name a path that is the same on every machine, or leave it out",
    ),
    ("process", "error", r"(?i)\bpid[ :=]+\d+\b|\b0x[0-9a-f]{8,16}\b", "leave processes and addresses out"),
    (
        "date",
        "warning",
        rf"\b\d{{4}}-\d\d-\d\d\b|\b(?:\d{{1,2}} {_MONTH} \d{{4}}|{_MONTH} \d{{1,2}},? \d{{4}})\b",
        "if it is today's date, put it into the tail of a request; if it is meant, leave it",
    ),
)
_LOOK: Final = tuple((kind, level, re.compile(pattern), advice) for kind, level, pattern, advice in _RULES)


@final
@attrs.frozen(order=False)
class Finding:
    """A stretch of an authored text that may not be the same next time.

    Attributes:
        block: the block's name.
        line: from 1.
        column: in characters, from 1.
        kind: what it looks like.
        text: the stretch.
        level: ``error``, or ``warning`` for what may well be meant.
        advice: what to do.
    """

    block: str
    line: int
    column: int
    kind: str
    text: str
    level: Level
    advice: str


def lint(block: str, text: str) -> tuple[Finding, ...]:
    """What in one text may not be the same next time, in its order; of stretches that overlap, the first rule's."""
    taken: list[tuple[int, int]] = []
    found: list[tuple[int, Finding]] = []
    for kind, level, pattern, advice in _LOOK:
        for match in pattern.finditer(text):
            start, end = match.span()
            if any(start < other_end and other_start < end for other_start, other_end in taken):
                continue
            taken.append((start, end))
            found.append((start, _finding(block, text, start, end, kind, level, advice)))
    return tuple(finding for _, finding in sorted(found, key=lambda pair: pair[0]))


def lint_readings(block: str, first: str, second: str) -> tuple[Finding, ...]:
    """What two readings of one block, with nothing done in between, have differently: that is certain to change."""
    return tuple(
        _finding(block, first, start, end, "unstable", "error", "the source gave another text when it was asked again")
        for start, end in _differences(first, second)
    )


def _differences(first: str, second: str) -> Iterator[tuple[int, int]]:
    if first == second:
        return
    one, other = first.split("\n"), second.split("\n")
    starts = [0]
    for line in one:
        starts.append(starts[-1] + len(line) + 1)
    for kind, begin, end, _, _ in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if kind != "equal":
            yield starts[begin], min(len(first), max(starts[end] - 1, starts[begin]))


def _finding(block: str, text: str, start: int, end: int, kind: str, level: Level, advice: str) -> Finding:
    line = text.count("\n", 0, start) + 1
    column = start - (text.rfind("\n", 0, start) + 1) + 1
    return Finding(block, line, column, kind, text[start:end].partition("\n")[0][:80], level, advice)
