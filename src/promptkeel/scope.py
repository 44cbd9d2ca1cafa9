"""Scopes: who is asking, and what they may see.

A scope is a root-first path of ``kind:id`` levels, as ``org:acme/user:ada``. What is stored at Q is visible at P
exactly when Q is a prefix of P, level by level; the empty path is the deployment. In the string form, ``/``, ``:``
and ``%`` in an id are percent-escaped, so that no id can forge a level.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Any, final

import attrs

from promptkeel.errors import InvalidScopeError
from promptkeel.text import plain, trim

_KIND = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)
# Controls, line and paragraph separators, bidirectional controls and lone surrogates print as nothing or as a lie.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_ESCAPES = {"%": "%25", "/": "%2F", ":": "%3A"}
_ESCAPED = re.compile("[%/:]")
_UNESCAPES = {"%25": "%", "%2F": "/", "%3A": ":"}
_DEEPEST = 64
"""Levels of a scope; every read looks at each of them."""
_PERCENT = re.compile("%(?:..)?", re.DOTALL)


def _plain(value: Any) -> Any:
    return plain(value) if isinstance(value, str) else value


@final
@attrs.frozen(order=False)
class ScopeLevel:
    """One level of a scope.

    Attributes:
        kind: a lower-case word, as ``org`` or ``user``.
        id: any printable text that is not blank.
    """

    kind: str = attrs.field(converter=_plain)
    id: str = attrs.field(converter=_plain)

    @kind.validator
    def _check_kind(self, _: Any, kind: object) -> None:
        if not isinstance(kind, str) or not _KIND.fullmatch(kind):
            raise InvalidScopeError(f"kind {kind!r} must be a lower-case word such as 'org' or 'user'")

    @id.validator
    def _check_id(self, _: Any, value: object) -> None:
        if not isinstance(value, str) or not trim(value):
            raise InvalidScopeError(f"level {self.kind!r} needs an id that is text and not blank, not {value!r}")
        found = _UNPRINTABLE.search(value)
        if found:
            raise InvalidScopeError(
                f"the id of level {self.kind!r} holds an unprintable character, U+{ord(found.group()):04X}"
            )

    def __str__(self) -> str:
        return f"{self.kind}:{_ESCAPED.sub(lambda found: _ESCAPES[found.group()], self.id)}"


def _levels(value: Iterable[ScopeLevel | tuple[str, str]]) -> tuple[ScopeLevel, ...]:
    if isinstance(value, str):
        raise InvalidScopeError(f"{value!r} is text; use TenantScope.parse")
    if not isinstance(value, Iterable):
        raise InvalidScopeError(f"must be levels such as (('org', 'acme'),), not {type(value).__name__}")
    value = tuple(islice(value, _DEEPEST + 1))
    if len(value) > _DEEPEST:
        raise InvalidScopeError(f"has more than {_DEEPEST} levels")
    return tuple(level if isinstance(level, ScopeLevel) else _level(level) for level in value)


def _level(pair: Any) -> ScopeLevel:
    match pair:
        case (kind, id_):
            return ScopeLevel(kind, id_)
    raise InvalidScopeError(f"a level is (kind, id), not {pair!r}")


@final
@attrs.frozen(order=False, repr=False)
class TenantScope:
    """A path of levels, root first.

    Attributes:
        levels: the levels, given as ``ScopeLevel`` or ``(kind, id)``; none is the deployment.
        path: the canonical string form.
        root: the string form of the first level; empty for the deployment.
        chain: the paths of every scope visible here, the deployment first and this scope last.
    """

    levels: tuple[ScopeLevel, ...] = attrs.field(default=(), converter=_levels)
    path: str = attrs.field(init=False, eq=False)
    root: str = attrs.field(init=False, eq=False)
    chain: tuple[str, ...] = attrs.field(init=False, eq=False)

    def __attrs_post_init__(self) -> None:
        parts = [str(level) for level in self.levels]
        chain = tuple("/".join(parts[:depth]) for depth in range(len(parts) + 1))
        object.__setattr__(self, "chain", chain)
        object.__setattr__(self, "path", chain[-1])
        object.__setattr__(self, "root", parts[0] if parts else "")

    @classmethod
    def parse(cls, text: str) -> TenantScope:
        """The scope of a string form; ``parse(str(scope)) == scope`` for every scope.

        Raises:
            InvalidScopeError: the text is not a path of ``kind:id`` levels.
        """
        if not isinstance(text, str):
            raise InvalidScopeError(f"must be text such as 'org:acme/user:ada', not {type(text).__name__}")
        if not text:
            return DEPLOYMENT
        return cls(_parse_level(part, text) for part in text.split("/"))

    @property
    def parent(self) -> TenantScope:
        """The scope one level up; the deployment is its own parent."""
        return TenantScope(self.levels[:-1])

    def child(self, kind: str, id: str) -> TenantScope:  # noqa: A002 - the field's standard word
        """The scope one level down."""
        return TenantScope((*self.levels, ScopeLevel(kind, id)))

    def sees(self, other: TenantScope) -> bool:
        """Whether what is stored at ``other`` is visible here."""
        return self.levels[: len(other.levels)] == other.levels

    def __hash__(self) -> int:
        return hash(self.path)

    def __str__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"TenantScope.parse({self.path!r})"


def _parse_level(part: str, whole: str) -> ScopeLevel:
    kind, colon, escaped = part.partition(":")
    if not colon or ":" in escaped:
        raise InvalidScopeError(f"{whole!r}: level {part!r} must be kind:id, with ':' in an id written %3A")
    return ScopeLevel(kind, _PERCENT.sub(lambda found: _unescape(found.group(), whole), escaped))


def _unescape(escape: str, whole: str) -> str:
    try:
        return _UNESCAPES[escape.upper()]
    except KeyError:
        raise InvalidScopeError(f"{whole!r}: {escape!r} is no escape; only %2F, %3A and %25 are") from None


DEPLOYMENT = TenantScope()
"""The empty path: what is stored here is visible at every scope."""
