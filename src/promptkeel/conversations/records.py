"""What a conversation keeps in the store: its bases and its turns, as nodes of a reserved namespace. Pure.

A base says how the same bytes can be made again: the heads at which the store's own blocks were read, and the texts of
those that no store holds. No text of memory is in it, only a keyed hash of each block's text, by which a reading is
known to be the same. A turn is known by a keyed hash of the messages that it was sent with, and says which base it had
and what of the request was to be kept by the provider.

Growth is bounded. The conversations of a scope are spread over ``SETS`` sets; each set has room for ``TURNS`` turns and
``BASES`` bases, whoever's they are, and what was used longest ago gives way. A conversation whose base gave way begins
another: that costs tokens, and nothing else. Old versions of these nodes go as those of all others do, with the log.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, final

import attrs

from promptkeel.model import MemoryNode
from promptkeel.properties import thawed
from promptkeel.resolver.outcomes import BlockState
from promptkeel.scope import TenantScope
from promptkeel.store.base import Heads
from promptkeel.store.reserved import CONVERSATIONS

SETS: Final = 1024
"""Over so many sets the conversations of a scope are spread."""
TURNS: Final = 32
"""So many turns a set has room for."""
BASES: Final = 8
"""So many bases a set has room for."""

Slot = tuple[Literal["turn", "base"], int]


def keyed_hash(secret: bytes, *parts: str | bytes) -> str:
    """A keyed hash of some parts, in hexadecimal; no other parts have it."""
    digest = hmac.new(secret, digestmod=hashlib.sha256)
    for part in parts:
        data = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


@final
@attrs.frozen(order=False)
class PinnedBlock:
    """One block of a base.

    Attributes:
        name: the block's name.
        tier: its tier.
        state: what had come of it; one that could not be read has no text.
        seal: a keyed hash of its text.
        text: the text, of a block that no store holds; None of one that is read again at the base's heads.
        room: the tokens that the rest of the prompt had left to it, where that narrowed it.
        facts: of a learned block that no store holds, what its text states, each fact as a list of its parts.
    """

    name: str
    tier: str
    state: BlockState
    seal: str
    text: str | None = attrs.field(default=None, repr=False)
    room: int | None = None
    facts: tuple[Any, ...] | None = attrs.field(default=None, repr=False)


@final
@attrs.frozen(order=False)
class BaseRecord:
    """How the bytes of a base can be made again.

    Attributes:
        id: a keyed hash of its blocks, so that equal bases have one id.
        at: when it was made, as an instant.
        heads: at which the store's blocks in it were read.
        erasures: a keyed hash of the erasures that were known then; empty where that is not known.
        blocks: in the order of the prompt.
    """

    id: str
    at: int
    heads: Heads
    erasures: str
    blocks: tuple[PinnedBlock, ...]


@final
@attrs.frozen(order=False, kw_only=True)
class TurnRecord:
    """A request that was made.

    Attributes:
        prefix: a keyed hash of the messages it was sent with, without this library's own parts and without reasoning.
        base: the id of its base.
        at: when it was made, as an instant.
        model: for which model.
        format: in which format.
        tools: a hash of the tools, as they were sent.
        marks: the positions, counted in the request's segments, behind which the provider was to keep it, each with
            its seconds.
        carried: the tokens of deltas that were in it.
        paid: what carrying deltas has cost since the base was made, in tokens of input.
        said: a keyed hash of the deltas that were in it.
        loose: so many messages of the prefix may hold reasoning that does not fit what stands before it any more.
        tailed: whether it held something that is in no later request, as a tail.
    """

    prefix: str
    base: str
    at: int
    model: str
    format: str
    tools: str
    marks: tuple[tuple[int, int], ...] = ()
    carried: int = 0
    paid: float = 0.0
    said: str = ""
    loose: int = 0
    tailed: bool = False


@final
@attrs.frozen(order=False)
class Kept:
    """A node of a conversation's set.

    Attributes:
        node: as it is in the store.
        slot: where it stands.
        owner: the conversation whose it is; empty where it cannot be read.
        record: what it says.
    """

    node: MemoryNode
    slot: Slot
    owner: str
    record: BaseRecord | TurnRecord | None


@final
@attrs.frozen(order=False)
class Place:
    """Where the state of a conversation is.

    Attributes:
        scope: the conversation's own.
        key: a keyed hash of scope and id.
    """

    scope: TenantScope
    key: str

    @classmethod
    def of(cls, secret: bytes, scope: TenantScope, conversation_id: str) -> Place:
        """The place of a conversation."""
        return cls(scope, keyed_hash(secret, "conversation", scope.path, conversation_id)[:32])

    @property
    def prefix(self) -> str:
        """What the labels of its set begin with, and no others do."""
        return f"{CONVERSATIONS}{int(self.key[:8], 16) % SETS:03x}:"

    def label(self, slot: Slot) -> str:
        """The label of a slot."""
        kind, number = slot
        return f"{self.prefix}{kind}:{number:02d}"

    def read(self, nodes: Iterable[MemoryNode]) -> tuple[Kept, ...]:
        """What nodes of the set say; what cannot be read is as if it were not there, apart from its slot."""
        slots = {self.label(slot): slot for slot in _slots()}
        return tuple(
            Kept(node, slots[node.label], *_read(node))
            for node in nodes
            if node.scope == self.scope and node.label in slots
        )

    def node(self, slot: Slot, record: BaseRecord | TurnRecord, node_id: str) -> MemoryNode:
        """The node of a record."""
        said = {
            "conversation": self.key,
            **(_base_said(record) if isinstance(record, BaseRecord) else _turn_said(record)),
        }
        return MemoryNode(
            id=f"{CONVERSATIONS}{node_id}",
            scope=self.scope,
            label=self.label(slot),
            properties=said,
            recorded_at=None,
        )


def _slots() -> list[Slot]:
    return [("turn", number) for number in range(TURNS)] + [("base", number) for number in range(BASES)]


def slot_for(record: BaseRecord | TurnRecord, key: str, kept: Sequence[Kept]) -> Slot:
    """Where a record goes: where it is, else to a free slot, else in place of what was used longest ago."""
    kind: Literal["turn", "base"] = "base" if isinstance(record, BaseRecord) else "turn"
    room = BASES if kind == "base" else TURNS
    own = [each for each in kept if each.slot[0] == kind]
    for each in own:
        if each.owner == key and _name(each.record) == _name(record):
            return each.slot
    taken = {each.slot[1] for each in own}
    for number in range(room):
        if number not in taken:
            return kind, number
    used = _last_use(kept)
    return min(own, key=lambda each: (used(each), each.slot)).slot


def _name(record: BaseRecord | TurnRecord | None) -> str | None:
    if isinstance(record, BaseRecord):
        return record.id
    return None if record is None else record.prefix


def _last_use(kept: Sequence[Kept]) -> Any:
    turns: dict[tuple[str, str], int] = {}
    for each in kept:
        if isinstance(each.record, TurnRecord):
            place = each.owner, each.record.base
            turns[place] = max(turns.get(place, 0), each.record.at)

    def used(each: Kept) -> int:
        if each.record is None:
            return -1
        if isinstance(each.record, BaseRecord):
            return max(each.record.at, turns.get((each.owner, each.record.id), 0))
        return each.record.at

    return used


# Spelling


def _base_said(record: BaseRecord) -> dict[str, Any]:
    blocks = [
        {name: value for name, value in attrs.asdict(block).items() if value is not None} for block in record.blocks
    ]
    said = {"base": record.id, "at": record.at, "heads": record.heads.to_json(), "erasures": record.erasures}
    # As one text in ASCII: an operator's text may hold characters that no memory may.
    return {**said, "blocks": json.dumps(blocks)}


def _turn_said(record: TurnRecord) -> dict[str, Any]:
    return {"turn": record.prefix, **attrs.asdict(record, filter=lambda field, _: field.name != "prefix")}


def _read(node: MemoryNode) -> tuple[str, BaseRecord | TurnRecord | None]:
    said: Mapping[str, Any] = thawed(node.own_properties)
    try:
        owner = str(said["conversation"])
        record: BaseRecord | TurnRecord = _base_of(said) if "blocks" in said else _turn_of(said)
    except (KeyError, TypeError, ValueError, AttributeError):
        # Raw SQL wrote it: as little known as if it were not there.
        return "", None
    return owner, record


def _base_of(said: Mapping[str, Any]) -> BaseRecord:
    given = json.loads(said["blocks"])
    blocks = tuple(PinnedBlock(**{**block, "facts": _facts_of(block.get("facts"))}) for block in given)
    heads = Heads.from_json(said["heads"])
    return BaseRecord(str(said["base"]), int(said["at"]), heads, str(said["erasures"]), blocks)


def _facts_of(said: Any) -> tuple[Any, ...] | None:
    return None if said is None else tuple(tuple(fact) for fact in said)


def _turn_of(said: Mapping[str, Any]) -> TurnRecord:
    return TurnRecord(
        prefix=str(said["turn"]),
        base=str(said["base"]),
        at=int(said["at"]),
        model=str(said["model"]),
        format=str(said["format"]),
        tools=str(said["tools"]),
        marks=tuple((int(position), int(seconds)) for position, seconds in said["marks"]),
        carried=int(said["carried"]),
        paid=float(said["paid"]),
        said=str(said["said"]),
        loose=int(said["loose"]),
        tailed=bool(said["tailed"]),
    )
