"""What a node states: from a store's rows, or from any object that looks like a node, to facts.

A value that cannot be read costs itself and is reported; it never costs the lane. Provenance that was not recorded is
None, never a guess: an absent ``recorded_at`` is the node's ``created_at``, an explicit null is "not recorded", and one
that is present and unreadable is None.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress, count, repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple, final

import attrs

from promptkeel.errors import InvalidDeclarationError, InvalidTextError, ScannerError
from promptkeel.instants import EARLIEST, LATEST, format_instant, read_instant
from promptkeel.lane.digest import Records, encode_columns, encode_facts, encode_provenance
from promptkeel.model import FIELD_PROVENANCE, RESERVED_PROPERTIES, TRUST_LEVELS, BlockFact, Trust, Unreadable
from promptkeel.store.base import LaneRow
from promptkeel.text import WHITE_SPACE, check_text, trim

_make_fact: Final = partial(tuple.__new__, BlockFact)
_recorded, _id, _source, _trust, _properties = map(itemgetter, (1, 2, 4, 5, 7))
_spoken: Final = itemgetter(4, 5)
_KNOWN_TRUST: Final = frozenset({None, *TRUST_LEVELS})
_decode_json: Final = json.JSONDecoder().raw_decode
_MISSING: Final = object()
# What a store takes at most; below the interpreter's own limit, which the environment can move.
_LARGEST: Final = 10**1000


class Provenance(NamedTuple):
    """Who said something, when, and whose words they are."""

    source: str | None = None
    recorded: int | None = None
    trust: Trust | None = None


@final
class Report:
    """Collects what could not be read of one node."""

    __slots__ = ("entries", "node_id")

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self.entries: list[Unreadable] = []

    def add(self, field: str, reason: str) -> None:
        """Note one unreadable value."""
        self.entries.append(Unreadable(self.node_id, field, reason))


@final
@attrs.frozen(order=False)
class RowFacts:
    """What rows state.

    Attributes:
        facts: in the order of the rows.
        records: the facts as the digest sees them.
        counts: how many facts each row makes; None where each makes one.
        unreadable: what could not be read, each with its row.
    """

    facts: list[BlockFact]
    records: Records
    counts: list[int] | None
    unreadable: list[tuple[LaneRow, Unreadable]]


def check_declared(label_prefix: object, profile_fields: object) -> tuple[str, tuple[str, ...]]:
    """The prefix, and the declared fields by name.

    Raises:
        InvalidDeclarationError: they cannot be a prefix and a set of names.
    """
    if isinstance(profile_fields, str) or not isinstance(profile_fields, Collection):
        raise InvalidDeclarationError(f"must be a set of names, not {profile_fields!r}", field="profile_fields")
    try:
        prefix = check_text(label_prefix, field="label_prefix", blank=True)
        return prefix, tuple(sorted({check_text(name, field="profile_fields") for name in profile_fields}))
    except InvalidTextError as error:
        raise InvalidDeclarationError(error.reason, field=error.field) from None


def readable_text(text: str) -> str:
    """The text with what UTF-8 cannot hold written as escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can hold the text."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_prefix(label: str, prefix: str) -> None:
    """Nothing, if the label has the prefix.

    Raises:
        ScannerError: it has not.
    """
    if not label.startswith(prefix):
        raise ScannerError(f"asked for labels that start with {prefix!r}, the scanner answered with {label[:80]!r}")


def statement_fact(
    label: str, prefix: str, provenance: Provenance, node_id: str | None, report: Report
) -> list[BlockFact]:
    """A node's own statement; nothing where it is blank or no store's text."""
    if not is_encodable(label):
        report.add("label", "holds what UTF-8 cannot hold")
        return []
    value = trim(label[len(prefix) :])
    return [_fact(value, provenance, None, node_id)] if value else []


def _fact(value: str, provenance: Provenance, field: str | None, node_id: str | None) -> BlockFact:
    return _make_fact((value, provenance.source, provenance.recorded, field, provenance.trust, node_id))


def declared_facts(
    properties: Mapping[Any, Any],
    fields: Iterable[str],
    provenance: Provenance,
    node_id: str | None,
    report: Report,
) -> list[BlockFact]:
    """The declared fields of a node, by name, each with its own provenance."""
    facts = []
    by_field: object = _MISSING
    for field in fields:
        text = _field_text(properties, field, report)
        if text is None:
            continue
        if by_field is _MISSING:
            by_field = _read_item(properties, FIELD_PROVENANCE, FIELD_PROVENANCE, report)
        own = _field_provenance(by_field, field, provenance, report)
        facts.append(_fact(f"{field}: {text}", own, field, node_id))
    return facts


