"""Prompts that need not be strict: read from a replica alone, and marked so.

What is read, and what is kept of it, is the resolver's; here an answer only gets the freshness that it has.
"""

from __future__ import annotations

from typing import cast, final

import attrs

from promptkeel.prompt.builder import BuilderCore
from promptkeel.prompt.prompt import Prompt
from promptkeel.providers.rule_tables import RuleTables
from promptkeel.resolver import Freshness, Resolution, ResolverCore, Unsettled
from promptkeel.scope import TenantScope
from promptkeel.steps import Steps

_MARK = object()


@final
class UnprovenBuilder:
    """A builder, and a resolver, whose memory blocks may be behind; the methods are those of ``BuilderCore``.

    Args:
        resolver: reads the replica.
        token_counter_name: as for ``BuilderCore``.
        prompt_tokens: as for ``BuilderCore``.
        rules: as for ``BuilderCore``.
    """

    def __init__(
        self,
        resolver: ResolverCore,
        token_counter_name: str,
        prompt_tokens: int | None = None,
        rules: tuple[RuleTables, ...] = (),
    ) -> None:
        self.resolver = resolver
        self._builder = BuilderCore(resolver, token_counter_name, prompt_tokens, rules)
        self._detail = tuple(
            f"{spec.name}: as the replica has it, which may be behind; the primary was not asked"
            for spec in resolver.specs
            if spec.is_learned
        )

    def look(self, scope: TenantScope | None) -> Prompt | Unsettled:
        """The prompt built before, where the replica is known to hold still; else what ``build`` goes on with."""
        found = self.resolver.look(scope)
        return self._builder.ready(self._marked(found)) if isinstance(found, Resolution) else found

    def build(self, scope: TenantScope | None, seen: Unsettled | None = None) -> Steps[Prompt]:
        """The prompt of a scope; ``seen`` is what ``look`` has just answered."""
        resolution = yield from self.resolve(scope, seen)
        return (yield from self._builder.built(resolution))

    def resolve(self, scope: TenantScope | None, seen: Unsettled | None = None) -> Steps[Resolution]:
        """The blocks of a scope, marked."""
        resolution = yield from self.resolver.resolve(scope, seen)
        return self._marked(resolution)

    def _marked(self, resolution: Resolution) -> Resolution:
        if not self._detail:
            return resolution
        marked = resolution.derived.get(_MARK)
        if marked is None:
            freshness = Freshness(strict=False, detail=(*resolution.freshness.detail, *self._detail))
            marked = resolution.derived.setdefault(_MARK, attrs.evolve(resolution, freshness=freshness))
        return cast("Resolution", marked)
