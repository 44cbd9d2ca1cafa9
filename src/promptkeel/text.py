"""What text may be stored: the same rule in every store.

Refused are lone surrogates, NUL and the other C0 controls apart from tab, newline and carriage return, and blank
statements. Everything else is kept as given. How text is *shown* is the renderer's subject, not this module's.
"""

from __future__ import annotations

import re

from promptkeel.errors import InvalidTextError

WHITE_SPACE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""What counts as white space, frozen here: an interpreter's own table may move between versions."""

_REFUSED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")


def trim(text: str) -> str:
    """The text without surrounding white space."""
    return text.strip(WHITE_SPACE)


def plain(text: str) -> str:
    """The text as a ``str`` and nothing else: a member of an enumeration of texts would stay one when it is kept."""
    return text if type(text) is str else str.__str__(text)


def refused_character(text: str) -> str | None:
    """The first character of ``text`` that no store takes, described; None where there is none."""
    found = _REFUSED.search(text)
    if found is None:
        return None
    code = ord(found.group())
    kind = "a lone surrogate" if code >= 0xD800 else "a control character"
    return f"{kind} (U+{code:04X}) at position {found.start()}"


def check_text(text: object, *, field: str, where: str | None = None, blank: bool = False) -> str:
    """``text`` itself, as plain text, if a store can take it.

    Args:
        text: what was given.
        field: the name of the field, for the error.
        where: the node or line, for the error.
        blank: whether text of white space only is allowed.

    Raises:
        InvalidTextError: it is not text, holds a refused character, or is blank where it must not be.
    """
    if not isinstance(text, str):
        raise InvalidTextError(f"must be text, not {type(text).__name__}", field=field, where=where)
    found = refused_character(text)
    if found is not None:
        raise InvalidTextError(f"holds {found}; remove it", field=field, where=where)
    if not blank and not trim(text):
        raise InvalidTextError("is blank; a statement says something", field=field, where=where)
    return plain(text)
