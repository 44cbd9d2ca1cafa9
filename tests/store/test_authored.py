"""Authored blocks in every store: appends that compare and set, histories that stay, a namespace that nobody forges."""

from __future__ import annotations

import pytest

from promptkeel.errors import (
    ContentTooLargeError,
    InvalidInputError,
    InvalidTextError,
    NodeExistsError,
    NodeNotFoundError,
    ReservedLabelError,
    RevisionConflictError,
)
from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.steps import drive_blocking
from promptkeel.store.authored import NO_REVISION, block_prefix, head_label, revision_id, revision_of
from promptkeel.store.base import LaneRequest
from promptkeel.store.facade import StoreCore
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import AppendBlock, Correct, Erase, Link, Put, Remember, Retract, Unlink
from promptkeel.upkeep.checking import check_engine
from promptkeel.upkeep.compaction import Retention, compact
from promptkeel.upkeep.copying import copy_store
from promptkeel.upkeep.erasing import erase_steps
from promptkeel.upkeep.erasure import EraseAll
from strategies import pickled

ACME = TenantScope.parse("org:acme")
ADA = TenantScope.parse("org:acme/user:ada")


def append(engine, content, *, scope=ACME, block="RULES", author="user:ada", **given):
    (outcome,) = engine.apply([AppendBlock(scope=scope, block=block, content=content, author=author, **given)])
    return revision_of(outcome.node), outcome.kind


def numbers(engine, scope=ACME, block="RULES"):
    return sorted(revision_of(node).number for node in engine.revisions(scope, block))


def heads(engine, scope=ACME, block="RULES"):
    found = engine.query_nodes(scope, head_label(block), None)
    return [revision_of(node) for node in found if node.scope == scope]


def test_an_append_makes_a_head_and_keeps_what_was_before(engine):
    first, _ = append(engine, "be kind", message="begin")
    second, kind = append(engine, "be kind\nbe brief", author="user:u1", expected_head=first)
    assert kind == "appended"
    assert (first.number, second.number, second.parent) == (1, 2, first.id)
    assert heads(engine) == [second]
    kept = {each.number: each for each in map(revision_of, engine.revisions(ACME, "RULES"))}
    assert kept[1].content == "be kind"
    assert (kept[1].message, kept[1].author, kept[1].trust, kept[1].is_head) == ("begin", "user:ada", "operator", False)
    assert check_engine(engine).is_healthy


@pytest.mark.parametrize("expected", ["somebody's", NO_REVISION])
def test_an_append_to_another_head_than_expected_is_a_conflict_that_pickles_and_leaves_nothing(engine, expected):
    head, _ = append(engine, "be kind")
    before = engine.heads(ACME)
    with pytest.raises(RevisionConflictError) as raised:
        append(engine, "be brief", expected_head=expected)
    error = pickled(raised.value)
    assert (error.block, error.scope, error.expected, error.actual) == ("RULES", "org:acme", expected, head.id)
    assert engine.heads(ACME) == before
    assert numbers(engine) == [1]


def test_the_first_append_may_expect_no_revision_and_not_one_that_is_not_there(engine):
    with pytest.raises(RevisionConflictError) as raised:
        append(engine, "be kind", expected_head="gone")
    assert raised.value.actual is None
    assert append(engine, "be kind", expected_head=NO_REVISION)[0].number == 1


def test_an_equal_append_is_no_change(engine):
    head, _ = append(engine, "be kind")
    before = engine.heads(ACME)
    again, kind = append(engine, "be kind", author="user:u1", message="once more", expected_head=head)
    assert (again, kind) == (head, "unchanged")
    assert engine.heads(ACME) == before


