"""Authored blocks as nodes: the namespace that is reserved for them, and what a revision of one is.

A revision of an authored block is a node that never changes, apart from its state: the newest is live, the ones before
it are superseded. So heads, log, snapshots, as-of reads, replicas, copies, backups, audits and erasures hold for it as
they do for every node. Labels and ids that begin with ``RESERVED`` belong to revisions alone: whoever may remember
cannot forge one. The id follows from block, scope and number, so that two writers of one number collide.

A revision names the one that it replaced as its parent; that is its lineage, and there is no edge beside it that could
say otherwise. Pure.
"""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import Any, Final, final

import attrs

from promptkeel.errors import (
    ContentTooLargeError,
    InvalidInputError,
    InvalidTextError,
    StoreDamagedError,
)
from promptkeel.instants import datetime_of
from promptkeel.model import MemoryNode, Trust, check_trust
from promptkeel.properties import dump_json
from promptkeel.scope import TenantScope
from promptkeel.store.audit import shown_scope
from promptkeel.store.reserved import AUTHORED
from promptkeel.text import check_text

RESERVED: Final = AUTHORED
"""Labels and ids that begin with this belong to authored blocks."""
NO_REVISION: Final = ""
"""As an expected head: that there is no revision yet."""
CONTENT_LIMIT: Final = 1_048_576
"""The default bound of a revision's content, in bytes of UTF-8."""
MESSAGE_LIMIT: Final = 10_000
"""The bound of a message, in characters."""

_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}", re.ASCII)
_HEAD: Final = "head"
_PAST: Final = "past"
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
REMEDY: Final = "restore a backup, or append a revision that says what is meant and erase this one"
"""What to do about a revision that is not what its author wrote."""


def check_block_name(name: object) -> str:
    """The name itself.

    Raises:
        InvalidInputError: no block can have it.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidInputError(
            f"{name!r:.80} must be capitals, digits and underscores, the first a letter, at most 64", field="block"
        )
    return str.__str__(name)


def is_of_namespace(node: MemoryNode) -> bool:
    """Whether a node claims to be a revision, by its label or its id."""
    return node.label.startswith(RESERVED) or node.id.startswith(RESERVED)


def block_prefix(block: str) -> str:
    """What the labels and ids of a block's revisions begin with, and those of no other block."""
    return f"{RESERVED}{block}:"


def head_label(block: str) -> str:
    """The label of a block's head: the lane of one node, whatever the length of its history."""
    return block_prefix(block) + _HEAD


def past_label(block: str) -> str:
    """The label of the revisions before the head, which lie apart from it."""
    return block_prefix(block) + _PAST


def block_of(label: str) -> str:
    """The name of the block that a label of the namespace belongs to, as far as it has one."""
    return label.removeprefix(RESERVED).partition(":")[0]


def revision_ids(scope: TenantScope, block: str) -> str:
    """What the ids of a block's revisions at a scope begin with, and no other id under its root does."""
    return f"{block_prefix(block)}{hashlib.sha256(scope.path.encode()).hexdigest()[:16]}:"


def revision_id(scope: TenantScope, block: str, number: int) -> str:
    """The id of a revision."""
    return f"{revision_ids(scope, block)}{number}"


def number_of(node: MemoryNode, block: str) -> int:
    """The number of a revision, as its id has it.

    Raises:
        StoreDamagedError: it has not the id of a revision of this block.
    """
    start = revision_ids(node.scope, block)
    number = node.id.removeprefix(start)
    if not node.id.startswith(start) or _NUMBER.fullmatch(number) is None:
        raise _damaged(node, "has not the id of one: it was written past promptkeel")
    return int(number)


@final
@attrs.frozen(order=False, kw_only=True)
class AuthoredRevision:
    """One revision of an authored block.

    Attributes:
        id: unique under the scope's root; what ``expected_head`` names.
        block: the block's name.
        scope: where it is stored.
        number: counts from 1; the numbers of erased revisions are not used again.
        content: the text.
        author: who wrote it.
        recorded: when, as an instant.
        message: why; None where nothing was said.
        parent: the id of the revision that it replaced; None where there was none.
        restored: the id of the older revision whose content it brought back.
        trust: whose words these are.
        content_hash: SHA-256 of the content as UTF-8.
        digest: SHA-256 of all of this.
        is_head: whether it is the newest.
        is_intact: whether content and digest are what was written with it.
    """

    id: str
    block: str
    scope: TenantScope
    number: int
    content: str = attrs.field(repr=False)
    author: str | None
    recorded: int | None
    message: str | None = None
    parent: str | None = None
    restored: str | None = None
    trust: Trust | None = None
    content_hash: str = attrs.field(repr=False)
    digest: str = attrs.field(repr=False)
    is_head: bool = True
    is_intact: bool = True

    @property
    def at(self) -> datetime | None:
        """When it was written, as an aware UTC datetime."""
        return None if self.recorded is None else datetime_of(self.recorded)


def content_hash_of(content: str) -> str:
    """The hash of a content."""
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()


