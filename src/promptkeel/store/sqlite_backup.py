"""Whole SQLite files, page by page, through SQLite's own backup: out of a live store, and into one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw

from promptkeel.store.sqlite_file import driver_of, open_database

_PAGES: Final = 256
"""As many pages are copied between two reports of progress."""


def copy_pages(source: apsw.Connection, path: Path, on_progress: Callable[[int, int], object]) -> None:
    """Copy a database to a new file.

    Args:
        source: in a read transaction, so that no writer makes the copy begin anew.
        path: no file is there.
        on_progress: called with how many pages are done, and how many there are.
    """
    with closing(open_database(path, create=True, driver=driver_of(source))) as target:
        target.pragma("synchronous", "FULL")
        with target.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(_PAGES)
                on_progress(backup.page_count - backup.remaining, backup.page_count)


def take_pages(target: apsw.Connection, path: Path) -> None:
    """Replace all that a database holds by what a file holds, in one transaction of the database's.

    Args:
        target: in no transaction; readers of it keep what they see until they read again.
        path: a database in the same page size.
    """
    with closing(open_database(path, driver=driver_of(target))) as source:
        source.execute("BEGIN")
        with target.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(-1)


def copy_file(source: Path, path: Path) -> None:
    """Copy a database that is in nobody's hands to a new file."""
    with closing(open_database(source)) as connection:
        connection.execute("BEGIN")
        copy_pages(connection, path, lambda *_: None)
