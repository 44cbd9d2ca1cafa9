"""What an erasure takes: a lane, a scope with everything below it, a person. Decided inside the erasing transaction.

A request is a value. A node is found by anything that it says or ever said: by every version that is kept, retracted
and superseded nodes among them, so that nothing of what was asked for stays behind in history. There is no limit. What
is found is erased together or not at all; the receipt holds ids, scopes and counts, and no text. Nothing here does I/O
or reads a clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, final

import attrs

from promptkeel.errors import ConflictError, InvalidInputError, NodeNotFoundError
from promptkeel.model import MemoryNode
from promptkeel.properties import check_properties, dump_json
from promptkeel.scope import TenantScope
from promptkeel.store.arguments import check_flag, check_scope
from promptkeel.store.base import ErasureState, NodeKey, Receipt
from promptkeel.store.operations import Transaction
from promptkeel.text import check_text

Kind = Literal["scope", "prefix", "subject"]
Reason = Literal["selected", "about", "derived"]

_MARK: Final = "erasure:"


@final
@attrs.frozen(order=False)
class EraseAll:
    """Everything at a scope, or what is in one label prefix there.

    Attributes:
        scope: where; ancestors and siblings are never touched.
        label_prefix: only nodes that are, or ever were, in this prefix; None is every label.
        below: whether everything below the scope goes too.
    """

    scope: TenantScope
    label_prefix: str | None = attrs.field(default=None, kw_only=True)
    below: bool = attrs.field(default=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_scope(self.scope)
        check_flag(self.below, field="below")
        if self.label_prefix is not None:
            # An empty prefix, as an unset shell variable leaves it, would be everything.
            check_text(self.label_prefix, field="label_prefix")

    @property
    def kind(self) -> Kind:
        """What kind of request it is."""
        return "scope" if self.label_prefix is None else "prefix"

    def takes(self, version: MemoryNode) -> bool:
        """Whether a version of a node makes it one of those asked for."""
        return self.label_prefix is None or version.label.startswith(self.label_prefix)

    def reaches(self, scope: TenantScope) -> bool:
        """Whether what is stored at a scope can be taken at all."""
        return scope == self.scope or (self.below and scope.sees(self.scope))


@final
@attrs.frozen(order=False)
class EraseSubject:
    """All that is known of a person or a thing, at a scope and below.

    Found are the nodes that hold, or ever held, one of the properties; the named node; every node with an edge
    ``about`` to one of these; and whatever was ``derived_from`` any of them, however far.

    Attributes:
        scope: where, and everything below.
        properties: identifying values by name, as ``{"email": "..."}``; one of them is enough.
        about: the id of the node that stands for the subject.
    """

    scope: TenantScope
    properties: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, hash=False)
    about: str | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_scope(self.scope)
        object.__setattr__(self, "properties", check_properties(self.properties))
        if self.about is not None:
            check_text(self.about, field="about")
        if self.about is None and not self.properties:
            raise InvalidInputError("name the subject by a property or by a node", field="subject")

    @property
    def kind(self) -> Kind:
        """What kind of request it is."""
        return "subject"

    def takes(self, version: MemoryNode) -> bool:
        """Whether a version of a node makes it one of those asked for."""
        if not self.properties:
            return False
        said = version.properties
        return any(
            name in said and dump_json(said[name]) == dump_json(value) for name, value in self.properties.items()
        )

    def reaches(self, scope: TenantScope) -> bool:
        """Whether what is stored at a scope can be taken at all."""
        return scope.sees(self.scope)


ErasureRequest = EraseAll | EraseSubject


@final
@attrs.frozen(order=False)
class Found:
    """A node that a request takes.

    Attributes:
        node: as it is now; what was kept of it where somebody has deleted it by SQL.
        reason: it was asked for, is ``about`` what was asked for, or was ``derived`` from something that goes.
    """

    node: MemoryNode
    reason: Reason = "selected"

    @property
    def key(self) -> NodeKey:
        """The node's identity."""
        return self.node.scope.root, self.node.id


