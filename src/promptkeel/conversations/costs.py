"""What it costs to carry deltas, and when to rewrite the base instead. Pure.

The model. All costs are in tokens of uncached input; ``Prices`` says what writing to and reading from the provider's
cache cost against that. A turn sends the prefix (base and history, without deltas), the deltas carried so far, and the
delta that arises at it. What the request before left in the cache is read, the rest is written; once a TTL is over,
everything is written. A rewrite folds all deltas into the base, writes everything, and makes the base longer by what
they come to there. Answers cost the same either way and are no part of it.

The rule. Rewrite where it is forced; where nothing is warm and there is something to fold in, since everything is
written anyway; where the new delta alone is longer than a whole rewritten request; and where the reading of deltas
since the last rewrite has come to what a rewrite costs beyond a read. It may not be legal: then it waits.

The bound. Every rewrite of the last kind is paid for by reads of deltas, and these are at most the share of deltas in
the prefix times what any schedule pays. So the rule costs at most ``1 + 2 * share`` times the best schedule in
hindsight, where ``share`` is the greatest ratio of carried deltas to the prefix, as long as the prefix does not shrink
and a rewrite is always legal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import final

import attrs

from promptkeel.providers.rules import ModelRules


@final
@attrs.frozen(order=False)
class Prices:
    """What a provider's cache costs against uncached input.

    Attributes:
        write: a token that is written.
        read: a token that is read.
        ttl: for how many seconds a prefix is kept after its last use.
    """

    write: float
    read: float
    ttl: float

    @classmethod
    def of(cls, rules: ModelRules, ttl: int | None = None) -> Prices:
        """Those of a model, for one of its TTLs; its default where none is given."""
        place = 0 if ttl is None else rules.ttls.index(ttl)
        return cls(rules.write_factors[place], rules.read_factor, rules.ttls[place])


@final
@attrs.frozen(order=False, kw_only=True)
class Turn:
    """One turn of a conversation.

    Attributes:
        at: when, in seconds.
        prefix: tokens of the first base and the history, without deltas.
        change: tokens of the delta that says what changed since the turn before; 0 where nothing did.
        folded: by how many tokens a base that holds the change is longer; less than 0 where it is shorter.
        forced: whether the base must be rewritten, as after an erasure.
        is_legal: whether it may be.
    """

    at: float
    prefix: int
    change: int = 0
    folded: int = 0
    forced: bool = False
    is_legal: bool = True


@final
@attrs.frozen(order=False, kw_only=True)
class Carrying:
    """What is known at a turn.

    Attributes:
        prefix: tokens that a rewritten request would have.
        carried: tokens of the deltas that are in the messages already.
        change: tokens of the delta that arises now.
        paid: what reading deltas has cost since the last rewrite.
        is_warm: whether the provider still keeps what the request before left there.
    """

    prefix: int
    carried: int
    change: int
    paid: float
    is_warm: bool


def should_rewrite(carrying: Carrying, prices: Prices) -> bool:
    """Whether a base that may be rewritten should be."""
    if not carrying.carried and not carrying.change:
        return False
    if not carrying.is_warm:
        return True
    extra = (prices.write - prices.read) * carrying.prefix
    return carrying.change > carrying.prefix or carrying.paid >= extra


def paid_after(carrying: Carrying, prices: Prices) -> float:
    """What reading deltas has cost since the last rewrite, once this turn was sent without one."""
    return carrying.paid + (prices.read if carrying.is_warm else prices.write) * carrying.carried


@final
@attrs.frozen(order=False)
class Schedule:
    """At which turns a base is rewritten.

    Attributes:
        rewrites: their positions, in order.
        cost: of all turns, in tokens of uncached input.
    """

    rewrites: tuple[int, ...]
    cost: float


def schedule_by_rule(turns: Sequence[Turn], prices: Prices) -> Schedule:
    """What the rule does with turns that come one by one."""
    rewrites: list[int] = []
    carried, folded, paid, waiting = 0, 0, 0.0, 0
    for index, turn in enumerate(turns):
        base = turn.prefix + folded + waiting + turn.folded
        warm = index > 0 and _is_warm(turns[index - 1], turn, prices)
        carrying = Carrying(prefix=base, carried=carried, change=turn.change, paid=paid, is_warm=warm)
        waiting += turn.folded
        if not index or turn.forced or (turn.is_legal and should_rewrite(carrying, prices)):
            rewrites.extend([index] if index else [])
            carried, paid, folded, waiting = 0, 0.0, folded + waiting, 0
            continue
        paid = paid_after(carrying, prices)
        carried += turn.change
    return Schedule(tuple(rewrites), cost_of(turns, rewrites, prices))


def cost_of(turns: Sequence[Turn], rewrites: Iterable[int], prices: Prices) -> float:
    """What a schedule costs, in tokens of uncached input.

    The first turn writes everything whatever the schedule says.
    """
    at = {0, *rewrites}
    cost, sent, carried, folded, waiting = 0.0, 0, 0, 0, 0
    for index, turn in enumerate(turns):
        waiting += turn.folded
        if index in at:
            folded, waiting, carried = folded + waiting, 0, 0
            total = turn.prefix + folded
            cost += prices.write * total
        else:
            carried += turn.change
            total = turn.prefix + folded + carried
            kept = min(sent, total) if _is_warm(turns[index - 1], turn, prices) else 0
            cost += prices.read * kept + prices.write * (total - kept)
        sent = total
    return cost


def best_schedule(turns: Sequence[Turn], prices: Prices) -> Schedule:
    """The cheapest schedule in hindsight; the time grows with the square of the number of turns."""
    # For each number of turns, what the cheapest way costs that has sent them, and where its last stretch began.
    best: list[tuple[float, int]] = [(0.0, 0), *[(float("inf"), 0)] * len(turns)]
    folded = 0
    for start, turn in enumerate(turns):
        folded += turn.folded
        if start == 0 or turn.is_legal or turn.forced:
            for end, cost in _stretches(turns, start, folded, prices):
                best[end] = min(best[end], (best[start][0] + cost, start))
    rewrites: list[int] = []
    place = best[-1][1]
    while place:
        rewrites.append(place)
        place = best[place][1]
    found = tuple(reversed(rewrites))
    return Schedule(found, cost_of(turns, found, prices))


def _stretches(turns: Sequence[Turn], start: int, folded: int, prices: Prices) -> Iterator[tuple[int, float]]:
    """Every stretch that begins with a rewrite at ``start`` and has no other: where it ends, and what it costs."""
    sent = turns[start].prefix + folded
    cost, carried = prices.write * sent, 0
    yield start + 1, cost
    for index in range(start + 1, len(turns)):
        turn = turns[index]
        if turn.forced:
            return
        carried += turn.change
        total = turn.prefix + folded + carried
        kept = min(sent, total) if _is_warm(turns[index - 1], turn, prices) else 0
        cost += prices.read * kept + prices.write * (total - kept)
        sent = total
        yield index + 1, cost


def _is_warm(before: Turn, turn: Turn, prices: Prices) -> bool:
    return turn.at - before.at < prices.ttl
