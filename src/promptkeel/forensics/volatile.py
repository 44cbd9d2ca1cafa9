"""What kind of change turned one text into another: volatile bytes, spelling alone, or another meaning."""

from __future__ import annotations

import difflib
import itertools
import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final, final

import attrs

from promptkeel.forensics.causes import Cause

_TIME: Final = (
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d|[A-Z]{2,4}\b))?)?"
    r"|\b\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?: ?[AaPp]\.?[Mm]\b\.?)?"
    r"|\b\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b|\b\d{4}/\d\d?/\d\d?\b"
    r"|\b(?:Mon|Tue|Tues|Wed|Wednes|Thu|Thurs|Fri|Sat|Satur|Sun)(?:day)?\b"
    r"|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec)[a-z]*\.? \d{1,2}\b(?:,? \d{4})?"
    r"|\b\d{1,2} (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec)[a-z]*\.?(?: \d{4})?"
    r"|\b1[5-9]\d{8}(?:\d{3}|\d{6})?(?:\.\d+)?\b"
)
_IDENTIFIER: Final = (
    r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
    r"|\b[0-9A-HJKMNP-TV-Z]{26}\b"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,64}\b"
    r"|\b[A-Za-z]{2,12}[_-](?=[A-Za-z0-9]*\d)[A-Za-z0-9]{8,40}\b"
)
_UNIT: Final = r"(?:s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?|months?|years?)"
_AGE: Final = (
    rf"\b(?:(?:\d+|an?|one|two|few) ?{_UNIT}\b,? ?(?:and )?)+(?:ago|old|earlier)\b"
    rf"|\b(?:just now|moments ago|yesterday|today|last {_UNIT})\b"
)
_VOLATILE: Final = re.compile(
    f"(?P<age>{_AGE})|(?P<identifier>{_IDENTIFIER})|(?P<time>{_TIME})|(?P<counter>\\b\\d+(?:\\.\\d+)?\\b)",
    re.IGNORECASE,
)
_CAUSES: Final = {
    "age": Cause.AGE,
    "identifier": Cause.IDENTIFIER,
    "time": Cause.TIMESTAMP,
    "counter": Cause.COUNTER,
}
_PIECES: Final = re.compile(r"(?:\\[nrt]|\s)+|\w+|[^\w\s]")
_STEP: Final = 100
"""A number that grows by more between two requests is not taken for a counter."""
_REACH: Final = 80
"""A volatile piece has fewer characters."""
_LINE_END: Final = re.compile(r"\\n|\n|[.!?] ")
_PAIRS: Final = 4_000_000
"""Of more pairs of lines or words, the whole stretch is one change."""
_LONGEST: Final = 20_000
"""As many characters of a changed stretch are compared word by word."""


@final
@attrs.frozen(order=False)
class Spot:
    """One place where two texts differ.

    Attributes:
        cause: what kind of difference it is; None where it is another text.
        before: where it begins in the earlier text, in characters.
        after: where it begins in the later text, in characters.
    """

    cause: Cause | None
    before: int
    after: int


def loose(text: str) -> str:
    """What stays of a text when everything volatile and its spelling are taken out."""
    folded = unicodedata.normalize("NFKC", _json_sorted(text))
    return "".join(_VOLATILE.sub("0", folded).split())


def differences(before: str, after: str) -> list[Spot]:
    """The places where two texts differ, each with its kind; volatile bytes are told apart from all else.

    The texts are canonical JSON of blocks, or text.
    """
    if before == after:
        return []
    first = common_length(before, after)
    whole = _spelling(before, after)
    if whole is not None:
        return [Spot(whole, first, first)]
    return list(_spots(before, after)) or [Spot(None, first, first)]


def common_length(one: str, other: str) -> int:
    """How many characters two texts share from the beginning on."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _spelling(before: str, after: str) -> Cause | None:
    """The cause where only the spelling differs."""
    if _json_sorted(before) == _json_sorted(after):
        return Cause.KEY_ORDER
    if unicodedata.normalize("NFC", before) == unicodedata.normalize("NFC", after):
        return Cause.NORMALISATION
    if unicodedata.normalize("NFKC", before) == unicodedata.normalize("NFKC", after):
        return Cause.NORMALISATION
    if _bare(before) == _bare(after):
        return Cause.WHITE_SPACE
    return None


_ESCAPED_SPACE: Final = re.compile(r"\\[nrt]|\s")


def _bare(text: str) -> str:
    return _ESCAPED_SPACE.sub("", text)


def _json_sorted(text: str) -> str:
    """Text with every JSON object in it, also one that is spelled inside a string, in the order of its keys."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return json.dumps(_opened(value), sort_keys=True, ensure_ascii=False) if isinstance(value, dict | list) else text


