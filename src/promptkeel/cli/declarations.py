"""From the words of the command line to declared blocks and a store's address. Pure, apart from a look at the file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from promptkeel.blocks import FileSource, MemoryLane, PromptBlockSpec, StaticSource
from promptkeel.errors import InvalidDeclarationError, NotAStoreError, StoreUnavailableError

DEFAULT_STORE: Final = "sqlite:///promptkeel.db"

DEFAULT_BLOCKS: Final[Mapping[str, MemoryLane]] = {
    "USER_PROFILE": MemoryLane(label_prefix="SOUL:", profile_fields={"language", "name", "role", "timezone"}),
    "PREFERENCES": MemoryLane(label_prefix="PREFERENCE:"),
    "FOCUS": MemoryLane(label_prefix="FOCUS:"),
}
"""The memory blocks that the command line knows without being told."""

_FILE_URL: Final = "sqlite:///"
_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")
_SCHEME: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]+:")  # two letters: Windows has drives of one
_STORES: Final = ("sqlite:", "ram:", "postgresql:", "postgres:")


def decoded(word: str) -> str:
    """A word of the command line, which a locale without UTF-8 has taken for single bytes, as the UTF-8 that it is."""
    try:
        return os.fsencode(word).decode()
    except UnicodeError:
        return word


def encoded(path: str) -> str:
    """A decoded path as this process names it to the system."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return os.fsdecode(path.encode(errors="surrogateescape"))
    return path


def parse_assignment(text: str, option: str) -> tuple[str, str]:
    """The two sides of ``NAME=VALUE``.

    Raises:
        InvalidDeclarationError: there is no ``=`` or no name.
    """
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise InvalidDeclarationError(f"must be NAME=VALUE, not {text!r}", field=option)
    return name, value


def parse_lane(text: str) -> tuple[str, MemoryLane]:
    """A memory block from ``NAME=PREFIX`` or ``NAME=PREFIX:field,field``; the prefix ends with its last colon.

    Raises:
        InvalidDeclarationError: it says no block.
    """
    name, value = parse_assignment(text, "--lane")
    prefix, colon, fields = value.rpartition(":")
    if not prefix or not colon:
        raise InvalidDeclarationError(
            f"{text!r} has no label prefix; write NAME=SOUL: or NAME=SOUL:field,field", field="--lane"
        )
    names = frozenset(field.strip() for field in fields.split(",") if field.strip())
    return name, MemoryLane(label_prefix=prefix + colon, profile_fields=names)


def declare_lanes(lanes: Iterable[str], declared: Sequence[PromptBlockSpec] | None = None) -> dict[str, MemoryLane]:
    """The memory blocks of a file, or the default ones, with those of ``--lane`` added or put in their place."""
    known: Mapping[str, MemoryLane] = DEFAULT_BLOCKS
    if declared is not None:
        known = {spec.name: spec.source for spec in declared if isinstance(spec.source, MemoryLane)}
    return {**known, **dict(parse_lane(text) for text in lanes)}


def describe_lanes() -> str:
    """The default memory blocks as a help text lists them."""
    lines = ["\b", "Memory blocks, unless --lane declares others:"]
    for name, lane in DEFAULT_BLOCKS.items():
        fields = ", ".join(sorted(lane.profile_fields))
        lines.append(f"  {name:<14}{lane.label_prefix:<13}{f'fields {fields}' if fields else ''}".rstrip())
    return "\n".join(lines) + "\n"


def unseen(lanes: Mapping[str, MemoryLane], label: str, properties: Iterable[str] = ()) -> list[str]:
    """What of a statement no declared block will show, one sentence each."""
    showing = [lane for lane in lanes.values() if label.startswith(lane.label_prefix)]
    if not showing:
        prefixes = ", ".join(lane.label_prefix for lane in lanes.values())
        return [f"no block will show it: its label begins with none of {prefixes}"]
    fields = frozenset[str]().union(*(lane.profile_fields for lane in showing))
    return [
        f"no block will show {name}: it is no field of {' or '.join(_names(lanes, showing))}"
        for name in sorted(properties)
        if name not in fields
    ]


def _names(lanes: Mapping[str, MemoryLane], showing: Sequence[MemoryLane]) -> list[str]:
    return [name for name, lane in lanes.items() if lane in showing]


def declare_blocks(
    lanes: Mapping[str, MemoryLane], statics: Sequence[str] = (), files: Sequence[str] = ()
) -> list[PromptBlockSpec]:
    """The declared blocks: memory lanes, ``--static NAME=TEXT`` and ``--file NAME=PATH``.

    Raises:
        InvalidDeclarationError: one of them cannot mean anything.
    """
    blocks = [PromptBlockSpec(name=name, source=lane) for name, lane in lanes.items()]
    for text in statics:
        name, value = parse_assignment(text, "--static")
        blocks.append(PromptBlockSpec(name=name, source=StaticSource(value)))
    for text in files:
        name, value = parse_assignment(text, "--file")
        blocks.append(PromptBlockSpec(name=name, source=FileSource(Path(value))))
    return blocks


def store_url(given: str) -> str:
    """The address of a store given as an address or as the path of a file.

    Raises:
        NotAStoreError: it looks like an address and names no kind of store.
    """
    given = decoded(given)
    if given.startswith(_STORES) or "://" in given:
        return given
    scheme = _SCHEME.match(given)
    if scheme:
        path = given[scheme.end() :].lstrip("/") or "x.db"
        raise NotAStoreError(
            f"{scheme.group()!r} names no kind of store; write {_FILE_URL}{path}, or ./{given} for a file of that name"
        )
    return _FILE_URL + quote(given, safe="/\\: ")


def store_file(url: str) -> Path | None:
    """The file that a store's address names, if it names one.

    Raises:
        NotAStoreError: it can be no file.
    """
    if not url.startswith(_FILE_URL):
        return None
    path = Path(unquote(url[len(_FILE_URL) :].partition("?")[0]))
    if not path.name or "\0" in path.name:
        raise NotAStoreError(f"{str(path)!r} is no file; name a database file")
    return path


def is_of_store(path: str | os.PathLike[str], url: str) -> bool:
    """Whether a path leads to the file of a store, or to one that SQLite keeps beside it, by whatever name.

    Raises:
        NotAStoreError: the store's address can be no file.
    """
    store = store_file(url)
    if store is None or "\0" in os.fspath(path):
        return False
    own = [os.path.realpath(store) + suffix for suffix in _SUFFIXES]
    return any(_is_same(os.path.realpath(path), each) for each in own)


def _is_same(first: str, second: str) -> bool:
    if os.path.normcase(first) == os.path.normcase(second):
        return True
    try:
        return Path(first).samefile(second)  # a hard link, or a disk that knows no upper case
    except OSError:
        return False


def missing_file(url: str) -> Path | None:
    """The file that a store's address names, where there is none or an empty one; else None.

    Raises:
        NotAStoreError: it can be no file.
        StoreUnavailableError: nobody can say whether there is one.
    """
    path = store_file(url)
    if path is None:
        return None
    try:
        return None if path.stat().st_size else path
    except (FileNotFoundError, NotADirectoryError):
        return path
    except OSError as error:
        hint = "let this user into its folder" if isinstance(error, PermissionError) else "name another file"
        raise StoreUnavailableError(f"cannot look at {path}: {error.strerror or error}; {hint}") from error
