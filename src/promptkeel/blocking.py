"""The blocking twin of ``promptkeel``: the same names and arguments, without ``await``, from the same core."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Self, final

from promptkeel.blocks.history import BlockingBlockHistory
from promptkeel.bound import BlockingBoundKeel
from promptkeel.core import KeelCore
from promptkeel.delegation import BlockingDelegatedRun, RunCore
from promptkeel.instants import Clock, system_clock
from promptkeel.keel import Declared, KeelFacade, open_core
from promptkeel.lane import scan_steps
from promptkeel.model import BlockRevision, Trust
from promptkeel.prompt import BlockingPromptBuilder as PromptBuilder
from promptkeel.prompt import Prompt
from promptkeel.resolver import CACHE_BYTES, CACHE_FACTS, BlockEvent
from promptkeel.resolver import BlockingPromptBlockResolver as PromptBlockResolver
from promptkeel.scope import TenantScope
from promptkeel.steps import as_blocking, drive_blocking
from promptkeel.store.facade import BlockingStore
from promptkeel.store.opening import open_engine
from promptkeel.tools import BlockingAgentTools, ToolCore, ToolLimits

if TYPE_CHECKING:
    # Imported where it is made, so that importing the package stays light.
    from promptkeel.conversations import BlockingConversation

__all__ = [
    "BlockingStore",
    "Keel",
    "PromptBlockResolver",
    "PromptBuilder",
    "open",
    "open_store",
    "scan_memory_lane",
]


@final
class Keel(KeelFacade):
    """An agent's memory and its prompts; made by ``promptkeel.blocking.open`` and used with ``with``."""

    remember = as_blocking(KeelCore.remember)
    correct = as_blocking(KeelCore.correct)
    retract = as_blocking(KeelCore.retract)
    erase = as_blocking(KeelCore.erase)
    erase_all = as_blocking(KeelCore.erase_all)
    erase_subject = as_blocking(KeelCore.erase_subject)
    plan_erasure = as_blocking(KeelCore.plan_erasure)
    export_erasure = as_blocking(KeelCore.export_erasure)
    perform_erasure = as_blocking(KeelCore.perform_erasure)
    receipts = as_blocking(KeelCore.receipts)
    settle_receipts = as_blocking(KeelCore.settle_receipts)
    link = as_blocking(KeelCore.link)
    facts = as_blocking(KeelCore.facts)
    resolve = as_blocking(KeelCore.resolve)
    get = as_blocking(KeelCore.get)
    history = as_blocking(KeelCore.history)
    why = as_blocking(KeelCore.why)
    explain = as_blocking(KeelCore.explain)

    def prompt(self, scope: TenantScope | None = None, *, strict: bool = True) -> Prompt:
        """The prompt of a scope, verified after this call began; the very same object where nothing has moved.

        Args:
            scope: who asks; left out, only what the whole deployment shares is in the prompt, which names the rest.
            strict: where False, a replica may answer alone, as far behind as it is; ``freshness`` then says so.

        Raises:
            BlockResolutionError: a block's source could not be read; names the block and the scope.
        """
        builder = self.core.builder if strict is True else self.core.reader(strict=strict)
        found = builder.look(scope)
        return found if isinstance(found, Prompt) else drive_blocking(builder.build(scope, found))

    @property
    def blocks(self) -> BlockingBlockHistory:
        """The authored blocks that the store keeps, with their histories."""
        return BlockingBlockHistory(self.core.authored)

    def on(self, connection: Any) -> BlockingBoundKeel:
        """This keel inside the caller's transaction: what it writes commits or rolls back with the caller's own rows.

        Args:
            connection: of psycopg, apsw or sqlite3, or a Connection or Session of SQLAlchemy, to this very store,
                with a transaction open. It stays the caller's: nothing here commits it, rolls it back or closes it.

        Raises:
            TransactionError: it is no such connection. What its calls raise says what is wrong with its transaction.
        """
        return BlockingBoundKeel(self.core, connection)

    def delegate(self, scope: TenantScope | None = None) -> BlockingDelegatedRun:
        """A run of a delegated agent, to be entered with ``with``: it sees one set of bytes until it ends.

        Blocks declared ``inherit=False`` are not in it, and it has no tools but those that are granted.

        Args:
            scope: for whom the child works; left out, only what the whole deployment shares is in it.
        """
        return BlockingDelegatedRun(RunCore(self.core, scope))

    def conversation(self, scope: TenantScope, id: str) -> BlockingConversation:  # noqa: A002 - as ``Keel.conversation``
        """A conversation of a scope that keeps its prefix; arguments and errors as ``promptkeel.Keel.conversation``."""
        from promptkeel.conversations.conversation import BlockingConversation, conversation_steps

        return BlockingConversation(drive_blocking(conversation_steps(self.core, scope, id)))

    def tools(
        self,
        scope: TenantScope,
        *,
        source: str,
        trust: Trust = "inferred",
        limits: ToolLimits | None = None,
        grant: Collection[str] | None = None,
    ) -> BlockingAgentTools:
        """What the agent's own model may do to memory at a scope; arguments and errors as ``promptkeel.Keel.tools``."""
        return BlockingAgentTools(ToolCore(self.core, scope, source=source, trust=trust, limits=limits, grant=grant))

    @property
    def store(self) -> BlockingStore:
        """The open store."""
        return BlockingStore(self.core.store.engine)

    def __enter__(self) -> Self:
        drive_blocking(self.core.start())
        return self

    def __exit__(self, *_: object) -> None:
        drive_blocking(self.core.stop())


def open(  # noqa: A001 - the twin of promptkeel.open
    url: str | None = None,
    *,
    blocks: Declared = (),
    clock: Clock = system_clock,
    new_id: Callable[[], str] | None = None,
    token_counter: str | None = None,
    prompt_tokens: int | None = None,
    observe: Callable[[BlockEvent], object] | None = None,
    cache_bytes: int = CACHE_BYTES,
    cache_facts: int = CACHE_FACTS,
    **options: Any,
) -> Keel:
    """A keel to be entered with ``with``; arguments and errors as ``promptkeel.open``."""
    return Keel(
        open_core(
            url,
            blocks=blocks,
            clock=clock,
            new_id=new_id,
            token_counter=token_counter,
            prompt_tokens=prompt_tokens,
            observe=observe,
            cache_bytes=cache_bytes,
            cache_facts=cache_facts,
            options=options,
        )
    )


def open_store(url: str, *, clock: Clock = system_clock, **options: Any) -> BlockingStore:
    """The store at an address; arguments and errors as ``promptkeel.open_store``."""
    return BlockingStore(open_engine(url, clock=clock, **options))


def scan_memory_lane(
    memory: Any, scope: TenantScope, label_prefix: str, profile_fields: frozenset[str] = frozenset()
) -> BlockRevision:
    """One lane at one point in time; arguments and errors as ``promptkeel.scan_memory_lane``."""
    return drive_blocking(scan_steps(memory, scope, label_prefix, profile_fields))
