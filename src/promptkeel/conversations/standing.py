"""What a conversation says by now, and what has to be said so that it says what memory says. Pure.

What it says is the base, changed by the deltas that are found in its messages, in their order: the last word on a
statement counts. Whatever is missing, repeated, of another branch or out of order, the difference to memory is taken
from what is really there, so that after it both are the same. Statements are compared as the model reads them, header
and body, as often as they stand there; their order is no part of what is true.

Blocks that could not be read are not for here: an outage is no change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, final

import attrs

from promptkeel.conversations.deltas import (
    AuthoredDelta,
    Delta,
    LearnedDelta,
    Reference,
    Seal,
    authored_delta,
    learned_delta,
)
from promptkeel.conversations.statements import Statement, statements_of

SHORTEST_ID: Final = 4
"""Hexadecimal digits of an id, where no other begins alike."""


@final
@attrs.frozen(order=False)
class LearnedStanding:
    """What a block of memory says by now.

    Attributes:
        statements: what stands, each under its reference, the oldest first.
        used: ids that were ever given.
    """

    statements: Mapping[Reference, Statement]
    used: frozenset[str] = frozenset()


def learned_standing(base_text: str, deltas: Iterable[Delta]) -> LearnedStanding:
    """What a block of memory says after deltas.

    Args:
        base_text: the block as the base has it; empty where it does not.
        deltas: those found for this block, in the order of the messages.

    Raises:
        InvalidInputError: the base's text is no rendered block.
    """
    statements = dict[Reference, Statement](statements_of(base_text).items())
    used: set[str] = set()
    for delta in deltas:
        if not isinstance(delta, LearnedDelta):
            # The block was an operator's then: what was said of that is not memory's.
            continue
        for reference in delta.retracted:
            statements.pop(reference, None)
        for statement_id, statement in delta.added:
            statements[statement_id] = statement
            used.add(statement_id)
        used.update(reference for reference in delta.retracted if isinstance(reference, str))
    return LearnedStanding(statements, frozenset(used))


def authored_standing(base_text: str, deltas: Iterable[Delta]) -> str:
    """The text of an operator's block after deltas."""
    text = base_text
    for delta in deltas:
        if isinstance(delta, AuthoredDelta):
            text = delta.content
    return text


def learned_difference(block: str, standing: LearnedStanding, memory_text: str, seal: Seal) -> LearnedDelta | None:
    """What has to be said so that a block of memory says what memory says; None where it does.

    Args:
        block: the block's name.
        standing: what it says by now.
        memory_text: the block as it is rendered now.
        seal: of the conversation's base.

    Raises:
        InvalidInputError: the text is no rendered block.
    """
    memory = list(statements_of(memory_text).values())
    left = Counter(memory)
    retracted: list[Reference] = []
    for reference, statement in standing.statements.items():
        if left[statement]:
            left[statement] -= 1
        else:
            retracted.append(reference)
    # Of equal statements the later ones are the new ones.
    added: list[Statement] = []
    for statement in reversed(memory):
        if left[statement]:
            left[statement] -= 1
            added.append(statement)
    if not retracted and not added:
        return None
    added.reverse()
    # A notice stands without provenance, in front of what has some.
    added.sort(key=lambda statement: not statement.is_notice)
    return learned_delta(block, retracted, _named(block, added, standing, seal), seal)


def authored_difference(block: str, standing: str, present: str, seal: Seal) -> AuthoredDelta | None:
    """What has to be said so that an operator's block is what it is now; None where it is."""
    return None if standing == present else authored_delta(block, present, seal)


def _named(
    block: str, statements: Sequence[Statement], standing: LearnedStanding, seal: Seal
) -> list[tuple[str, Statement]]:
    used = set(standing.used) | {reference for reference in standing.statements if isinstance(reference, str)}
    seen: Counter[Statement] = Counter()
    named = []
    for statement in statements:
        seen[statement] += 1
        statement_id = _free_id(seal, block, statement, seen[statement], used)
        used.add(statement_id)
        named.append((statement_id, statement))
    return named


def _free_id(seal: Seal, block: str, statement: Statement, number: int, used: set[str]) -> str:
    while True:
        whole = seal.id_of(block, statement, number)
        for length in range(SHORTEST_ID, len(whole) + 1):
            if f"k{whole[:length]}" not in used:
                return f"k{whole[:length]}"
        # Said and taken back so often that every length is used up.
        number += 1_000_000
