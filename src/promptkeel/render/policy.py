"""What an operator may declare about rendering: limits, forms, and the fence that a scope's root has."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final, final

import attrs

from promptkeel.errors import InvalidDeclarationError
from promptkeel.tokens import TOKEN_COUNTERS

RENDER_VERSION: Final = 1
"""Raised whenever the same facts would give other bytes."""

_FENCE: Final = re.compile(r"[0-9a-f]{4,32}")


def _check_limit(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise InvalidDeclarationError(
            f"must be a whole number from 1, or None for no limit, not {value!r}", field=attribute.name
        )


def _check_counter(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value not in TOKEN_COUNTERS:
        raise InvalidDeclarationError(
            f"{value!r} is no token counter; there are {', '.join(TOKEN_COUNTERS)}", field=attribute.name
        )


def _check_flag(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if type(value) is not bool:
        raise InvalidDeclarationError(f"must be True or False, not {value!r}", field=attribute.name)


def _check_fence(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and (not isinstance(value, str) or _FENCE.fullmatch(value) is None):
        raise InvalidDeclarationError(f"must be 4 to 32 hexadecimal digits, not {value!r}", field=attribute.name)


@final
@attrs.frozen(kw_only=True, order=False)
class RenderPolicy:
    """How blocks are rendered. No limit is set unless it is declared.

    Attributes:
        max_fact_characters: a longer fact is left out, never cut.
        max_facts: of more facts, the newest are kept.
        max_tokens: of the block's whole text, header and fence included; the newest facts are kept.
        token_counter: by which counter, as ``promptkeel.tokens`` names it.
        block_form: whether text of several lines may stand as lines instead of one literal.
        fence: the id on the fences of learned blocks; the resolver takes it from the store.
        fingerprint: a hash of all this and of the renderer's version.
    """

    max_fact_characters: int | None = attrs.field(default=None, validator=_check_limit)
    max_facts: int | None = attrs.field(default=None, validator=_check_limit)
    max_tokens: int | None = attrs.field(default=None, validator=_check_limit)
    token_counter: str = attrs.field(default="estimate", validator=_check_counter)
    block_form: bool = attrs.field(default=True, validator=_check_flag)
    fence: str | None = attrs.field(default=None, validator=_check_fence)
    fingerprint: str = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        declared = [RENDER_VERSION] + [
            getattr(self, field.name) for field in attrs.fields(RenderPolicy) if field.name != "fingerprint"
        ]
        object.__setattr__(self, "fingerprint", hashlib.sha256(json.dumps(declared).encode()).hexdigest()[:32])
