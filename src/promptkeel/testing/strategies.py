"""Hypothesis strategies for the values that promptkeel speaks in.

Ordinary and hostile values are mixed on purpose: a store that loses one character in ten thousand loses it here first.
Everything that comes out of a strategy can be stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from promptkeel.errors import InvalidInputError
from promptkeel.instants import EARLIEST, LATEST, format_instant
from promptkeel.model import NOT_GIVEN, RESERVED_PROPERTIES, STATES, TRUST_LEVELS, MemoryEdge, MemoryNode, State, Trust
from promptkeel.scope import ScopeLevel, TenantScope
from promptkeel.text import refused_character, trim

PREFIXES: Final = ("SOUL:", "RULE:", "PROFILE:")
"""The label prefixes that labels are drawn with, unless told otherwise."""
HOSTILE: Final = (
    "%", "_", "%_%", "*", "?", "[a-z]", "\\", "\\%", "'", '"', "''; DROP TABLE nodes; --", "$1", "?1", ":id", "{}",
    "%s", "\u00e9", "e\u0301", "\u0130", "i\u0307", "\u1e9e", "\u212a", "\u6771\u4eac\u99c5", "\u2329\u65e5\u2330",
    "\U0010ffff", "\U0010ffff\U0010ffff", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\ufeff", "\u200b", "\u200d",
    "\u202e", "\u2066", "\u2028", "\u2029", "\x7f", "\x85", "\U000e0041", "\ufe0f\ufe0f", "\u3164",
    "</untrusted-data>", "### RULES", "```", "\n", "\r\n", "\t", " ", "  padded  ", "null", "None", "0", "-0",
    "1e5", "true",
)  # fmt: skip
"""Texts that have broken stores and renderers: wildcards, quotes, look-alikes, invisible characters."""
_UNPRINTABLE: Final = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufffe\uffff"


def ordinary_texts(*, max_size: int = 12) -> SearchStrategy[str]:
    """Any text that a store takes, the empty one too."""
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size).filter(
        lambda text: not refused_character(text)
    )


def hostile_texts() -> SearchStrategy[str]:
    """Text around what breaks stores: wildcards, quotes, the last code point, invisible characters."""
    words = st.sampled_from(HOSTILE)
    return st.one_of(
        words, st.builds("{}{}".format, words, ordinary_texts(max_size=4)), st.builds("{}{}".format, words, words)
    )


def texts() -> SearchStrategy[str]:
    """Text that a store takes, ordinary or hostile, possibly blank."""
    return st.one_of(ordinary_texts(), hostile_texts())


def statements() -> SearchStrategy[str]:
    """Text that says something: never blank."""
    return texts().filter(lambda text: bool(trim(text)))


def refused_texts() -> SearchStrategy[str]:
    """Text that no store takes: a lone surrogate, NUL or another control in it."""
    refused = st.sampled_from([*map(chr, range(9)), "\x0b", "\x0c", *map(chr, range(14, 32)), "\ud800", "\udfff"])
    return st.builds("{}{}{}".format, ordinary_texts(max_size=4), refused, ordinary_texts(max_size=4))


def level_kinds() -> SearchStrategy[str]:
    """The kind of a scope level, as ``org``."""
    return st.from_regex(re.compile(r"[a-z][a-z0-9_-]{0,5}", re.ASCII), fullmatch=True)


def level_ids() -> SearchStrategy[str]:
    """The id of a scope level: printable text, often with the characters that the string form escapes."""
    characters = st.one_of(
        st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=_UNPRINTABLE), st.sampled_from("%/:25F3A")
    )
    return st.text(characters, min_size=1, max_size=8).filter(lambda text: bool(trim(text)))


def levels() -> SearchStrategy[ScopeLevel]:
    """One level of a scope."""
    return st.builds(ScopeLevel, level_kinds(), level_ids())


def scopes(*, min_depth: int = 0, max_depth: int = 4) -> SearchStrategy[TenantScope]:
    """A scope; of no level, it is the deployment."""
    return st.lists(levels(), min_size=min_depth, max_size=max_depth).map(TenantScope)


@st.composite
def related_scopes(draw: DrawFn, *, size: int = 4) -> list[TenantScope]:
    """A scope with its ancestors, and scopes whose paths begin like its own without being visible there."""
    scope = draw(scopes(min_depth=1, max_depth=3))
    last = scope.levels[-1]
    chain = [TenantScope(scope.levels[:depth]) for depth in range(len(scope.levels) + 1)]
    strangers = [
        scope.parent.child(last.kind, last.id + draw(st.sampled_from(["a", "%", "/x", ":", "0"]))),
        scope.parent.child(f"{last.kind}x", last.id),
        scope.child("part", draw(level_ids())),
    ]
    others = draw(st.lists(scopes(max_depth=3), max_size=max(0, size - 3)))
    return [*chain, *strangers, *others]


def labels(*, prefixes: SearchStrategy[str] | None = None) -> SearchStrategy[str]:
    """A label: a prefix and a statement, or a statement alone."""
    return st.builds("{}{}".format, st.sampled_from([*PREFIXES, ""]) if prefixes is None else prefixes, statements())


def instants() -> SearchStrategy[int]:
    """Whole microseconds that UTC can hold, the ends of its range and equal ones more often than chance has it."""
    return st.one_of(st.sampled_from([EARLIEST, -1, 0, 1, LATEST]), st.integers(EARLIEST, LATEST))


def zones() -> SearchStrategy[tzinfo | None]:
    """No time zone, UTC, or an offset up to a minute short of a day."""
    offsets = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))
    return st.one_of(st.none(), st.just(UTC), offsets)


def moments() -> SearchStrategy[int | str | datetime | None]:
    """What may be given as a time: an instant, ISO 8601 text, a datetime, or None for "not recorded"."""
    # Two days from either end, no offset leads out of what UTC can hold.
    first, last = datetime(1, 1, 3), datetime(9999, 12, 29)  # noqa: DTZ001 - bounds of naive datetimes
    datetimes = st.builds(lambda moment, zone: moment.replace(tzinfo=zone), st.datetimes(first, last), zones())
    return st.one_of(st.none(), instants(), instants().map(format_instant), datetimes)


def sources() -> SearchStrategy[str | None]:
    """Who said so, or None for "not recorded"."""
    return st.one_of(st.none(), st.sampled_from(["chat", "import"]), statements())


def trusts() -> SearchStrategy[Trust | None]:
    """Whose words these are, or None for "not recorded"."""
    return st.one_of(st.none(), st.sampled_from(TRUST_LEVELS))


def json_values() -> SearchStrategy[Any]:
    """Anything that JSON can say, nested a little."""
    scalars = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts()
    )
    return st.recursive(
        scalars,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts(), inner, max_size=3)),
        max_leaves=6,
    )


def properties(*, names: SearchStrategy[str] | None = None) -> SearchStrategy[dict[str, Any]]:
    """A JSON object without the names that are columns of their own."""
    keys = texts() if names is None else names
    return st.dictionaries(keys.filter(lambda name: name not in RESERVED_PROPERTIES), json_values(), max_size=3)


def states() -> SearchStrategy[State]:
    """Live, retracted or superseded."""
    return st.sampled_from(STATES)


@st.composite
def _nodes(draw: DrawFn, fields: dict[str, SearchStrategy[Any]]) -> MemoryNode:
    drawn = {name: draw(strategy) for name, strategy in fields.items()}
    try:
        return MemoryNode(**drawn)
    except InvalidInputError:
        # A label such as "A:" says nothing; with this word it does.
        return MemoryNode(**{**drawn, "label": f"{drawn['label']}x"})


def nodes(
    *,
    ids: SearchStrategy[str] | None = None,
    scopes: SearchStrategy[TenantScope] | None = None,
    labels: SearchStrategy[str] | None = None,
    states: SearchStrategy[State] | None = None,
    stamped: bool | None = None,
) -> SearchStrategy[MemoryNode]:
    """A node; what is not given is drawn.

    Args:
        ids: its ids.
        scopes: its scopes.
        labels: its labels.
        states: its states.
        stamped: whether times are filled in, as by a store; None leaves it to chance.
    """
    times = _TIMES[stamped]()
    recorded = st.one_of(st.none(), instants())
    return _nodes(
        {
            "id": statements() if ids is None else ids,
            "scope": _scopes() if scopes is None else scopes,
            "label": _labels() if labels is None else labels,
            "properties": properties(),
            "source": sources(),
            "recorded_at": recorded if stamped else st.one_of(recorded, st.just(NOT_GIVEN)),
            "trust": trusts(),
            "created_at": times,
            "updated_at": times,
            "state": _states() if states is None else states,
        }
    )


_scopes, _labels, _states = scopes, labels, states
_TIMES: Final[dict[bool | None, Callable[[], SearchStrategy[int | None]]]] = {
    True: instants,
    False: st.none,
    None: lambda: st.one_of(st.none(), instants()),
}


def edges(
    *,
    scopes: SearchStrategy[TenantScope] | None = None,
    ids: SearchStrategy[str] | None = None,
    types: SearchStrategy[str] | None = None,
) -> SearchStrategy[MemoryEdge]:
    """A typed edge between two ids."""
    ends = statements() if ids is None else ids
    return st.builds(
        MemoryEdge,
        scope=_scopes() if scopes is None else scopes,
        start=ends,
        type=st.sampled_from(["about", "derived_from", "supersedes"]) if types is None else types,
        end=ends,
        properties=properties(),
    )
