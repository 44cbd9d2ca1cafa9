"""What heads, the log and old versions mean: decided once for every store, without I/O.

A backend keeps a head for each scope level, a log of changes, and old versions with the seq that made and ended them.
Two floors bound what it can still answer. Below the *delta floor* the log does not say what changed: it was trimmed, or
scrubbed by an erasure. Below the *history floor* old versions are gone. The rules here say which heads a store knows,
from which it can tell the difference, and how nodes, rows and neighbours are ordered. Heads are about nodes: an edge, a
testimony or a mark changes no lane and moves none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, cast, final

from promptkeel.errors import CompactedError, InvalidInputError
from promptkeel.model import MemoryNode
from promptkeel.properties import dump_json
from promptkeel.scope import TenantScope
from promptkeel.store.base import Head, Heads, LaneRow, Neighbour, Testimony

NonceAt = Callable[[str, int], int | None]
"""Answers the nonce that the log holds for a scope path and seq; None where it holds no such change."""


def lane_order(node: MemoryNode) -> tuple[Any, ...]:
    """The order of nodes in a lane: label, recorded instant (None first), id; then scope, so that it is total."""
    return (node.label, *_instant_order(cast("int | None", node.recorded)), node.id, node.scope.path)


def row_order(row: LaneRow) -> tuple[Any, ...]:
    """``lane_order`` of a row."""
    return (row[0], *_instant_order(row[1]), row[2], row[3])


def _instant_order(recorded: int | None) -> tuple[bool, int]:
    return (False, 0) if recorded is None else (True, recorded)


def lane_row(node: MemoryNode) -> LaneRow:
    """A stamped live node as a lane reads it."""
    properties = dump_json(dict(node.own_properties)) if node.own_properties else None
    recorded = cast("int | None", node.recorded)
    return node.label, recorded, node.id, node.scope.path, node.source, node.trust, node.updated, properties


def neighbour_order(neighbour: Neighbour) -> tuple[str, ...]:
    """The order of neighbours: edge type, id; then what makes it total."""
    return neighbour.edge.type, neighbour.node.id, neighbour.edge.start, neighbour.edge.scope.path


def logged_label(node: MemoryNode) -> str | None:
    """The label that the log keeps of a version: None where the node is in no lane."""
    return node.label if node.state == "live" else None


def visible_testimonies(scope: TenantScope, testimonies: Iterable[Testimony]) -> tuple[Testimony, ...]:
    """Those that a scope may see: given where it sees.

    Raw SQL can delete a node and hand its id to another, at a scope beside it, or move a node there.
    """
    return tuple(testimony for testimony in testimonies if testimony.scope in scope.chain)


def touches(before: str | None, after: str | None, label_prefix: str | None) -> bool:
    """Whether a change from one label to another concerns the lanes of this prefix; None is every lane."""
    if label_prefix is None:
        return True
    return any(label is not None and label.startswith(label_prefix) for label in (before, after))


def check_chain(scope: TenantScope, heads: Heads) -> None:
    """Refuse heads of another scope.

    Raises:
        InvalidInputError: the heads are not of this scope's chain.
    """
    if tuple(head.scope for head in heads.levels) != scope.chain:
        raise InvalidInputError(
            f"are heads of scope {heads.scope or '(deployment)'}, not of {scope.path or '(deployment)'}", field="heads"
        )


def tells_difference(since: Heads, current: Heads, delta_floor: int, nonce_at: NonceAt) -> bool:
    """Whether the log says everything that changed from ``since`` to ``current``, at each level.

    It does not where the log itself may have been switched off in between.
    """
    return since.schema == current.schema and all(
        past == present or (past.seq >= delta_floor and (past.seq == 0 or _is_logged(past, present, nonce_at)))
        for past, present in zip(since.levels, current.levels, strict=True)
    )


def _is_logged(past: Head, present: Head, nonce_at: NonceAt) -> bool:
    # A head is never ahead of the present one of its scope; no store is asked for a number that it cannot hold.
    return past.seq <= present.seq and nonce_at(past.scope, past.seq) == past.nonce


@final
class Standing(IntEnum):
    """Where a replica's heads stand against a primary's."""

    PROVEN = 0
    """At the primary's heads or later: whatever the primary showed at them is there."""
    UNKNOWN = 1
    """Later, and its log does not tell of what: ask the primary again."""
    BEHIND = 2
    """Earlier, on one level at least."""
    DIVERGED = 3
    """Of another lineage: the same change has another nonce there."""


def standing(position: Heads, found: Heads, nonce_at: NonceAt) -> Standing:
    """Where the heads that were found at a replica stand against the primary's, asked for before.

    Args:
        position: the primary's.
        found: the replica's.
        nonce_at: asks the replica's log, at the same point in time as ``found``.
    """
    return max(map(_standing_at, position.levels, found.levels, [nonce_at] * len(found.levels)))


def _standing_at(past: Head, present: Head, nonce_at: NonceAt) -> Standing:
    if past == present:
        return Standing.PROVEN
    if present.seq < past.seq:
        return Standing.BEHIND
    # A level that the primary had never changed is in no log: only a later answer of the primary's vouches for it.
    logged = nonce_at(past.scope, past.seq) if past.seq and present.seq != past.seq else present.nonce
    if not past.seq or logged is None:
        return Standing.UNKNOWN
    return Standing.PROVEN if logged == past.nonce else Standing.DIVERGED


def check_known(heads: Heads, current: Heads, history_floor: int, nonce_at: NonceAt) -> None:
    """Refuse heads that the history cannot answer for. A level that had never changed was empty, always.

    Raises:
        CompactedError: they are older than the history, or not of this store.
    """
    for past, present in zip(heads.levels, current.levels, strict=True):
        if past in (present, Head(past.scope)):
            continue
        if past.seq < history_floor or not _is_logged(past, present, nonce_at):
            raise CompactedError(
                f"the history does not hold scope {past.scope or '(deployment)'} as of change {past.seq}: "
                "it was compacted, or these heads are of another store"
            )