def _opened(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _opened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_opened(item) for item in value]
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return _opened(json.loads(value))
        except (ValueError, RecursionError):
            return value
    return value


def _spots(before: str, after: str) -> Iterator[Spot]:
    """Differences of the texts piece by piece: what is volatile is one piece."""
    start = _boundary(before, common_length(before, after))
    least = min(len(before), len(after)) - start
    end = min(common_length(before[start:][::-1], after[start:][::-1]), least)
    end = len(before) - _boundary_after(before, len(before) - end)
    old, new = _lines(before, start, len(before) - end), _lines(after, start, len(after) - end)
    for i1, i2, j1, j2 in _changed([before[i:j] for i, j in old], [after[i:j] for i, j in new]):
        yield from _spots_within(
            before, _span(old, i1, i2, len(before) - end), after, _span(new, j1, j2, len(after) - end)
        )


def _spots_within(before: str, was: tuple[int, int], after: str, now: tuple[int, int]) -> Iterator[Spot]:
    old, new = _cut(before, *was), _cut(after, *now)
    if was[1] - was[0] + now[1] - now[0] > _LONGEST:
        yield Spot(_cause_of(old, new), was[0], now[0])
        return
    for i1, i2, j1, j2 in _changed([each.text for each in old], [each.text for each in new]):
        at = (old[i1].start if i1 < len(old) else was[1], new[j1].start if j1 < len(new) else now[1])
        yield Spot(_cause_of(old[i1:i2], new[j1:j2]), *at)


def _changed(old: list[str], new: list[str]) -> list[tuple[int, int, int, int]]:
    """What differs of two lists: from where to where in each."""
    if len(old) * len(new) > _PAIRS:
        return [(0, len(old), 0, len(new))]
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [each[1:] for each in matcher.get_opcodes() if each[0] != "equal"]


def _lines(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """A stretch of text cut behind the ends of its lines and sentences."""
    cuts = [start, *(found.end() for found in _LINE_END.finditer(text, start, end)), end]
    return [(one, other) for one, other in itertools.pairwise(cuts) if one < other]


def _span(lines: list[tuple[int, int]], first: int, last: int, end: int) -> tuple[int, int]:
    start = lines[first][0] if first < len(lines) else end
    return start, lines[last - 1][1] if last > first else start


def _boundary(text: str, at: int) -> int:
    """A place before another one where no volatile piece that reaches it has begun."""
    far = max(at - _REACH, 0)
    return far if far == 0 else max(text.rfind(" ", 0, far), 0)


def _boundary_after(text: str, at: int) -> int:
    """A place behind another one where no volatile piece that reaches it goes on."""
    found = text.find(" ", min(at + _REACH, len(text)))
    return len(text) if found < 0 else found


@final
@attrs.frozen(order=False)
class _Piece:
    text: str
    start: int
    kind: str | None


def _cut(text: str, start: int, end: int) -> list[_Piece]:
    pieces: list[_Piece] = []
    place = start
    for found in _VOLATILE.finditer(text, start, end):
        pieces += _plain_pieces(text, place, found.start())
        pieces.append(_Piece(found.group(), found.start(), found.lastgroup))
        place = found.end()
    return pieces + _plain_pieces(text, place, end)


def _plain_pieces(text: str, start: int, end: int) -> list[_Piece]:
    return [_Piece(found.group(), found.start(), None) for found in _PIECES.finditer(text, start, end)]


def _cause_of(old: list[_Piece], new: list[_Piece]) -> Cause | None:
    pieces = [*old, *new]
    kinds = {each.kind for each in pieces if _bare(each.text)}
    if not kinds:
        return Cause.WHITE_SPACE
    if None in kinds or not old or not new:
        return None
    if kinds == {"counter"}:
        return Cause.COUNTER if _counts_on(old, new) else None
    return next(cause for name, cause in _CAUSES.items() if name in kinds)


def _counts_on(old: list[_Piece], new: list[_Piece]) -> bool:
    """Whether numbers went on as a counter does; any other number is another text."""
    if len(old) != len(new):
        return False
    steps = [float(after.text) - float(before.text) for before, after in zip(old, new, strict=True)]
    return all(0 < step <= _STEP for step in steps)
