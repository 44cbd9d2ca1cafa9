"""The standing context of LLM agents: what an agent always knows, who said so and since when.

Memory in, a prompt out: complete, attributed, fresh, byte-stable and accountable. ``promptkeel.open`` is the way in;
``promptkeel.blocking`` is the same without ``await``.
"""

from promptkeel.blocks import ComputedSource, FileSource, MemoryLane, PromptBlockSpec, StaticSource
from promptkeel.errors import (
    BlockError,
    BlockResolutionError,
    CommitUnknownError,
    CompactedError,
    ConflictError,
    CycleError,
    ExchangeError,
    InvalidDeclarationError,
    InvalidInputError,
    InvalidInstantError,
    InvalidPropertiesError,
    InvalidScopeError,
    InvalidTextError,
    MissingExtraError,
    MissingFactsError,
    NewerSchemaError,
    NodeErasedError,
    NodeExistsError,
    NodeNotFoundError,
    NotAStoreError,
    PromptkeelError,
    ReadOnlyNodeError,
    ReplicaBehindError,
    ReplicaMismatchError,
    ScannerError,
    SourceUnavailableError,
    StoreBusyError,
    StoreClosedError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from promptkeel.keel import Keel, open  # noqa: A004 - promptkeel.open is the public name
from promptkeel.lane import EMPTY_MEMORY_REVISION, memory_revision, scan_memory_lane
from promptkeel.model import BlockFact, BlockRevision, MemoryEdge, MemoryNode
from promptkeel.prompt import Prompt, PromptBuilder
from promptkeel.render import RenderPolicy, render_block
from promptkeel.resolver import PromptBlockResolver, ResolvedBlock
from promptkeel.scope import ScopeLevel, TenantScope
from promptkeel.store import GraphStore, MemoryLaneScanner, open_store

__version__ = "0.1.0"

__all__ = [
    "EMPTY_MEMORY_REVISION",
    "BlockError",
    "BlockFact",
    "BlockResolutionError",
    "BlockRevision",
    "CommitUnknownError",
    "CompactedError",
    "ComputedSource",
    "ConflictError",
    "CycleError",
    "ExchangeError",
    "FileSource",
    "GraphStore",
    "InvalidDeclarationError",
    "InvalidInputError",
    "InvalidInstantError",
    "InvalidPropertiesError",
    "InvalidScopeError",
    "InvalidTextError",
    "Keel",
    "MemoryEdge",
    "MemoryLane",
    "MemoryLaneScanner",
    "MemoryNode",
    "MissingExtraError",
    "MissingFactsError",
    "NewerSchemaError",
    "NodeErasedError",
    "NodeExistsError",
    "NodeNotFoundError",
    "NotAStoreError",
    "Prompt",
    "PromptBlockResolver",
    "PromptBlockSpec",
    "PromptBuilder",
    "PromptkeelError",
    "ReadOnlyNodeError",
    "RenderPolicy",
    "ReplicaBehindError",
    "ReplicaMismatchError",
    "ResolvedBlock",
    "ScannerError",
    "ScopeLevel",
    "SourceUnavailableError",
    "StaticSource",
    "StoreBusyError",
    "StoreClosedError",
    "StoreDamagedError",
    "StoreError",
    "StoreFullError",
    "StoreReadOnlyError",
    "StoreUnavailableError",
    "TenantScope",
    "memory_revision",
    "open",
    "open_store",
    "render_block",
    "scan_memory_lane",
]
