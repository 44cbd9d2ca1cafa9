"""The digest: injective, sensitive to everything that can be rendered, and the same for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lane.lane_samples import facts, make_fact
from promptkeel.lane import EMPTY_MEMORY_REVISION, memory_revision
from promptkeel.lane.digest import encode_facts, facts_digest

GOLDEN = {
    "no fact": ([], "15eb885704d96cd295c498a4aebb56cb"),
    "one statement": ([make_fact()], "c598c3973e1d4605005019bc05f85da7"),
    "provenance": (
        [make_fact("prefers tea", "crm", 1777716000000000, None, "user")],
        "0ce70d5f2ed147a883a188bf7c755fc2",
    ),
    "a source that is empty": ([make_fact("prefers tea", "")], "16b8aa29d5add82fe6141d3e0735ea4b"),
    "scripts": (
        [make_fact("日本語"), make_fact("naïve \N{GRINNING FACE}"), make_fact("e\u0301"), make_fact("é")],
        "01a68025a5e5f749822e35c817a4e482",
    ),
    "a declared field": ([make_fact("role: CTO", None, 0, "role")], "0e1a2b60eaab530f7f50ad5104ad04d8"),
    "a label that spells a field": ([make_fact("role: CTO", None, 0)], "8e745e7d48cfe6ffd76129b2026a7552"),
    "twice the same": ([make_fact(), make_fact()], "7e827e14117228dd72ed33b1062149ee"),
    "before 1970": ([make_fact("old", None, -1)], "229a227237c6a915bc9f2d1bb8214640"),
    "a thousand": (
        [make_fact(f"statement {number}", "crm", number) for number in range(1000)],
        "b57ed5dbc00b8ebeb187f67bf8592479",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_digests_never_change(name: str) -> None:
    lane, digest = GOLDEN[name]
    assert facts_digest(lane) == digest


def test_a_thousand_facts_make_several_chunks() -> None:
    assert len(encode_facts(GOLDEN["a thousand"][0]).cuts()) > 2


def test_golden_lanes_all_differ() -> None:
    assert len({digest for _, digest in GOLDEN.values()}) == len(GOLDEN)


@given(st.lists(facts, max_size=6), st.lists(facts, max_size=6))
def test_equal_digests_mean_equal_facts(left: list, right: list) -> None:
    assert (facts_digest(left) == facts_digest(right)) == ([fact[:5] for fact in left] == [fact[:5] for fact in right])


@given(st.lists(facts, min_size=1, max_size=300), st.data())
def test_any_single_change_changes_the_digest(lane: list, data: st.DataObject) -> None:
    before = facts_digest(lane)
    at = data.draw(st.integers(0, len(lane) - 1))
    part = data.draw(st.integers(0, 4))
    other = data.draw(facts)
    changed = list(lane[at])
    changed[part] = other[part]
    if changed[part] != lane[at][part]:
        assert facts_digest([*lane[:at], make_fact(*changed), *lane[at + 1 :]]) != before
    assert facts_digest([*lane, lane[at]]) != before
    assert facts_digest(lane[:at] + lane[at + 1 :]) != before
    swapped = [*lane[:at][::-1], *lane[at:]]
    assert (facts_digest(swapped) == before) == ([fact[:5] for fact in swapped] == [fact[:5] for fact in lane])


@given(st.lists(facts, max_size=4), st.text(max_size=3))
def test_the_node_id_is_not_in_the_digest(lane: list, node_id: str) -> None:
    assert facts_digest([make_fact(*fact[:5], node_id) for fact in lane]) == facts_digest(lane)


def test_text_cannot_move_between_values_or_parts() -> None:
    lanes = [
        [make_fact("a\nb"), make_fact("c")],
        [make_fact("a"), make_fact("b\nc")],
        [make_fact("ab", "c")],
        [make_fact("a", "bc")],
        [make_fact("a", None, None, "s")],
        [make_fact("a", "s")],
        [make_fact("a", "")],
        [make_fact("a")],
        [make_fact("a", "~")],
        [make_fact("a", "1:s")],
    ]
    assert len({facts_digest(lane) for lane in lanes}) == len(lanes)


def test_memory_revision_counts_nodes_and_formats_the_newest_time() -> None:
    from lane.lane_samples import duck

    assert memory_revision([], []) == EMPTY_MEMORY_REVISION == "mem:0:empty"
    digest = facts_digest([])
    assert memory_revision([duck(updated_at=None)], []) == f"mem:1:unstamped:{digest}"
    assert memory_revision([duck(), duck(updated_at=None)], []) == f"mem:2:2026-02-01T00:00:00Z:{digest}"
    assert memory_revision([duck(updated_at="2026-02-01T00:00:00Z")], []) == f"mem:1:unstamped:{digest}"


def test_memory_revision_takes_only_facts() -> None:
    with pytest.raises(TypeError, match="BlockFact"):
        memory_revision([], [("a",)])  # type: ignore[list-item]
