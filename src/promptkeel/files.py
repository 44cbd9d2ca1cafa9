"""Files are replaced whole or not at all: a temporary file in the same folder, fsync, rename, fsync of the folder."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from promptkeel.errors import ExchangeError, PromptkeelError


@contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to make a file at, which takes the place of ``path`` when the block ends, and never if the block raises.

    Missing parent folders are made, all of them. A link is followed; an existing file keeps its permissions.

    Raises:
        ExchangeError: the file cannot be written; what was at ``path`` is unchanged.
    """
    if "\0" in os.fspath(path):
        raise ExchangeError(f"cannot write {os.fspath(path)!r}: no file has a NUL in its name")
    try:
        target = Path(path).resolve()
        if target.exists() and not target.is_file():
            raise ExchangeError(f"cannot write {path}: it is not a regular file; name a file")
        _make_folder(target.parent)
        temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")
        try:
            yield temporary
            _sync_file(temporary)
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            temporary.replace(target)
        except BaseException:
            with suppress(FileNotFoundError):
                temporary.unlink()
            raise
        _sync_folder(target.parent)
    except PromptkeelError:
        raise
    except OSError as error:
        raise ExchangeError(f"cannot write {path}: {error.strerror or error}") from error


def _make_folder(folder: Path) -> None:
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        _sync_folder(made.parent)


def _sync_file(path: Path) -> None:
    # Some systems sync only what is open for writing.
    descriptor = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