@final
@attrs.frozen(order=False)
class ErasurePlan:
    """What an erasure would take.

    Attributes:
        request: what was asked for.
        found: by scope, label and id.
        versions: how many old versions go with them.
        edges: how many edges go with them.
        testimonies: how many testimonies go with them.
    """

    request: ErasureRequest
    found: tuple[Found, ...]
    versions: int = 0
    edges: int = 0
    testimonies: int = 0

    @property
    def scopes(self) -> tuple[str, ...]:
        """The paths of the scopes that lose something."""
        return tuple(sorted({each.node.scope.path for each in self.found}))

    def is_still(self, found: Iterable[Found]) -> bool:
        """Whether this is what would be taken now."""
        now = {each.key: each.node.version for each in found}
        return now == {each.key: each.node.version for each in self.found}


@final
@attrs.frozen(order=False, kw_only=True)
class ErasureReceipt:
    """That an erasure was carried out, without any text.

    Attributes:
        request: the name of the erasure, random.
        kind: what kind of request it was.
        scope: the path of the scope that was asked about.
        at: when, as an instant.
        receipts: one for each node that was erased; none where nothing was found.
        not_covered: where bytes may be that the store cannot reach.
    """

    request: str
    kind: Kind
    scope: str
    at: int
    receipts: tuple[Receipt, ...] = ()
    not_covered: tuple[str, ...] = ()

    @property
    def state(self) -> ErasureState:
        """``scrubbed`` once every node is; until then ``unreadable``."""
        return "scrubbed" if all(each.state == "scrubbed" for each in self.receipts) else "unreadable"

    @property
    def versions(self) -> int:
        """How many old versions went."""
        return sum(each.versions for each in self.receipts)

    @property
    def edges(self) -> int:
        """How many edges went."""
        return sum(each.edges for each in self.receipts)

    @property
    def testimonies(self) -> int:
        """How many testimonies went."""
        return sum(each.testimonies for each in self.receipts)

    @property
    def mark_key(self) -> str:
        """Where the store keeps what this receipt says beside those of the nodes."""
        return mark_key(self.request)

    def mark_value(self) -> str:
        """What the store keeps there."""
        return json.dumps({"kind": self.kind, "scope": self.scope, "at": self.at})


def mark_key(request: str) -> str:
    """Where the store keeps what it knows of a request."""
    return _MARK + request


def find(transaction: Transaction, request: ErasureRequest) -> tuple[Found, ...]:
    """What a request takes, by scope, label and id.

    Raises:
        NodeNotFoundError: the node that stands for the subject is not there.
    """
    latest: dict[NodeKey, MemoryNode] = {}
    for version in transaction.every_version(request.scope):
        key = (version.scope.root, version.id)
        if key in latest or request.takes(version):
            latest[key] = version
    found: dict[NodeKey, Found] = {}
    for key, version in latest.items():
        node = transaction.find(*key)
        # Of a node that was moved away by SQL, only old versions are here: it belongs to another scope now.
        if request.reaches((node or version).scope):
            found[key] = Found(node or version)
    if isinstance(request, EraseSubject):
        _follow(transaction, request, found)
    return tuple(sorted(found.values(), key=lambda each: (each.node.scope.path, each.node.label, each.node.id)))


def _follow(transaction: Transaction, request: EraseSubject, found: dict[NodeKey, Found]) -> None:
    roots = list(found)
    if request.about is not None:
        subject = _subject(transaction, request, request.about)
        key = (subject.scope.root, subject.id)
        roots.append(key)
        if request.reaches(subject.scope):
            found[key] = Found(subject)
    for root in roots:
        _take(transaction, request, found, transaction.edges_into(*root, "about"), "about")
    waiting = list(dict.fromkeys((*roots, *found)))
    while waiting:
        ends = transaction.edges_into(*waiting.pop(), "derived_from")
        waiting.extend(_take(transaction, request, found, ends, "derived"))


