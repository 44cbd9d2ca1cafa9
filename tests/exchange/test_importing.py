"""An import takes every good line once, says why it refuses the others, and changes nothing when it is run again."""

from __future__ import annotations

import io
import json
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exchange_calls import counts, export_lines, import_bytes, import_lines, spelled
from promptkeel.blocking import open_store
from promptkeel.errors import ExchangeError, InvalidInputError
from promptkeel.exchange import ImportSettings, JsonLines, import_steps
from promptkeel.exchange.jsonl import statement_line
from promptkeel.exchange.reading import LineReader
from promptkeel.instants import format_instant
from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.steps import drive, drive_blocking
from promptkeel.store.operations import Correct
from strategies import nodes

SCOPE = TenantScope.parse("org:acme/user:u1")
TEA = {"scope": SCOPE.path, "label": "SOUL:prefers tea", "source": "onboarding", "recorded_at": "2026-05-02T10:00:00Z"}
KNOWN = {**TEA, "id": "n1"}


def held(store):
    """Everything in the store, with its times and its head, so that any change shows."""
    stored = drive_blocking(store.core.stored(TenantScope()))
    return stored.nodes, stored.edges, store.heads(SCOPE)


def unique(found):
    return list({(node.scope.root, node.id): node for node in found}.values())


# -- round trips


@given(st.lists(nodes, max_size=6).map(unique))
def test_what_an_import_took_an_export_gives_back_and_another_store_takes(given_nodes):
    with open_store("ram:") as first, open_store("ram:") as second:
        report = import_lines(first, *map(statement_line, given_nodes))
        assert counts(report) == ({"inserted": len(given_nodes)} if given_nodes else {})
        lines = export_lines(first, everything=True)
        assert sorted(lines) == sorted(map(statement_line, given_nodes))
        import_lines(second, *lines)
        assert export_lines(second, everything=True) == lines
        assert len(export_lines(second)) == sum(node.state == "live" for node in given_nodes)


