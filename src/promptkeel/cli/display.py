"""What goes to the screen: tables and colour on a terminal, plain tab-separated lines elsewhere, or one JSON document.

Everything that is not a prompt or an export is made printable first: stored text must not steer a terminal.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Literal, Self, final

import attrs
import click
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from promptkeel.errors import PromptkeelError
from promptkeel.instants import format_date, format_instant
from promptkeel.model import MemoryNode

_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)
_PATIENCE: Final = 1.0
"""Seconds of work before there is a progress bar."""
_READABLE: Final = 16
"""As many columns a value that goes on in the next line needs to be read at all."""


class OutputError(PromptkeelError):
    """Standard output does not take what the command says."""


def printable(text: str) -> str:
    """Text with everything that could steer a terminal or hide itself spelled as escapes."""
    return _UNPRINTABLE.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


@contextmanager
def writing() -> Iterator[None]:
    """Around everything that writes to standard output.

    Raises:
        OutputError: it takes no more.
        BrokenPipeError: whoever reads it has gone.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(
            f"cannot write to standard output: {error.strerror or error}; what the command changed stands"
        ) from error


def put_bytes(content: bytes) -> None:
    """Bytes to standard output, as they are."""
    with writing():
        sys.stdout.flush()
        rest = memoryview(content)
        while rest:  # an unbuffered stream may take a part
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.buffer.flush()


def put_document(document: object) -> None:
    """One JSON document, in UTF-8."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    put_bytes(text.encode(errors="backslashreplace") + b"\n")


def put_line(text: str) -> None:
    """One line for people on standard output."""
    put_bytes(printable(text).encode() + b"\n")


def put_notice(text: str) -> None:
    """One line on standard error, under the program's name."""
    with suppress(OSError):  # where nobody can be told, the exit code has to do
        click.echo(f"promptkeel: {printable(text)}", err=True)


def counted(number: int, one: str) -> str:
    """A number and what it counts, as ``1 fact`` or ``2 facts``."""
    return f"{number} {one}" if number == 1 else f"{number} {one}s"


def is_terminal() -> bool:
    """Whether a person looks at standard output."""
    return sys.stdout.isatty()


@final
class Screen(Console):
    """Standard output as rich writes to it; without a single escape where ``NO_COLOR`` is set."""

    def __init__(self) -> None:
        super().__init__(color_system=None if _is_plain() else "auto", highlight=False)

    def on_broken_pipe(self) -> None:
        """Leave the answer, and its exit code, to the command."""
        raise BrokenPipeError


def _is_plain() -> bool:
    return bool(os.environ.get("NO_COLOR"))


Justify = Literal["left", "right"]


@final
@attrs.frozen(order=False)
class Column:
    """One column of a table.

    Attributes:
        title: its heading.
        justify: where its values stand.
        wraps: whether long values go on in the next line.
    """

    title: str
    justify: Justify = "left"
    wraps: bool = False


def put_table(columns: Sequence[Column], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """A table on a terminal; elsewhere a line of titles and a line for each row, separated by tabs."""
    if not is_terminal():
        put_bytes(plain_table(columns, rows).encode())
        return
    screen = Screen()
    with writing():
        if title is not None:
            screen.print(Text(printable(title), style="italic", overflow="fold"))
        screen.print(arranged(columns, rows, screen.width))


def arranged(columns: Sequence[Column], rows: Sequence[Sequence[object]], width: int) -> RenderableType:
    """A table where a terminal is wide enough to read one, else each row as a record of ``title: value`` lines."""
    needed = sum(_width_needed(column, [row[place] for row in rows]) + 3 for place, column in enumerate(columns)) + 1
    if needed <= width:
        return rich_table(columns, rows)
    return Group(*(_record(columns, row) for row in rows))


def _width_needed(column: Column, values: Sequence[object]) -> int:
    lines = [column.title, *(line for value in values for line in _spelled(value).split("\n"))]
    longest = max(map(cell_len, lines))
    return min(longest, _READABLE) if column.wraps else longest


def _record(columns: Sequence[Column], row: Sequence[object]) -> Text:
    record = Text(overflow="fold")
    for column, value in zip(columns, row, strict=True):
        if _spelled(value):
            record.append(f"{column.title}: ", style="bold")
            record.append_text(_cell(value)).append("\n")
    return record


def plain_table(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> str:
    """The table as tab-separated lines."""
    lines = ["\t".join(column.title for column in columns)]
    lines += ["\t".join(printable(_spelled(value)) for value in row) for row in rows]
    return "\n".join(lines) + "\n"


def rich_table(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> Table:
    """The table for a terminal."""
    table = Table(header_style="bold")
    for column in columns:
        table.add_column(
            column.title,
            justify=column.justify,
            no_wrap=not column.wraps,
            overflow="fold" if column.wraps else "ellipsis",
        )
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def _cell(value: object) -> Text:
    return value if isinstance(value, Text) else Text(printable(_spelled(value)))


def _spelled(value: object) -> str:
    if isinstance(value, Text):
        return value.plain
    return "" if value is None else str(value)


def date_of(recorded: object) -> str:
    """The date of an instant; empty where none was recorded."""
    return format_date(recorded) if isinstance(recorded, int) else ""


def time_of(instant: object) -> str | None:
    """The canonical text of an instant; None where there is none."""
    return format_instant(instant) if isinstance(instant, int) else None


def node_document(node: MemoryNode) -> dict[str, Any]:
    """A node as ``--json`` prints it."""
    return {
        "id": node.id,
        "scope": node.scope.path,
        "label": node.label,
        "properties": dict(node.own_properties),
        "source": node.source,
        "recorded_at": time_of(node.recorded),
        "trust": node.trust,
        "state": node.state,
        "created_at": time_of(node.created),
        "updated_at": time_of(node.updated),
        "version": node.version,
    }


@final
class ProgressBar:
    """A bar on standard error for work of more than a second, where a person looks at it."""

    def __init__(self, title: str, total: int | None) -> None:
        self._title = title
        self._total = total
        self._started = time.monotonic()
        self._shown = sys.stderr is not None and sys.stderr.isatty() and not _is_plain()
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def advance_to(self, done: int) -> None:
        """Show how much of the total is done."""
        if not self._shown or (self._progress is None and time.monotonic() - self._started < _PATIENCE):
            return
        if self._progress is None:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task(self._title, total=self._total)
        self._progress.update(self._task, completed=done)
