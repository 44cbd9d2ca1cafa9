"""What a model reads in a request, by a reader of its own: nothing here is the library's.

It walks every text in the order in which a provider puts the prompt together, notes what each block says, and follows
what later texts take back, add or replace.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

_BLOCK = re.compile(r"^### ([A-Z]+) / ([A-Z_]+)$")
_OPEN = re.compile(r'^<untrusted-data-[0-9a-f]+ block="([A-Z_]+)">$')
_DELTA = re.compile(
    r'^<(?:untrusted-data|standing-context)-[0-9a-f]+ (changed|replaced|gone)="([A-Z_]+)" '
    r'seal="([0-9a-f]+)-[0-9a-f]+">$'
)
_CLOSE = re.compile(r"^</(?:untrusted-data|standing-context)-[0-9a-f]+>$")


def texts(value: Any) -> Iterator[str]:
    """Every text of a part of a request, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key in ("instructions", "system_instruction", "text", "content", "parts", "output", "response", "result"):
            if key in value:
                yield from texts(value[key])
        for key in ("toolResult", "function_response"):
            if key in value:
                yield from texts(value[key])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts(each)


def texts_of(arguments: Mapping[str, Any]) -> list[str]:
    """Every text that the model reads, in the order of the prompt."""
    config = arguments.get("config", {})
    order = [config, arguments.get("system"), arguments.get("instructions")]
    order += [arguments.get(name) for name in ("messages", "input", "contents")]
    return [text for part in order if part is not None for text in texts(part)]


class Reader:
    """What the texts say by their end.

    Attributes:
        statements: of each block of memory, what stands, as (header, body), as often as it stands.
        authored: the last text of each block of an operator's.
        bases: the bases that deltas named.
        words: every text, joined.
    """

    def __init__(self, found: list[str]) -> None:
        self._standing: dict[str, dict[str, tuple[str, str]]] = {}
        self.authored: dict[str, str] = {}
        self.bases: set[str] = set()
        self.words = "\n".join(found)
        for text in found:
            self._read(text.split("\n"))

    @property
    def statements(self) -> dict[str, Counter[tuple[str, str]]]:
        return {name: Counter(standing.values()) for name, standing in self._standing.items() if standing}

    def _read(self, lines: list[str]) -> None:
        block = None
        position = 0
        while position < len(lines):
            line = lines[position]
            header, opening, delta = _BLOCK.match(line), _OPEN.match(line), _DELTA.match(line)
            if header:
                block = header[2]
                self.authored[block] = ""
            elif opening or delta:
                end = next(index for index in range(position, len(lines)) if _CLOSE.match(lines[index]))
                inner = lines[position + 1 : end]
                if opening:
                    self.authored.pop(opening[1], None)
                    self._standing[opening[1]] = self._numbered(inner)
                else:
                    self._follow(delta[1], delta[2], delta[3], inner)
                block, position = None, end
            elif block is not None and line.startswith("["):
                block = None  # what stands behind the blocks
            elif block is not None:
                self.authored[block] += line.strip()
            position += 1

    def _numbered(self, lines: list[str]) -> dict[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {}
        header = ""
        for line in lines:
            if line.startswith("- "):
                found[f"statement {len(found) + 1}"] = (header, line[2:])
            else:
                header = line
        return found

    def _follow(self, kind: str, name: str, base: str, lines: list[str]) -> None:
        self.bases.add(base)
        if kind != "changed":
            self.authored[name] = "".join(line.strip() for line in lines if not _BLOCK.match(line))
            return
        standing = self._standing.setdefault(name, {})
        header = ""
        for line in lines:
            if line.startswith("[no longer true: "):
                for reference in line.removeprefix("[no longer true: ").removesuffix("]").split(", "):
                    standing.pop(reference, None)
            elif line.startswith("- "):
                reference, _, body = line[2:].partition(": ")
                standing.pop(reference, None)
                standing[reference] = (header, body)
            else:
                header = line
