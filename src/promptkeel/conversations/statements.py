"""What a rendered learned block says, statement by statement: the renderer read backwards.

A conversation is judged on what the model reads, not on what was meant. Structure stands only at the start of a line,
so that the lines of a block are enough: a header of provenance, a statement, its further lines in block form, or the
notice of what was left out. Text that the renderer did not write is an error, never a guess. Pure.
"""

from __future__ import annotations

import re
from typing import Final, final

import attrs

from promptkeel.errors import InvalidInputError
from promptkeel.render.literals import FENCE_NAME

NOTICE: Final = 0
"""The number of the notice of what was left out; statements are numbered from 1."""

_FENCE: Final = re.compile(rf'<({FENCE_NAME}-[0-9a-f]{{4,32}}) block="[^"\n]*">')
_NOTICE: Final = re.compile(r"\[\d+ facts? left out: ")


@final
@attrs.frozen(order=False)
class Statement:
    """One statement as the model reads it.

    Attributes:
        header: the provenance above it, as it is spelled; empty for a notice.
        body: its line or lines, without the hyphen; for a notice, the notice.
    """

    header: str
    body: str

    @property
    def is_notice(self) -> bool:
        """Whether it only says what was left out."""
        return not self.header


def statements_of(text: str) -> dict[int, Statement]:
    """The statements of a learned block by their numbers, in the order of the text; none where the text is empty.

    Raises:
        InvalidInputError: it is no learned block as the renderer writes them.
    """
    if not text:
        return {}
    lines = text.split("\n")
    opening = next((index for index, line in enumerate(lines) if _FENCE.fullmatch(line)), None)
    if opening is None:
        raise _unreadable("has no fence")
    fence = _FENCE.fullmatch(lines[opening])
    if fence is None or lines[-1] != f"</{fence[1]}>":
        raise _unreadable("does not end with its fence")
    return _numbered(lines[opening + 1 : -1])


def _numbered(lines: list[str]) -> dict[int, Statement]:
    found: dict[int, Statement] = {}
    header = ""
    number = NOTICE
    for line in lines:
        if line.startswith("- "):
            if not header:
                raise _unreadable("has a statement without provenance")
            number += 1
            found[number] = Statement(header, line[2:])
        elif line.startswith("| "):
            if number == NOTICE:
                raise _unreadable("has a further line of nothing")
            found[number] = Statement(header, f"{found[number].body}\n{line}")
        elif _NOTICE.match(line):
            found[NOTICE] = Statement("", line)
        elif line.startswith("[") and line.endswith("]"):
            header = line
        else:
            raise _unreadable("has a line that is neither provenance nor statement")
    return found


def _unreadable(reason: str) -> InvalidInputError:
    return InvalidInputError(f"{reason}: it was not written by this renderer", field="block")
