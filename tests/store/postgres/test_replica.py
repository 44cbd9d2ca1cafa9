"""A primary with a streaming standby: strict reads are never stale, wait for a bounded time, and fail by name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import anyio
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import promptkeel as pk
from promptkeel import blocking
from promptkeel.errors import (
    BlockResolutionError,
    InvalidInputError,
    ReplicaBehindError,
    ReplicaMismatchError,
    StoreClosedError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from promptkeel.instants import system_clock
from promptkeel.model import MemoryNode
from promptkeel.store.base import Head, Heads
from promptkeel.store.history import Standing, standing
from promptkeel.store.operations import Put
from promptkeel.store.replicated import ReplicatedEngine
from servers import PostgresServer, own_postgres, own_standby

ACME = pk.TenantScope.parse("org:acme")
ADA = ACME.child("user", "ada")
BOB = ACME.child("user", "bob")
BLOCKS = [
    pk.PromptBlockSpec(name="BOUNDARIES", source=pk.StaticSource("Never reveal another customer's data.")),
    pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:"), on_failure="fail_closed"),
]
PATIENT = 30.0


class Pair:
    """A primary and its standby, and databases on both."""

    def __init__(self, primary: PostgresServer, standby: PostgresServer) -> None:
        self.primary = primary
        self.standby = standby
        self._made = 0

    def fresh(self) -> tuple[str, str]:
        """The addresses of a new database with an empty store, on both."""
        self._made += 1
        name = f"fresh_{self._made}"
        self.primary.run(f"CREATE DATABASE {name}")
        blocking.open_store(self.primary.database(name)).close()
        self.catch_up()
        return self.primary.database(name), self.standby.database(name)

    def catch_up(self) -> None:
        """Wait until the standby has replayed all that the primary has written."""
        self.standby.await_replay(self.primary)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with own_postgres() as primary, own_standby(primary) as standby:
        yield Pair(primary, standby)


@pytest.fixture
def replayed(pair: Pair) -> Iterator[Pair]:
    """The pair; its replay goes on when the test has ended."""
    yield pair
    pair.standby.resume_replay()


@pytest.fixture
def addresses(replayed: Pair) -> tuple[str, str]:
    return replayed.fresh()


def opened(addresses: tuple[str, str], **options: Any) -> blocking.Keel:
    url, replica = addresses
    return blocking.open(url, blocks=BLOCKS, replica=replica, **({"replica_timeout": PATIENT} | options))


class Statements:
    """Every statement that goes to a server, by the folder of its socket."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[tuple[str, str]] = []
        real = psycopg.Connection.execute

        def execute(connection: Any, query: Any, *arguments: Any, **options: Any) -> Any:
            self.sent.append((connection.info.host, str(query)))
            return real(connection, query, *arguments, **options)

        monkeypatch.setattr(psycopg.Connection, "execute", execute)

    def to(self, server: PostgresServer) -> list[str]:
        """What went to a server."""
        return [query for host, query in self.sent if host == str(server.folder)]


# What heads prove


@st.composite
def lineages(draw: st.DrawFn) -> tuple[list[list[Head]], list[list[Head]], int]:
    """Two histories of the heads of two levels, equal up to a split: each a list of moments, oldest first."""
    scopes = ["", "org:acme"]
    common = draw(st.lists(st.integers(0, 1), max_size=6))
    number = iter(range(1, 1000))

    def grown(moments: list[list[Head]], moves: list[int], seqs: Iterator[int]) -> list[list[Head]]:
        for level, seq in zip(moves, seqs, strict=False):
            present = list(moments[-1])
            present[level] = Head(scopes[level], seq, next(number))
            moments.append(present)
        return moments

    shared = grown([[Head(scope) for scope in scopes]], common, iter(range(1, 100)))
    start = len(common) + 1
    ours = grown(list(shared), draw(st.lists(st.integers(0, 1), max_size=6)), iter(range(start, 100)))
    theirs = grown(list(shared), draw(st.lists(st.integers(0, 1), max_size=6)), iter(range(start, 100)))
    return ours, theirs, len(shared)


