"""The files of an export: streams of bytes that are replaced whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from promptkeel.files import replaced


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file that takes the place of ``path`` when the block ends, and never if the block raises.

    Missing parent folders are made, all of them. A link is followed; an existing file keeps its permissions.

    Raises:
        ExchangeError: the file cannot be written; what was at ``path`` is unchanged.
    """
    with replaced(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        with os.fdopen(descriptor, "wb") as file:
            yield file