def _read_item(mapping: Mapping[Any, Any], key: str, field: str, report: Report, absent: object = None) -> Any:
    try:
        return mapping.get(key, absent)
    except Exception as error:  # noqa: BLE001 - a foreign mapping may raise anything; it costs this one value
        report.add(field, f"could not be read: {type(error).__name__}")
        return absent


def _field_text(properties: Mapping[Any, Any], field: str, report: Report) -> str | None:
    name = f"properties.{field}"
    value = _read_item(properties, field, name, report)
    if value is None:
        return None
    if isinstance(value, str):
        text = trim(str.__str__(value))
    elif isinstance(value, bool | int | float):
        number = _number_text(value)
        if number is None:
            report.add(name, "is a number that JSON does not have or that is too long")
        return number
    else:
        report.add(name, f"must be text, a number or a boolean, not {type(value).__name__}")
        return None
    if not is_encodable(text):
        report.add(name, "holds what UTF-8 cannot hold")
        return None
    return text or None


def _number_text(value: float) -> str | None:
    if isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
        return None
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return None


def _field_provenance(by_field: object, field: str, inherited: Provenance, report: Report) -> Provenance:
    if by_field is None:
        return inherited
    if not isinstance(by_field, Mapping):
        report.add(FIELD_PROVENANCE, f"must be a JSON object, not {type(by_field).__name__}")
        return inherited
    name = f"{FIELD_PROVENANCE}.{field}"
    entry = _read_item(by_field, field, name, report)
    if entry is None:
        return inherited
    if not isinstance(entry, Mapping):
        report.add(name, f"must be a JSON object, not {type(entry).__name__}")
        return inherited
    return read_provenance(entry, name + ".", report, inherited)


def read_provenance(entry: Mapping[Any, Any], path: str, report: Report, inherited: Provenance) -> Provenance:
    """The provenance that a mapping holds; what it does not have is inherited.

    A null is "not recorded", and so is what is there and cannot be read, which is reported. A blank source counts as
    one that is not there.
    """
    source: str | None = inherited.source
    given = _read_item(entry, "source", path + "source", report, _MISSING)
    if given is not _MISSING:
        source = _read_source(given, path + "source", report, inherited.source)
    recorded = inherited.recorded
    given = _read_item(entry, "recorded_at", path + "recorded_at", report, _MISSING)
    if given is not _MISSING:
        recorded = _read_recorded(given, path + "recorded_at", report)
    trust = inherited.trust
    given = _read_item(entry, "trust", path + "trust", report, _MISSING)
    if given is not _MISSING:
        trust = read_trust(given, path + "trust", report)
    return Provenance(source, recorded, trust)


def _read_source(given: object, field: str, report: Report, blank: str | None) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str):
        report.add(field, f"must be text, not {type(given).__name__}")
        return None
    source = trim(str.__str__(given))
    if not is_encodable(source):
        report.add(field, "holds what UTF-8 cannot hold")
        return None
    return source or blank


def _read_recorded(given: object, field: str, report: Report) -> int | None:
    if given is None:
        return None
    try:
        recorded = read_instant(given)
    except Exception:  # noqa: BLE001 - a foreign datetime or tzinfo may raise anything; it costs this one value
        recorded = None
    if recorded is None:
        report.add(field, "is no time that can be read")
    return recorded


def read_trust(given: object, field: str, report: Report) -> Trust | None:
    """The trust level that a value names; None where it names none."""
    if isinstance(given, str):
        for level in TRUST_LEVELS:
            if str.__str__(given) == level:
                return level
    if given is not None:
        report.add(field, f"must be one of {', '.join(TRUST_LEVELS)}")
    return None


def instant_in_range(instant: int | None, field: str, report: Report) -> int | None:
    """The instant itself, if UTC can hold it."""
    if instant is None or EARLIEST <= instant <= LATEST:
        return instant
    report.add(field, f"UTC cannot hold the instant {instant}")
    return None


def read_row(row: LaneRow, prefix: str, fields: Sequence[str]) -> tuple[list[BlockFact], list[Unreadable]]:
    """What one row states, whatever is in it."""
    label, recorded, row_id, _, source, trust, _, properties = row
    node_id = readable_text(row_id)
    report = Report(node_id)
    if node_id != row_id:
        report.add("id", "holds what UTF-8 cannot hold")
    provenance = Provenance(
        _read_source(source, "source", report, None),
        instant_in_range(recorded, "recorded_at", report),
        read_trust(trust, "trust", report),
    )
    facts = statement_fact(label, prefix, provenance, node_id, report)
    if fields and not facts and not is_encodable(label):
        return [], report.entries
    if fields:
        merged = _row_properties(properties, provenance, fields, report)
        facts += declared_facts(merged, fields, provenance, node_id, report)
    return facts, report.entries