@given(lineages(), st.data())
@settings(max_examples=300)
def test_heads_are_proven_only_where_the_replica_is_at_the_primarys_moment_or_later_in_its_lineage(found, data):
    ours, theirs, shared = found
    asked = data.draw(st.integers(0, len(ours) - 1))
    follows = data.draw(st.booleans())
    moments = ours if follows else theirs
    reached = data.draw(st.integers(0, len(moments) - 1))
    trimmed = data.draw(st.integers(0, 4))
    log = {(head.scope, head.seq): head.nonce for moment in moments[: reached + 1] for head in moment if head.seq}
    kept = dict(list(log.items())[trimmed:])
    answer = standing(
        Heads(tuple(ours[asked])), Heads(tuple(moments[reached])), lambda path, seq: kept.get((path, seq))
    )
    same_lineage = follows or reached < shared
    if answer is Standing.PROVEN:
        for level in (0, 1):
            made = [moment[level] for moment in moments[: reached + 1]]
            assert ours[asked][level] in made, "everything the primary showed at this level is there"
    if same_lineage and reached >= asked:
        assert answer in (Standing.PROVEN, Standing.UNKNOWN)
        told = all(past.seq or past == present for past, present in zip(ours[asked], moments[reached], strict=True))
        if told and not trimmed:
            assert answer is Standing.PROVEN
    if same_lineage and reached < asked:
        assert answer is Standing.BEHIND


# Waiting


def test_a_strict_read_waits_for_the_replay_and_then_shows_the_write(addresses, replayed):
    with opened(addresses) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        assert "prefers tea" in keel.prompt(ADA).text
        replayed.standby.pause_replay()
        keel.remember(ACME, "closed on Sundays", block="USER_PROFILE")
        standby = keel.core.store.engine.standby
        looked = threading.Semaphore(0)
        real = standby.prove

        def counted(*arguments):
            looked.release()
            return real(*arguments)

        standby.prove = counted
        answers = []
        reader = threading.Thread(target=lambda: answers.append(keel.prompt(ADA)))
        reader.start()
        for _ in range(3):
            assert looked.acquire(timeout=PATIENT)
        assert not answers
        replayed.standby.resume_replay()
        reader.join(PATIENT)
        assert "closed on Sundays" in answers[0].text
        assert answers[0].freshness.strict


def test_a_strict_read_gives_up_in_time_and_says_how_far_behind_the_replica_is(addresses, replayed):
    with opened(addresses, replica_timeout=0.05) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        replayed.catch_up()
        keel.prompt(ADA)
        replayed.standby.pause_replay()
        keel.remember(ADA, "lives by the sea", block="USER_PROFILE")
        with pytest.raises(BlockResolutionError) as caught:
            keel.prompt(ADA)
        behind = caught.value.__cause__
        assert isinstance(behind, ReplicaBehindError)
        assert isinstance(behind, TimeoutError)
        assert "org:acme/user:ada stands at change 1 there, and at 2 on the primary" in str(behind)
        assert "bytes of the log are to be replayed" in str(behind)
        with pytest.raises(ReplicaBehindError):
            keel.store.query_nodes(ADA)
        assert keel.prompt(BOB).freshness.strict, "nothing that this scope can see is missing"
        replayed.standby.resume_replay()
        replayed.catch_up()
        assert "lives by the sea" in keel.prompt(ADA).text


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_strict_read_that_is_cancelled_waits_no_longer(addresses, replayed, backend):
    async def main():
        url, replica = addresses
        async with pk.open(url, blocks=BLOCKS, replica=replica, replica_timeout=600.0) as keel:
            await keel.prompt(ADA)
            replayed.standby.pause_replay()
            await keel.remember(ADA, "lives by the sea", block="USER_PROFILE")
            with anyio.move_on_after(0.05) as waited:
                await keel.prompt(ADA)
            assert waited.cancelled_caught
            replayed.standby.resume_replay()
            assert "lives by the sea" in (await keel.prompt(ADA)).text

    anyio.run(main, backend=backend)


def test_the_primary_answers_for_a_replica_that_is_behind_only_where_that_was_allowed(addresses, replayed):
    with opened(addresses, replica_timeout=0.0, replica_fallback=True) as keel:
        replayed.standby.pause_replay()
        keel.remember(ADA, "lives by the sea", block="USER_PROFILE")
        assert "lives by the sea" in keel.prompt(ADA).text


