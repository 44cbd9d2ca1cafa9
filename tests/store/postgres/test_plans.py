"""Every statement is planned for the partition of its root, and for the deployment's where that is visible."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from promptkeel.store.operations import Put
from promptkeel.store.postgres import PostgresEngine
from promptkeel.store.postgres_reads import STATEMENTS, statements
from promptkeel.store.postgres_schema import PARTITIONS
from promptkeel.store.postgres_writes import WRITES
from store.examples import ADA, DEPLOYMENT, node

ARGUMENTS: dict[str, Any] = {
    "root": ADA.root, "roots": ["", ADA.root], "scope": ADA.path, "chain": list(ADA.chain), "scopes": [ADA.path],
    "id": "n1", "ids": ["n1", "n2"], "label": "SOUL:x", "start": "SOUL:x", "low": "SOUL:", "low_start": "SOUL:",
    "high": "SOUL;", "high_start": "SOUL;", "seq": 1, "limit": 5, "key": "k", "value": "v", "source": None,
    "recorded": 0, "trust": None, "created": 0, "updated": 0, "state": "live", "properties": "{}",
    "old_root": ADA.root, "old_id": "n1", "kind": "confirmed", "at": 0, "made": 1, "ended": None, "versions": 0,
    "edges": 0, "testimonies": 0, "request": None, "type": "about", "end_root": ADA.root, "end": "n2",
    "starts": ["SOUL:x"], "labels": ["SOUL:x"],
}  # fmt: skip
ARGUMENTS |= {
    f"many_{name}": [ARGUMENTS[name]]
    for name in (
        "scope", "label", "id", "source", "recorded", "trust", "created", "updated", "state", "properties", "root"
    )
}  # fmt: skip

EVERY_PARTITION = {"all stored", "all stored edges", "all receipts", "all versions"}
"""The deployment is everything, and everything is what they are asked for."""
FROM_ANYWHERE = {"delete edges to the deployment", "edges into the deployment"}
"""Any root may link to a deployment's node."""
NO_TENANTS = {
    "mark",
    "put mark",
    "remove mark",
    "secret",
    "pulse",
    "last seq",
    "note transaction",
    "note scrubbed",
    "scrub pending",
}
"""What they touch is no tenant's, or this transaction's own."""


@pytest.fixture
def partition_of(engine: PostgresEngine, raw: psycopg.Connection[Any]) -> dict[str, str]:
    """Which partition belongs to ADA's root, and which to the deployment."""
    engine.apply([Put(node(scope=ADA)), Put(node(scope=DEPLOYMENT))])
    rows = raw.execute("SELECT root, tableoid::regclass::text FROM nodes").fetchall()
    found = {root: table.rpartition("_")[2] for root, table in rows}
    assert len(set(found.values())) == 2
    return found


def touched(raw: psycopg.Connection[Any], text: str, arguments: dict[str, Any]) -> set[str]:
    """The partitions, by number, that a plan reads or writes, and the tables that are read from end to end."""
    plan = [line for (line,) in raw.execute(f"EXPLAIN {text}", arguments).fetchall()]
    return {found for line in plan for found in re.findall(r"\bon (?:\w+\.)?\w+_(\d+)\b", line)}


@pytest.mark.parametrize("name", sorted({**STATEMENTS, **WRITES}.keys() - {"heads"}))
def test_a_statement_touches_its_roots_partition(
    name: str, raw: psycopg.Connection[Any], partition_of: dict[str, str]
) -> None:
    text = statements("promptkeel", STATEMENTS | WRITES)[name]
    found = touched(raw, text, ARGUMENTS)
    if name in EVERY_PARTITION | FROM_ANYWHERE:
        assert len(found) == PARTITIONS
    elif name in NO_TENANTS:
        assert found == set()
    else:
        allowed = {partition_of[ADA.root]} | ({partition_of[""]} if "%(roots)s" in text else set())
        assert found <= allowed
        # An INSERT of values finds its one partition by itself.
        assert found == allowed or "INSERT" in text or "heads" in text


def test_a_lane_is_found_by_its_index(engine: PostgresEngine, raw: psycopg.Connection[Any]) -> None:
    raw.execute("""INSERT INTO nodes(root, scope, label)
    SELECT 'org:acme', 'org:acme/user:u' || number % 100, 'SOUL:' || number FROM generate_series(1, 20000) AS number""")
    raw.execute("ANALYZE nodes")
    text = statements("promptkeel")["bounded lane"]
    plan = "\n".join(line for (line,) in raw.execute(f"EXPLAIN {text}", ARGUMENTS).fetchall())
    assert "Index Cond: ((scope = " in plan
    assert "Seq Scan" not in plan


def test_the_heads_of_a_chain_are_one_statement(engine: PostgresEngine, raw: psycopg.Connection[Any]) -> None:
    engine.apply([Put(node("a", scope=scope)) for scope in (DEPLOYMENT, ADA)])
    asked: list[str] = []
    execute = psycopg.Connection.execute

    def counted(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        asked.append(query)
        return execute(self, query, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Connection, "execute", counted)
        heads = engine.heads(ADA)
    assert [head.seq for head in heads.levels] == [1, 0, 2]
    assert asked == ["""SELECT "promptkeel".heads_of('org:acme/user:ada')"""]
