"""A file as a block: looked at on every resolve, never shown stale, half or wrong.

What tells is the file's identity, size and times. Times that lie only just behind a read tell nothing, so such a file
is read again; one that was written only just now is read only once its writer has been quiet for a moment.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final, final

import attrs

from promptkeel.blocks.source import SHARINGS, Sharing, authored
from promptkeel.errors import InvalidDeclarationError, SourceUnavailableError
from promptkeel.forks import after_fork
from promptkeel.model import BlockRevision
from promptkeel.scope import TenantScope
from promptkeel.text import refused_character, trim

_SETTLED_AFTER: Final = 2.0
"""Seconds that a file's times must lie behind a read before equal times mean equal content: the coarsest tick of the
file systems in use."""
_QUIET: Final = 0.05
"""Seconds without a write after which new content counts as whole: a file that is written in place, rather than
replaced, is between two writes in the meantime."""
_TRIES: Final = 5


def _absolute(path: object) -> Path:
    if not isinstance(path, str | Path) or not str(path) or refused_character(str(path)):
        raise InvalidDeclarationError(f"{path!r} cannot be the path of a file", field="path")
    return Path(path).absolute()


@final
@attrs.frozen(order=False)
class FileSource:
    """The text of a file, looked at on every resolve and read again when it may have changed.

    What tells is the file's identity, size and times: a write through a memory map counts from when the system stamps
    it. Replace files by rename; one that is written in place is read once its writer has been quiet for 50 ms.

    Attributes:
        path: the file; made absolute at construction.
        max_bytes: a larger file is an error.
        encoding: how it is read; a byte order mark is left out.
    """

    kind: ClassVar[str] = "file"
    is_learned: ClassVar[bool] = False
    sharing: ClassVar[tuple[Sharing, ...]] = SHARINGS

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

    @property
    def declared(self) -> tuple[object, ...]:
        """What is declared."""
        return str(self.path), self.max_bytes, self.encoding

    def load(self, scope: TenantScope) -> BlockRevision:  # noqa: ARG002 - the same for every scope
        """The file's content now; blocks."""
        return FileReader(self).read()


FileIdentity = tuple[int, int, int, int, int]


@final
@attrs.frozen
class _Found:
    """What one look into the file found."""

    content: bytes
    identity: FileIdentity
    newest: float
    is_whole: bool


@final
@attrs.frozen
class _Read:
    identity: FileIdentity
    settled: bool
    digest: bytes
    revision: BlockRevision
    began: int


@final
class FileReader:
    """Reads one file source, again only when it may have changed. Safe from any thread.

    Args:
        source: which file.
        now: answers the present time in seconds, by the clock that stamps files.
        pause: waits for some seconds.
    """

    def __init__(
        self,
        source: FileSource,
        *,
        now: Callable[[], float] = time.time,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._source = source
        self._now = now
        self._pause = pause
        self._lock = threading.Lock()
        self._begun = 0
        self._read: _Read | None = None
        after_fork(self, FileReader._begin_anew)

    def _begin_anew(self) -> None:
        """In a forked child: the thread that may have held the lock is not here."""
        self._lock = threading.Lock()

    def current(self) -> BlockRevision | None:
        """One stat: what was read last, if that is certainly what the file still holds."""
        read = self._read
        if read is None or not read.settled:
            return None
        try:
            found = os.stat(self._source.path)  # noqa: PTH116 - the hot path: half the cost of Path.stat
        except OSError:
            return None
        return read.revision if _identity(found) == read.identity else None

    def read(self) -> BlockRevision:
        """The file's content now; blocks. Calls that wait for another one's read share the next.

        Raises:
            SourceUnavailableError: it is missing, not a regular file, too large, blank, not in its encoding, or being
                written.
        """
        path = self._source.path
        called = self._begun
        with self._lock:
            last = self._read
            if last is not None and last.began > called:
                return last.revision
            self._begun = began = self._begun + 1
            try:
                found, started = self._load_whole(path, last)
            except OSError as error:
                if isinstance(error, SourceUnavailableError):
                    raise
                raise SourceUnavailableError(f"cannot read {path}: {error.strerror or error}") from error
            except UnicodeEncodeError as error:
                raise SourceUnavailableError(f"this locale cannot spell {path}; set LC_ALL=C.UTF-8") from error
            digest = hashlib.sha256(found.content).digest()
            revision = last.revision if last is not None and last.digest == digest else authored(self._text(found))
            self._read = _Read(found.identity, found.newest + _SETTLED_AFTER < started, digest, revision, began)
            return revision

    def _load_whole(self, path: Path, last: _Read | None) -> tuple[_Found, float]:
        for _ in range(_TRIES):
            started = self._now()
            found = self._load(path)
            if found.is_whole and self._is_quiet(path, found, last):
                return found, started
        raise SourceUnavailableError(f"{path} is being written; replace files by rename")

    def _is_quiet(self, path: Path, found: _Found, last: _Read | None) -> bool:
        if last is not None and hashlib.sha256(found.content).digest() == last.digest:
            return True
        if self._now() - found.newest > _QUIET:
            return True
        self._pause(_QUIET)
        return _identity(path.stat()) == found.identity

    def _load(self, path: Path) -> _Found:
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
        is_whole = _identity(before) == _identity(after) and len(content) == after.st_size
        return _Found(content, _identity(after), max(after.st_mtime, after.st_ctime), is_whole)

    def _text(self, found: _Found) -> str:
        path, encoding = self._source.path, self._source.encoding
        try:
            text = found.content.decode(encoding).removeprefix("\ufeff")
        except UnicodeError as error:
            place = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
            raise SourceUnavailableError(f"{path} is not {encoding}{place}; save it in that encoding") from None
        refused = refused_character(text)
        if refused:
            raise SourceUnavailableError(f"{path} holds {refused}")
        if not trim(text):
            raise SourceUnavailableError(f"{path} is blank; take the block out instead")
        return text


def _identity(found: os.stat_result) -> FileIdentity:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
