"""Bounds of a label prefix: ``low <= label < high``, in UTF-8 byte order.

Bounds rather than patterns: a wildcard is an ordinary character and an index serves the scan. Python ``str``, SQLite
BINARY and PostgreSQL ``COLLATE "C"`` agree on this order.
"""

from __future__ import annotations

_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def prefix_bounds(prefix: str) -> tuple[str, str | None]:
    """The least text with the prefix, and the least text above all of them; None where nothing is above."""
    for position in range(len(prefix) - 1, -1, -1):
        following = ord(prefix[position]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _LAST:
            return prefix, prefix[:position] + chr(following)
    return prefix, None