@settings(max_examples=max(1, settings.default.max_examples // 4))
@given(st.lists(nodes, max_size=4).map(unique))
def test_a_file_on_disk_gives_back_what_it_took(given_nodes):
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            with open_store(f"sqlite:///{folder}/memory.db") as store:
                import_lines(store, *map(statement_line, given_nodes))
        with open_store(f"sqlite:///{folder}/memory.db") as store:
            assert sorted(export_lines(store, everything=True)) == sorted(map(statement_line, given_nodes))


def test_edges_go_out_and_in_with_their_ends(store):
    lines = [
        {"scope": "org:acme", "id": "top", "label": "SOUL:top", "recorded_at": None},
        {**KNOWN, "id": "a"},
        {**KNOWN, "id": "b", "label": "SOUL:b"},
        {"scope": SCOPE.path, "edge": {"start": "a", "type": "about", "end": "top", "properties": {"weight": 1}}},
        {"scope": SCOPE.path, "edge": {"start": "a", "type": "derived_from", "end": "b"}},
    ]
    assert counts(import_lines(store, *lines)) == {"inserted": 3, "linked": 2}
    lines = [lines[0], lines[2], lines[1], *lines[3:]]
    assert [json.loads(line) for line in export_lines(store)] == lines
    assert counts(import_lines(store, *lines)) == {"unchanged": 5}
    # Below a scope: its own edges, also where they reach above it.
    assert [json.loads(line) for line in export_lines(store, SCOPE)] == lines[1:]


def test_a_retracted_node_is_exported_on_request_only_and_its_edges_with_it(store):
    import_lines(store, KNOWN, {**KNOWN, "id": "b", "label": "SOUL:b"})
    store.link(MemoryEdge(scope=SCOPE, start="n1", type="about", end="b"))
    store.retract(SCOPE, "b")
    assert [json.loads(line) for line in export_lines(store)] == [KNOWN]
    everything = export_lines(store, everything=True)
    assert [json.loads(line).get("state", "live") for line in everything[:2]] == ["retracted", "live"]
    with open_store("ram:") as other:
        assert counts(import_lines(other, *everything)) == {"inserted": 2, "linked": 1}
        assert other.get(SCOPE, "b").state == "retracted"
        assert export_lines(other, everything=True) == everything


def test_a_superseded_node_stays_superseded_on_its_way(store):
    import_lines(store, KNOWN, {**KNOWN, "id": "b", "label": "SOUL:b"})
    store.link(MemoryEdge(scope=SCOPE, start="b", type="supersedes", end="n1"))
    everything = export_lines(store, everything=True)
    with open_store("ram:") as other:
        import_lines(other, *everything)
        assert other.get(SCOPE, "n1").state == "superseded"
        assert export_lines(other, everything=True) == everything


# -- again, and after others have written

LINES = st.lists(
    st.one_of(
        st.builds(
            lambda number, source, recorded: {
                "scope": SCOPE.path,
                "label": f"SOUL:{number}",
                "source": source,
                **recorded,
            },
            st.integers(0, 4),
            st.sampled_from(["a", "b"]),
            st.sampled_from([{}, {"recorded_at": None}, {"recorded_at": "2026-05-02T10:00:00Z"}]),
        ),
        st.builds(
            lambda number, text, properties: {
                "scope": SCOPE.path,
                "id": f"n{number}",
                "label": f"SOUL:{text}",
                "properties": properties,
            },
            st.integers(0, 3),
            st.sampled_from(["x", "y"]),
            st.sampled_from([{}, {"role": "CTO"}, {"role": 1}, {"role": True}]),
        ),
        st.builds(
            lambda start, end: {"scope": SCOPE.path, "edge": {"start": f"n{start}", "type": "about", "end": f"n{end}"}},
            st.integers(0, 4),
            st.integers(0, 4),
        ),
        st.sampled_from(["{", "", "  ", "[]", '{"scope": "x"}']),
    ),
    max_size=12,
)


@given(LINES, st.booleans())
def test_running_it_again_changes_nothing(lines, replace):
    with open_store("ram:") as store:
        first = import_lines(store, *lines, replace=replace)
        before = held(store)
        again = import_lines(store, *lines, replace=replace)
        assert held(store) == before
        assert again.rejected == first.rejected
        assert again.inserted == again.updated == again.confirmed == again.linked == 0


@given(LINES, st.integers(1, 5), st.booleans())
def test_chunks_and_a_dry_run_take_what_one_transaction_takes(lines, chunk, replace):
    with open_store("ram:") as whole, open_store("ram:") as parts:
        dry = import_lines(whole, *lines, dry_run=True, replace=replace)
        assert held(whole)[:2] == ((), ())
        report = import_lines(whole, *lines, replace=replace)
        chunked = import_lines(parts, *lines, chunk=chunk, replace=replace)
        assert counts(dry) == counts(report) == counts(chunked)
        assert [each.line for each in chunked.first_rejected] == [each.line for each in report.first_rejected]
        assert _without_times(export_lines(whole)) == _without_times(export_lines(parts))
        assert parts.core.engine.mark(ImportSettings().mark_key) is None


def _without_times(lines):
    return [{**json.loads(line), "recorded_at": 0} for line in lines]


def test_an_absent_time_is_when_the_line_was_first_taken(store):
    line = {"scope": SCOPE.path, "label": "SOUL:prefers tea", "source": "onboarding"}
    assert counts(import_lines(store, line)) == {"inserted": 1}
    (node,) = store.query_nodes(SCOPE)
    assert node.recorded == node.created
    assert counts(import_lines(store, line)) == {"unchanged": 1}
    assert counts(import_lines(store, {**line, "id": node.id})) == {"unchanged": 1}
    assert counts(import_lines(store, {**line, "source": "another"})) == {"confirmed": 1}
    assert counts(import_lines(store, {**line, "source": "another"})) == {"unchanged": 1}
    assert [each.source for each in store.history(SCOPE, node.id).testimonies] == ["another"]


def test_an_import_never_reverts_a_correction_or_a_retraction(store):
    lines = (KNOWN, {**KNOWN, "id": "n2", "label": "SOUL:b"}, {**TEA, "label": "SOUL:c"}, {**TEA, "label": "SOUL:d"})
    import_lines(store, *lines)
    c, d = (node.id for node in store.query_nodes(SCOPE) if node.label in ("SOUL:c", "SOUL:d"))
    store.apply([Correct(scope=SCOPE, node_id=node_id, label="SOUL:now") for node_id in ("n1", c)])
    store.retract(SCOPE, "n2")
    store.retract(SCOPE, d)
    before = held(store)
    for replace in (False, True):
        assert counts(import_lines(store, *lines, replace=replace)) == {"unchanged": 4}
    assert held(store) == before


@pytest.mark.parametrize(
    "other",
    [
        {"label": "SOUL:prefers coffee"},
        {"source": "another"},
        {"recorded_at": None},
        {"trust": "user"},
        {"properties": {"role": "CTO"}},
        {"state": "retracted"},
    ],
)
def test_an_id_in_use_with_other_content_is_refused_unless_it_is_replaced(store, other):
    import_lines(store, KNOWN)
    before = held(store)
    report = import_lines(store, {**KNOWN, **other})
    assert [each.reason for each in report.first_rejected] == [
        "id 'n1' is in use with other content; --replace overwrites it"
    ]
    assert held(store) == before
    assert counts(import_lines(store, {**KNOWN, **other}, replace=True)) == {"updated": 1}
    assert [json.loads(line) for line in export_lines(store, everything=True)] == [{**KNOWN, **other}]
    assert len(store.history(SCOPE, "n1").versions) == 2


def test_an_id_in_use_at_another_scope_of_the_root_is_refused_whatever_is_asked(store):
    import_lines(store, KNOWN)
    for replace in (False, True):
        report = import_lines(store, {**KNOWN, "scope": "org:acme/user:u2"}, replace=replace)
        assert "is in use" in report.first_rejected[0].reason
    assert counts(import_lines(store, {**KNOWN, "scope": "org:other"})) == {"inserted": 1}


def test_other_properties_of_the_same_statement_are_refused_unless_they_are_replaced(store):
    import_lines(store, TEA)
    line = {**TEA, "properties": {"role": "CTO"}}
    report = import_lines(store, line)
    assert "other properties" in report.first_rejected[0].reason
    assert counts(import_lines(store, line, replace=True)) == {"updated": 1}
    assert counts(import_lines(store, TEA, line)) == {"unchanged": 2}
    assert store.query_nodes(SCOPE)[0].properties["role"] == "CTO"


def test_an_erased_statement_does_not_come_back(store):
    import_lines(store, KNOWN, {**TEA, "label": "SOUL:b"})
    for node in store.query_nodes(SCOPE):
        store.erase(SCOPE, node.id)
    for replace in (False, True):
        report = import_lines(store, KNOWN, {**TEA, "label": "SOUL:b"}, replace=replace)
        assert counts(report) == {"rejected": 2}
        assert all("was erased" in each.reason for each in report.first_rejected)
    assert store.query_nodes(SCOPE) == []


def test_an_edge_is_refused_where_an_end_is_missing_or_lineage_would_go_round(store):
    edge = {"start": "n1", "type": "derived_from", "end": "b"}
    report = import_lines(
        store,
        {"scope": SCOPE.path, "edge": edge},
        KNOWN,
        {**KNOWN, "id": "b", "label": "SOUL:b"},
        {"scope": SCOPE.path, "edge": edge},
        {"scope": SCOPE.path, "edge": {**edge, "start": "b", "end": "n1"}},
        {"scope": SCOPE.path, "edge": {**edge, "properties": {"a": 1}}},
        {"scope": SCOPE.path, "edge": {**edge, "end": "nowhere"}},
    )
    assert [(each.line, each.reason.partition(";")[0]) for each in report.first_rejected] == [
        (5, "edge derived_from from 'b' to 'n1' would close a cycle of lineage"),
        (6, "edge derived_from from 'n1' to 'b' is there with other properties"),
        (7, f"no node 'nowhere' is visible at scope {SCOPE.path}"),
    ]


def test_an_edge_may_stand_before_its_ends(store):
    edge = {"scope": SCOPE.path, "edge": {"start": "n1", "type": "about", "end": "b"}}
    lines = (edge, KNOWN, {**KNOWN, "id": "b", "label": "SOUL:b"})
    assert counts(import_lines(store, *lines, chunk=1)) == {"inserted": 2, "linked": 1}
    assert counts(import_lines(store, *lines)) == {"unchanged": 3}


@pytest.mark.parametrize("chunk", [None, 1])
def test_an_edge_waits_for_its_start_also_where_the_deployment_holds_the_id(store, chunk):
    above = {"scope": "", "id": "i", "label": "S:top"}
    edge = {"scope": "org:a", "edge": {"start": "i", "type": "about", "end": "j"}}
    own = [{"scope": "org:a", "id": name, "label": f"S:{name}"} for name in "ij"]
    assert counts(import_lines(store, above, edge, *own, chunk=chunk)) == {"inserted": 3, "linked": 1}


def test_an_edge_whose_start_stays_the_deployments_is_refused_with_that_reason(store):
    above = {"scope": "", "id": "i", "label": "S:top"}
    edge = {"scope": "org:a", "edge": {"start": "i", "type": "about", "end": "i"}}
    report = import_lines(store, above, edge, {"scope": "org:a", "id": "j", "label": "S:j"})
    assert counts(report) == {"inserted": 2, "rejected": 1}
    assert "read-only at org:a" in report.first_rejected[0].reason


# -- bad lines, bytes and files


def test_good_lines_are_taken_and_bad_ones_named(store):
    told = []
    report = import_lines(store, "{", TEA, "", "[]", on_rejected=told.append)
    assert counts(report) == {"inserted": 1, "rejected": 2}
    assert [(each.line, each.text) for each in told] == [(1, "{"), (4, "[]")]
    assert report.first_rejected == tuple(told)
    assert report.lines == 4


def test_a_strict_import_takes_all_or_nothing_and_names_every_bad_line(store):
    before = held(store)
    report = import_lines(store, TEA, "{", "[]", strict=True)
    assert (report.rejected, report.committed) == (2, False)
    assert held(store) == before
    assert import_lines(store, TEA, strict=True).committed


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf%s\r\n\r\n%s", b"%s\n   \n%s\n", b"\r\n%s\r\n%s\r\n"])
def test_marks_line_ends_and_blank_lines_do_not_matter(store, content):
    lines = (
        json.dumps(TEA).encode(),
        json.dumps({**TEA, "label": "SOUL:日本語\u2028\x85"}, ensure_ascii=False).encode(),
    )
    assert counts(import_bytes(store, content % lines)) == {"inserted": 2}
    assert [node.label for node in store.query_nodes(SCOPE)] == ["SOUL:prefers tea", "SOUL:日本語\u2028\x85"]


def test_bytes_that_are_not_utf8_cost_their_line(store):
    report = import_bytes(store, b'{"scope": "\xff"}\n' + spelled([TEA]) + b"\x00\n")
    assert counts(report) == {"inserted": 1, "rejected": 2}
    assert "not UTF-8 at byte 12" in report.first_rejected[0].reason
    assert report.first_rejected[0].text == '{"scope": "\\xff"}'


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be-mark"])
def test_a_file_that_is_utf16_is_refused_whole(store, encoding):
    content = "\ufeff{}".encode("utf-16-be") if encoding == "utf-16-be-mark" else "{}".encode("utf-16")
    with pytest.raises(ExchangeError, match="save it as UTF-8"):
        import_bytes(store, content)


def test_a_line_of_ten_megabytes_is_a_line(store):
    line = {**TEA, "label": "SOUL:" + "a" * 10_000_000}
    assert counts(import_lines(store, line, KNOWN)) == {"inserted": 2}
    assert max(len(node.label) for node in store.query_nodes(SCOPE)) == 10_000_005


def test_a_line_that_is_too_long_is_passed_over_without_being_kept():
    content = b"a" * 100 + b"\nb\n" + b"c" * 10 + b"\n" + b"d" * 11
    reader = LineReader(io.BytesIO(content), longest=10)
    lines = []
    while (line := reader.next()) is not None:
        lines.append((line.number, line.content))
    assert lines == [(1, None), (2, b"b"), (3, b"c" * 10), (4, None)]
    assert reader.offset == len(content)


def test_a_stream_that_cannot_be_read_twice_is_refused(store):
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

    with pytest.raises(ExchangeError, match="copy it to a file"):
        drive_blocking(import_steps(store.core, Pipe(), JsonLines()))


@pytest.mark.parametrize("settings", [{"chunk": 0}, {"chunk": True}, {"chunk": 5, "strict": True}])
def test_settings_that_mean_nothing_are_refused(settings):
    with pytest.raises(InvalidInputError, match="chunk"):
        ImportSettings(**settings)


# -- one transaction, or many that can be resumed


class Stop(Exception):  # noqa: N818 - it is no error, it stands for a crash
    """Stands for a crash in the middle."""


def _crash_at(line):
    def stop(rejected):
        if rejected.line == line:
            raise Stop

    return stop


def test_a_failure_leaves_nothing_of_the_one_transaction(store):
    with pytest.raises(Stop):
        import_lines(store, TEA, "{", on_rejected=_crash_at(2))
    assert store.query_nodes(SCOPE) == []


def test_an_interrupted_import_goes_on_behind_its_last_chunk_and_tries_refused_lines_again(store):
    lines = [{**TEA, "label": f"SOUL:{number}"} for number in range(7)]
    content = spelled([*lines[:2], "bad", *lines[2:], "crash"])
    with pytest.raises(Stop):
        import_bytes(store, content, chunk=4, on_rejected=_crash_at(9))
    assert len(store.query_nodes(SCOPE)) == 7
    report = import_bytes(store, content, chunk=4)
    assert counts(report) == {"rejected": 2}
    assert [each.line for each in report.first_rejected] == [3, 9]
    assert report.resumed == 8
    assert len(store.query_nodes(SCOPE)) == 7


def test_an_edge_that_waits_is_not_lost_in_a_crash(store):
    edge = {"scope": SCOPE.path, "edge": {"start": "n1", "type": "about", "end": "n1"}}
    content = spelled([edge, TEA, "crash", KNOWN])
    with pytest.raises(Stop):
        import_bytes(store, content, chunk=1, on_rejected=_crash_at(3))
    assert counts(import_bytes(store, content, chunk=1)) == {"inserted": 1, "linked": 1, "rejected": 1}


def test_a_file_that_has_changed_is_imported_from_its_start(store):
    lines = [{**TEA, "label": f"SOUL:{number}"} for number in range(5)]
    with pytest.raises(Stop):
        import_lines(store, *lines, "crash", chunk=2, on_rejected=_crash_at(6))
    report = import_lines(store, {**TEA, "label": "SOUL:new"}, *lines, chunk=2)
    assert (report.resumed, counts(report)) == (0, {"inserted": 2, "unchanged": 4})


def test_a_file_that_is_read_in_another_way_is_imported_from_its_start(store):
    content = spelled([{"scope": SCOPE.path, "block": "FOCUS", "text": str(number)} for number in range(3)] + ["crash"])
    with pytest.raises(Stop):
        import_bytes(store, content, JsonLines({"FOCUS": "FOCUS:"}), chunk=1, on_rejected=_crash_at(4))
    report = import_bytes(store, content, JsonLines({"FOCUS": "NOW:"}), chunk=1)
    assert (report.resumed, report.inserted) == (0, 3)
    assert len(store.query_nodes(SCOPE, label_prefix="NOW:")) == 3


@pytest.mark.parametrize("mark", ["", "{}", "[]", '{"lines": 1, "bytes": 99, "sha256": "x", "rejected": []}'])
def test_a_mark_that_says_nothing_is_passed_over(store, mark):
    from promptkeel.store.operations import Mark

    store.apply([Mark(ImportSettings().mark_key, mark)])
    assert counts(import_lines(store, TEA, chunk=1)) == {"inserted": 1}
    assert store.core.engine.mark(ImportSettings().mark_key) is None


def test_progress_is_told_in_bytes(store):
    told = []
    content = spelled([{**TEA, "label": f"SOUL:{number}"} for number in range(1200)])
    import_bytes(store, content, on_progress=told.append)
    assert told == sorted(told)
    assert len(told) == 3
    assert told[-1] == len(content)


def test_the_asynchronous_form_takes_the_same(tmp_path):
    import anyio

    from promptkeel import open_store as open_async

    async def main():
        async with open_async("ram:") as store:
            report = await drive(import_steps(store.core, io.BytesIO(spelled([TEA])), JsonLines()))
            return report, await store.query_nodes(SCOPE)

    report, found = anyio.run(main)
    assert counts(report) == {"inserted": 1}
    assert [(node.label, format_instant(node.recorded)) for node in found] == [
        ("SOUL:prefers tea", "2026-05-02T10:00:00Z")
    ]
    assert isinstance(found[0], MemoryNode)
