"""A keel inside a caller's transaction: what it writes commits or rolls back with the caller's own rows.

``keel.on(connection)`` answers one. It has nothing to close, keeps nothing of what it reads, and may be used again
after the caller's transaction has ended and another has begun: each call looks at the connection anew.

How a call runs depends on the connection. SQLite's are called on the caller's own thread, since most of them may be
used on no other: such a call blocks an event loop for as long as it takes. aiosqlite's are called whole on the thread
that each has, and block nothing. PostgreSQL's blocking ones are called in a
worker thread; of its asynchronous ones each statement is awaited on the caller's own loop, while a worker thread
decides what comes next. A call that is cancelled ends what it has begun before it lets go of the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, final

from promptkeel.core import KeelCore
from promptkeel.errors import TransactionError
from promptkeel.model import NOT_GIVEN, BlockFact, MemoryEdge, MemoryNode, Trust
from promptkeel.prompt import Prompt
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Steps, Together, as_async, as_blocking
from promptkeel.store.base import Engine, History, Receipt
from promptkeel.store.caller import Calling, check_connection, driver_connection, is_asynchronous, used_by_calls

T = TypeVar("T")


@final
class BoundCore:
    """The bound keel's methods as steps.

    Args:
        core: the open keel.
        connection: the caller's.
        blocking: whether nothing can be awaited.

    Raises:
        TransactionError: it is no connection that a store can work on, or not one for this form of the keel.
    """

    def __init__(self, core: KeelCore, connection: Any, *, blocking: bool) -> None:
        check_connection(connection)
        if blocking and is_asynchronous(connection):
            raise TransactionError(
                f"a {type(connection).__name__} has to be awaited: use promptkeel.open, or give a blocking connection"
            )
        self._core = core
        self._connection = connection
        self._attached: tuple[Any, Engine, Engine] | None = None

    @property
    def url(self) -> str:
        """The address of the store."""
        return self._core.url

    # -- writing

    def remember(
        self,
        scope: TenantScope,
        text: str | None = None,
        *,
        block: str | None = None,
        label: str | None = None,
        properties: Mapping[str, Any] | None = None,
        source: str | None = None,
        recorded_at: Any = NOT_GIVEN,
        trust: Trust | None = None,
        id: str | None = None,  # noqa: A002 - the field's own name
    ) -> Steps[MemoryNode]:
        """Keep a statement, or confirm it, in the caller's transaction; arguments and errors as ``Keel.remember``."""
        return (
            yield from self._on(
                lambda core: core.remember(
                    scope,
                    text,
                    block=block,
                    label=label,
                    properties=properties,
                    source=source,
                    recorded_at=recorded_at,
                    trust=trust,
                    id=id,
                )
            )
        )

    def correct(
        self,
        scope: TenantScope,
        node_id: str,
        *,
        text: str | None = None,
        properties: Mapping[str, Any] | None = None,
        source: str | None = None,
        recorded_at: Any = NOT_GIVEN,
        trust: Trust | None = None,
        expected: MemoryNode | str | None = None,
    ) -> Steps[MemoryNode]:
        """Change what a node says, in the caller's transaction; arguments and errors as ``Keel.correct``."""
        return (
            yield from self._on(
                lambda core: core.correct(
                    scope,
                    node_id,
                    text=text,
                    properties=properties,
                    source=source,
                    recorded_at=recorded_at,
                    trust=trust,
                    expected=expected,
                )
            )
        )

    def retract(
        self, scope: TenantScope, node_id: str, *, expected: MemoryNode | str | None = None
    ) -> Steps[MemoryNode]:
        """Take a node out of every prompt, in the caller's transaction, and keep it in history."""
        return (yield from self._on(lambda core: core.retract(scope, node_id, expected=expected)))

    def erase(self, scope: TenantScope, node_id: str) -> Steps[Receipt]:
        """Remove a node and all that was kept of it, in the caller's transaction.

        The receipt says ``unreadable``, from the caller's commit on: ``settle_receipts`` of the keel scrubs the bytes.
        """
        receipt = yield from self._on(lambda core: core.erase(scope, node_id))
        self._core.forget_kept()
        return receipt

    def link(self, scope: TenantScope, start: str, type: str, end: str) -> Steps[MemoryEdge]:  # noqa: A002
        """Add a typed edge from one node to another, in the caller's transaction."""
        return (yield from self._on(lambda core: core.link(scope, start, type, end)))

    # -- reading

    def prompt(self, scope: TenantScope | None = None) -> Steps[Prompt]:
        """The prompt of a scope as the caller's transaction sees it, its own uncommitted writes included."""
        return (yield from self._on(lambda core: core.prompt(scope), resolves=True))

    def facts(self, scope: TenantScope, block: str | None = None) -> Steps[tuple[BlockFact, ...]]:
        """What the memory blocks say at a scope, as the caller's transaction sees it: all of them, or one."""
        return (yield from self._on(lambda core: core.facts(scope, block), resolves=True))

    def get(self, scope: TenantScope, node_id: str) -> Steps[MemoryNode]:
        """The node of this id visible at the scope, in whatever state, as the caller's transaction sees it."""
        return (yield from self._on(lambda core: core.get(scope, node_id)))

    def history(self, scope: TenantScope, node_id: str) -> Steps[History]:
        """Every kept version of a node, oldest first, and what else was said about it."""
        return (yield from self._on(lambda core: core.history(scope, node_id)))

    # -- on the connection

    def _on(self, asked: Callable[[KeelCore], Steps[T]], *, resolves: bool = False) -> Steps[T]:
        """What a keel over the caller's connection answers, each of its calls run where that connection may be used."""
        found = yield from driver_connection(self._connection)
        connection, calling = used_by_calls(found)
        return (yield from _run(self._over(connection, asked, resolves=resolves), calling))

    def _over(self, connection: Any, asked: Callable[[KeelCore], Steps[T]], *, resolves: bool) -> Steps[T]:
        store = self._core.store.engine
        if self._attached is None or self._attached[0] is not connection or self._attached[1] is not store:
            engine = yield Call(store.attach, connection)
            self._attached = connection, store, engine
        core = yield from self._core.over(self._attached[2], resolves=resolves)
        return (yield from asked(core))