def _row_properties(text: str | None, provenance: Provenance, fields: Sequence[str], report: Report) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    if text:
        try:
            parsed = _parse_json(text)
        except (ValueError, RecursionError):
            report.add("properties", "is no JSON that can be read")
        else:
            if isinstance(parsed, dict):
                properties = parsed
            else:
                report.add("properties", f"must be a JSON object, not {type(parsed).__name__}")
    if not RESERVED_PROPERTIES.isdisjoint(fields):
        # A store keeps these in columns; declared as fields they are read like any other property.
        recorded = None if provenance.recorded is None else format_instant(provenance.recorded)
        properties.update(source=provenance.source, recorded_at=recorded, trust=provenance.trust)
    return properties


def _parse_json(text: str) -> Any:
    try:
        value, end = _decode_json(text)
    except json.JSONDecodeError:
        end = None
    # The raw form takes no white space before a value and ignores what follows it.
    return value if end == len(text) else json.loads(text)


def read_rows(rows: Sequence[LaneRow], prefix: str, fields: Sequence[str]) -> RowFacts:
    """What rows in lane order state.

    Plain rows, one clean statement and nothing else, are read column by column; the others one by one.

    Raises:
        ScannerError: a label has not the prefix.
    """
    if not rows:
        return RowFacts([], encode_facts([]), None, [])
    check_prefix(rows[0][0], prefix)
    check_prefix(rows[-1][0], prefix)
    skip = len(prefix)
    values = [row[0][skip:].strip(WHITE_SPACE) for row in rows]
    recorded = list(map(_recorded, rows))
    spoken = list(map(_spoken, rows))
    shared = {key: _clean_provenance(*key) for key in set(spoken)}
    provenance = [*map(shared.__getitem__, spoken)]
    special = set() if RESERVED_PROPERTIES.isdisjoint(fields) else set(range(len(rows)))
    if fields:
        special.update(compress(count(), map(_properties, rows)))
    if None in shared.values():
        special.update(position for position, encoded in enumerate(provenance) if encoded is None)
    if not is_encodable("".join(map(_id, rows))):
        special.update(position for position, node_id in enumerate(map(_id, rows)) if not is_encodable(node_id))
    if not _all_in_range(recorded):
        special.update(position for position, instant in enumerate(recorded) if not _all_in_range([instant]))
    if not all(values):
        special.update(position for position, value in enumerate(values) if not value)
    try:
        records = encode_columns(values, recorded, provenance)
    except UnicodeEncodeError:
        special.update(position for position, value in enumerate(values) if not is_encodable(value))
        for position in special:
            values[position] = ""
        records = encode_columns(values, recorded, provenance)
    parts = zip(values, map(_source, rows), recorded, repeat(None), map(_trust, rows), map(_id, rows), strict=False)
    facts = list(map(_make_fact, parts))
    if not special:
        return RowFacts(facts, records, None, [])
    return _merge_special(rows, prefix, fields, RowFacts(facts, records, None, []), sorted(special))


def _clean_provenance(source: str | None, trust: str | None) -> Any:
    """The encoded provenance; None where it must be read with care."""
    if trust not in _KNOWN_TRUST or not (
        source is None or (source and trim(source) == source and is_encodable(source))
    ):
        return None
    return encode_provenance(None, source, trust)


def _all_in_range(instants: Sequence[Any]) -> bool:
    try:
        return bool(min(instants) >= EARLIEST and max(instants) <= LATEST)
    except TypeError:
        known = [instant for instant in instants if instant is not None]
        return not known or (min(known) >= EARLIEST and max(known) <= LATEST)


def _merge_special(
    rows: Sequence[LaneRow], prefix: str, fields: Sequence[str], plain: RowFacts, special: Sequence[int]
) -> RowFacts:
    counts = [1] * len(rows)
    unreadable: list[tuple[LaneRow, Unreadable]] = []
    single: list[BlockFact] = []
    for position in special:
        found, entries = read_row(rows[position], prefix, fields)
        counts[position] = len(found)
        single += found
        unreadable += [(rows[position], entry) for entry in entries]
    single_records = encode_facts(single)
    facts: list[BlockFact] = []
    records = encode_facts([])
    start = taken = 0
    for position in special:
        until = taken + counts[position]
        facts += plain.facts[start:position]
        facts += single[taken:until]
        records.extend(plain.records, start, position)
        records.extend(single_records, taken, until)
        start, taken = position + 1, until
    facts += plain.facts[start:]
    records.extend(plain.records, start, None)
    return RowFacts(facts, records, counts, unreadable)
