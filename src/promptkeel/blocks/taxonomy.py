"""The tiers, and the canonical blocks with what is fixed about them.

Four tiers in order of authority: platform and operating hold authored text, profile and session hold learned text. A
canonical name brings defaults; those that others rely on cannot be weakened.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, final

import attrs

Tier = Literal["platform", "operating", "profile", "session"]
TIERS: Final[tuple[Tier, ...]] = ("platform", "operating", "profile", "session")
"""Highest authority first."""
LEARNED_TIERS: Final = frozenset({"profile", "session"})
Layer = Literal["stable", "volatile"]
LAYERS: Final[tuple[Layer, ...]] = ("stable", "volatile")
"""The stable prefix of a prompt, and its volatile tail."""
Channel = Literal["system", "user", "tool_result"]
CHANNELS: Final[tuple[Channel, ...]] = ("system", "user", "tool_result")
"""Where a provider gets a block."""
Permission = Literal["read", "append", "replace", "add", "correct", "retract"]
PERMISSIONS: Final[tuple[Permission, ...]] = ("read", "append", "replace", "add", "correct", "retract")
"""What an agent's own tools may do with a block; none of them destroys anything."""
DEFAULT_ORDER: Final = 100
"""The order of a block that is not canonical."""


@final
@attrs.frozen(order=False)
class Canonical:
    """What a canonical name brings.

    Attributes:
        tier: its tier, which is fixed.
        order: its default place in the tier.
        layer: its default layer.
        inherit: whether a delegated child agent sees it by default.
        fixed: the other fields that cannot be declared differently, each with its value and why.
    """

    tier: Tier
    order: int
    layer: Layer = "stable"
    inherit: bool = True
    fixed: Mapping[str, tuple[Any, str]] = MappingProxyType({})


_ALWAYS: Final = "what an agent must never do is always there, for its children too"

CANONICAL: Final[Mapping[str, Canonical]] = MappingProxyType(
    {
        "BOUNDARIES": Canonical(
            "platform",
            10,
            fixed=MappingProxyType(
                {
                    "layer": ("stable", _ALWAYS),
                    "inherit": (True, _ALWAYS),
                    "on_failure": ("fail_closed", _ALWAYS),
                    "render_when": (None, _ALWAYS),
                }
            ),
        ),
        "IDENTITY": Canonical("operating", 20),
        "RULES": Canonical("operating", 30),
        "ENVIRONMENT": Canonical("operating", 40),
        "USER_PROFILE": Canonical("profile", 50),
        "PREFERENCES": Canonical("profile", 60),
        "FOCUS": Canonical("session", 70, layer="volatile"),
        "ONBOARDING": Canonical(
            "operating",
            80,
            inherit=False,
            fixed=MappingProxyType({"inherit": (False, "a child agent has nobody to get to know")}),
        ),
    }
)
"""The canonical blocks by name."""
