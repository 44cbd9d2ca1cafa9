"""The order of keys in what a request carries as objects: canonical JSON hides it, the provider's cache does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_OBJECTS: Final = frozenset({
    "input", "args", "arguments", "input_schema", "inputSchema", "parameters", "parametersJsonSchema", "response",
    "json", "schema", "outputSchema",
})  # fmt: skip
"""Where objects stand whose keys the model is shown in the order in which they came."""
_PLACES: Final = (
    ("tools", ("tools", "toolConfig")),
    ("system", ("system", "instructions", "systemInstruction", "system_instruction")),
    ("messages", ("messages", "input", "contents")),
)
_DEEPEST: Final = 100


def key_orders(arguments: Mapping[str, Any]) -> tuple[tuple[tuple[str, int], int], ...]:
    """A hash of the order of keys for tools, system, and each message; what holds no object is left out.

    Each stands under its section and the index of its message, -1 outside messages. Hashes are of this process.
    """
    config = arguments.get("config")
    given = {**config, **arguments} if isinstance(config, Mapping) else arguments
    found = []
    for section, names in _PLACES:
        value = next((given[name] for name in names if given.get(name) is not None), None)
        if section != "messages":
            found.append(((section, -1), tuple(_keys(value, inside=False, depth=0))))
        elif isinstance(value, list | tuple):
            found += [((section, index), tuple(_keys(item, inside=False, depth=0))) for index, item in enumerate(value)]
    return tuple((place, hash(keys)) for place, keys in found if keys)


def _keys(value: Any, *, inside: bool, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    if isinstance(value, Mapping):
        for name, item in value.items():
            if inside:
                yield str(name)
            if isinstance(item, Mapping | list | tuple):
                yield from _keys(item, inside=inside or name in _OBJECTS, depth=depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _keys(item, inside=inside, depth=depth + 1)
