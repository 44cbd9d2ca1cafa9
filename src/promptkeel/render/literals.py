"""How learned text is spelled so that it stays inside its own literal.

A literal is a JSON string on one line. What has no ink, breaks a line or turns its direction is escaped; brackets are
escaped only in text that spells the fence's name, in whatever disguise. Everything else stays as it is: escapes cost
tokens, and models copy them. The Unicode facts are frozen in ``unicode_tables``, never asked of the interpreter.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache
from typing import Final

from promptkeel.render import unicode_tables as tables

FENCE_NAME: Final = "untrusted-data"

_BASIC: Final = 0xFFFF
_FOLDED_NAME: Final = FENCE_NAME.replace("-", "")
_JOINERS: Final = "\u200c\u200d"
# The flags of England, Scotland and Wales: the only sequences of tag characters that are in general use. A rule that
# admitted any well-formed sequence would admit text in tag characters.
_TAG_FLAGS: Final = tuple(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_CACHED: Final = 4096
"""At most so many answers about single characters are kept: hostile text must not fill memory."""


def _ranges(spelled: str) -> list[tuple[int, int]]:
    found = []
    for item in spelled.split():
        first, _, last = item.partition("-")
        found.append((int(first, 16), int(last or first, 16)))
    return found


class _Ranges:
    """A set of code points."""

    __slots__ = ("_bounds",)

    def __init__(self, spelled: str) -> None:
        self._bounds = [bound for first, last in _ranges(spelled) for bound in (first, last + 1)]

    def __contains__(self, code: int) -> bool:
        return bisect_right(self._bounds, code) % 2 == 1


def _class(ranges: Iterable[tuple[int, int]]) -> str:
    """The ranges as a regular expression's character class, the commonest astral characters first."""
    ordered = sorted(ranges, key=lambda pair: (pair[0] > _BASIC, not 0x1F300 <= pair[0] < 0x30000, pair[0]))
    return "".join(f"{_spelled(first)}-{_spelled(last)}" for first, last in ordered)


def _spelled(code: int) -> str:
    # Only ASCII has signs that mean something in a class; an escape costs many times as much to compile.
    return chr(code) if code > 0x7F else f"\\x{code:02x}"


def _outside(*spelled: str) -> list[tuple[int, int]]:
    """Everything that is in none of these lists of ranges."""
    free: list[tuple[int, int]] = []
    start = 0
    for first, last in sorted(pair for text in spelled for pair in _ranges(text)):
        if first > start:
            free.append((start, first - 1))
        start = max(start, last + 1)
    return [*free, (start, 0x10FFFF)] if start <= 0x10FFFF else free


_CONTEXTUAL: Final = f"{tables.SELECTORS} 200c-200d"
# A negated class of what is ordinary: one look into a bitmap settles an ordinary character of the basic plane. Of the
# astral ones the large ranges are enough: what stands outside of them is looked at and found ordinary.
_ORDINARY: Final = [
    (first, last)
    for first, last in _outside(tables.ESCAPED, tables.BRACKETS, _CONTEXTUAL)
    if last <= _BASIC or last - first > 99
]
_LOOK: Final = re.compile(f"[^{_class(_ORDINARY)}]")
"""What needs a look. Most text needs none."""


def _compile(*more: str) -> re.Pattern[str]:
    # The planes apart, so that no character of the basic plane is held against hundreds of astral ranges.
    escaped = [pair for text in (tables.ESCAPED, *more) for pair in _ranges(text)]
    basic = [(first, min(last, _BASIC)) for first, last in escaped if first <= _BASIC]
    astral = [(0, _BASIC), *(pair for pair in _outside(tables.ESCAPED, _CONTEXTUAL, *more) if pair[1] > _BASIC)]
    return re.compile(
        f"(?P<flag>{'|'.join(_TAG_FLAGS)})|(?P<selectors>[{_class(_ranges(tables.SELECTORS))}]+)"
        f"|(?P<joiners>[{_JOINERS}]+)|(?P<basic>[{_class(basic)}]+)|(?P<astral>[^{_class(astral)}]+)"
    )


_BRACKET: Final = re.compile(f"[{_class(_ranges(tables.BRACKETS))}]")
_VERBATIM: Final = re.compile(r'["\\\n\t]')
"""What a literal escapes and a line in block form need not."""


