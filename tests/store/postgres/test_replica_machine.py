"""Random programs on a store that is read from a standby agree with the model of the kit."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import psycopg
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from promptkeel.store import Store, open_store
from promptkeel.testing import Delete, Edit, Move, Relabel, StoreMachine
from servers import Databases, PostgresServer, own_postgres, own_standby

PATIENT = 60.0


class Replicated(StoreMachine):
    databases: Databases
    standby: PostgresServer
    used: list[str]

    def new_store(self) -> Store:
        self.used.append(self.databases.store())
        return self._opened(self.used[-1])

    def open_again(self, store: Any) -> Store:
        return self._opened(store.url)

    def _opened(self, url: str) -> Store:
        replica = self.standby.database(urlsplit(url).path[1:])
        return open_store(url, clock=self.clock, replica=replica, replica_timeout=PATIENT)

    def edit_behind(self, store: Any, edit: Edit) -> None:
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

    def teardown(self) -> None:
        super().teardown()
        for address in self.used:
            self.databases.give_back(address)
        self.used.clear()


def test_random_programs_on_a_replicated_store_agree_with_the_model() -> None:
    with own_postgres() as primary, own_standby(primary) as standby:
        databases = Databases(primary.url)
        databases.give_back(databases.empty())
        standby.await_replay(primary)
        machine = type("OnAPair", (Replicated,), {"databases": databases, "standby": standby, "used": []})
        run_state_machine_as_test(machine, settings=settings(max_examples=15, stateful_step_count=30, deadline=None))