def test_a_read_that_need_not_be_strict_is_the_replicas_and_says_so(addresses, replayed):
    with opened(addresses) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        assert "prefers tea" in keel.prompt(ADA).text
        replayed.standby.pause_replay()
        keel.remember(ADA, "lives by the sea", block="USER_PROFILE")
        prompt = keel.prompt(ADA, strict=False)
        assert "prefers tea" in prompt.text
        assert "sea" not in prompt.text
        assert not prompt.freshness.strict
        (detail,) = prompt.freshness.detail
        assert detail.startswith("USER_PROFILE: as the replica has it")
        assert keel.prompt(ADA, strict=False) is prompt
        assert not keel.resolve(ADA, strict=False).freshness.strict
        assert [fact.value for fact in keel.facts(ADA, strict=False)] == ["prefers tea"]
        replayed.standby.resume_replay()
        strict = keel.prompt(ADA)
        assert strict.freshness.strict
        assert "lives by the sea" in strict.text
        assert "lives by the sea" in keel.prompt(ADA, strict=False).text


def test_an_erasure_forgets_what_was_kept_of_the_replica_too(addresses, replayed):
    with opened(addresses) as keel:
        node = keel.remember(ADA, "a marked secret", block="USER_PROFILE")
        assert "a marked secret" in keel.prompt(ADA).text
        assert "a marked secret" in keel.prompt(ADA, strict=False).text
        keel.erase(ADA, node.id)
        assert "a marked secret" not in keel.prompt(ADA).text
        assert "a marked secret" not in keel.prompt(ADA, strict=False).text


def test_without_a_replica_every_read_is_strict(tmp_path):
    with blocking.open(f"sqlite:///{tmp_path / 'memory.db'}", blocks=BLOCKS) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        assert keel.prompt(ADA, strict=False) is keel.prompt(ADA)
        assert keel.prompt(ADA, strict=False).freshness.strict
        with pytest.raises(InvalidInputError, match="strict"):
            keel.prompt(ADA, strict="no")


# What it costs


def test_a_warm_strict_prompt_is_one_round_trip_to_the_primary_and_none_to_the_replica(
    addresses, replayed, monkeypatch
):
    with opened(addresses) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        first = keel.prompt(ADA)
        keel.prompt(ADA, strict=False)
        statements = Statements(monkeypatch)
        assert keel.prompt(ADA) is first
        assert len(statements.to(replayed.primary)) == 1
        assert statements.to(replayed.standby) == []
        statements.sent.clear()
        keel.prompt(ADA, strict=False)
        assert statements.to(replayed.primary) == []
        assert len(statements.to(replayed.standby)) == 1


def test_after_a_write_lanes_are_read_from_the_replica_alone(addresses, replayed, monkeypatch):
    with opened(addresses) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        keel.prompt(ADA)
        keel.remember(ADA, "lives by the sea", block="USER_PROFILE")
        replayed.catch_up()
        statements = Statements(monkeypatch)
        assert "lives by the sea" in keel.prompt(ADA).text
        asked = statements.to(replayed.primary)
        assert len(asked) == 2
        assert all("heads_of" in query for query in asked)
        assert any("changes" in query for query in statements.to(replayed.standby))


def test_a_position_that_the_replicas_log_no_longer_holds_is_asked_again(addresses, replayed):
    url, replica = addresses
    engine = ReplicatedEngine(url, replica=replica, clock=system_clock, replica_timeout=PATIENT, log_limit=4)
    try:
        engine.apply([Put(MemoryNode(id="first", scope=ADA, label="SOUL:first"))])
        real, positions = engine.heads, []

        def overtaken(scope):
            positions.append(real(scope))
            if len(positions) == 1:
                for number in range(20):
                    engine.apply([Put(MemoryNode(id=f"n{number}", scope=ADA, label=f"SOUL:{number}"))])
                engine.compact(engine.floor_keeping(1), 1000)
                replayed.catch_up()
            return positions[-1]

        engine.heads = overtaken
        assert len(engine.query_nodes(ADA, "SOUL:", None)) == 21
        assert len(positions) == 2
    finally:
        engine.close()


