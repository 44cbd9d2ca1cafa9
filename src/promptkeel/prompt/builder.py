"""From resolved blocks to a prompt: the same object for as long as nothing has moved."""

from __future__ import annotations

from typing import Any, cast, final

import attrs

from promptkeel.errors import InvalidDeclarationError
from promptkeel.prompt.budget import fitted
from promptkeel.prompt.prompt import Prompt
from promptkeel.prompt.salts import keys_of
from promptkeel.providers.rule_tables import RuleTables
from promptkeel.render import RenderedBlock
from promptkeel.resolver import UNSEEN, Resolution, ResolvedBlock, ResolverCore, Unsettled
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Steps, as_blocking, drive
from promptkeel.tokens import token_counter


@final
class BuilderCore:
    """The builder's methods as steps. Arguments as ``PromptBuilder``."""

    def __init__(
        self,
        resolver: ResolverCore,
        token_counter_name: str = "estimate",
        prompt_tokens: int | None = None,
        rules: tuple[RuleTables, ...] = (),
    ) -> None:
        self.resolver = resolver
        self._counter = token_counter(token_counter_name)
        if prompt_tokens is not None and (type(prompt_tokens) is not int or prompt_tokens < 1):
            raise InvalidDeclarationError(
                f"must be a whole number of tokens from 1, or None for no limit, not {prompt_tokens!r}",
                field="prompt_tokens",
            )
        self._limit = prompt_tokens
        self._rules = rules
        self._kind = self._counter, prompt_tokens, rules

    def look(self, scope: TenantScope | None) -> Prompt | Unsettled:
        """The prompt built before, where it is known to hold still; else what ``build`` goes on with."""
        found = self.resolver.look(scope)
        return self.ready(found) if isinstance(found, Resolution) else found

    def build(self, scope: TenantScope | None, seen: Unsettled | None = None) -> Steps[Prompt]:
        """The prompt of a scope; ``seen`` is what ``look`` has just answered.

        Raises:
            BlockResolutionError: a block's source could not be read.
            PromptBudgetError: what it must hold has more tokens than it may.
        """
        resolution = yield from self.resolver.resolve(scope, seen)
        return (yield from self.built(resolution))

    def resolve(self, scope: TenantScope | None) -> Steps[Resolution]:
        """The blocks of a scope."""
        return (yield from self.resolver.resolve(scope))

    def ready(self, resolution: Resolution) -> Prompt | Unsettled:
        """The prompt of an answer, where making it is short."""
        # What has to be narrowed is too long for the caller's own thread.
        return self._prompt_of(resolution) if self._limit is None or self._kind in resolution.derived else UNSEEN

    def built(self, resolution: Resolution) -> Steps[Prompt]:
        """The prompt of an answer.

        Raises:
            PromptBudgetError: what it must hold has more tokens than it may.
        """
        found = self.ready(resolution)
        if isinstance(found, Prompt):
            return found
        prompt: Prompt = yield Call(self._prompt_of, resolution)
        return prompt

    def _prompt_of(self, resolution: Resolution) -> Prompt:
        # By the counter, not by the builder: what is kept with an answer must not keep a store alive.
        prompt = resolution.derived.get(self._kind)
        if prompt is None:
            prompt = resolution.derived[self._kind] = self._made(resolution)
        return cast("Prompt", prompt)

    def _made(self, resolution: Resolution) -> Prompt:
        keys = keys_of(self.resolver.keyed, resolution.scope)
        if self._limit is None:
            return Prompt(resolution, self._counter, keys, self._rules)

        def narrow(block: ResolvedBlock, tokens: int) -> RenderedBlock:
            return self.resolver.narrowed(block, resolution.scope, tokens, self._counter.name)

        return attrs.evolve(fitted(resolution, self._limit, self._counter, narrow), keys=keys, rules=self._rules)


class _BuilderFacade:
    def __init__(self, resolver: Any, *, token_counter: str = "estimate", prompt_tokens: int | None = None) -> None:
        core = getattr(resolver, "core", None)
        if not isinstance(core, ResolverCore):
            raise InvalidDeclarationError(
                f"must be a PromptBlockResolver, not {type(resolver).__name__}", field="resolver"
            )
        self.core = BuilderCore(core, token_counter, prompt_tokens)


@final
class PromptBuilder(_BuilderFacade):
    """Builds prompts from a resolver's blocks.

    Args:
        resolver: a ``PromptBlockResolver``.
        token_counter: the name of what counts tokens: ``estimate``, ``utf8-bytes``, or an exact one of an extra.
        prompt_tokens: how many tokens a prompt may have; memory gives way to it, authored text does not.
    """

    async def build(self, scope: TenantScope | None) -> Prompt:
        """The prompt of a scope; the very same object where nothing has moved since the last call.

        Without a scope, only what the whole deployment shares is in the prompt, which names the rest.

        Raises:
            BlockResolutionError: a block's source could not be read; names the block and the scope.
        """
        found = self.core.look(scope)
        return found if isinstance(found, Prompt) else await drive(self.core.build(scope, found))


@final
class BlockingPromptBuilder(_BuilderFacade):
    """The blocking twin of ``PromptBuilder``."""

    build = as_blocking(BuilderCore.build)
