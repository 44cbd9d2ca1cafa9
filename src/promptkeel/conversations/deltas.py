"""What has changed since a conversation began, as text: made, sealed, and read back from the messages.

A delta of learned text stands in the same fence as its block and is spelled by the same renderer: whatever it says, it
says inside literals. A statement of the base is taken back by its number, one of an earlier delta by its id; what it
said is not said again. A delta of authored text holds the whole block.

Each is sealed with a keyed hash over itself and the base that it follows. What has no valid seal is ordinary text of
the caller's, whoever wrote it. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, final

import attrs

from promptkeel.conversations.statements import NOTICE, Statement
from promptkeel.errors import InvalidInputError
from promptkeel.render.literals import FENCE_NAME

Reference = int | str
"""Which statement: of the base by its number, of a delta by its id."""

AUTHORED_FENCE: Final = "standing-context"
SEAL_LENGTH: Final = 12
"""Hexadecimal digits: 48 bits, which nobody can try out, since only the holder of the key can tell whether one fits.

Each delta is read again at every turn: its frame is as short as it can be.
"""

_MOST_CLOSINGS: Final = 64
"""An operator's text may quote its own fence less often than this."""
_ID: Final = r"k[0-9a-f]{4,64}"
_OPENING: Final = re.compile(
    rf"^<(?P<fence>(?:{FENCE_NAME}|{AUTHORED_FENCE})-[0-9a-f]{{4,32}}) "
    rf"(?P<kind>changed|replaced|gone)=\"(?P<block>[^\n\"]+)\" "
    rf"seal=\"(?P<base>[0-9a-f]+)-(?P<seal>[0-9a-f]{{{SEAL_LENGTH}}})\">$",
    re.MULTILINE,
)
_RETRACTED: Final = "[no longer true: "
_REFERENCE: Final = re.compile(rf"statement (\d+)|({_ID})|(the notice)")
_ADDED: Final = re.compile(rf"- ({_ID}): ")


@final
@attrs.frozen(order=False)
class LearnedDelta:
    """What changed in one block of memory.

    Attributes:
        block: the block's name.
        retracted: what no longer stands.
        added: what stands now, each with its id.
        text: what the model gets.
    """

    block: str
    retracted: tuple[Reference, ...]
    added: tuple[tuple[str, Statement], ...]
    text: str


@final
@attrs.frozen(order=False)
class AuthoredDelta:
    """A block of an operator's that is another one now.

    Attributes:
        block: the block's name.
        content: its whole text, header and all; empty where it is not there any more.
        text: what the model gets.
    """

    block: str
    content: str
    text: str


Delta = LearnedDelta | AuthoredDelta


@final
@attrs.frozen(order=False)
class Seal:
    """What deltas of one base are sealed with.

    Attributes:
        key: a secret that only the store has.
        base: the id of the base, in hexadecimal.
        fence: the id on the fences of the scope's root.
    """

    key: bytes = attrs.field(repr=False)
    base: str
    fence: str

    def of(self, text: str) -> str:
        """The seal of a delta's text, in which its place is empty."""
        return self._hash(b"seal", text)[:SEAL_LENGTH]

    def id_of(self, block: str, statement: Statement, number: int) -> str:
        """A keyed hash of a statement, whole: what it says cannot be found by trying out."""
        return self._hash(b"statement", "\0".join((block, str(number), statement.header, statement.body)))

    def _hash(self, domain: bytes, text: str) -> str:
        message = b"\0".join((b"conversation", domain, self.base.encode(), text.encode()))
        return hmac.new(self.key, message, hashlib.sha256).hexdigest()


def learned_delta(
    block: str, retracted: Sequence[Reference], added: Sequence[tuple[str, Statement]], seal: Seal
) -> LearnedDelta:
    """A delta of a block of memory, rendered and sealed."""
    lines = []
    if retracted:
        lines.append(f"{_RETRACTED}{', '.join(map(_spelled, retracted))}]")
    header = None
    for statement_id, statement in added:
        if statement.header != header:
            header = statement.header
            # A notice has no provenance; an empty header would be a line of its own.
            lines.extend([header] if header else [])
        lines.append(f"- {statement_id}: {statement.body}")
    text = _sealed(block, "changed", FENCE_NAME, "\n".join(lines), seal)
    return LearnedDelta(block, tuple(retracted), tuple(added), text)


