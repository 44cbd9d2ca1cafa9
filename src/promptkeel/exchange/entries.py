"""What a line of an imported file says, whatever its format: statements, connections, revisions.

Also the strict JSON reading that every line format shares, and ids that are always the same for the same content.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable
from typing import Any, Final, Protocol, final

import attrs

from promptkeel.errors import ExchangeError
from promptkeel.model import MemoryEdge, MemoryNode

REJECTED_KEYS: Final = frozenset({"line", "reason", "text"})
_SHOWN: Final = 60


@final
@attrs.frozen(order=False)
class Statement:
    """A node that a line brings.

    Attributes:
        node: the node; an instant that is not given is when the store takes it.
        identified: whether the line, rather than the content, says which node it is.
    """

    node: MemoryNode
    identified: bool = True


@final
@attrs.frozen(order=False)
class Connection:
    """An edge that a line brings.

    Attributes:
        edge: the edge.
        incidental: whether properties that differ from those of the edge that is there do not matter.
    """

    edge: MemoryEdge
    incidental: bool = False


@final
@attrs.frozen(order=False)
class Authored:
    """A revision of an authored block that a line brings: taken where authored text is asked for, as it is.

    Attributes:
        node: the revision as a store holds it.
        block: the block's name.
        number: its number.
    """

    node: MemoryNode
    block: str
    number: int


Entry = Statement | Connection | Authored


class LineFormat(Protocol):
    """How a line of a file is read."""

    def parse(self, text: str) -> tuple[Entry, ...]:
        """What a line says.

        Raises:
            ExchangeError: it is not a line of this format.
            InvalidInputError: it says what no store can take.
        """


def parse_object(text: str) -> dict[str, Any]:
    """The one JSON object of a line, read strictly.

    Raises:
        ExchangeError: it is not JSON, not an object, says a key twice, or something stands behind it.
    """
    try:
        found = json.loads(text, object_pairs_hook=without_repeats, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise ExchangeError(f"is not JSON: {error.msg.removesuffix(' at')} at character {error.colno}") from None
    except RecursionError:
        raise ExchangeError("is nested too deeply") from None
    except ExchangeError:
        raise
    except ValueError as error:
        raise ExchangeError(f"holds a number that cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise ExchangeError(f"must be one JSON object on one line, not {_kind(found)}")
    return found


def rejected_text(text: str) -> str | None:
    """What was rejected, where a line is one of a file of rejected lines; else None."""
    if '"reason"' not in text:
        return None
    try:
        found = parse_object(text)
    except ExchangeError:
        return None
    inner = found.get("text")
    is_one = found.keys() == REJECTED_KEYS and type(found["line"]) is int and isinstance(found["reason"], str)
    return inner if is_one and isinstance(inner, str) else None


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The JSON object of these pairs.

    Raises:
        ExchangeError: a key is among them twice.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ExchangeError(f"says the key {shown(key)} twice")
            seen.add(key)
    return found


def _no_number(word: str) -> Any:
    raise ExchangeError(f"holds {word}, which is not JSON")


def _kind(value: object) -> str:
    names = {list: "a list", str: "text", bool: "true or false", type(None): "null", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)


def shown(text: str) -> str:
    """A short, quoted form of text for an error."""
    return json.dumps(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")


def check_keys(given: dict[str, Any], known: Iterable[str], what: str) -> None:
    """Refuse keys that a line does not have.

    Raises:
        ExchangeError: names the key and the nearest right name.
    """
    names = tuple(known)
    for key in given:
        if key not in names:
            near = difflib.get_close_matches(key.lower(), names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"{what} has {', '.join(names)}"
            raise ExchangeError(f"unknown key {shown(key)}; {hint}")


def require_text(given: dict[str, Any], key: str, what: str) -> str:
    """The text under a key.

    Raises:
        ExchangeError: it is missing or no text.
    """
    if key not in given:
        raise ExchangeError(f"{what} needs {key!r}")
    value = given[key]
    if not isinstance(value, str):
        raise ExchangeError(f"{key!r} must be text, not {_kind(value)}")
    return value


def derived_id(*parts: str) -> str:
    """The id that follows from the parts: always the same, and another for every other parts."""
    spelled = json.dumps(parts).encode()
    return hashlib.sha256(b"promptkeel import\0" + spelled).hexdigest()[:32]
