"""Whether a base that could be kept is left: where that costs less, or says better what an operator says. Pure.

It is never left of its own accord while the messages hold reasoning that the model binds to it, unless an earlier
change stands where this model takes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import attrs

from promptkeel.conversations.costs import Carrying, Prices, paid_after, should_rewrite
from promptkeel.conversations.deltas import AuthoredDelta, Delta
from promptkeel.conversations.differing import differences
from promptkeel.conversations.finding import Sealing
from promptkeel.conversations.messages import Message, characters_of
from promptkeel.conversations.pinning import Base
from promptkeel.conversations.placing import SYSTEM_ROLES
from promptkeel.conversations.reasoning import holds_reasoning
from promptkeel.conversations.records import TurnRecord
from promptkeel.conversations.situations import Asked, Situation
from promptkeel.providers.rules import ModelRules
from promptkeel.providers.segments import WireFormat

Reason = Literal["erased", "lost", "model", "tools", "expired", "cost", "authored"]
"""Why a base was left: something that was shown is erased; it cannot be made again; nothing of it is kept by the
provider (another model, other tools, too long ago); carrying changes has cost as much as a new one; an operator's
text changed, and this provider takes none among the messages."""

_SECOND: Final = 1_000_000
_CHARACTERS: Final = 4
"""So many characters of JSON count as one token, where costs are weighed."""


def worth_leaving(asked: Asked, situation: Situation, base: Base, sealing: Sealing) -> tuple[Reason | None, float]:
    """Why a base that could be kept is left, None where it is kept; and what carrying deltas has cost if it is."""
    rules, prompt = situation.rules, situation.prompt
    found = situation.reading.of(base.id)
    changed = differences(base, found, prompt, sealing.of(base.id), rules.channels)
    if not found and not changed:
        return None, _turn_of(situation, base).paid
    seconds = _kept_for(_turn_of(situation, base), rules)
    prices = Prices.of(rules, seconds if seconds in rules.ttls else None)
    cold = _coldness(asked, situation, base)
    change = sum(prompt.counter(each.delta.text) for each in changed)
    carrying = _carrying(asked, situation, base, found, change)
    # What is too short to be kept is paid whole each time, and so is every delta behind it.
    is_kept = rules.scheme != "none" and carrying.prefix >= rules.minimum
    carrying = attrs.evolve(carrying, is_warm=cold is None and is_kept)
    paid = paid_after(carrying, prices)
    if _is_refused_as_system(asked, situation):
        # Said to another model, where this one takes nothing: it cannot be sent, whatever is bound to it.
        return "model", paid
    if rules.binds_reasoning and holds_reasoning(asked.messages, asked.format):
        return None, paid
    has_authored = any(is_authored(each) for each in (*found, *(each.delta for each in changed)))
    if has_authored and not takes_system(asked.messages, rules, asked.format):
        return "authored", paid
    if should_rewrite(carrying, prices):
        return ("cost" if cold is None else cold), paid
    return None, paid


def _is_refused_as_system(asked: Asked, situation: Situation) -> bool:
    """Whether an earlier delta is a system message, and the model takes none."""
    if situation.rules.system_turns != "refused" or asked.format not in SYSTEM_ROLES:
        return False

    def count(messages: Sequence[Message]) -> int:
        return sum(message.get("role") == SYSTEM_ROLES[asked.format] for message in messages)

    return count(asked.messages) > count(situation.reading.bare.messages)


def _coldness(asked: Asked, situation: Situation, base: Base) -> Reason | None:
    """Why nothing of a base is kept by the provider; None where it may be."""
    turns = [turn for turn in situation.state.turns.values() if turn.base == base.id]
    same_model = [turn for turn in turns if (turn.model, turn.format) == (asked.model, asked.format)]
    if not same_model:
        return "model"
    same = [turn for turn in same_model if turn.tools == situation.tools]
    if not same:
        return "tools"
    last = max(same, key=lambda turn: turn.at)
    return None if situation.now < last.at + _kept_for(last, situation.rules) * _SECOND else "expired"


def _kept_for(turn: TurnRecord, rules: ModelRules) -> int:
    """For how many seconds the provider keeps what a request wrote."""
    return max((seconds for _, seconds in turn.marks), default=rules.ttls[0])


def _carrying(asked: Asked, situation: Situation, base: Base, found: Sequence[Delta], change: int) -> Carrying:
    counter = situation.prompt.counter
    characters = len(situation.prompt.prefix) + characters_of(situation.reading.bare.messages)
    characters += 0 if asked.tools is None else characters_of(asked.tools)
    return Carrying(
        prefix=characters // _CHARACTERS,
        carried=sum(counter(delta.text) for delta in found),
        change=change,
        paid=_turn_of(situation, base).paid,
        is_warm=True,
    )


def _turn_of(situation: Situation, base: Base) -> TurnRecord:
    """The last request with this base, along the messages where there is one."""
    if situation.parent is not None and situation.parent.base == base.id:
        return situation.parent
    turns = [turn for turn in situation.state.turns.values() if turn.base == base.id]
    return max(turns, key=lambda turn: turn.at)


def takes_system(messages: Sequence[Message], rules: ModelRules, wire_format: WireFormat) -> bool:
    """Whether an operator's text may stand behind the messages."""
    if rules.system_turns == "refused" or wire_format not in SYSTEM_ROLES:
        return False
    return rules.system_turns == "anywhere" or any(message.get("role") == "user" for message in messages)


def is_authored(delta: Delta) -> bool:
    """Whether a delta is an operator's text."""
    return isinstance(delta, AuthoredDelta)
