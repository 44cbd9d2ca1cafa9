"""One text, for whatever takes no messages."""

from __future__ import annotations

from promptkeel.blocks.taxonomy import CHANNELS
from promptkeel.prompt.layout import PLAIN_CHANNELS
from promptkeel.prompt.salts import PromptKeys
from promptkeel.prompt.tail import Tail, parts_of


def plain_text(prefix: str, volatile: str, tail: Tail, keys: PromptKeys | None) -> str:
    """The whole prompt in its order, what changes from turn to turn at its end.

    Args:
        prefix: the stable blocks.
        volatile: the volatile blocks and notices.
        tail: what the caller adds.
        keys: what the fence of recalled text is made of.
    """
    texts = [text for text in (prefix, volatile) if text]
    # There is one text, so that whatever says what fences mean says it for all that follows.
    parts = parts_of(tail, (), CHANNELS if texts else (), PLAIN_CHANNELS, keys)
    return "\n\n".join([*texts, *(part.text for part in parts)])
