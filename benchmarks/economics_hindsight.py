"""The best that anyone could do who knew all writes beforehand: when each base is made anew, and what that costs.

Found by ``best_schedule`` in the cost model of conversations, then played at the same simulated provider as everything
else. Deltas are the product's own; only when a base is left is another's choice.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs

from economics_layouts import BLOCK, Moment, followed
from economics_replay import Scheme, count, moments
from economics_trace import Message, Trace
from promptkeel.conversations import costs
from promptkeel.conversations.deltas import Delta, Seal
from promptkeel.conversations.standing import learned_difference, learned_standing


@attrs.define
class _Stretch:
    """What is carried since a base was made."""

    base: Any
    history: list[Message]
    deltas: list[Delta]


class Hindsight:
    """The base made anew at the turns that are best in hindsight, and the product's own deltas in between."""

    name: ClassVar = "best in hindsight"
    is_stale: ClassVar = False

    def __init__(self, rewrites: Mapping[int, frozenset[int]]) -> None:
        self._rewrites = rewrites
        self._stretches: dict[int, _Stretch] = {}

    def request(self, moment: Moment) -> dict[str, Any]:
        """The keyword arguments of the request."""
        turn = moment.turn
        if turn.number == 0 or turn.number in self._rewrites[turn.conversation]:
            self._stretches[turn.conversation] = _Stretch(moment.prompt, list(moment.messages), [])
        else:
            self._stretches[turn.conversation].history.extend(moment.new)
        stretch = self._stretches[turn.conversation]
        delta = _delta_of(stretch.base.block(BLOCK), stretch.deltas, moment.prompt.block(BLOCK), turn.conversation)
        if delta is not None:
            stretch.deltas.append(delta)
            stretch.history[-1:] = followed(stretch.history[-1], delta.text, moment.format)
        return moment.spelled(stretch.base, stretch.history)


@attrs.define
class _Survey:
    """What is known of a conversation so far."""

    first: Any
    latest: Any
    deltas: list[Delta] = attrs.field(factory=list)
    turns: list[costs.Turn] = attrs.field(factory=list)

    def add(self, moment: Moment) -> None:
        now = moment.prompt.block(BLOCK)
        delta = _delta_of(self.first, self.deltas, now, moment.turn.conversation)
        if delta is not None:
            self.deltas.append(delta)
        # What the whole deployment shares is kept whatever happens here.
        history = sum(_count(json.dumps(message, ensure_ascii=False)) for message in moment.messages)
        self.turns.append(
            costs.Turn(
                at=moment.turn.at,
                prefix=_count(self.first.text) + history,
                change=0 if delta is None else _count(delta.text),
                folded=_count(now.text) - _count(self.latest.text),
            )
        )
        self.latest = now


def rewrites_in_hindsight(trace: Trace, scheme: Scheme) -> dict[int, frozenset[int]]:
    """At which turns of each conversation the base is best made anew."""
    surveys: dict[int, _Survey] = {}
    for moment in moments(trace, scheme):
        block = moment.prompt.block(BLOCK)
        surveys.setdefault(moment.turn.conversation, _Survey(block, block)).add(moment)
    prices = costs.Prices.of(scheme.rules)
    return {number: frozenset(costs.best_schedule(each.turns, prices).rewrites) for number, each in surveys.items()}


def _delta_of(base: Any, deltas: Sequence[Delta], now: Any, conversation: int) -> Delta | None:
    """What has to be said after a base and deltas."""
    fence = re.search(r"<untrusted-data-([0-9a-f]+)", base.text or now.text)
    # As long as real ones, and as random.
    seal = Seal(b"of no store", hashlib.sha256(b"%d" % conversation).hexdigest()[:6], fence[1] if fence else "")
    return learned_difference(BLOCK, learned_standing(base.text, deltas), now.text, seal)


@functools.lru_cache(maxsize=65536)
def _count(text: str) -> int:
    return count(text)
