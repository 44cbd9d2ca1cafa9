"""What a store is: the values that it speaks in and the protocols that it satisfies.

``MemoryLaneScanner`` is all that a lane needs. ``GraphStore`` is what ships: writes, complete reads, heads that say
whether anything visible has changed, a change log that says what, and history. Both are asynchronous; the blocking
twins have the same methods without ``await``. A backend itself is an ``Engine``: plain blocking methods, safe to call
from any thread, which ``store.facade`` turns into both forms.
"""

from __future__ import annotations

import hashlib
import hmac
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, Protocol, final, runtime_checkable

import attrs

from promptkeel.model import MemoryEdge, MemoryNode, Trust
from promptkeel.properties import frozen
from promptkeel.scope import TenantScope

Direction = Literal["out", "in", "both"]

LaneRow = tuple[str, int | None, str, str, str | None, str | None, int | None, str | None]
"""One live node as a lane reads it: label, recorded instant, id, scope path, source, trust, updated instant, and the
own properties as JSON text (None where there are none). Bytes that are not UTF-8 arrive as lone surrogates
(``surrogateescape``), which the lane reports."""

NodeKey = tuple[str, str]
"""A node's identity in a store: scope root and id."""

ErasureState = Literal["unreadable", "scrubbed"]
"""How far an erasure has come: no read returns it; its bytes are gone too."""


@final
@attrs.frozen(order=False)
class Head:
    """What a store says cheaply about one scope level.

    Attributes:
        scope: the level's path.
        seq: the number of the last change at exactly this level; 0 is "never changed".
        nonce: random with every change, so that a restored store that counts up again never repeats a head.
    """

    scope: str
    seq: int = 0
    nonce: int = 0


@final
@attrs.frozen(order=False, cache_hash=True)
class Heads:
    """One head for every level of a scope's chain. Equal heads: nothing visible has changed.

    Attributes:
        levels: the deployment's head first, the scope's own last.
        schema: another number from the moment on that what moves heads may have been switched off for a while; it
            counts within one open store, and is not kept with heads that are written down.
    """

    levels: tuple[Head, ...]
    schema: int = 0

    @property
    def scope(self) -> str:
        """The path of the scope whose chain this is."""
        return self.levels[-1].scope

    @property
    def seq(self) -> int:
        """The number of the last change visible at the scope."""
        return max(head.seq for head in self.levels)

    def to_json(self) -> list[list[Any]]:
        """A plain list that ``from_json`` takes back."""
        return [[head.scope, head.seq, head.nonce] for head in self.levels]

    @classmethod
    def from_json(cls, levels: Sequence[Sequence[Any]]) -> Heads:
        """The heads of a plain list."""
        return cls(tuple(Head(str(scope), int(seq), int(nonce)) for scope, seq, nonce in levels))


@final
@attrs.frozen(order=False)
class Change:
    """One changed node at one scope level.

    Attributes:
        seq: the number of the change.
        scope: the path of the level.
        node_id: which node.
        label_before: its label before; None where it was not there, and after an erasure.
        label_after: its label after; None where it is not there any more, and after an erasure.
    """

    seq: int
    scope: str
    node_id: str
    label_before: str | None
    label_after: str | None


@final
@attrs.frozen(order=False)
class Changes:
    """What changed between two heads.

    Attributes:
        heads: the present heads.
        changes: oldest first; None where the log no longer reaches back: read everything.
    """

    heads: Heads
    changes: tuple[Change, ...] | None


@final
@attrs.frozen(order=False)
class LaneRequest:
    """A lane that a caller wants to bring up to date.

    Attributes:
        prefix: the label prefix.
        since: the heads at which the caller last read it; None to read it whole.
    """

    prefix: str
    since: Heads | None = None


@final
@attrs.frozen(order=False)
class LaneUpdate:
    """How to bring a lane up to date.

    Attributes:
        rows: where ``whole``, every row of the lane in lane order as far as the backend sorts; otherwise the present
            rows of those touched nodes that still belong to it.
        touched: the nodes to take out before ``rows`` go in; empty where ``whole``.
        whole: whether ``rows`` is the lane.
    """

    rows: list[LaneRow]
    touched: tuple[NodeKey, ...] = ()
    whole: bool = False


@final
@attrs.frozen(order=False)
class CatchUp:
    """Several lanes of one scope brought up to date at one point in time, in the order asked."""

    heads: Heads
    lanes: tuple[LaneUpdate, ...]


@final
@attrs.frozen(order=False)
class Testimony:
    """A statement about a node that did not change what is shown: a confirmation, or a correction that came too late.

    Attributes:
        kind: ``confirmed`` or ``outdated``.
        source: who said it.
        recorded: when, as an instant.
        trust: whose words.
        at: when the store took it, as an instant.
        properties: what was given with it and is not shown: of a correction that came too late, the values that were
            not taken; of a confirmation, those that the node has differently.
        scope: the path of the scope that the node was at; None where that is not known.
    """

    kind: Literal["confirmed", "outdated"]
    source: str | None
    recorded: int | None
    trust: Trust | None
    at: int
    properties: dict[str, Any] = attrs.field(factory=dict, converter=frozen, hash=False)
    scope: str | None = None


