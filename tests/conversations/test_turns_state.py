"""What a conversation keeps in a store is in nobody's memory, is bounded, goes with its scope, and is written once."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import promptkeel as pk
from promptkeel.blocking import open_store
from promptkeel.conversations.keeping import read_state, write_state
from promptkeel.conversations.records import BASES, TURNS, BaseRecord, PinnedBlock, Place, TurnRecord, slot_for
from promptkeel.errors import ConflictError, InvalidDeclarationError, ReservedLabelError
from promptkeel.exchange.exporting import export_steps
from promptkeel.lane import scan_steps
from promptkeel.scope import TenantScope
from promptkeel.steps import drive_blocking
from promptkeel.store.operations import Correct, Link, Put, Remember, Retract
from promptkeel.upkeep.checking import check_engine
from promptkeel.upkeep.copying import copy_store
from promptkeel.upkeep.erasing import erase_steps
from promptkeel.upkeep.erasure import EraseAll

ADA = TenantScope.parse("org:acme/user:ada")
SECRET = b"secret"


def turn(number, *, base="b1", at=None):
    return TurnRecord(
        prefix=f"p{number}",
        base=base,
        at=number if at is None else at,
        model="m",
        format="anthropic",
        tools="t",
        marks=((3, 300),),
    )


def base_of(store, name="b1", at=0):
    blocks = (
        PinnedBlock("RULES", "platform", "fresh", "ff", "Be kind."),
        PinnedBlock("USER", "profile", "fresh", "aa"),
    )
    return BaseRecord(name, at, store.heads(ADA), "none", blocks)


def state_of(store, place):
    return drive_blocking(read_state(store.core, place))


def keep(store, place, record, base=None):
    drive_blocking(write_state(store.core, state_of(store, place), record, base))


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
def store(url):
    with open_store(url) as opened:
        yield opened


def test_what_was_kept_is_read_again_as_it_was(store):
    place = Place.of(SECRET, ADA, "c1")
    base, first = base_of(store), turn(1)
    keep(store, place, first, base)
    found = state_of(store, place)
    assert found.bases == {"b1": base}
    assert found.turns == {"p1": first}
    assert state_of(store, Place.of(SECRET, ADA, "c2")).turns == {}
    assert check_engine(store.core.engine).is_healthy


def test_turns_and_bases_of_a_set_are_bounded_and_the_longest_unused_gives_way(store):
    place = Place.of(SECRET, ADA, "c1")
    for number in range(TURNS + 8):
        base = base_of(store, f"b{number}", number) if number <= BASES else None
        keep(store, place, turn(number, base=f"b{number % 2}"), base)
    found = state_of(store, place)
    assert set(found.turns) == {f"p{number}" for number in range(8, TURNS + 8)}
    assert len(found.bases) == BASES
    assert {"b0", "b1"} <= set(found.bases)
    assert len(store.query_nodes(ADA)) == TURNS + BASES
    assert check_engine(store.core.engine).is_healthy


def test_a_turn_that_is_taken_again_stays_one(store):
    place = Place.of(SECRET, ADA, "c1")
    keep(store, place, turn(1), base_of(store))
    keep(store, place, turn(1, at=9))
    assert state_of(store, place).turns == {"p1": turn(1, at=9)}
    assert len(store.query_nodes(ADA)) == 2


def test_of_two_writers_of_one_state_the_second_is_told(store):
    place = Place.of(SECRET, ADA, "c1")
    seen = state_of(store, place)
    drive_blocking(write_state(store.core, seen, turn(1), base_of(store)))
    with pytest.raises(ConflictError):
        drive_blocking(write_state(store.core, seen, turn(2), None))
    assert set(state_of(store, place).turns) == {"p1"}


def test_writers_at_once_lose_no_turn_and_make_no_slot_twice(store):
    place = Place.of(SECRET, ADA, "c1")
    keep(store, place, turn(0), base_of(store))

    def write(start):
        for number in range(start, start + 5):
            while True:
                try:
                    keep(store, place, turn(number))
                    break
                except ConflictError:
                    pass

    threads = [threading.Thread(target=write, args=(start,)) for start in (1, 6, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    nodes = store.query_nodes(ADA)
    assert set(state_of(store, place).turns) == {f"p{number}" for number in range(16)}
    assert len({node.label for node in nodes}) == len(nodes) == 17


def forged(**given_fields):
    return pk.MemoryNode(**{"id": "n1", "scope": ADA, "label": "SOUL:x", **given_fields})


LABEL, ID = "@conversation:000:turn:00", "@conversation:ab"


@pytest.mark.parametrize(
    "forge",
    [
        lambda: Remember(forged(label=LABEL)),
        lambda: Remember(forged(id=ID)),
        lambda: Put(forged(label=LABEL)),
        lambda: Put(forged(id=ID), "anything"),
        lambda: Correct(scope=ADA, node_id="n1", label=LABEL),
        lambda: Correct(scope=ADA, node_id=ID, properties={"base": "other"}),
        lambda: Retract(ADA, ID),
        lambda: Link(pk.MemoryEdge(scope=ADA, start="n1", type="supersedes", end=ID)),
    ],
)
def test_no_write_of_memory_reaches_the_namespace(forge):
    with pytest.raises(ReservedLabelError, match="conversations"):
        forge()


@pytest.mark.parametrize("prefix", ["@conversation:", "@conv", "@conversation:000:turn:00", "@conversation:x"])
def test_no_block_can_be_declared_over_it(prefix):
    with pytest.raises(InvalidDeclarationError, match="reserved"):
        pk.MemoryLane(prefix)


def test_it_is_in_no_lane_of_memory_and_in_no_export_and_in_every_copy(store):
    store.put(pk.MemoryNode(id="n1", scope=ADA, label="SOUL:prefers tea"))
    place = Place.of(SECRET, ADA, "c1")
    keep(store, place, turn(1), base_of(store))
    revision = drive_blocking(scan_steps(store, ADA, "SOUL:", frozenset()))
    assert [fact.value for fact in revision.facts] == ["prefers tea"]
    for options in ({}, {"everything": True}, {"format": "mcp"}):
        export = drive_blocking(export_steps(store.core, ADA, **options))
        assert not any("@conversation" in line or "Be kind." in line for line in export.lines)
        assert export.left_out == (1 if options.get("format") == "mcp" else 0)
    with open_store("ram:") as copy:
        copy_store(store.core.engine, copy.core.engine)
        assert state_of(copy, place).turns == state_of(store, place).turns
        assert state_of(copy, place).bases == state_of(store, place).bases


def test_the_erasure_of_its_scope_takes_it_along_and_it_can_begin_again(store):
    place = Place.of(SECRET, ADA, "c1")
    keep(store, place, turn(1), base_of(store))
    drive_blocking(erase_steps(store.core, EraseAll(ADA)))
    assert state_of(store, place).kept == ()
    keep(store, place, turn(2), base_of(store))
    assert set(state_of(store, place).turns) == {"p2"}
    assert check_engine(store.core.engine).is_healthy


def test_what_raw_sql_wrote_there_is_as_if_it_were_not_there():
    place = Place.of(SECRET, ADA, "c1")
    label = place.label(("turn", 0))
    for properties in ({}, {"conversation": place.key}, {"conversation": place.key, "turn": 1, "marks": [1]}):
        (kept,) = place.read([pk.MemoryNode(id="n1", scope=ADA, label=label, properties=properties)])
        assert kept.record is None


@given(st.lists(st.tuples(st.sampled_from(["c1", "c2", "c3"]), st.integers(0, 60)), max_size=120))
def test_slots_are_never_more_than_a_set_has_and_hold_what_was_used_last(writes):
    places = {name: Place(ADA, name) for name in ("c1", "c2", "c3")}
    kept = {}
    used = {}
    for at, (name, number) in enumerate(writes):
        record = turn(number, at=at)
        place = places[name]
        slot = slot_for(record, name, tuple(kept.values()))
        node = place.node(slot, record, f"{at}")
        (read,) = Place(ADA, name).read([node])
        kept[slot] = read
        used.pop((name, record.prefix), None)
        used[name, record.prefix] = at
    assert len(kept) <= TURNS
    newest = [key for key, _ in sorted(used.items(), key=lambda item: -item[1])[:TURNS]]
    assert {(each.owner, each.record.prefix) for each in kept.values()} == set(newest)
