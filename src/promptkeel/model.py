"""The values that everything else speaks in: nodes, edges, facts and revisions.

Nothing here does I/O or reads a clock. A node's times may be left out; the store that takes the node stamps them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Literal, cast, final

import attrs

from promptkeel.errors import InvalidInputError, MissingFactsError
from promptkeel.instants import datetime_of, format_instant, parse_instant, stored_instant
from promptkeel.properties import check_properties, dump_json, frozen_properties, spelling, thawed
from promptkeel.scope import TenantScope
from promptkeel.text import check_text, plain, trim

Trust = Literal["operator", "user", "third-party", "inferred"]
"""Whose words these are, highest first. The host sets it, a model never does."""

TRUST_LEVELS: Final[tuple[Trust, ...]] = ("operator", "user", "third-party", "inferred")
RESERVED_PROPERTIES: Final = frozenset({"source", "recorded_at", "trust"})
"""Properties that a store keeps in columns of their own and merges back on read."""
FIELD_PROVENANCE: Final = "_field_provenance"
"""The property that holds, by field name, the provenance of single properties."""

State = Literal["live", "retracted", "superseded"]
STATES: Final[tuple[State, ...]] = ("live", "retracted", "superseded")


@final
class _NotGiven:
    """The type of ``NOT_GIVEN``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NOT_GIVEN"

    def __reduce__(self) -> str:
        return "NOT_GIVEN"


NOT_GIVEN: Final = _NotGiven()
"""Stands where None would mean "not recorded"."""

Moment = datetime | str
"""A time as a caller gives it."""


def check_trust(trust: object, *, field: str = "trust", where: str | None = None) -> Trust | None:
    """The trust level itself, if it is one.

    Raises:
        InvalidInputError: it is none of ``TRUST_LEVELS`` and not None.
    """
    if trust is None:
        return None
    for level in TRUST_LEVELS:
        if trust == level:
            return level
    raise InvalidInputError(
        f"must be one of {', '.join(TRUST_LEVELS)}, or left out; not {trust!r}", field=field, where=where
    )


def check_source(source: object, *, field: str = "source", where: str | None = None) -> str | None:
    """The source without surrounding white space; None where there is none.

    Raises:
        InvalidTextError: it is not text, blank, or holds a refused character.
    """
    return None if source is None else trim(check_text(source, field=field, where=where))


def _as_given(moment: Moment | int | _NotGiven | None) -> int | _NotGiven | None:
    # Says which types a caller may give; they are read once the node can be named in an error.
    return cast("int | _NotGiven | None", moment)


def _as_stamped(moment: Moment | int | None) -> int | None:
    return cast("int | None", moment)


