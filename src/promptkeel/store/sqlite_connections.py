"""The connections to one SQLite file: one role each, and the file kept in sight.

Roles never share a connection. The *probe* never writes and never holds a transaction, since SQLite's ``data_version``
says nothing about either. The *short* connection serves reads of a row or a few, from an event loop. *Readers* scan,
each for one call at a time. The one *writer* is under a lock. Every role re-opens lazily when the generation moves:
after a fork, and when the file was replaced by another (its device and inode are looked at, at most every
``LOOK_INTERVAL``, and whenever a connection is made).

A file that replaces another is opened only when the write-ahead log of the old one is out of its way. A log that was
taken away is put back into the file where nobody can have written since; where somebody may have, what is there is
opened again and an error says so.

Heads say nothing about what was written while triggers were off. So they carry what the schema is (``Heads.schema``):
whenever that has moved, the triggers are compared with what they must be, and heads from before equal none from after.

Before a fork readers are waited for and all idle connections are closed: SQLite keeps one record of its locks per
process and file, and a child that inherited it would believe in locks that it does not have.
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
import attrs

from promptkeel.errors import CommitUnknownError, StoreUnavailableError
from promptkeel.store.forking import FORK_PATIENCE, ForkGate
from promptkeel.store.sqlite_companions import identity_of
from promptkeel.store.sqlite_file import DatabaseFile, FileMovedError, close
from promptkeel.store.sqlite_schema import check_triggers

T = TypeVar("T")

LOOK_INTERVAL: Final = 0.2
"""Seconds after which a file replaced by rename is noticed, at most."""
_IDLE_READERS: Final = 4
_LOOK_PATIENCE: Final = 1.0


@final
class _Role:
    """A connection that is used under its lock and re-opened when the generation has moved."""

    __slots__ = ("connection", "generation", "holder", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holder: int | None = None
        self.connection: apsw.Connection | None = None
        self.generation = -1


@final
@attrs.frozen(eq=False)
class Loan:
    """A reader in a read transaction.

    Attributes:
        connection: the reader.
        generation: of the connections when it was lent.
        schema: what its heads are to carry.
    """

    connection: apsw.Connection
    generation: int
    schema: int


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
        self.file = file
        self.translated = file.translated
        self._state = threading.RLock()
        self._probe, self._short, self._writer = _Role(), _Role(), _Role()
        self._readers: list[tuple[apsw.Connection, int]] = []
        self._lent: dict[int, apsw.Connection] = {}
        self.gate = ForkGate()
        self._closed = False
        self._unsettled = False
        self._generation = 0
        self._next_look = 0.0
        self._schema = self._first_schema = -1
        self._held_for_fork: list[threading.Lock] = []
        self._refuse_two_libraries()
        with self._state:
            self._open_file()
        _OPEN.add(self)

    def _refuse_two_libraries(self) -> None:
        try:
            found = identity_of(self.file.path)
        except OSError:
            # What is wrong with the path is said by whoever opens it.
            return
        for other in list(_OPEN):
            if found is not None and other.file.identity == found and other.file.driver != self.file.driver:
                raise StoreUnavailableError(
                    f"{self.file.path} is open in this process with driver={other.file.driver}: two copies of SQLite "
                    "in one process undo each other's locks and damage the file; open it with the same driver"
                )

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
                raise self.file.translate(error) from error
            except FileMovedError:
                self._next_look = 0.0
        return self.probe()

    @contextmanager
    def short(self) -> Iterator[apsw.Connection]:
        """The connection for reads of a row or a few."""
        with self._taken(self._short, query_only=True, patience=-1) as connection:
            yield connection

    @contextmanager
    def _taken(self, role: _Role, *, query_only: bool, patience: float) -> Iterator[apsw.Connection]:
        """A role's connection, for this thread alone."""
        connection = None
        while connection is None:
            self.check()
            if not role.lock.acquire(timeout=patience):
                raise self.file.busy()
            try:
                with self.translated():
                    connection = self._current(role, query_only=query_only)
            except FileMovedError:
                self._next_look = 0.0
            finally:
                if connection is None:
                    role.lock.release()
        role.holder = threading.get_ident()
        try:
            with self.translated():
                yield connection
        finally:
            role.holder = None
            role.lock.release()

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A reader in a read transaction of its own."""
        with self.lent() as loan:
            yield loan.connection

    @contextmanager
    def lent(self) -> Iterator[Loan]:
        """As ``reading``, with what heads are to carry."""
        with self.gate():
            loan = self.lend()
            try:
                with self.translated():
                    yield loan
            finally:
                self.take_back(loan)

    @contextmanager
    def auditing(self) -> Iterator[apsw.Connection]:
        """A connection of its own in a read transaction, also where a store could not be trusted any more."""
        with self.gate(), self.translated():
            connection = self._new_reader()
            try:
                connection.execute("BEGIN")
                yield connection
            finally:
                close(connection)

    def _new_reader(self) -> apsw.Connection:
        while True:
            self.check()
            try:
                return self.file.connect(query_only=True)
            except FileMovedError:
                self._next_look = 0.0

    def lend(self) -> Loan:
        """A reader in a read transaction; to be given to ``take_back``."""
        with self.gate(), self.translated():
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
            if connection is None:
                connection = self._new_reader()
            self._lent[id(connection)] = connection
            try:
                connection.execute("BEGIN")
                # The transaction holds still from this, its first read.
                return Loan(connection, generation, self.check_schema(connection))
            except BaseException:
                del self._lent[id(connection)]
                close(connection)
                raise

    def take_back(self, loan: Loan) -> None:
        """End a reader's transaction and keep it for the next call, or close it."""
        connection, generation = loan.connection, loan.generation
        with self._state:
            self._lent.pop(id(connection), None)
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
                self.check_schema(connection)
                answer = work(connection)
                if keep:
                    self._commit(connection)
                return answer
            finally:
                self._roll_back(connection)

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """The writer, for this thread alone."""
        with self._taken(self._writer, query_only=False, patience=self.file.busy_timeout) as connection:
            yield connection

    def _commit(self, connection: apsw.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except apsw.IOError as error:
            self._unsettled = True
            self._drop(self._writer)
            raise CommitUnknownError(
                f"the disk failed while {self.file.path} committed ({error}): the write may or may not be there; "
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
            raise self.file.is_closed()
        self._drop(role)
        role.connection = self.file.connect(query_only=query_only)
        role.generation = self._generation
        return role.connection

    # The file

    def check(self, *, now: bool = False) -> None:
        """Refuse a closed store; settle an unknown commit; notice a replaced file, ``now`` or at the next interval."""
        if now or self._unsettled or time.monotonic() >= self._next_look:
            self._look()

    def _look(self) -> None:
        with self._state:
            if self._closed:
                raise self.file.is_closed()
            if self.file.identify() != self.file.identity:
                self._open_file()
            elif self._unsettled:
                with self._writer.lock:
                    self._drop(self._writer)
                    self.file.settle()
            elif self._holds_any() and self.file.companions.have_moved():
                self._recover_log()
            self._unsettled = False
            self._next_look = time.monotonic() + LOOK_INTERVAL

    def _roles(self) -> tuple[_Role, ...]:
        return self._probe, self._short, self._writer

    def _holds_any(self) -> bool:
        """Whether any connection of this generation is open."""
        held = any(role.connection is not None and role.generation == self._generation for role in self._roles())
        return held or bool(self._lent) or any(made == self._generation for _, made in self._readers)

    def _open_file(self) -> None:
        """Open the file that is there now; what is still open of one before it is let go."""
        if self.file.identity is not None:
            held = self._holds_any()
            # What is in use goes on with the old file, and is dropped when it is back.
            self._let_go()
            self.file.companions.leave(held=held)
        self._generation += 1
        while True:
            try:
                connection = self.file.prepare()
                break
            except FileMovedError:
                continue
        self._schema = -1
        if self._writer.lock.acquire(blocking=False):
            # Kept, so that from here on it is certain which write-ahead log is this file's.
            self._drop(self._writer)
            self._writer.connection, self._writer.generation = connection, self._generation
            self._writer.lock.release()
        else:
            close(connection)

    def _let_go(self) -> None:
        """Close what is not in use; before that, put the log into the file that all this has open."""
        free = [role for role in self._roles() if role.lock.acquire(blocking=False)]
        connections = [role.connection for role in free if role.connection is not None]
        connections += [connection for connection, _ in self._readers]
        _put_back(connections)
        for connection in connections:
            close(connection)
        self._readers.clear()
        for role in free:
            role.connection = None
            role.lock.release()

    def _recover_log(self) -> None:
        """Go on after somebody has taken the write-ahead log away, or put another in its place.

        Raises:
            StoreDamagedError: what was in it may be lost.
        """
        held = [role for role in self._roles() if role.lock.acquire(timeout=_LOOK_PATIENCE)]
        try:
            if not self.file.companions.have_moved():
                return
            if self._lent or len(held) < len(self._roles()):
                raise self.file.has_lost_its_log()
            connections = [role.connection for role in held if role.connection is not None]
            connections += [connection for connection, _ in self._readers]
            # As long as one of these is open nobody else's closing takes a log away: where there is none, there was
            # none since, and nobody can have written into one.
            saved = self.file.companions.has_no_log() and _put_back(connections)
            for connection in connections:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                close(connection)
            self._readers.clear()
            for role in held:
                role.connection = None
            if saved:
                self.file.companions.forget_index()
            self._generation += 1
            if not saved:
                raise self.file.has_lost_its_log()
        finally:
            for role in held:
                role.lock.release()

    def check_schema(self, connection: apsw.Connection) -> int:
        """What the heads are to carry that this connection reads next.

        Raises:
            StoreDamagedError: a trigger is not as it must be, so that heads may stand still while rows change.
        """
        version: int = connection.execute("PRAGMA schema_version").get
        if version != self._schema:
            check_triggers(connection, str(self.file.path))
            if self._first_schema < 0:
                self._first_schema = version
            self._schema = version
        return 0 if version == self._first_schema else version

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
        for role in self._roles():
            with role.lock:
                self._drop(role)
        _OPEN.discard(self)

    def before_fork(self) -> None:
        """Close what is idle, so that the child inherits no locks, and hold still until the fork is over."""
        self.gate.shut()
        locks: list[Any] = [self._state]
        self._state.acquire()
        for connection, _ in self._readers:
            close(connection)
        self._readers.clear()
        for role in self._roles():
            mine = role.holder == threading.get_ident()
            if role.lock.acquire(timeout=0 if mine else FORK_PATIENCE):
                locks.append(role.lock)
                self._drop(role)
        self._held_for_fork = locks

    def after_fork(self) -> None:
        """Go on; every role re-opens when it is used."""
        self._generation += 1
        locks, self._held_for_fork = self._held_for_fork, []
        for lock in reversed(locks):
            lock.release()
        self.gate.open()

    def after_fork_in_child(self) -> None:
        """Begin anew: what was in use in the parent is never touched here."""
        self._generation += 1
        _ABANDONED.extend(role.connection for role in self._roles() if role.connection is not None)
        _ABANDONED.extend(self._lent.values())
        self._lent = {}
        self.gate = ForkGate()
        self._state = threading.RLock()
        self._probe, self._short, self._writer = _Role(), _Role(), _Role()
        self._held_for_fork = []


def _put_back(connections: list[apsw.Connection]) -> bool:
    """Whether all that is in the log which these connections have open is in the file now; they are closed next."""
    try:
        connections[0].set_busy_timeout(0)
        connections[0].wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (IndexError, apsw.Error):
        return False
    return True


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