def _run(steps: Steps[T], calling: Calling) -> Steps[T]:
    """The same steps, with every call run in another way."""
    try:
        step = next(steps)
        while True:
            if isinstance(step, Call):
                step = calling(step)
            elif isinstance(step, Together):
                step = Together([_run(branch, calling) for branch in step.branches])
            try:
                answer = yield step
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - thrown into the steps, cancellation included
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        found: T = stop.value
        return found
    finally:
        steps.close()


class _BoundFacade:
    """What both forms share."""

    core: BoundCore

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.core.url}>"


@final
class BoundKeel(_BoundFacade):
    """A keel inside a caller's transaction, asynchronous; made by ``Keel.on``."""

    def __init__(self, core: KeelCore, connection: Any) -> None:
        self.core = BoundCore(core, connection, blocking=False)

    remember = as_async(BoundCore.remember)
    correct = as_async(BoundCore.correct)
    retract = as_async(BoundCore.retract)
    erase = as_async(BoundCore.erase)
    link = as_async(BoundCore.link)
    prompt = as_async(BoundCore.prompt)
    facts = as_async(BoundCore.facts)
    get = as_async(BoundCore.get)
    history = as_async(BoundCore.history)


@final
class BlockingBoundKeel(_BoundFacade):
    """A keel inside a caller's transaction, blocking; made by ``promptkeel.blocking.Keel.on``."""

    def __init__(self, core: KeelCore, connection: Any) -> None:
        self.core = BoundCore(core, connection, blocking=True)

    remember = as_blocking(BoundCore.remember)
    correct = as_blocking(BoundCore.correct)
    retract = as_blocking(BoundCore.retract)
    erase = as_blocking(BoundCore.erase)
    link = as_blocking(BoundCore.link)
    prompt = as_blocking(BoundCore.prompt)
    facts = as_blocking(BoundCore.facts)
    get = as_blocking(BoundCore.get)
    history = as_blocking(BoundCore.history)
