"""About how many tokens a provider counts for a position of a prefix: every kind of it counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from promptkeel.providers.segments import Segment
from promptkeel.tokens import TokenCounter

PICTURE_TOKENS: Final = 1500
"""What a picture or a page is taken to cost: near the most that providers count for one of full size."""


def tokens_of(segment: Segment, counter: TokenCounter) -> int:
    """About how many tokens a segment has; 0 where it says nothing.

    Text counts as text, without its JSON around it; tools, calls, results and reasoning count as their JSON, which is
    near to how they are shown to a model; pictures and documents by a round figure.
    """
    if segment.kind in ("image", "document"):
        return PICTURE_TOKENS
    if segment.kind == "text":
        text = _text(segment.content)
        if text is not None:
            return counter(text)
    return counter(segment.content)


def _text(content: str) -> str | None:
    try:
        block: Any = json.loads(content)
    except ValueError:
        return None
    if not isinstance(block, Mapping) or set(block) - {"text", "type"}:
        return None
    text = block.get("text")
    return text if isinstance(text, str) else None
