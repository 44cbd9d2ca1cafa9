"""What is on the disk of a SQLite store, and what a stock client reads there; each by another process.

To open and close the file in this process would drop the locks that SQLite holds here.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from store.stock_client import StockClient


def stored_bytes(path: Path) -> bytes:
    """Every byte of the file, its write-ahead log and its shared memory."""
    files = sorted(str(file) for file in path.parent.iterdir() if file.name.startswith(path.name))
    return subprocess.run(["cat", *files], capture_output=True, check=True).stdout


def left_on_disk(path: Path, tokens: Iterable[str]) -> list[str]:
    """Those of the tokens that are on the disk, whole or in part."""
    found = stored_bytes(path)
    return [token for token in tokens if token.encode() in found or token.encode()[:10] in found]


def left_in_tables(client: StockClient, tokens: Iterable[str]) -> list[str]:
    """Those of the tokens that any SQL read shows."""
    tables = [name for (name,) in client.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    rows = [repr(client.execute(f'SELECT * FROM "{table}"').fetchall()) for table in tables]
    shown = "".join(rows)
    return [token for token in tokens if token in shown]
