"""The write-ahead log and its index, which stand beside a SQLite file under names that follow from its own.

SQLite finds both by their names alone. Beside a file that was put there by rename, the log of the file before it would
be taken for the new one's, and written over it. Where the log is taken away while the file is open, those who have it
open go on writing to what nobody else can see. So it is remembered which files they were, as device and inode: neither
is handed to another file while one of our connections has it open.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import final

from promptkeel.errors import StoreUnavailableError

Identity = tuple[int, int]
"""Device and inode."""


def identity_of(path: Path) -> Identity | None:
    """Which file is at a path; None where none is."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@final
class Companions:
    """The two files beside one database file.

    Args:
        path: the database file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(path.name + "-wal")
        self._index = path.with_name(path.name + "-shm")
        self._noted: tuple[Identity | None, Identity | None] | None = None

    def note(self) -> None:
        """Remember which files a connection has just opened."""
        self._noted = self._present()

    def have_moved(self) -> bool:
        """Whether they are not those any more that were noted."""
        return self._noted is not None and self._present() != self._noted

    def has_no_log(self) -> bool:
        """Whether there is no log at all."""
        return identity_of(self._log) is None

    def _present(self) -> tuple[Identity | None, Identity | None]:
        return identity_of(self._log), identity_of(self._index)

    def leave(self, *, held: bool) -> None:
        """Take away what belongs to the file that was here, now that another one is.

        Args:
            held: whether a connection still has open what was noted; only then does it say anything.

        Raises:
            StoreUnavailableError: there is a log that may belong to either file.
        """
        noted, self._noted = self._noted, None
        if held and noted is not None:
            self._take_away(self._index, noted[1])
            self._take_away(self._log, noted[0])
        elif not self.has_no_log() and self._log.stat().st_size:
            raise StoreUnavailableError(
                f"{self._path} was replaced by another file, and {self._log.name} may belong to either: end the "
                f"programs that use it, delete {self._log.name} and {self._index.name} if they are the old file's, and "
                "open the store again"
            )

    def forget_index(self) -> None:
        """Take away the index that was noted, whose log is gone."""
        if self._noted is not None:
            self._take_away(self._index, self._noted[1])
        self._noted = None

    def _take_away(self, path: Path, noted: Identity | None) -> None:
        if noted is None or identity_of(path) != noted:
            return
        # Another process may do the same at this moment and have made a new one: only what was moved aside is deleted.
        aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.old")
        try:
            path.rename(aside)
        except FileNotFoundError:
            return
        if identity_of(aside) == noted:
            aside.unlink()
        else:
            aside.rename(path)
