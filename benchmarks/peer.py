"""symfonic-core, where it is installed, doing the same work as promptkeel.

Its nodes stand in lists in RAM, one list per label prefix, so that its scans cost it nothing but the lists: that is the
most favourable store that it can have. Its resolver and its prompt injector are used as they come.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from memories import AUTHORED, NAMES, PREFIXES, lanes_of, statement


def version() -> str | None:
    """The version of symfonic-core; None where it is not installed."""
    try:
        return metadata.version("symfonic-core")
    except metadata.PackageNotFoundError:
        return None


def _tier_of(name: str) -> dict[str, str]:
    """The tier of a block whose name is not one of the peer's own."""
    return {"tier": "profile"} if name == "HABITS" else {}


class _Lists:
    """All that its lane asks of a store."""

    def __init__(self, lanes: dict[str, list[Any]]) -> None:
        self.lanes = lanes

    async def query_nodes(self, scope: Any, *, label_prefix: str | None = None, limit: int | None = None) -> list[Any]:
        del scope, limit
        return self.lanes.get(label_prefix or "", [])


class Peer:
    """A memory whose first lane has ``size`` facts, and the peer's prompts of it.

    Args:
        size: how many facts the first lane has.
        files: paths of authored blocks in place of static text.
        computed: one more block, which a function answers.
    """

    def __init__(
        self, size: int, *, files: dict[str, Path] | None = None, computed: Callable[[], tuple[str, str]] | None = None
    ) -> None:
        from symfonic.core.prompt.blocks import PromptBlockInjector, PromptBlockResolver, PromptBlockSpec
        from symfonic.core.prompt.blocks.sources.computed import ComputedBlockSource
        from symfonic.core.prompt.blocks.sources.file import FileBlockSource
        from symfonic.core.prompt.blocks.sources.static import StaticBlockSource
        from symfonic.core.scope import ScopeLevel, TenantScope
        from symfonic.memory.models.node import MemoryNode
        from symfonic.memory.types import MemoryLayer

        # It says at each render which facts it drops; a benchmark has no reader for that.
        logging.getLogger("symfonic").setLevel(logging.CRITICAL)
        self._make = MemoryNode
        self._layer = MemoryLayer.SEMANTIC
        lanes: dict[str, list[Any]] = {prefix: [] for prefix in PREFIXES}
        for prefix, number in lanes_of(size):
            lanes[prefix].append(self._node(prefix, number))
        self.memory = _Lists(lanes)
        self.scope = TenantScope.from_path([ScopeLevel(kind="org", id="acme"), ScopeLevel(kind="user", id="ada")])
        specs = [
            PromptBlockSpec(name=name, source="memory", label_prefix=prefix, layer="L1", **_tier_of(name))
            for name, prefix in zip(NAMES, PREFIXES, strict=True)
        ]
        for name, text in AUTHORED.items():
            source = StaticBlockSource(text) if files is None else FileBlockSource(files[name])
            specs.append(PromptBlockSpec(name=name, source=source))
        if computed is not None:
            answer = computed
            specs.append(
                PromptBlockSpec(
                    name="TODAY",
                    tier="operating",
                    source=ComputedBlockSource(lambda _scope, _name: answer(), offline_safe=True),
                )
            )
        self.resolver = PromptBlockResolver(specs, memory=self.memory)
        self.injector = PromptBlockInjector(self.resolver)
        self._changes = 0

    def _node(self, prefix: str, number: int, source: str | None = None) -> Any:
        text, own, recorded = statement(number)
        properties: dict[str, object] = {"recorded_at": recorded.isoformat()}
        if source or own:
            properties["source"] = source or own
        return self._make(
            id=f"{prefix}{number}",
            layer=self._layer,
            tenant_id="acme",
            label=prefix + text,
            properties=properties,
            created_at=recorded,
            updated_at=recorded,
        )

    def build(self) -> Awaitable[Any]:
        """The whole prompt."""
        return self.injector.build(self.scope)

    def scan(self) -> Awaitable[Any]:
        """The first lane: nodes to facts and a revision."""
        from symfonic.core.prompt.blocks import scan_memory_lane

        return scan_memory_lane(self.memory, self.scope, PREFIXES[0])

    def touch(self) -> None:
        """Change one node of the first lane."""
        self._changes += 1
        lane = self.memory.lanes[PREFIXES[0]]
        number = self._changes * 7919 % len(lane)
        lane[number] = self._node(PREFIXES[0], number, f"chat-{self._changes}")
