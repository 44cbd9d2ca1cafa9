"""The digest of a lane's facts, and the revision that carries it. Changing anything here changes every revision.

Record: a fact is written as ``<n>:<value><recorded>|<field><source><trust>``. ``<n>`` is the length of the value in
code points; ``<recorded>`` is the instant in decimal or ``~``; each of the last three is ``~`` for None or
``<length>:<text>``. Every part says where it ends, so that different sequences of facts never give the same bytes. The
id of the node is not part of it: it is not rendered.

Chunks: the UTF-8 records in order, cut after each record whose CRC-32 has its low seven bits zero, 128 facts on
average. Each chunk is hashed by SHA-256, and the root is SHA-256 over the format's name, the number of facts and the
chunks' hashes; its first 128 bits are the digest. The cuts depend on the facts alone, so the digest is a pure function
of the sequence of facts, whatever edits led to it, and a changed fact costs its chunk and the root.

A hostile writer can choose texts by their CRC. With no cut at all, a change costs encoding and hashing the whole lane;
with a cut after every fact, the root hashes 32 bytes a fact. Either way the cost is at most linear in the lane, and
neither makes two different lanes equal: soundness rests on SHA-256 alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final
from zlib import crc32

from promptkeel.instants import format_instant
from promptkeel.model import BlockFact

EMPTY_MEMORY_REVISION: Final = "mem:0:empty"
"""The revision of a lane that holds no node."""

_FORMAT: Final = b"promptkeel lane 1\n"
_CUT_MASK: Final = 0x7F
_DIGEST_BYTES: Final = 16


def _optional(text: str | None) -> str:
    return "~" if text is None else f"{len(text)}:{text}"


def provenance_suffix(field: str | None, source: str | None, trust: str | None) -> str:
    """The end of a record: what few distinct values are shared by many facts."""
    return f"|{_optional(field)}{_optional(source)}{_optional(trust)}"


def encode_records(values: Iterable[str], recorded: Iterable[int | None], suffixes: Iterable[str]) -> list[bytes]:
    """The records of facts that are given column by column.

    Raises:
        UnicodeEncodeError: some text holds a lone surrogate.
    """
    return [
        f"{len(value)}:{value}{'~' if instant is None else instant}{suffix}".encode()
        for value, instant, suffix in zip(values, recorded, suffixes, strict=True)
    ]


def encode_facts(facts: Sequence[BlockFact]) -> list[bytes]:
    """The records of facts."""
    if not facts:
        return []
    values, sources, recorded, fields, trusts, _ = zip(*facts, strict=True)
    shared = {key: provenance_suffix(*key) for key in set(zip(fields, sources, trusts, strict=True))}
    return encode_records(values, recorded, map(shared.__getitem__, zip(fields, sources, trusts, strict=True)))


def find_cuts(records: Sequence[bytes]) -> list[int]:
    """The positions after which a chunk ends, apart from the end of the records."""
    return [position for position, crc in enumerate(map(crc32, records), 1) if not crc & _CUT_MASK]


def is_cut(record: bytes) -> bool:
    """Whether a chunk ends after this record."""
    return not crc32(record) & _CUT_MASK


def hash_chunk(records: Sequence[bytes]) -> bytes:
    """The hash of one chunk."""
    return sha256(b"".join(records)).digest()


def root_digest(count: int, chunks: Iterable[bytes]) -> str:
    """The digest of a lane of so many facts with these chunks' hashes."""
    return sha256(b"".join((_FORMAT, b"%d\n" % count, *chunks))).digest()[:_DIGEST_BYTES].hex()


def facts_digest(facts: Sequence[BlockFact]) -> str:
    """The digest of facts in lane order."""
    records = encode_facts(facts)
    chunks = []
    start = 0
    for end in (*find_cuts(records), len(records)):
        if end > start:
            chunks.append(hash_chunk(records[start:end]))
            start = end
    return root_digest(len(records), chunks)


def format_revision(count: int, newest: int | None, digest: str) -> str:
    """The revision of a lane: nodes read, newest ``updated_at``, digest of the facts."""
    if count == 0:
        return EMPTY_MEMORY_REVISION
    return f"mem:{count}:{'unstamped' if newest is None else format_instant(newest)}:{digest}"
