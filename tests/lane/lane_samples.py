"""Nodes and rows that the lane's tests share."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from promptkeel.model import TRUST_LEVELS, BlockFact
from promptkeel.store.base import LaneRow

PREFIX = "SOUL:"
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
UPDATED = datetime(2026, 2, 1, tzinfo=UTC)


def duck(label: object = "SOUL:prefers tea", **fields: Any) -> SimpleNamespace:
    """An object that looks like a node."""
    given = {"id": "n1", "properties": {}, "created_at": CREATED, "updated_at": UPDATED, "label": label}
    return SimpleNamespace(**{**given, **fields})


class Scanner:
    """A scanner that answers with what it was given, and remembers how it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[dict[str, Any]] = []

    async def query_nodes(self, scope: Any, **arguments: Any) -> Any:
        self.calls.append({"scope": scope, **arguments})
        return self.answer


class DirectScanner(Scanner):
    """The same without ``async``."""

    def query_nodes(self, scope: Any, **arguments: Any) -> Any:
        self.calls.append({"scope": scope, **arguments})
        return self.answer


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
instants = st.none() | st.integers(-3, 3) | st.integers(0, 2**50)
trusts = st.none() | st.sampled_from(TRUST_LEVELS)
sources = st.none() | st.sampled_from(["crm", "", " form ", "user-correction"]) | texts


def make_fact(
    value: str = "prefers tea",
    source: str | None = None,
    recorded: int | None = None,
    field: str | None = None,
    trust: Any = None,
    node_id: str | None = None,
) -> BlockFact:
    """A fact as the lane makes it, unchecked."""
    return tuple.__new__(BlockFact, (value, source, recorded, field, trust, node_id))


facts = st.builds(make_fact, texts, st.none() | texts, instants, st.none() | texts, trusts)

json_texts = st.none() | st.sampled_from(
    ['{"role":"CTO"}', '{"role":3.5,"city":true}', '{"role":[1]}', "{bad", "[]", '{"city":" "}', '{"role":"\\ud800"}']
)


@st.composite
def rows(draw: st.DrawFn) -> LaneRow:
    """One row, as clean or as odd as a raw SQL client may leave it."""
    statement = draw(st.sampled_from(["a", "b", " b ", "", "  ", "tea \udcff"]) | texts)
    scope = draw(st.sampled_from(["", "org:a", "org:a/user:u1"]))
    return (
        PREFIX + statement,
        draw(instants | st.just(2**62)),
        draw(st.sampled_from(["1", "10", "9", "x\udcff"]) | st.integers(0, 60).map(str)),
        scope,
        draw(sources),
        draw(trusts | st.just("forged")),
        draw(st.none() | st.integers(-5, 5) | st.just(2**62)),
        draw(json_texts),
    )
