"""The connections to one SQLite file: one role each, and the file kept in sight.

Roles never share a connection. The *probe* never writes and never holds a transaction, since SQLite's ``data_version``
says nothing about either. The *short* connection serves reads of a row or a few, from an event loop. *Readers* scan,
each for one call at a time. The one *writer* is under a lock. Every role re-opens lazily when the generation moves:
after a fork, and when the file was replaced by another (its device and inode are looked at, at most every
``LOOK_INTERVAL``).

Before a fork all idle connections are closed: SQLite keeps one record of its locks per process and file, and a child
that inherited it would believe in locks that it does not have.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, final

import apsw

from promptkeel.errors import CommitUnknownError
from promptkeel.store.sqlite_file import DatabaseFile, Identity, close
from promptkeel.store.sqlite_schema import check_triggers

T = TypeVar("T")

LOOK_INTERVAL: Final = 0.2
"""Seconds after which a file replaced by rename is noticed, at most."""
_IDLE_READERS: Final = 4
_FORK_PATIENCE: Final = 1.0


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
        file: made, with its parents, if it is not there.

    Raises:
        NotAStoreError: the file is something else; it was not touched.
        NewerSchemaError: it was written by a newer promptkeel.
        StoreUnavailableError: it cannot be opened.
    """

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self.translated = file.translated
        self._state = threading.RLock()
        self._probe, self._short, self._writer = _Role(), _Role(), _Role()
        self._readers: list[tuple[apsw.Connection, int]] = []
        self._closed = False
        self._unsettled = False
        self._generation = 0
        self._next_look = 0.0
        self._identity: Identity = (0, 0)
        self._schema = -1
        self._held_for_fork: list[threading.Lock] = []
        with self._state:
            self._open_file()
        _OPEN.add(self)

    # Roles

    def probe(self) -> tuple[int, int]:
        """A token; equal tokens: nothing has been committed in between, by anyone."""
        if self._unsettled or time.monotonic() >= self._next_look:
            self._look()
        role = self._probe
        with role.lock:
            connection = role.connection if role.generation == self._generation else None
            try:
                if connection is None:
                    connection = self._reopen(role, query_only=True)
                return role.generation, connection.execute("PRAGMA data_version").get
            except apsw.Error as error:
                raise self._file.translate(error) from error

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

    @contextmanager
    def auditing(self) -> Iterator[apsw.Connection]:
        """A connection of its own in a read transaction, also where a store could not be trusted any more."""
        self.check()
        with self.translated():
            connection = self._file.connect(query_only=True)
            try:
                connection.execute("BEGIN")
                yield connection
            finally:
                close(connection)

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
                    close(candidate)
        with self.translated():
            if connection is None:
                connection = self._file.connect(query_only=True)
            try:
                connection.execute("BEGIN")
                # The transaction holds still from this, its first read.
                self._check_schema(connection)
            except BaseException:
                close(connection)
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
                close(connection)

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
        if not role.lock.acquire(timeout=self._file.busy_timeout):
            raise self._file.busy()
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
            self._drop(self._writer)
            raise CommitUnknownError(
                f"the disk failed while {self._file.path} committed ({error}): the write may or may not be there; "
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
            close(connection)

    def _current(self, role: _Role, *, query_only: bool) -> apsw.Connection:
        if role.connection is not None and role.generation == self._generation:
            return role.connection
        return self._reopen(role, query_only=query_only)

    def _reopen(self, role: _Role, *, query_only: bool) -> apsw.Connection:
        if self._closed:
            raise self._file.is_closed()
        self._drop(role)
        role.connection = self._file.connect(query_only=query_only)
        role.generation = self._generation
        return role.connection

    # The file

    def check(self) -> None:
        """Refuse a closed store; settle an unknown commit; notice a replaced file."""
        if self._unsettled or time.monotonic() >= self._next_look:
            self._look()

    def _look(self) -> None:
        with self._state:
            if self._closed:
                raise self._file.is_closed()
            if self._unsettled:
                with self._writer.lock:
                    self._drop(self._writer)
                    self._file.settle()
                    self._unsettled = False
            if self._file.identify() != self._identity:
                self._open_file()
            self._next_look = time.monotonic() + LOOK_INTERVAL

    def _open_file(self) -> None:
        self._identity = self._file.prepare()
        self._schema = -1
        self._generation += 1

    def _check_schema(self, connection: apsw.Connection) -> None:
        """Notice that somebody has dropped a trigger: heads would stand still from then on."""
        version = connection.pragma("schema_version")
        if version != self._schema:
            check_triggers(connection, str(self._file.path))
            self._schema = version

    # The end

    def close(self) -> None:
        """Close every connection; readers that are lent, when they come back."""
        with self._state:
            self._closed = True
            self._next_look = 0.0
            self._generation += 1
            readers, self._readers = self._readers, []
        for connection, _ in readers:
            close(connection)
        for role in (self._probe, self._short, self._writer):
            with role.lock:
                self._drop(role)
        _OPEN.discard(self)

    def before_fork(self) -> None:
        """Close what is idle, so that the child inherits no locks, and hold still until the fork is over."""
        locks: list[Any] = [self._state]
        self._state.acquire()
        for connection, _ in self._readers:
            close(connection)
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
