"""The scan: everything is asked for, a scanner is held to what was asked, and no node breaks the lane."""

from __future__ import annotations

import collections
import enum
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lane.lane_samples import CREATED, PREFIX, DirectScanner, Scanner, duck, rows
from promptkeel.errors import InvalidDeclarationError, InvalidInputError, InvalidScopeError, ScannerError
from promptkeel.instants import datetime_of, format_instant, instant_of
from promptkeel.lane import EMPTY_MEMORY_REVISION, Lane, memory_revision, scan_memory_lane, scan_steps
from promptkeel.model import BlockFact, BlockRevision, MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.steps import drive_blocking

NAIVE = datetime(2026, 5, 2)  # noqa: DTZ001 - naive times are read as UTC
ADA = TenantScope.parse("org:a/user:u1")


def scan(*nodes: Any, fields: Any = frozenset(), prefix: str = PREFIX) -> BlockRevision:
    return drive_blocking(scan_steps(DirectScanner(list(nodes)), ADA, prefix, fields))


def reported(revision: BlockRevision) -> list[tuple[str, str]]:
    return [(entry.node_id, entry.field) for entry in revision.unreadable]


def test_a_scan_asks_for_everything_explicitly() -> None:
    scanner = Scanner([duck()])
    revision = anyio.run(scan_memory_lane, scanner, ADA, PREFIX)
    assert scanner.calls == [{"scope": ADA, "label_prefix": PREFIX, "limit": None}]
    assert revision == scan(duck())
    assert revision.facts == (BlockFact("prefers tea", None, CREATED, node_id="n1"),)
    assert (revision.content, revision.count, revision.unreadable) == ("prefers tea", 1, ())
    assert revision.revision == memory_revision([duck()], revision.facts)


def test_no_node_is_the_empty_revision_with_no_facts() -> None:
    revision = scan()
    assert (revision.revision, revision.facts, revision.content) == (EMPTY_MEMORY_REVISION, (), "")


def test_the_blocking_driver_refuses_an_asynchronous_scanner() -> None:
    with pytest.raises(InvalidInputError, match="asynchronous"):
        drive_blocking(scan_steps(Scanner([]), ADA, PREFIX))


@pytest.mark.parametrize("answer", [None, {}, {1}, "SOUL:x", b"x", iter([]), 3])
def test_an_answer_that_is_no_sequence_is_an_error(answer) -> None:
    with pytest.raises(ScannerError, match="sequence"):
        drive_blocking(scan_steps(DirectScanner(answer), ADA, PREFIX))


def test_what_has_no_query_nodes_is_an_error() -> None:
    with pytest.raises(ScannerError, match="query_nodes"):
        drive_blocking(scan_steps(object(), ADA, PREFIX))


def test_what_a_scanner_raises_is_raised() -> None:
    class Broken:
        def query_nodes(self, *_: Any, **__: Any) -> Any:
            raise OSError("down")

    with pytest.raises(OSError, match="down"):
        drive_blocking(scan_steps(Broken(), ADA, PREFIX))


def test_a_scope_that_is_none_of_ours_is_refused_before_anything_is_read() -> None:
    scanner = DirectScanner([])
    with pytest.raises(InvalidScopeError):
        drive_blocking(scan_steps(scanner, "org:a", PREFIX))  # type: ignore[arg-type]
    assert scanner.calls == []


@pytest.mark.parametrize("prefix", [None, 3, "SO\0UL", "\ud800"])
def test_a_prefix_that_is_no_text_is_refused(prefix) -> None:
    with pytest.raises(InvalidDeclarationError, match="label_prefix"):
        scan(prefix=prefix)


@pytest.mark.parametrize("label", ["EVENT:secret", "SO", "", "soul:x", "EVENT:\ud800"])
def test_a_label_outside_the_prefix_is_an_error_that_names_it(label: str) -> None:
    with pytest.raises(ScannerError) as caught:
        scan(duck(), duck(label))
    assert label.encode("utf-8", "backslashreplace").decode() in str(caught.value)


@pytest.mark.parametrize("scope", ["org:b", "org:a/user:u2", "org:a/user:u1/run:1"])
@pytest.mark.parametrize("spell", [str, TenantScope.parse])
def test_a_node_of_another_scope_is_an_error(scope: str, spell) -> None:
    with pytest.raises(ScannerError, match=scope):
        scan(duck(scope=spell(scope)))


@pytest.mark.parametrize("scope", ["", "org:a", "org:a/user:u1"])
def test_a_node_of_a_visible_scope_is_taken(scope: str) -> None:
    assert len(scan(duck(scope=scope)).require_facts()) == 1
    assert len(scan(duck(scope=TenantScope.parse(scope))).require_facts()) == 1


