"""Every error that promptkeel raises, in one tree.

Each says which thing is wrong and what to do, and subclasses the builtin that a caller would catch::

    PromptkeelError
    ├── InvalidInputError (ValueError)          nothing was written
    │   ├── InvalidScopeError
    │   ├── InvalidInstantError
    │   ├── InvalidTextError
    │   │   └── ContentTooLargeError            larger than what was declared
    │   ├── ReservedLabelError                  a label or an id that promptkeel keeps for itself
    │   ├── InvalidPropertiesError
    │   └── InvalidDeclarationError             a block, source or policy that cannot mean anything
    ├── StoreError
    │   ├── NodeNotFoundError (LookupError)
    │   │   └── NodeErasedError                 the id was erased; it is not handed out again
    │   ├── NodeExistsError (ValueError)        the id is in use under the same root
    │   ├── ReadOnlyNodeError (PermissionError) the node belongs to an ancestor of the scope
    │   ├── ConflictError                       a compare-and-set against an old version
    │   │   └── RevisionConflictError           an authored block has another head than expected
    │   ├── CycleError (ValueError)             an edge that would close a cycle of lineage
    │   ├── CompactedError (LookupError)        heads older than what the history still holds
    │   ├── ScannerError                        a store answered with what was not asked for
    │   ├── StoreClosedError
    │   ├── NotAStoreError (ValueError)         a file or an address that is no promptkeel store
    │   ├── NewerSchemaError                    written by a newer promptkeel
    │   ├── TransactionError                    a caller's connection that the store's work cannot be done on
    │   └── StoreUnavailableError (SourceUnavailableError)
    │       ├── StoreBusyError (TimeoutError)   locked for longer than the busy timeout
    │       │   └── TransactionRetryError       others got in the way of a caller's transaction: run all of it again
    │       ├── StoreReadOnlyError (PermissionError)
    │       ├── StoreFullError                  no space left; nothing was written
    │       ├── StoreDamagedError               the file is not readable as a database any more
    │       ├── CommitUnknownError              the disk failed at the commit itself
    │       ├── ReplicaBehindError (TimeoutError) a replica did not reach the primary's position in time
    │       └── ReplicaMismatchError            a replica that does not follow this primary, or no longer
    ├── SourceUnavailableError (OSError)        a block's source could not be read
    │   ├── SourceTimeoutError (TimeoutError)   it took longer than its block allows
    │   └── SourceOverloadedError               too many calls of it were left behind and still run
    ├── BlockError
    │   ├── BlockResolutionError                names the block and the scope
    │   │   ├── BlockGateError (TypeError)      a gate raised, took too long, or answered no bool
    │   │   ├── BlockContractError (TypeError)  a source raised a defect, or answered with what is no content
    │   │   └── BlockUnwrittenError (LookupError) a stored block that has no revision yet
    │   ├── RunEndedError                       a delegated run that is over, or shows what was erased
    │   ├── PromptBudgetError (ValueError)      what a prompt must hold has more tokens than it may
    │   ├── ConversationBoundError (ValueError) a turn that goes on rests on what has been erased
    │   └── MissingFactsError (ValueError)      a learned block whose source gave no facts
    ├── ToolError                               a call of an agent's own tool that was refused
    │   ├── ToolPermissionError (PermissionError) the host did not grant it
    │   └── ToolRateError                       too many calls; says when the next is taken
    ├── ExchangeError (ValueError)              a file that cannot be imported or exported
    └── MissingExtraError (ImportError)         names its own install line
"""

from __future__ import annotations

from typing import Any


class PromptkeelError(Exception):
    """The base of every error that promptkeel raises."""


class InvalidInputError(PromptkeelError, ValueError):
    """Input that cannot be taken; nothing was written.

    Attributes:
        field: which field, as ``properties.role`` or ``label``.
        where: which node or line, where one is known.
        reason: what is wrong with it and what to do.
    """

    def __init__(self, reason: str, *, field: str | None = None, where: str | None = None) -> None:
        self.reason = reason
        self.field = field
        self.where = where
        super().__init__(": ".join(part for part in (where, field, reason) if part))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_input_error, (type(self), self.reason, self.field, self.where), vars(self)


