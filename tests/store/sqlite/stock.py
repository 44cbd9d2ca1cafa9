"""A stock SQLite client in a process of its own.

The standard library carries another SQLite than apsw does. Two of them in one process do not see each other's locks, so
a stock client that stands for "somebody with a shell" must be another process, as that somebody is.
"""

from __future__ import annotations

import pickle
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

_SERVE = """
import pickle, sqlite3, sys
connection = None
while True:
    try:
        action, arguments = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    try:
        if action == "connect":
            connection = sqlite3.connect(arguments, isolation_level=None, timeout=5)
            answer = []
        elif action == "close":
            connection.close()
            answer = []
        else:
            answer = connection.execute(*arguments).fetchall()
    except sqlite3.Error as error:
        answer = error
    pickle.dump(answer, sys.stdout.buffer)
    sys.stdout.flush()
"""


class Answer(list[Any]):
    """The rows of a statement."""

    def fetchall(self) -> list[Any]:
        return list(self)

    def fetchone(self) -> Any:
        return self[0] if self else None


class StockClient:
    """The standard library's SQLite: each statement commits by itself, errors are the module's own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=-1
        )

    def connect(self, path: Path) -> StockClient:
        self._ask("connect", str(path))
        return self

    def execute(self, text: str, arguments: tuple[Any, ...] = ()) -> Answer:
        return self._ask("execute", (text, arguments))

    def close(self) -> None:
        """Close the database; another can be connected to."""
        self._ask("close", None)

    def _ask(self, action: str, arguments: Any) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((action, arguments), self._process.stdin)
        self._process.stdin.flush()
        answer = pickle.load(self._process.stdout)  # noqa: S301 - from a child of this very test
        if isinstance(answer, sqlite3.Error):
            raise answer
        return Answer(answer)

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
