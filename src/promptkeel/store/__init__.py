"""Where nodes live. A scan is complete, or it is an error."""

from promptkeel.store.base import (
    Change,
    Changes,
    GraphStore,
    Head,
    Heads,
    History,
    MemoryLaneScanner,
    Neighbour,
    PastLane,
    Receipt,
    Snapshot,
    Testimony,
)
from promptkeel.store.facade import BlockingStore, Store
from promptkeel.store.opening import open_store

__all__ = [
    "BlockingStore",
    "Change",
    "Changes",
    "GraphStore",
    "Head",
    "Heads",
    "History",
    "MemoryLaneScanner",
    "Neighbour",
    "PastLane",
    "Receipt",
    "Snapshot",
    "Store",
    "Testimony",
    "open_store",
]
