"""What a scope's cache entries are kept apart by: keyed hashes of whom they belong to, never of what a caller passes.

A shared prefix cache tells by its timing what others have asked. A salt keeps one tenant's entries from another's;
made with a key that only the store has, it can neither be guessed nor chosen by whoever calls. The key itself stays
where it is: here are only the hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, final, get_args

import attrs

from promptkeel.blocks.source import SHARINGS, Sharing
from promptkeel.errors import InvalidInputError
from promptkeel.scope import TenantScope

SaltScope = Literal["deployment", "tenant", "scope"]
"""Who shares cached prefixes: everybody, all scopes of one root, or nobody but the scope that asks."""
SALT_SCOPES: Final[tuple[SaltScope, ...]] = get_args(SaltScope)

Keyed = Callable[[bytes], bytes | None]
"""The keyed hash of a message by the store's secret; None where there is no secret."""

_LENGTH: Final = 32


@final
@attrs.frozen(order=False)
class PromptKeys:
    """What the store's secret gives for one scope; nothing of the secret can be had from it.

    Attributes:
        deployment: the salt of everybody.
        tenant: the salt of the scope's root.
        scope: the salt of the scope alone.
        fence: the id on the fences of learned text.
    """

    deployment: str
    tenant: str
    scope: str
    fence: str

    def salt(self, of: SaltScope) -> str:
        """The salt that entries of this scope are kept apart by: 32 hexadecimal digits."""
        return str(getattr(self, of))


def keys_of(keyed: Keyed, scope: TenantScope) -> PromptKeys | None:
    """The keys of one scope; None where there is no secret to make them of."""
    root = scope.root.encode()
    fence = keyed(b"fence\0" + root)
    if fence is None:
        return None

    def salt(kind: bytes, of: bytes) -> str:
        digest = keyed(b"salt\0" + kind + b"\0" + of)
        assert digest is not None  # noqa: S101 - there is a secret
        return digest.hex()[:_LENGTH]

    return PromptKeys(
        deployment=salt(b"deployment", b""),
        tenant=salt(b"tenant", root),
        scope=salt(b"scope", scope.path.encode()),
        fence=fence.hex()[:6],
    )


def salt_scope(shared: Iterable[Sharing], declared: SaltScope | None = None) -> SaltScope:
    """Who shares cached prefixes: as declared; else everybody where all text is everybody's, else the tenant.

    Raises:
        InvalidInputError: what is declared is none of ``SALT_SCOPES``.
    """
    if declared is None:
        return "deployment" if all(each == SHARINGS[0] for each in shared) else "tenant"
    if declared not in SALT_SCOPES:
        raise InvalidInputError(f"must be one of {', '.join(SALT_SCOPES)}, or None, not {declared!r}", field="salt")
    return declared
