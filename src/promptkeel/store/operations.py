"""What a write asks for, and what a backend offers to do it: values and protocols.

What each operation means is decided in ``decisions``, once for every store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Literal, Protocol, final

import attrs

from promptkeel.errors import InvalidInputError, StoreDamagedError
from promptkeel.instants import stored_instant
from promptkeel.model import (
    FIELD_PROVENANCE,
    NOT_GIVEN,
    RESERVED_PROPERTIES,
    MemoryEdge,
    MemoryNode,
    Trust,
    check_source,
    check_trust,
)
from promptkeel.properties import check_properties
from promptkeel.scope import TenantScope
from promptkeel.store.arguments import check_node_id, check_scope
from promptkeel.store.authored import (
    CONTENT_LIMIT,
    AuthoredRevision,
    check_author,
    check_authored_trust,
    check_block_name,
    check_content,
    check_message,
    intact,
    revision_of,
)
from promptkeel.store.base import NodeKey, Receipt, Testimony
from promptkeel.store.reserved import check_not_reserved
from promptkeel.text import check_text

LINEAGE: Final = frozenset({"derived_from", "supersedes"})
"""Edge types that may not form cycles."""


def _node(_: Any, __: Any, node: Any) -> None:
    if not isinstance(node, MemoryNode):
        raise InvalidInputError(f"must be a MemoryNode, not {type(node).__name__}", field="node")


def _edge(_: Any, __: Any, edge: Any) -> None:
    if not isinstance(edge, MemoryEdge):
        raise InvalidInputError(f"must be a MemoryEdge, not {type(edge).__name__}", field="edge")


def _free_node(_: Any, __: Any, node: Any) -> None:
    """A node outside of the reserved namespaces: nobody who may remember can forge what is kept there."""
    _node(_, __, node)
    where = f"node {node.id!r}"
    check_not_reserved(node.label, field="label", where=where)
    check_not_reserved(node.id, field="id", where=where)


def _free_edge(_: Any, __: Any, edge: Any) -> None:
    """An edge that says nothing for what is reserved, and puts nothing of it out of its lane."""
    _edge(_, __, edge)
    check_not_reserved(edge.start, field="start", where="edge")
    if edge.type == "supersedes":
        check_not_reserved(edge.end, field="end", where="edge")


def _check_address(operation: Correct | Retract | Erase) -> None:
    check_scope(operation.scope)
    object.__setattr__(operation, "node_id", check_node_id(operation.node_id))
    if not isinstance(operation, Erase):
        check_not_reserved(operation.node_id, field="node_id")


@final
@attrs.frozen(order=False)
class Put:
    """Insert a node; with ``expected``, change it if it still is that node or version.

    Attributes:
        force_erased: insert it even where a node of its id was erased; that receipt stays.
    """

    node: MemoryNode = attrs.field(validator=_free_node)
    expected: MemoryNode | str | None = None
    force_erased: bool = False


@final
@attrs.frozen(order=False)
class Remember:
    """Insert a node, unless a live one of equal scope and label is there: then confirm that one.

    What is given with a confirmation is not lost. Properties that the node does not have yet are added to it, each
    with the provenance that it was given with; those that it has differently go to its history, where a correction
    would have changed them.

    Attributes:
        extends: whether properties count in a confirmation; else they are left out of account.
    """

    node: MemoryNode = attrs.field(validator=_free_node)
    extends: bool = True


@final
@attrs.frozen(order=False, kw_only=True)
class Correct:
    """Change what a node says, with the provenance of the correction.

    Attributes:
        label: the new label; None keeps the old one.
        properties: values of declared fields, each with this provenance from now on; None removes one.
        recorded: when the correction was said; left out, it is when the store takes it.
    """

    scope: TenantScope
    node_id: str
    label: str | None = None
    properties: Mapping[str, Any] = attrs.field(factory=dict, hash=False)
    source: str | None = None
    recorded: Any = NOT_GIVEN
    trust: Trust | None = None
    expected: MemoryNode | str | None = None

    def __attrs_post_init__(self) -> None:
        _check_address(self)
        where = f"node {self.node_id!r}"
        properties = check_properties(self.properties, where=where)
        for name in properties:
            if name in RESERVED_PROPERTIES or name == FIELD_PROVENANCE:
                raise InvalidInputError(
                    "is provenance; give it as an argument of the correction", field=f"properties.{name}", where=where
                )
        object.__setattr__(self, "properties", properties)
        object.__setattr__(self, "source", check_source(self.source, where=where))
        object.__setattr__(self, "trust", check_trust(self.trust, where=where))
        if self.label is not None:
            object.__setattr__(self, "label", check_text(self.label, field="label", where=where))
            check_not_reserved(self.label, field="label", where=where)
        if self.recorded is not NOT_GIVEN and self.recorded is not None:
            object.__setattr__(self, "recorded", stored_instant(self.recorded, field="recorded_at", where=where))
        if self.label is None and not properties:
            raise InvalidInputError("give a new text or properties", field="correction", where=where)


@final
@attrs.frozen(order=False)
class Retract:
    """Take a node out of every lane and keep it in history."""

    scope: TenantScope
    node_id: str
    expected: MemoryNode | str | None = None

    def __attrs_post_init__(self) -> None:
        _check_address(self)


@final
@attrs.frozen(order=False)
class Erase:
    """Remove a node and all that was kept of it."""

    scope: TenantScope
    node_id: str

    def __attrs_post_init__(self) -> None:
        _check_address(self)


@final
@attrs.frozen(order=False)
class Link:
    """Add an edge, or change the properties of an equal one."""

    edge: MemoryEdge = attrs.field(validator=_free_edge)


@final
@attrs.frozen(order=False)
class Unlink:
    """Remove an edge."""

    edge: MemoryEdge = attrs.field(validator=_edge)


@final
@attrs.frozen(order=False, kw_only=True)
class AppendBlock:
    """Append a revision to an authored block; one that says what the head says is no change, and none is made.

    Attributes:
        block: the block's name.
        content: the text.
        author: who writes it.
        message: why.
        expected_head: the revision, or its id, that must be the head; "" that there must be none; None is whatever is.
        restored: the id of the older revision whose content this is.
        trust: whose words these are.
        max_bytes: the bound of the content.
    """

    scope: TenantScope
    block: str
    content: str = attrs.field(repr=False)
    author: str
    message: str | None = None
    expected_head: AuthoredRevision | str | None = None
    restored: str | None = None
    trust: Trust = "operator"
    max_bytes: int = CONTENT_LIMIT

    def __attrs_post_init__(self) -> None:
        check_scope(self.scope)
        checked: dict[str, Any] = {"block": check_block_name(self.block)}
        where = f"block {self.block}"
        checked["content"] = check_content(self.content, max_bytes=self.max_bytes, where=where)
        checked["author"] = check_author(self.author, where=where)
        checked["message"] = check_message(self.message, where=where)
        checked["trust"] = check_authored_trust(self.trust, where=where)
        expected = self.expected_head
        if isinstance(expected, AuthoredRevision):
            checked["expected_head"] = expected.id
        elif expected is not None:
            checked["expected_head"] = check_text(expected, field="expected_head", where=where, blank=True)
        if self.restored is not None:
            checked["restored"] = check_text(self.restored, field="restored", where=where)
        for name, value in checked.items():
            object.__setattr__(self, name, value)


@final
@attrs.frozen(order=False)
class AdoptRevision:
    """Take over a revision as another store holds it: as the head, behind the one that it names as its parent.

    Attributes:
        node: the revision.
        force_erased: take it even where it was erased here.
        bridges: whether it may follow a revision that is not here: that one then counts as erased here too.
    """

    node: MemoryNode = attrs.field(validator=_node)
    force_erased: bool = False
    bridges: bool = False

    def __attrs_post_init__(self) -> None:
        if self.node.recorded is NOT_GIVEN:
            raise InvalidInputError("does not say when it was written", field="recorded_at")
        try:
            revision = intact(revision_of(self.node))
        except StoreDamagedError as error:
            raise InvalidInputError(str(error), field="revision") from None
        check_text(revision.content, field="content")
        check_author(revision.author)
        check_authored_trust(revision.trust)


@final
@attrs.frozen(order=False)
class Mark:
    """Keep a short text under a key, with the transaction: how far an import has come, for one."""

    key: str
    value: str | None

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "key", check_text(self.key, field="key", where="mark"))
        if self.value is not None:
            object.__setattr__(self, "value", check_text(self.value, field="value", where="mark", blank=True))


@final
@attrs.frozen(order=False)
class Decide:
    """What a caller decides inside the transaction, by looking at it and performing operations on it.

    Attributes:
        decide: called with the transaction and the instant, on the thread that writes; what it raises rolls back.
        repeatable: whether it may be called again where the transaction has to be tried again.
    """

    decide: Callable[[Transaction, int], object]
    repeatable: bool = False


Operation = Put | Remember | Correct | Retract | Erase | Link | Unlink | AppendBlock | AdoptRevision | Mark | Decide
Kind = Literal[
    "inserted",
    "updated",
    "unchanged",
    "confirmed",
    "retracted",
    "erased",
    "linked",
    "unlinked",
    "appended",
    "marked",
    "decided",
]


@final
@attrs.frozen(order=False)
class Outcome:
    """What one operation did.

    Attributes:
        outdated: values of a correction that came too late to be shown, by name; a new label is under ``label``.
    """

    kind: Kind
    node: MemoryNode | None = None
    edge: MemoryEdge | None = None
    receipt: Receipt | None = None
    outdated: Mapping[str, Any] = attrs.field(factory=dict, hash=False)


class Finder(Protocol):
    """What it takes to look a node up, inside a transaction or out of one."""

    def find(self, root: str, node_id: str) -> MemoryNode | None:
        """The node of this identity, in whatever state."""

    def is_erased(self, root: str, node_id: str) -> bool:
        """Whether a node of this identity was erased."""

    def erased_at(self, root: str, node_id: str) -> Collection[str]:
        """The paths of the scopes at which nodes of this identity were when they were erased."""


class Transaction(Finder, Protocol):
    """What a backend offers inside one of its transactions. Nothing is visible outside until it commits."""

    def find_live(self, scope: TenantScope, label: str) -> MemoryNode | None:
        """The live node at exactly this scope with exactly this label; of several, the least id."""

    def expect(self, keys: Iterable[NodeKey], labels: Iterable[tuple[str, str, str]]) -> None:
        """Say what is going to be asked for, so that it can be fetched together.

        Args:
            keys: nodes by root and id.
            labels: live nodes by root, scope path and label.
        """

    def versions(self, node: MemoryNode) -> tuple[MemoryNode, ...]:
        """Every kept version of a node, oldest first; the last is the node as it is now."""

    def insert(self, node: MemoryNode) -> None:
        """Add a stamped node."""

    def update(self, node: MemoryNode, previous: MemoryNode) -> None:
        """Replace ``previous`` by ``node``; the backend keeps the old version."""

    def testify(self, node: MemoryNode, testimony: Testimony) -> None:
        """Keep a testimony with a node's history."""

    def testimonies(self, node: MemoryNode) -> tuple[Testimony, ...]:
        """The testimonies kept with a node, oldest first."""

    def erase(self, node: MemoryNode, at: int) -> Receipt:
        """Remove a node with its versions, testimonies and edges; scrub the log; keep the receipt.

        Of a node that is not there: remove what raw SQL may have left of it.
        """

    def receipt(self, root: str, node_id: str) -> Receipt | None:
        """The newest receipt of this identity."""

    def put_receipt(self, receipt: Receipt) -> None:
        """Keep a receipt in place of the newest of this identity, if there is one."""

    def every_version(self, scope: TenantScope) -> Iterable[MemoryNode]:
        """Every kept version of what is stored at a scope and below, those of a node oldest first."""

    def edges_into(self, root: str, node_id: str, edge_type: str) -> Iterable[NodeKey]:
        """The nodes at the starts of a node's incoming edges of one type."""

    def edge(self, root: str, start: str, edge_type: str, end: str) -> MemoryEdge | None:
        """The edge of this identity."""

    def edges_from(self, root: str, node_id: str, edge_type: str) -> Iterable[str]:
        """The ids, under the same root, at the ends of a node's outgoing edges of one type."""

    def put_edge(self, edge: MemoryEdge) -> None:
        """Add or replace an edge."""

    def remove_edge(self, edge: MemoryEdge) -> None:
        """Remove an edge."""

    def put_mark(self, key: str, value: str | None) -> None:
        """Write or remove a mark."""


def check_operations(operations: Any) -> tuple[Operation, ...]:
    """The operations themselves.

    Raises:
        InvalidInputError: they are no sequence of operations.
    """
    if not isinstance(operations, Iterable) or isinstance(operations, str | bytes):
        raise InvalidInputError(f"must be a sequence of operations, not {operations!r}", field="operations")
    checked = tuple(operations)
    for position, operation in enumerate(checked):
        if not isinstance(operation, Operation):
            raise InvalidInputError(f"{operation!r} is no operation of a store", field=f"operations[{position}]")
    return checked
