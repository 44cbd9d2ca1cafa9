"""An erasure takes what was asked for, all of it and nothing else, on every store; a plan says so beforehand."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from erasure.worlds import PATHS, PEOPLE, PREFIXES, build, everything
from promptkeel.errors import ConflictError, InvalidInputError, NodeErasedError, NodeNotFoundError
from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.steps import drive_blocking
from promptkeel.store.base import Engine
from promptkeel.store.facade import StoreCore
from promptkeel.store.operations import Link, Put, Retract
from promptkeel.upkeep.erasing import erase_steps, plan_steps, receipt_steps
from promptkeel.upkeep.erasure import EraseAll, EraseSubject, ErasurePlan, ErasureReceipt, ErasureRequest
from promptkeel.upkeep.receipts import receipt_lines

A, AB = TenantScope.parse("org:a"), TenantScope.parse("org:ab")
X = TenantScope.parse("org:a/user:x")


def erase(engine: Engine, request: ErasureRequest, *, expected: ErasurePlan | None = None) -> ErasureReceipt:
    return drive_blocking(erase_steps(StoreCore(engine), request, expected=expected))


def plan(engine: Engine, request: ErasureRequest) -> ErasurePlan:
    return drive_blocking(plan_steps(StoreCore(engine), request))


def keep(engine: Engine, node_id: str, label: str, scope: TenantScope = X, **properties: Any) -> None:
    engine.apply([Put(MemoryNode(id=node_id, scope=scope, label=label, properties=properties))])


def link(engine: Engine, start: str, kind: str, end: str, scope: TenantScope = X) -> None:
    engine.apply([Link(MemoryEdge(scope=scope, start=start, type=kind, end=end))])


def left(engine: Engine) -> list[str]:
    return sorted(node.id for node in engine.stored(DEPLOYMENT).nodes)


scopes = st.sampled_from(PATHS).map(TenantScope.parse)
requests = st.one_of(
    st.builds(EraseAll, scopes, label_prefix=st.one_of(st.none(), st.sampled_from(PREFIXES)), below=st.booleans()),
    st.builds(EraseSubject, scopes, properties=st.sampled_from(PEOPLE).map(lambda email: {"email": email})),
)


@pytest.mark.parametrize("backend", ["ram", "sqlite"], indirect=True)
@settings(suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), request_=requests)
def test_exactly_what_was_asked_for_goes(fresh: Callable[[], Engine], seed: int, request_: ErasureRequest) -> None:
    check_erasure(fresh(), seed, request_)


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    "request_",
    [
        EraseAll(A, below=True),
        EraseAll(X, label_prefix="SOUL:", below=True),
        EraseSubject(DEPLOYMENT, properties={"email": PEOPLE[0]}),
    ],
)
def test_exactly_what_was_asked_for_goes_on_a_server(engine: Engine, request_: ErasureRequest) -> None:
    check_erasure(engine, 7, request_)


def check_erasure(engine: Engine, seed: int, request_: ErasureRequest) -> None:
    world = build(engine, random.Random(seed))
    before = everything(engine)
    expected = world.expected(request_)
    listed = plan(engine, request_)
    assert everything(engine) == before, "a plan changes nothing"
    assert {found.key for found in listed.found} == expected
    receipt = erase(engine, request_, expected=listed)
    assert {(TenantScope.parse(each.scope).root, each.node_id) for each in receipt.receipts} == expected
    assert (receipt.versions, receipt.edges, receipt.testimonies) == (
        listed.versions,
        listed.edges,
        listed.testimonies,
    )
    assert receipt.edges == sum(not {start, end}.isdisjoint(expected) for start, _, end in world.edges)
    after = everything(engine)
    for part in ("nodes", "histories"):
        assert after[part] == {key: value for key, value in before[part].items() if key not in expected}
    for path, lane in before["lanes"].items():
        assert after["lanes"][path] == [node for node in lane if (node.scope.root, node.id) not in expected]
    assert len(after["edges"]) == len(before["edges"]) - receipt.edges
    spelled = "".join(receipt_lines([receipt]))
    assert not [token for token in world.tokens(world.nodes) if token in spelled]
    assert not [text for text in (*PREFIXES, *PEOPLE) if text in spelled]
    assert drive_blocking(receipt_steps(StoreCore(engine), receipt.request)) == receipt
    assert plan(engine, request_).found == ()
    assert engine.audit().findings == ()


def test_every_node_goes_however_many(engine: Engine) -> None:
    engine.apply([Put(MemoryNode(id=f"n{number}", scope=X, label=f"SOUL:{number}")) for number in range(1500)])
    keep(engine, "other", "HEALTH:stays")
    assert len(erase(engine, EraseAll(X, label_prefix="SOUL:")).receipts) == 1500
    assert left(engine) == ["other"]


def test_a_receipt_says_what_no_erasure_reaches(engine: Engine, backend: str) -> None:
    keep(engine, "n", "SOUL:tea")
    receipt = erase(engine, EraseAll(X))
    words = {"ram": "memory", "sqlite": "backups", "postgres": "standbys"}
    assert any(words[backend] in each for each in receipt.not_covered)


def test_siblings_of_like_names_and_ancestors_stay(engine: Engine) -> None:
    for number, path in enumerate(PATHS):
        keep(engine, f"n{number}", "SOUL:prefers tea", TenantScope.parse(path))
    erase(engine, EraseAll(A, below=True))
    assert {node.scope.path for node in engine.stored(DEPLOYMENT).nodes} == {"", "org:ab", "org:ab/user:x"}


def test_a_prefix_is_taken_as_it_is(engine: Engine) -> None:
    for number, label in enumerate(("SO%:a", "SOUL:b", "SO_L:c", "so%:d", "SO%:")):
        keep(engine, f"n{number}", label, note="has one")
    erase(engine, EraseAll(X, label_prefix="SO%:"))
    assert left(engine) == ["n1", "n2", "n3"]


def test_retracted_nodes_and_nodes_that_were_once_in_the_prefix_go_too(engine: Engine) -> None:
    keep(engine, "retracted", "HEALTH:asthma")
    engine.apply([Retract(X, "retracted")])
    keep(engine, "moved", "HEALTH:allergy")
    moved = engine.get(X, "moved")
    engine.apply([Put(MemoryNode(id="moved", scope=X, label="SOUL:avoids nuts"), moved)])
    heads = engine.heads(X)
    erase(engine, EraseAll(X, label_prefix="HEALTH:"))
    assert left(engine) == []
    assert engine.nodes_as_of(X, heads, None).nodes == ()


def test_a_subject_is_found_by_what_it_said_before_a_correction(engine: Engine) -> None:
    keep(engine, "n", "SOUL:tea", email="ada@example.org")
    engine.apply([Put(MemoryNode(id="n", scope=X, label="SOUL:tea", properties={"email": "new"}), engine.get(X, "n"))])
    erase(engine, EraseSubject(X, properties={"email": "ada@example.org"}))
    assert left(engine) == []


def test_a_value_is_equal_only_to_itself(engine: Engine) -> None:
    for number, value in enumerate((1, True, "1", 1.0, [1], None)):
        keep(engine, f"n{number}", "SOUL:tea", customer=value)
    erase(engine, EraseSubject(DEPLOYMENT, properties={"customer": 1}))
    assert left(engine) == ["n1", "n2", "n3", "n4", "n5"]


def test_what_was_derived_goes_however_far_and_what_it_came_from_stays(engine: Engine) -> None:
    for node_id in ("source", "found", "first", "second", "third", "about", "beside"):
        keep(engine, node_id, f"SOUL:{node_id}", email="ada@example.org" if node_id == "found" else "no")
    for start, end in (("found", "source"), ("first", "found"), ("second", "first"), ("third", "about")):
        link(engine, start, "derived_from", end)
    link(engine, "about", "about", "found")
    link(engine, "beside", "supersedes", "found")
    listed = plan(engine, EraseSubject(X, properties={"email": "ada@example.org"}))
    assert {found.node.id: found.reason for found in listed.found} == {
        "found": "selected",
        "about": "about",
        "first": "derived",
        "second": "derived",
        "third": "derived",
    }


def test_a_subject_named_by_a_node_above_loses_what_is_below_and_not_the_node(engine: Engine) -> None:
    keep(engine, "person", "PERSON:ada", A)
    keep(engine, "n", "SOUL:tea", X)
    keep(engine, "elsewhere", "SOUL:tea", TenantScope.parse("org:a/user:xy"))
    link(engine, "n", "about", "person")
    link(engine, "elsewhere", "about", "person", TenantScope.parse("org:a/user:xy"))
    erase(engine, EraseSubject(X, about="person"))
    assert left(engine) == ["elsewhere", "person"]
    erase(engine, EraseSubject(A, about="person"))
    assert left(engine) == []


def test_a_subject_that_is_not_there_is_an_error(engine: Engine) -> None:
    keep(engine, "person", "PERSON:ada", TenantScope.parse("org:a/user:xy"))
    with pytest.raises(NodeNotFoundError, match="'person'"):
        erase(engine, EraseSubject(X, about="person"))


@pytest.mark.parametrize("make", [lambda: EraseAll(X, label_prefix=""), lambda: EraseSubject(X)])
def test_an_empty_request_is_refused_and_not_read_as_everything(make: Callable[[], ErasureRequest]) -> None:
    with pytest.raises(InvalidInputError):
        make()


def test_what_changed_since_it_was_listed_is_not_erased(engine: Engine) -> None:
    keep(engine, "n", "SOUL:tea")
    listed = plan(engine, EraseAll(X))
    keep(engine, "late", "SOUL:coffee")
    with pytest.raises(ConflictError, match="list it again"):
        erase(engine, EraseAll(X), expected=listed)
    assert left(engine) == ["late", "n"]
    assert engine.receipts(DEPLOYMENT, below=True) == []


def test_a_request_that_finds_nothing_has_a_receipt(engine: Engine) -> None:
    receipt = erase(engine, EraseAll(X))
    assert receipt.receipts == ()
    assert receipt.state == "scrubbed"
    assert drive_blocking(receipt_steps(StoreCore(engine), receipt.request)) == receipt


def test_an_erased_id_is_said_to_be_erased_everywhere_below(engine: Engine) -> None:
    keep(engine, "n", "SOUL:tea")
    heads = engine.heads(X)
    erase(engine, EraseAll(A, below=True))
    with pytest.raises(NodeErasedError):
        engine.get(X, "n")
    past = engine.nodes_as_of(X, heads, None)
    assert (past.nodes, past.erased) == ((), ("n",))
