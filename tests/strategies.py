"""Hypothesis strategies for the values that everything speaks in."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, timedelta, timezone
from typing import TypeVar

from hypothesis import strategies as st

from promptkeel.instants import EARLIEST, LATEST
from promptkeel.model import STATES, TRUST_LEVELS, MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.text import refused_character, trim

Value = TypeVar("Value")


def pickled(value: Value, protocol: int | None = None) -> Value:
    """The value after a journey through a pickle."""
    again: Value = pickle.loads(pickle.dumps(value, protocol))  # noqa: S301 - pickled right here
    return again


_UNPRINTABLE = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufffe\uffff"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(lambda text: not refused_character(text))
statements = texts.filter(trim)
kinds = st.from_regex(re.compile(r"[a-z][a-z0-9_-]{0,5}", re.ASCII), fullmatch=True)
scope_ids = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=_UNPRINTABLE),
        st.sampled_from("%/:25F3A"),
    ),
    min_size=1,
    max_size=8,
).filter(trim)
scopes = st.lists(st.tuples(kinds, scope_ids), max_size=4).map(TenantScope)

instants = st.integers(EARLIEST, LATEST)
offsets = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))
zones = st.one_of(st.none(), st.just(UTC), offsets)

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts)
json_values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
json_objects = st.dictionaries(
    texts.filter(lambda name: name not in ("source", "recorded_at", "trust")), json_values, max_size=3
)

nodes = st.builds(
    MemoryNode,
    id=statements,
    scope=scopes,
    label=st.builds("{}{}".format, st.sampled_from(["SOUL:", "RULE:", ""]), statements),
    properties=json_objects,
    source=st.one_of(st.none(), statements),
    recorded_at=st.one_of(st.none(), instants),
    trust=st.one_of(st.none(), st.sampled_from(TRUST_LEVELS)),
    created_at=st.one_of(st.none(), instants),
    updated_at=st.one_of(st.none(), instants),
    state=st.sampled_from(STATES),
)
