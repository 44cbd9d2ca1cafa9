"""Each call on a caller's connection happens whole or not at all, and the transaction around it goes on."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import attrs
import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from promptkeel import PromptkeelError, TransactionError
from promptkeel.store.base import Engine
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import Correct, Erase, Operation, Put
from servers import Databases
from store.examples import ADA, SteppingClock, node

IDS = st.sampled_from("abc")
OPERATIONS = st.one_of(
    st.tuples(st.just("put"), IDS),
    st.tuples(st.just("erase"), IDS),
    st.tuples(st.just("correct"), IDS),
)
STEPS = st.one_of(
    st.tuples(st.just("apply"), st.lists(OPERATIONS, min_size=1, max_size=4), st.booleans()),
    st.tuples(st.sampled_from(["commit", "roll back"])),
)
FIRST_REFUSED_LATE = [("apply", [("put", "a"), ("put", "a")], False)]
ERASED_IN_VAIN = [
    ("apply", [("put", "a")], False),
    ("commit",),
    ("apply", [("erase", "a"), ("correct", "b")], False),
    ("commit",),
]
DRY = [("apply", [("put", "a")], True), ("commit",)]


@attrs.frozen
class Rows:
    """What a plain store would hold: labels by id, and the ids that may not come back."""

    labels: dict[str, str]
    erased: frozenset[str] = frozenset()

    def after(self, operations: list[tuple[str, str]]) -> Rows | None:
        """What it holds after all of them; None where one is refused."""
        labels, erased = dict(self.labels), set(self.erased)
        for what, id_ in operations:
            if (what == "put") == (id_ in labels) or (what == "put" and id_ in erased):
                return None
            if what == "put":
                labels[id_] = f"SOUL:{id_}"
            elif what == "erase":
                del labels[id_]
                erased.add(id_)
            else:
                labels[id_] = f"SOUL:{id_}, rather"
        return Rows(labels, frozenset(erased))


@attrs.frozen
class Caller:
    """A program with a connection of its own."""

    engine: Engine
    connection: Any
    begins: bool

    def begin(self) -> None:
        if self.begins:
            self.connection.execute("BEGIN")

    def end(self, statement: str) -> None:
        self.connection.execute(statement)


@contextlib.contextmanager
def opened(driver: str, databases: Databases | None) -> Iterator[Caller]:
    clock = SteppingClock()
    if databases is not None:
        url = databases.store()
        with contextlib.closing(open_engine(url, clock=clock)) as engine, psycopg.connect(url) as connection:
            yield Caller(engine, connection, begins=False)
            connection.rollback()
        databases.give_back(url)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "memory.db")
        with contextlib.closing(open_engine(f"sqlite:///{file}?driver={driver}", clock=clock)) as engine:
            connection = apsw.Connection(file) if driver == "apsw" else sqlite3.connect(file)
            with contextlib.closing(connection):
                yield Caller(engine, connection, begins=driver == "apsw")


def labels_of(engine: Engine) -> dict[str, str]:
    return {each.id: each.label for each in engine.query_nodes(ADA, None, None)}


def perform(caller: Caller, program: list[Any]) -> None:
    committed = Rows({})
    inside: Rows | None = None
    attached: Engine | None = None
    clock = caller.engine._clock
    for step in program:
        if step[0] != "apply":
            if inside is not None:
                caller.end("COMMIT" if step[0] == "commit" else "ROLLBACK")
                committed, inside = inside if step[0] == "commit" else committed, None
            assert labels_of(caller.engine) == committed.labels
            continue
        if inside is None:
            caller.begin()
            inside = committed
        attached = attached or caller.engine.attach(caller.connection)
        clock.tick()
        _, given, dry_run = step
        after = inside.after(given)
        operations = [operation_of(what, id_, clock()) for what, id_ in given]
        before = attached.heads(ADA)
        if after is None:
            with pytest.raises(PromptkeelError) as caught:
                attached.apply(operations, dry_run=dry_run)
            assert not isinstance(caught.value, TransactionError)
        else:
            assert len(attached.apply(operations, dry_run=dry_run)) == len(given)
        if after is None or dry_run:
            assert attached.heads(ADA) == before
        else:
            inside = after
        assert labels_of(attached) == inside.labels
        assert labels_of(caller.engine) == committed.labels


def operation_of(what: str, id_: str, now: int) -> Operation:
    if what == "put":
        return Put(node(id_, f"SOUL:{id_}"))
    if what == "erase":
        return Erase(ADA, id_)
    return Correct(scope=ADA, node_id=id_, label=f"SOUL:{id_}, rather", recorded=now)


@pytest.mark.parametrize("driver", ["apsw", "sqlite3", "psycopg"])
def test_a_call_that_is_refused_half_way_leaves_nothing(driver: str, request: pytest.FixtureRequest) -> None:
    databases = request.getfixturevalue("databases") if driver == "psycopg" else None

    @settings(max_examples=10 if driver == "psycopg" else 60, deadline=None)
    @given(st.lists(STEPS, max_size=12))
    @example(FIRST_REFUSED_LATE)
    @example(ERASED_IN_VAIN)
    @example(DRY)
    def check(program: list[Any]) -> None:
        with opened(driver, databases) as caller:
            perform(caller, program)

    check()
