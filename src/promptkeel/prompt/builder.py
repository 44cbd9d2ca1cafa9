"""From resolved blocks to a prompt: the same object for as long as nothing has moved."""

from __future__ import annotations

from typing import Any, cast, final

from promptkeel.prompt.prompt import Prompt
from promptkeel.resolver import Resolution, ResolverCore, Unsettled
from promptkeel.scope import TenantScope
from promptkeel.steps import Steps, as_blocking, drive
from promptkeel.tokens import token_counter


@final
class BuilderCore:
    """The builder's methods as steps."""

    def __init__(self, resolver: ResolverCore, token_counter_name: str = "estimate") -> None:
        self.resolver = resolver
        self._counter = token_counter(token_counter_name)

    def look(self, scope: TenantScope | None) -> Prompt | Unsettled:
        """The prompt built before, where it is known to hold still; else what ``build`` goes on with."""
        found = self.resolver.look(scope)
        return self.prompt_of(found) if isinstance(found, Resolution) else found

    def build(self, scope: TenantScope | None, seen: Unsettled | None = None) -> Steps[Prompt]:
        """The prompt of a scope; ``seen`` is what ``look`` has just answered.

        Raises:
            BlockResolutionError: a block's source could not be read.
        """
        resolution = yield from self.resolver.resolve(scope, seen)
        return self.prompt_of(resolution)

    def resolve(self, scope: TenantScope | None) -> Steps[Resolution]:
        """The blocks of a scope."""
        return (yield from self.resolver.resolve(scope))

    def prompt_of(self, resolution: Resolution) -> Prompt:
        """The prompt of an answer, made once."""
        # By the counter, not by the builder: what is kept with an answer must not keep a store alive.
        prompt = resolution.derived.get(self._counter)
        if prompt is None:
            prompt = resolution.derived[self._counter] = Prompt(resolution, self._counter)
        return cast("Prompt", prompt)


class _BuilderFacade:
    def __init__(self, resolver: Any, *, token_counter: str = "estimate") -> None:
        self.core = BuilderCore(resolver.core, token_counter)


@final
class PromptBuilder(_BuilderFacade):
    """Builds prompts from a resolver's blocks.

    Args:
        resolver: a ``PromptBlockResolver``.
        token_counter: the name of what counts tokens: ``estimate``, ``utf8-bytes``, or an exact one of an extra.
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