@final
@attrs.frozen(order=False)
class History:
    """Everything that a store knows of one node.

    Attributes:
        versions: oldest first; the last is the node as it is now.
        testimonies: oldest first.
    """

    versions: tuple[MemoryNode, ...]
    testimonies: tuple[Testimony, ...] = ()


@final
@attrs.frozen(order=False)
class Receipt:
    """That a node was erased, without its text.

    Attributes:
        node_id: which node.
        scope: the path of its scope.
        at: when, as an instant.
        versions: how many old versions went with it.
        edges: how many edges went with it.
        testimonies: how many testimonies went with it.
        state: ``unreadable``: no read returns it; ``scrubbed``: its bytes are gone too.
        request: the erasure of several nodes that it was part of; None where it was erased by itself.
    """

    node_id: str
    scope: str
    at: int
    versions: int = 0
    edges: int = 0
    testimonies: int = 0
    state: ErasureState = "unreadable"
    request: str | None = None


@final
@attrs.frozen(order=False)
class PastLane:
    """A lane as it was.

    Attributes:
        nodes: in lane order.
        erased: the ids of nodes that were there, at any label, and have been erased at these scopes since: their text
            is gone.
    """

    nodes: tuple[MemoryNode, ...]
    erased: tuple[str, ...] = ()


@final
@attrs.frozen(order=False)
class Neighbour:
    """An edge and the node at its other end."""

    edge: MemoryEdge
    node: MemoryNode


@final
@attrs.frozen(order=False)
class Stored:
    """Everything stored at a scope and below it, at one point in time.

    Attributes:
        nodes: in every state, by scope path, label and id.
        edges: by scope path, start, type and end.
    """

    nodes: tuple[MemoryNode, ...]
    edges: tuple[MemoryEdge, ...]


HEADS: Final = "heads"
HISTORY: Final = "history"
WATCH: Final = "watch"


@runtime_checkable
class MemoryLaneScanner(Protocol):
    """All that a lane needs: a complete scan of one label prefix."""

    async def query_nodes(
        self, scope: TenantScope, *, label_prefix: str | None = None, limit: int | None = None
    ) -> Sequence[Any]:
        """Every node visible at ``scope`` whose label starts with the prefix; None for ``limit`` is all of them."""


class Rings(Protocol):
    """Somebody who wants to know that it is time to look."""

    def ring(self) -> None:
        """Something may have been committed; from any thread."""


class Hearing(ABC):
    """An engine that hears of commits by others, if only sometimes: silence proves nothing."""

    @abstractmethod
    def hear(self, who: Rings) -> None:
        """Ring at ``who`` after commits, for as long as it lives; at once, without waiting for anything."""


class Engine(Protocol):
    """A backend: blocking methods, safe from any thread. ``short`` ones never wait for a scan or a writer."""

    url: str
    capabilities: frozenset[str]
    not_covered: tuple[str, ...]
    """Where bytes of an erased node may be that no erasure here can reach, however scrubbed its receipt is."""
    is_local: bool
    """Whether short methods are short enough for an event loop's own thread; a remote engine is called in workers."""

    def probe(self) -> object:
        """Short. A token; equal tokens: nothing has been committed in between, by anyone."""

    def heads(self, scope: TenantScope) -> Heads:
        """Short. The present heads of the scope's chain."""

    def tail(self, scope: TenantScope, requests: Sequence[LaneRequest]) -> CatchUp | None:
        """Short. As ``catch_up`` where little has changed; None where it would not be short."""

    def catch_up(self, scope: TenantScope, requests: Sequence[LaneRequest]) -> CatchUp:
        """All lanes at one point in time, each as a difference where the log reaches back, else whole."""

    def apply(self, operations: Sequence[Any], *, dry_run: bool = False) -> tuple[Any, ...]:
        """Perform all operations in one transaction, or none; the outcomes in the same order."""

    def get(self, scope: TenantScope, node_id: str) -> MemoryNode:
        """Short. The node of this id visible at the scope, in whatever state."""

    def query_nodes(self, scope: TenantScope, label_prefix: str | None, limit: int | None) -> list[MemoryNode]:
        """Every live node visible at the scope, in lane order."""

    def nodes_as_of(self, scope: TenantScope, heads: Heads, label_prefix: str | None) -> PastLane:
        """The lane as it was at these heads."""

    def changes(self, scope: TenantScope, since: Heads, label_prefix: str | None) -> Changes:
        """What changed since these heads."""

    def history(self, scope: TenantScope, node_id: str) -> History:
        """Every kept version of a visible node."""

    def neighbours(
        self, scope: TenantScope, node_id: str, edge_type: str | None, direction: Direction
    ) -> list[Neighbour]:
        """The visible neighbours of a visible node, by edge type, then id."""

    def stored(self, scope: TenantScope) -> Stored:
        """Everything stored at a scope and below it, at one point in time: what an export takes."""

    def revisions(self, scope: TenantScope, block: str) -> list[MemoryNode]:
        """Every revision of an authored block at exactly this scope, in every state, in no order."""

    def receipts(self, scope: TenantScope, *, below: bool = False) -> list[Receipt]:
        """The erasures at exactly this scope, or at it and below, oldest first."""

    def settle_receipts(self) -> None:
        """Rewrite what is stored so that no byte of an erased node is left, and note it on the receipts.

        Receipts stay as they are where that cannot be shown: somebody still reads an older state, or the kind of store
        has no such thing.
        """

    def mark(self, key: str) -> str | None:
        """Short. What the last ``Mark`` operation wrote under this key."""

    def secret(self) -> bytes:
        """Short. The store's own random key, made when the store was."""

    def open_snapshot(self) -> SnapshotEngine:
        """A view of the store at this point in time."""

    def attach(self, connection: Any) -> Engine:
        """An engine that works on a caller's driver connection, inside the transaction that is open there.

        Each ``apply`` on it is a savepoint; it never commits and never rolls back the caller's transaction. It reads
        what that transaction sees. Closing it does nothing to the connection.

        Raises:
            TransactionError: it is no connection to this store, or has no transaction that can be written in.
        """

    def close(self) -> None:
        """Release everything; further calls raise StoreClosedError. Closing again does nothing."""


