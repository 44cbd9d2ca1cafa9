"""The scopes, labels and nodes that the suites ask about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.scope import DEPLOYMENT, TenantScope

ACME: Final = TenantScope.parse("org:acme")
ADA: Final = TenantScope.parse("org:acme/user:ada")
BOB: Final = TenantScope.parse("org:acme/user:bob")
ADAM: Final = TenantScope.parse("org:acme/user:adam")
SESSION: Final = TenantScope.parse("org:acme/user:ada/session:1")
OTHER: Final = TenantScope.parse("org:other/user:ada")
CHAIN: Final = (DEPLOYMENT, ACME, ADA)
"""What is visible at ADA, and nothing else."""
STRANGERS: Final = (
    BOB, ADAM, SESSION, OTHER, TenantScope.parse("org:acm"), TenantScope.parse("org:acmes"),
    TenantScope.parse("org:acme/user:ad"), TenantScope.parse("org:acme/user:ada%2Fx"),
    TenantScope.parse("org:acme/user:%25"), TenantScope.parse("org:ACME/user:ada"), TenantScope.parse("user:ada"),
    TenantScope.parse("org:acme/team:ada"), TenantScope.parse("org:_cme/user:ada"),
)  # fmt: skip
"""Scopes whose nodes are not visible at ADA, many of them with paths that look like it."""

PATTERN_LABELS: Final = (
    "SOUL:a", "SOUL:%", "SOUL:_", "SOUL:\\", "SOUL:*", "SOUL:?", "SOUL:[a]", "SOUL:'", "SOUL:ab", "SOUL:\u00e9",
    "SOUL:e\u0301", "S%", "S_", "SOUL;", "SOUL", "SOUM:x", "XSOUL:a", "\x7f", "'",
)  # fmt: skip
PATTERN_PREFIXES: Final = (
    "S", "SOUL:", "SOUL:a", "SOUL:%", "SOUL:_", "SOUL:\\", "SOUL:*", "SOUL:?", "SOUL:[", "S%", "S_", "%", "_", "*", "'",
    "SOUL:e", "\x7f",
)  # fmt: skip
CASE_LABELS: Final = ("SOUL:a", "soul:a", "Soul:a", "SOUL:A", "SOUL:\u00e4", "SOUL:\u00c4", "\u017fOUL:a")
LAST_LABELS: Final = (
    "SOUL:a", "SOUL:a\U0010ffff", "SOUL:a\U0010ffff\U0010ffff", "SOUL:a\U0010ffffz", "SOUL:b", "SOUL:\ud7ff",
    "SOUL:\ud7ffz", "SOUL:\ue000", "SOUL:\uffff", "SOUL:\U00010000", "\U0010ffff",
    "\U0010ffff\U0010ffff", "\U0010ffffa",
)  # fmt: skip
LAST_PREFIXES: Final = (
    "SOUL:", "SOUL:a", "SOUL:a\U0010ffff", "SOUL:\ud7ff", "SOUL:\ue000", "SOUL:\uffff", "\U0010ffff",
    "\U0010ffff\U0010ffff",
)  # fmt: skip
HOSTILE_STATEMENTS: Final = (
    "I <3 na\u00efve art", "\u2329\u65e5\u672c\u8a9e\u232a", "Map<string, List<int>>", "a\tb\nc\rd", "e\u0301 \u00e9",
    "\U0010ffff\uffff\ufffe", "O'Brien; DROP TABLE nodes; --", "100% _x_ \\ *", " padded ", "\u202eright to left",
    "x" * 100_000, "\x7f\x85", "\u2028\u2029", "\U000e0041\ufe0f\u200b", "null", "$1 ?1 :id %s {}",
)  # fmt: skip
JSON_VALUES: Final[tuple[Any, ...]] = (
    0, -1, 1, True, False, None, 2**63, -(2**64), 10**999, 0.1, -0.0, 1.0, 1e300, 5e-324, "", "1", [], {},
    ["a", {"b": None, "c": [1, True, 1.0]}],
)  # fmt: skip
"""Values that JSON tells apart and that a store must give back with their kind."""


def node(id_: str = "n1", label: str = "SOUL:prefers tea", *, scope: TenantScope = ADA, **fields: Any) -> MemoryNode:
    """A node with what a test does not care about filled in."""
    return MemoryNode(id=id_, scope=scope, label=label, **fields)


def labelled(labels: Iterable[str], *, scope: TenantScope = ADA) -> list[MemoryNode]:
    """One stamped node for each label."""
    return [
        node(f"n{number}", label, scope=scope, created_at=number, updated_at=number, recorded_at=number)
        for number, label in enumerate(labels)
    ]


def edge(start: str, end: str, type_: str = "about", *, scope: TenantScope = ADA, **properties: Any) -> MemoryEdge:
    """An edge."""
    return MemoryEdge(scope=scope, start=start, type=type_, end=end, properties=properties)


def ids(nodes: Iterable[Any]) -> list[str]:
    """The ids of nodes, in their order."""
    return [each.id for each in nodes]