def _take(
    transaction: Transaction,
    request: EraseSubject,
    found: dict[NodeKey, Found],
    keys: Iterable[NodeKey],
    reason: Reason,
) -> list[NodeKey]:
    taken: list[NodeKey] = []
    for key in keys:
        node = None if key in found else transaction.find(*key)
        if node is not None and request.reaches(node.scope):
            found[key] = Found(node, reason)
            taken.append(key)
    return taken


def _subject(transaction: Transaction, request: EraseSubject, node_id: str) -> MemoryNode:
    for root in (request.scope.root, ""):
        node = transaction.find(root, node_id)
        if node is not None and (request.reaches(node.scope) or request.scope.sees(node.scope)):
            return node
    raise NodeNotFoundError(
        f"no node {node_id!r} is at scope {request.scope.path or '(deployment)'}, above or below; "
        "name the subject at its own scope"
    )


@final
class Erasing:
    """One erasure, to be called in a transaction.

    Attributes:
        request: what is asked for.
        plan: what was found when it was called.
        receipt: what it did.
    """

    def __init__(self, request: ErasureRequest, name: str, *, expected: ErasurePlan | None = None) -> None:
        self.request = request
        self.plan = ErasurePlan(request, ())
        self.receipt = ErasureReceipt(request=name, kind=request.kind, scope=request.scope.path, at=0)
        self._expected = expected

    def __call__(self, transaction: Transaction, now: int) -> None:
        """Erase what is found, and keep the receipts.

        Raises:
            ConflictError: it is not what was expected.
        """
        found = find(transaction, self.request)
        if self._expected is not None and not self._expected.is_still(found):
            raise ConflictError("what would be erased has changed since it was listed; nothing was: list it again")
        self.receipt = attrs.evolve(self.receipt, at=now, receipts=tuple(self._erase(transaction, found, now)))
        transaction.put_mark(self.receipt.mark_key, self.receipt.mark_value())
        counts = (self.receipt.versions, self.receipt.edges, self.receipt.testimonies)
        self.plan = ErasurePlan(self.request, found, *counts)

    def _erase(self, transaction: Transaction, found: Iterable[Found], now: int) -> Iterator[Receipt]:
        for each in found:
            receipt = attrs.evolve(transaction.erase(each.node, now), request=self.receipt.request)
            transaction.put_receipt(receipt)
            yield receipt


@final
class Reapplying:
    """Receipts that a restored backup does not know yet, to be called in a transaction.

    Attributes:
        applied: how many receipts were new to the store when it was called.
    """

    def __init__(self, receipts: Iterable[Receipt | ErasureReceipt]) -> None:
        self._receipts = tuple(receipts)
        self.applied = 0

    def __call__(self, transaction: Transaction, now: int) -> None:
        """Erase again what is there again, and keep the receipts, so that their ids stay erased."""
        self.applied = 0
        for each in self._receipts:
            if isinstance(each, ErasureReceipt):
                transaction.put_mark(each.mark_key, each.mark_value())
            for receipt in each.receipts if isinstance(each, ErasureReceipt) else (each,):
                self.applied += self._apply(transaction, receipt, now)

    def _apply(self, transaction: Transaction, receipt: Receipt, now: int) -> bool:
        scope = TenantScope.parse(receipt.scope)
        known = transaction.receipt(scope.root, receipt.node_id)
        if known is not None and known.at >= receipt.at:
            # What is there under this id has been brought back since, on purpose.
            return False
        # Where SQL has deleted the node, versions of it may be left.
        node = transaction.find(scope.root, receipt.node_id) or MemoryNode(id=receipt.node_id, scope=scope, label="-")
        transaction.erase(node, now)
        transaction.put_receipt(attrs.evolve(receipt, state="unreadable"))
        return True
