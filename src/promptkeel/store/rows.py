"""From stored columns to nodes and edges: what every backend with rows reads alike."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from promptkeel.errors import InvalidInputError, StoreDamagedError
from promptkeel.model import MemoryEdge, MemoryNode
from promptkeel.scope import TenantScope


@functools.lru_cache(maxsize=4096)
def scope_of(path: str) -> TenantScope:
    """The scope of a path; remembered, since a lane repeats few."""
    return TenantScope.parse(path)


def root_of_path(path: str) -> str:
    """The root of a scope path."""
    return path.partition("/")[0]


def node_of(row: Sequence[Any]) -> MemoryNode:
    """The node of a row: id, scope, label, properties, source, recorded_at, trust, created_at, updated_at, state.

    Raises:
        StoreDamagedError: raw SQL has put something there that no node can hold.
    """
    try:
        return MemoryNode(
            id=row[0],
            scope=scope_of(row[1]),
            label=row[2],
            properties=json.loads(row[3]),
            source=row[4],
            recorded_at=row[5],
            trust=row[6],
            created_at=row[7],
            updated_at=row[8],
            state=row[9],
        )
    except InvalidInputError as error:
        raise damaged(row[0], row[1], error.field or "row", error.reason) from error
    except (ValueError, RecursionError) as error:
        raise damaged(row[0], row[1], "properties", str(error)) from error


def damaged(node_id: str, path: str, field: str, reason: str) -> StoreDamagedError:
    """That a stored node cannot be read."""
    return StoreDamagedError(
        f"node {node_id!r} at scope {path or '(deployment)'}: {field}: {reason}; correct or delete that row with SQL"
    )


def edge_of(row: Sequence[Any]) -> MemoryEdge:
    """The edge of a row: scope, root, start, type, root of the end, end, properties."""
    return MemoryEdge(scope=scope_of(row[0]), start=row[2], type=row[3], end=row[5], properties=json.loads(row[6]))
