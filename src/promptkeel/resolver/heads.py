"""The heads of stored blocks: from the rows of their lanes to what is shown. Pure.

A head is followed like a lane, at the same point in time: what is kept are the live rows at the declared level, mostly
one. That nobody has written the block yet is no outage: it is an empty block or an error, as declared, whatever the
policy for failures. A head that is not what its author wrote counts as one that cannot be read.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final, final

import attrs

from promptkeel.blocks.source import content_revision
from promptkeel.blocks.spec import PromptBlockSpec
from promptkeel.blocks.stored import StoredSource
from promptkeel.errors import (
    BlockUnwrittenError,
    InvalidDeclarationError,
    PromptkeelError,
    StoreDamagedError,
)
from promptkeel.lane import row_key
from promptkeel.model import BlockFact, BlockRevision, MemoryNode
from promptkeel.resolver.outcomes import Failed, Wrong, reading_of
from promptkeel.scope import TenantScope
from promptkeel.store.authored import AuthoredRevision, intact, revision_of
from promptkeel.store.base import LaneRow, LaneUpdate, NodeKey

_CHARACTERS: Final = 200
"""So many characters of content count as one fact, where work and memory are weighed."""
_UNWRITTEN: Final = "block:0:empty"


@final
@attrs.frozen(eq=False)
class StoredHead:
    """One stored block as it was last read.

    Attributes:
        rows: the live rows at its level.
        found: what it says, or what came instead.
        revision: another text for whatever differs in ``found``.
        count: its weight, in facts.
    """

    rows: tuple[LaneRow, ...]
    found: BlockRevision | Failed | Wrong
    revision: str
    count: int

    def keys_at(self, path: str) -> list[NodeKey]:
        """The nodes of the block that are at exactly this scope."""
        return [row_key(row) for row in self.rows if row[3] == path]

    def followed(self, change: LaneUpdate, spec: PromptBlockSpec, scope: TenantScope) -> StoredHead:
        """The block after a change that its lane has seen; itself where only other levels were touched."""
        touched = set(change.touched)
        kept = tuple(row for row in self.rows if (scope.root if row[3] else "", row[2]) not in touched)
        found = _at_level(change, spec, scope)
        return self if not found and len(kept) == len(self.rows) else _head(kept + found, spec, scope)


def read_head(change: LaneUpdate, spec: PromptBlockSpec, scope: TenantScope) -> StoredHead:
    """The block of a lane that was read whole."""
    return _head(_at_level(change, spec, scope), spec, scope)


def _at_level(change: LaneUpdate, spec: PromptBlockSpec, scope: TenantScope) -> tuple[LaneRow, ...]:
    path = _source(spec).place(scope).path
    return tuple(row for row in change.rows if row[3] == path)


def _source(spec: PromptBlockSpec) -> StoredSource:
    assert isinstance(spec.source, StoredSource)  # noqa: S101 - callers ask for stored blocks only
    return spec.source


def _head(rows: tuple[LaneRow, ...], spec: PromptBlockSpec, scope: TenantScope) -> StoredHead:
    try:
        found = _read(rows, spec, scope)
    except PromptkeelError as error:
        digest = hashlib.sha256(repr(rows).encode(errors="backslashreplace")).hexdigest()[:32]
        return StoredHead(rows, reading_of(error), f"block:wrong:{digest}", 1)
    return StoredHead(rows, found, found.revision, 1 + len(found.content) // _CHARACTERS)


def _read(rows: tuple[LaneRow, ...], spec: PromptBlockSpec, scope: TenantScope) -> BlockRevision:
    source = _source(spec)
    place = source.place(scope).path or "(deployment)"
    if not rows:
        if source.required:
            raise BlockUnwrittenError(
                f"nobody has written it at {place} yet: append a revision, as with 'promptkeel block edit', or declare "
                "it required=False",
                block=spec.name,
                scope=scope.path,
            )
        return BlockRevision(content="", revision=_UNWRITTEN, facts=() if source.learned else None)
    if len(rows) > 1:
        raise StoreDamagedError(f"has {len(rows)} heads at {place}: it was written past promptkeel; check the store")
    revision = intact(_revision(rows[0]))
    if source.learned:
        return _learned(revision)
    if revision.trust != "operator":
        raise InvalidDeclarationError(
            f"holds the words of {revision.author} at {place}, whose trust is {revision.trust or 'not recorded'}: "
            "authored text is an operator's; append a revision of one, or declare it learned=True"
        )
    return _authored(revision)


def _revision(row: LaneRow) -> AuthoredRevision:
    label, recorded, node_id, path, source, trust, _, properties = row
    try:
        return revision_of(
            MemoryNode(
                id=node_id,
                scope=TenantScope.parse(path),
                label=label,
                properties=json.loads(properties or "{}"),
                source=source,
                recorded_at=recorded,
                trust=trust,  # type: ignore[arg-type]  # checked there
            )
        )
    except (ValueError, RecursionError) as error:
        raise StoreDamagedError(f"its head at {path or '(deployment)'} cannot be read: {error}") from error


def _authored(revision: AuthoredRevision) -> BlockRevision:
    return BlockRevision(
        content=revision.content,
        revision=_named(revision),
        created_at=revision.at,
        author=revision.author,
        parent_revision=revision.parent,
        message=revision.message,
        content_hash=content_revision(revision.content),
        count=1,
    )


def _learned(revision: AuthoredRevision) -> BlockRevision:
    fact = BlockFact(revision.content, revision.author, revision.at, None, revision.trust, revision.id)
    return attrs.evolve(_authored(revision), facts=(fact,))


def _named(revision: AuthoredRevision) -> str:
    return f"block:{revision.number}:{revision.digest[:32]}"
