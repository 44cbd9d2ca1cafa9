"""A prompt: the blocks in order, the text that the model gets, and what it was verified at."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Final, final

import attrs

from promptkeel.render import render_region
from promptkeel.resolver import Freshness, Resolution, ResolvedBlock
from promptkeel.scope import TenantScope
from promptkeel.store.base import Heads
from promptkeel.tokens import TokenCounter

_TEXT: Final = "text"


@final
@attrs.frozen(eq=False, repr=False, slots=False)
class Prompt:
    """The standing context of one scope. Immutable; an unchanged memory answers the very same object.

    Attributes:
        resolution: the blocks and what they were verified at.
        counter: what counts tokens.
    """

    resolution: Resolution
    counter: TokenCounter

    @property
    def scope(self) -> TenantScope:
        """Who asked."""
        return self.resolution.scope

    @property
    def blocks(self) -> tuple[ResolvedBlock, ...]:
        """The blocks, in the order of the text; one with nothing to say has an empty text."""
        return self.resolution.blocks

    @property
    def heads(self) -> Heads | None:
        """The one vector of heads at which all memory in the prompt holds."""
        return self.resolution.heads

    @property
    def freshness(self) -> Freshness:
        """Whether everything was verified after the call began."""
        return self.resolution.freshness

    @cached_property
    def text(self) -> str:
        """The whole text; empty where no block has anything to say."""
        memo = self.resolution.memo
        text = memo.get(_TEXT)
        if text is None:
            text = memo[_TEXT] = render_region([block.rendered for block in self.blocks])
        return str(text)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the bytes that the model gets, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def tokens(self) -> int:
        """How many tokens the whole text has by this prompt's counter; an estimate unless the counter is exact."""
        return self.counter(self.text)

    @cached_property
    def block_tokens(self) -> Mapping[str, int]:
        """The tokens of each block by its name."""
        return MappingProxyType({block.name: self.counter(block.text) for block in self.blocks})

    def block(self, name: str) -> ResolvedBlock:
        """The block of this name.

        Raises:
            KeyError: no block of the prompt has it.
        """
        for block in self.blocks:
            if block.name == name:
                return block
        raise KeyError(name)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        names = ", ".join(block.name for block in self.blocks if block.text)
        return f"<Prompt for {self.scope.path or '(deployment)'}: {names or 'nothing to say'}>"