def test_blocks_and_scopes_have_histories_of_their_own(engine):
    for scope in (DEPLOYMENT, ACME, ADA):
        for block in ("RULES", "RULES2"):
            append(engine, f"{scope.path}{block}", scope=scope, block=block)
    for scope in (DEPLOYMENT, ACME, ADA):
        assert [each.content for each in heads(engine, scope)] == [f"{scope.path}RULES"]
        assert numbers(engine, scope) == [1]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"content": " \n"}, InvalidTextError),
        ({"content": "a\0"}, InvalidTextError),
        ({"content": 7}, InvalidTextError),
        ({"content": "é" * 524_289}, ContentTooLargeError),
        ({"content": "12345", "max_bytes": 4}, ContentTooLargeError),
        ({"content": "a", "max_bytes": 0}, InvalidInputError),
        ({"content": "a", "message": " "}, InvalidTextError),
        ({"content": "a", "message": "m" * 10_001}, ContentTooLargeError),
        ({"content": "a", "author": None}, InvalidTextError),
        ({"content": "a", "author": " "}, InvalidTextError),
        ({"content": "a", "trust": None}, InvalidInputError),
        ({"content": "a", "trust": "root"}, InvalidInputError),
        ({"content": "a", "block": "rules"}, InvalidInputError),
        ({"content": "a", "block": "A:B"}, InvalidInputError),
        ({"content": "a", "block": "A" * 65}, InvalidInputError),
        ({"content": "a", "block": None}, InvalidInputError),
        ({"content": "a", "scope": "org:acme"}, InvalidInputError),
        ({"content": "a", "expected_head": 1}, InvalidInputError),
    ],
)
def test_what_no_revision_can_be_is_refused_by_type(given, error):
    with pytest.raises(error):
        AppendBlock(**{"scope": ACME, "block": "RULES", "author": "user:ada", **given})


def test_content_is_kept_to_the_last_byte_up_to_the_limit(engine):
    content = " \r\né\u2028" + "x" * (1_048_576 - 8)
    assert len(content.encode()) == 1_048_576
    assert append(engine, content)[0].content == content
    assert heads(engine)[0].content == content


LABEL, ID = head_label("RULES"), revision_id(ACME, "RULES", 1)


def forged(**given):
    return MemoryNode(**{"id": "n1", "scope": ACME, "label": "SOUL:x", **given})


@pytest.mark.parametrize(
    "forge",
    [
        lambda: Remember(forged(label=LABEL, properties={"content": "obey"})),
        lambda: Remember(forged(label="@block:")),
        lambda: Remember(forged(id=ID)),
        lambda: Put(forged(label=LABEL)),
        lambda: Put(forged(id=ID), "anything"),
        lambda: Put(forged(id=revision_id(ACME, "RULES", 2))),
        lambda: Correct(scope=ACME, node_id="n1", label=LABEL),
        lambda: Correct(scope=ACME, node_id=ID, properties={"content": "obey"}),
        lambda: Retract(ACME, ID),
        lambda: Link(MemoryEdge(scope=ACME, start="n1", type="supersedes", end=ID)),
        lambda: Link(MemoryEdge(scope=ACME, start=ID, type="derived_from", end="n1")),
    ],
)
def test_no_write_of_memory_reaches_the_namespace(forge):
    with pytest.raises(ReservedLabelError):
        forge()


def test_no_method_of_a_store_reaches_the_namespace(store):
    store.apply([AppendBlock(scope=ACME, block="RULES", content="be kind", author="user:ada")])
    (head,) = store.query_nodes(ACME, label_prefix=LABEL)
    for forge in (
        lambda: store.put(forged(label=LABEL)),
        lambda: store.put(head, expected=head),
        lambda: store.put(forged(id=ID), expected=head.version),
        lambda: store.retract(ACME, ID),
        lambda: store.link(MemoryEdge(scope=ACME, start=ID, type="supersedes", end=ID)),
    ):
        with pytest.raises(ReservedLabelError):
            forge()
    assert list(store.query_nodes(ACME, label_prefix=LABEL)) == [head]


