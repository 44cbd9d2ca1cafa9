"""What a resolver answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, final

import attrs

from promptkeel.blocks import PromptBlockSpec
from promptkeel.errors import BlockResolutionError
from promptkeel.lane import Lane
from promptkeel.model import BlockFact, BlockRevision
from promptkeel.render import Omission, RenderedBlock
from promptkeel.resolver.outcomes import BlockState
from promptkeel.scope import TenantScope
from promptkeel.store.base import Heads


@final
@attrs.frozen(eq=False, slots=False)
class ResolvedBlock:
    """One block of a prompt: what was declared, what was found, and the text that the model gets.

    Attributes:
        spec: the declaration.
        rendered: the text, and what a limit left out of it.
        content: what was found; empty where nothing was read.
        state: ``fresh``: verified after the call began. ``stale``: could not be read, and is shown as it was last
            read. ``omitted``: could not be read, and is left out. ``gated``: switched off by its gate, and not read.
        failure: why it could not be read, of a stale or omitted block.
        age: how many seconds ago the read of a stale block began.
    """

    spec: PromptBlockSpec
    rendered: RenderedBlock
    content: Lane | BlockRevision = attrs.field(repr=False)
    state: BlockState = "fresh"
    failure: BlockResolutionError | None = None
    age: float | None = None

    @property
    def name(self) -> str:
        """The block's name."""
        return self.spec.name

    @property
    def text(self) -> str:
        """The rendered text; empty where the block has nothing to say, is switched off or was left out."""
        return self.rendered.text

    @property
    def is_learned(self) -> bool:
        """Whether this is learned text."""
        return self.spec.is_learned

    @property
    def revision_id(self) -> str:
        """The revision of the content; ``unread`` where nothing was read."""
        return self.content.revision

    @property
    def facts(self) -> tuple[BlockFact, ...]:
        """The facts of a learned block, in lane order; none for an authored or a switched-off one.

        Raises:
            BlockResolutionError: the block was left out, so that what it says is not known.
        """
        return self._known().facts or ()

    @cached_property
    def revision(self) -> BlockRevision:
        """The content at its revision.

        Raises:
            BlockResolutionError: the block was left out, so that what it says is not known.
        """
        content = self._known()
        return content.to_revision() if isinstance(content, Lane) else content

    def _known(self) -> Lane | BlockRevision:
        if self.state == "omitted" and self.failure is not None:
            raise BlockResolutionError(self.failure.reason, block=self.failure.block, scope=self.failure.scope)
        return self.content

    @property
    def omitted(self) -> tuple[Omission, ...]:
        """The facts that a declared limit left out, each with its reason."""
        return self.rendered.omitted


@final
@attrs.frozen
class Freshness:
    """How fresh a prompt is.

    Attributes:
        strict: whether every block was verified against its source after the call began.
        detail: what is not, block by block, each beginning with the block's name.
    """

    strict: bool = True
    detail: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "strict" if self.strict else "; ".join(self.detail)


@final
@attrs.frozen(eq=False)
class Resolution:
    """All blocks of one scope, verified together.

    Attributes:
        scope: who asked.
        blocks: in prompt order.
        heads: the one vector of heads at which all memory lanes hold; None without a store that has heads.
        freshness: whether all of it was verified after the call began.
        left_out: the names of the blocks that an answer without a scope does not have.
        memo: for what a caller derives from the blocks' text alone; kept as long as no text changes.
        derived: for what a caller derives from exactly this answer, by what it is derived with.
    """

    scope: TenantScope
    blocks: tuple[ResolvedBlock, ...]
    heads: Heads | None
    freshness: Freshness = Freshness()
    left_out: tuple[str, ...] = ()
    memo: dict[object, Any] = attrs.field(factory=dict, repr=False)
    derived: dict[object, Any] = attrs.field(factory=dict, repr=False, init=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Resolution, (self.scope, self.blocks, self.heads, self.freshness, self.left_out, dict(self.memo))


@attrs.define
class Counters:
    """How much work a resolver has done; for tests and tables.

    Attributes:
        abandoned: how many calls of sources and gates were left behind after their timeout.
        still_running: how many of those still run.
    """

    probes: int = 0
    head_reads: int = 0
    deltas: int = 0
    scans: int = 0
    renders: int = 0
    file_reads: int = 0
    abandoned: int = 0
    still_running: int = 0

    def leave_behind(self, difference: int) -> None:
        """Count a call that was left behind, or one that ended after all."""
        self.abandoned += max(difference, 0)
        self.still_running += difference


def failed(spec: PromptBlockSpec, scope: TenantScope, error: OSError) -> BlockResolutionError:
    """The error of a block whose source could not be read."""
    return BlockResolutionError(str(error) or type(error).__name__, block=spec.name, scope=scope.path)


Action = Literal["scanned", "updated", "rendered", "read", "computed"]


@final
@attrs.frozen
class BlockEvent:
    """One piece of work that a resolve did for a block; what was reused makes no event.

    Attributes:
        block: the block's name.
        scope: the path of the scope.
        action: what was done.
        microseconds: how long it took.
    """

    block: str
    scope: str
    action: Action
    microseconds: float


Observer = Callable[[BlockEvent], object]
"""Called with every event, on whichever thread did the work; it must not block or raise."""
