"""The digest of a lane's facts, and the revision that carries it. Changing anything here changes every revision.

Chunk: the facts of a chunk are written as their number, the byte lengths of their values, their instants, their
provenance and their values, column after column. Numbers are little-endian: 32 bits for the number and the lengths, 64
for an instant, of which the least value stands for None. The provenance of a fact is its field, source and trust, each
``~`` for None or ``<code points>:<text>``. Every part says where it ends, so that different facts never give the same
bytes. The id of the node is not part of it: it is not rendered.

Cuts: a chunk ends after each fact for which the CRC-32 of the value, begun at the low 32 bits of the instant, has its
low seven bits zero: 128 facts on average. Each chunk is hashed by SHA-256, and the root is SHA-256 over the format's
name, the number of facts and the chunks' hashes; its first 128 bits are the digest. The cuts depend on the facts alone,
so the digest is a pure function of the sequence of facts, whatever edits led to it, and a changed fact costs its chunk
and the root.

A hostile writer can choose texts by their CRC. With no cut at all, a change costs encoding and hashing the whole lane;
with a cut after every fact, the root hashes 32 bytes a fact. Either way the cost is at most linear in the lane, and
neither makes two different lanes equal: soundness rests on SHA-256 alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from struct import pack
from typing import Any, Final, final
from zlib import crc32

from promptkeel.instants import format_instant
from promptkeel.model import BlockFact

EMPTY_MEMORY_REVISION: Final = "mem:0:empty"
"""The revision of a lane that holds no node."""

_FORMAT: Final = b"promptkeel lane 1\n"
_CUT_MASK: Final = 0x7F
_ZERO: Final = re.compile(b"\0")
_DIGEST_BYTES: Final = 16
_NOT_RECORDED: Final = -(2**63)


def _optional(text: str | None) -> str:
    return "~" if text is None else f"{len(text)}:{text}"


def encode_provenance(field: str | None, source: str | None, trust: str | None) -> bytes:
    """What few distinct values are shared by many facts."""
    return f"{_optional(field)}{_optional(source)}{_optional(trust)}".encode()


@final
class Records:
    """Facts as the digest sees them, column by column.

    Attributes:
        values: in UTF-8.
        instants: when each was recorded.
        provenance: the field, source and trust of each.
    """

    __slots__ = ("instants", "provenance", "values")

    def __init__(self, values: list[bytes], instants: list[int], provenance: list[bytes]) -> None:
        self.values = values
        self.instants = instants
        self.provenance = provenance

    def __len__(self) -> int:
        return len(self.values)

    def extend(self, other: Records, start: int, end: int | None) -> None:
        """Add a part of other records at the end."""
        self.values += other.values[start:end]
        self.instants += other.instants[start:end]
        self.provenance += other.provenance[start:end]

    def cuts(self) -> list[int]:
        """The positions after which a chunk ends, apart from the end of the records."""
        low_bits = bytes(map(_CUT_MASK.__and__, map(crc32, self.values, self.instants)))
        return [found.end() for found in _ZERO.finditer(low_bits)]

    def chunk(self, start: int, end: int) -> bytes:
        """The hash of one chunk."""
        values = self.values[start:end]
        count = end - start
        numbers = pack(f"<I{count}I{count}q", count, *map(len, values), *self.instants[start:end])
        return sha256(b"".join((numbers, *self.provenance[start:end], *values))).digest()


def encode_columns(values: Iterable[str], recorded: Iterable[int | None], provenance: Iterable[bytes]) -> Records:
    """The records of facts that are given column by column.

    Raises:
        UnicodeEncodeError: a value holds a lone surrogate.
    """
    instants: list[Any] = list(recorded)
    if None in instants:
        instants = [_NOT_RECORDED if instant is None else instant for instant in instants]
    return Records(list(map(str.encode, values)), instants, list(provenance))


def encode_facts(facts: Sequence[BlockFact]) -> Records:
    """The records of facts."""
    if not facts:
        return Records([], [], [])
    values, sources, recorded, fields, trusts, _ = zip(*facts, strict=True)
    shared = {key: encode_provenance(*key) for key in set(zip(fields, sources, trusts, strict=True))}
    return encode_columns(values, recorded, map(shared.__getitem__, zip(fields, sources, trusts, strict=True)))


def is_cut(fact: BlockFact) -> bool:
    """Whether a chunk ends after this fact."""
    return bool(encode_facts([fact]).cuts())


def root_digest(count: int, chunks: Iterable[bytes]) -> str:
    """The digest of a lane of so many facts with these chunks' hashes."""
    return sha256(b"".join((_FORMAT, b"%d\n" % count, *chunks))).digest()[:_DIGEST_BYTES].hex()


def facts_digest(facts: Sequence[BlockFact]) -> str:
    """The digest of facts in lane order."""
    records = encode_facts(facts)
    chunks = []
    start = 0
    for end in (*records.cuts(), len(records)):
        if end > start:
            chunks.append(records.chunk(start, end))
            start = end
    return root_digest(len(records), chunks)


def format_revision(count: int, newest: int | None, digest: str) -> str:
    """The revision of a lane: nodes read, newest ``updated_at``, digest of the facts."""
    if count == 0:
        return EMPTY_MEMORY_REVISION
    return f"mem:{count}:{'unstamped' if newest is None else format_instant(newest)}:{digest}"