def test_a_retracted_node_is_an_error() -> None:
    with pytest.raises(ScannerError, match="retracted"):
        scan(MemoryNode(id="n1", scope=ADA, label="SOUL:x", state="retracted"))


def test_a_scope_that_cannot_be_told_shows_nothing() -> None:
    revision = scan(duck(scope="not a scope"), duck("SOUL:b"))
    assert [fact.value for fact in revision.require_facts()] == ["b"]
    assert (revision.count, reported(revision)) == (2, [("n1", "scope")])


@pytest.mark.parametrize("label", [None, 3, b"SOUL:x", ["SOUL:x"], "SOUL:\ud800", "SOUL:\udcff x"])
def test_a_label_that_is_no_text_is_counted_and_reported(label: object) -> None:
    revision = scan(duck(label, properties={"role": "CTO"}), duck("SOUL:b", id="n2"), fields={"role"})
    assert [fact.value for fact in revision.require_facts()] == ["b"]
    assert (revision.count, reported(revision)) == (2, [("n1", "label")])


def test_the_prefix_is_removed_once_and_only_outer_white_space_goes() -> None:
    nodes = [duck("SOUL:SOUL: x"), duck("SOUL:\u3000a  b\t\tc\u00a0"), duck("SOUL: \n")]
    assert {fact.value for fact in scan(*nodes).require_facts()} == {"SOUL: x", "a  b\t\tc"}


def test_characters_that_no_store_takes_are_kept_from_a_foreign_scanner() -> None:
    assert [fact.value for fact in scan(duck("SOUL:a\0b\x1bc")).require_facts()] == ["a\0b\x1bc"]


def one(properties: object, **fields: Any) -> tuple[BlockFact, list[str]]:
    revision = scan(duck(properties=properties, **fields))
    (fact,) = revision.require_facts()
    return fact, [field for _, field in reported(revision)]


@pytest.mark.parametrize(
    ("given", "source", "fields"),
    [
        ({}, None, []),
        ({"source": None}, None, []),
        ({"source": "  "}, None, []),
        ({"source": "\u00a0crm "}, "crm", []),
        ({"source": 7}, None, ["source"]),
        ({"source": "\ud800"}, None, ["source"]),
    ],
)
def test_a_source_is_text_or_not_recorded(given: dict, source: str | None, fields: list) -> None:
    fact, unreadable = one(given)
    assert (fact.source, unreadable) == (source, fields)


