"""Where each block of a prompt stands for one provider: in which channel, in which order, shared by how many. Pure.

Authored text is always ``system``. Learned text stands where its declaration says, else where the most careful of its
facts must: the provider's table names a channel for each trust. Whatever changes from turn to turn is in the tail,
which adapters put after everything that a cache keeps, never into ``system``.

Each channel's region begins by saying what its fences mean, so that no region leans on another one. What the values
become on the wire is left to the adapters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, final, get_args

import attrs

from promptkeel.blocks import PromptBlockSpec
from promptkeel.blocks.source import SHARINGS, Sharing
from promptkeel.blocks.taxonomy import CHANNELS, Channel
from promptkeel.model import TRUST_LEVELS, BlockFact
from promptkeel.render.region import REGION_HEADING
from promptkeel.resolver import ResolvedBlock

UNRECORDED: Final = "unrecorded"
"""What a table of channels calls a trust that was not recorded."""
PLAIN_CHANNELS: Final[Mapping[str, Channel]] = MappingProxyType(dict.fromkeys((*TRUST_LEVELS, UNRECORDED), "system"))
"""The channels of plain text, which has only one."""

Durability = Literal["deployment", "tenant", "conversation"]
"""Which requests share a prefix: all of them, those of one tenant, or those of one conversation."""
DURABILITIES: Final[tuple[Durability, ...]] = get_args(Durability)
"""What the most requests share first."""
_SHARED: Final[Mapping[Sharing, Durability]] = dict(zip(SHARINGS, DURABILITIES, strict=True))
NOTICES: Final = "notices"
"""The name of the part of a tail that says which blocks are not there."""
_JOINT: Final = "\n\n"


@final
@attrs.frozen(order=False)
class Section:
    """Neighbouring blocks of one channel, all of which are shared by the same requests.

    Attributes:
        names: the blocks, in the order of the text.
        channel: where it stands.
        text: what the model gets.
        durability: which requests share the prompt up to and including this section.
    """

    names: tuple[str, ...]
    channel: Channel
    text: str
    durability: Durability


@final
@attrs.frozen(order=False)
class TailPart:
    """One part of the tail.

    Attributes:
        name: a block's name, or ``notices``, ``time``, ``recall`` or ``query``.
        channel: ``user`` or ``tool_result``.
        text: what the model gets.
    """

    name: str
    channel: Channel
    text: str


@final
@attrs.frozen(order=False)
class Layout:
    """A prompt as one provider's adapter spells it.

    Attributes:
        sections: what lasts, in the order of the provider's prefix: ``system``, ``user``, ``tool_result``.
        tail: what changes from turn to turn, in the order of the text; ``headed`` says what its fences mean.
        calls: whether any block could ever stand in ``tool_result`` here, whatever its memory says now.
        notes: what the operator should know.
    """

    sections: tuple[Section, ...]
    tail: tuple[TailPart, ...] = ()
    calls: bool = False
    notes: tuple[str, ...] = ()

    def of(self, channel: Channel) -> tuple[Section, ...]:
        """The sections of one channel."""
        return tuple(section for section in self.sections if section.channel == channel)

    @property
    def channels(self) -> frozenset[Channel]:
        """The channels that have sections, and so say what their fences mean."""
        return frozenset(section.channel for section in self.sections)

    def text(self, channel: Channel) -> str:
        """The whole region of one channel; empty where it has none."""
        return _JOINT.join(section.text for section in self.sections if section.channel == channel)


def layout_of(blocks: Sequence[ResolvedBlock], notices: Sequence[str], channels: Mapping[str, str]) -> Layout:
    """The layout of a prompt's blocks.

    Args:
        blocks: in prompt order.
        notices: what the model is told about blocks that are not there, a line each.
        channels: the channel of learned text by its trust, as ``ModelRules.channels``.
    """
    placed = [(block, channel_of(block, channels)) for block in blocks if block.text]
    stable = [pair for pair in placed if not pair[0].spec.is_volatile]
    stable.sort(key=lambda pair: CHANNELS.index(pair[1]))
    sections = _sections(stable)
    tail = [tail_part(block.name, channel, block.text) for block, channel in placed if block.spec.is_volatile]
    if notices:
        tail.append(TailPart(NOTICES, "user", _JOINT.join(notices)))
    return Layout(
        tuple(sections),
        tuple(tail),
        any(_may_call(block.spec, channels) for block in blocks),
        tuple(_notes(placed, channels)),
    )


def channel_of(block: ResolvedBlock, channels: Mapping[str, str]) -> Channel:
    """Where a block that says something stands."""
    declared = block.spec.channel
    return declared if declared is not None else learned_channel(block.facts, channels)


def learned_channel(facts: Iterable[BlockFact], channels: Mapping[str, str]) -> Channel:
    """The most careful channel that any of the facts asks for; of none, that of a trust that is not recorded."""
    careful = max(channels.values(), key=_care)
    trusts = {fact.trust for fact in facts} or {None}
    # A foreign store may hand over a trust that nobody knows.
    asked = (channels.get(UNRECORDED if trust is None else trust, careful) for trust in trusts)
    return CHANNELS[max(map(_care, asked))]


def tail_part(name: str, channel: Channel, text: str) -> TailPart:
    """A rendered block as part of a tail; never in ``system``."""
    return TailPart(name, "user" if channel == "system" else channel, text)


def headed(parts: Iterable[TailPart], explained: Iterable[Channel]) -> list[TailPart]:
    """Blocks of a tail, the first of each channel under the statement of what its fences mean.

    Args:
        parts: the blocks.
        explained: the channels that say so already.
    """
    said = set(explained)
    found = []
    for part in parts:
        new = part.channel not in said
        said.add(part.channel)
        found.append(attrs.evolve(part, text=f"{REGION_HEADING}{_JOINT}{part.text}") if new else part)
    return found


def _care(channel: str) -> int:
    return CHANNELS.index(channel)


def _may_call(spec: PromptBlockSpec, channels: Mapping[str, str]) -> bool:
    if spec.channel is not None:
        return spec.channel == "tool_result"
    return "tool_result" in channels.values()


def _sections(placed: Iterable[tuple[ResolvedBlock, Channel]]) -> list[Section]:
    runs: list[tuple[Channel, Durability, list[ResolvedBlock]]] = []
    widest = 0
    for block, channel in placed:
        # What stands behind a narrower text is shared by no more requests than that.
        widest = max(widest, SHARINGS.index(block.spec.shared))
        durability = _SHARED[SHARINGS[widest]]
        if not runs or runs[-1][:2] != (channel, durability):
            runs.append((channel, durability, []))
        runs[-1][2].append(block)
    sections = []
    said: set[Channel] = set()
    for channel, durability, blocks in runs:
        heading = () if channel in said else (REGION_HEADING,)
        said.add(channel)
        text = _JOINT.join([*heading, *(block.text for block in blocks)])
        sections.append(Section(tuple(block.name for block in blocks), channel, text, durability))
    return sections


def _notes(placed: Iterable[tuple[ResolvedBlock, Channel]], channels: Mapping[str, str]) -> Iterable[str]:
    for block, channel in placed:
        if block.is_learned and block.spec.channel is not None:
            asked = learned_channel(block.facts, channels)
            if _care(channel) < _care(asked):
                yield f"{block.name} was declared as {channel!r}, but holds text that belongs into {asked!r} here"
