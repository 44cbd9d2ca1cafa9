"""The state of a conversation in the store: read at one point in time, written by compare-and-set.

Whoever wrote in between is found out by the slots themselves: a record goes where it went when the state was read, or
not at all. A record of equal content is no change, so that a retry does no harm.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import final

import attrs

from promptkeel.conversations.records import BaseRecord, Kept, Place, Slot, TurnRecord, slot_for
from promptkeel.errors import ConflictError
from promptkeel.steps import Call, Steps
from promptkeel.store.base import Engine
from promptkeel.store.facade import StoreCore
from promptkeel.store.operations import Decide, Transaction
from promptkeel.store.stamping import stamped


@final
@attrs.frozen(order=False)
class State:
    """What is kept of a conversation, and what else is in its set.

    Attributes:
        place: where it is.
        kept: everything in the set.
        bases: the conversation's own, by id.
        turns: the conversation's own, by the hash of their messages.
    """

    place: Place
    kept: tuple[Kept, ...]
    bases: dict[str, BaseRecord]
    turns: dict[str, TurnRecord]


def read_state(store: StoreCore, place: Place) -> Steps[State]:
    """What is kept now.

    Raises:
        StoreUnavailableError: the store could not be read.
    """
    state: State = yield Call(_read, store.engine, place)
    return state


def _read(engine: Engine, place: Place) -> State:
    kept = place.read(engine.query_nodes(place.scope, place.prefix, None))
    records = [each.record for each in kept if each.owner == place.key]
    bases = {record.id: record for record in records if isinstance(record, BaseRecord)}
    turns = {record.prefix: record for record in records if isinstance(record, TurnRecord)}
    return State(place, kept, bases, turns)


def write_state(
    store: StoreCore, state: State, turn: TurnRecord, base: BaseRecord | None, new_id: Callable[[], str] | None = None
) -> Steps[None]:
    """Keep a turn, and the base that it began with where that is new, in one transaction.

    Args:
        store: the open store.
        state: as it was read.
        turn: what was done.
        base: a base that the store does not hold yet.
        new_id: answers a new id for each node.

    Raises:
        ConflictError: others wrote where this would go: read the state again.
        StoreError: the store refused it, or cannot be written to; nothing was written.
    """
    records: list[BaseRecord | TurnRecord] = [turn] if base is None else [base, turn]
    writing = _Writing(state, records, _random_id if new_id is None else new_id)
    yield from store.apply((Decide(writing, repeatable=True),))


def _random_id() -> str:
    # Never one that was erased: an erasure takes the state along, and its ids are not handed out again.
    return uuid.uuid4().hex


@final
class _Writing:
    """Records into their slots, to be called in a transaction."""

    def __init__(self, state: State, records: list[BaseRecord | TurnRecord], new_id: Callable[[], str]) -> None:
        self._place = state.place
        self._before = {each.slot: each for each in state.kept}
        self._wanted: dict[Slot, BaseRecord | TurnRecord] = {
            slot_for(record, state.place.key, state.kept): record for record in records
        }
        self._new_id = new_id

    def __call__(self, transaction: Transaction, now: int) -> None:
        scope = self._place.scope
        labels = {slot: self._place.label(slot) for slot in self._wanted}
        transaction.expect((), [(scope.root, scope.path, label) for label in labels.values()])
        for slot, record in self._wanted.items():
            current = transaction.find_live(scope, labels[slot])
            before = self._before.get(slot)
            if (None if current is None else current.version) != (None if before is None else before.node.version):
                raise ConflictError("the conversation's state has changed since it was read; take the turn again")
            if current is None or before is None:
                transaction.insert(stamped(self._place.node(slot, record, self._new_id()), now))
            elif before.owner != self._place.key or before.record != record:
                node = self._place.node(slot, record, current.id)
                kept = attrs.evolve(node, id=current.id, created_at=current.created, updated_at=now)
                transaction.update(kept, current)
