"""What an adapter is asked for: a prompt's layout, and everything that the caller passes with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import attrs

from promptkeel.prompt.layout import Durability, Layout, TailPart
from promptkeel.prompt.salts import PromptKeys, SaltScope
from promptkeel.providers.rules import ModelRules
from promptkeel.tokens import TokenCounter


@final
@attrs.frozen(kw_only=True, eq=False)
class Asked:
    """What an adapter is asked for.

    Attributes:
        layout: where the prompt's blocks stand.
        tail: what changes from turn to turn.
        rules: of the provider and the model.
        model: the model's name.
        messages: the caller's, in the provider's format.
        tools: the caller's, in the provider's format; None where there are none.
        settings: all other keyword arguments of the SDK, handed on as they are.
        counter: what counts tokens.
        counted: what it has counted of this prompt.
        keys: what the store's secret gives for the scope.
        salt: who shares cached prefixes.
        ttls: for how many seconds a prefix is to be kept, by who shares it; what is left out, the provider's default.
    """

    layout: Layout
    tail: Sequence[TailPart]
    rules: ModelRules
    model: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Any] | None
    settings: Mapping[str, Any]
    counter: TokenCounter
    counted: dict[str, int]
    keys: PromptKeys | None
    salt: SaltScope
    ttls: Mapping[Durability, int]

    @property
    def calls(self) -> bool:
        """Whether text may stand in results of a tool."""
        return self.layout.calls or any(part.channel == "tool_result" for part in self.tail)

    def tokens_of(self, text: str) -> int:
        """The tokens of a text that comes back in every request of this prompt; kept with the prompt, and no longer."""
        found = self.counted.get(text)
        if found is None:
            found = self.counted[text] = self.counter(text)
        return found
