"""The order of a lane: label, recorded instant (None first), id as text, scope path.

Rows of a store have an identity, so this order is total. Nodes of a scanner that is not ours may tie in all of it; the
scan then goes on to compare what they say.
"""

from __future__ import annotations

from collections.abc import Iterable

from promptkeel.store.base import LaneRow, NodeKey

OrderKey = tuple[str, bool, int, str, str]


def order_key(label: str, recorded: int | None, node_id: str, scope: str) -> OrderKey:
    """What a node is sorted by."""
    return label, recorded is not None, recorded or 0, node_id, scope


def row_order(row: LaneRow) -> OrderKey:
    """What a row is sorted by."""
    return row[0], row[1] is not None, row[1] or 0, row[2], row[3]


def row_key(row: LaneRow) -> NodeKey:
    """Which node a row is of."""
    return scope_root(row[3]), row[2]


def scope_root(path: str) -> str:
    """The first level of a scope's path."""
    return path.partition("/")[0]


def sort_rows(rows: Iterable[LaneRow]) -> list[LaneRow]:
    """The rows in lane order."""
    ordered = list(rows)
    try:
        # Tuples compare in C; a None beside an instant at an equal label is the only pair that they cannot compare.
        ordered.sort()
    except TypeError:
        ordered.sort(key=row_order)
    return ordered