@final
@attrs.frozen(kw_only=True, order=False, repr=False)
class MemoryNode:
    """One remembered statement, with the provenance of that statement.

    Times are given as datetimes, ISO 8601 text or instants (integer microseconds), and are read as datetimes.

    Attributes:
        id: unique within the scope's root.
        scope: where it is stored; visible at this scope and below.
        label: prefix and statement, as ``SOUL:prefers tea``.
        own_properties: the properties without those that are columns; a JSON object.
        source: who or what said so; None is "not recorded".
        recorded: when it was said, as an instant; left out, it becomes ``created``; None is "not recorded".
        trust: whose words these are; None is "not recorded".
        created: when the store took it, as an instant; stamped by the store where left out.
        updated: when the store last changed it, as an instant; stamped by the store.
        state: ``live``, or ``retracted`` or ``superseded``: out of every lane, kept in history.

    Raises:
        InvalidInputError: names the field of the node that no store can take.
    """

    id: str
    scope: TenantScope
    label: str
    own_properties: Mapping[str, Any] = attrs.field(factory=dict, alias="properties", hash=False, eq=spelling)
    source: str | None = None
    recorded: int | _NotGiven | None = attrs.field(default=NOT_GIVEN, alias="recorded_at", converter=_as_given)
    trust: Trust | None = None
    created: int | None = attrs.field(default=None, alias="created_at", converter=_as_stamped)
    updated: int | None = attrs.field(default=None, alias="updated_at", converter=_as_stamped)
    state: State = "live"

    def __attrs_post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "id", check_text(self.id, field="id"))
        where = f"node {self.id!r}"
        if not isinstance(self.scope, TenantScope):
            raise InvalidInputError(f"must be a TenantScope, not {self.scope!r}", field="scope", where=where)
        set_field(self, "label", check_text(self.label, field="label", where=where))
        properties = check_properties(self.own_properties, where=where)
        source, recorded, trust = self.source, self.recorded, self.trust
        if not RESERVED_PROPERTIES.isdisjoint(properties):
            given = properties.pop("source", None)
            source = given if source is None else source
            if "recorded_at" in properties:
                given = properties.pop("recorded_at")
                recorded = given if recorded is NOT_GIVEN else recorded
            given = properties.pop("trust", None)
            trust = given if trust is None else trust
        set_field(self, "own_properties", frozen_properties(properties))
        set_field(self, "source", check_source(source, where=where))
        set_field(self, "recorded", _stamp(recorded, "recorded_at", where))
        set_field(self, "trust", check_trust(trust, where=where))
        set_field(self, "created", _stamp(self.created, "created_at", where))
        set_field(self, "updated", _stamp(self.updated, "updated_at", where))
        if self.state not in STATES:
            raise InvalidInputError(f"must be one of {', '.join(STATES)}", field="state", where=where)
        set_field(self, "state", plain(self.state))
        if not trim(statement_of(self.label)) and not properties:
            check_text(statement_of(self.label), field="label", where=where)

    @property
    def recorded_at(self) -> datetime | None:
        """When it was said, or None: not recorded, or not yet stamped."""
        return None if self.recorded is None or isinstance(self.recorded, _NotGiven) else datetime_of(self.recorded)

    @property
    def created_at(self) -> datetime | None:
        """When the store took it."""
        return None if self.created is None else datetime_of(self.created)

    @property
    def updated_at(self) -> datetime | None:
        """When the store last changed it."""
        return None if self.updated is None else datetime_of(self.updated)

    @property
    def properties(self) -> dict[str, Any]:
        """The properties with source, recorded_at and trust among them, as a scanner's reader expects."""
        merged: dict[str, Any] = thawed(self.own_properties)
        if self.source is not None:
            merged["source"] = self.source
        if not isinstance(self.recorded, _NotGiven):
            merged["recorded_at"] = None if self.recorded is None else format_instant(self.recorded)
        if self.trust is not None:
            merged["trust"] = self.trust
        return merged

    @property
    def version(self) -> str:
        """A hash of everything in the node: what a compare-and-set compares."""
        properties = spelling(self.own_properties)
        parts = [self.id, self.scope.path, self.label, self.source, self.trust, self.state, properties]
        times = [self.created, self.updated, None if isinstance(self.recorded, _NotGiven) else self.recorded]
        return hashlib.sha256(dump_json([parts, times]).encode()).hexdigest()[:32]

    def same_content(self, other: MemoryNode) -> bool:
        """Whether the two differ at most in when the store created and updated them."""
        return (self.id, self.scope, self.label, self.source, self.recorded, self.trust, self.state) == (
            (other.id, other.scope, other.label, other.source, other.recorded, other.trust, other.state)
        ) and spelling(self.own_properties) == spelling(other.own_properties)

    def __repr__(self) -> str:
        return f"MemoryNode(id={self.id!r}, scope={self.scope.path!r}, label={self.label!r}, state={self.state!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {field.alias: getattr(self, field.name) for field in attrs.fields(MemoryNode)}
        fields["properties"] = thawed(self.own_properties)
        return _rebuild_node, (fields,)


def _rebuild_node(fields: dict[str, Any]) -> MemoryNode:
    return MemoryNode(**fields)


def _stamp(value: Any, field: str, where: str) -> Any:
    if value is None or value is NOT_GIVEN:
        return value
    return stored_instant(value, field=field, where=where)


def statement_of(label: str) -> str:
    """A label without its leading ``PREFIX:``, where it has one in the usual upper-case spelling."""
    prefix, colon, statement = label.partition(":")
    usual = prefix.replace("_", "A").isalnum() and prefix.isascii() and prefix.isupper()
    return statement if colon and usual else label


@final
@attrs.frozen(kw_only=True, order=False)
class MemoryEdge:
    """A typed, directed edge between two nodes of one root.

    Attributes:
        scope: where the edge is stored; its start node belongs to this scope.
        start: the id of the node it leaves.
        type: ``derived_from``, ``supersedes``, ``about``, or a caller's own word.
        end: the id of the node it reaches.
        properties: a JSON object.
    """

    scope: TenantScope
    start: str
    type: str
    end: str
    properties: Mapping[str, Any] = attrs.field(factory=dict, hash=False, eq=spelling)

    def __attrs_post_init__(self) -> None:
        where = f"edge {self.start!r} to {self.end!r}"
        for field in ("start", "type", "end"):
            object.__setattr__(self, field, check_text(getattr(self, field), field=field, where=where))
        if not isinstance(self.scope, TenantScope):
            raise InvalidInputError(f"must be a TenantScope, not {self.scope!r}", field="scope", where=where)
        checked = check_properties(self.properties, where=where)
        object.__setattr__(self, "properties", frozen_properties(checked))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_edge, (self.scope, self.start, self.type, self.end, thawed(self.properties))


def _rebuild_edge(scope: TenantScope, start: str, type_: str, end: str, properties: dict[str, Any]) -> MemoryEdge:
    return MemoryEdge(scope=scope, start=start, type=type_, end=end, properties=properties)


