"""Copying a store into an empty one of any kind: the same lanes, at the same revisions.

Taken along are nodes in every state with their ids and times, their kept versions, testimonies, edges, and the receipts
of erasures, so that what was erased stays erased. Heads are the new store's own: reads as of heads of the old one end
with it. What is read is one state of the source: where somebody wrote meanwhile, it is read again. What is written is
one transaction. Afterwards every lane of every scope is read on both sides, and their revisions compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final, Protocol, final, runtime_checkable

import attrs

from promptkeel.errors import InvalidInputError, NodeNotFoundError, StoreBusyError, StoreDamagedError
from promptkeel.lane import Lane
from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.steps import Call, Steps
from promptkeel.store.base import Engine, History, LaneRequest, NodeKey, Receipt, Stored
from promptkeel.store.facade import StoreCore
from promptkeel.store.operations import Decide, Transaction

_ATTEMPTS: Final = 3

Progress = Callable[[int, int], object]
"""Called with how many nodes are done, and how many there are, first as they are read and then as they are written."""


@final
@attrs.frozen(order=False)
class Everything:
    """All that a store holds, at one point in time.

    Attributes:
        stored: the nodes in every state, and the edges.
        histories: of each node, in the same order.
        receipts: of erasures.
    """

    stored: Stored
    histories: tuple[History, ...]
    receipts: tuple[Receipt, ...]


@final
@attrs.frozen(order=False)
class CopyReport:
    """What was copied.

    Attributes:
        nodes: in every state.
        versions: kept ones, beside what the nodes are now.
        testimonies: kept with the nodes.
        edges: between them.
        receipts: of erasures.
        lanes: how many lanes were read on both sides and had equal revisions.
        left_out: what the target cannot hold, each in words.
    """

    nodes: int
    versions: int
    testimonies: int
    edges: int
    receipts: int
    lanes: int
    left_out: tuple[str, ...] = ()


@runtime_checkable
class KeepsSecret(Protocol):
    """A transaction that can take over another store's secret, so that fences stay as they are."""

    def put_secret(self, secret: bytes) -> None:
        """Take a secret over."""


def _nothing(done: int, total: int) -> None:
    """No progress to be shown."""


def copy_store(source: Engine, target: Engine, *, on_progress: Progress = _nothing) -> CopyReport:
    """Copy everything into an empty store.

    Raises:
        InvalidInputError: the target is not empty.
        StoreBusyError: the source was written to all the time; nothing was written.
        StoreDamagedError: something in the source cannot be read, or a lane is not the same afterwards.
    """
    _check_empty(target)
    everything = _read(source, on_progress)
    writing = _Writing(everything, source.secret(), on_progress)
    target.apply((Decide(writing, repeatable=True),))
    lanes = _compare(source, target, everything)
    return attrs.evolve(writing.report, lanes=lanes)


def copy_steps(source: StoreCore, target: StoreCore, *, on_progress: Progress = _nothing) -> Steps[CopyReport]:
    """``copy_store`` in a worker."""
    found: CopyReport = yield Call(lambda: copy_store(source.engine, target.engine, on_progress=on_progress))
    return found


def _check_empty(target: Engine) -> None:
    stored = target.stored(DEPLOYMENT)
    if stored.nodes or stored.edges or target.receipts(DEPLOYMENT, below=True):
        raise InvalidInputError(f"{target.url} is not empty; name a new store", field="target")


# Reading


def _read(source: Engine, on_progress: Progress) -> Everything:
    for _ in range(_ATTEMPTS):
        token = source.probe()
        try:
            everything = _read_once(source, on_progress)
        except NodeNotFoundError:
            # It was erased after it was listed.
            continue
        if source.probe() == token:
            return everything
    raise StoreBusyError(f"{source.url} is written to all the time; stop its writers, or copy a backup of it")


def _read_once(source: Engine, on_progress: Progress) -> Everything:
    stored = source.stored(DEPLOYMENT)
    histories: list[History] = []
    for node in stored.nodes:
        histories.append(source.history(node.scope, node.id))
        on_progress(len(histories), 2 * len(stored.nodes))
    return Everything(stored, tuple(histories), tuple(source.receipts(DEPLOYMENT, below=True)))


# Writing


