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


def _utf8_bytes(text: str) -> int:
    return len(text.encode())


_PIECE: Final = re.compile(r"[^\W\d_]+|\d+|\s+|[^\w\s]+|_+")


def _estimate(text: str) -> int:
    return min(_utf8_bytes(text), len(text))


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
