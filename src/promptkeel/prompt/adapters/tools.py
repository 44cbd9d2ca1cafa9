"""Tool definitions in one spelling, made once for the same definitions and kept for a while.

What is kept is text, found by the content of what was given: nothing that a caller changes afterwards reaches it.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import sys
from collections.abc import Sequence
from typing import Any, Final, final

import attrs

from promptkeel.errors import InvalidInputError
from promptkeel.properties import dump_json
from promptkeel.providers.canonical import canonical_tools
from promptkeel.providers.segments import WireFormat
from promptkeel.resolver.cache import BoundedCache
from promptkeel.tokens import TokenCounter

_CACHE_BYTES: Final = 8 * 1024 * 1024
_MARSHAL: Final = 2
"""The newest version without references, so that equal definitions are written alike."""


@final
@attrs.frozen(eq=False)
class CanonicalTools:
    """The tools of a request in one spelling.

    Attributes:
        text: their JSON.
        tokens: how many each has.
    """

    text: str
    tokens: tuple[int, ...]

    def fresh(self) -> list[Any]:
        """The definitions, made anew."""
        tools: list[Any] = json.loads(self.text)
        return tools


_KEPT: Final[BoundedCache[tuple[str, str, bytes], CanonicalTools]] = BoundedCache(
    _CACHE_BYTES, lambda tools: sys.getsizeof(tools.text) + 8 * len(tools.tokens)
)


def canonical(wire: WireFormat, tools: object, counter: TokenCounter) -> CanonicalTools | None:
    """The tools in one spelling, whatever the order in which they and their keys were given; None where there are none.

    Raises:
        InvalidInputError: they are no JSON.
    """
    if tools is None:
        return None
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise InvalidInputError(f"must be a list of tools, not {type(tools).__name__}", field="tools")
    if not tools:
        return None
    content = _content(tools)
    key = None if content is None else (wire, counter.name, content)
    found = None if key is None else _KEPT.get(key)
    if found is None:
        spelled = canonical_tools(wire, tools)
        found = CanonicalTools(dump_json(spelled), tuple(counter(dump_json(tool)) for tool in spelled))
        if key is not None:
            _KEPT.put(key, found)
    return found


def _content(tools: Sequence[Any]) -> bytes | None:
    """A hash of the definitions with the types of everything in them; None where they hold more than plain JSON."""
    try:
        return hashlib.sha256(marshal.dumps(list(tools), _MARSHAL)).digest()
    except ValueError:
        return None
