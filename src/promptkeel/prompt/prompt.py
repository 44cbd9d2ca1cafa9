"""A prompt: the blocks in order, the text that the model gets, and what it was verified at."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

import attrs

from promptkeel.blocks import Layer
from promptkeel.errors import InvalidInputError
from promptkeel.prompt.notices import is_missing, notice_of
from promptkeel.prompt.requesting import Requesting
from promptkeel.prompt.salts import PromptKeys
from promptkeel.providers.rule_tables import RuleTables
from promptkeel.render import RenderedBlock
from promptkeel.render.region import REGION_HEADING, render_region
from promptkeel.resolver import Freshness, Resolution, ResolvedBlock
from promptkeel.scope import TenantScope
from promptkeel.store.base import Heads
from promptkeel.tokens import TokenCounter

if TYPE_CHECKING:
    from promptkeel.prompt.comparing import Divergence, Part
    from promptkeel.providers.rules import ModelRules

_PREFIX: Final = "prefix"
_TEXT: Final = "text"


@final
@attrs.frozen(eq=False, repr=False, slots=False)
class Prompt(Requesting):
    """The standing context of one scope. Immutable; an unchanged memory answers the very same object.

    Attributes:
        resolution: the blocks and what they were verified at.
        counter: what counts tokens.
        keys: what the store's secret gives for the scope; None where there is no secret.
        rules: what is known better of the rules of providers.
    """

    resolution: Resolution
    counter: TokenCounter
    keys: PromptKeys | None = None
    rules: tuple[RuleTables, ...] = ()

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

    @property
    def left_out(self) -> tuple[str, ...]:
        """Of a prompt without a scope, the names of the blocks that need one."""
        return self.resolution.left_out

    @cached_property
    def notices(self) -> tuple[str, ...]:
        """What the model is told about blocks that could not be read or have no room, a line each."""
        return tuple(notice_of(block) for block in self.blocks if is_missing(block))

    @cached_property
    def prefix(self) -> str:
        """The stable layer: the text up to where it changes from turn to turn; empty where nothing there speaks."""
        return self._remembered(_PREFIX, lambda: render_region(self._texts("stable")))

    @cached_property
    def tail(self) -> str:
        """The volatile layer: the volatile blocks, then the notices; empty where there are none."""
        texts = [block.text for block in self._texts("volatile") if block.text]
        if self.prefix or not (texts or self.notices):
            return "\n\n".join([*texts, *self.notices])
        # Nothing stands in front of it, so that it says itself what its fences mean.
        return "\n\n".join([REGION_HEADING, *texts, *self.notices])

    @cached_property
    def text(self) -> str:
        """Everything that the model gets: the prefix, then the tail; empty where no block has anything to say."""
        return self._remembered(_TEXT, lambda: "\n\n".join(filter(None, (self.prefix, self.tail))))

    def _texts(self, layer: Layer) -> list[RenderedBlock]:
        return [block.rendered for block in self.blocks if block.spec.layer == layer]

    def _remembered(self, key: str, make: Callable[[], str]) -> str:
        memo = self.resolution.memo
        text = memo.get(key)
        if text is None:
            text = memo[key] = make()
        return str(text)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the bytes that the model gets, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def tokens(self) -> int:
        """How many tokens the whole text has by this prompt's counter; an estimate unless the counter is exact."""
        return self.counter(self.text)

    @property
    def tokens_exact(self) -> bool:
        """Whether ``tokens`` is what the tokenizer named by the counter counts; else it is an estimate."""
        return self.counter.exact

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

    def explain(self, previous: Prompt, *, rules: ModelRules | None = None, kept_behind: int = 0) -> Divergence | None:
        """Where this prompt parts from an earlier one, by byte, block and fact, and what that costs; None if nowhere.

        Args:
            previous: the earlier prompt.
            rules: of the model, for prices.
            kept_behind: tokens that a cache kept behind the earlier prompt, as the history of a conversation.

        Raises:
            InvalidInputError: what is given is no prompt.
        """
        if not isinstance(previous, Prompt):
            raise InvalidInputError(f"must be a Prompt, not {type(previous).__name__}", field="previous")
        # Imported where it is asked for, so that importing the package stays light.
        from promptkeel.prompt.comparing import compare

        return compare(previous.parts(), self.parts(), rules=rules, kept_behind=kept_behind)

    def parts(self) -> list[Part]:
        """The text in named parts, which joined are ``text``."""
        from promptkeel.prompt.comparing import Part

        blocks: dict[str, ResolvedBlock] = {block.name: block for block in self.blocks if block.text}
        stable = [block for block in blocks.values() if not block.spec.is_volatile]
        volatile = [block for block in blocks.values() if block.spec.is_volatile]
        named: list[tuple[str, str, bool]] = [("heading", REGION_HEADING, bool(stable))] if self.text else []
        named += [(block.name, block.text, not block.spec.is_volatile) for block in (*stable, *volatile)]
        named += [("notices", notice, False) for notice in self.notices]
        joints = ["", *["\n\n"] * len(named)]
        return [
            Part(name, joint + text, self.counter(text), blocks[name].facts if name in blocks else (), lasts)
            for (name, text, lasts), joint in zip(named, joints, strict=False)
        ]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        names = ", ".join(block.name for block in self.blocks if block.text)
        return f"<Prompt for {self.scope.path or '(deployment)'}: {names or 'nothing to say'}>"
