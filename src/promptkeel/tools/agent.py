"""The tools of one agent at one scope: what a model asks for, done within what the host granted.

The host says once who the agent is, at which scope it writes and how much; a model only ever sends what the schemas
have. A statement goes where its block's own lane is; a notes block is appended to by compare-and-set. What an
ancestor's scope, an operator or another block has written is not the agent's to change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, final

from promptkeel.blocks import PromptBlockSpec, StoredSource
from promptkeel.blocks.history import HistoryCore
from promptkeel.core import KeelCore
from promptkeel.errors import (
    ConflictError,
    InvalidDeclarationError,
    InvalidInputError,
    NodeNotFoundError,
    ReadOnlyNodeError,
    RevisionConflictError,
    ToolError,
    ToolPermissionError,
)
from promptkeel.model import MemoryNode, Trust, check_source, check_trust
from promptkeel.scope import TenantScope
from promptkeel.steps import Steps, as_async, as_blocking
from promptkeel.store.arguments import check_scope
from promptkeel.store.authored import AuthoredRevision
from promptkeel.text import check_text
from promptkeel.tools.limits import Rate, ToolLimits
from promptkeel.tools.schemas import TOOL_NAMES, ToolSchema, permitting, read_arguments, schema_of

_TRIES: Final = 5
"""How often a notes block is read again where somebody else wrote it meanwhile."""
_REFUSALS: Final = (InvalidInputError, ToolError, NodeNotFoundError, ReadOnlyNodeError, ConflictError)


@final
class ToolCore:
    """One agent's tools, as steps.

    Args:
        keel: the open keel.
        scope: where the agent writes; what it sees from ancestors stays read-only.
        source: who the agent is; stamped on everything it writes.
        trust: whose words it writes; ``inferred`` unless the host knows better, never ``operator``.
        limits: how much, and how often.
        grant: the names of the tools that it gets, of those that its blocks permit; None is all of them.
        specs: the blocks that it may touch; None is all that the keel declares.
        check: called before everything that is done; raises where the tools have ended.
        now: answers seconds that never run back.
    """

    def __init__(
        self,
        keel: KeelCore,
        scope: TenantScope,
        *,
        source: str,
        trust: Trust = "inferred",
        limits: ToolLimits | None = None,
        grant: Collection[str] | None = None,
        now: Callable[[], float] = time.monotonic,
        specs: Sequence[PromptBlockSpec] | None = None,
        check: Callable[[], object] | None = None,
    ) -> None:
        self._keel = keel
        self._specs = keel.specs if specs is None else tuple(specs)
        self._check = check
        self._scope = check_scope(scope)
        self._source = check_source(source)
        if self._source is None:
            raise InvalidDeclarationError("must say who the agent is, as 'agent:planner'", field="source")
        self._trust = check_trust(trust)
        if self._trust in (None, "operator"):
            raise InvalidDeclarationError(
                "must be inferred, third-party or user: no agent is an operator", field="trust"
            )
        if limits is not None and not isinstance(limits, ToolLimits):
            raise InvalidDeclarationError(f"must be ToolLimits, not {type(limits).__name__}", field="limits")
        self._limits = ToolLimits() if limits is None else limits
        self._rate = Rate(self._limits, now)
        self._schemas = self._granted(grant)

    def _granted(self, grant: Collection[str] | None) -> dict[str, ToolSchema]:
        if grant is not None and (isinstance(grant, str) or not isinstance(grant, Collection)):
            raise InvalidDeclarationError("must be a set of names", field="grant")
        for name in () if grant is None else grant:
            if name not in TOOL_NAMES:
                raise InvalidDeclarationError(f"{name!r} is no tool; there are {', '.join(TOOL_NAMES)}", field="grant")
        found = {}
        for name in TOOL_NAMES:
            schema = schema_of(self._specs, name, text_characters=self._limits.text_characters)
            if schema is not None and (grant is None or name in grant):
                found[name] = schema
        return found

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """The tools that the agent has, to be told to its model."""
        return tuple(self._schemas.values())

    # -- calls by name

    def call(self, name: str, arguments: Mapping[str, Any] | str) -> Steps[dict[str, Any]]:
        """Do what a model asked for.

        Args:
            name: the tool's name.
            arguments: as its schema says; a mapping, or the JSON text of one.

        Raises:
            ToolPermissionError: the agent does not have this tool, or not for this.
            ToolRateError: it called too often.
            InvalidInputError: the arguments do not fit the schema.
            StoreError: the store refused it.
        """
        schema = self._schema(name)
        try:
            given = read_arguments(schema, arguments)
        except InvalidInputError:
            self._rate.take()
            raise
        method = getattr(self, name)
        answer: dict[str, Any] = yield from method(**given)
        return answer

    def respond(self, name: str, arguments: Mapping[str, Any] | str) -> Steps[dict[str, Any]]:
        """As ``call``, but what the model may be told is an answer: ``{"error": ...}`` where it was refused.

        Raises:
            SourceUnavailableError: the store could not be reached, which is the host's to know.
        """
        try:
            return (yield from self.call(name, arguments))
        except _REFUSALS as error:
            return {"error": str(error)}

    # -- the tools

    def memory_block_append(self, block: str, text: str) -> Steps[dict[str, Any]]:
        """Add a paragraph to the end of a notes block."""
        given = self._take("memory_block_append", block=block, text=text)
        return (yield from self._write_notes(given["block"], lambda old: f"{old}\n{text}" if old else text))

    def memory_block_replace(self, block: str, old: str, new: str) -> Steps[dict[str, Any]]:
        """Replace a passage that occurs exactly once in a notes block."""
        given = self._take("memory_block_replace", block=block, old=old, new=new)

        def replaced(content: str) -> str:
            found = content.count(old)
            if found != 1:
                raise InvalidInputError(
                    f"must occur exactly once in the block, not {found} times",
                    field="old",
                    where="memory_block_replace",
                )
            return content.replace(old, new)

        return (yield from self._write_notes(given["block"], replaced))

    def memory_fact_add(self, block: str, text: str) -> Steps[dict[str, Any]]:
        """Remember a statement."""
        given = self._take("memory_fact_add", block=block, text=text)
        spec = self._spec("memory_fact_add", given["block"])
        held = yield from self._keel.store.query_nodes(self._scope, label_prefix=self._keel.labels.prefix(spec.name))
        own = [node for node in held if node.scope == self._scope]
        label = self._keel.labels.label(text, spec.name)
        self._check_shown("memory_fact_add", label)
        if len(own) >= self._limits.block_facts and all(node.label != label for node in own):
            raise ToolPermissionError(
                f"block {block} holds {len(own)} statements, which is its limit; retract some first"
            )
        node = yield from self._keel.remember(self._scope, text, block=block, source=self._source, trust=self._trust)
        return self._told(node)

    def memory_fact_correct(
        self,
        id: str,  # noqa: A002 - the schema's name
        text: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Steps[dict[str, Any]]:
        """Correct a statement, or fields of it."""
        given = {"id": id, "text": text, "fields": fields}
        self._take("memory_fact_correct", **{name: value for name, value in given.items() if value is not None})
        node = yield from self._own_node("memory_fact_correct", id)
        if text is not None:
            self._check_shown(
                "memory_fact_correct", self._keel.labels.corrected(node.label, text, where=f"node {id!r}")
            )
        corrected = yield from self._keel.correct(
            self._scope, id, text=text, properties=fields, source=self._source, trust=self._trust, expected=node
        )
        return self._told(corrected)

    def memory_fact_retract(self, id: str) -> Steps[dict[str, Any]]:  # noqa: A002 - the schema's name
        """Take a statement out of memory; its history is kept."""
        self._take("memory_fact_retract", id=id)
        node = yield from self._own_node("memory_fact_retract", id)
        yield from self._keel.retract(self._scope, id, expected=node)
        return {"id": id, "retracted": True}

    # -- what is allowed

    def _schema(self, name: str) -> ToolSchema:
        asked: object = name
        schema = self._schemas.get(asked) if isinstance(asked, str) else None
        if schema is None:
            there = f"it has {', '.join(self._schemas)}" if self._schemas else "it has none"
            raise ToolPermissionError(f"this agent has no tool {name!r}; {there}")
        return schema

    def _take(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Check a call and count it."""
        if self._check is not None:
            self._check()
        schema = self._schema(name)
        self._rate.take()
        given = read_arguments(schema, arguments)
        for argument in ("text", "old"):
            if argument in given:
                check_text(given[argument], field=argument, where=name)
        return given

    def _spec(self, tool: str, block: str) -> PromptBlockSpec:
        return next(spec for spec in permitting(self._specs, tool) if spec.name == block)

    def _own_node(self, tool: str, node_id: str) -> Steps[MemoryNode]:
        """The node that a tool may change.

        Raises:
            ToolPermissionError: a block that shows it, or who said it, does not allow that.
        """
        node = yield from self._keel.store.get(self._scope, node_id)
        self._check_shown(tool, node.label, f"statement {node_id!r}")
        if node.trust == "operator":
            raise ToolPermissionError(f"statement {node_id!r} is its operator's word; an agent does not change it")
        if node.scope != self._scope:
            raise ReadOnlyNodeError(
                f"statement {node_id!r} belongs to {node.scope.path or '(deployment)'} and is read-only here"
            )
        return node

    def _check_shown(self, tool: str, label: str, what: str = "this statement") -> None:
        """Refuse what any block would show, or shows, that does not permit the tool, whatever its label says."""
        showing = self._keel.labels.showing(label)
        permitted = permitting(self._specs, tool)
        if not showing or any(spec not in permitted for spec in showing):
            where = ", ".join(spec.name for spec in showing) or "no block"
            raise ToolPermissionError(f"{what} is shown by {where}, where {tool} is not permitted")

    def _write_notes(self, block: str, change: Callable[[str], str]) -> Steps[dict[str, Any]]:
        spec = next(spec for spec in self._keel.specs if spec.name == block)
        assert isinstance(spec.source, StoredSource)  # noqa: S101 - only notes permit it
        history: HistoryCore = self._keel.authored
        place = spec.source.place(self._scope)
        if place != self._scope:
            raise ToolPermissionError(
                f"block {block} is shared by {spec.source.level}; an agent writes its own scope's only"
            )
        for attempt in range(_TRIES):
            head: AuthoredRevision | None = yield from history.head(place, block)
            content = change("" if head is None else head.content)
            if len(content) > self._limits.block_characters:
                raise ToolPermissionError(
                    f"block {block} would have {len(content)} characters, and its limit is "
                    f"{self._limits.block_characters}: replace passages by shorter ones first"
                )
            try:
                revision = yield from history.append(
                    place, block, content, author=str(self._source), expected_head="" if head is None else head,
                    trust=self._trust or "inferred",
                )  # fmt: skip
            except RevisionConflictError:
                if attempt == _TRIES - 1:
                    raise
            else:
                return {"block": block, "revision": revision.number, "characters": len(content)}
        raise AssertionError  # pragma: no cover - the last try has raised

    @staticmethod
    def _told(node: MemoryNode) -> dict[str, Any]:
        return {"id": node.id, "label": node.label, "fields": dict(node.own_properties)}


class _Facade:
    def __init__(self, core: ToolCore) -> None:
        self.core = core

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """The tools that the agent has, to be told to its model."""
        return self.core.schemas


@final
class AgentTools(_Facade):
    """One agent's tools; made by ``Keel.tools``."""

    call = as_async(ToolCore.call)
    respond = as_async(ToolCore.respond)
    memory_block_append = as_async(ToolCore.memory_block_append)
    memory_block_replace = as_async(ToolCore.memory_block_replace)
    memory_fact_add = as_async(ToolCore.memory_fact_add)
    memory_fact_correct = as_async(ToolCore.memory_fact_correct)
    memory_fact_retract = as_async(ToolCore.memory_fact_retract)


@final
class BlockingAgentTools(_Facade):
    """The blocking twin of ``AgentTools``."""

    call = as_blocking(ToolCore.call)
    respond = as_blocking(ToolCore.respond)
    memory_block_append = as_blocking(ToolCore.memory_block_append)
    memory_block_replace = as_blocking(ToolCore.memory_block_replace)
    memory_fact_add = as_blocking(ToolCore.memory_fact_add)
    memory_fact_correct = as_blocking(ToolCore.memory_fact_correct)
    memory_fact_retract = as_blocking(ToolCore.memory_fact_retract)
