"""What an operator declares: a block's name, its source, its tier and how it is rendered.

Four tiers in order of authority: platform and operating hold authored text, profile and session hold learned text. The
canonical names bring a tier and an order of their own, which cannot be weakened.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Final, Literal, final

import attrs

from promptkeel.blocks.sources import BlockSource, ComputedSource, FileSource, MemoryLane, StaticSource
from promptkeel.errors import InvalidDeclarationError
from promptkeel.render import RenderPolicy

Tier = Literal["platform", "operating", "profile", "session"]
TIERS: Final[tuple[Tier, ...]] = ("platform", "operating", "profile", "session")
"""Highest authority first."""
LEARNED_TIERS: Final = frozenset({"profile", "session"})

CANONICAL: Final[dict[str, tuple[Tier, int]]] = {
    "BOUNDARIES": ("platform", 10),
    "IDENTITY": ("operating", 20),
    "RULES": ("operating", 30),
    "ENVIRONMENT": ("operating", 40),
    "USER_PROFILE": ("profile", 50),
    "PREFERENCES": ("profile", 60),
    "FOCUS": ("session", 70),
    "ONBOARDING": ("operating", 80),
}
"""Tier and order of the canonical blocks."""

_NAME = re.compile(r"[A-Z][A-Z0-9_]*", re.ASCII)
_DEFAULT_ORDER: Final = 100


@final
@attrs.frozen(order=False, kw_only=True)
class PromptBlockSpec:
    """One declared block.

    Attributes:
        name: capitals, digits and underscores.
        source: where its content comes from.
        tier: its authority; left out, the canonical one, else ``operating`` for authored text and ``profile`` for
            memory.
        order: its place in its tier; smaller comes first.
        policy: how it is rendered.

    Raises:
        InvalidDeclarationError: says what to write instead.
    """

    name: str
    source: BlockSource
    tier: Tier = attrs.field(default=None)
    order: int = attrs.field(default=None)
    policy: RenderPolicy = attrs.field(factory=RenderPolicy)

    def __attrs_post_init__(self) -> None:
        if type(self.name) is not str or not _NAME.fullmatch(self.name):
            raise InvalidDeclarationError(f"name {self.name!r} must be capitals, digits and underscores", field="name")
        if not isinstance(self.source, BlockSource):
            raise self._wrong("source", "must be a StaticSource, FileSource, ComputedSource or MemoryLane")
        if not isinstance(self.policy, RenderPolicy):
            raise self._wrong("policy", "must be a RenderPolicy")
        tier, order = CANONICAL.get(self.name, ("profile" if self.is_learned else "operating", _DEFAULT_ORDER))
        if self.tier is None:
            object.__setattr__(self, "tier", tier)
        if self.order is None:
            object.__setattr__(self, "order", order)
        if self.tier not in TIERS:
            raise self._wrong("tier", f"must be one of {', '.join(TIERS)}")
        if self.name in CANONICAL and self.tier != tier:
            raise self._wrong("tier", f"is always {tier!r} for this block; choose another name for another tier")
        if self.is_learned != (self.tier in LEARNED_TIERS):
            kind = (
                "learned text belongs in profile or session"
                if self.is_learned
                else ("authored text belongs in platform or operating")
            )
            raise self._wrong("tier", f"{self.tier!r} does not fit {type(self.source).__name__}: {kind}")
        if type(self.order) is not int:
            raise self._wrong("order", "must be a whole number")

    def _wrong(self, field: str, reason: str) -> InvalidDeclarationError:
        return InvalidDeclarationError(reason, field=field, where=f"block {self.name}")

    @property
    def is_learned(self) -> bool:
        """Whether the block holds learned text, which is contained when rendered."""
        return isinstance(self.source, MemoryLane)

    @property
    def fingerprint(self) -> str:
        """A hash of everything declared, except for the content of static text and files."""
        source: Any = self.source
        if isinstance(source, MemoryLane):
            source = (source.label_prefix, sorted(source.profile_fields))
        elif isinstance(source, FileSource):
            source = (str(source.path), source.max_bytes, source.encoding)
        elif isinstance(source, ComputedSource):
            source = "computed"
        elif isinstance(source, StaticSource):
            source = source.text
        parts = (self.name, self.tier, self.order, type(self.source).__name__, source, self.policy.fingerprint)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def in_prompt_order(specs: Sequence[PromptBlockSpec]) -> tuple[PromptBlockSpec, ...]:
    """The blocks in the order of the prompt: authority, then order, then name.

    Raises:
        InvalidDeclarationError: two blocks have one name, or something is no block.
    """
    seen: set[str] = set()
    for spec in specs:
        if not isinstance(spec, PromptBlockSpec):
            raise InvalidDeclarationError(f"must be PromptBlockSpec values, not {type(spec).__name__}", field="blocks")
        if spec.name in seen:
            raise InvalidDeclarationError("is declared twice", field="blocks", where=f"block {spec.name}")
        seen.add(spec.name)
    return tuple(sorted(specs, key=lambda spec: (TIERS.index(spec.tier), spec.order, spec.name)))