def _rebuild_input_error(
    kind: type[InvalidInputError], reason: str, field: str | None, where: str | None
) -> InvalidInputError:
    return kind(reason, field=field, where=where)


class InvalidScopeError(InvalidInputError):
    """A scope that is not a path of ``kind:id`` levels."""


class InvalidInstantError(InvalidInputError):
    """A time that is not ISO 8601 as promptkeel takes it, or that UTC cannot hold."""


class InvalidTextError(InvalidInputError):
    """Text that is blank or holds lone surrogates, NUL or other control characters."""


class ContentTooLargeError(InvalidTextError):
    """A text that is larger than what was declared for it."""


class ReservedLabelError(InvalidInputError):
    """A label or an id of a namespace that promptkeel keeps for itself, as that of authored blocks."""


class InvalidPropertiesError(InvalidInputError):
    """Properties that are not a JSON object."""


class InvalidDeclarationError(InvalidInputError):
    """A block, source or policy that is declared in a way that cannot mean anything."""


class StoreError(PromptkeelError):
    """Something that a store refused or could not do."""


class NodeNotFoundError(StoreError, LookupError):
    """No node of this id is visible at this scope."""


class NodeErasedError(NodeNotFoundError):
    """The node of this id was erased; the id is not handed out again."""


class NodeExistsError(StoreError, ValueError):
    """The id is in use under the same root."""


class ReadOnlyNodeError(StoreError, PermissionError):
    """The node belongs to another scope than the writer's; visible ancestors are read-only."""


class ConflictError(StoreError):
    """The node has changed since the version that the writer saw: read it again and retry."""


