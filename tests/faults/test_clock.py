"""The clock is set back by an hour: no revision is moved wrongly, nothing is lost, and nothing that is new is old."""

from __future__ import annotations

import pytest

import promptkeel as pk
from promptkeel import blocking

ADA = pk.TenantScope.parse("org:acme/user:ada")
BLOCKS = [pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:", {"role"}), on_failure="fail_closed")]
START = 1_767_225_600_000_000
HOUR = 3_600_000_000
LATER = "2026-01-01T00:00:01Z"
"""A second after the start."""


class SetClock:
    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now


@pytest.fixture(params=["ram", "sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "postgres":
        databases = request.getfixturevalue("databases")
        address = databases.store()
        yield address
        databases.give_back(address)
    else:
        yield "ram:" if request.param == "ram" else f"sqlite:///{tmp_path / 'memory.db'}"


@pytest.fixture
def clock():
    return SetClock()


@pytest.fixture
def keel(url, clock):
    with blocking.open(url, blocks=BLOCKS, clock=clock) as keel:
        yield keel


def revision(keel):
    return blocking.scan_memory_lane(keel.store, ADA, "SOUL:", {"role"}).revision


def test_setting_the_clock_alone_moves_nothing(keel, clock):
    keel.remember(ADA, "prefers tea", block="USER_PROFILE", id="tea")
    prompt, before, heads = keel.prompt(ADA), revision(keel), keel.store.heads(ADA)
    for moved in (-HOUR, -24 * HOUR, HOUR):
        clock.now = START + moved
        assert keel.prompt(ADA).text == prompt.text
        assert revision(keel) == before
        assert keel.store.heads(ADA) == heads


def test_what_is_written_after_it_was_set_back_is_new_and_nothing_older_is_lost(keel, clock):
    keel.remember(ADA, "prefers tea", block="USER_PROFILE", id="tea", properties={"role": "CTO"})
    watch = keel.store.watch(ADA, "SOUL:", profile_fields={"role"}, interval=0.005)
    told = [next(watch).revision]
    seen = [keel.store.heads(ADA)]
    clock.now -= HOUR
    writes = [
        lambda: keel.remember(ADA, "likes chess", block="USER_PROFILE", id="chess"),
        lambda: keel.correct(ADA, "tea", properties={"role": "CEO"}, recorded_at=LATER),
        lambda: keel.correct(ADA, "chess", text="likes go"),
        lambda: keel.remember(ADA, "was here", block="USER_PROFILE", id="gone"),
        lambda: keel.retract(ADA, "gone"),
    ]
    for number, write in enumerate(writes):
        write()
        # A lane from which what was added last is gone again is the lane before.
        told.append(next(watch).revision)
        assert (told[-1] in told[:-1]) == (number == 4)
        seen.append(keel.store.heads(ADA))
        assert told[-1] == revision(keel)
    seqs = [heads.levels[-1].seq for heads in seen]
    assert seqs == sorted(set(seqs))
    text = keel.prompt(ADA).text
    assert all(each in text for each in ('"prefers tea"', '"likes go"', '"CEO"'))
    assert '"CTO"' not in text
    # The past is told by the order of the commits, not by the clock.
    for heads, then in zip(seen, told, strict=True):
        past = keel.store.nodes_as_of(ADA, heads, label_prefix="SOUL:")
        assert len(past.nodes) == int(then.split(":")[1])


def test_a_compare_and_set_knows_what_it_read_though_both_were_written_at_one_instant(keel, clock):
    keel.remember(ADA, "prefers tea", block="USER_PROFILE", id="tea")
    read = keel.get(ADA, "tea")
    clock.now -= HOUR
    keel.correct(ADA, "tea", text="prefers coffee", recorded_at=LATER)
    clock.now = START
    with pytest.raises(pk.ConflictError):
        keel.correct(ADA, "tea", text="prefers water", expected=read)
    assert '"prefers coffee"' in keel.prompt(ADA).text


def test_a_correction_that_is_timed_by_a_clock_set_back_is_kept_as_the_older_one(keel, clock):
    """The newest by instant wins, and its instant is the clock's where the caller gives none: it is told, and kept."""
    keel.remember(ADA, "prefers tea", block="USER_PROFILE", id="tea")
    before = revision(keel)
    clock.now -= HOUR
    keel.correct(ADA, "tea", text="prefers coffee")
    assert revision(keel) == before
    (late,) = keel.history(ADA, "tea").testimonies
    assert late.kind == "outdated"
    assert late.properties == {"label": "SOUL:prefers coffee"}
    keel.correct(ADA, "tea", text="prefers coffee", recorded_at=LATER)
    assert '"prefers coffee"' in keel.prompt(ADA).text


def test_a_block_that_was_edited_after_it_was_set_back_shows_the_last_edit(keel, clock):
    first = keel.blocks.append(ADA, "NOTES", "one", author="operator")
    clock.now -= HOUR
    second = keel.blocks.append(ADA, "NOTES", "two", author="operator")
    assert [each.content for each in keel.blocks.log(ADA, "NOTES")] == ["two", "one"]
    assert second != first
    assert keel.blocks.head(ADA, "NOTES").content == "two"
