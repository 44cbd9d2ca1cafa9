"""The whole, behind one object: an address and declared blocks in, memory and prompts out.

``open`` and ``Keel`` are asynchronous; ``promptkeel.blocking`` has the same without ``await``. Both are made from
``KeelCore``, which yields steps.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, final

from promptkeel.blocks import PromptBlockSpec
from promptkeel.blocks.configuration import load_configuration
from promptkeel.blocks.history import BlockHistory
from promptkeel.bound import BoundKeel
from promptkeel.core import KeelCore
from promptkeel.delegation import DelegatedRun, RunCore
from promptkeel.errors import InvalidDeclarationError
from promptkeel.instants import Clock, system_clock
from promptkeel.model import Trust
from promptkeel.prompt import Prompt
from promptkeel.providers.rule_tables import RuleTables
from promptkeel.resolver import CACHE_BYTES, CACHE_FACTS, BlockEvent, Counters
from promptkeel.scope import TenantScope
from promptkeel.steps import as_async, drive
from promptkeel.store.facade import Store
from promptkeel.tools import AgentTools, ToolCore, ToolLimits

if TYPE_CHECKING:
    # Imported where it is made, so that importing the package stays light.
    from promptkeel.conversations import Conversation


def _random_id() -> str:
    return uuid.uuid4().hex


class KeelFacade:
    """What both forms of a keel share."""

    def __init__(self, core: KeelCore) -> None:
        self.core = core

    @property
    def url(self) -> str:
        """The address of the store."""
        return self.core.url

    @property
    def specs(self) -> tuple[PromptBlockSpec, ...]:
        """The declared blocks, in prompt order."""
        return self.core.specs

    @property
    def counters(self) -> Counters:
        """How much work the resolver has done."""
        return self.core.builder.resolver.counters

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"


@final
class Keel(KeelFacade):
    """An agent's memory and its prompts; made by ``promptkeel.open`` and used with ``async with``."""

    remember = as_async(KeelCore.remember)
    correct = as_async(KeelCore.correct)
    retract = as_async(KeelCore.retract)
    erase = as_async(KeelCore.erase)
    erase_all = as_async(KeelCore.erase_all)
    erase_subject = as_async(KeelCore.erase_subject)
    plan_erasure = as_async(KeelCore.plan_erasure)
    export_erasure = as_async(KeelCore.export_erasure)
    perform_erasure = as_async(KeelCore.perform_erasure)
    receipts = as_async(KeelCore.receipts)
    settle_receipts = as_async(KeelCore.settle_receipts)
    link = as_async(KeelCore.link)
    facts = as_async(KeelCore.facts)
    resolve = as_async(KeelCore.resolve)
    get = as_async(KeelCore.get)
    history = as_async(KeelCore.history)
    why = as_async(KeelCore.why)
    explain = as_async(KeelCore.explain)

    async def prompt(self, scope: TenantScope | None = None, *, strict: bool = True) -> Prompt:
        """The prompt of a scope, verified after this call began; the very same object where nothing has moved.

        Args:
            scope: who asks; left out, only what the whole deployment shares is in the prompt, which names the rest.
            strict: where False, a replica may answer alone, as far behind as it is; ``freshness`` then says so.

        Raises:
            BlockResolutionError: a block's source could not be read; names the block and the scope.
        """
        builder = self.core.builder if strict is True else self.core.reader(strict=strict)
        found = builder.look(scope)
        return found if isinstance(found, Prompt) else await drive(builder.build(scope, found))

    @property
    def blocks(self) -> BlockHistory:
        """The authored blocks that the store keeps, with their histories."""
        return BlockHistory(self.core.authored)

    def on(self, connection: Any) -> BoundKeel:
        """This keel inside the caller's transaction: what it writes commits or rolls back with the caller's own rows.

        Args:
            connection: of psycopg, apsw, sqlite3 or aiosqlite, or a Connection or Session of SQLAlchemy, blocking or
                not, to this very store, with a transaction open. It stays the caller's: nothing here commits it, rolls
                it back or closes it.

        Raises:
            TransactionError: it is no such connection. What its calls raise says what is wrong with its transaction.
        """
        return BoundKeel(self.core, connection)

    def delegate(self, scope: TenantScope | None = None) -> DelegatedRun:
        """A run of a delegated agent, to be entered with ``async with``: it sees one set of bytes until it ends.

        Blocks declared ``inherit=False`` are not in it, and it has no tools but those that are granted.

        Args:
            scope: for whom the child works; left out, only what the whole deployment shares is in it.
        """
        return DelegatedRun(RunCore(self.core, scope))

    async def conversation(self, scope: TenantScope, id: str) -> Conversation:  # noqa: A002 - the word that callers use
        """A conversation of a scope that keeps its prefix: pinned at its first turn, with changes in its messages.

        Args:
            scope: for whom it is.
            id: which of the scope's conversations; any worker that names it takes part in the same one.

        Raises:
            InvalidInputError: this is no scope, or no text that can be an id.
        """
        from promptkeel.conversations.conversation import Conversation, conversation_steps

        return Conversation(await drive(conversation_steps(self.core, scope, id)))

    def tools(
        self,
        scope: TenantScope,
        *,
        source: str,
        trust: Trust = "inferred",
        limits: ToolLimits | None = None,
        grant: Collection[str] | None = None,
    ) -> AgentTools:
        """What the agent's own model may do to memory at a scope, as its blocks permit.

        Args:
            scope: where the agent writes.
            source: who the agent is, as ``agent:planner``; stamped on everything it writes.
            trust: whose words it writes; never ``operator``.
            limits: how much, and how often.
            grant: the names of the tools that it gets; None is all that its blocks permit.

        Raises:
            InvalidDeclarationError: this cannot be granted.
        """
        return AgentTools(ToolCore(self.core, scope, source=source, trust=trust, limits=limits, grant=grant))

    @property
    def store(self) -> Store:
        """The open store."""
        return Store(self.core.store.engine)

    async def __aenter__(self) -> Self:
        await drive(self.core.start())
        return self

    async def __aexit__(self, *_: object) -> None:
        await drive(self.core.stop())


