"""Token counters: chosen by name, never under by more than they say."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.errors import InvalidDeclarationError, MissingExtraError
from promptkeel.tokens import TOKEN_COUNTERS, token_counter
from token_samples import SAMPLES

PROMISED = [name for name in SAMPLES if name != "base64"]


@pytest.fixture(scope="module")
def exact():
    pytest.importorskip("rs_bpe", reason="the extra tokens is not installed")
    return token_counter("o200k_base"), token_counter("cl100k_base")


@pytest.mark.parametrize("name", PROMISED)
def test_the_estimate_is_at_most_a_tenth_under_the_dearer_tokenizer(name, exact):
    text = SAMPLES[name]
    assert token_counter("estimate")(text) >= 0.9 * max(count(text) for count in exact)


def test_the_estimate_of_random_letters_is_at_most_a_quarter_under(exact):
    text = SAMPLES["base64"]
    assert token_counter("estimate")(text) >= 0.75 * max(count(text) for count in exact)


def test_the_estimate_of_english_prose_is_near(exact):
    text = SAMPLES["english"]
    assert token_counter("estimate")(text) <= 1.2 * max(count(text) for count in exact)


@given(st.text(st.characters()))
def test_the_estimate_is_never_more_than_the_bytes(text):
    size = len(text.encode(errors="surrogatepass"))
    assert token_counter("utf8-bytes")(text) == size
    assert (1 if text else 0) <= token_counter("estimate")(text) <= size


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_tokenizer_counts_more_than_the_worst_case(text):
    pytest.importorskip("rs_bpe", reason="the extra tokens is not installed")
    for name in ("o200k_base", "cl100k_base"):
        assert token_counter(name)(text) <= token_counter("utf8-bytes")(text)


def test_the_estimate_is_the_same_for_ever():
    assert [token_counter("estimate")(text) for text in SAMPLES.values()] == [
        86,
        64,
        213,
        124,
        183,
        165,
        219,
        62,
        70,
        171,
        48,
        96,
        144,
        119,
        117,
        66,
        36,
        54,
        50,
        41,
        132,
        52,
        126,
        128,
        54,
        126,
        68,
        54,
        28,
        60,
        62,
        53,
        54,
        95,
        31,
        43,
        15,
    ]


def test_counters_say_what_they_are():
    pytest.importorskip("rs_bpe", reason="the extra tokens is not installed")
    assert TOKEN_COUNTERS == ("estimate", "utf8-bytes", "o200k_base", "cl100k_base")
    for name in TOKEN_COUNTERS:
        counter = token_counter(name)
        assert counter.name == name
        assert counter.exact == name.endswith("_base")
        assert token_counter(name) is counter


def test_an_exact_counter_counts_special_tokens_as_text(exact):
    assert [count("hello world") for count in exact] == [2, 2]
    assert all(count("<|endoftext|>") > 1 for count in exact)


def test_an_unknown_counter_is_an_error_that_names_the_known():
    with pytest.raises(InvalidDeclarationError, match=r"'guess'.*estimate, utf8-bytes"):
        token_counter("guess")


def test_a_missing_extra_names_its_install_line(monkeypatch):
    token_counter.cache_clear()
    monkeypatch.setitem(sys.modules, "rs_bpe", None)
    with pytest.raises(MissingExtraError, match=r"promptkeel\[tokens\]"):
        token_counter("o200k_base")
