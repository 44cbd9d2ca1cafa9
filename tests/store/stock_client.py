"""A stock SQLite client in a process of its own.

It must not be this process: two copies of SQLite in one process undo each other's file locks whenever either closes the
file, and the file is damaged.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self


class StockClient:
    """Runs statements with the standard module, each on a connection and in a transaction of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def run(self, file: Path, statement: str, arguments: Sequence[Any] = ()) -> int:
        """Run one statement and commit; how many rows it changed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(file), statement, list(arguments)]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if isinstance(answer, str):
            raise sqlite3.DatabaseError(answer)
        changed: int = answer
        return changed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def _serve() -> None:
    for line in sys.stdin:
        file, statement, arguments = json.loads(line)
        answer: int | str
        try:
            with contextlib.closing(sqlite3.connect(file)) as client, client:
                answer = client.execute(statement, arguments).rowcount
        except sqlite3.Error as error:
            answer = str(error)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
