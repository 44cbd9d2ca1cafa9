"""Memory as a block: every visible node whose label starts with a prefix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, final

import attrs

from promptkeel.blocks.source import Sharing, StoreBacked, check_authored
from promptkeel.errors import InvalidDeclarationError
from promptkeel.store.reserved import AUTHORED, reached_namespace


def _fields(given: object) -> frozenset[str]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidDeclarationError("must be a set of names", field="profile_fields")
    return frozenset(check_authored(name, "profile_fields") for name in given)


@final
@attrs.frozen(order=False)
class MemoryLane(StoreBacked):
    """Every visible node whose label starts with a prefix, as facts.

    Attributes:
        label_prefix: as ``SOUL:``.
        profile_fields: the node properties that are facts of their own.
    """

    kind: ClassVar[str] = "lane"
    is_learned: ClassVar[bool] = True
    sharing: ClassVar[tuple[Sharing, ...]] = ("scope",)

    label_prefix: str
    profile_fields: frozenset[str] = attrs.field(default=frozenset(), converter=_fields)

    def __attrs_post_init__(self) -> None:
        check_authored(self.label_prefix, "label_prefix")
        namespace = reached_namespace(self.label_prefix)
        if namespace is not None:
            owner = "authored blocks; show one with a StoredSource" if namespace == AUTHORED else "conversations"
            raise InvalidDeclarationError(
                f"{self.label_prefix!r} reaches into {namespace!r}, which is reserved for {owner}", field="label_prefix"
            )

    @property
    def declared(self) -> tuple[object, ...]:
        """What is declared."""
        return self.label_prefix, tuple(sorted(self.profile_fields))
