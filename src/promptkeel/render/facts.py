"""The lines of a learned block: facts under the provenance that they share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, final

import attrs

from promptkeel.instants import EARLIEST, LATEST, format_date
from promptkeel.model import BlockFact
from promptkeel.render.literals import escape, lines, literal

_DAY: Final = 86_400_000_000
_BARE_SOURCE: Final = re.compile(r"[A-Za-z0-9._:@/+-]{1,64}")
_BARE_FIELD: Final = re.compile(r"[A-Za-z0-9_.-]+")


def _when(fact: BlockFact) -> int:
    # What was not recorded comes before everything that was.
    recorded = fact[2]
    return EARLIEST - 1 if recorded is None else recorded


def newest_last(facts: Iterable[BlockFact]) -> list[BlockFact]:
    """The facts by recorded instant, None first; those of one instant stay in lane order."""
    return sorted(facts, key=_when)


@final
@attrs.frozen(order=False)
class Body:
    """The lines of several facts, so cut that any number of the oldest can be left out.

    Attributes:
        headers: for each fact, the header of its group.
        begins: for each fact, whether its header stands before it.
        lines: for each fact, its line or lines.
    """

    headers: Sequence[str]
    begins: Sequence[bool]
    lines: Sequence[str]

    def since(self, first: int) -> list[str]:
        """The lines from one fact on, each group under its header."""
        found: list[str] = []
        for position in range(first, len(self.lines)):
            if self.begins[position] or position == first:
                found.append(self.headers[position])
            found.append(self.lines[position])
        return found


def body_of(facts: Sequence[BlockFact], *, block_form: bool) -> Body:
    """The lines of facts that are in rendered order."""
    headers: list[str] = []
    begins: list[bool] = []
    texts: list[str] = []
    group: tuple[int | None, str | None, str | None] | None = None
    header = ""
    for fact in facts:
        value, source, recorded, field, trust, _ = fact
        key = (None if recorded is None else recorded // _DAY, source, trust)
        new = key != group
        if new:
            group = key
            header = _header(recorded, source, trust)
        headers.append(header)
        begins.append(new)
        texts.append(_fact(value if field is None else fact.text, field, block_form=block_form))
    return Body(headers, begins, texts)


def _header(recorded: int | None, source: str | None, trust: str | None) -> str:
    parts = []
    # A scanner that is not ours may hand over an instant without a date; that costs the date, not the prompt.
    if recorded is not None and EARLIEST <= recorded <= LATEST:
        parts.append(f"recorded {format_date(recorded)}")
    if source is not None:
        parts.append(f"source={source if _BARE_SOURCE.fullmatch(source) else literal(source)}")
    if trust is not None:
        parts.append(f"trust={trust if _BARE_SOURCE.fullmatch(trust) else literal(trust)}")
    return f"[{', '.join(parts) or 'provenance not recorded'}]"


def _fact(text: str, field: str | None, *, block_form: bool) -> str:
    label = "- "
    if field is not None:
        label = f"- {field if _BARE_FIELD.fullmatch(field) else literal(field)}: "
    if block_form and "\n" in text:
        verbatim = lines(text)
        if verbatim is not None:
            return "\n| ".join([f"{label}|", *verbatim])
    return f'{label}"{escape(text)}"'
