"""A stock SQLite client in a process of its own.

The standard library carries another SQLite than apsw does. Two of them in one process do not see each other's locks,
and each undoes the other's whenever it closes the file, which damages the file. So a stock client that stands for
"somebody with a shell" must be another process, as that somebody is.
"""

from __future__ import annotations

import contextlib
import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self


class Answer(list[Any]):
    """The rows of a statement."""

    def fetchall(self) -> list[Any]:
        return list(self)

    def fetchone(self) -> Any:
        return self[0] if self else None


class StockClient:
    """The standard library's SQLite: each statement commits by itself, errors are the module's own.

    ``connect`` and ``execute`` hold a connection, as a shell does; ``run`` opens one for a single statement.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def connect(self, path: Path) -> Self:
        """Hold a connection to a file."""
        self._ask("connect", str(path))
        return self

    def execute(self, text: str, arguments: tuple[Any, ...] = ()) -> Answer:
        """Run a statement on the connection that is held."""
        return Answer(self._ask("execute", (text, arguments)))

    def close(self) -> None:
        """Close the database; another can be connected to."""
        self._ask("close", None)

    def run(self, file: Path, statement: str, arguments: Sequence[Any] = ()) -> int:
        """Run one statement on a connection of its own; how many rows it changed."""
        changed: int = self._ask("run", (str(file), statement, list(arguments)))
        return changed

    def end(self) -> None:
        """End the process."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _ask(self, action: str, arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((action, arguments), self._process.stdin)
        self._process.stdin.flush()
        answer = pickle.load(self._process.stdout)  # noqa: S301 - from a child of this very test
        if isinstance(answer, sqlite3.Error):
            raise answer
        return answer


class _Server:
    """What the child does."""

    connection: sqlite3.Connection

    def connect(self, path: str) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=5)

    def execute(self, statement: tuple[str, tuple[Any, ...]]) -> list[Any]:
        return self.connection.execute(*statement).fetchall()

    def close(self, _: None) -> None:
        self.connection.close()

    def run(self, asked: tuple[str, str, list[Any]]) -> int:
        path, statement, arguments = asked
        with contextlib.closing(sqlite3.connect(path)) as client, client:
            return client.execute(statement, arguments).rowcount


def _serve() -> None:
    server = _Server()
    while True:
        try:
            action, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301 - from this very test
        except EOFError:
            return
        answer: Any
        try:
            answer = getattr(server, action)(arguments)
        except sqlite3.Error as error:
            answer = error
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