def test_a_read_that_the_replay_ended_is_tried_again(addresses, replayed):
    replayed.standby.run("ALTER SYSTEM SET max_standby_streaming_delay = 0")
    replayed.standby.run("SELECT pg_reload_conf()")
    url, replica = addresses
    engine = ReplicatedEngine(url, replica=replica, clock=system_clock, replica_timeout=PATIENT)
    try:
        engine.apply([Put(MemoryNode(id="first", scope=ADA, label="SOUL:first"))])
        reading, tries = threading.Event(), []

        def work(rows):
            found = rows.query_nodes(ADA, "SOUL:", None)
            tries.append(found)
            if len(tries) == 1:
                reading.set()
                rows.connection.execute("SELECT pg_sleep(60)")
            return found

        answers = []
        reader = threading.Thread(target=lambda: answers.append(engine._strictly(ADA, work)))
        reader.start()
        assert reading.wait(PATIENT)
        with psycopg.connect(url) as client:
            client.execute("LOCK TABLE promptkeel.nodes IN ACCESS EXCLUSIVE MODE")
        reader.join(PATIENT)
        assert len(tries) == 2
        assert [node.id for node in answers[0]] == ["first"]
    finally:
        engine.close()
        replayed.standby.run("ALTER SYSTEM RESET max_standby_streaming_delay")
        replayed.standby.run("SELECT pg_reload_conf()")


# What is refused


def test_what_is_no_standby_of_the_primary_is_refused_on_opening(addresses, replayed):
    url, replica = addresses
    other_url, other_replica = replayed.fresh()
    for given_replica, reason in (
        (other_replica, "another database"),
        (other_url, "another database"),
        (f"{replica}&schema=another", "schema another"),
    ):
        with pytest.raises(ReplicaMismatchError, match=reason):
            blocking.open_store(url, replica=given_replica)
    with own_postgres() as stranger, pytest.raises(ReplicaMismatchError, match="another system identifier"):
        blocking.open_store(url, replica=stranger.url)
    with pytest.raises(StoreUnavailableError):
        blocking.open_store(url, replica=stranger.url)


def test_a_replica_with_another_secret_is_refused_and_one_without_a_store_is_behind(addresses, replayed):
    url, replica = addresses
    replayed.standby.pause_replay()
    with psycopg.connect(url) as client:
        client.execute("UPDATE promptkeel.meta SET value = 'another' WHERE key = 'secret'")
    with pytest.raises(ReplicaMismatchError, match="another store"):
        blocking.open_store(url, replica=replica, replica_timeout=0.05)
    with pytest.raises(ReplicaBehindError, match="the store is not there"):
        blocking.open_store(f"{url}&schema=later", replica=replica, replica_timeout=0.05)


def test_a_replica_is_for_postgresql_alone(tmp_path):
    for url in ("ram:", f"sqlite:///{tmp_path / 'memory.db'}"):
        with pytest.raises(InvalidInputError, match="replica"):
            blocking.open_store(url, replica="postgresql:///elsewhere")


@pytest.mark.parametrize(
    "options", [{"replica": 3}, {"replica_timeout": -1}, {"replica_timeout": "5"}, {"replica_fallback": 1}]
)
def test_options_that_cannot_mean_anything_are_refused_before_anything_is_opened(options):
    (name,) = options
    with pytest.raises(InvalidInputError, match=name):
        blocking.open_store("postgresql://nobody@/nowhere?host=/nowhere", **({"replica": "postgresql:///x"} | options))


def test_the_primary_itself_may_be_its_own_replica(addresses):
    url, _ = addresses
    with opened((url, url)) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        assert "prefers tea" in keel.prompt(ADA).text
        assert "prefers tea" in keel.prompt(ADA, strict=False).text


def test_a_standby_is_no_store_of_its_own(addresses):
    with pytest.raises(StoreReadOnlyError, match="replica="):
        blocking.open_store(addresses[1])


def test_a_closed_store_reads_nowhere(addresses):
    with opened(addresses) as keel:
        store = keel.store
        standby = store.core.engine.standby
    with pytest.raises(StoreClosedError):
        store.query_nodes(ADA)
    with pytest.raises(StoreClosedError):
        standby.heads(ADA)


# Random programs


