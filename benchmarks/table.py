"""The table that every benchmark prints."""

from __future__ import annotations

import sys

from measured import Row

_HEADINGS = ("work", "against", "measured", "goal", "met", "symfonic-core", "took", "base")


def _cells(row: Row) -> tuple[str, ...]:
    met = "" if row.met is None else ("yes" if row.met else "NO")
    return (row.work, row.against, _number(row.measured, row.unit), _number(row.goal, row.unit), met, row.peer_text,
            _seconds(row.took), _seconds(row.base))  # fmt: skip


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit:
        return f"{value:,.1f} {unit}" if value < 100 else f"{value:,.0f} {unit}"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 0.1 else f"1/{1 / value:,.0f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    for size, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def print_table(rows: list[Row]) -> None:
    """Print every row."""
    cells = [_cells(row) for row in rows]
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(map(len, column)) for column in zip(_HEADINGS, *cells, strict=True)]
        for line in (_HEADINGS, *cells):
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        return
    table = Table(show_lines=False)
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading in {"work", "against", "met"} else "right")
    for line in cells:
        table.add_row(*line, style="red" if line[4] == "NO" else None)
    Console(width=None if sys.stdout.isatty() else 200).print(table)
