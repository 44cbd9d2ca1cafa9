"""A statement that is there already is held until the commit: nobody corrects or erases it in between."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.operations import Remember
from promptkeel.store.postgres import PostgresEngine

SCOPE = TenantScope.parse("org:acme/user:u1")
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def said(name: str, label: str, **properties: Any) -> Remember:
    return Remember(MemoryNode(id=name, scope=SCOPE, label=label, properties=properties), extends=True)


def until_somebody_waits(connection: Any) -> None:
    deadline = time.monotonic() + 30
    while not connection.execute(WAITING).fetchone()[0]:
        assert time.monotonic() < deadline, "nobody waits for the row"
        time.sleep(0.01)


@pytest.fixture(params=[1, 3], ids=["one", "batch"])
def operations(request: pytest.FixtureRequest) -> list[Remember]:
    """One statement, which is looked for by itself, or several, which are looked for together."""
    found = [said("b", "SOUL:x", city="Rome")]
    return found + [said(f"other{number}", f"SOUL:{number}") for number in range(request.param - 1)]


def raced(engine: PostgresEngine, connect: Any, operations: list[Remember], statement: str) -> list[Any]:
    """Apply operations while another transaction has changed a row, and commit that one once they wait for it."""
    engine.apply([said("a", "SOUL:x", role="CTO")])
    writer, looker = connect(), connect()
    writer.autocommit, looker.autocommit = False, True
    writer.execute(statement)
    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.extend(engine.apply(operations)))
    thread.start()
    try:
        until_somebody_waits(looker)
    finally:
        writer.commit()
        thread.join(30)
    return outcomes


def test_what_extends_a_statement_keeps_a_correction_that_commits_meanwhile(
    engine: PostgresEngine, connect: Any, operations: list[Remember]
) -> None:
    raced(engine, connect, operations, """UPDATE nodes SET properties = '{"role": "CFO"}' WHERE id = 'a'""")
    properties = engine.get(SCOPE, "a").own_properties
    assert (properties["role"], properties["city"]) == ("CFO", "Rome")


def test_what_confirms_a_statement_that_is_deleted_meanwhile_says_it_anew(
    engine: PostgresEngine, connect: Any, operations: list[Remember]
) -> None:
    outcomes = raced(engine, connect, operations, "DELETE FROM nodes WHERE id = 'a'")
    assert outcomes[0].kind == "inserted"
    assert engine.get(SCOPE, "b").own_properties["city"] == "Rome"
