"""What can be wrong with a request by its provider's rules: the names of the rules, and one value for each breach."""

from __future__ import annotations

from typing import Final, Literal, final, get_args

import attrs

Rule = Literal[
    "too-many-marks",
    "unknown-ttl",
    "ttl-increases",
    "automatic-mark-conflict",
    "mark-on-empty",
    "mark-after-reasoning",
    "unmarkable",
    "adjacent-cache-points",
    "cache-point-after-document",
    "caching-off",
    "system-turn",
    "bound-reasoning",
    "tool-result-not-first",
    "tool-result-unmatched",
    "tool-call-unanswered",
    "handle-with-prefix",
    "expired-handle",
    "repeated-history",
    "changed-history",
    "empty-contents",
]
RULES: Final[tuple[Rule, ...]] = get_args(Rule)
Effect = Literal["refused", "uncached", "misread"]
"""What comes of a breach: the provider refuses the request, or answers it and keeps or finds less than was asked, or
the model reads something else than was meant."""


@final
@attrs.frozen(order=False)
class Violation:
    """One breach of a rule by a request.

    Attributes:
        rule: the rule's name.
        effect: what comes of it.
        reason: what is wrong, and what would be right.
        position: the index of the segment; None where it is the request as a whole.
    """

    rule: Rule
    effect: Effect
    reason: str
    position: int | None = None

    @property
    def refuses(self) -> bool:
        """Whether the provider refuses the request."""
        return self.effect == "refused"
