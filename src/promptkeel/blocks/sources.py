"""Where a block's content comes from: declared values, checked when they are made.

A memory lane is learned text; the other sources are authored text. Reading is here only for files (``FileReader``);
lanes are read by the resolver, which knows the store.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final, final

import attrs

from promptkeel.errors import InvalidDeclarationError, InvalidTextError, SourceUnavailableError
from promptkeel.forks import after_fork
from promptkeel.model import BlockRevision
from promptkeel.scope import TenantScope
from promptkeel.text import check_text, refused_character, trim

ComputedContent = tuple[str, str]
"""What a computed source answers: the content and its revision."""

_SETTLED_AFTER: Final = 2.0
"""Seconds that a file's times must lie behind a read before equal times mean equal content: the coarsest tick of the
file systems in use."""


def content_revision(text: str) -> str:
    """The revision of authored text: a hash of its bytes."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:32]


def authored(text: str) -> BlockRevision:
    """The revision of authored text."""
    revision = content_revision(text)
    return BlockRevision(content=text, revision=revision, content_hash=revision)


def _check_authored(text: object, field: str) -> str:
    try:
        return check_text(text, field=field)
    except InvalidTextError as error:
        raise InvalidDeclarationError(error.reason, field=field) from None


@final
@attrs.frozen(order=False)
class StaticSource:
    """Text that stands in the program itself.

    Raises:
        InvalidDeclarationError: the text is blank or holds what no prompt should.
    """

    text: str

    def __attrs_post_init__(self) -> None:
        _check_authored(self.text, "text")


def _absolute(path: object) -> Path:
    if not isinstance(path, str | Path) or not str(path) or refused_character(str(path)):
        raise InvalidDeclarationError(f"{path!r} cannot be the path of a file", field="path")
    return Path(path).absolute()


@final
@attrs.frozen(order=False)
class FileSource:
    """The text of a file, looked at on every resolve and read again when it may have changed.

    What tells is the file's identity, size and times: a write through a memory map counts from when the system stamps
    it.

    Attributes:
        path: the file; made absolute at construction.
        max_bytes: a larger file is an error.
        encoding: how it is read; a byte order mark is left out.
    """

    path: Path = attrs.field(converter=_absolute)
    max_bytes: int = attrs.field(default=1_048_576, kw_only=True)
    encoding: str = attrs.field(default="utf-8", kw_only=True)

    def __attrs_post_init__(self) -> None:
        if type(self.max_bytes) is not int or self.max_bytes < 1:
            raise InvalidDeclarationError("must be a whole number of at least 1", field="max_bytes")
        try:
            is_text = isinstance("a".encode(self.encoding).decode(self.encoding), str)
        except (LookupError, TypeError, ValueError):
            is_text = False
        if not is_text:
            raise InvalidDeclarationError(f"{self.encoding!r} is no text encoding", field="encoding")


@final
@attrs.frozen(order=False)
class ComputedSource:
    """Authored text that a function answers, together with its revision.

    Attributes:
        function: called with the scope on every resolve, on the caller's own thread, so it must not block; may be
            ``async``. Answers ``(content, revision)``.
    """

    function: Callable[[TenantScope], ComputedContent | Awaitable[ComputedContent]]

    def __attrs_post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidDeclarationError("must be callable with a scope", field="function")