@final
class BlockFact(tuple[str, str | None, int | None, str | None, Trust | None, str | None]):
    """One statement and the provenance of that statement. What was not recorded is None, never a guess.

    An immutable value that equals only another fact. It is stored as one tuple with the time as an integer, because a
    lane may hold hundreds of thousands.

    Attributes:
        value: the statement without surrounding white space; of a declared field, ``field: value``.
        source: who or what said so.
        recorded_at: when, as an aware UTC datetime.
        field: the name of the declared field that this is the value of; None for a node's own statement.
        trust: whose words these are.
        node_id: the id of the node that says so.
        recorded: ``recorded_at`` as an instant.
    """

    __slots__ = ()

    def __new__(
        cls,
        value: str,
        source: str | None = None,
        recorded_at: datetime | None = None,
        field: str | None = None,
        trust: Trust | None = None,
        node_id: str | None = None,
    ) -> BlockFact:
        """A fact, its parts checked."""
        recorded = None if recorded_at is None else parse_instant(recorded_at, field="recorded_at")
        for name, text in (("value", value), ("source", source), ("field", field), ("node_id", node_id)):
            if text is not None or name == "value":
                check_text(text, field=name)
        value = plain(value)
        source, field, node_id = (None if text is None else plain(text) for text in (source, field, node_id))
        if field is not None and not value.startswith(f"{field}: "):
            raise InvalidInputError(f"must begin with {field + ': '!r}", field="value")
        return tuple.__new__(cls, (value, source, recorded, field, check_trust(trust), node_id))

    @property
    def value(self) -> str:
        """The statement; of a declared field, ``field: value``."""
        return self[0]

    @property
    def source(self) -> str | None:
        """Who or what said so."""
        return self[1]

    @property
    def recorded(self) -> int | None:
        """When, as an instant."""
        return self[2]

    @property
    def recorded_at(self) -> datetime | None:
        """When, as an aware UTC datetime."""
        return None if self[2] is None else datetime_of(self[2])

    @property
    def field(self) -> str | None:
        """The declared field that this is the value of."""
        return self[3]

    @property
    def trust(self) -> Trust | None:
        """Whose words these are."""
        return self[4]

    @property
    def node_id(self) -> str | None:
        """The node that says so."""
        return self[5]

    @property
    def text(self) -> str:
        """The value without the field's name."""
        return self[0] if self[3] is None else self[0][len(self[3]) + 2 :]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockFact) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return tuple.__hash__(self)

    def __repr__(self) -> str:
        recorded = None if self[2] is None else format_instant(self[2])
        return (
            f"BlockFact(value={self[0]!r}, source={self[1]!r}, recorded_at={recorded!r}, field={self[3]!r}, "
            f"trust={self[4]!r}, node_id={self[5]!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_fact, (tuple(self),)


def _rebuild_fact(parts: tuple[Any, ...]) -> BlockFact:
    # Unchecked, as it was made: a lane also shows what a store of other people holds.
    return tuple.__new__(BlockFact, parts)


@final
@attrs.frozen(order=False)
class Unreadable:
    """One value that a store returned and that could not be read; it cost itself, not the lane.

    Attributes:
        node_id: the id of its node, as text.
        field: which field.
        reason: why it could not be read.
    """

    node_id: str
    field: str
    reason: str


def _check_revision_text(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{attribute.name} must be text, not {type(value).__name__}")
    if attribute.name == "revision" and not trim(value):
        raise ValueError("revision is blank; an empty lane has a revision of its own")


def _check_facts(_: Any, __: Any, facts: object) -> None:
    if facts is None:
        return
    if not isinstance(facts, tuple) or set(map(type, facts)) - {BlockFact}:
        raise TypeError("facts must be a tuple of BlockFact, or None for a block that is not learned")


@final
@attrs.frozen(order=False)
class BlockRevision:
    """What one block says at one revision.

    Attributes:
        content: the text; of a lane, its facts' values, one a line.
        revision: identifies the content across processes; never blank.
        created_at: when it was authored, where that was recorded.
        author: who authored it.
        parent_revision: the revision that it replaced.
        message: why it was changed.
        content_hash: the hash of the content, where the source gives one.
        facts: the facts of a learned block; None for an authored one.
        count: how many nodes were read.
        unreadable: what could not be read among them.
    """

    content: str = attrs.field(validator=_check_revision_text)
    revision: str = attrs.field(validator=_check_revision_text)
    created_at: datetime | None = None
    author: str | None = None
    parent_revision: str | None = None
    message: str | None = None
    content_hash: str | None = None
    facts: tuple[BlockFact, ...] | None = attrs.field(default=None, validator=_check_facts)
    count: int = 0
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def is_learned(self) -> bool:
        """Whether this is learned text, which must be contained."""
        return self.facts is not None

    def require_facts(self) -> tuple[BlockFact, ...]:
        """The facts.

        Raises:
            MissingFactsError: the revision carries none.
        """
        if self.facts is None:
            raise MissingFactsError(f"revision {self.revision!r} carries no facts")
        return self.facts

    def __iter__(self) -> Iterator[BlockFact]:
        return iter(self.require_facts())
