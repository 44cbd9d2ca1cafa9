"""What differs between two revisions of an authored block, line by line. Pure."""

from __future__ import annotations

import difflib
import re
from typing import Final, Literal, final

import attrs

from promptkeel.store.authored import AuthoredRevision

_UNENDED: Final = "\n\\ No newline at end of file\n"

DiffKind = Literal["equal", "insert", "delete", "replace"]


@final
@attrs.frozen(order=False)
class DiffPart:
    """Some lines of two texts that are equal, or stand for each other.

    Attributes:
        kind: what became of the old lines.
        old: lines of the old text, with their line breaks.
        new: lines of the new text.
        old_line: the number of the first old line, counted from 1.
        new_line: the number of the first new line.
    """

    kind: DiffKind
    old: tuple[str, ...]
    new: tuple[str, ...]
    old_line: int
    new_line: int


@final
@attrs.frozen(order=False)
class RevisionDiff:
    """What differs between two revisions.

    Attributes:
        old: the first.
        new: the second.
        parts: all lines of both, in order.
    """

    old: AuthoredRevision
    new: AuthoredRevision
    parts: tuple[DiffPart, ...]

    @property
    def is_empty(self) -> bool:
        """Whether both say the same."""
        return self.old.content == self.new.content

    def unified(self, context: int = 3) -> str:
        """The unified form, empty where both say the same."""
        old_name, new_name = (f"{each.block} revision {each.number}" for each in (self.old, self.new))
        old, new = (_lines(each.content) for each in (self.old, self.new))
        lines = difflib.unified_diff(old, new, old_name, new_name, n=context)
        return "".join(line if line.endswith("\n") else line + _UNENDED for line in lines)


def difference(old: AuthoredRevision, new: AuthoredRevision) -> RevisionDiff:
    """What differs between two revisions, line by line."""
    before, after = _lines(old.content), _lines(new.content)
    found = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    parts = (
        DiffPart(kind, tuple(before[first:end]), tuple(after[other:other_end]), first + 1, other + 1)
        for kind, first, end, other, other_end in found
    )
    return RevisionDiff(old, new, tuple(parts))


def _lines(text: str) -> list[str]:
    # At line feeds alone: what else breaks a line may stand in the middle of one.
    return [line for line in re.split(r"(?<=\n)", text) if line]
