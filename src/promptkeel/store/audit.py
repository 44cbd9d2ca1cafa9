"""What an audit of a store answers: each thing that is wrong, where, and what to do. Pure.

How a backend finds out is its own; the kinds of findings are the same for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, final

import attrs

FindingKind = Literal[
    "corrupt",
    "schema_missing",
    "schema_changed",
    "schema_foreign",
    "schema_newer",
    "meta_wrong",
    "floor_wrong",
    "log_gap",
    "head_wrong",
    "head_missing",
    "row_unlogged",
    "row_lost",
    "erased_returned",
    "version_orphan",
    "version_missing",
    "edge_orphan",
    "testimony_orphan",
    "value_unreadable",
    "revision_wrong",
]

NAMED: Final = 100
"""As many findings of one kind are named; the others are counted."""

REBUILD: Final = "copy the store into a new one, which builds heads, log and history anew, or restore a backup"


@final
@attrs.frozen(order=False)
class Finding:
    """One thing that is wrong.

    Attributes:
        kind: which promise is broken.
        where: the node, scope, change or part of the schema.
        what: what is wrong with it.
        remedy: what to do.
    """

    kind: FindingKind
    where: str
    what: str
    remedy: str


@final
@attrs.frozen(order=False)
class Audit:
    """What an audit found.

    Attributes:
        findings: at most ``NAMED`` of each kind.
        unnamed: how many more there are of a kind.
        counts: how much of what was looked at.
    """

    findings: tuple[Finding, ...]
    unnamed: Mapping[str, int] = attrs.field(factory=dict, hash=False)
    counts: Mapping[str, int] = attrs.field(factory=dict, hash=False)

    @property
    def is_healthy(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @classmethod
    def of(cls, findings: Iterable[Finding], counts: Mapping[str, int]) -> Audit:
        """The audit of these findings."""
        named: list[Finding] = []
        seen: dict[str, int] = {}
        for finding in findings:
            seen[finding.kind] = seen.get(finding.kind, 0) + 1
            if seen[finding.kind] <= NAMED:
                named.append(finding)
        unnamed = {kind: count - NAMED for kind, count in seen.items() if count > NAMED}
        return cls(tuple(named), unnamed, dict(counts))


def shown_scope(path: str) -> str:
    """A scope path as messages show it."""
    return path or "(deployment)"