def test_memory_may_refer_to_a_revision(engine):
    revision, _ = append(engine, "be kind")
    engine.apply([Put(forged()), Link(MemoryEdge(scope=ACME, start="n1", type="derived_from", end=revision.id))])
    engine.apply([Unlink(MemoryEdge(scope=ACME, start="n1", type="derived_from", end=revision.id))])
    assert heads(engine) == [revision]


def test_a_history_outlives_the_log(open_backend):
    engine = open_backend(log_limit=1)
    for number in range(5):
        append(engine, f"rule {number}")
    list(compact(engine, Retention(changes=1)))
    assert numbers(engine) == [1, 2, 3, 4, 5]
    assert check_engine(engine).is_healthy


def test_heads_changes_and_reads_of_the_past_hold_for_it(engine):
    append(engine, "be kind")
    past = engine.heads(ADA)
    second, _ = append(engine, "be brief")
    assert engine.heads(ADA) != past
    (then,) = engine.nodes_as_of(ADA, past, head_label("RULES")).nodes
    assert revision_of(then).content == "be kind"
    update = engine.catch_up(ADA, [LaneRequest(head_label("RULES"), past)])
    assert [row[2] for row in update.lanes[0].rows] == [second.id]


def test_an_erased_head_leaves_none_and_its_number_is_not_used_again(engine):
    append(engine, "be kind")
    second, _ = append(engine, "the key is 4711")
    (outcome,) = engine.apply([Erase(ACME, second.id)])
    assert outcome.receipt.node_id == second.id
    assert heads(engine) == []
    third, _ = append(engine, "be brief", expected_head=NO_REVISION)
    assert (third.number, third.parent) == (3, None)
    assert numbers(engine) == [1, 3]
    assert check_engine(engine).is_healthy


def test_erasing_a_scope_erases_its_blocks_with_receipts(engine):
    for content in ("be kind", "be brief"):
        append(engine, content)
        append(engine, content, scope=ADA)
    receipt = drive_blocking(erase_steps(StoreCore(engine), EraseAll(ACME)))
    assert len(receipt.receipts) == 2
    assert (numbers(engine), numbers(engine, ADA)) == ([], [1, 2])
    assert append(engine, "be kind again")[0].number == 3
    assert check_engine(engine).is_healthy


def test_a_block_is_erased_by_its_prefix_whole_whatever_the_log_remembers(engine):
    for content in ("be kind", "be brief", "be swift"):
        append(engine, content)
        append(engine, content, block="RULES2")
    list(compact(engine, Retention(changes=1)))
    receipt = drive_blocking(erase_steps(StoreCore(engine), EraseAll(ACME, label_prefix=block_prefix("RULES"))))
    assert len(receipt.receipts) == 3
    assert (numbers(engine), numbers(engine, block="RULES2")) == ([], [1, 2, 3])


def test_a_copy_has_the_same_history(engine, tmp_path, clock):
    for content in ("be kind", "the key is 4711", "be brief"):
        revision, _ = append(engine, content)
        if "4711" in content:
            secret = revision
    engine.apply([Erase(ACME, secret.id)])
    target = open_engine(f"sqlite:///{tmp_path / 'copy.db'}", clock=clock)
    try:
        copy_store(engine, target)
        by_id = [sorted(each.revisions(ACME, "RULES"), key=lambda node: node.id) for each in (engine, target)]
        assert by_id[0] == by_id[1]
        assert check_engine(target).is_healthy
        assert append(target, "be swift", expected_head=heads(engine)[0])[0].number == 4
    finally:
        target.close()


def test_an_id_that_somebody_uses_cannot_be_in_the_way(engine):
    with pytest.raises(ReservedLabelError):
        engine.apply([Put(forged(id=ID))])
    with pytest.raises(NodeNotFoundError):
        engine.get(ACME, ID)
    assert append(engine, "be kind")[0].id == ID
    with pytest.raises((NodeExistsError, ReservedLabelError)):
        engine.apply([Put(forged(id=ID))])
