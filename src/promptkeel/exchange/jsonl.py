"""JSON Lines: one statement or one edge a line, to and from the values of the model. Pure.

A statement is ``{"scope", "id", "label", "properties", "source", "recorded_at", "trust", "state"}``; ``block`` and
``text`` may stand for ``label``. ``recorded_at`` null is "not recorded"; left out, it is when the store takes the line.
A line without an id is known by its scope and label. An edge is ``{"scope", "edge": {"start", "type", "end",
"properties"}}``; both of its ends must be in the store or in the file. A revision of an authored block is ``{"scope",
"revision": {"block", "number", "content", ...}}`` with its hashes: what was edited in the file is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, final

import attrs

from promptkeel.errors import ExchangeError, StoreDamagedError
from promptkeel.exchange.entries import (
    Authored,
    Connection,
    Entry,
    Statement,
    check_keys,
    derived_id,
    parse_object,
    require_text,
    shown,
)
from promptkeel.instants import format_instant
from promptkeel.model import NOT_GIVEN, MemoryEdge, MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.authored import (
    AuthoredRevision,
    check_block_name,
    head_label,
    is_of_namespace,
    revision_id,
    revision_of,
)
from promptkeel.text import check_text

STATEMENT_KEYS: Final = (
    "scope",
    "id",
    "label",
    "block",
    "text",
    "properties",
    "source",
    "recorded_at",
    "trust",
    "state",
)
LINE_KEYS: Final = ("scope", "edge")
REVISION_LINE_KEYS: Final = ("scope", "revision")
_REVISION_TEXTS: Final = ("content", "content_hash", "digest")
_REVISION_OPTIONAL: Final = ("message", "parent", "restored")
REVISION_KEYS: Final = ("block", "number", *_REVISION_TEXTS, *_REVISION_OPTIONAL, "author", "recorded_at", "trust")
EDGE_KEYS: Final = ("start", "type", "end", "properties")


@final
@attrs.frozen(order=False)
class JsonLines:
    """The format, with what an import knows beside the file.

    Attributes:
        prefixes: the label prefix of each declared memory block by its name.
        scope: the scope of a line that names none; None where every line must.
    """

    prefixes: Mapping[str, str] = attrs.field(factory=dict)
    scope: TenantScope | None = None

    def parse(self, text: str) -> tuple[Entry, ...]:
        """What a line says.

        Raises:
            ExchangeError: it is not a line of this format.
            InvalidInputError: it says what no store can take.
        """
        given = parse_object(text)
        if "edge" in given:
            return (Connection(self._edge(given)),)
        if "revision" in given:
            return (self._revision(given),)
        if given.get("type") in ("entity", "relation"):
            raise ExchangeError("is a line of an MCP knowledge graph; import the file with --format mcp and a --scope")
        check_keys(given, (*STATEMENT_KEYS, "edge"), "a line")
        return (self._statement(given),)

    def _statement(self, given: dict[str, Any]) -> Statement:
        scope = self._scope(given)
        label = self._label(given)
        identified = given.get("id") is not None
        if given.get("state", "live") != "live" and not identified:
            raise ExchangeError("a line with a 'state' needs the 'id' of its node")
        node = MemoryNode(
            id=require_text(given, "id", "a line") if identified else derived_id(scope.path, label),
            scope=scope,
            label=label,
            properties={} if given.get("properties") is None else given["properties"],
            source=given.get("source"),
            recorded_at=_recorded(given),
            trust=given.get("trust"),
            state=given.get("state", "live"),
        )
        return Statement(node, identified=identified)

    def _scope(self, given: dict[str, Any]) -> TenantScope:
        if "scope" not in given and self.scope is not None:
            return self.scope
        return _scope_of(require_text(given, "scope", "a line"))

    def _label(self, given: dict[str, Any]) -> str:
        if "label" in given:
            if "block" in given or "text" in given:
                raise ExchangeError("give either 'label', or 'block' and 'text'")
            return require_text(given, "label", "a line")
        if "block" not in given and "text" not in given:
            raise ExchangeError("a line needs 'label', or 'block' and 'text'")
        block = require_text(given, "block", "a line with 'text'")
        text = check_text(require_text(given, "text", "a line with 'block'"), field="text")
        if block not in self.prefixes:
            declared = ", ".join(sorted(self.prefixes)) or "none"
            raise ExchangeError(f"block {shown(block)} is no declared memory block (declared: {declared})")
        return self.prefixes[block] + text

    def _revision(self, given: dict[str, Any]) -> Authored:
        check_keys(given, REVISION_LINE_KEYS, "a line with a revision")
        said = given["revision"]
        if not isinstance(said, dict):
            raise ExchangeError("'revision' must be an object with 'block', 'number' and 'content'")
        check_keys(said, REVISION_KEYS, "a revision")
        block, number = check_block_name(require_text(said, "block", "a revision")), said.get("number")
        if type(number) is not int or number < 1:
            raise ExchangeError("'number' must be a whole number of at least 1")
        texts = {key: require_text(said, key, "a revision") for key in _REVISION_TEXTS}
        texts |= {key: require_text(said, key, "a revision") for key in _REVISION_OPTIONAL if said.get(key) is not None}
        scope = self._scope(given)
        node = MemoryNode(
            id=revision_id(scope, block, number),
            scope=scope,
            label=head_label(block),
            properties={**texts, "number": number},
            source=require_text(said, "author", "a revision"),
            recorded_at=_recorded(said),
            trust=said.get("trust"),
        )
        return Authored(node, block, number)

    def _edge(self, given: dict[str, Any]) -> MemoryEdge:
        check_keys(given, LINE_KEYS, "a line with an edge")
        edge = given["edge"]
        if not isinstance(edge, dict):
            raise ExchangeError("'edge' must be an object with 'start', 'type' and 'end'")
        check_keys(edge, EDGE_KEYS, "an edge")
        start, kind, end = (require_text(edge, key, "an edge") for key in ("start", "type", "end"))
        properties = {} if edge.get("properties") is None else edge["properties"]
        return MemoryEdge(scope=self._scope(given), start=start, type=kind, end=end, properties=properties)


@lru_cache(maxsize=1024)
def _scope_of(path: str) -> TenantScope:
    return TenantScope.parse(path)


def _recorded(given: dict[str, Any]) -> Any:
    recorded = given.get("recorded_at", NOT_GIVEN)
    if recorded is None or recorded is NOT_GIVEN or isinstance(recorded, str):
        return recorded
    raise ExchangeError(f"'recorded_at' must be ISO 8601 text or null, not {recorded!r:.40}")


def _in_order(value: Any) -> Any:
    """JSON with its keys sorted at every depth: one spelling for one content, whatever store it comes from."""
    if isinstance(value, Mapping):
        return {key: _in_order(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_in_order(item) for item in value]
    return value


def node_line(node: MemoryNode) -> str:
    """The line of a stored node, whatever it is, without a line break."""
    if is_of_namespace(node):
        try:
            return revision_line(revision_of(node))
        except StoreDamagedError:
            pass  # spelled as what it is: no import takes it
    return statement_line(node)


def revision_line(revision: AuthoredRevision) -> str:
    """The line of a revision of an authored block, without a line break."""
    said: dict[str, Any] = {"block": revision.block, "number": revision.number, "content": revision.content}
    said |= {"author": revision.author, "trust": revision.trust}
    said["recorded_at"] = None if revision.recorded is None else format_instant(revision.recorded)
    said |= {key: getattr(revision, key) for key in _REVISION_OPTIONAL if getattr(revision, key) is not None}
    said |= {"content_hash": revision.content_hash, "digest": revision.digest}
    return json.dumps({"scope": revision.scope.path, "revision": said}, ensure_ascii=False, allow_nan=False)


def statement_line(node: MemoryNode) -> str:
    """The line of a stored node, without a line break."""
    line: dict[str, Any] = {"scope": node.scope.path, "id": node.id, "label": node.label}
    if node.own_properties:
        line["properties"] = _in_order(node.own_properties)
    if node.source is not None:
        line["source"] = node.source
    line["recorded_at"] = format_instant(node.recorded) if isinstance(node.recorded, int) else None
    if node.trust is not None:
        line["trust"] = node.trust
    if node.state != "live":
        line["state"] = node.state
    return json.dumps(line, ensure_ascii=False, allow_nan=False)


def edge_line(edge: MemoryEdge) -> str:
    """The line of a stored edge, without a line break."""
    spelled: dict[str, Any] = {"start": edge.start, "type": edge.type, "end": edge.end}
    if edge.properties:
        spelled["properties"] = _in_order(edge.properties)
    return json.dumps({"scope": edge.scope.path, "edge": spelled}, ensure_ascii=False, allow_nan=False)
