"""A scan of a store of ours reads rows in a worker; the answer is that of a scan of its nodes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.lane import EMPTY_MEMORY_REVISION, scan_memory_lane, scan_steps
from promptkeel.model import BlockRevision, MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.steps import drive_blocking
from promptkeel.store import BlockingStore, Store
from promptkeel.store.opening import open_engine

ORG = TenantScope.parse("org:a")
ADA = ORG.child("user", "u1")
FIELDS = frozenset({"role", "city", "source"})


class OnlyNodes:
    """A store seen through the scanner protocol alone."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def query_nodes(self, scope: TenantScope, **arguments: Any) -> Any:
        return await self.store.query_nodes(scope, **arguments)


statements = st.builds(
    dict,
    scope=st.sampled_from([TenantScope(), ORG, ADA, ORG.child("user", "u2")]),
    label=st.sampled_from(["SOUL:a", "SOUL: b ", "SOUL:日本", "SOULMATE:x", "FOCUS:y"]),
    source=st.sampled_from([None, "crm", " form "]),
    recorded_at=st.sampled_from([None, "2026-05-02", "2026-05-02T10:00:00.5+02:00", 0]),
    trust=st.sampled_from([None, "user", "inferred"]),
    properties=st.sampled_from(
        [
            {},
            {"role": "CTO"},
            {"role": 3.5, "city": True, "_field_provenance": {"role": {"source": "form", "recorded_at": None}}},
            {"role": ["no"], "city": "  ", "_field_provenance": {"city": 5}},
            {"city": "Ōsaka", "_field_provenance": {"city": {"recorded_at": "bad", "trust": "operator"}}},
        ]
    ),
)


async def compare(url: str, given_nodes: list[dict[str, Any]]) -> None:
    async with Store(open_engine(url, clock=lambda: 1_777_716_000_000_000)) as store:
        for number, fields in enumerate(given_nodes):
            await store.put(MemoryNode(id=f"n{number}", **fields))
        for scope in (ORG, ADA):
            for fields in (frozenset(), FIELDS):
                rows = await scan_memory_lane(store, scope, "SOUL:", fields)
                assert rows == await scan_memory_lane(OnlyNodes(store), scope, "SOUL:", fields)
                expected = [n for n in given_nodes if n["label"].startswith("SOUL:") and scope.sees(n["scope"])]
                assert rows.count == len(expected)


@given(st.lists(statements, max_size=6))
def test_rows_and_nodes_of_the_ram_store_give_the_same_answer(given_nodes: list) -> None:
    anyio.run(compare, "ram:", given_nodes)


@given(st.lists(statements, max_size=6))
def test_rows_and_nodes_of_a_file_give_the_same_answer(
    tmp_path_factory: pytest.TempPathFactory, given_nodes: list
) -> None:
    folder: Path = tmp_path_factory.mktemp("store")
    anyio.run(compare, f"sqlite:///{folder}/memory.db", given_nodes)


def test_the_blocking_twin_gives_the_same_answer() -> None:
    with BlockingStore(open_engine("ram:")) as store:
        assert drive_blocking(scan_steps(store, ADA, "SOUL:")).revision == EMPTY_MEMORY_REVISION
        store.put(MemoryNode(id="n1", scope=ADA, label="SOUL:tea"))
        found: BlockRevision = drive_blocking(scan_steps(store, ADA, "SOUL:"))
        assert [fact.value for fact in found.require_facts()] == ["tea"]


def test_a_store_is_read_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine("ram:")
    threads: list[int] = []
    catch_up = engine.catch_up

    def noted(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return catch_up(*arguments)

    monkeypatch.setattr(engine, "catch_up", noted, raising=True)
    anyio.run(scan_memory_lane, Store(engine), ADA, "SOUL:")
    assert threads
    assert threads[0] != threading.get_ident()
