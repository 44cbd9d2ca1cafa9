"""A stream of bytes as numbered lines, with a running hash, in bounded memory."""

from __future__ import annotations

import hashlib
import re
from typing import BinaryIO, Final, final

import attrs

from promptkeel.errors import ExchangeError

LONGEST: Final = 64 * 1024 * 1024
"""The bytes of the longest line that is read; a longer one is refused by its number."""

_BLOCK: Final = 1024 * 1024
_UTF8_MARK: Final = b"\xef\xbb\xbf"
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_ARRAY: Final = re.compile(rb"\s*\[\s*(\{|$)")


@final
@attrs.frozen(order=False)
class Line:
    """One line.

    Attributes:
        number: counted from 1, blank ones too.
        content: without its line break; None where it was too long to read.
    """

    number: int
    content: bytes | None

    @property
    def is_blank(self) -> bool:
        """Whether it says nothing."""
        return self.content is not None and not self.content.strip()

    def decode(self) -> str:
        """The text.

        Raises:
            ExchangeError: it is not UTF-8, or too long.
        """
        if self.content is None:
            raise ExchangeError(f"is longer than {LONGEST} bytes")
        try:
            return self.content.decode()
        except UnicodeDecodeError as error:
            raise ExchangeError(f"is not UTF-8 at byte {error.start + 1} of the line; save the file as UTF-8") from None

    def shown(self) -> str:
        """The text as a reject file keeps it: what is not UTF-8 is spelled as escapes."""
        return "" if self.content is None else self.content.decode(errors="backslashreplace")


@final
class LineReader:
    """Reads lines one by one and knows how far it has come.

    Attributes:
        lines: how many lines were read.
        offset: how many bytes they had, line breaks included.
    """

    def __init__(self, stream: BinaryIO, *, longest: int = LONGEST) -> None:
        self._stream = stream
        self._longest = longest
        self._digest = hashlib.sha256()
        self._begun = False
        self.lines = 0
        self.offset = 0

    @property
    def sha256(self) -> str:
        """The hash of all bytes read so far, in hexadecimal."""
        return self._digest.hexdigest()

    def next(self) -> Line | None:
        """The next line; None at the end.

        Raises:
            ExchangeError: the stream is UTF-16 or UTF-32 text or one JSON array, or cannot be read.
        """
        content = self._read(self._longest + 2)
        if not content:
            return None
        if self.lines == 0:
            if content.startswith(_UTF16_MARKS):
                raise ExchangeError("the file is UTF-16 or UTF-32 text; save it as UTF-8")
            content = content.removeprefix(_UTF8_MARK)
        if not self._begun and content.strip():
            self._begun = True
            if _ARRAY.match(content):
                raise ExchangeError(
                    "the file is one JSON array; write one object on each line, as jq -c '.[]' does, and import that"
                )
        self.lines += 1
        if len(content) > self._longest and not content.endswith(b"\n"):
            while content and not content.endswith(b"\n"):
                content = self._read(_BLOCK)
            return Line(self.lines, None)
        return Line(self.lines, content.removesuffix(b"\n").removesuffix(b"\r"))

    def _read(self, size: int) -> bytes:
        try:
            content = self._stream.readline(size)
        except OSError as error:
            raise ExchangeError(f"the file cannot be read: {error.strerror or error}") from error
        self._digest.update(content)
        self.offset += len(content)
        return content


def hash_of_prefix(stream: BinaryIO, size: int) -> str | None:
    """The hash of a stream's first bytes, in hexadecimal; None where it has fewer."""
    stream.seek(0)
    digest = hashlib.sha256()
    while size > 0:
        block = stream.read(min(size, _BLOCK))
        if not block:
            return None
        digest.update(block)
        size -= len(block)
    return digest.hexdigest()
