"""One write above very many warm scopes: read once for all of them, and shared only where it is the same."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import anyio
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import promptkeel as pk
from promptkeel import blocking
from promptkeel.store.facade import BlockingStore
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import Erase, Retract
from promptkeel.store.ram import RamEngine
from servers import Databases

ACME = pk.TenantScope.parse("org:acme")
TEAM = ACME.child("team", "sea")
USERS = [ACME.child("user", "ada"), ACME.child("user", "bob"), TEAM.child("user", "eve"), TEAM.child("user", "kim")]
PLACES = [pk.TenantScope.parse(""), ACME, TEAM, *USERS]
BLOCKS = [
    pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:")),
    pk.PromptBlockSpec(name="PREFERENCES", source=pk.MemoryLane("PREFERENCE:")),
]
HERD = 2_000
AT_ONCE = 64


class Distant(RamEngine):
    """Memory that is treated as if it were on another machine: heads first, then differences."""

    is_local = False


@pytest.fixture
def url(databases: Databases):
    address = databases.store()
    yield address
    databases.give_back(address)


STEP = st.tuples(
    st.sampled_from(["put", "put", "put", "relabel", "move", "retract", "erase"]),
    st.integers(0, len(PLACES) - 1),
    st.integers(0, 30),
    st.sets(st.integers(0, len(USERS) - 1)),
)
NUMBERS = itertools.count()


def follow(engine: Any, program: list[Any], move: Callable[[pk.MemoryNode, pk.TenantScope], None]) -> None:
    """Run a program, and compare at every step what some scopes answer with what a new resolver answers."""
    store = BlockingStore(engine)
    warm = blocking.PromptBlockResolver(BLOCKS, memory=store)
    live: list[pk.MemoryNode] = []
    for work, place, which, asking in program:
        number = next(NUMBERS)
        node = live[which % len(live)] if live else None
        label = ("SOUL:", "PREFERENCE:")[number % 2] + f"statement {number}"
        if work == "put" or node is None:
            live.append(store.put(pk.MemoryNode(id=f"n{number}", scope=PLACES[place], label=label)))
        elif work == "relabel":
            changed = pk.MemoryNode(id=node.id, scope=node.scope, label=label)
            live[live.index(node)] = store.put(changed, expected=node)
        elif work == "move":
            # To another scope of the same root, by plain SQL where the store has it.
            move(node, PLACES[max(place, 1)] if node.scope.path else node.scope)
            live.remove(node)
        else:
            engine.apply([(Retract if work == "retract" else Erase)(node.scope, node.id)])
            live.remove(node)
        for position in asking:
            user = USERS[position]
            cold = blocking.PromptBlockResolver(BLOCKS, memory=store).resolve(user)
            found = warm.resolve(user)
            assert [block.text for block in found.blocks] == [block.text for block in cold.blocks]
            assert [block.revision_id for block in found.blocks] == [block.revision_id for block in cold.blocks]
            assert found.heads == engine.heads(user)


@given(st.lists(STEP, max_size=14))
@settings(max_examples=150)
def test_every_scope_answers_what_a_resolver_that_has_kept_nothing_answers(program):
    now = itertools.count(1)
    engine = Distant(clock=lambda: next(now) * 1_000_000)
    follow(engine, program, lambda node, _: engine.apply([Retract(node.scope, node.id)]))
    engine.close()


def test_the_same_holds_on_a_server_where_nodes_move_between_scopes(url):
    engine = open_engine(url)

    @given(st.lists(STEP, min_size=4, max_size=14))
    @settings(max_examples=30)
    def programs(program):
        with psycopg.connect(url, autocommit=True) as client:

            def move(node, place):
                client.execute("UPDATE promptkeel.nodes SET scope = %s WHERE id = %s", (place.path, node.id))

            client.execute("DELETE FROM promptkeel.nodes")
            follow(engine, program, move)

    try:
        programs()
    finally:
        engine.close()


def test_scopes_that_come_from_the_same_heads_share_one_reading_and_others_read_for_themselves():
    now = iter(range(1, 10_000))
    engine = Distant(clock=lambda: next(now) * 1_000_000)
    reads = []
    real = engine.catch_up

    def counted(scope, requests):
        reads.append(scope.path)
        return real(scope, requests)

    engine.catch_up = counted
    store = BlockingStore(engine)
    resolver = blocking.PromptBlockResolver(BLOCKS, memory=store)

    def all_users():
        reads.clear()
        for user in USERS:
            resolver.resolve(user)
        return len(reads)

    store.put(pk.MemoryNode(id="a", scope=ACME, label="SOUL:a"))
    assert all_users() == len(USERS), "nothing is kept yet"
    store.put(pk.MemoryNode(id="b", scope=ACME, label="SOUL:b"))
    assert all_users() == 1
    store.put(pk.MemoryNode(id="c", scope=TEAM, label="SOUL:c"))
    assert all_users() == 1, "two of them see the team"
    store.put(pk.MemoryNode(id="d", scope=USERS[0], label="SOUL:d"))
    store.put(pk.MemoryNode(id="e", scope=ACME, label="SOUL:e"))
    assert all_users() == 2, "of one more than the organisation has moved"
    store.put(pk.MemoryNode(id="f", scope=ACME, label="SOUL:f"))
    resolver.resolve(USERS[0])
    store.put(pk.MemoryNode(id="g", scope=ACME, label="SOUL:g"))
    assert all_users() == 2, "one comes from other heads than the rest"
    engine.apply([Erase(ACME, "a")])
    assert all_users() == 1, "after an erasure the log tells no difference: what the organisation holds is shared"
    store.close()


def below(count: int) -> list[pk.TenantScope]:
    return [ACME.child("user", f"u{number:05d}") for number in range(count)]


async def resolve_all(keel: pk.Keel, scopes: list[pk.TenantScope]) -> list[pk.Prompt]:
    found: list[pk.Prompt] = []
    waiting = iter(scopes)

    async def ask() -> None:
        for scope in waiting:
            found.append(await keel.prompt(scope))

    async with anyio.create_task_group() as group:
        for _ in range(AT_ONCE):
            group.start_soon(ask)
    return found


def test_a_herd_of_warm_scopes_costs_one_reading_and_one_probe_each(url, monkeypatch):
    scopes = below(HERD)
    blocking.open_store(url).close()
    with psycopg.connect(url) as client:
        client.execute(
            "INSERT INTO promptkeel.nodes(root, scope, label) SELECT 'org:acme', path, 'SOUL:of ' || path "
            "FROM unnest(%s::text[]) AS path",
            [["org:acme", *(scope.path for scope in scopes)]],
        )
    statements = []
    real = psycopg.Connection.execute

    def execute(connection, query, *arguments, **options):
        statements.append(query)
        return real(connection, query, *arguments, **options)

    async def main():
        # A pool far smaller than the herd: they take their turns.
        async with pk.open(url, blocks=BLOCKS, pool_size=4, busy_timeout=30.0) as keel:
            await resolve_all(keel, scopes)
            await keel.remember(ACME, "closed on Sundays", block="USER_PROFILE")
            before = keel.counters.renders
            monkeypatch.setattr(psycopg.Connection, "execute", execute)
            found = await resolve_all(keel, scopes)
            assert keel.counters.renders == before + HERD, "each scope's one changed block, once"
            assert all("closed on Sundays" in prompt.text and prompt.freshness.strict for prompt in found)
            assert len({prompt.fingerprint for prompt in found}) == HERD
            probes = sum("heads_of" in statement for statement in statements)
            assert probes == HERD
            assert len(statements) - probes <= 10, "one reading for all of them"
            statements.clear()
            await resolve_all(keel, scopes)
            assert len(statements) == HERD
            assert keel.counters.renders == before + HERD

    anyio.run(main)


def test_calls_wait_in_line_for_a_pool_that_moves_however_long_the_line_is(url):
    with blocking.open_store(url, pool_size=1, busy_timeout=0.5) as store:
        connections = store.core.engine._connections
        lent, most, failures = [], [], []

        def work(connection):
            lent.append(connection)
            most.append(len(lent))
            connection.execute("SELECT pg_sleep(0.1)")
            lent.remove(connection)

        def call():
            try:
                connections.short(work)
            except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
                failures.append(error)

        threads = [threading.Thread(target=call) for _ in range(15)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert max(most) == 1


def test_open_bounds_what_is_kept_and_what_does_not_fit_is_read_again(tmp_path):
    scopes = below(20)
    with blocking.open(f"sqlite:///{tmp_path / 'memory.db'}", blocks=BLOCKS, cache_facts=40, cache_bytes=5_000) as keel:
        for scope in [ACME, *scopes]:
            keel.remember(scope, f"of {scope.path}", block="USER_PROFILE")
        texts = [keel.prompt(scope).text for scope in scopes]
        scans = keel.counters.scans
        keel.prompt(scopes[-1])
        assert keel.counters.scans == scans, "the last ones are kept"
        assert [keel.prompt(scope).text for scope in scopes] == texts
        assert keel.counters.scans > scans, "the first ones were not"


@pytest.mark.parametrize("options", [{"cache_facts": -1}, {"cache_facts": 1.5}, {"cache_bytes": True}])
def test_a_bound_that_is_none_is_refused(options):
    with pytest.raises(pk.InvalidInputError, match=next(iter(options))):
        blocking.open("ram:", blocks=BLOCKS, **options)
