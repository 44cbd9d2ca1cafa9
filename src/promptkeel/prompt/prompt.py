"""A prompt: the blocks in order, the text that the model gets, and what it was verified at."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, final

import attrs

from promptkeel.blocks import Layer
from promptkeel.prompt.layout import PLAIN_CHANNELS, Durability, Layout, layout_of
from promptkeel.prompt.notices import is_missing, notice_of
from promptkeel.prompt.requests import Handle, Request
from promptkeel.prompt.salts import PromptKeys, SaltScope, salt_scope
from promptkeel.prompt.tail import Tail, as_tail, parts_of
from promptkeel.render import RenderedBlock
from promptkeel.render.region import REGION_HEADING, render_region
from promptkeel.resolver import Freshness, Resolution, ResolvedBlock
from promptkeel.scope import TenantScope
from promptkeel.store.base import Heads
from promptkeel.tokens import TokenCounter

if TYPE_CHECKING:
    from promptkeel.prompt.adapters.asked import Asked
    from promptkeel.providers.rules import ProviderName

_PREFIX: Final = "prefix"
_TEXT: Final = "text"


@final
@attrs.frozen(eq=False, repr=False, slots=False)
class Prompt:
    """The standing context of one scope. Immutable; an unchanged memory answers the very same object.

    Attributes:
        resolution: the blocks and what they were verified at.
        counter: what counts tokens.
        keys: what the store's secret gives for the scope; None where there is no secret.
    """

    resolution: Resolution
    counter: TokenCounter
    keys: PromptKeys | None = None

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

    def anthropic(
        self,
        *,
        model: str,
        messages: Sequence[Any] = (),
        tools: Sequence[Any] | None = None,
        tail: Tail | Mapping[str, Any] | None = None,
        current: Prompt | None = None,
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
        current: Prompt | None = None,
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
        current: Prompt | None = None,
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
        current: Prompt | None = None,
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

    def _asked(
        self,
        provider: ProviderName,
        model: str,
        messages: Any,
        tools: Any,
        tail: Any,
        current: Prompt | None,
        overrides: Iterable[Any],
        ttls: Mapping[Durability, int] | None,
        settings: Mapping[str, Any],
        salt: SaltScope | None = None,
    ) -> Asked:
        from promptkeel.prompt.adapters.asked import Asked
        from promptkeel.prompt.adapters.checking import checked_model
        from promptkeel.providers.rules import rules_for

        rules = rules_for(provider, checked_model(model), overrides=overrides)
        layout = self.layout(rules.channels)
        keys = self.keys
        volatile = layout
        if current is not None:
            volatile = current.layout(rules.channels)
            keys = current.keys if keys is None else keys
        said = [block.spec.shared for block in self.blocks if block.text and not block.spec.is_volatile]
        return Asked(
            layout=layout,
            tail=parts_of(as_tail(tail), layout, volatile.tail, rules.channels, keys),
            rules=rules,
            model=model,
            messages=messages,
            tools=tools,
            settings=settings,
            counter=self.counter,
            counted=self._counted,
            keys=keys,
            salt=salt_scope(said, salt),
            ttls={} if ttls is None else ttls,
        )

    @cached_property
    def _counted(self) -> dict[str, int]:
        return {}

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        names = ", ".join(block.name for block in self.blocks if block.text)
        return f"<Prompt for {self.scope.path or '(deployment)'}: {names or 'nothing to say'}>"
