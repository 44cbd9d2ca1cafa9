"""Text that stands in the program itself."""

from __future__ import annotations

from typing import ClassVar, final

import attrs

from promptkeel.blocks.source import SHARINGS, Sharing, authored, check_authored
from promptkeel.model import BlockRevision
from promptkeel.scope import TenantScope


@final
@attrs.frozen(order=False)
class StaticSource:
    """Text that stands in the program itself.

    Raises:
        InvalidDeclarationError: the text is blank or holds what no prompt should.
    """

    kind: ClassVar[str] = "static"
    is_learned: ClassVar[bool] = False
    sharing: ClassVar[tuple[Sharing, ...]] = SHARINGS

    text: str

    def __attrs_post_init__(self) -> None:
        check_authored(self.text, "text")

    @property
    def declared(self) -> tuple[object, ...]:
        """What is declared."""
        return (self.text,)

    def load(self, scope: TenantScope) -> BlockRevision:  # noqa: ARG002 - the same for every scope
        """The text."""
        return authored(self.text)
