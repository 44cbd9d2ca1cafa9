"""How many tokens a text costs: an offline estimate, a worst case, and exact counters.

A counter is chosen by name, never detected, so that a limit that depends on it means the same on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final, Protocol, final

import attrs

from promptkeel.errors import InvalidDeclarationError, MissingExtraError


class TokenCounter(Protocol):
    """Counts the tokens of a text."""

    @property
    def name(self) -> str:
        """The name that it is declared by."""

    @property
    def exact(self) -> bool:
        """Whether it counts as a tokenizer does, rather than estimates."""

    def __call__(self, text: str) -> int:
        """The number of tokens."""


@final
@attrs.frozen(order=False)
class _Counter:
    name: str
    exact: bool
    _count: Callable[[str], int]

    def __call__(self, text: str) -> int:
        return self._count(text)


# The estimate adds up twentieths of a token. Words that BPE vocabularies hold whole cost one token, longer ones more.
_UNIT: Final = 20
_WORDS: Final = re.compile(r"[A-Z]?[a-z]{1,31}|[A-Z]{2,31}(?![a-z])|[A-Z]")
_WORD_COSTS: Final = (0, *[20] * 5, *[22] * 3, *[28] * 3, *[max(40, 5 * length) for length in range(12, 33)])
_SIGNS: Final = re.compile(r"[!-/:-@\[-`{-~]{1,32}")
_SIGN_COSTS: Final = (0, 20, *[20 + 11 * (length - 1) for length in range(2, 33)])
_SINGLES: Final = re.compile(r"[0-9]{1,3}|\r?\n|[ \t]{2,16}| (?=[0-9])|[\x00-\x09\x0b-\x1f\x7f]")
_ASCII: Final = re.compile(r"[\x00-\x7f]+")


def _block_costs() -> bytes:
    """What one character costs, by its block of 256 in the basic plane; an unknown script costs its bytes."""
    costs = bytearray([60] * 256)
    costs[0x00:0x08] = bytes([28, 40, 24, 22, 13, 40, 20, 20])  # Latin, Greek, Cyrillic, Armenian and Hebrew, Arabic
    costs[0x09:0x0E] = bytes([32] + [44] * 4)  # scripts of India
    costs[0x0E] = 32  # Thai, Lao
    costs[0x1E] = 36  # Vietnamese
    costs[0x20:0x28] = bytes([28] * 8)  # punctuation, arrows, mathematics
    costs[0x30] = 22  # kana
    costs[0x4E:0xA0] = bytes([34] * 0x52)  # Han
    costs[0xAC:0xD8] = bytes([28] * 0x2C)  # Hangul
    costs[0xFE:0x100] = bytes([40, 36])  # selectors, full-width forms
    return bytes(costs)


_BLOCK_COSTS: Final = _block_costs()
_PLANE_COSTS: Final = bytes([0, 60, *[80] * 254])
"""What one character outside the basic plane costs, by its plane: pictographs three tokens, the rest its bytes."""


def _utf8_bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _wide_cost(text: str) -> int:
    code_points = _ASCII.sub("", text).encode("utf-32-be", errors="surrogatepass")
    planes = code_points[1::4]
    blocks = code_points[2::4]
    cost = sum(blocks.translate(_BLOCK_COSTS))
    if any(planes):
        astral = bytes(block for block, plane in zip(blocks, planes, strict=True) if plane)
        cost += sum(planes.translate(_PLANE_COSTS)) - sum(astral.translate(_BLOCK_COSTS))
    return cost


def _estimate(text: str) -> int:
    """Estimate tokens by the kinds of characters and the lengths of words; linear, without a vocabulary.

    Against o200k_base and cl100k_base, whichever is more: not more than 10 % under on prose in English, Chinese,
    Japanese, Korean, Arabic and Russian, on emoji, code and JSON (measured in tests/test_tokens.py), above on most
    else, up to a quarter under on random letters. Never more than the text's bytes as UTF-8.
    """
    cost = sum(map(_WORD_COSTS.__getitem__, map(len, _WORDS.findall(text))))
    cost += sum(map(_SIGN_COSTS.__getitem__, map(len, _SIGNS.findall(text))))
    cost += _UNIT * len(_SINGLES.findall(text))
    if not text.isascii():
        cost += _wide_cost(text)
    least = 1 if text else 0
    return min(_utf8_bytes(text), max(least, -(-cost // _UNIT)))


def _openai(name: str) -> Callable[[str], int]:
    try:
        from rs_bpe import openai
    except ImportError:
        raise MissingExtraError("tokens") from None
    tokenizer = getattr(openai, name)()
    count: Callable[[str], int] = tokenizer.count
    return count


_MAKERS: Final[dict[str, tuple[bool, Callable[[], Callable[[str], int]]]]] = {
    "estimate": (False, lambda: _estimate),
    "utf8-bytes": (False, lambda: _utf8_bytes),
    "o200k_base": (True, lambda: _openai("o200k_base")),
    "cl100k_base": (True, lambda: _openai("cl100k_base")),
}

TOKEN_COUNTERS: Final = tuple(_MAKERS)
"""The names that a counter can be declared by."""


@cache
def token_counter(name: str) -> TokenCounter:
    """The counter of this name.

    Raises:
        InvalidDeclarationError: there is none.
        MissingExtraError: it needs the extra ``tokens``.
    """
    if name not in _MAKERS:
        raise InvalidDeclarationError(
            f"{name!r} is no token counter; there are {', '.join(TOKEN_COUNTERS)}", field="token_counter"
        )
    exact, make = _MAKERS[name]
    return _Counter(name, exact, make())