def authored_delta(block: str, content: str, seal: Seal) -> AuthoredDelta:
    """A delta of an operator's block, whole and sealed."""
    kind = "replaced" if content else "gone"
    return AuthoredDelta(block, content, _sealed(block, kind, AUTHORED_FENCE, content, seal))


def _sealed(block: str, kind: str, fence_name: str, inner: str, seal: Seal) -> str:
    fence = f"{fence_name}-{seal.fence}"
    before = f'<{fence} {kind}="{block}" seal="{seal.base}-'
    after = f'">\n{inner}\n</{fence}>' if inner else f'">\n</{fence}>'
    return f"{before}{seal.of(before + after)}{after}"


def _spelled(reference: Reference) -> str:
    if isinstance(reference, str):
        return reference
    return "the notice" if reference == NOTICE else f"statement {reference}"


def read_delta(text: str, seal: Seal) -> Delta | None:
    """The delta that a whole text is; None where it is anything else, of another base, or not as it was sealed."""
    found = next(iter(find_deltas(text, seal)), None)
    return found if found is not None and found.text == text else None


def find_deltas(text: str, seal: Seal) -> Iterator[Delta]:
    """The deltas inside a text, in order: what a framework joined to other text is found as well."""
    return (delta for _, delta in find_sealed(text, lambda base: seal if base == seal.base else None))


def find_sealed(text: str, seal_of: Callable[[str], Seal | None]) -> Iterator[tuple[str, Delta]]:
    """The deltas inside a text, in order, each with its base, where ``seal_of`` has a seal for that."""
    position = 0
    while (opening := _OPENING.search(text, position)) is not None:
        position = opening.end()
        seal = seal_of(opening["base"])
        if seal is None or not opening["fence"].endswith(f"-{seal.fence}"):
            continue
        end = _end_of(text, opening, seal)
        if end is not None:
            yield seal.base, _read(text[opening.start() : end], opening)
            position = end


def _end_of(text: str, opening: re.Match[str], seal: Seal) -> int | None:
    """Where the delta ends whose seal fits; authored text might hold the closing fence itself."""
    closing = f"\n</{opening['fence']}>"
    before = text[opening.start() : opening.start("seal")]
    position = opening.end()
    # Learned text cannot hold its fence. So many are tried that hostile text costs no more than its length.
    for _ in range(1 if opening["kind"] == "changed" else _MOST_CLOSINGS):
        found = text.find(closing, position)
        if found < 0:
            return None
        end = found + len(closing)
        if hmac.compare_digest(seal.of(before + text[opening.end("seal") : end]), opening["seal"]):
            return end
        position = end
    return None


def _read(text: str, opening: re.Match[str]) -> Delta:
    block = opening["block"]
    inner = "\n".join(text.split("\n")[1:-1])
    if opening["kind"] != "changed":
        return AuthoredDelta(block, inner, text)
    retracted: list[Reference] = []
    added: list[tuple[str, Statement]] = []
    header = ""
    for line in inner.split("\n") if inner else ():
        entry = _ADDED.match(line)
        if entry is not None:
            body = line[entry.end() :]
            # A notice is the only entry that is no literal, field or block form.
            added.append((entry[1], Statement("" if body.startswith("[") else header, body)))
        elif line.startswith("| ") and added:
            statement_id, statement = added[-1]
            added[-1] = statement_id, Statement(statement.header, f"{statement.body}\n{line}")
        elif line.startswith(_RETRACTED):
            retracted.extend(_references(line))
        elif line.startswith("["):
            header = line
        else:
            raise InvalidInputError("holds a line that no delta has, and a seal that fits", field="delta")
    return LearnedDelta(block, tuple(retracted), tuple(added), text)


def _references(line: str) -> Iterator[Reference]:
    for number, statement_id, notice in _REFERENCE.findall(line):
        yield NOTICE if notice else statement_id or int(number)
