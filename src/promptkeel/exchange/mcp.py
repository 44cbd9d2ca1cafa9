"""The knowledge-graph file of the MCP memory server, to nodes and edges and back. Pure.

The file is JSON Lines: ``{"type": "entity", "name", "entityType", "observations": [...]}`` and ``{"type": "relation",
"from", "to", "relationType"}``. An entity becomes a node ``ENTITY:<name>``; each of its observations a node of its own
with an edge ``about`` to it, whose statement says whom it is about, as ``Ada: works at Acme``; a relation an edge
between two entities. The format records neither sources nor times, so both are "not recorded". Ids follow from scope
and content.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, final

import attrs

from promptkeel.errors import ExchangeError, InvalidDeclarationError
from promptkeel.exchange.entries import (
    Connection,
    Entry,
    Statement,
    check_keys,
    derived_id,
    parse_object,
    require_text,
)
from promptkeel.model import MemoryEdge, MemoryNode, Trust
from promptkeel.scope import TenantScope
from promptkeel.text import check_text

ENTITY: Final = "ENTITY:"
ABOUT: Final = "about"
ENTITY_TYPE: Final = "entityType"
POSITION: Final = "position"

ENTITY_KEYS: Final = ("type", "name", "entityType", "observations")
RELATION_KEYS: Final = ("type", "from", "to", "relationType")

_OWN_WORDS: Final = frozenset({ABOUT, "derived_from", "supersedes"})
_ESCAPE: Final = "mcp:"


@final
@attrs.frozen(order=False)
class KnowledgeGraph:
    """The format, with what an import knows beside the file.

    Attributes:
        scope: where everything is stored.
        prefix: the label prefix of observations.
        source: who or what said so; None is "not recorded".
        trust: whose words these are.
    """

    scope: TenantScope
    prefix: str = "SOUL:"
    source: str | None = None
    trust: Trust | None = None

    def __attrs_post_init__(self) -> None:
        if not self.prefix or self.prefix.startswith(ENTITY) or ENTITY.startswith(self.prefix):
            raise InvalidDeclarationError(f"must be a label prefix apart from {ENTITY!r}", field="prefix")

    def parse(self, text: str) -> tuple[Entry, ...]:
        """What a line says.

        Raises:
            ExchangeError: it is not a line of this format.
            InvalidInputError: it says what no store can take.
        """
        given = parse_object(text)
        kind = given.get("type")
        if kind == "entity":
            return tuple(self._entity(given))
        if kind == "relation":
            return (self._relation(given),)
        raise ExchangeError(f"'type' must be 'entity' or 'relation', not {kind!r:.40}")

    def _entity(self, given: dict[str, Any]) -> Iterable[Entry]:
        check_keys(given, ENTITY_KEYS, "an entity")
        name = check_text(require_text(given, "name", "an entity"), field="name")
        kind = require_text(given, ENTITY_TYPE, "an entity")
        observations = given.get("observations", [])
        if not isinstance(observations, list):
            raise ExchangeError("'observations' must be a list of texts")
        entity = self._entity_id(name)
        yield self._statement(entity, ENTITY + name, {ENTITY_TYPE: kind})
        texts = (check_text(each, field=f"observations[{position}]") for position, each in enumerate(observations))
        for position, text in enumerate(dict.fromkeys(texts)):
            node_id = derived_id("observation", self.scope.path, name, self.prefix, text)
            yield self._statement(node_id, self.prefix + _subject(name) + text, {})
            edge = MemoryEdge(scope=self.scope, start=node_id, type=ABOUT, end=entity, properties={POSITION: position})
            yield Connection(edge, incidental=True)

    def _relation(self, given: dict[str, Any]) -> Connection:
        check_keys(given, RELATION_KEYS, "a relation")
        start, end = (self._entity_id(require_text(given, key, "a relation")) for key in ("from", "to"))
        kind = check_text(require_text(given, "relationType", "a relation"), field="relationType")
        return Connection(MemoryEdge(scope=self.scope, start=start, type=_edge_type(kind), end=end))

    def _entity_id(self, name: str) -> str:
        return derived_id("entity", self.scope.path, name)

    def _statement(self, node_id: str, label: str, properties: dict[str, Any]) -> Statement:
        return Statement(
            MemoryNode(
                id=node_id,
                scope=self.scope,
                label=label,
                properties=properties,
                source=self.source,
                recorded_at=None,
                trust=self.trust,
            )
        )


def _subject(name: str) -> str:
    """What stands before an observation: a statement in a prompt is read without its entity."""
    return name + ": "


def _edge_type(relation: str) -> str:
    """The edge type of a relation: its own word, kept apart from the words that mean something here."""
    return _ESCAPE + relation if relation in _OWN_WORDS or relation.startswith(_ESCAPE) else relation


def graph_lines(
    nodes: Iterable[MemoryNode], edges: Iterable[MemoryEdge], scope: TenantScope, prefix: str = "SOUL:"
) -> tuple[list[str], int]:
    """The lines of the knowledge graph stored at exactly a scope, and how many of its live nodes it cannot say.

    Said are entities, the observations about them and the relations between them; what the format has no place for
    (sources, times, trust, other nodes) is left out.
    """
    live = {node.id: node for node in nodes if node.scope == scope and node.state == "live"}
    entities = {node.id: node for node in live.values() if node.label.startswith(ENTITY)}
    observations: dict[str, list[tuple[int, str, str]]] = {node_id: [] for node_id in entities}
    relations: list[str] = []
    said: set[str] = set(entities)
    for edge in edges:
        if edge.scope != scope or edge.start not in live or edge.end not in entities:
            continue
        if edge.start in entities:
            relations.append(_relation_line(entities[edge.start], edge, entities[edge.end]))
        elif edge.type == ABOUT:
            position = edge.properties.get(POSITION)
            subject = _subject(entities[edge.end].label.removeprefix(ENTITY))
            text = _without_prefix(live[edge.start].label, prefix).removeprefix(subject)
            observations[edge.end].append((position if type(position) is int else 0, text, edge.start))
            said.add(edge.start)
    lines = [
        _entity_line(node, [text for _, text, _ in sorted(observations[node_id])])
        for node_id, node in sorted(entities.items(), key=lambda item: item[1].label)
    ]
    return lines + sorted(relations), len(live) - len(said)


def _entity_line(node: MemoryNode, observations: list[str]) -> str:
    kind = node.own_properties.get(ENTITY_TYPE)
    return _dump(
        {
            "type": "entity",
            "name": node.label.removeprefix(ENTITY),
            "entityType": kind if isinstance(kind, str) else "",
            "observations": observations,
        }
    )


def _relation_line(start: MemoryNode, edge: MemoryEdge, end: MemoryNode) -> str:
    return _dump(
        {
            "type": "relation",
            "from": start.label.removeprefix(ENTITY),
            "to": end.label.removeprefix(ENTITY),
            "relationType": edge.type.removeprefix(_ESCAPE),
        }
    )


def _without_prefix(label: str, prefix: str) -> str:
    if label.startswith(prefix):
        return label[len(prefix) :]
    word, colon, text = label.partition(":")
    return text if word and colon else label


def _dump(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
