"""What callers hand to a store, checked once for every store: no backend sees a value of another kind than it expects.

An id that no store can hold is no error here: nothing is stored under it, which is what the store then says.
"""

from __future__ import annotations

from typing import Any, Final

from promptkeel.errors import InvalidInputError
from promptkeel.scope import TenantScope
from promptkeel.store.base import Head, Heads
from promptkeel.text import check_text, plain

_MOST_ROWS: Final = 2**62
"""More than any store can hold."""


def check_scope(scope: object, *, where: str | None = None) -> TenantScope:
    """The scope itself.

    Raises:
        InvalidInputError: it is none.
    """
    if not isinstance(scope, TenantScope):
        raise InvalidInputError(
            f"must be a TenantScope, not {type(scope).__name__}; TenantScope.parse makes one of text",
            field="scope",
            where=where,
        )
    return scope


def check_flag(value: object, *, field: str) -> bool:
    """The flag itself: nothing that merely counts as true may decide what an erasure takes.

    Raises:
        InvalidInputError: it is neither True nor False.
    """
    if type(value) is not bool:
        raise InvalidInputError(f"must be True or False, not {value!r:.40}", field=field)
    return value


def check_node_id(node_id: object) -> str:
    """The id itself.

    Raises:
        InvalidInputError: it is not text.
    """
    if not isinstance(node_id, str):
        raise InvalidInputError(f"must be text, not {type(node_id).__name__}", field="node_id")
    return plain(node_id)


def check_edge_type(edge_type: object) -> str | None:
    """The edge type itself; None is every type.

    Raises:
        InvalidInputError: it is not text.
    """
    if edge_type is not None and not isinstance(edge_type, str):
        raise InvalidInputError(f"must be text or None, not {type(edge_type).__name__}", field="edge_type")
    return None if edge_type is None else plain(edge_type)


def check_heads(heads: Any) -> Heads:
    """The heads themselves, whoever's they are.

    Raises:
        InvalidInputError: they are none.
    """
    if not isinstance(heads, Heads):
        raise InvalidInputError(
            f"must be the Heads that a store has answered, not {type(heads).__name__}", field="heads"
        )
    if not heads.levels or not all(_is_head(head) for head in heads.levels):
        raise InvalidInputError("must have a head of scope, seq and nonce for every level", field="heads")
    return heads


def _is_head(head: Any) -> bool:
    if not isinstance(head, Head):
        return False
    return (type(head.scope), type(head.seq), type(head.nonce)) == (str, int, int)


def check_limit(limit: int | None) -> int | None:
    """The limit itself: None is "all of them", 0 is no rows.

    Raises:
        InvalidInputError: it is negative or no whole number.
    """
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidInputError(f"must be None or a whole number of at least 0, not {limit!r}", field="limit")
    return None if limit is None or limit > _MOST_ROWS else limit


def check_label_prefix(label_prefix: str | None) -> str | None:
    """The prefix itself: None or the empty text is every label.

    Raises:
        InvalidTextError: it is not text, or holds what no label can hold.
    """
    return None if label_prefix is None else check_text(label_prefix, field="label_prefix", blank=True)


def check_seconds(seconds: object, *, field: str, longest: float) -> float:
    """A duration itself, if it can be one.

    Raises:
        InvalidInputError: it is no number, negative, or longer than can be waited.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= longest:
        raise InvalidInputError(f"must be a number of seconds from 0 to {longest:g}, not {seconds!r}", field=field)
    return float(seconds)


def check_count(count: object, *, field: str) -> int:
    """A count of changes itself.

    Raises:
        InvalidInputError: it is no whole number of at least 1.
    """
    if type(count) is not int or count < 1:
        raise InvalidInputError(f"must be a whole number of at least 1 change, not {count!r}", field=field)
    return count


def check_size(size: object, *, field: str) -> int:
    """A bound itself; 0 keeps nothing.

    Raises:
        InvalidInputError: it is no whole number of at least 0.
    """
    if type(size) is not int or size < 0:
        raise InvalidInputError(f"must be a whole number of at least 0, not {size!r}", field=field)
    return size
