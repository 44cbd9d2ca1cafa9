"""Nodes to ordered facts to a revision, and the scan that feeds it."""

from promptkeel.lane.digest import EMPTY_MEMORY_REVISION
from promptkeel.lane.lane import Lane
from promptkeel.lane.scan import memory_revision, scan_memory_lane, scan_steps

__all__ = ["EMPTY_MEMORY_REVISION", "Lane", "memory_revision", "scan_memory_lane", "scan_steps"]