# Compiled where first needed: each costs a few milliseconds.
@cache
def _special() -> re.Pattern[str]:
    return _compile()


@cache
def _special_or_bracket() -> re.Pattern[str]:
    return _compile(tables.BRACKETS)


_SELECTOR_BASES: Final = _Ranges(tables.SELECTOR_BASES)
_HAN: Final = _Ranges(tables.HAN)
_WORD_CHARACTERS: Final = _Ranges(tables.WORD_CHARACTERS)


class _Escapes(dict[int, str]):
    """For ``str.translate``: the JSON escape of every character."""

    def __missing__(self, code: int) -> str:
        if code > 0xFFFF:
            offset = code - 0x10000
            spelled = f"\\u{0xD800 + (offset >> 10):04x}\\u{0xDC00 + (offset & 0x3FF):04x}"
        else:
            spelled = f"\\u{code:04x}"
        if len(self) < _CACHED:
            self[code] = spelled
        return spelled


_ESCAPES: Final = _Escapes({ord(character): spelled for character, spelled in _SHORT.items()})


class _Folds(dict[int, str]):
    """For ``str.translate``: what a character reads like.

    One that reads like letters of the fence's name becomes these; another letter or number a full stop; the rest goes.
    """

    def __missing__(self, code: int) -> str:
        folded = "." if code in _WORD_CHARACTERS else ""
        if len(self) < _CACHED + len(_FOLDED):
            self[code] = folded
        return folded


_FOLDED: Final = {
    code: spelled
    for spelled, ranges in tables.FOLDS.items()
    for first, last in _ranges(ranges)
    for code in range(first, last + 1)
}
_FOLDS: Final = _Folds(_FOLDED)

_REFERENCE: Final = re.compile(
    r"&#x(?P<hex>[0-9a-f]{1,6});?|&#(?P<decimal>[0-9]{1,7});?|%(?P<percent>[0-9a-f]{2})"
    r"|\\u(?P<short>[0-9a-f]{4})|\\x(?P<byte>[0-9a-f]{2})|&[a-z]{2,31};",
    re.IGNORECASE | re.ASCII,
)


def _referred(match: re.Match[str]) -> str:
    digits = match.group("hex") or match.group("percent") or match.group("short") or match.group("byte")
    decimal = match.group("decimal")
    if digits is None and decimal is None:
        return ""
    code = int(digits, 16) if digits else int(decimal)
    return chr(code) if code <= 0x10FFFF else ""


def spells_fence(text: str) -> bool:
    """Whether the text spells the fence's name: in other scripts, with other signs between, in character references."""
    if _FOLDED_NAME in text.translate(_FOLDS):
        return True
    if "&" in text or "%" in text or "\\" in text:
        return _FOLDED_NAME in _REFERENCE.sub(_referred, text).translate(_FOLDS)
    return False


def _escape(match: re.Match[str]) -> str:
    found = match.group()
    kind = match.lastgroup
    if kind == "flag":
        return found
    if len(found) == 1:
        if kind == "joiners":
            return found
        if kind == "selectors" and _is_selectable(match.string, match.start()):
            return found
    return found.translate(_ESCAPES)


def _is_selectable(text: str, position: int) -> bool:
    """Whether the selector at this position stands behind a character that takes one."""
    if position == 0:
        return False
    base = ord(text[position - 1])
    selector = ord(text[position])
    if selector >= 0xE0100:
        return base in _HAN
    if selector >= 0xFE00:
        return base in _SELECTOR_BASES
    return 0x1820 <= base <= 0x18AA


def escape(text: str) -> str:
    """The text as it stands between the quotes of a literal."""
    if _LOOK.search(text) is None:
        return text
    if _BRACKET.search(text) is not None and spells_fence(text):
        return _special_or_bracket().sub(_escape, text)
    return _special().sub(_escape, text)


def literal(text: str) -> str:
    """The text as one JSON string literal that a JSON reader gives back exactly."""
    return f'"{escape(text)}"'


def lines(text: str) -> list[str] | None:
    """The lines of a text that can stand verbatim in block form; None where it needs a literal."""
    if "\n" not in text:
        return None
    bare = _VERBATIM.sub(" ", text)
    if _LOOK.search(bare) is not None and _special().sub(_escape, bare) != bare:
        return None
    return None if spells_fence(text) else text.split("\n")
