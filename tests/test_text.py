"""What text a store takes: everything but surrogates, controls and blank statements, kept as given."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.errors import InvalidTextError
from promptkeel.text import WHITE_SPACE, check_text, refused_character, trim

KEPT_CONTROLS = "\t\n\r"


@given(st.text(st.characters()))
def test_only_surrogates_and_controls_are_refused(text: str) -> None:
    bad = [
        (position, character)
        for position, character in enumerate(text)
        if 0xD800 <= ord(character) < 0xE000 or (ord(character) < 0x20 and character not in KEPT_CONTROLS)
    ]
    found = refused_character(text)
    assert (found is None) == (not bad)
    if bad:
        position, character = bad[0]
        assert f"U+{ord(character):04X}" in str(found)
        assert str(found).endswith(f"position {position}")
        with pytest.raises(InvalidTextError, match="label"):
            check_text(text, field="label", blank=True)
    else:
        assert check_text(text, field="label", blank=True) is text
        text.encode()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_trimming_takes_white_space_off_the_ends_only(text: str) -> None:
    trimmed = trim(text)
    assert trimmed in text
    assert trim(trimmed) == trimmed
    assert trim(f" \t{text}\u3000\n") == trimmed
    assert not trimmed or (trimmed[0] not in WHITE_SPACE and trimmed[-1] not in WHITE_SPACE)


def test_white_space_is_what_unicode_calls_so_and_what_python_strips() -> None:
    assert all(character.isspace() for character in WHITE_SPACE)
    missing = [chr(code) for code in range(0x110000) if chr(code).isspace() and chr(code) not in WHITE_SPACE]
    assert missing == []


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u3000\u00a0"])
def test_blank_text_is_refused_where_a_statement_is_due(text: str) -> None:
    with pytest.raises(InvalidTextError, match="node 'n': label: is blank"):
        check_text(text, field="label", where="node 'n'")
    assert check_text(text, field="label", blank=True) is text


@pytest.mark.parametrize("value", [None, 7, b"tea", ["tea"]])
def test_only_text_is_text(value: Any) -> None:
    with pytest.raises(InvalidTextError, match="must be text"):
        check_text(value, field="label")


def test_two_spellings_stay_as_they_are() -> None:
    for form in ("NFC", "NFD"):
        spelled = unicodedata.normalize(form, "café")
        assert check_text(spelled, field="label") == spelled
