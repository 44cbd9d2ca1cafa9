"""An authored block that the store keeps: the newest revision at one level, never a mixture of levels."""

from __future__ import annotations

from typing import ClassVar, final

import attrs

from promptkeel.blocks.source import SHARINGS, Sharing, StoreBacked
from promptkeel.errors import InvalidDeclarationError
from promptkeel.scope import TenantScope


@final
@attrs.frozen(order=False)
class StoredSource(StoreBacked):
    """The head of the authored block that has the block's own name, as the store holds it.

    Attributes:
        level: where it is stored, and so how widely it is shared: for the whole ``deployment``, for the ``tenant``,
            which is the root of the scope that asks, or for exactly that ``scope``. Other levels are not looked at.
        learned: whether an agent writes it, as its own notes: its text is then contained like memory, with author and
            time, and belongs in profile or session. Otherwise it stands as it is, in platform or operating, and only
            what has the trust ``operator`` is shown.
        required: whether it is an error that nobody has written it yet, rather than an empty block; left out, of
            authored text it is, of an agent's notes it is not.
    """

    kind: ClassVar[str] = "stored"

    level: Sharing = "tenant"
    learned: bool = attrs.field(default=False, kw_only=True)
    required: bool = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if type(self.level) is not str or self.level not in SHARINGS:
            raise InvalidDeclarationError(f"must be one of {', '.join(SHARINGS)}, not {self.level!r}", field="level")
        if self.required is None:
            object.__setattr__(self, "required", not self.learned)
        for field in ("learned", "required"):
            if type(getattr(self, field)) is not bool:
                raise InvalidDeclarationError("must be True or False", field=field)

    @property
    def is_learned(self) -> bool:
        """Whether its text is contained."""
        return self.learned

    @property
    def sharing(self) -> tuple[Sharing, ...]:
        """As widely as it is stored, and no other way."""
        return (self.level,)

    @property
    def declared(self) -> tuple[object, ...]:
        """What is declared."""
        return self.level, self.learned, self.required

    def place(self, scope: TenantScope) -> TenantScope:
        """The scope at which it is stored for a scope that asks."""
        if self.level == "scope":
            return scope
        return TenantScope(scope.levels[:1] if self.level == "tenant" else ())
