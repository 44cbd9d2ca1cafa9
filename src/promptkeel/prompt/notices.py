"""What the model is told about a block that could not be read: one fixed line, so that an outage moves few bytes."""

from __future__ import annotations

from promptkeel.resolver import ResolvedBlock


def is_missing(block: ResolvedBlock) -> bool:
    """Whether a block could not be read and has no text in its place."""
    return block.state in ("omitted", "stale") and not block.text


def notice_of(block: ResolvedBlock) -> str:
    """The line; it says nothing of why, since an error's words are not the operator's."""
    return (
        f"[{block.spec.tier.upper()} / {block.name} could not be read now: what it says is not known, which does not "
        "mean that it is empty]"
    )