def check_content(content: object, *, max_bytes: int = CONTENT_LIMIT, where: str | None = None) -> str:
    """The content itself.

    Raises:
        InvalidTextError: it is no text that a store can take, or blank.
        ContentTooLargeError: it is larger than that.
    """
    if type(max_bytes) is not int or max_bytes < 1:
        raise InvalidInputError(f"must be a whole number of at least 1, not {max_bytes!r}", field="max_bytes")
    checked = check_text(content, field="content", where=where)
    size = len(checked.encode())
    if size > max_bytes:
        raise ContentTooLargeError(
            f"has {size} bytes, {max_bytes} are allowed: shorten it, or declare a larger limit",
            field="content",
            where=where,
        )
    return checked


def check_message(message: object, *, where: str | None = None) -> str | None:
    """The message itself.

    Raises:
        InvalidTextError: it is no text that a store can take, or blank.
        ContentTooLargeError: it is too long.
    """
    if message is None:
        return None
    checked = check_text(message, field="message", where=where)
    if len(checked) > MESSAGE_LIMIT:
        raise ContentTooLargeError(f"must have at most {MESSAGE_LIMIT} characters", field="message", where=where)
    return checked


def check_author(author: object, *, where: str | None = None) -> str:
    """The author, without surrounding white space.

    Raises:
        InvalidTextError: it is no text that a store can take, or blank.
    """
    if author is None:
        raise InvalidTextError("is not given: an authored block says who wrote it", field="author", where=where)
    return check_text(author, field="author", where=where).strip()


def check_authored_trust(trust: object, *, where: str | None = None) -> Trust:
    """The trust itself.

    Raises:
        InvalidInputError: it is none, or left out: whose words these are is always known.
    """
    found = check_trust(trust, where=where)
    if found is None:
        raise InvalidInputError("is not given: whose words these are is always known", field="trust", where=where)
    return found


def revision_node(
    *,
    scope: TenantScope,
    block: str,
    number: int,
    content: str,
    author: str,
    recorded: int,
    message: str | None,
    parent: str | None,
    restored: str | None,
    trust: Trust | None,
) -> MemoryNode:
    """The node of a new revision."""
    properties: dict[str, Any] = {"content": content, "number": number, "content_hash": content_hash_of(content)}
    said = (("message", message), ("parent", parent), ("restored", restored))
    properties |= {name: value for name, value in said if value is not None}
    node = MemoryNode(
        id=revision_id(scope, block, number),
        scope=scope,
        label=head_label(block),
        properties=properties,
        source=author,
        recorded_at=recorded,
        trust=trust,
    )
    return attrs.evolve(node, properties={**properties, "digest": _digest_of(node, properties)})


def _digest_of(node: MemoryNode, said: Any) -> str:
    recorded = node.recorded if isinstance(node.recorded, int) else None
    parts = [node.id, node.scope.path, block_of(node.label), node.source, recorded, node.trust]
    names = ("number", "content_hash", "message", "parent", "restored")
    return hashlib.sha256(dump_json([*parts, *(said.get(name) for name in names)]).encode()).hexdigest()


def revision_of(node: MemoryNode) -> AuthoredRevision:
    """The revision that a stored node is.

    Raises:
        StoreDamagedError: it cannot be read as one; raw SQL has changed it.
    """
    block = block_of(node.label)
    if node.label not in (head_label(block), past_label(block)) or _NAME.fullmatch(block) is None:
        raise _damaged(node, "has a label that no block has")
    said = node.own_properties
    number = number_of(node, block)
    texts = {name: said.get(name) for name in ("content", "content_hash", "digest", "message", "parent", "restored")}
    for name, value in texts.items():
        if not isinstance(value, str) and (value is not None or name in ("content", "content_hash", "digest")):
            raise _damaged(node, f"has no text as {name}")
    if type(said.get("number")) is not int or said["number"] != number:
        raise _damaged(node, "has another number than its id says")
    recorded = node.recorded if isinstance(node.recorded, int) else None
    content: str = said["content"]
    intact = said["content_hash"] == content_hash_of(content) and said["digest"] == _digest_of(node, said)
    return AuthoredRevision(
        block=block,
        id=node.id,
        scope=node.scope,
        number=number,
        author=node.source,
        recorded=recorded,
        trust=node.trust,
        is_head=node.state == "live",
        is_intact=intact,
        **texts,  # type: ignore[arg-type]  # looked at one by one above
    )


def intact(revision: AuthoredRevision) -> AuthoredRevision:
    """The revision itself.

    Raises:
        StoreDamagedError: it is not what its author wrote.
    """
    if revision.is_intact:
        return revision
    raise StoreDamagedError(
        f"revision {revision.number} of block {revision.block} at scope {shown_scope(revision.scope.path)} is not what "
        f"its author wrote: it was changed past promptkeel; {REMEDY}"
    )


def _damaged(node: MemoryNode, what: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"node {node.id!r} at scope {shown_scope(node.scope.path)}, label {node.label!r}, {what}; {REMEDY}"
    )