@pytest.mark.parametrize(
    ("given", "recorded", "fields"),
    [
        ({}, CREATED, []),
        ({"recorded_at": None}, None, []),
        ({"recorded_at": "2026-05-02"}, datetime(2026, 5, 2, tzinfo=UTC), []),
        ({"recorded_at": NAIVE}, datetime(2026, 5, 2, tzinfo=UTC), []),
        ({"recorded_at": ""}, None, ["recorded_at"]),
        ({"recorded_at": 1777716000}, None, ["recorded_at"]),
        ({"recorded_at": False}, None, ["recorded_at"]),
        ({"recorded_at": "2026-W18-6"}, None, ["recorded_at"]),
        ({"recorded_at": "0001-01-01T00:00:00+14:00"}, None, ["recorded_at"]),
        ({"recorded_at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))}, None, ["recorded_at"]),
    ],
)
def test_an_absent_time_is_the_creation_and_an_unreadable_one_is_not_replaced(given, recorded, fields) -> None:
    fact, unreadable = one(given)
    assert (fact.recorded_at, unreadable) == (recorded, fields)


def test_a_creation_time_that_is_no_datetime_is_reported() -> None:
    assert one({}, created_at="2026-01-01T00:00:00Z")[1] == ["created_at"]
    assert one({}, created_at=None) == (BlockFact("prefers tea", node_id="n1"), [])


def test_trust_is_a_level_or_not_recorded() -> None:
    assert one({"trust": "user"})[0].trust == "user"
    fact, unreadable = one({"trust": "root"})
    assert (fact.trust, unreadable) == (None, ["trust"])


@pytest.mark.parametrize("properties", [["source", "x"], "text", 3])
def test_properties_that_are_no_object_leave_nothing_recorded(properties: object) -> None:
    fact, unreadable = one(properties)
    assert (fact.source, fact.recorded_at, unreadable) == (None, None, ["properties"])


class OwnMapping(Mapping[str, Any]):
    def __init__(self, values: dict[str, Any]) -> None:
        self.values_ = values

    def __getitem__(self, key: str) -> Any:
        return self.values_[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)


def test_any_mapping_counts_as_properties() -> None:
    values = {"source": "crm", "role": "CTO", "_field_provenance": OwnMapping({"role": OwnMapping({"source": "form"})})}
    for properties in (values, OwnMapping(values), collections.UserDict(values)):
        revision = scan(duck(properties=properties), fields={"role"})
        assert [(fact.value, fact.source) for fact in revision.require_facts()] == [
            ("prefers tea", "crm"),
            ("role: CTO", "form"),
        ]


@pytest.mark.parametrize(
    ("value", "text"),
    [("CTO", "CTO"), (" C  D ", "C  D"), (True, "true"), (False, "false"), (3, "3"), (3.5, "3.5"), (-0.0, "-0.0")],
)
def test_a_declared_field_is_text_a_number_or_a_boolean(value: object, text: str) -> None:
    (fact,) = scan(duck(PREFIX, properties={"role": value}), fields={"role"}).require_facts()
    assert (fact.value, fact.field, fact.text) == (f"role: {text}", "role", text)


@pytest.mark.parametrize("value", [None, "", " \u3000"])
def test_a_declared_field_that_is_blank_is_absent(value: object) -> None:
    revision = scan(duck(PREFIX, properties={"role": value}), fields={"role"})
    assert (revision.facts, revision.unreadable, revision.count) == ((), (), 1)


@pytest.mark.parametrize("value", [[], ["CTO"], {}, {"a": 1}, b"CTO", object(), float("nan"), "\ud800"])
def test_a_declared_field_that_is_anything_else_is_reported(value: object) -> None:
    revision = scan(duck(properties={"role": value}), fields={"role"})
    assert [fact.value for fact in revision.require_facts()] == ["prefers tea"]
    assert reported(revision) == [("n1", "properties.role")]


def test_a_number_longer_than_a_store_takes_is_reported() -> None:
    revision = scan(duck(properties={"role": 10**5000, "city": 10**1000}), fields={"role", "city"})
    assert [fact.value for fact in revision.require_facts()] == ["prefers tea", f"city: {10**1000}"]
    assert reported(revision) == [("n1", "properties.role")]


def test_only_declared_fields_are_facts_and_they_follow_the_statement_by_name() -> None:
    properties = {"z": "1", "b": "2", "a": "3", "undeclared": "4"}
    revision = scan(duck(properties=properties), duck("SOUL:q", id="n2"), fields=["z", "a", "b"])
    assert [fact.value for fact in revision.require_facts()] == ["prefers tea", "a: 3", "b: 2", "z: 1", "q"]


def test_a_label_that_spells_a_field_stays_another_fact() -> None:
    forged = scan(duck("SOUL:role: CTO"), fields={"role"})
    declared = scan(duck(PREFIX, properties={"role": "CTO"}), fields={"role"})
    assert forged.content == declared.content == "role: CTO"
    assert forged.facts != declared.facts
    assert forged.revision != declared.revision


@pytest.mark.parametrize(
    ("entry", "expected", "fields"),
    [
        ({}, ("crm", "2026-05-02", "user"), []),
        ({"source": "form"}, ("form", "2026-05-02", "user"), []),
        ({"source": " "}, ("crm", "2026-05-02", "user"), []),
        ({"source": None}, (None, "2026-05-02", "user"), []),
        ({"source": 5}, (None, "2026-05-02", "user"), ["source"]),
        ({"recorded_at": "2026-06-01"}, ("crm", "2026-06-01", "user"), []),
        ({"recorded_at": None}, ("crm", None, "user"), []),
        ({"recorded_at": "bad"}, ("crm", None, "user"), ["recorded_at"]),
        ({"trust": "inferred"}, ("crm", "2026-05-02", "inferred"), []),
        ({"trust": None}, ("crm", "2026-05-02", None), []),
        ({"trust": "root"}, ("crm", "2026-05-02", None), ["trust"]),
    ],
)
def test_a_field_has_its_own_provenance_else_its_node_s(entry: dict, expected: tuple, fields: list) -> None:
    properties = {"source": "crm", "recorded_at": "2026-05-02", "trust": "user", "role": "CTO"}
    node = duck(PREFIX, properties={**properties, "_field_provenance": {"role": entry}})
    revision = scan(node, fields={"role"})
    (fact,) = revision.require_facts()
    recorded = None if fact.recorded is None else format_instant(fact.recorded)[:10]
    assert (fact.source, recorded, fact.trust) == expected
    assert reported(revision) == [("n1", f"_field_provenance.role.{field}") for field in fields]


@pytest.mark.parametrize("provenance", ["x", {"role": "x"}, {"role": ["x"]}])
def test_field_provenance_that_is_no_object_is_reported_and_the_node_s_stands(provenance: object) -> None:
    node = duck(PREFIX, properties={"source": "crm", "role": "CTO", "_field_provenance": provenance})
    revision = scan(node, fields={"role"})
    assert [fact.source for fact in revision.require_facts()] == ["crm"]
    assert len(revision.unreadable) == 1


def test_order_is_label_then_instant_then_id_as_text() -> None:
    at = datetime(2026, 5, 2, 0, 30, tzinfo=UTC)
    earlier = datetime(2026, 5, 2, 1, tzinfo=timezone(timedelta(hours=2)))
    nodes = [
        duck("SOUL:b", id=2),
        duck("SOUL:b", id=10),
        duck("SOUL:a", id="late", properties={"recorded_at": at}),
        duck("SOUL:a", id="early", properties={"recorded_at": earlier}),
        duck("SOUL:a", id="unknown", properties={"recorded_at": None}),
    ]
    assert [fact.node_id for fact in scan(*nodes).require_facts()] == ["unknown", "early", "late", "10", "2"]


class Text(str):
    __slots__ = ()

    def strip(self, *_: Any) -> str:
        raise RuntimeError("never called")

    __str__ = __getitem__ = startswith = encode = strip  # type: ignore[assignment]


class Kind(enum.StrEnum):
    CRM = "crm"


class Trap:
    def __init__(self, *traps: str, **values: Any) -> None:
        self.traps, self.values = traps, values

    def __getattr__(self, name: str) -> Any:
        if name in self.traps:
            raise RuntimeError(name)
        return self.values[name] if name in self.values else getattr(duck(), name)


class TrappedMapping(OwnMapping):
    def __getitem__(self, key: str) -> Any:
        if key in ("source", "role"):
            raise RuntimeError(key)
        return super().__getitem__(key)


class BadZone(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta | None:
        raise RuntimeError("no offset")


HOSTILE = {
    "no attributes": (object(), []),
    "None": (None, []),
    "every attribute raises": (Trap("id", "scope", "label", "updated_at", "properties", "created_at"), ["label"]),
    "label raises": (Trap("label"), ["label"]),
    "scope raises": (Trap("scope"), ["scope"]),
    "properties raise": (Trap("properties"), ["properties"]),
    "times raise": (Trap("created_at", "updated_at"), ["created_at", "updated_at"]),
    "id raises": (Trap("id"), ["id"]),
    "mapping raises": (duck(properties=TrappedMapping({"source": "x", "role": "y"})), ["properties.role", "source"]),
    "a zone raises": (duck(updated_at=datetime(2026, 1, 1, tzinfo=BadZone())), ["updated_at"]),
    "a recorded zone raises": (
        duck(properties={"recorded_at": datetime(2026, 1, 1, tzinfo=BadZone())}),
        ["recorded_at"],
    ),
    "an id with an address": (duck(id=object()), ["id"]),
    "an id that cannot be encoded": (duck(id="\ud800"), ["id"]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_node_costs_itself_and_is_reported(name: str) -> None:
    node, fields = HOSTILE[name]
    revision = scan(node, duck("SOUL:good", id="n2"), fields={"role"})
    assert "good" in [fact.value for fact in revision.require_facts()]
    assert revision.count == 2
    assert set(fields) <= {entry.field for entry in revision.unreadable}
    if fields:
        assert revision.unreadable
    revision.revision.encode()
    revision.content.encode()


def test_text_with_methods_of_its_own_is_read_as_plain_text() -> None:
    properties = {"source": Text("crm"), "role": Text(" CTO "), "trust": Text("user")}
    revision = scan(duck(Text("SOUL:tea"), id=Text("n1"), properties=properties), fields={"role"})
    assert [(type(fact.value), *fact[:2]) for fact in revision.require_facts()] == [
        (str, "tea", "crm"),
        (str, "role: CTO", "crm"),
    ]
    assert one({"source": Kind.CRM})[0].source == "crm"


hostile_values = st.sampled_from([None, 3, "x", "", "\ud800", [], {}, b"x", float("nan"), True, "2026-05-02", CREATED])
hostile_nodes = st.builds(
    duck,
    st.sampled_from(["SOUL:a", "SOUL:b", "SOUL:", None, 3, "SOUL:\ud800"]),
    id=hostile_values,
    created_at=hostile_values,
    updated_at=hostile_values,
    properties=hostile_values
    | st.dictionaries(
        st.sampled_from(["source", "recorded_at", "trust", "role", "_field_provenance"]),
        hostile_values | st.dictionaries(st.sampled_from(["role"]), hostile_values | st.just({"source": 5})),
    ),
)


@given(st.lists(hostile_nodes, max_size=6), st.randoms())
def test_any_permutation_of_any_nodes_gives_the_same_answer(nodes: list, chance) -> None:
    expected = scan(*nodes, fields={"role"})
    assert expected.count == len(nodes)
    chance.shuffle(nodes)
    assert scan(*nodes, fields={"role"}) == expected
    expected.content.encode()
    for fact in expected:
        assert repr(fact)


@given(st.lists(rows(), max_size=6, unique_by=lambda row: row[2]))
def test_a_scan_of_plain_nodes_equals_the_lane_of_their_rows(given_rows: list) -> None:
    nodes = []
    taken = []
    for number, (label, recorded, _, scope, source, trust, updated, _) in enumerate(given_rows):
        try:
            node = MemoryNode(
                id=f"n{number}",
                scope=TenantScope.parse(scope),
                label=label,
                source=source,
                recorded_at=recorded,
                trust=trust,
                updated_at=updated,
                properties={"role": "CTO"},
            )
        except InvalidInputError:
            continue
        nodes.append(node)
        taken.append((label, node.recorded, node.id, scope, node.source, trust, updated, '{"role":"CTO"}'))
    for fields in (frozenset(), {"role"}, {"role", "source", "trust", "recorded_at"}):
        assert scan(*nodes, fields=fields) == Lane.build(taken, prefix=PREFIX, profile_fields=fields).to_revision()


PROGRAM = """
from types import SimpleNamespace
from datetime import datetime
from promptkeel.lane import scan_steps
from promptkeel.scope import TenantScope
from promptkeel.steps import drive_blocking
class Memory:
    def query_nodes(self, scope, *, label_prefix=None, limit=None):
        return [self.node(n) for n in range(50)]
    def node(self, n):
        properties = {"source": "crm", "role": n, "city": "x", "recorded_at": f"2026-10-25T02:{n:02}:00"}
        times = {"created_at": datetime(2026, 1, 1), "updated_at": datetime(2026, 3, 29, 2, 30)}
        return SimpleNamespace(label=f"SOUL:{n % 7} é", id=n, properties=properties, **times)
found = drive_blocking(scan_steps(Memory(), TenantScope.parse("org:a"), "SOUL:", {"role", "city", "lang"}))
print(ascii((found.revision, found.content)))
"""


def test_hash_seed_time_zone_and_locale_change_nothing() -> None:
    answers = set()
    for seed, zone, locale in (
        ("0", "UTC", "C"),
        ("1", "Pacific/Kiritimati", "C.UTF-8"),
        ("77", "America/New_York", "POSIX"),
    ):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": locale}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        answers.add(done.stdout)
    (answer,) = answers
    assert answer.startswith("('mem:50:2026-03-29T02:30:00Z:")


def test_newest_compares_instants_and_is_printed_in_utc() -> None:
    late = datetime(2026, 5, 2, 1, tzinfo=timezone(timedelta(hours=-2)))
    revision = scan(duck(updated_at=NAIVE), duck(updated_at=late, id="n2"), SimpleNamespace(label="SOUL:x"))
    assert revision.revision.startswith("mem:3:2026-05-02T03:00:00Z:")
    assert datetime_of(instant_of(late)) == late


@pytest.mark.parametrize(
    "changed",
    [
        {"source": "user-correction"},
        {"recorded_at": "2026-05-31"},
        {"recorded_at": None},
        {"trust": "inferred"},
        {"role": "CEO"},
        {"_field_provenance": {"role": {"source": "user-correction"}}},
        {"_field_provenance": {"role": {"recorded_at": "2026-05-31"}}},
        {"_field_provenance": {"role": {"trust": "inferred"}}},
    ],
)
def test_a_change_of_nothing_but_provenance_changes_the_revision(changed: dict) -> None:
    properties = {"source": "onboarding", "recorded_at": "2026-01-01", "trust": "user", "role": "CTO"}
    before = scan(duck(properties=properties), fields={"role"})
    after = scan(duck(properties={**properties, **changed}), fields={"role"})
    assert (before.count, before.facts[0].value) == (after.count, after.facts[0].value)
    assert before.revision != after.revision


def test_an_equal_instant_in_another_spelling_changes_nothing() -> None:
    spellings = ["2026-05-02T10:00:00Z", "2026-05-02T12:00:00+02:00", "2026-05-02T10:00:00", "2026-05-02 10:00"]
    assert len({scan(duck(properties={"recorded_at": spelling})).revision for spelling in spellings}) == 1
