"""The requests that a prompt makes, one method for each provider; what they say is decided by layout and adapters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from promptkeel.prompt.layout import PLAIN_CHANNELS, Durability, Layout, layout_of
from promptkeel.prompt.requests import Handle, Request
from promptkeel.prompt.salts import PromptKeys, SaltScope, salt_scope
from promptkeel.prompt.tail import Tail, as_tail, parts_of
from promptkeel.resolver import ResolvedBlock
from promptkeel.tokens import TokenCounter

if TYPE_CHECKING:
    # Imported where a request is made, so that importing the package stays light.
    from promptkeel.prompt.adapters.asked import Asked
    from promptkeel.providers.rule_tables import RuleTables
    from promptkeel.providers.rules import ProviderName


class Requesting:
    """What a prompt needs in order to make requests, and the methods that make them."""

    counter: TokenCounter
    keys: PromptKeys | None
    rules: tuple[RuleTables, ...]

    @property
    def blocks(self) -> tuple[ResolvedBlock, ...]:
        """The blocks, in the order of the text."""
        raise NotImplementedError

    @property
    def prefix(self) -> str:
        """The stable blocks as one text."""
        raise NotImplementedError

    @property
    def tail(self) -> str:
        """The volatile blocks and notices as one text."""
        raise NotImplementedError

    @property
    def notices(self) -> tuple[str, ...]:
        """What the model is told about blocks that are not there."""
        raise NotImplementedError

    def layout(self, channels: Mapping[str, str] = PLAIN_CHANNELS) -> Layout:
        """Where each block stands for a provider that has this table of channels, as ``ModelRules.channels``."""
        key = tuple(sorted(channels.items()))
        found = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = layout_of(self.blocks, self.notices, channels)
        return found

    @cached_property
    def _layouts(self) -> dict[tuple[tuple[str, str], ...], Layout]:
        return {}

    def anthropic(
        self,
        *,
        model: str,
        messages: Sequence[Any] = (),
        tools: Sequence[Any] | None = None,
        tail: Tail | Mapping[str, Any] | None = None,
        current: Requesting | None = None,
        overrides: Iterable[Any] = (),
        ttls: Mapping[Durability, int] | None = None,
        **settings: Any,
    ) -> Request:
        """Everything for ``client.messages.create(**request)`` of Anthropic's SDK.

        Args:
            model: the model.
            messages: the conversation, in the provider's format; handed on as it is.
            tools: tool definitions, in the provider's format; sent in one spelling, whatever their order.
            tail: what this request says beyond memory: the time, what was recalled, a question.
            current: a prompt whose volatile blocks stand in place of this one's.
            overrides: what is known better of the provider's rules; later ones win.
            ttls: for how many seconds a prefix is to be kept, by who shares it: ``deployment``, ``tenant``,
                ``conversation``; what is left out, the provider's default.
            settings: other arguments of the call, as ``max_tokens``; handed on as they are.

        Raises:
            InvalidInputError: names the message, tool or setting that the provider would refuse.
        """
        from promptkeel.prompt.adapters.anthropic import anthropic_request

        return anthropic_request(
            self._asked("anthropic", model, messages, tools, tail, current, overrides, ttls, settings)
        )

    def bedrock(
        self,
        *,
        model: str,
        messages: Sequence[Any] = (),
        tools: Sequence[Any] | None = None,
        tool_choice: Mapping[str, Any] | None = None,
        tail: Tail | Mapping[str, Any] | None = None,
        current: Requesting | None = None,
        overrides: Iterable[Any] = (),
        ttls: Mapping[Durability, int] | None = None,
        **settings: Any,
    ) -> Request:
        """Everything for ``client.converse(**request)`` of boto3; ``converse_stream`` takes the same.

        Arguments and errors as ``anthropic``, and ``tool_choice`` as Converse spells it.
        """
        from promptkeel.prompt.adapters.bedrock import bedrock_request

        asked = self._asked("bedrock", model, messages, tools, tail, current, overrides, ttls, settings)
        return bedrock_request(asked, tool_choice)

    def openai(
        self,
        *,
        model: str,
        messages: Sequence[Any] = (),
        tools: Sequence[Any] | None = None,
        api: Literal["responses", "chat"] = "responses",
        server: Literal["openai", "vllm"] = "openai",
        salt: SaltScope | None = None,
        tail: Tail | Mapping[str, Any] | None = None,
        current: Requesting | None = None,
        overrides: Iterable[Any] = (),
        ttls: Mapping[Durability, int] | None = None,
        **settings: Any,
    ) -> Request:
        """Everything for ``client.responses.create(**request)`` or ``client.chat.completions.create(**request)``.

        Arguments and errors as ``anthropic``, and these: ``api`` says which of the two. ``server`` is ``openai``, or
        ``vllm`` for one that keeps prefixes apart by a salt. ``salt`` says who shares cached prefixes:
        ``deployment``, ``tenant`` or ``scope``; left out, the tenant, or the deployment where every block is
        deployment-wide.

        Raises:
            InvalidDeclarationError: the server needs a salt, and there is no secret to make one of.
        """
        from promptkeel.prompt.adapters.openai import openai_request

        asked = self._asked("openai", model, messages, tools, tail, current, overrides, ttls, settings, salt)
        return openai_request(asked, api, server)

    def gemini(
        self,
        *,
        model: str,
        messages: Sequence[Any] = (),
        tools: Sequence[Any] | None = None,
        config: Mapping[str, Any] | None = None,
        handle: Handle | None = None,
        backend: str = "",
        ttl: int | None = None,
        tail: Tail | Mapping[str, Any] | None = None,
        current: Requesting | None = None,
        overrides: Iterable[Any] = (),
        **settings: Any,
    ) -> Request:
        """Everything for ``client.models.generate_content(**request)`` of google-genai.

        Arguments and errors as ``anthropic``, and these: ``config`` is other configuration of the call, handed on as
        it is. ``handle`` is a prefix that the provider keeps, made with ``request.prefix``; it is used where it still
        fits, else named by ``request.superseded``, to be deleted. ``backend`` is where handles live, as a project and
        location, and part of their keys. ``ttl`` is for how many seconds a handle is kept.
        """
        from promptkeel.prompt.adapters.gemini import gemini_request

        asked = self._asked("gemini", model, messages, tools, tail, current, overrides, None, settings)
        return gemini_request(asked, config, handle, backend, ttl)

    def plain(self, *, tail: Tail | Mapping[str, Any] | None = None, current: Requesting | None = None) -> str:
        """One text for anything else: the prompt, then its tail; arguments and errors as ``anthropic``."""
        from promptkeel.prompt.adapters.plain import plain_text

        source = self if current is None else current
        keys = source.keys if self.keys is None else self.keys
        return plain_text(self.prefix, source.tail, as_tail(tail), keys)

    def _asked(
        self,
        provider: ProviderName,
        model: str,
        messages: Any,
        tools: Any,
        tail: Any,
        current: Requesting | None,
        overrides: Iterable[Any],
        ttls: Mapping[Durability, int] | None,
        settings: Mapping[str, Any],
        salt: SaltScope | None = None,
    ) -> Asked:
        from promptkeel.prompt.adapters.asked import Asked
        from promptkeel.prompt.adapters.checking import checked_model, checked_ttls
        from promptkeel.providers.rules import rules_for

        known = self.rules if current is None or self.rules else current.rules
        rules = rules_for(provider, checked_model(model), overrides=(*known, *overrides))
        layout = self.layout(rules.channels)
        keys = self.keys
        volatile = layout
        if current is not None:
            volatile = current.layout(rules.channels)
            keys = current.keys if keys is None else keys
        # By what is declared: a tenant without any memory yet is a tenant all the same.
        blocks = self.blocks if current is None else (*self.blocks, *current.blocks)
        return Asked(
            layout=layout,
            tail=parts_of(as_tail(tail), volatile.tail, layout.channels, rules.channels, keys),
            rules=rules,
            model=model,
            messages=messages,
            tools=tools,
            settings=settings,
            counter=self.counter,
            counted=self._counted,
            keys=keys,
            salt=salt_scope((block.spec.shared for block in blocks), salt),
            ttls=checked_ttls(ttls),
        )

    @cached_property
    def _counted(self) -> dict[str, int]:
        return {}
