"""On a keel, in both forms: a prompt, a cache and a snapshot that look again never show what was erased."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

import promptkeel as pk
from promptkeel import blocking
from promptkeel.upkeep.erasure import EraseAll, EraseSubject

ADA, BOB = pk.TenantScope.parse("org:acme/user:ada"), pk.TenantScope.parse("org:acme/user:bob")
BLOCKS = [
    pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane(label_prefix="SOUL:", profile_fields={"role"})),
    pk.PromptBlockSpec(name="HEALTH", source=pk.MemoryLane(label_prefix="HEALTH:")),
]


@pytest.fixture(params=["ram:", "sqlite:///{}/memory.db"])
def keel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[blocking.Keel]:
    with blocking.open(request.param.format(tmp_path), blocks=BLOCKS) as keel:
        yield keel


def test_the_next_prompt_shows_nothing_of_it(keel: blocking.Keel) -> None:
    keel.remember(ADA, "keeps a parrot", block="USER_PROFILE")
    keel.remember(ADA, "sleeps badly", block="HEALTH")
    beside = keel.remember(BOB, "prefers tea", block="USER_PROFILE")
    warm = keel.prompt(ADA)
    assert "parrot" in warm.text
    bob = keel.prompt(BOB)
    receipt = keel.erase_all(ADA, label_prefix="SOUL:")
    assert len(receipt.receipts) == 1
    prompt = keel.prompt(ADA)
    assert "parrot" not in prompt.text
    assert "sleeps badly" in prompt.text, "another lane stays"
    assert keel.prompt(BOB).fingerprint == bob.fingerprint
    assert keel.get(BOB, beside.id).label == "SOUL:prefers tea"
    assert list(keel.receipts(ADA.parent, below=True)) == list(receipt.receipts)


def test_another_process_with_a_warm_prompt_shows_nothing_of_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    with blocking.open(url, blocks=BLOCKS) as first, blocking.open(url, blocks=BLOCKS) as second:
        first.remember(ADA, "keeps a parrot", block="USER_PROFILE", properties={"email": "ada@example.org"})
        assert "parrot" in second.prompt(ADA).text
        assert first.erase_subject(ADA.parent, properties={"email": "ada@example.org"}).state == "scrubbed"
        assert "parrot" not in second.prompt(ADA).text
        assert second.facts(ADA) == ()


def test_a_statement_said_again_after_an_erasure_is_remembered(keel: blocking.Keel) -> None:
    keel.remember(ADA, "keeps a parrot", block="USER_PROFILE")
    keel.erase_all(ADA)
    again = keel.remember(ADA, "keeps a parrot", block="USER_PROFILE")
    assert len(keel.history(ADA, again.id).versions) == 1
    assert "parrot" in keel.prompt(ADA).text


def test_what_is_handed_over_is_what_goes(keel: blocking.Keel) -> None:
    node = keel.remember(ADA, "keeps a parrot", block="USER_PROFILE", properties={"email": "ada@example.org"})
    note = keel.remember(ADA, "likes birds", block="USER_PROFILE")
    keel.link(ADA, note.id, "derived_from", node.id)
    keel.remember(ADA, "sleeps badly", block="HEALTH")
    request = EraseSubject(ADA, properties={"email": "ada@example.org"})
    plan, export = keel.export_erasure(request)
    assert (export.statements, export.edges) == (2, 1)
    keel.perform_erasure(request, expected=plan)
    later = keel.remember(ADA, "keeps a cat", block="USER_PROFILE")
    with pytest.raises(pk.ConflictError):
        keel.perform_erasure(EraseAll(ADA), expected=plan)
    assert keel.get(ADA, later.id)


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_the_asynchronous_form_does_the_same(tmp_path: Path, library: str) -> None:
    async def work() -> None:
        async with pk.open(f"sqlite:///{tmp_path}/memory.db", blocks=BLOCKS) as keel:
            await keel.remember(ADA, "keeps a parrot", block="USER_PROFILE")
            assert "parrot" in (await keel.prompt(ADA)).text
            assert len((await keel.plan_erasure(EraseAll(ADA))).found) == 1
            async with keel.store.snapshot() as snapshot:
                await snapshot.heads(ADA)
                assert (await keel.erase_all(ADA.parent, below=True)).state == "unreadable"
            await keel.settle_receipts()
            (receipt,) = await keel.receipts(ADA)
            assert receipt.state == "scrubbed"
            assert "parrot" not in (await keel.prompt(ADA)).text

    anyio.run(work, backend=library)


@pytest.mark.parametrize("below", ["false", 1, [0], None])
def test_nothing_that_merely_counts_as_true_widens_an_erasure(keel: blocking.Keel, below: object) -> None:
    keel.remember(ADA, "keeps a parrot", block="USER_PROFILE")
    with pytest.raises(pk.InvalidInputError, match="below: must be True or False"):
        keel.erase_all(pk.TenantScope.parse("org:acme"), below=below)
    with pytest.raises(pk.InvalidInputError, match="scope: must be a TenantScope"):
        keel.erase_all("org:acme", below=True)
    assert "parrot" in keel.prompt(ADA).text
