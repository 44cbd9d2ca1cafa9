"""The connections to one SQLite file: one role each, errors in our words, and the file itself kept in sight.

Roles never share a connection. The *probe* never writes and never holds a transaction, since SQLite's ``data_version``
says nothing about either. The *short* connection serves reads of a row or a few, from an event loop. *Readers* scan,
each for one call at a time. The one *writer* is under a lock. Every role re-opens lazily when the generation moves:
after a fork, and when the file was replaced by another (its device and inode are looked at, at most every
``LOOK_INTERVAL``).

Before a fork all idle connections are closed: SQLite keeps one record of its locks per process and file, and a child
that inherited it would believe in locks that it does not have. Closing a file loses a process its locks on it, so the
file is never opened by any means but SQLite's own.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar, final

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
from promptkeel.store.sqlite_schema import APPLICATION_ID, check_triggers, migrate

T = TypeVar("T")

SYNCHRONOUS: Final = "FULL"
LOOK_INTERVAL: Final = 0.2
"""Seconds after which a file replaced by rename is noticed, at most."""
_IDLE_READERS: Final = 4
_WRITER_CACHE: Final = -65536
_MAGIC: Final = b"SQLite format 3\0"
_RETRY: Final = 0.01
_FORK_PATIENCE: Final = 1.0


def _close(connection: apsw.Connection) -> None:
    """Close; where the disk fails, the write-ahead log stays for the next who opens, and nothing is lost."""
    with contextlib.suppress(apsw.Error):
        connection.close()


@final
class _Role:
    """A connection that is used under its lock and re-opened when the generation has moved."""

    __slots__ = ("connection", "generation", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: apsw.Connection | None = None
        self.generation = -1


@final
class Connections:
    """All connections of one engine.

    Args:
        path: the database file; made, with its parents, if it is not there.
        busy_timeout: seconds to wait for another writer.
        vfs: the name of a registered apsw VFS; None is the operating system's.

    Raises:
        NotAStoreError: the file is something else; it was not touched.
        NewerSchemaError: it was written by a newer promptkeel.
        StoreUnavailableError: it cannot be opened.
    """

    def __init__(self, path: Path, *, busy_timeout: float, vfs: str | None = None) -> None:
        self.path = path
        self._busy_timeout = busy_timeout
        self._vfs = vfs
        self._state = threading.RLock()
        self._probe, self._short, self._writer = _Role(), _Role(), _Role()
        self._readers: list[tuple[apsw.Connection, int]] = []
        self._closed = False
        self._unsettled = False
        self._generation = 0
        self._next_look = 0.0
        self._identity: tuple[int, int] = (0, 0)
        self._schema = -1
        self._held_for_fork: list[threading.Lock] = []
        with self._state:
            self._open_file()
        _OPEN.add(self)

    # Roles

    def probe(self) -> tuple[int, int]:
        """A token; equal tokens: nothing has been committed in between, by anyone."""
        if time.monotonic() >= self._next_look:
            self._look()
        role = self._probe
        with role.lock:
            connection = role.connection if role.generation == self._generation else None
            try:
                if connection is None:
                    connection = self._reopen(role, query_only=True)
                return role.generation, connection.execute("PRAGMA data_version").get
            except apsw.Error as error:
                raise self.translate(error) from error

    @contextmanager
    def short(self) -> Iterator[apsw.Connection]:
        """The connection for reads of a row or a few."""
        self.check()
        role = self._short
        with role.lock, self.translated():
            yield self._current(role, query_only=True)

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A reader in a read transaction of its own."""
        connection, generation = self.lend()
        try:
            with self.translated():
                yield connection
        finally:
            self.take_back(connection, generation)

    def lend(self) -> tuple[apsw.Connection, int]:
        """A reader in a read transaction, and its generation; to be given to ``take_back``."""
        self.check()
        connection = None
        with self._state:
            generation = self._generation
            while self._readers and connection is None:
                candidate, made = self._readers.pop()
                if made == generation:
                    connection = candidate
                else:
                    _close(candidate)
        with self.translated():
            if connection is None:
                connection = self._connect(query_only=True)
            try:
                connection.execute("BEGIN")
                # The transaction holds still from this, its first read.
                self._check_schema(connection)
            except BaseException:
                _close(connection)
                raise
        return connection, generation

    def take_back(self, connection: apsw.Connection, generation: int) -> None:
        """End a reader's transaction and keep it for the next call, or close it."""
        with self._state:
            try:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            except apsw.Error:
                generation = -1
            if generation == self._generation and not self._closed and len(self._readers) < _IDLE_READERS:
                self._readers.append((connection, generation))
            else:
                _close(connection)

    def transact(self, work: Callable[[apsw.Connection], T], *, keep: bool = True) -> T:
        """What ``work`` answers, done in one write transaction that is committed, or rolled back where not ``keep``.

        Raises:
            CommitUnknownError: the disk failed at the commit itself.
            StoreUnavailableError: nothing was written.
        """
        with self.writing() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._check_schema(connection)
                answer = work(connection)
                if keep:
                    self._commit(connection)
                return answer
            finally:
                self._roll_back(connection)

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """The writer, for this thread alone."""
        self.check()
        role = self._writer
        if not role.lock.acquire(timeout=self._busy_timeout):
            raise self._busy()
        try:
            with self.translated():
                yield self._current(role, query_only=False)
        finally:
            role.lock.release()

    def _commit(self, connection: apsw.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except apsw.IOError as error:
            self._unsettled = True
            self._next_look = 0.0
            self._drop(self._writer)
            raise CommitUnknownError(
                f"the disk failed while {self.path} committed ({error}): the write may or may not be there; "
                "read it again to know"
            ) from error

    def _roll_back(self, connection: apsw.Connection) -> None:
        if self._writer.connection is not connection:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            self._drop(self._writer)

    def _drop(self, role: _Role) -> None:
        connection, role.connection = role.connection, None
        role.generation = -1
        if connection is not None:
            _close(connection)

    def _current(self, role: _Role, *, query_only: bool) -> apsw.Connection:
        if role.connection is not None and role.generation == self._generation:
            return role.connection
        return self._reopen(role, query_only=query_only)

    def _reopen(self, role: _Role, *, query_only: bool) -> apsw.Connection:
        if self._closed:
            raise self._is_closed()
        self._drop(role)
        role.connection = self._connect(query_only=query_only)
        role.generation = self._generation
        return role.connection

    def _connect(self, *, query_only: bool, create: bool = False) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        connection = apsw.Connection(str(self.path), flags=flags, vfs=self._vfs)
        try:
            connection.set_busy_timeout(int(self._busy_timeout * 1000))
            connection.pragma("synchronous", SYNCHRONOUS)
            connection.pragma("secure_delete", "ON")
            if query_only:
                connection.pragma("query_only", "ON")
            else:
                connection.pragma("cache_size", _WRITER_CACHE)
        except BaseException:
            _close(connection)
            raise
        return connection

    # The file

    def check(self) -> None:
        """Refuse a closed store; settle an unknown commit; notice a replaced file."""
        if time.monotonic() >= self._next_look:
            self._look()

    def _look(self) -> None:
        with self._state:
            if self._closed:
                raise self._is_closed()
            try:
                if self._unsettled:
                    self._settle()
                if self._identify() != self._identity:
                    self._open_file()
            except apsw.Error as error:
                raise self.translate(error) from error
            self._next_look = time.monotonic() + LOOK_INTERVAL

    def _check_schema(self, connection: apsw.Connection) -> None:
        """Notice that somebody has dropped a trigger: heads would stand still from then on."""
        version = connection.pragma("schema_version")
        if version != self._schema:
            check_triggers(connection, str(self.path))
            self._schema = version

    def _identify(self) -> tuple[int, int]:
        try:
            found = self.path.stat()
        except OSError as error:
            raise StoreUnavailableError(
                f"{self.path} is gone: put it back, or open the store again ({error.strerror})"
            ) from error
        return found.st_dev, found.st_ino

    def _open_file(self) -> None:
        """Make or check the file, bring its schema up to date, and let every role re-open."""
        try:
            fresh = self._read_header()
            if fresh:
                self._make_folder()
            connection = self._connect(query_only=False, create=fresh)
            try:
                self._prepare(connection)
            finally:
                _close(connection)
            self._identity = self._identify()
            self._schema = -1
        except apsw.Error as error:
            raise self._translate_opening(error) from error
        self._generation += 1

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
        # Closing a file descriptor of its own would drop the locks that SQLite holds in this process.
        file = apsw.VFSFile(self._vfs or "", str(self.path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
        try:
            header = file.xRead(min(size, 100), 0)
        finally:
            file.xClose()
        if not header.startswith(_MAGIC):
            raise NotAStoreError(f"{self.path} is not a SQLite database; it was not touched")
        if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
            raise NotAStoreError(f"{self.path} is another program's SQLite database; it was not touched")
        return False

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreReadOnlyError(f"the folder {self.path.parent} cannot be made: {error.strerror}") from error

    def _prepare(self, connection: apsw.Connection) -> None:
        if connection.pragma("application_id") != APPLICATION_ID:
            # Before write-ahead logging begins, so that the header in the file itself always tells.
            connection.execute("BEGIN EXCLUSIVE")
            if connection.pragma("application_id") != APPLICATION_ID:
                connection.pragma("application_id", APPLICATION_ID)
            connection.execute("COMMIT")
        deadline = time.monotonic() + self._busy_timeout
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

    def _settle(self) -> None:
        """Commit over what a failed commit may have left in the write-ahead log, so that it can never come back."""
        with self._writer.lock:
            self._drop(self._writer)
            connection = self._connect(query_only=False)
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(
                    "INSERT INTO meta(key, value) VALUES ('settled', 1) "
                    "ON CONFLICT (key) DO UPDATE SET value = value + 1"
                )
                connection.execute("COMMIT")
            except apsw.Error as error:
                raise CommitUnknownError(
                    f"the disk still fails ({error}): whether the last write to {self.path} is there is not settled"
                ) from error
            finally:
                _close(connection)
            self._unsettled = False

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
                return self._busy()
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
                return self._is_closed()
        return StoreDamagedError(f"{self.path} is not as it should be ({error}); restore a backup")

    def _translate_opening(self, error: apsw.Error) -> PromptkeelError:
        if isinstance(error, apsw.NotADBError | apsw.CorruptError):
            return NotAStoreError(f"{self.path} is no promptkeel store ({error}); it was not touched")
        return self.translate(error)

    def _busy(self) -> StoreBusyError:
        return StoreBusyError(
            f"another writer held {self.path} for longer than {self._busy_timeout:g} s: retry, or raise busy_timeout"
        )

    def _is_closed(self) -> StoreClosedError:
        return StoreClosedError(f"the store {self.path} is closed")

    # The end

    def close(self) -> None:
        """Close every connection; readers that are lent, when they come back."""
        with self._state:
            self._closed = True
            self._next_look = 0.0
            self._generation += 1
            readers, self._readers = self._readers, []
        for connection, _ in readers:
            _close(connection)
        for role in (self._probe, self._short, self._writer):
            with role.lock:
                self._drop(role)
        _OPEN.discard(self)

    def before_fork(self) -> None:
        """Close what is idle, so that the child inherits no locks, and hold still until the fork is over."""
        locks: list[Any] = [self._state]
        self._state.acquire()
        for connection, _ in self._readers:
            _close(connection)
        self._readers.clear()
        for role in (self._probe, self._short, self._writer):
            if role.lock.acquire(timeout=_FORK_PATIENCE):
                locks.append(role.lock)
                self._drop(role)
        self._held_for_fork = locks

    def after_fork(self) -> None:
        """Go on; every role re-opens when it is used."""
        self._generation += 1
        locks, self._held_for_fork = self._held_for_fork, []
        for lock in reversed(locks):
            lock.release()

    def after_fork_in_child(self) -> None:
        """Begin anew: what was in use in the parent is never touched here."""
        self._generation += 1
        roles = (self._probe, self._short, self._writer)
        _ABANDONED.extend(role.connection for role in roles if role.connection is not None)
        self._state = threading.RLock()
        self._probe, self._short, self._writer = _Role(), _Role(), _Role()
        self._held_for_fork = []


_OPEN: weakref.WeakSet[Connections] = weakref.WeakSet()
_ABANDONED: list[apsw.Connection] = []
"""Connections that a parent was using at a fork: closing them in the child would touch the parent's transactions."""


def _all(action: Callable[[Connections], None]) -> Callable[[], None]:
    def act() -> None:
        for connections in list(_OPEN):
            action(connections)

    return act


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_all(Connections.before_fork),
        after_in_parent=_all(Connections.after_fork),
        after_in_child=_all(Connections.after_fork_in_child),
    )
