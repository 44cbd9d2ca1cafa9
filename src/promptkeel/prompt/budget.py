"""What gives way where a prompt has more tokens than it may: whole facts, oldest first, of what matters least. Pure.

Blocks give way in the order of their declared priority, the lowest first, and among equals from the end of the prompt
on. Authored text never does. What was left out is said in the block, and in the result with its reason; a block that
has no room even for that is named in the tail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from promptkeel.errors import PromptBudgetError
from promptkeel.prompt.prompt import Prompt
from promptkeel.render import RenderedBlock
from promptkeel.resolver import Resolution, ResolvedBlock
from promptkeel.tokens import TokenCounter

Narrow = Callable[[ResolvedBlock, int], RenderedBlock]
"""A learned block once more, in at most so many tokens; empty where not even what is left out can be said in them."""

_TRIES: Final = 4
"""A text is not the sum of its blocks to the token, nor is an estimate: so often a block is narrowed a little more."""


def fitted(resolution: Resolution, limit: int, counter: TokenCounter, narrow: Narrow) -> Prompt:
    """The prompt of an answer in at most ``limit`` tokens.

    Raises:
        PromptBudgetError: what must not be left out has more.
    """
    prompt = Prompt(resolution, counter)
    for name in _in_order(resolution):
        for _ in range(_TRIES):
            excess = prompt.tokens - limit
            if excess <= 0:
                return prompt
            block = prompt.block(name)
            if not block.text:
                break
            rendered = narrow(block, max(1, counter(block.text) - excess))
            prompt = Prompt(_with(prompt.resolution, name, rendered), counter)
    if prompt.tokens > limit:
        raise PromptBudgetError(prompt.tokens, limit)
    return prompt


def _in_order(resolution: Resolution) -> list[str]:
    """The names of the blocks that may give way, the first to do so first."""
    learned = [block for block in reversed(resolution.blocks) if block.is_learned and block.text]
    return [block.name for block in sorted(learned, key=lambda block: block.spec.priority)]


def _with(resolution: Resolution, name: str, rendered: RenderedBlock) -> Resolution:
    blocks = tuple(
        attrs.evolve(block, rendered=rendered) if block.name == name else block for block in resolution.blocks
    )
    return attrs.evolve(resolution, blocks=blocks, memo={})
