"""Heads are sound however transactions interleave: equal heads are equal lanes, and who commits late is seen."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from promptkeel.scope import TenantScope
from promptkeel.store.base import Heads, LaneRequest, LaneRow
from promptkeel.store.operations import Put
from promptkeel.store.postgres import PostgresEngine
from store.examples import ACME, ADA, BOB, OTHER, node

Connect = Callable[[], psycopg.Connection[Any]]

INSERT = """INSERT INTO nodes(root, scope, label, id, created_at, updated_at, recorded_at)
VALUES (%(root)s, %(scope)s, %(label)s, %(label)s, 0, 0, 0)"""
UPDATE = "UPDATE nodes SET source = %(label)s WHERE root = %(root)s AND id = 'shared'"


def interleavings(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every order in which so many steps of each can happen."""
    if not any(counts):
        yield ()
        return
    for which, left in enumerate(counts):
        if left:
            for rest in interleavings((*counts[:which], left - 1, *counts[which + 1 :])):
                yield (which, *rest)


class Reader:
    """Someone who keeps the lane of a scope by its differences, and remembers every state that it saw."""

    def __init__(self, engine: PostgresEngine, scope: TenantScope) -> None:
        self.engine = engine
        self.scope = scope
        self.rows: dict[Any, LaneRow] = {}
        self.heads: Heads | None = None
        self.seen: dict[Heads, list[LaneRow]] = {}

    def look(self) -> list[LaneRow]:
        """Bring the lane up to date and compare it with the whole one at the same heads."""
        caught = self.engine.catch_up(self.scope, [LaneRequest("", self.heads), LaneRequest("")])
        update, whole = caught.lanes
        assert whole.whole
        if update.whole:
            assert self.heads is None
            self.rows.clear()
        for key in update.touched:
            self.rows.pop(key, None)
        self.rows.update({("org:acme", row[2]): row for row in update.rows})
        self.heads = caught.heads
        assert sorted(self.rows.values(), key=repr) == sorted(whole.rows, key=repr)
        assert self.seen.setdefault(caught.heads, whole.rows) == whole.rows
        return whole.rows


# Who writes where, each with its last step: ACME is above ADA and BOB.
PROGRAMS = {
    "two scopes in opposite orders": ((ADA, BOB, "commit"), (BOB, ADA, "commit"), (ACME, "commit")),
    "one is rolled back": ((ADA, ACME, "rollback"), (ACME, ADA, "commit"), (ADA, "commit")),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_interleaving_of_three_transactions(name: str, engine: PostgresEngine, connect: Connect) -> None:
    programs = PROGRAMS[name]
    writers = [connect() for _ in programs]
    readers = [Reader(engine, scope) for scope in (ADA, BOB)]
    expected: set[str] = set()
    orders = list(interleavings(tuple(map(len, programs))))
    assert len(orders) == 560
    for number, order in enumerate(orders):
        steps = [iter(program) for program in programs]
        written: list[list[tuple[str, str]]] = [[] for _ in programs]
        for which in order:
            step = next(steps[which])
            if step == "commit":
                writers[which].commit()
                expected |= {label for label, _ in written[which]}
            elif step == "rollback":
                writers[which].rollback()
            else:
                label = f"SOUL:{number}-{which}-{step.path}"
                writers[which].execute(INSERT, {"root": step.root, "scope": step.path, "label": label})
                written[which].append((label, step.path))
                continue
            for reader in readers:
                labels = {row[0] for row in reader.look()}
                assert labels == {each for each in expected if reader.scope.sees(scope_in(each))}
        if number % 40 == 39:
            writers[0].execute("DELETE FROM nodes WHERE root = 'org:acme'")
            writers[0].commit()
            expected.clear()
            for reader in readers:
                assert reader.look() == []


def scope_in(label: str) -> TenantScope:
    return TenantScope.parse(label.rsplit("-", 1)[1])


def test_who_commits_late_is_seen(engine: PostgresEngine, connect: Connect) -> None:
    """A's changes were noted first, B's were committed first: a reader between them must still see A's."""
    late, early = connect(), connect()
    late.execute(INSERT, {"root": ADA.root, "scope": ADA.path, "label": "SOUL:late"})
    early.execute(INSERT, {"root": ADA.root, "scope": ADA.path, "label": "SOUL:early"})
    early.commit()
    between = engine.heads(ADA)
    late.commit()
    assert engine.heads(ADA) != between
    changes = engine.changes(ADA, between, None).changes
    assert changes is not None
    assert [change.node_id for change in changes] == ["SOUL:late"]
    assert [each.id for each in engine.nodes_as_of(ADA, between, None).nodes] == ["SOUL:early"]


def test_versions_are_in_the_order_of_the_commits(engine: PostgresEngine, connect: Connect) -> None:
    engine.apply([Put(node("shared"))])
    moments = [engine.heads(ADA)]
    for writer in ("a", "b"):
        client = connect()
        client.execute(UPDATE, {"root": ADA.root, "label": writer})
        client.commit()
        moments.append(engine.heads(ADA))
    past = [engine.nodes_as_of(ADA, heads, None).nodes[0].source for heads in moments]
    assert past == [None, "a", "b"]
    assert [version.source for version in engine.history(ADA, "shared").versions] == past


def test_scopes_touched_in_any_order_never_deadlock_and_lose_nothing(engine: PostgresEngine, connect: Connect) -> None:
    scopes = [ACME, ADA, BOB, OTHER]
    failed: list[BaseException] = []

    def write(worker: int) -> None:
        random_ = random.Random(worker)
        client = connect_once[worker]
        try:
            for number in range(40):
                for scope in random_.sample(scopes, 3):
                    label = f"SOUL:{worker}-{number}"
                    key = {"root": scope.root, "scope": scope.path, "label": f"{label}-{scope.path}"}
                    client.execute(INSERT, key)
                client.commit()
        except psycopg.Error as error:
            failed.append(error)

    connect_once = [connect() for _ in range(4)]
    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    # The lane that its differences make is the whole lane, at every moment in between.
    reader = Reader(engine, ADA)
    while any(thread.is_alive() for thread in threads):
        reader.look()
    assert failed == []
    assert len(reader.look()) > 0
    written = sum(len(engine.query_nodes(scope, None, None)) for scope in (ADA, BOB, OTHER))
    acme = len(engine.query_nodes(ACME, None, None))
    assert written - acme == 4 * 40 * 3


def test_a_repeatable_read_writer_is_refused_rather_than_wrong(engine: PostgresEngine, connect: Connect) -> None:
    first, second = connect(), connect()
    second.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    engine.apply([Put(node("shared"))])
    second.execute("SELECT 1 FROM heads")
    for client, label in ((first, "SOUL:a"), (second, "SOUL:b")):
        client.execute(INSERT, {"root": ADA.root, "scope": ADA.path, "label": label})
    first.commit()
    with pytest.raises(psycopg.errors.SerializationFailure):
        second.commit()
    assert [each.id for each in engine.query_nodes(ADA, None, None)] == ["SOUL:a", "shared"]
