"""What an operator declares: which blocks a prompt has and where their content comes from."""

from promptkeel.blocks.computed import ComputedSource
from promptkeel.blocks.difference import DiffPart, RevisionDiff
from promptkeel.blocks.failures import FAILURE_ACTIONS, FailurePolicy
from promptkeel.blocks.files import FileSource
from promptkeel.blocks.history import BlockHistory, BlockingBlockHistory
from promptkeel.blocks.lanes import MemoryLane
from promptkeel.blocks.source import BlockSource, LoadedSource, Sharing, StoreBacked
from promptkeel.blocks.spec import Gate, PromptBlockSpec, in_prompt_order
from promptkeel.blocks.static import StaticSource
from promptkeel.blocks.stored import StoredSource
from promptkeel.blocks.taxonomy import (
    CANONICAL,
    CHANNELS,
    LAYERS,
    PERMISSIONS,
    TIERS,
    Canonical,
    Channel,
    Layer,
    Permission,
    Tier,
)
from promptkeel.store.authored import NO_REVISION, AuthoredRevision

__all__ = [
    "CANONICAL",
    "CHANNELS",
    "FAILURE_ACTIONS",
    "LAYERS",
    "NO_REVISION",
    "PERMISSIONS",
    "TIERS",
    "AuthoredRevision",
    "BlockHistory",
    "BlockSource",
    "BlockingBlockHistory",
    "Canonical",
    "Channel",
    "ComputedSource",
    "DiffPart",
    "FailurePolicy",
    "FileSource",
    "Gate",
    "Layer",
    "LoadedSource",
    "MemoryLane",
    "Permission",
    "PromptBlockSpec",
    "RevisionDiff",
    "Sharing",
    "StaticSource",
    "StoreBacked",
    "StoredSource",
    "Tier",
    "in_prompt_order",
]
