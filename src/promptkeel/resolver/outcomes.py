"""What becomes of one block: a pure state machine, from its gate to what is shown.

gate ──closed──▶ gated
  │ open
  ▼
read ──content──▶ fresh
  │ failed ──fail_closed─────────────────────────▶ error
  │        ├─omit────────────────────────────────▶ omitted
  │        └─last_known_good ──read lately───────▶ stale
  │                          └─never or too long ago ▶ error
  └ wrong ──whatever the policy──────────────────▶ error
"""

from __future__ import annotations

from typing import Literal, final

import attrs

from promptkeel.blocks.failures import FailurePolicy
from promptkeel.errors import InvalidInputError
from promptkeel.model import BlockRevision
from promptkeel.render import RenderedBlock

BlockState = Literal["fresh", "stale", "omitted", "gated"]
"""Verified after the call began; as it was last read; not readable and left out; switched off by its gate."""

STALE_LINE = "[could not be read now: this is how it was last read, and it may be out of date]"
"""The line in front of a stale block's text, where its policy says so."""


@final
@attrs.frozen(eq=False)
class Failed:
    """The source could not be read: a matter of the block's policy."""

    error: OSError


@final
@attrs.frozen(eq=False)
class Wrong:
    """The source has a defect: an error whatever the policy."""

    error: Exception

    @property
    def reason(self) -> str:
        """What is wrong with it."""
        if isinstance(self.error, InvalidInputError):
            return f"its source {self.error.reason}"
        return f"its source raised {type(self.error).__name__}: {self.error}"


Reading = BlockRevision | Failed | Wrong
"""What came of reading a source."""


def reading_of(error: Exception) -> Failed | Wrong:
    """What an error of a source is."""
    return Failed(error) if isinstance(error, OSError) else Wrong(error)


def gate_defect(answer: object) -> str | None:
    """Why a gate's answer is none; None where it is True or False."""
    return None if type(answer) is bool else f"its gate must answer True or False, not {type(answer).__name__}"


def after_failure(policy: FailurePolicy, age: float | None) -> Literal["error", "omitted", "stale"]:
    """What a block becomes whose source could not be read.

    Args:
        policy: what was declared.
        age: how many seconds ago it was last read for this scope; None where it never was.
    """
    if policy.action == "omit":
        return "omitted"
    if policy.action == "last_known_good" and age is not None and policy.max_age is not None and age <= policy.max_age:
        return "stale"
    return "error"


def marked(rendered: RenderedBlock, policy: FailurePolicy) -> RenderedBlock:
    """A stale block's text: with a line of its frame, outside any fence, where the policy says so."""
    if not policy.mark_text or not rendered.text:
        return rendered
    header, _, rest = rendered.text.partition("\n")
    return attrs.evolve(rendered, text=f"{header}\n{STALE_LINE}\n{rest}")
