"""Which declared block a statement belongs to, and under which label it is stored. Pure.

A statement is shown by every memory block whose prefix its label has, whichever block it was meant for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

from promptkeel.blocks.lanes import MemoryLane
from promptkeel.blocks.spec import PromptBlockSpec
from promptkeel.blocks.stored import StoredSource
from promptkeel.errors import InvalidInputError
from promptkeel.model import MemoryNode
from promptkeel.scope import TenantScope
from promptkeel.store.authored import head_label
from promptkeel.text import check_text


@final
class BlockLabels:
    """The labels of the declared blocks.

    Args:
        specs: the declared blocks.
    """

    def __init__(self, specs: Sequence[PromptBlockSpec]) -> None:
        self._specs = tuple(specs)
        self._lanes = [(spec, spec.source) for spec in self._specs if isinstance(spec.source, MemoryLane)]

    def check_learned(self, block: str) -> None:
        """Check that a block holds memory.

        Raises:
            InvalidInputError: none of this name does.
        """
        names = [spec.name for spec in self._specs if spec.is_learned]
        if block not in names:
            raise _undeclared(block, names)

    def prefix(self, block: str) -> str:
        """The label prefix of a memory block.

        Raises:
            InvalidInputError: no memory block has this name.
        """
        for spec, lane in self._lanes:
            if spec.name == block:
                return lane.label_prefix
        raise _undeclared(block, [spec.name for spec, _ in self._lanes])

    def label(self, text: str, block: str) -> str:
        """The label of a statement in a memory block.

        Raises:
            InvalidInputError: no memory block has this name.
            InvalidTextError: the statement is blank or holds a refused character.
        """
        return self.prefix(block) + check_text(text, field="text")

    def showing(self, label: str) -> list[PromptBlockSpec]:
        """The memory blocks that show what has this label."""
        return [spec for spec, lane in self._lanes if label.startswith(lane.label_prefix)]

    def corrected(self, label: str, text: str, *, where: str) -> str:
        """The label of a statement once its text is corrected: under the longest prefix that shows it now."""
        check_text(text, field="text", where=where)
        prefixes = [lane.label_prefix for _, lane in self._lanes if label.startswith(lane.label_prefix)]
        if prefixes:
            return max(prefixes, key=len) + text
        head, colon, _ = label.partition(":")
        return head + colon + text if colon else text

    def check_fields(self, label: str, names: Iterable[str], *, where: str) -> None:
        """Check that what shows this label declares these fields.

        Raises:
            InvalidInputError: nothing would show one of them.
        """
        lanes = [lane for _, lane in self._lanes if label.startswith(lane.label_prefix)]
        fields = frozenset[str]().union(*(lane.profile_fields for lane in lanes))
        for name in names:
            if name not in fields:
                declared = f"declared there: {', '.join(sorted(fields))}" if fields else "none are declared there"
                raise InvalidInputError(
                    f"no block that shows label {label!r} declares this field ({declared}); "
                    "add it to the block's profile_fields",
                    field=f"properties.{name}",
                    where=where,
                )

    def stored_as(self, scope: TenantScope, node: MemoryNode) -> list[PromptBlockSpec]:
        """The stored block whose head, at the level of a scope that asks, a node is."""
        return [
            spec
            for spec in self._specs
            if isinstance(spec.source, StoredSource)
            and (node.scope, node.label) == (spec.source.place(scope), head_label(spec.name))
        ]


def _undeclared(block: str, names: Sequence[str]) -> InvalidInputError:
    known = ", ".join(names) or "none"
    return InvalidInputError(f"{block!r} is no declared memory block (declared: {known})", field="block")
