"""Batches of three operations that are easy to find whole, half or missing afterwards."""

from __future__ import annotations

from promptkeel.errors import NodeNotFoundError
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.operations import Correct, Operation, Put
from promptkeel.store.sqlite import SqliteEngine

ADA = TenantScope.parse("org:acme/user:ada")
BOB = TenantScope.parse("org:acme/user:bob")
COUNTER = "counter"


def batch(number: int) -> list[Operation]:
    """Batch 0 makes the counter; each later one adds a node at two scopes and counts."""
    if number == 0:
        return [Put(MemoryNode(id=COUNTER, scope=ADA, label="COUNT:0", recorded_at=0))]
    return [
        Put(MemoryNode(id=f"a{number}", scope=ADA, label=f"SOUL:{number:06}")),
        Correct(scope=ADA, node_id=COUNTER, label=f"COUNT:{number}", recorded=number),
        Put(MemoryNode(id=f"b{number}", scope=BOB, label=f"SOUL:{number:06}")),
    ]


def last_batch(engine: SqliteEngine) -> int:
    """The number of the last batch that is there, -1 for none; all of them, and their history, are checked."""
    with engine._connections.reading() as connection:
        assert connection.pragma("integrity_check") == "ok"
        logged = connection.execute(
            "SELECT scope, seq, nonce FROM changes GROUP BY scope HAVING seq = max(seq) ORDER BY scope"
        ).fetchall()
        assert logged == connection.execute("SELECT scope, seq, nonce FROM heads ORDER BY scope").fetchall()
        count = connection.execute("SELECT count(*) FROM changes").get
    try:
        counter = engine.get(ADA, COUNTER)
    except NodeNotFoundError:
        assert count == 0
        return -1
    last = int(counter.label.removeprefix("COUNT:"))
    wanted = [f"SOUL:{number:06}" for number in range(1, last + 1)]
    for scope in (ADA, BOB):
        assert [node.label for node in engine.query_nodes(scope, "SOUL:", None)] == wanted
    versions = [version.label for version in engine.history(ADA, COUNTER).versions]
    assert versions == [f"COUNT:{number}" for number in range(last + 1)]
    assert count == 1 + 3 * last
    return last
