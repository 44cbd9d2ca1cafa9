"""Which blocks, how fresh, and what is kept between calls."""

from promptkeel.resolver.resolver import (
    CACHE_BYTES,
    CACHE_FACTS,
    UNSEEN,
    BlockingPromptBlockResolver,
    PromptBlockResolver,
    ResolverCore,
    Unsettled,
)
from promptkeel.resolver.values import BlockEvent, Counters, Freshness, Resolution, ResolvedBlock

__all__ = [
    "CACHE_BYTES",
    "CACHE_FACTS",
    "UNSEEN",
    "BlockEvent",
    "BlockingPromptBlockResolver",
    "Counters",
    "Freshness",
    "PromptBlockResolver",
    "Resolution",
    "ResolvedBlock",
    "ResolverCore",
    "Unsettled",
]