@runtime_checkable
class Replicated(Protocol):
    """An engine that reads from a replica what it can prove."""

    standby: Engine
    """The replica by itself: for reads that need not be strict."""


class SnapshotEngine(Protocol):
    """A frozen view; safe from any thread, one call at a time."""

    def heads(self, scope: TenantScope) -> Heads:
        """The heads at the snapshot."""

    def get(self, scope: TenantScope, node_id: str) -> MemoryNode:
        """The node as it was at the snapshot."""

    def query_nodes(self, scope: TenantScope, label_prefix: str | None, limit: int | None) -> list[MemoryNode]:
        """The live nodes as they were at the snapshot."""

    def close(self) -> None:
        """Let the store move on."""


class Snapshot(Protocol):
    """A consistent view for several scans."""

    async def heads(self, scope: TenantScope) -> Heads:
        """The heads at the snapshot."""

    async def get(self, scope: TenantScope, node_id: str) -> MemoryNode:
        """The node as it was at the snapshot."""

    async def query_nodes(
        self, scope: TenantScope, *, label_prefix: str | None = None, limit: int | None = None
    ) -> Sequence[MemoryNode]:
        """The live nodes as they were at the snapshot."""


@runtime_checkable
class GraphStore(MemoryLaneScanner, Protocol):
    """A store of nodes and edges with heads and history."""

    async def put(self, node: MemoryNode, *, expected: MemoryNode | str | None = None) -> MemoryNode:
        """Insert a node; with ``expected`` (the node read before, or its version), change it if it still is that."""

    async def get(self, scope: TenantScope, node_id: str) -> MemoryNode:
        """The node of this id visible at the scope, in whatever state."""

    async def retract(
        self, scope: TenantScope, node_id: str, *, expected: MemoryNode | str | None = None
    ) -> MemoryNode:
        """Take a node out of every lane and keep it in history."""

    async def erase(self, scope: TenantScope, node_id: str) -> Receipt:
        """Remove a node and all that was kept of it."""

    async def link(self, edge: MemoryEdge) -> MemoryEdge:
        """Add an edge; adding it again changes its properties."""

    async def neighbours(
        self, scope: TenantScope, node_id: str, *, edge_type: str | None = None, direction: Direction = "out"
    ) -> Sequence[Neighbour]:
        """The visible neighbours of a visible node."""

    async def heads(self, scope: TenantScope) -> Heads:
        """The present heads of the scope's chain."""

    async def changes(self, scope: TenantScope, since: Heads, *, label_prefix: str | None = None) -> Changes:
        """What changed since these heads, in lanes of this prefix."""

    async def nodes_as_of(self, scope: TenantScope, heads: Heads, *, label_prefix: str | None = None) -> PastLane:
        """The lane as it was at these heads."""

    async def history(self, scope: TenantScope, node_id: str) -> History:
        """Every kept version of a visible node."""

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """A consistent view for several scans, at one point in time."""

    async def close(self) -> None:
        """Release everything."""


def fence_id(secret: bytes, root: str) -> str:
    """The id on the fences of a scope root's learned blocks: always the same, and not to be guessed from outside."""
    return hmac.new(secret, b"fence\0" + root.encode(), hashlib.sha256).hexdigest()[:6]