Declared = Sequence[PromptBlockSpec] | str | os.PathLike[str]
"""Blocks, or the file that declares them."""


def open_core(
    url: str | None,
    *,
    blocks: Declared,
    clock: Clock,
    new_id: Callable[[], str] | None,
    token_counter: str | None,
    prompt_tokens: int | None,
    observe: Callable[[BlockEvent], object] | None,
    cache_bytes: int,
    cache_facts: int,
    options: Mapping[str, Any],
) -> KeelCore:
    """The core of a keel, not yet started; arguments as ``open``."""
    admit = None
    rules: tuple[RuleTables, ...] = ()
    if isinstance(blocks, str | os.PathLike):
        declared = load_configuration(blocks)
        blocks = declared.blocks
        rules = declared.rules
        admit = declared.check_scope if declared.levels else None
        token_counter = declared.budget.token_counter if token_counter is None else token_counter
        prompt_tokens = declared.budget.prompt_tokens if prompt_tokens is None else prompt_tokens
        if url is None and declared.url is not None:
            # What the program says goes before what the file says.
            url, options = declared.url, {**declared.options, **options}
    if url is None:
        raise InvalidDeclarationError(
            "is missing: give a store's address as 'sqlite:///memory.db', or a file whose [store] has one", field="url"
        )
    return KeelCore(
        url,
        blocks,
        clock=clock,
        new_id=_random_id if new_id is None else new_id,
        token_counter="estimate" if token_counter is None else token_counter,
        observe=observe,
        cache_bytes=cache_bytes,
        cache_facts=cache_facts,
        options=options,
        admit=admit,
        prompt_tokens=prompt_tokens,
        rules=rules,
    )


def open(  # noqa: A001 - promptkeel.open is the public name
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
    """A keel on the store at an address, to be entered with ``async with``.

    Args:
        url: ``sqlite:///memory.db`` (relative), ``sqlite:////absolute.db``, ``postgresql://user@host/database`` or
            ``ram:``; left out, what the file of ``blocks`` says.
        blocks: the declared blocks of its prompts, or the path of a file that declares them, as ``promptkeel.toml``.
        clock: answers the present instant in microseconds; stamps what is written.
        new_id: answers a new id for each remembered node.
        token_counter: the name of what counts a prompt's tokens; ``estimate`` unless the file says another.
        prompt_tokens: how many a prompt may have: memory gives way to it, whole facts and oldest first, authored text
            does not; None is no limit, or the file's.
        observe: called with each ``BlockEvent`` of a resolve.
        cache_bytes: how many bytes of rendered text are kept.
        cache_facts: how many facts are kept in lanes; a scope that does not fit is read whole again.
        options: the store's own, as ``busy_timeout`` in seconds, or ``replica`` and ``replica_timeout``.

    Raises:
        InvalidDeclarationError: the blocks cannot mean anything. Errors of the store are raised on entering.
    """
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


__all__ = ["Declared", "Keel", "KeelFacade", "open", "open_core"]
