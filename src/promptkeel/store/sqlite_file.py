"""The SQLite file: what is made and checked before it is used, and what can go wrong with it, in our words.

A file is ours by the application id in its header. That is written before write-ahead logging begins, so that the file
itself always tells, and another program's database is refused before anything of it is touched. Closing a file loses a
process its locks on it, so it is never opened by any means but SQLite's own.

The standard library's ``sqlite3`` is another copy of SQLite: in one process the two do not see each other's locks. From
another process, as from a shell, it is a client like any other. So a store uses one of them for everything: apsw's own,
or with ``driver=sqlite3`` Python's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, final

import apsw

from promptkeel.errors import (
    CommitUnknownError,
    NotAStoreError,
    PromptkeelError,
    StoreBusyError,
    StoreClosedError,
    StoreDamagedError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from promptkeel.store.sqlite_companions import Companions, Identity
from promptkeel.store.sqlite_schema import APPLICATION_ID, migrate

SYNCHRONOUS: Final = "FULL"
_WRITER_CACHE: Final = -65536
_MAGIC: Final = b"SQLite format 3\0"
_HEADER: Final = 100
_RETRY: Final = 0.01
LONGEST_TIMEOUT: Final = 2_000_000
"""Seconds; SQLite counts milliseconds in 32 bits."""


SqliteDriver = Literal["apsw", "sqlite3"]
"""Whose copy of SQLite is used: the one that apsw brings, or the one that Python is linked with."""


def open_database(
    path: Path, *, create: bool = False, vfs: str | None = None, driver: SqliteDriver = "apsw"
) -> apsw.Connection:
    """A connection to a file."""
    if driver == "sqlite3":
        from promptkeel.store.sqlite_standard import connect

        return connect(path, create=create)
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    return apsw.Connection(str(path), flags=flags, vfs=vfs)


def driver_of(connection: object) -> SqliteDriver:
    """Whose copy of SQLite a connection is of."""
    return "apsw" if isinstance(connection, apsw.Connection) else "sqlite3"


class FileMovedError(Exception):
    """Another file is at the path than the one that was opened; whoever connects looks at the file again."""


def close(connection: apsw.Connection) -> None:
    """Close; where the disk fails, the write-ahead log stays for the next who opens, and nothing is lost."""
    with contextlib.suppress(apsw.Error):
        connection.close()


@final
class DatabaseFile:
    """A file that is, or is to become, a promptkeel store.

    Args:
        path: where it is.
        busy_timeout: seconds to wait for another writer.
        vfs: the name of a registered apsw VFS; None is the operating system's.
        driver: whose copy of SQLite opens it.
    """

    def __init__(
        self, path: Path, *, busy_timeout: float, vfs: str | None = None, driver: SqliteDriver = "apsw"
    ) -> None:
        self.path = path
        self.busy_timeout = busy_timeout
        self.identity: Identity | None = None
        self.companions = Companions(path)
        self.driver: SqliteDriver = driver
        self._vfs = vfs

    def connect(self, *, query_only: bool, create: bool = False) -> apsw.Connection:
        """A new connection.

        Raises:
            FileMovedError: another file is there than the one that was prepared.
        """
        connection = open_database(self.path, create=create, vfs=self._vfs, driver=self.driver)
        try:
            # Before anything is read: the first read opens the write-ahead log that is beside the file.
            self._check_identity()
            connection.set_busy_timeout(int(self.busy_timeout * 1000))
            connection.pragma("synchronous", SYNCHRONOUS)
            connection.pragma("secure_delete", "ON")
            if query_only:
                connection.pragma("query_only", "ON")
            else:
                connection.pragma("cache_size", _WRITER_CACHE)
            connection.pragma("schema_version")
        except BaseException:
            close(connection)
            raise
        self.companions.note()
        return connection

    def _check_identity(self) -> None:
        if self.identity is not None and self.identify() != self.identity:
            raise FileMovedError

    def identify(self) -> Identity:
        """Which file is there now.

        Raises:
            StoreUnavailableError: none is.
        """
        try:
            found = self.path.stat()
        except OSError as error:
            raise StoreUnavailableError(
                f"{self.path} is gone: put it back, or open the store again ({error.strerror})"
            ) from error
        return found.st_dev, found.st_ino

    def prepare(self) -> apsw.Connection:
        """Make or check the file and bring its schema up to date; a connection that may write to it.

        Raises:
            NotAStoreError: it is something else; it was not touched.
            NewerSchemaError: it was written by a newer promptkeel.
            StoreUnavailableError: it cannot be opened.
            FileMovedError: it was replaced at this very moment.
        """
        self.identity = None
        fresh = True
        try:
            fresh = self._read_header()
            if fresh:
                self._make_folder()
            else:
                self.identity = self.identify()
            connection = self.connect(query_only=False, create=fresh)
            try:
                self._prepare(connection)
                self.identity = self.identity or self.identify()
                self.companions.note()
            except BaseException:
                close(connection)
                raise
            return connection
        except apsw.Error as error:
            raise self._translate_opening(error, fresh=fresh) from error

    def _read_header(self) -> bool:
        """Whether there is no file yet.

        Raises:
            NotAStoreError: there is one, and it is not ours.
        """
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return True
        except OSError as error:
            raise StoreReadOnlyError(f"{self.path} cannot be read: {error.strerror}") from error
        if not self.path.is_file():
            raise NotAStoreError(f"{self.path} is not a file; name a database file")
        if size == 0:
            return True
        # Closing a file descriptor of its own would drop the locks that SQLite holds in this process. What is too short
        # to be a database has none.
        if self.driver == "sqlite3" and size >= _HEADER:
            return self._read_standard_header()
        header = self.path.read_bytes() if self.driver == "sqlite3" else self._read_bytes(min(size, _HEADER))
        if len(header) < _HEADER and _MAGIC.startswith(header[: len(_MAGIC)]):
            raise NotAStoreError(
                f"{self.path} has {len(header)} bytes, too few for a database: it may have been cut off; restore a "
                "backup; it was not touched"
            )
        if not header.startswith(_MAGIC):
            raise self._is_no_database()
        if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
            raise self._is_not_ours()
        return False

    def _read_bytes(self, count: int) -> bytes:
        file = apsw.VFSFile(self._vfs or "", str(self.path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
        try:
            return file.xRead(count, 0)
        finally:
            file.xClose()

    def _read_standard_header(self) -> bool:
        from promptkeel.store.sqlite_standard import application_id

        try:
            found = application_id(self.path)
        except apsw.NotADBError:
            raise self._is_no_database() from None
        except apsw.CorruptError as error:
            raise self.translate(error) from error
        if found != APPLICATION_ID:
            raise self._is_not_ours()
        return False

    def _is_no_database(self) -> NotAStoreError:
        return NotAStoreError(f"{self.path} is not a SQLite database; it was not touched")

    def _is_not_ours(self) -> NotAStoreError:
        return NotAStoreError(f"{self.path} is another program's SQLite database; it was not touched")

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreReadOnlyError(f"the folder {self.path.parent} cannot be made: {error.strerror}") from error

    def _prepare(self, connection: apsw.Connection) -> None:
        if connection.pragma("application_id") != APPLICATION_ID:
            # Before write-ahead logging begins, so that the header in the file itself always tells.
            connection.execute("BEGIN EXCLUSIVE")
            if not connection.execute("SELECT EXISTS (SELECT 1 FROM sqlite_schema)").get:
                connection.pragma("application_id", APPLICATION_ID)
            connection.execute("COMMIT")
            if connection.pragma("application_id") != APPLICATION_ID:
                raise NotAStoreError(f"{self.path} has just been made by another program; it was not touched")
        deadline = time.monotonic() + self.busy_timeout
        while connection.pragma("journal_mode") != "wal":
            # SQLite does not wait for other openers here by itself.
            try:
                if connection.pragma("journal_mode", "wal") != "wal":
                    raise StoreUnavailableError(
                        f"{self.path} is where SQLite cannot use a write-ahead log; use a local disk"
                    )
            except apsw.BusyError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_RETRY)
        migrate(connection, str(self.path))

    def settle(self) -> None:
        """Commit over what a failed commit may have left in the write-ahead log, so that it can never come back.

        Raises:
            CommitUnknownError: the disk still fails.
        """
        connection = None
        try:
            connection = self.connect(query_only=False)
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "INSERT INTO meta(key, value) VALUES ('settled', 1) ON CONFLICT (key) DO UPDATE SET value = value + 1"
            )
            connection.execute("COMMIT")
        except (apsw.Error, FileMovedError) as error:
            raise CommitUnknownError(
                f"the disk still fails ({error}): whether the last write to {self.path} is there is not settled"
            ) from error
        finally:
            if connection is not None:
                close(connection)

    # Errors

    @contextmanager
    def translated(self) -> Iterator[None]:
        """What goes wrong inside, in our words."""
        try:
            yield
        except apsw.Error as error:
            raise self.translate(error) from error
        except UnicodeDecodeError as error:
            raise StoreDamagedError(
                f"{self.path} holds a text that is not UTF-8 ({error}); correct it with SQL"
            ) from error

    def translate(self, error: apsw.Error) -> PromptkeelError:
        """An error of SQLite in our words."""
        match error:
            case apsw.BusyError() | apsw.LockedError():
                return self.busy()
            case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError():
                return StoreReadOnlyError(
                    f"{self.path} cannot be written to ({error}): let this user write to the file and its folder"
                )
            case apsw.FullError():
                return StoreFullError(
                    f"there is no space left for {self.path}; nothing was written: free some and retry"
                )
            case apsw.IOError():
                return StoreUnavailableError(f"{self.path} could not be read or written ({error}); check the disk")
            case apsw.ConnectionClosedError():
                return self.is_closed()
        return StoreDamagedError(f"{self.path} is not as it should be ({error}); restore a backup")

    def _translate_opening(self, error: apsw.Error, *, fresh: bool) -> PromptkeelError:
        if fresh and isinstance(error, apsw.NotADBError | apsw.CorruptError):
            return NotAStoreError(f"{self.path} is no promptkeel store ({error}); it was not touched")
        return self.translate(error)

    def has_lost_its_log(self) -> StoreDamagedError:
        """The write-ahead log was taken away, or another one put in its place, while the store was open."""
        return StoreDamagedError(
            f"the write-ahead log of {self.path} was removed or replaced by another program while the store was open: "
            "what was written since the last checkpoint may be lost; end that program and check the last writes, or "
            "restore a backup (take snapshots to an end first; the store then opens what is there)"
        )

    def busy(self) -> StoreBusyError:
        """Another writer was waited for in vain."""
        return StoreBusyError(
            f"another writer held {self.path} for longer than {self.busy_timeout:g} s: retry, or raise busy_timeout"
        )

    def is_closed(self) -> StoreClosedError:
        """The store was closed by its owner."""
        return StoreClosedError(f"the store {self.path} is closed")
