"""About how many tokens a provider counts for a position of a prefix: every kind of it counts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from promptkeel.providers.segments import Segment
from promptkeel.providers.wire.blocks import PICTURE
from promptkeel.tokens import TokenCounter

PICTURE_TOKENS: Final = 1500
"""What a picture or a page is taken to cost: near the most that providers count for one of full size."""
_SHOWN: Final = frozenset({"thinking", "text", "reasoning", "reasoning_content", "summary"})
"""Where reasoning is shown; a signature beside what is shown is not read again."""


def tokens_of(segment: Segment, counter: TokenCounter) -> int:
    """About how many tokens a segment has; 0 only where it says nothing.

    An estimate, however exact the counter: how a provider writes calls and results for its model is not public. Text
    counts as text, without its JSON around it; tools, calls, results and everything unknown count as their JSON, which
    is near to that; reasoning by what is shown of it, or else by what stands for it; each picture and each document by
    a round figure.
    """
    content = segment.content
    if segment.kind == "tool":
        return counter(content)
    pictures = content.count(f'"{PICTURE}')
    block = _loaded(content)
    if segment.kind == "image" or (segment.kind == "document" and not _is_text(block)):
        return PICTURE_TOKENS * max(pictures, 1)
    if segment.kind == "text" and isinstance(block, Mapping) and set(block) <= {"text", "type"}:
        text = block.get("text")
        return counter(text) if isinstance(text, str) else counter(content)
    if segment.kind == "reasoning":
        shown = "\n".join(_words(block))
        return counter(shown or content)
    return counter(content) + PICTURE_TOKENS * pictures


def _loaded(content: str) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None


def _is_text(block: Any) -> bool:
    """Whether a document is given as words."""
    inner = block.get("document", block) if isinstance(block, Mapping) else None
    source = inner.get("source") if isinstance(inner, Mapping) else None
    if not isinstance(source, Mapping):
        return False
    return source.get("type") in ("text", "content") or not {"text", "content"}.isdisjoint(source)


def _words(value: Any, name: str = "") -> Iterator[str]:
    """The texts that reasoning shows."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _words(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _words(item, name)
    elif isinstance(value, str) and name in _SHOWN and value:
        yield value
