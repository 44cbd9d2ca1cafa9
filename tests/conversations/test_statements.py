"""The statements of a rendered block: the renderer read backwards, for whatever a memory holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.conversations.statements import NOTICE, Statement, statements_of
from promptkeel.errors import InvalidInputError
from promptkeel.render import RenderPolicy, render_block
from promptkeel.render.facts import body_of, newest_last
from render.hostile import FENCE, fact, facts, revision

LINES_AND_LITERALS = st.booleans()


def rendered(given_facts, *, block_form=True, **limits):
    policy = RenderPolicy(fence=FENCE, block_form=block_form, **limits)
    return render_block("USER_PROFILE", revision(*given_facts), tier="profile", policy=policy)


@given(st.lists(facts, max_size=8), LINES_AND_LITERALS)
def test_every_fact_of_a_block_is_one_statement_with_its_provenance(given_facts, block_form):
    body = body_of(newest_last(given_facts), block_form=block_form)
    expected = [
        Statement(header, line.removeprefix("- ")) for header, line in zip(body.headers, body.lines, strict=True)
    ]
    found = statements_of(rendered(given_facts, block_form=block_form).text)
    assert list(found.values()) == expected
    assert list(found) == list(range(1, len(expected) + 1))


@given(st.lists(facts, min_size=2, max_size=8), st.integers(1, 7))
def test_what_was_left_out_is_a_notice_and_no_statement(given_facts, limit):
    block = rendered(given_facts, max_facts=limit)
    found = statements_of(block.text)
    assert (NOTICE in found) == bool(block.omitted)
    assert len([each for each in found.values() if not each.is_notice]) == block.facts_shown


def test_an_empty_block_has_no_statements():
    assert statements_of("") == {}


@pytest.mark.parametrize("bad", [
    "prefers tea",
    '<untrusted-data-7f3a9c block="A">\n- "without provenance"\n</untrusted-data-7f3a9c>',
    '<untrusted-data-7f3a9c block="A">\n[source=x]\n- "no end"',
    '<untrusted-data-7f3a9c block="A">\n[source=x]\n- "a"\n</untrusted-data-000000>',
    '<untrusted-data-7f3a9c block="A">\n[source=x]\nfree text\n</untrusted-data-7f3a9c>',
    '<untrusted-data-7f3a9c block="A">\n| "of nothing"\n</untrusted-data-7f3a9c>',
])  # fmt: skip
def test_what_the_renderer_did_not_write_is_an_error(bad):
    with pytest.raises(InvalidInputError, match="not written by this renderer"):
        statements_of(bad)


def test_a_stale_block_is_read_like_any_other():
    text = rendered([fact("prefers tea", "2026-05-02")]).text
    header, _, rest = text.partition("\n")
    assert statements_of(f"{header}\n[stale: as it was read last]\n{rest}") == statements_of(text)
