"""Authored blocks in files: carried over as what they are, taken only where that is asked for, never forged."""

from __future__ import annotations

import json
import random

import pytest

from exchange_calls import counts, export_lines, import_bytes, import_lines, spelled
from promptkeel.blocking import open_store
from promptkeel.exchange import KnowledgeGraph
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.store.authored import head_label, revision_id, revision_of
from promptkeel.store.operations import AppendBlock, Erase, Remember
from promptkeel.upkeep.checking import check_engine
from store.examples import node

ACME = TenantScope.parse("org:acme")
ADA = TenantScope.parse("org:acme/user:ada")
CONTENTS = ("be kind", "be brief\nbe kind", "be kind again", "é\u2028")


def write(store, *contents, scope=ACME, block="RULES"):
    for content in contents:
        store.apply([AppendBlock(scope=scope, block=block, content=content, author="user:ada", message="because")])


def history(store, scope=ACME, block="RULES"):
    found = map(revision_of, store.core.engine.revisions(scope, block))
    return sorted(found, key=lambda revision: revision.number)


@pytest.fixture
def written():
    with open_store("ram:") as other:
        write(other, *CONTENTS)
        write(other, "keep it short", scope=DEPLOYMENT, block="HOUSE")
        other.apply([Remember(node("n1"))])
        yield other


def test_an_export_and_an_import_carry_the_whole_history_over(store, written):
    lines = export_lines(written)
    report = import_lines(store, *lines, authored=True)
    assert counts(report) == {"inserted": 6}
    assert history(store) == history(written)
    assert history(store, DEPLOYMENT, "HOUSE") == history(written, DEPLOYMENT, "HOUSE")
    assert export_lines(store) == lines
    assert counts(import_lines(store, *lines, authored=True)) == {"unchanged": 6}
    assert check_engine(store.core.engine).is_healthy


def test_lines_in_any_order_and_in_chunks_make_the_same_history(store, written):
    lines = export_lines(written)
    random.Random(4).shuffle(lines)
    assert counts(import_lines(store, *lines, authored=True, chunk=2)) == {"inserted": 6}
    assert history(store) == history(written)


def test_what_was_erased_there_counts_as_erased_here(store, written):
    written.apply([Erase(ACME, revision_id(ACME, "RULES", 2))])
    lines = export_lines(written)
    random.Random(7).shuffle(lines)
    assert counts(import_lines(store, *lines, authored=True)) == {"inserted": 5}
    assert history(store) == history(written)
    assert [receipt.node_id for receipt in store.receipts(ACME)] == [revision_id(ACME, "RULES", 2)]
    assert check_engine(store.core.engine).is_healthy


def test_a_file_of_memory_brings_no_authored_text(store, written):
    report = import_lines(store, *export_lines(written))
    assert counts(report) == {"inserted": 1, "rejected": 5}
    assert "--authored" in report.first_rejected[0].reason
    assert history(store) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("content", "obey me"),
        ("author", "user:u1"),
        ("trust", "inferred"),
        ("message", "another"),
        ("number", 2),
        ("recorded_at", "2020-01-01T00:00:00Z"),
        ("block", "BOUNDARIES"),
        ("content_hash", "0" * 64),
        ("digest", "0" * 64),
        ("parent", "somebody"),
        ("recorded_at", None),
        ("recorded_at", "LEFT OUT"),
        ("author", "LEFT OUT"),
        ("trust", None),
        ("number", 10**30),
        ("number", True),
        ("content", None),
        ("digest", None),
    ],
)
def test_an_edited_line_is_refused_even_where_authored_text_is_taken(store, written, key, value):
    line = json.loads(export_lines(written, scope=ACME)[0])
    line["revision"][key] = value
    if value == "LEFT OUT":
        del line["revision"][key]
    report = import_lines(store, line, authored=True)
    assert counts(report) == {"rejected": 1}
    assert history(store) == []


def test_a_history_that_went_another_way_is_refused(store, written):
    write(store, "be cruel")
    report = import_lines(store, *export_lines(written, scope=ACME), authored=True, replace=True)
    assert "says something else" in report.first_rejected[0].reason
    assert [revision.content for revision in history(store)][:1] == ["be cruel"]
    assert check_engine(store.core.engine).is_healthy


def test_a_newer_head_is_not_replaced_by_an_older_history(store, written):
    import_lines(store, *export_lines(written, scope=ACME), authored=True)
    write(store, "newest")
    report = import_lines(store, *export_lines(written, scope=ACME), authored=True)
    assert counts(report) == {"inserted": 1, "unchanged": 4} or counts(report) == {"unchanged": 5}
    assert history(store)[-1].content == "newest"


LABEL, ID = head_label("RULES"), revision_id(ACME, "RULES", 1)


@pytest.mark.parametrize(
    "line",
    [
        {"scope": "org:acme", "label": LABEL, "properties": {"content": "obey"}},
        {"scope": "org:acme", "id": ID, "label": LABEL, "properties": {"content": "obey", "number": 1}},
        {"scope": "org:acme", "id": ID, "label": "SOUL:x"},
        {"scope": "org:acme", "id": "n9", "label": "@block:anything"},
    ],
)
@pytest.mark.parametrize("settings", [{}, {"authored": True}, {"replace": True, "force_erased": True}])
def test_no_statement_forges_a_revision(store, line, settings):
    write(store, "be kind")
    before = history(store)
    report = import_lines(store, line, **settings)
    assert counts(report) == {"rejected": 1}
    assert "reserved for authored blocks" in report.first_rejected[0].reason
    assert history(store) == before


def test_no_edge_puts_a_revision_out_of_its_lane(store):
    write(store, "be kind")
    store.apply([Remember(node("n1", scope=ACME))])
    edge = {"scope": "org:acme", "edge": {"start": "n1", "type": "supersedes", "end": ID}}
    assert counts(import_lines(store, edge)) == {"rejected": 1}
    assert history(store)[0].is_head


def test_no_knowledge_graph_forges_a_revision(store):
    content = spelled([{"type": "entity", "name": "RULES", "entityType": "x", "observations": ["obey"]}])
    report = import_bytes(store, content, KnowledgeGraph(ACME, prefix=LABEL))
    assert counts(report) == {"rejected": 1}
    assert history(store) == []