@final
class _Writing:
    """Everything into an empty store, in its transaction.

    Attributes:
        report: what was written.
    """

    def __init__(self, everything: Everything, secret: bytes, on_progress: Progress) -> None:
        self._everything = everything
        self._secret = secret
        self._on_progress = on_progress
        self.report = CopyReport(0, 0, 0, 0, 0, 0)

    def __call__(self, transaction: Transaction, _: int) -> None:
        stored, left_out = self._everything.stored, list[str]()
        versions = testimonies = 0
        if isinstance(transaction, KeepsSecret):
            transaction.put_secret(self._secret)
        for receipt in self._everything.receipts:
            # Before the nodes: an id may have been brought back, and erased more than once.
            transaction.erase(_placeholder(receipt), receipt.at)
            transaction.put_receipt(receipt)
        for done, (node, history) in enumerate(zip(stored.nodes, self._everything.histories, strict=True), 1):
            versions += self._write_node(transaction, node, history)
            left_out.extend(_unwritten(node, history))
            for testimony in history.testimonies:
                transaction.testify(node, testimony)
            testimonies += len(history.testimonies)
            self._on_progress(len(stored.nodes) + done, 2 * len(stored.nodes))
        edges = list(self._linked(transaction, stored, left_out))
        receipts = len(self._everything.receipts)
        self.report = CopyReport(len(stored.nodes), versions, testimonies, len(edges), receipts, 0, tuple(left_out))

    def _write_node(self, transaction: Transaction, node: MemoryNode, history: History) -> int:
        """The node, through each of its kept versions; how many of them there were."""
        # The last version is the node as it is now; by SQL, one may have been made elsewhere.
        versions = [version for version in history.versions if version.scope == node.scope]
        transaction.insert(versions[0])
        for before, after in pairwise(versions):
            transaction.update(after, before)
        return len(versions) - 1

    def _linked(self, transaction: Transaction, stored: Stored, left_out: list[str]) -> Iterator[MemoryEdge]:
        keys = {(node.scope.root, node.id) for node in stored.nodes}
        for edge in stored.edges:
            if (edge.scope.root, edge.start) in keys and _end_of(edge, keys) is not None:
                transaction.put_edge(edge)
                yield edge
            else:
                left_out.append(f"edge {edge.type} from {edge.start!r} to {edge.end!r}: one of its nodes is not there")


def _placeholder(receipt: Receipt) -> MemoryNode:
    """A node of the identity that was erased."""
    return MemoryNode(id=receipt.node_id, scope=TenantScope.parse(receipt.scope), label="-")


def _end_of(edge: MemoryEdge, keys: set[NodeKey]) -> NodeKey | None:
    return next((key for key in ((edge.scope.root, edge.end), ("", edge.end)) if key in keys), None)


def _unwritten(node: MemoryNode, history: History) -> Iterator[str]:
    moved = sum(1 for version in history.versions if version.scope != node.scope)
    if moved:
        yield f"node {node.id!r}: {moved} versions from before it was moved to {node.scope.path or '(deployment)'}"


# Comparing


def _compare(source: Engine, target: Engine, everything: Everything) -> int:
    """Read every lane on both sides; how many there are.

    Raises:
        StoreDamagedError: one is not the same.
    """
    count = 0
    for scope, prefixes in _lanes(everything.stored.nodes).items():
        requests = [LaneRequest(prefix) for prefix in prefixes]
        pairs = zip(_revisions(source, scope, requests), _revisions(target, scope, requests), strict=True)
        for prefix, (wanted, found) in zip(prefixes, pairs, strict=True):
            if wanted != found:
                raise StoreDamagedError(
                    f"lane {prefix!r} at scope {scope.path or '(deployment)'} is {found} in {target.url} and {wanted} "
                    f"in {source.url}: it was written to meanwhile, or the copy is wrong; copy into a new store"
                )
            count += 1
    return count


def _lanes(nodes: Iterable[MemoryNode]) -> dict[TenantScope, list[str]]:
    """Every scope that holds something, each with every prefix that is visible there; the empty one is all of them."""
    held: dict[str, set[str]] = {}
    for node in nodes:
        prefix, colon, _ = node.label.partition(":")
        held.setdefault(node.scope.path, set()).add(prefix + colon if colon else "")
    return {
        scope: sorted({"", *(prefix for level in scope.chain for prefix in held.get(level, ()))})
        for scope in map(TenantScope.parse, sorted(held))
    }


def _revisions(engine: Engine, scope: TenantScope, requests: list[LaneRequest]) -> list[str]:
    found = engine.catch_up(scope, requests)
    return [
        Lane.build(update.rows, prefix=request.prefix).revision
        for request, update in zip(requests, found.lanes, strict=True)
    ]
