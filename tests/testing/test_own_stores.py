"""The stores that ship keep every promise of the kit; a scanner that is no store keeps those of a lane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings

from promptkeel.blocking import open_store as open_blocking
from promptkeel.model import MemoryNode
from promptkeel.store import BlockingStore, Store, open_store
from promptkeel.testing import Delete, Edit, LaneSuite, Move, Relabel, StoreSuite
from promptkeel.testing.harness import patient
from promptkeel.testing.lane_suite import PlainScanner
from servers import Databases
from store.stock_client import StockClient


@pytest.fixture(scope="module")
def stock_client() -> Iterator[StockClient]:
    with StockClient() as client:
        yield client


class TestRam(StoreSuite):
    def new_store(self) -> Store:
        return open_store("ram:", clock=self.clock)


class TestRamOnTrio(TestRam):
    event_loop = "trio"


class TestBlockingRam(StoreSuite):
    def new_store(self) -> BlockingStore:
        return open_blocking("ram:", clock=self.clock)


class TestSqlite(StoreSuite):
    client: StockClient

    @pytest.fixture(autouse=True)
    def use_stock_client(self, stock_client: StockClient) -> None:
        self.client = stock_client

    def new_store(self) -> Store:
        return open_store(f"sqlite:///{self.folder / 'memory.db'}", clock=self.clock)

    def open_again(self, store: Store) -> Store:
        return open_store(store.url, clock=self.clock)

    def edit_behind(self, store: Store, edit: Edit) -> None:
        file = Path(store.url.removeprefix("sqlite:///").partition("?")[0])
        node = edit.node
        key = (node.scope.root, node.id)
        match edit:
            case Relabel(_, label):
                self.client.run(file, "UPDATE nodes SET label = ? WHERE root = ? AND id = ?", (label, *key))
            case Move(_, scope):
                self.client.run(file, "UPDATE nodes SET scope = ? WHERE root = ? AND id = ?", (scope.path, *key))
            case Delete():
                self.client.run(file, "DELETE FROM nodes WHERE root = ? AND id = ?", key)


class TestSqliteOfPython(TestSqlite):
    """With the library that Python is linked with: fewer random programs, and none of what no library can change."""

    machine_settings = settings(patient(), max_examples=25, stateful_step_count=30)
    test_deterministic_equal_nodes_give_one_revision_whatever_their_order = None
    test_complete_a_lane_holds_every_visible_live_node_of_its_prefix = None

    def new_store(self) -> Store:
        return open_store(f"sqlite:///{self.folder / 'memory.db'}?driver=sqlite3", clock=self.clock)


class TestPostgres(StoreSuite):
    databases: Databases

    @pytest.fixture(autouse=True)
    def use_databases(self, databases: Databases) -> Iterator[None]:
        self.databases = databases
        self.used: list[str] = []
        yield
        for address in self.used:
            databases.give_back(address)

    def new_store(self) -> Store:
        self.used.append(self.databases.store())
        return open_store(self.used[-1], clock=self.clock)

    def open_again(self, store: Store) -> Store:
        return open_store(store.url, clock=self.clock)

    def edit_behind(self, store: Store, edit: Edit) -> None:
        node = edit.node
        key = (node.scope.root, node.id)
        with psycopg.connect(store.url) as client:
            match edit:
                case Relabel(_, label):
                    client.execute("UPDATE promptkeel.nodes SET label = %s WHERE root = %s AND id = %s", (label, *key))
                case Move(_, scope):
                    moved = "UPDATE promptkeel.nodes SET root = %s, scope = %s WHERE root = %s AND id = %s"
                    client.execute(moved, (scope.root, scope.path, *key))
                case Delete():
                    client.execute("DELETE FROM promptkeel.nodes WHERE root = %s AND id = %s", key)


class TestPlainScanner(LaneSuite):
    def new_scanner(self, nodes: Sequence[MemoryNode]) -> PlainScanner:
        return PlainScanner(nodes)
