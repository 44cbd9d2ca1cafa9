"""The peer's own answers for its lanes: ours agree, but where the design decides otherwise.

The vectors stand beside the repository and are not part of it; without them there is nothing to compare with.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from promptkeel.errors import ScannerError
from promptkeel.instants import format_instant, instant_of
from promptkeel.lane import scan_steps
from promptkeel.model import BlockRevision
from promptkeel.scope import TenantScope
from promptkeel.steps import drive_blocking

VECTORS = Path(__file__).parents[3] / "shared" / "vectors" / "lane.json"

CASES: dict[str, Any] = {}
if VECTORS.exists():
    CASES = {case["name"]: case for case in json.loads(VECTORS.read_text())["cases"]}
else:
    pytestmark = pytest.mark.skip(reason=f"the peer's answers are not here: {VECTORS}")

Facts = list[tuple[str, str | None, str | None]]

FOREIGN = "a label without the prefix is an error"
NULL = "an explicit null is not recorded, whatever the creation time"
STRICT = "the grammar of times is strict: no week dates, no hour without minutes"
ORDER = "nodes of equal labels are in the order of instants, not of their spelling"
PROPERTIES = "properties that cannot be read leave nothing recorded, not the creation time"
NUMBER = "a declared field that is a number is a fact"

OTHERWISE: dict[str, frozenset[str]] = {
    "prefix longer than label": frozenset({FOREIGN}),
    "recorded_at None falls back to created_at": frozenset({NULL}),
    "recorded_at '2026-W18-6'": frozenset({STRICT}),
    "recorded_at '2026-05-02T10'": frozenset({STRICT}),
    "tiebreak fraction vs offset": frozenset({ORDER}),
    "field provenance recorded_at None goes to created_at": frozenset({NULL}),
    "properties a list": frozenset({PROPERTIES}),
    "label None or empty": frozenset({FOREIGN}),
    "random seed 1000": frozenset({FOREIGN}),
    "random seed 1002": frozenset({NULL, NUMBER}),
    "random seed 1006": frozenset({NULL, FOREIGN}),
    "random seed 1010": frozenset({NULL, NUMBER}),
    "random seed 1012": frozenset({FOREIGN}),
    "random seed 1016": frozenset({FOREIGN}),
    "random seed 1018": frozenset({NULL, NUMBER, FOREIGN}),
    "random seed 1020": frozenset({NULL, FOREIGN}),
    "random seed 1022": frozenset({NUMBER, FOREIGN}),
    "random seed 1024": frozenset({NULL, NUMBER, FOREIGN}),
    "random seed 1026": frozenset({NUMBER, FOREIGN}),
    "random seed 1028": frozenset({FOREIGN}),
    "random seed 1032": frozenset({NUMBER, FOREIGN}),
    "random seed 1038": frozenset({NULL, FOREIGN}),
    "random seed 1040": frozenset({NULL, NUMBER, FOREIGN}),
    "random seed 1042": frozenset({NUMBER, FOREIGN}),
    "random seed 1046": frozenset({NULL, NUMBER, FOREIGN}),
    "random seed 1050": frozenset({NULL, NUMBER, FOREIGN}),
    "random seed 1056": frozenset({NULL, NUMBER}),
    "random seed 1058": frozenset({NULL, NUMBER, FOREIGN}),
}
"""Where the design decides otherwise, by case, with every reason. What is left of the case agrees."""

UNENCODABLE = "lone surrogate label"
"""The peer loses the whole lane to one such label; here it costs its node."""


def value_of(spelled: Any) -> Any:
    if isinstance(spelled, dict):
        if "__datetime__" in spelled:
            return datetime.fromisoformat(spelled["__datetime__"])
        return {key: value_of(value) for key, value in spelled.items()}
    return spelled


def time_of(spelled: Any) -> Any:
    if isinstance(spelled, dict):
        return spelled["__raw__"]
    return None if spelled is None else datetime.fromisoformat(spelled)


def scan(case: dict[str, Any], reasons: frozenset[str] = frozenset()) -> BlockRevision:
    """Our answer; with reasons, after the nodes are rewritten so that each of these makes no difference."""
    prefix = case["label_prefix"]
    nodes = [
        SimpleNamespace(
            id=node["id"],
            label=node["label"],
            properties=value_of(node["properties"]),
            created_at=time_of(node["created_at"]),
            updated_at=time_of(node["updated_at"]),
        )
        for node in case["nodes"]
    ]
    for node in nodes:
        if FOREIGN in reasons and isinstance(node.label, str) and not node.label.startswith(prefix):
            node.label = prefix + node.label
        if PROPERTIES in reasons and not isinstance(node.properties, dict):
            node.properties = {}
        if NUMBER in reasons and isinstance(node.properties, dict):
            for field in case["profile_fields"]:
                if isinstance(node.properties.get(field), int):
                    del node.properties[field]
        for held in provenances(node.properties):
            if NULL in reasons and held.get("recorded_at", 0) is None:
                held["recorded_at"] = node.created_at
            if STRICT in reasons and isinstance(held.get("recorded_at"), str):
                held["recorded_at"] = peer_time(held["recorded_at"])
    scanner = SimpleNamespace(query_nodes=lambda scope, label_prefix, limit: nodes)  # noqa: ARG005 - the protocol's names
    scope = TenantScope.parse("org:acme/user:ada")
    return drive_blocking(scan_steps(scanner, scope, prefix, frozenset(case["profile_fields"])))


def provenances(properties: object) -> list[dict[str, Any]]:
    if not isinstance(properties, dict):
        return []
    by_field = properties.get("_field_provenance")
    entries = by_field.values() if isinstance(by_field, dict) else ()
    return [properties, *(entry for entry in entries if isinstance(entry, dict))]


def peer_time(text: str) -> datetime | str:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


def canonical(stamp: str | None) -> str | None:
    return None if stamp is None else format_instant(instant_of(datetime.fromisoformat(stamp)))


def collapsed(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def ours(revision: BlockRevision) -> Facts:
    return [
        (collapsed(fact.value), fact.source, None if fact.recorded is None else format_instant(fact.recorded))
        for fact in revision.require_facts()
    ]


def theirs(case: dict[str, Any]) -> Facts:
    return [(collapsed(f["value"]), f["source"], canonical(f["recorded_at"])) for f in case["expected"]["facts"]]


def newest(revision: str) -> str:
    return revision.removeprefix("mem:").rpartition(":")[0]


def agrees(case: dict[str, Any], reasons: frozenset[str] = frozenset()) -> bool:
    if "error" in case["expected"]:
        return False
    try:
        revision = scan(case, reasons)
    except ScannerError:
        return False
    count, _, stamp = newest(case["expected"]["revision"]).partition(":")
    expected = f"{count}:{stamp if stamp in ('unstamped', '') else canonical(stamp)}".removesuffix(":")
    in_order = sorted if reasons & {FOREIGN, ORDER} else list
    return newest(revision.revision) == expected and in_order(map(repr, ours(revision))) == in_order(
        map(repr, theirs(case))
    )


@pytest.mark.parametrize("name", [name for name in CASES if name not in OTHERWISE and name != UNENCODABLE])
def test_facts_order_count_and_newest_agree_with_the_peer(name: str) -> None:
    assert agrees(CASES[name])


@pytest.mark.parametrize("name", [name for name in CASES if name in OTHERWISE])
def test_only_the_listed_reasons_make_a_case_differ(name: str) -> None:
    reasons = OTHERWISE[name]
    assert agrees(CASES[name], reasons)
    for reason in reasons:
        assert not agrees(CASES[name], reasons - {reason})


def test_a_label_that_cannot_be_encoded_costs_its_node_alone() -> None:
    case = CASES[UNENCODABLE]
    assert case["expected"] == {"error": "UnicodeEncodeError"}
    revision = scan(case)
    assert (revision.facts, revision.count) == ((), 1)
    assert [entry.field for entry in revision.unreadable] == ["label"]


@pytest.mark.parametrize("name", [name for name, reasons in OTHERWISE.items() if FOREIGN in reasons and name in CASES])
def test_a_foreign_prefix_is_an_error(name: str) -> None:
    with pytest.raises(ScannerError, match="labels that start with"):
        scan(CASES[name])


def test_every_listed_case_is_one_of_the_peer_s() -> None:
    assert set(OTHERWISE) < set(CASES)
    assert len(CASES) == 78
