"""Text that a function answers, together with its revision: checked like everybody else's."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, final

import attrs

from promptkeel.blocks.source import Sharing, content_revision, is_asynchronous, takes_a_scope
from promptkeel.errors import InvalidDeclarationError
from promptkeel.model import BlockRevision
from promptkeel.scope import TenantScope
from promptkeel.text import refused_character, trim

ComputedContent = tuple[str, str]
"""What a computed source answers: the content and its revision."""


@final
@attrs.frozen(order=False)
class ComputedSource:
    """Authored text that a function answers, together with its revision.

    Attributes:
        function: called with the scope on every resolve; answers ``(content, revision)``. An ``async`` one is awaited
            on the event loop and must not block there; any other is called in a helper thread. There, up to 8 calls
            run at once as long as they wait for something, one where they compute, and calls for one scope that wait
            for a thread share one. A block that is shared more widely than its scope has it called with the tenant's
            scope, or the deployment's.
    """

    kind: ClassVar[str] = "computed"
    is_learned: ClassVar[bool] = False
    sharing: ClassVar[tuple[Sharing, ...]] = ("scope", "tenant", "deployment")

    function: Callable[[TenantScope], ComputedContent | Awaitable[ComputedContent]]

    def __attrs_post_init__(self) -> None:
        if not takes_a_scope(self.function):
            raise InvalidDeclarationError(
                "must be callable with one argument, the scope, as: def clock(scope): return text, revision",
                field="function",
            )

    @property
    def declared(self) -> tuple[object, ...]:
        """What is declared; a function is known by what it answers."""
        return ()

    def load(self, scope: TenantScope) -> BlockRevision | Awaitable[BlockRevision]:
        """The content now."""
        answer = self.function(scope)
        return _awaited(answer) if inspect.isawaitable(answer) else check_computed(answer)

    @property
    def is_asynchronous(self) -> bool:
        """Whether the function is awaited."""
        return is_asynchronous(self.function)


async def _awaited(answer: Awaitable[Any]) -> BlockRevision:
    return check_computed(await answer)


def check_computed(answer: object) -> BlockRevision:
    """The revision of a computed source's answer.

    Raises:
        InvalidDeclarationError: the answer is not ``(content, revision)``, both text that a prompt can hold.
    """
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise InvalidDeclarationError(f"must answer (content, revision), not {_described(answer)}")
    content, revision = answer
    for name, text in (("content", content), ("revision", revision)):
        if not isinstance(text, str):
            raise InvalidDeclarationError(f"must answer {name} as text, not {type(text).__name__}")
        found = refused_character(text)
        if found:
            raise InvalidDeclarationError(f"answered {name} that holds {found}")
    if not trim(revision):
        raise InvalidDeclarationError("answered a blank revision")
    # The caller's revision says when to look again; what is shown is known by its own hash.
    return BlockRevision(content=content, revision=revision, content_hash=content_revision(content))


def check_loaded(answer: object, *, is_learned: bool) -> BlockRevision:
    """The answer of a caller's own source.

    Raises:
        InvalidDeclarationError: it is no revision of such a block.
        MissingFactsError: a learned one carries no facts.
    """
    if not isinstance(answer, BlockRevision):
        raise InvalidDeclarationError(f"must answer a BlockRevision, not {_described(answer)}")
    if is_learned:
        answer.require_facts()
        return answer
    if answer.facts is not None:
        raise InvalidDeclarationError("answered facts, which only a learned block may hold: set is_learned")
    check_computed((answer.content, answer.revision))
    return attrs.evolve(answer, content_hash=content_revision(answer.content))


def _described(answer: object) -> str:
    return f"a tuple of {len(answer)}" if isinstance(answer, tuple) else type(answer).__name__
