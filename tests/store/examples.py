"""The clock, scopes and nodes that the store tests share."""

from __future__ import annotations

from typing import Any

from promptkeel.model import MemoryNode
from promptkeel.scope import DEPLOYMENT, TenantScope

START = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z."""


class SteppingClock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now

    def tick(self, seconds: int = 1) -> int:
        """Move on; the new instant."""
        self.now += seconds * 1_000_000
        return self.now


ACME = TenantScope.parse("org:acme")
ADA = TenantScope.parse("org:acme/user:ada")
BOB = TenantScope.parse("org:acme/user:bob")
ADAM = TenantScope.parse("org:acme/user:adam")
OTHER = TenantScope.parse("org:other/user:ada")
CHAIN = (DEPLOYMENT, ACME, ADA)


def node(id_: str = "n1", label: str = "SOUL:prefers tea", *, scope: TenantScope = ADA, **fields: Any) -> MemoryNode:
    """A node with what a test does not care about filled in."""
    return MemoryNode(id=id_, scope=scope, label=label, **fields)


def ids(nodes: Any) -> list[str]:
    """The ids of nodes, in their order."""
    return [each.id for each in nodes]
