"""What the model is told about a block that is not there: one line, so that an outage moves few bytes."""

from __future__ import annotations

from promptkeel.resolver import ResolvedBlock


def is_missing(block: ResolvedBlock) -> bool:
    """Whether a block could not be read, or has no room at all, and has no text in its place."""
    return not block.text and (block.state in ("omitted", "stale") or bool(block.omitted))


def notice_of(block: ResolvedBlock) -> str:
    """The line; it says nothing of why, since an error's words are not the operator's."""
    if block.omitted:
        facts = "1 fact" if len(block.omitted) == 1 else f"{len(block.omitted)} facts"
        return f"[{block.spec.tier.upper()} / {block.name} has no room here: {facts} left out]"
    return (
        f"[{block.spec.tier.upper()} / {block.name} could not be read now: what it says is not known, which does not "
        "mean that it is empty]"
    )
