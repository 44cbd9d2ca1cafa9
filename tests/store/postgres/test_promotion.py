"""Failover: a standby that was promoted, a primary that is lost, a replica that is lost and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import promptkeel as pk
from promptkeel import blocking
from promptkeel.errors import (
    BlockResolutionError,
    ReplicaMismatchError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from promptkeel.instants import system_clock
from promptkeel.store.replicated import ReplicatedEngine
from servers import PostgresServer, own_postgres, own_standby

ACME = pk.TenantScope.parse("org:acme")
ADA = ACME.child("user", "ada")
BLOCKS = [pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:"), on_failure="fail_closed")]
PATIENT = 30.0


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    with own_postgres() as server:
        blocking.open_store(server.url).close()
        yield server


@pytest.fixture
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    with own_standby(primary) as server:
        yield server


def whichever_takes_writes(*servers: PostgresServer) -> str:
    """The address of several servers, as libpq tries them."""
    hosts = ",".join(quote(str(server.folder), safe="") for server in servers)
    return f"postgresql://postgres@/postgres?host={hosts}&target_session_attrs=read-write"


def opened(url: str, **options: Any) -> blocking.Keel:
    return blocking.open(
        url, blocks=BLOCKS, **({"replica_timeout": PATIENT} if "replica" in options else {}), **options
    )


def revision(keel: blocking.Keel) -> str:
    (block,) = keel.prompt(ADA).blocks
    return block.revision_id


def test_the_promoted_standby_goes_on_with_equal_revisions_and_what_was_acknowledged(primary, standby):
    with opened(primary.url, replica=standby.url) as keel:
        for number in range(20):
            keel.remember(ADA, f"statement {number}", block="USER_PROFILE")
        before, text = revision(keel), keel.prompt(ADA).text
        primary.kill()
        standby.promote()
        with pytest.raises(BlockResolutionError) as caught:
            keel.prompt(ADA)
        assert isinstance(caught.value.__cause__, StoreUnavailableError)
        with pytest.raises(StoreUnavailableError):
            keel.remember(ADA, "lost", block="USER_PROFILE")
        assert keel.prompt(ADA, strict=False).text == text, "what need not be strict goes on"
    with pytest.raises(StoreUnavailableError), opened(primary.url):
        pass
    with opened(standby.url) as keel:
        assert revision(keel) == before
        assert keel.prompt(ADA).text == text
        keel.remember(ADA, "after the failover", block="USER_PROFILE")
        assert "after the failover" in keel.prompt(ADA).text


def test_a_replica_that_was_promoted_while_its_primary_lives_is_no_replica_any_more(primary, standby):
    with opened(primary.url, replica=standby.url, replica_fallback=True) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        keel.prompt(ADA)
        standby.promote()
        keel.remember(ADA, "lives by the sea", block="USER_PROFILE")
        with pytest.raises(BlockResolutionError) as caught:
            keel.prompt(ADA)
        assert isinstance(caught.value.__cause__, ReplicaMismatchError), "not even where the primary may answer"
    with pytest.raises(ReplicaMismatchError, match="promoted"), opened(primary.url, replica=standby.url):
        pass


def test_heads_that_counted_up_to_the_same_number_on_both_sides_are_never_equal(primary, standby):
    with opened(primary.url, replica=standby.url) as keel:
        keel.remember(ADA, "before the split", block="USER_PROFILE")
        keel.prompt(ADA)
    standby.promote()
    with blocking.open_store(primary.url) as one, blocking.open_store(standby.url) as other:
        # A promoted server skips numbers: the one behind counts on until they meet.
        for server in (primary, standby):
            server.run("SELECT setval('promptkeel.seqs', 1000)")
        one.put(pk.MemoryNode(id="one", scope=ADA, label="SOUL:on one side"))
        other.put(pk.MemoryNode(id="other", scope=ADA, label="SOUL:on the other"))
        mine, its = one.heads(ADA), other.heads(ADA)
        assert mine.seq == its.seq == 1001
        assert mine != its
        assert other.changes(ADA, mine).changes is None, "no difference can be told from a head of the other side"
        with pytest.raises(pk.CompactedError):
            other.nodes_as_of(ADA, mine)


def test_a_resolver_with_caches_from_before_the_promotion_notices_what_was_lost(primary, standby):
    url = whichever_takes_writes(primary, standby)
    with opened(url) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        with opened(primary.url, replica=standby.url) as both:
            both.prompt(ADA)
        standby.stop()
        keel.remember(ADA, "never replicated", block="USER_PROFILE")
        lost = keel.prompt(ADA)
        assert "never replicated" in lost.text
        primary.kill()
        standby.start()
        standby.promote()
        # The next change gets the very number of the one that was lost.
        standby.run(f"SELECT setval('promptkeel.seqs', {lost.heads.seq - 1})")
        keel.remember(ADA, "after the failover", block="USER_PROFILE")
        found = keel.prompt(ADA)
        assert found.heads.seq == lost.heads.seq
        assert found.heads != lost.heads
        assert "after the failover" in found.text
        assert "never replicated" not in found.text


def test_a_primary_that_became_a_standby_answers_nothing_strictly(primary, standby):
    with opened(primary.url) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        keel.prompt(ADA)
        primary.stop()
        standby.promote()
        with opened(standby.url) as promoted:
            promoted.remember(ADA, "lives by the sea", block="USER_PROFILE")
        (primary.data / "standby.signal").touch()
        primary.settings["primary_conninfo"] = f"host={standby.folder} user=postgres"
        primary.start()
        with pytest.raises(BlockResolutionError) as caught:
            keel.prompt(ADA)
        assert isinstance(caught.value.__cause__, StoreReadOnlyError)
    with pytest.raises(StoreReadOnlyError, match="standby"), opened(primary.url):
        pass
    with opened(standby.url, replica=primary.url) as keel:
        assert "lives by the sea" in keel.prompt(ADA).text


def test_a_pooler_that_says_nothing_of_its_server_hides_no_standby(primary, standby):
    engine = ReplicatedEngine(primary.url, replica=standby.url, clock=system_clock, replica_timeout=PATIENT)
    try:
        engine._connections._standby = True  # what it hides: how the server greets
        primary.stop()
        standby.promote()
        (primary.data / "standby.signal").touch()
        primary.start()
        with pytest.raises(StoreReadOnlyError, match="is a standby now"):
            engine.heads(ADA)
    finally:
        engine.close()


def test_a_replica_that_is_killed_fails_strict_reads_of_what_moved_and_is_used_again_when_it_is_back(primary, standby):
    with opened(primary.url, replica=standby.url) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        first = keel.prompt(ADA)
        keel.prompt(ADA, strict=False)
        standby.kill()
        assert keel.prompt(ADA) is first, "unmoved heads need no replica"
        keel.remember(ADA, "lives by the sea", block="USER_PROFILE")
        for strict in (True, False):
            with pytest.raises(BlockResolutionError) as caught:
                keel.prompt(ADA, strict=strict)
            assert isinstance(caught.value.__cause__, StoreUnavailableError)
        with pytest.raises(StoreUnavailableError), opened(primary.url, replica=standby.url):
            pass
        with opened(primary.url, replica=standby.url, replica_fallback=True) as allowed:
            assert "lives by the sea" in allowed.prompt(ADA).text
            assert allowed.prompt(ADA).freshness.strict
            standby.start()
            allowed.remember(ADA, "has a dog", block="USER_PROFILE")
            assert "has a dog" in allowed.prompt(ADA).text
        assert "has a dog" in keel.prompt(ADA).text
        assert "has a dog" in keel.prompt(ADA, strict=False).text


def test_another_server_at_the_replicas_address_is_never_taken_for_it(primary, standby):
    with opened(primary.url, replica=standby.url, replica_fallback=True) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        keel.prompt(ADA)
        keel.prompt(ADA, strict=False)
        standby.kill()
        stranger = PostgresServer(standby.programs, standby.folder)
        stranger.data = standby.folder / "of_another"
        stranger.create()
        stranger.start()
        try:
            for store in (False, True):
                if store:
                    with blocking.open_store(stranger.url) as other:
                        other.put(pk.MemoryNode(id="other", scope=ADA, label="SOUL:another customer's data"))
                keel.remember(ADA, f"has written {store}", block="USER_PROFILE")
                for strict in (False, True):
                    with pytest.raises(BlockResolutionError) as caught:
                        keel.prompt(ADA, strict=strict)
                    assert isinstance(caught.value.__cause__, ReplicaMismatchError)
        finally:
            stranger.stop()


def test_a_plain_copy_of_the_primary_is_no_replica(primary, standby):
    standby.stop()
    Path(standby.data / "standby.signal").unlink()
    standby.start()
    with pytest.raises(ReplicaMismatchError, match="a copy"), opened(primary.url, replica=standby.url):
        pass