class RevisionConflictError(ConflictError):
    """An authored block has another head than the writer expected: read it again, and append to what is there now.

    Attributes:
        block: the block's name.
        scope: the path of its scope.
        expected: the id of the revision that the writer saw; empty where it saw none.
        actual: the id of the head; None where there is none.
    """

    def __init__(self, reason: str, *, block: str, scope: str, expected: str, actual: str | None) -> None:
        self.reason = reason
        self.block = block
        self.scope = scope
        self.expected = expected
        self.actual = actual
        super().__init__(f"block {block} at scope {scope or '(deployment)'}: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.reason, self.block, self.scope, self.expected, self.actual)
        return _rebuild_revision_conflict, (type(self), *parts), vars(self)


def _rebuild_revision_conflict(
    kind: type[RevisionConflictError], reason: str, block: str, scope: str, expected: str, actual: str | None
) -> RevisionConflictError:
    return kind(reason, block=block, scope=scope, expected=expected, actual=actual)


class CycleError(StoreError, ValueError):
    """The edge would close a cycle where lineage must not have one."""


class CompactedError(StoreError, LookupError):
    """The history no longer reaches back to these heads."""


class ScannerError(StoreError):
    """A store or scanner broke its contract: a foreign prefix, a foreign scope, or no sequence of nodes."""


class StoreClosedError(StoreError):
    """The store has been closed, or belongs to the parent of a forked process."""


class NotAStoreError(StoreError, ValueError):
    """The file is no promptkeel store, or the address names no kind of store."""


class NewerSchemaError(StoreError):
    """The store was written by a newer promptkeel than this one."""


class TransactionError(StoreError):
    """A caller's connection or transaction that this store's work cannot be done on; says what to do instead."""


class SourceUnavailableError(PromptkeelError, OSError):
    """A block's source could not be read. An outage is never read as an empty block."""

    def __str__(self) -> str:
        # OSError formats two arguments as "[Errno a] b"; these errors carry one sentence.
        return ": ".join(str(part) for part in self.args)


class StoreUnavailableError(StoreError, SourceUnavailableError):
    """The store could not be reached or used; what it holds is unchanged unless the error says otherwise."""


class StoreBusyError(StoreUnavailableError, TimeoutError):
    """Another writer held the store for longer than the busy timeout."""


class TransactionRetryError(StoreBusyError):
    """Others got in the way of a caller's transaction: roll it back and run the whole of it again."""


class StoreReadOnlyError(StoreUnavailableError, PermissionError):
    """The file or its folder cannot be written to."""


class StoreFullError(StoreUnavailableError):
    """There is no space left; nothing was written."""


class StoreDamagedError(StoreUnavailableError):
    """The file is not readable as a database any more."""


class CommitUnknownError(StoreUnavailableError):
    """The disk failed at the commit itself: the write may or may not be there; read it to know."""


class ReplicaBehindError(StoreUnavailableError, TimeoutError):
    """A replica did not reach the primary's position in time; says how far behind it is."""


class ReplicaMismatchError(StoreUnavailableError):
    """What was given as a replica does not follow this primary, or does so no longer."""


class SourceTimeoutError(SourceUnavailableError, TimeoutError):
    """A block's source took longer than the block's timeout; what it answers later is dropped."""


class SourceOverloadedError(SourceUnavailableError):
    """Too many calls of a source were left behind after their timeout and still run; it is not called again yet."""


class BlockError(PromptkeelError):
    """Something about the blocks of a prompt."""


class BlockResolutionError(BlockError):
    """A block could not be resolved.

    Attributes:
        block: the block's name.
        scope: the path of the scope that asked.
    """

    def __init__(self, reason: str, *, block: str, scope: str) -> None:
        self.reason = reason
        self.block = block
        self.scope = scope
        super().__init__(f"block {block} at scope {scope or '(deployment)'}: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_block_error, (type(self), self.reason, self.block, self.scope), vars(self)


def _rebuild_block_error(kind: type[BlockResolutionError], reason: str, block: str, scope: str) -> BlockResolutionError:
    return kind(reason, block=block, scope=scope)


class BlockGateError(BlockResolutionError, TypeError):
    """A block's gate raised, took too long, or answered something else than True or False."""


class BlockContractError(BlockResolutionError, TypeError):
    """A block's source has a defect: it raised one, or answered with what is no content of such a block."""


class BlockUnwrittenError(BlockResolutionError, LookupError):
    """A block whose text the store holds has no revision yet, and was declared to need one."""


class RunEndedError(BlockError):
    """A delegated run is over, or something that it showed was erased: begin another."""


class PromptBudgetError(BlockError, ValueError):
    """What a prompt must hold has more tokens than the prompt may have.

    Attributes:
        tokens: how many it has with everything left out that may be.
        limit: how many it may have.
    """

    def __init__(self, tokens: int, limit: int) -> None:
        self.tokens = tokens
        self.limit = limit
        super().__init__(
            f"without any memory the prompt still has {tokens} tokens, and its budget is {limit}: shorten its authored "
            "blocks, or raise the budget"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.tokens, self.limit), vars(self)


class ConversationBoundError(BlockError, ValueError):
    """A turn that goes on holds reasoning that rests on what has been erased since, or cannot be shown again.

    Leave that turn out: send the messages up to the user's last one, without the calls and results after it.
    """


class MissingFactsError(BlockError, ValueError):
    """A learned block's revision carries no facts: its source broke the contract."""


class ToolError(PromptkeelError):
    """A call of an agent's own tool that was refused; nothing was written."""


class ToolPermissionError(ToolError, PermissionError):
    """The host did not grant the agent this tool, or not for this block or statement."""

    def __str__(self) -> str:
        # OSError formats two arguments as "[Errno a] b"; these errors carry one sentence.
        return ": ".join(str(part) for part in self.args)


class ToolRateError(ToolError):
    """The agent calls its tools too often.

    Attributes:
        retry_after: seconds until the next call is taken.
    """

    def __init__(self, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(f"too many calls; the next one is taken in {max(retry_after, 0.0):.1f} s")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.retry_after,), vars(self)


class ExchangeError(PromptkeelError, ValueError):
    """A file that cannot be imported, or a folder that cannot be exported to."""


class MissingExtraError(PromptkeelError, ImportError):
    """An optional part is not installed; the message is its install line."""

    def __init__(self, extra: str) -> None:
        self.extra = extra
        super().__init__(f"this needs an optional part; install it with: pip install 'promptkeel[{extra}]'")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.extra,), vars(self)
