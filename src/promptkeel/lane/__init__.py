"""Nodes to ordered facts to a revision, and the scan that feeds it."""

from collections.abc import Collection

from promptkeel.lane.digest import EMPTY_MEMORY_REVISION
from promptkeel.lane.lane import Lane
from promptkeel.lane.order import row_key
from promptkeel.lane.scan import memory_revision, scan_memory_lane, scan_steps
from promptkeel.store.watching import give_lanes

__all__ = ["EMPTY_MEMORY_REVISION", "Lane", "memory_revision", "row_key", "scan_memory_lane", "scan_steps"]


def _empty_lane(prefix: str, fields: Collection[str]) -> Lane:
    return Lane.build((), prefix=prefix, profile_fields=fields)


give_lanes(_empty_lane)
