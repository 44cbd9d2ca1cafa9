"""What a provider sees of a request, whatever its format: the positions of its prefix in the order of its cache.

Only the values are here. ``wire`` reads requests into them; ``automaton``, ``caches`` and forensics go on from there.
"""

from __future__ import annotations

from typing import Final, Literal, final

import attrs

WireFormat = Literal["anthropic", "openai-responses", "openai-chat", "gemini", "bedrock"]
"""The request formats that are told apart."""
WIRE_FORMATS: Final[tuple[WireFormat, ...]] = ("anthropic", "openai-responses", "openai-chat", "gemini", "bedrock")
Section = Literal["tools", "system", "messages"]
SECTIONS: Final[tuple[Section, ...]] = ("tools", "system", "messages")
"""The sections of a request, in the order of its prefix."""
Kind = Literal["tool", "text", "image", "document", "tool_use", "tool_result", "reasoning", "other"]
KINDS: Final[tuple[Kind, ...]] = ("tool", "text", "image", "document", "tool_use", "tool_result", "reasoning", "other")


@final
@attrs.frozen(order=False)
class Mark:
    """A cache breakpoint: what is before it is to be kept.

    Attributes:
        ttl: for how many seconds; None is the provider's default.
    """

    ttl: int | None = None


@final
@attrs.frozen(order=False)
class Segment:
    """One position of a request's prefix: a tool, a system block, or a block of a message.

    Attributes:
        section: where it stands.
        kind: what it is.
        role: whose it is, as the format spells it; "" for a tool.
        content: its canonical JSON without any mark, which is what a provider's cache compares.
        message: the index of its message as sent; -1 in tools and system.
        mark: the mark right after it. A cache point that follows no content (the second in a row, or the first of a
            message) is a position of its own, of kind "other" with empty content.
    """

    section: Section
    kind: Kind
    role: str
    content: str
    message: int = -1
    mark: Mark | None = None


@final
@attrs.frozen(order=False)
class WireRequest:
    """One request as a provider's cache sees it.

    Attributes:
        format: how it was spelled.
        model: the model, as the request names it; "" where it names none.
        segments: the prefix, in cache order: tools, system, messages.
        settings: what else decides whether a prefix is found or how it is read, each name with its canonical JSON:
            tool choice, reasoning and effort settings, cache key, salt, retention, response format.
        automatic: a mark that the provider sets by itself, on the last position that can bear one.
        handle: the name of a kept prefix, or of the response or conversation that the request continues.
    """

    format: WireFormat
    model: str
    segments: tuple[Segment, ...]
    settings: tuple[tuple[str, str], ...] = ()
    automatic: Mark | None = None
    handle: str | None = None


@final
@attrs.frozen(order=False)
class Usage:
    """What a provider counted, in disjoint parts: their sum is the whole prompt.

    Attributes:
        uncached: input tokens at the full price.
        read: input tokens read from the cache.
        written: input tokens written to it, beyond what was read.
        written_long: of these, the ones written for longer than the default TTL.
        output: tokens of the answer.
    """

    uncached: int = 0
    read: int = 0
    written: int = 0
    written_long: int = 0
    output: int = 0

    @property
    def prompt(self) -> int:
        """All input tokens."""
        return self.uncached + self.read + self.written
