"""What every source of a block offers, whoever wrote it, and the revisions of authored text.

What a source reads is in a module of its own for each kind; which block it fills is the declaration's.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, Protocol, runtime_checkable

from promptkeel.errors import InvalidDeclarationError, InvalidTextError
from promptkeel.model import BlockRevision
from promptkeel.scope import TenantScope
from promptkeel.text import check_text

Sharing = Literal["deployment", "tenant", "scope"]
"""How widely one text is shared: by everyone, by all scopes of one root, or by nobody but the scope that asks."""
SHARINGS: Final[tuple[Sharing, ...]] = ("deployment", "tenant", "scope")
"""The widest first."""


@runtime_checkable
class BlockSource(Protocol):
    """What a source declares about itself. Everything but what a store holds also has ``load``."""

    @property
    def kind(self) -> str:
        """One word for people."""

    @property
    def is_learned(self) -> bool:
        """Whether it gives facts, which are contained, or authored text, which stands as it is."""

    @property
    def sharing(self) -> tuple[Sharing, ...]:
        """How widely its text may be shared; the first is the default."""

    @property
    def declared(self) -> tuple[object, ...]:
        """Everything declared in it that changes what is read; compared by its ``repr``."""


class LoadedSource(BlockSource, Protocol):
    """A source that is asked on every resolve; a caller's own class may be one."""

    def load(self, scope: TenantScope, /) -> BlockRevision | Awaitable[BlockRevision]:
        """The content now; may be ``async``, otherwise it is called in a helper thread.

        Raises:
            OSError: it could not be read, which is a matter of the block's failure policy.
        """


class StoreBacked:
    """The base of sources whose text the resolver's own store holds, which are all read at one point in time."""

    __slots__ = ()


def content_revision(text: str) -> str:
    """The revision of authored text: a hash of its bytes."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:32]


def authored(text: str) -> BlockRevision:
    """The revision of authored text."""
    revision = content_revision(text)
    return BlockRevision(content=text, revision=revision, content_hash=revision)


def check_authored(text: object, field: str) -> str:
    """``text`` itself, if a prompt can hold it.

    Raises:
        InvalidDeclarationError: it cannot.
    """
    try:
        return check_text(text, field=field)
    except InvalidTextError as error:
        raise InvalidDeclarationError(error.reason, field=field) from None


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Whether calling it answers with something to await, as far as can be told without calling it."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - asks how it is written, not whether it can be called


def takes_a_scope(function: object) -> bool:
    """Whether it can be called with one argument, as far as can be told without calling it."""
    if not callable(function):
        return False
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True  # built in, and silent about its arguments
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True