def _fields(given: object) -> frozenset[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidDeclarationError("must be a set of names", field="profile_fields")
    return frozenset(given)


@final
@attrs.frozen(order=False)
class MemoryLane:
    """Every visible node whose label starts with a prefix, as facts.

    Attributes:
        label_prefix: as ``SOUL:``.
        profile_fields: the node properties that are facts of their own.
    """

    label_prefix: str
    profile_fields: frozenset[str] = attrs.field(default=frozenset(), converter=_fields)

    def __attrs_post_init__(self) -> None:
        _check_authored(self.label_prefix, "label_prefix")
        for name in self.profile_fields:
            _check_authored(name, "profile_fields")


BlockSource = StaticSource | FileSource | ComputedSource | MemoryLane


def check_computed(answer: object, block: str) -> BlockRevision:
    """The revision of a computed source's answer.

    Raises:
        InvalidDeclarationError: the answer is not ``(content, revision)``, both text that a prompt can hold.
    """
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise InvalidDeclarationError("a computed source must answer (content, revision)", where=block)
    content, revision = answer
    for name, text in (("content", content), ("revision", revision)):
        if not isinstance(text, str) or refused_character(text) or (name == "revision" and not trim(text)):
            raise InvalidDeclarationError(
                f"a computed source must answer {name} as text without control characters", where=block
            )
    # The caller's revision says when to look again; what is shown is known by its own hash.
    return BlockRevision(content=content, revision=revision, content_hash=content_revision(content))


class _ChangedMeanwhileError(SourceUnavailableError):
    """The file was written while it was read."""


_TRIES: Final = 3
FileIdentity = tuple[int, int, int, int, int]


@final
class FileReader:
    """Reads one file source, again only when it may have changed. Safe from any thread."""

    def __init__(self, source: FileSource, *, now: Callable[[], float] = time.time) -> None:
        self._source = source
        self._now = now
        self._lock = threading.Lock()
        self._read: tuple[FileIdentity, bool, BlockRevision] | None = None
        after_fork(self, FileReader._begin_anew)

    def _begin_anew(self) -> None:
        """In a forked child: the thread that may have held the lock is not here."""
        self._lock = threading.Lock()

    def current(self) -> BlockRevision | None:
        """One stat: what was read last, if that is certainly what the file still holds."""
        read = self._read
        if read is None or not read[1]:
            return None
        try:
            found = os.stat(self._source.path)  # noqa: PTH116 - the hot path: half the cost of Path.stat
        except OSError:
            return None
        return read[2] if _identity(found) == read[0] else None

    def read(self) -> BlockRevision:
        """The file's content now; blocks.

        Raises:
            SourceUnavailableError: it is missing, not a regular file, too large, blank, not in its encoding, or
                changed while it was read.
        """
        path = self._source.path
        with self._lock:
            try:
                text, identity, settled = self._load_whole(path)
            except OSError as error:
                if isinstance(error, SourceUnavailableError):
                    raise
                raise SourceUnavailableError(f"cannot read {path}: {error.strerror or error}") from error
            read = self._read
            revision = read[2] if read is not None and read[2].content == text else authored(text)
            self._read = (identity, settled, revision)
            return revision

    def _load_whole(self, path: Path) -> tuple[str, FileIdentity, bool]:
        for _ in range(_TRIES - 1):
            try:
                return self._load(path)
            except _ChangedMeanwhileError:
                continue
        return self._load(path)

    def _load(self, path: Path) -> tuple[str, FileIdentity, bool]:
        started = self._now()
        # Opened without waiting, so that a pipe put in the file's place is refused instead of waited for.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        with os.fdopen(descriptor, "rb") as file:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                raise SourceUnavailableError(f"{path} is not a regular file")
            content = file.read(self._source.max_bytes + 1)
            after = os.fstat(descriptor)
        if len(content) > self._source.max_bytes:
            raise SourceUnavailableError(f"{path} is larger than {self._source.max_bytes} bytes; raise max_bytes")
        if _identity(before) != _identity(after) or len(content) != after.st_size:
            raise _ChangedMeanwhileError(f"{path} changed while it was read; replace files by rename")
        try:
            text = content.decode(self._source.encoding).removeprefix("\ufeff")
        except UnicodeError as error:
            place = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
            raise SourceUnavailableError(
                f"{path} is not {self._source.encoding}{place}; save it in that encoding"
            ) from None
        found = refused_character(text)
        if found:
            raise SourceUnavailableError(f"{path} holds {found}")
        if not trim(text):
            raise SourceUnavailableError(f"{path} is blank; take the block out instead")
        newest = max(after.st_mtime, after.st_ctime)
        return text, _identity(after), newest + _SETTLED_AFTER < started


def _identity(found: os.stat_result) -> FileIdentity:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
