"""Hearing of commits: one connection of an engine that listens, in a thread that is there only while somebody watches.

It holds a lease, without which no commit sends a notification, and rings at whoever watches. Of commits that come
together only one may have notified: so a ring is followed by a second one, a moment later. Everything here may fail or
be silent, and nobody is wrong for it: watchers poll anyway. A lost connection is made anew, after ever longer pauses.

What a pooler hands out is never listened on: in transaction mode the session that listens is somebody else's a moment
later. A pooler gives its clients a process number of its own making, by which it is told.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
import weakref
from typing import Final, final

import psycopg

from promptkeel.errors import StoreError
from promptkeel.forks import after_fork
from promptkeel.store.base import Rings
from promptkeel.store.postgres_connections import Connection, Connections, abandon
from promptkeel.store.postgres_schema import channel, quoted

LEASE: Final = 30.0
"""Seconds for which commits notify, after the last time somebody said that they listen."""
_RENEWAL: Final = LEASE / 3
_SETTLING: Final = 0.02
"""Seconds from a notification to the second ring; what comes in between is not rung for."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0
"""Between two tries to connect, in seconds; each pause is twice the one before."""
_PATIENCE: Final = 5
"""Seconds after which a server that does not answer is lost, and that closing waits for the thread."""

_IS_DIRECT: Final = "SELECT pg_backend_pid()"
_RENEW: Final = """
UPDATE {S}.meta SET value = greatest(value::float8, extract(epoch FROM clock_timestamp()) + <LEASE>)::text
WHERE key = 'watched_until'"""
_NEVER: Final = (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction)
"""What no later try would change."""


class _Doorbell:
    """A pipe that ends a wait; rung from any thread, and from a garbage collection in any."""

    def __init__(self) -> None:
        self.inside, self._outside = socket.socketpair()
        for end in (self.inside, self._outside):
            end.settimeout(0)

    def ring(self) -> None:
        """End the wait. A full pipe rings already, and a closed one has nobody inside."""
        with contextlib.suppress(OSError):
            self._outside.send(b"!")

    def quiet(self) -> None:
        """Take what was rung."""
        with contextlib.suppress(BlockingIOError):
            while self.inside.recv(64):
                pass

    def close(self) -> None:
        """Nobody waits any more."""
        self.inside.close()
        self._outside.close()


@final
class Listener:
    """Who listens for one engine.

    Args:
        connections: makes the connection; it is beside the pool.
        schema: the store's.
        is_wanted: whether to listen at all.
    """

    def __init__(self, connections: Connections, schema: str, *, is_wanted: bool) -> None:
        self._connections = connections
        self._channel = channel(schema)
        self._renew = _RENEW.replace("{S}", quoted(schema)).replace("<LEASE>", str(LEASE))
        self._is_wanted = is_wanted
        self._begin_anew()
        after_fork(self, Listener._forget)

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._audience: weakref.WeakSet[Rings] = weakref.WeakSet()
        self._thread: threading.Thread | None = None
        self._doorbell: _Doorbell | None = None
        self._connection: Connection | None = None
        self.is_listening = False

    def _forget(self) -> None:
        """In a forked child, where the thread is not: those who watch there come anew."""
        if self._connection is not None:
            abandon(self._connection)
        if self._doorbell is not None:
            self._doorbell.close()
        self._begin_anew()

    def hear(self, who: Rings) -> None:
        """Ring at ``who`` after commits, for as long as it lives."""
        with self._lock:
            if not self._is_wanted:
                return
            if self._doorbell is None:
                # Where no thread can be had, as while the interpreter ends, the poll has to do.
                with contextlib.suppress(OSError, RuntimeError):
                    self._start()
            if self._doorbell is not None:
                # In this order: of a life that ends, the newest reference is told first, and the set must know by then.
                weakref.finalize(who, self._doorbell.ring).atexit = False
                self._audience.add(who)

    def _start(self) -> None:
        doorbell = _Doorbell()
        thread = threading.Thread(target=self._stay, args=(doorbell,), name="promptkeel-listen", daemon=True)
        try:
            # It waits for the lock first.
            thread.start()
        except RuntimeError:
            doorbell.close()
            raise
        self._doorbell, self._thread = doorbell, thread

    def close(self) -> None:
        """Listen no more; back once the thread has ended, unless the server keeps it for longer than is waited for."""
        with self._lock:
            self._is_wanted = False
            thread, doorbell = self._thread, self._doorbell
        if doorbell is not None:
            doorbell.ring()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_PATIENCE)

    # The thread

    def _stay(self, doorbell: _Doorbell) -> None:
        pause = _FIRST_PAUSE
        while self._goes_on(doorbell):
            try:
                with contextlib.closing(self._connections.connect(tcp_user_timeout=_PATIENCE * 1000)) as connection:
                    self._connection = connection
                    if not self._begin(connection):
                        self._give_up()
                        continue
                    pause = _FIRST_PAUSE
                    self._ring()
                    self._listen(connection, doorbell)
            except _NEVER:
                self._give_up()
            except (StoreError, psycopg.Error, OSError):
                self._wait(doorbell, pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            finally:
                self.is_listening = False
                self._connection = None

    def _goes_on(self, doorbell: _Doorbell) -> bool:
        """Whether anybody is to be rung at; where not, the thread ends, and the next one begins anew."""
        with self._lock:
            if self._is_wanted and self._audience:
                return True
            self._thread = self._doorbell = None
            doorbell.close()
        return False

    def _give_up(self) -> None:
        with self._lock:
            self._is_wanted = False

    def _begin(self, connection: Connection) -> bool:
        """Listen, where this is the server's own session."""
        row = connection.execute(_IS_DIRECT).fetchone()
        if row != (connection.info.backend_pid,):
            return False
        connection.execute(f"SET statement_timeout = '{_PATIENCE}s'")
        connection.execute(f"LISTEN {self._channel}")
        connection.execute(self._renew)
        self.is_listening = True
        return True

    def _listen(self, connection: Connection, doorbell: _Doorbell) -> None:
        renewed = time.monotonic()
        while self._wait(doorbell, renewed + _RENEWAL - time.monotonic(), connection):
            if self._heard(connection):
                self._ring()
                if not self._wait(doorbell, _SETTLING):
                    return
                self._heard(connection)
                self._ring()
            if time.monotonic() >= renewed + _RENEWAL:
                connection.execute(self._renew)
                renewed = time.monotonic()

    @staticmethod
    def _heard(connection: Connection) -> bool:
        """Whether there were notifications; they are taken."""
        return bool(list(connection.notifies(timeout=0)))

    def _wait(self, doorbell: _Doorbell, seconds: float, connection: Connection | None = None) -> bool:
        """Wait until something comes or the time is over; whether to go on."""
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            for source in (doorbell.inside, connection):
                if source is not None:
                    selector.register(source, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(max(0.0, end - time.monotonic()))]
                if doorbell.inside in ready:
                    doorbell.quiet()
                with self._lock:
                    if not self._is_wanted or not self._audience:
                        return False
                if not ready or connection in ready:
                    return True

    def _ring(self) -> None:
        with self._lock:
            audience = list(self._audience)
        for who in audience:
            who.ring()
