"""What an adapter answers: the keyword arguments of one call of a provider's SDK, and what they were made of."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, final

import attrs

from promptkeel.prompt.breakpoints import MarkPlan
from promptkeel.prompt.layout import Layout
from promptkeel.tokens import TokenCounter


@final
@attrs.frozen(order=False)
class CachedPrefix:
    """A prefix that a provider keeps under a handle, before there is one.

    Attributes:
        key: a hash of everything that the handle stands for: backend, model, system, tools and contents. Keep the
            handle's name under it, and use it for as long as a request names the same key.
        create: keyword arguments of the call that makes the handle.
    """

    key: str
    create: dict[str, Any]


@final
@attrs.frozen(order=False)
class Handle:
    """A prefix that a provider keeps.

    Attributes:
        key: of the ``CachedPrefix`` that it was made from.
        name: the provider's name for it.
    """

    key: str
    name: str


@final
@attrs.frozen(eq=False, repr=False, slots=False)
class Request(Mapping[str, Any]):
    """One call of a provider's SDK, as ``client.messages.create(**request)``; made anew each time, for its holder.

    Attributes:
        arguments: the keyword arguments. Messages of the caller's in it are the caller's own objects.
        history: the caller's messages, without anything that adapters add at each call: what to append the answer to.
        notes: what the operator should know: marks that could not be set, text in another channel than asked for.
        layout: where each block stands.
        counter: what counts tokens.
        plan: the marks, by the positions of the prefix; None where the format has none.
        prefix: what a handle could be made of, for a provider that has them; None where it would not be kept.
        superseded: the name of a handle that was given and does not fit any more: delete it.
    """

    arguments: dict[str, Any]
    history: Sequence[Any]
    notes: tuple[str, ...]
    layout: Layout
    counter: TokenCounter
    plan: MarkPlan | None = None
    prefix: CachedPrefix | None = None
    superseded: str | None = None

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arguments)

    def __len__(self) -> int:
        return len(self.arguments)

    @cached_property
    def tokens(self) -> int:
        """How many tokens all that is sent has, tools and calls and reasoning among it.

        Always an estimate: providers add tokens of their own, and a local counter knows no other tokenizer.
        """
        return self.counter(json.dumps(self._sent(), ensure_ascii=False, default=_size_of, skipkeys=True))

    @property
    def tokens_exact(self) -> bool:
        """Whether ``tokens`` is what the provider will count; it never is."""
        return False

    def _sent(self) -> list[Any]:
        return [self.arguments[name] for name in _SENT if name in self.arguments]

    def __repr__(self) -> str:
        return f"<Request: {', '.join(self.arguments)}>"


_SENT = ("tools", "toolConfig", "config", "system", "instructions", "messages", "input", "contents")
"""The arguments that models read."""


def _size_of(value: object) -> str:
    # Images and documents: what they cost depends on their content, which no counter here knows.
    return f"{len(value)} bytes" if isinstance(value, bytes | bytearray) else str(value)
