"""Chains of a stateful API: what the provider holds already, so that only what is new is sent. Pure.

A chain is the request that was made before with its answer. What it holds cannot be taken back: where the base is left,
a delta was withdrawn or something in front is not what it was, the whole conversation is sent as a new chain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import attrs

from promptkeel.conversations.messages import Message
from promptkeel.conversations.records import TurnRecord
from promptkeel.providers.segments import WireFormat

_NAMES: Final = ("previous_response_id", "conversation")
_ASKING: Final = frozenset({"user", "system", "developer"})
NEW_CHAIN: Final = "a new chain was begun: what the old one holds cannot be taken back"


@final
@attrs.frozen(order=False)
class Chain:
    """What a caller's chain holds of its messages.

    Attributes:
        turn: the request that the chain ends with.
        held: the index of the first message that it does not hold.
    """

    turn: TurnRecord
    held: int


def is_chained(wire_format: WireFormat, settings: Mapping[str, Any]) -> bool:
    """Whether the caller goes on from what the provider holds."""
    return wire_format == "openai-responses" and any(settings.get(name) for name in _NAMES)


def unchained(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without a chain."""
    return {name: value for name, value in settings.items() if name not in _NAMES}


def chain_of(
    messages: Sequence[Message], hashes: Sequence[str], origins: Sequence[int], turns: Mapping[str, TurnRecord]
) -> Chain | None:
    """What the chain holds: the longest request that was made before and has its answer in the messages; None of none.

    Args:
        messages: the caller's.
        hashes: of each prefix of the messages without own parts and reasoning.
        origins: the index of each of those among the caller's messages.
        turns: the requests that were made, by their hash.
    """
    for count in range(len(origins) - 1, 0, -1):
        turn = turns.get(hashes[count])
        if turn is None or not _is_answer(messages[origins[count]]):
            continue
        known = set(origins)
        held = origins[count - 1] + 1
        while held < len(messages) and (held not in known or _is_answer(messages[held])):
            held += 1
        return Chain(turn, held)
    return None


def _is_answer(message: Message) -> bool:
    kind = str(message.get("type", ""))
    return message.get("role") not in _ASKING and not kind.endswith("_output")
