"""The public surface is what the design names, and importing it stays light."""

from __future__ import annotations

import subprocess
import sys

import promptkeel
from promptkeel import errors

PINNED = {
    "open", "Keel", "TenantScope", "ScopeLevel", "MemoryNode", "MemoryEdge", "BlockFact", "BlockRevision",
    "MemoryLaneScanner", "GraphStore", "open_store", "scan_memory_lane", "memory_revision", "EMPTY_MEMORY_REVISION",
    "PromptBlockSpec", "MemoryLane", "StaticSource", "FileSource", "ComputedSource", "RenderPolicy", "render_block",
    "PromptBlockResolver", "ResolvedBlock", "PromptBuilder", "Prompt",
}  # fmt: skip


def test_the_public_names_are_the_pinned_ones_and_every_error():
    tree = {
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert set(promptkeel.__all__) == PINNED | tree
    for name in promptkeel.__all__:
        assert getattr(promptkeel, name) is not None


def test_the_blocking_twin_has_every_name_that_does_io():
    from promptkeel import blocking

    assert set(blocking.__all__) == {
        "BlockingStore", "Keel", "PromptBlockResolver", "PromptBuilder", "open", "open_store", "scan_memory_lane",
    }  # fmt: skip
    for name in ("open", "open_store", "scan_memory_lane"):
        assert getattr(blocking, name) is not getattr(promptkeel, name)


BOUND = {"remember", "correct", "retract", "erase", "link", "get", "history", "facts", "prompt"}


def test_the_blocking_keel_has_every_method_of_the_asynchronous_one():
    from promptkeel import blocking
    from promptkeel.bound import BlockingBoundKeel, BoundKeel

    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(blocking.Keel) == public(promptkeel.Keel)
    assert public(BlockingBoundKeel) == public(BoundKeel) == BOUND
    assert public(type(blocking.open_store("ram:"))) == public(type(promptkeel.open_store("ram:")))


def test_importing_promptkeel_loads_no_graph_library_no_server_library_and_no_extra():
    heavy = [
        "networkx",
        "click",
        "rich",
        "psycopg",
        "starlette",
        "uvicorn",
        "mcp",
        "hypothesis",
        "rs_bpe",
        "trio",
        "sqlalchemy",
        "aiosqlite",
        "sqlite3",
    ]
    code = f"import promptkeel, promptkeel.blocking, sys; print([name for name in {heavy!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
