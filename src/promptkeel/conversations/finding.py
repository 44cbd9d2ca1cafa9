"""Own deltas in the messages that a caller really sends: found by their seals, whichever base they follow. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

import attrs

from promptkeel.conversations.deltas import Delta, Seal, find_sealed
from promptkeel.conversations.messages import Message, Taken, without_parts
from promptkeel.providers.segments import WireFormat

_HINT: Final = '" seal="'


@final
@attrs.frozen(order=False)
class Sealing:
    """What the deltas of a scope are sealed with, whatever conversation they are of.

    Attributes:
        key: a secret that only the store has.
        fence: the id on the fences of the scope's root.
    """

    key: bytes = attrs.field(repr=False)
    fence: str

    def of(self, base: str) -> Seal:
        """The seal of deltas that follow one base."""
        return Seal(self.key, base, self.fence)

    def deltas(self, text: str) -> list[tuple[str, Delta]]:
        """Every own delta in a text, in order, with the id of the base that it follows."""
        if _HINT not in text:
            return []
        return list(find_sealed(text, self.of))


@final
@attrs.frozen(order=False)
class Reading:
    """What a caller's messages hold.

    Attributes:
        deltas: own ones, in order, each with the id of its base.
        bare: the messages without them.
    """

    deltas: tuple[tuple[str, Delta], ...]
    bare: Taken

    def of(self, base: str) -> list[Delta]:
        """The deltas that follow a base."""
        return [delta for each, delta in self.deltas if each == base]


def read_messages(messages: Sequence[Message], wire_format: WireFormat, sealing: Sealing) -> Reading:
    """What the messages hold."""
    found: list[tuple[str, Delta]] = []
    bare = without_parts(messages, wire_format, _cutting(sealing, lambda _: True, found))
    return Reading(tuple(found), bare)


def without_deltas(
    messages: Sequence[Message], wire_format: WireFormat, sealing: Sealing, *, keeping: str | None
) -> list[Message]:
    """The messages without own deltas, but for those that follow one base."""
    return without_parts(messages, wire_format, _cutting(sealing, lambda base: base != keeping, [])).messages


def _cutting(sealing: Sealing, is_taken: Callable[[str], bool], found: list[tuple[str, Delta]]) -> Callable[[str], str]:
    def cut(text: str) -> str:
        for base, delta in sealing.deltas(text):
            if is_taken(base):
                found.append((base, delta))
                before, _, after = text.partition(delta.text)
                # A framework that joins parts puts lines between them.
                text = f"{before.rstrip(chr(10))}{after}" if before.strip() else before + after.lstrip("\n")
                text = text if text.strip() else ""
        return text

    return cut