class Replicas(RuleBasedStateMachine):
    """Writes, a replay that stops and goes on, and reads of both kinds, against what the primary has taken."""

    pair: Pair

    def __init__(self) -> None:
        super().__init__()
        self.keel: blocking.Keel | None = None
        self.states: list[dict[str, tuple[str, ...]]] = [{}]
        self.paused_at: int | None = None
        self.shown: dict[str, int] = {}
        self.ids: list[tuple[pk.TenantScope, str]] = []

    @initialize()
    def begin(self) -> None:
        self.keel = opened(self.pair.fresh(), replica_timeout=0.0)
        self.keel.__enter__()

    def teardown(self) -> None:
        if self.keel is not None:
            self.pair.standby.resume_replay()
            self.keel.__exit__()

    def _wrote(self, scope: pk.TenantScope, texts: tuple[str, ...]) -> None:
        self.states.append(self.states[-1] | {scope.path: texts})

    def _visible(self, moment: int, scope: pk.TenantScope) -> set[str]:
        return {text for path in scope.chain for text in self.states[moment].get(path, ())}

    @rule(scope=st.sampled_from([ACME, ADA, BOB]))
    def remember(self, scope: pk.TenantScope) -> None:
        text = f"statement {len(self.states)}"
        node = self.keel.remember(scope, text, block="USER_PROFILE")
        self.ids.append((scope, node.id))
        self._wrote(scope, (*self.states[-1].get(scope.path, ()), text))

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        scope, node_id = data.draw(st.sampled_from(self.ids))
        self.ids.remove((scope, node_id))
        text = self.keel.get(scope, node_id).label.removeprefix("SOUL:")
        self.keel.erase(scope, node_id)
        self._wrote(scope, tuple(each for each in self.states[-1][scope.path] if each != text))

    @precondition(lambda self: self.paused_at is None)
    @rule()
    def pause(self) -> None:
        self.pair.catch_up()
        self.pair.standby.pause_replay()
        self.paused_at = len(self.states) - 1

    @precondition(lambda self: self.paused_at is not None)
    @rule()
    def resume(self) -> None:
        self.pair.standby.resume_replay()
        self.paused_at = None

    @rule(scope=st.sampled_from([ACME, ADA, BOB]))
    def read_strictly(self, scope: pk.TenantScope) -> None:
        now = len(self.states) - 1
        if self.paused_at is None:
            self.pair.catch_up()
        try:
            facts = {fact.value for fact in self.keel.facts(scope)}
        except BlockResolutionError as error:
            assert isinstance(error.__cause__, ReplicaBehindError)  # noqa: PT017 - it may or may not be raised
            assert self.paused_at is not None
            shown = [self._visible(moment, scope) for moment in range(self.paused_at, now + 1)]
            assert any(each != shown[0] for each in shown), "something visible here was not replayed"
        else:
            assert facts == self._visible(now, scope)

    @rule(scope=st.sampled_from([ACME, ADA, BOB]))
    def read_loosely(self, scope: pk.TenantScope) -> None:
        resolution = self.keel.resolve(scope, strict=False)
        assert not resolution.freshness.strict
        facts = {fact.value for block in resolution.blocks if block.is_learned for fact in block.facts}
        oldest = self.shown.get(scope.path, 0)
        newest = len(self.states) - 1 if self.paused_at is None else self.paused_at
        fitting = [moment for moment in range(oldest, newest + 1) if self._visible(moment, scope) == facts]
        assert fitting, "a moment that was, and none before what was shown already"
        self.shown[scope.path] = fitting[0]


def test_random_programs_never_read_anything_stale_strictly(pair):
    machine = type("OfThisPair", (Replicas,), {"pair": pair})
    run_state_machine_as_test(machine, settings=settings(max_examples=15, stateful_step_count=25, deadline=None))


# The caller's transaction


def test_a_callers_transaction_is_one_of_the_primary(addresses, replayed):
    url, replica = addresses
    with opened(addresses) as keel, psycopg.connect(url) as connection:
        keel.on(connection).remember(ADA, "prefers tea", block="USER_PROFILE")
        assert [fact.value for fact in keel.on(connection).facts(ADA)] == ["prefers tea"]
        assert keel.facts(ADA) == ()
        connection.commit()
        assert [fact.value for fact in keel.facts(ADA)] == ["prefers tea"]
        with psycopg.connect(replica) as other, pytest.raises(pk.PromptkeelError, match="another server"):
            keel.on(other).remember(ADA, "prefers coffee", block="USER_PROFILE")
