"""What each way to keep a changing memory in front of an agent costs, by simulated prefix caches and dated prices.

    python benchmarks/economics.py [--quick] [--json FILE] [--svg FILE] [--runs N] [--rates R,...] [--schemes NAME,...]

Replays tau-bench's agent runs with LoCoMo's facts arriving as writes between their turns, through every layout at every
provider. Nothing here asserts and nothing is timed: ``tests/economics`` asserts what must hold. Output of the model is
the same whatever the layout and is not counted.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

import economics_trace
from economics_chart import Panel, chart
from economics_hindsight import Hindsight, rewrites_in_hindsight
from economics_layouts import LAYOUTS, Ours
from economics_replay import Scheme, Tally, replay, schemes

RATES: Final = (0.0, 0.05, 0.2, 1.0)
_HEADINGS: Final = ("provider", "writes/turn", "layout", "US$", "x", "read", "stale", "most", "illegal")
_QUICK_RUNS: Final = 20


@attrs.frozen
class Cell:
    """All layouts at one provider and one rate.

    Attributes:
        scheme: the provider's short name.
        rate: the writes for each turn.
        tallies: the layouts.
    """

    scheme: str
    rate: float
    tallies: tuple[Tally, ...]

    @property
    def cheapest(self) -> float:
        """The least that a layout costs that shows what memory says."""
        return min(tally.units for tally in self.tallies if not tally.is_stale and tally.layout != Hindsight.name)

    def of(self, layout: str) -> Tally:
        """The layout of this name."""
        return next(tally for tally in self.tallies if tally.layout == layout)


def measure(scheme: str, rate: float, runs: int | None) -> Cell:
    """All layouts at one provider and one rate."""
    return Cell(scheme, rate, tuple(_measured(schemes()[scheme], rate, runs)))


def _measured(scheme: Scheme, rate: float, runs: int | None) -> list[Tally]:
    trace = economics_trace.read_trace(rate, runs=runs)
    rewrites = rewrites_in_hindsight(trace, scheme)
    return replay(trace, scheme, layouts=[*LAYOUTS, lambda: Hindsight(rewrites)])


def measure_all(names: Sequence[str], rates: Sequence[float], runs: int | None) -> list[Cell]:
    """All layouts at all providers and rates, the slowest first."""
    jobs = [(name, rate) for name in names for rate in rates]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(min(os.cpu_count() or 1, len(jobs)), mp_context=context) as pool:
        running = {job: pool.submit(measure, *job, runs) for job in sorted(jobs, key=lambda job: job[1], reverse=True)}
        done = []
        for job in jobs:
            done.append(running[job].result())
            print(f"{job[0]} at {job[1]:g} writes per turn", file=sys.stderr, flush=True)
    return done


def dollars(cell: Cell, tally: Tally) -> float | None:
    """What the prompts of a layout cost, in US dollars; None where nobody sells them."""
    price = schemes()[cell.scheme].rules.input_price
    return None if price is None else tally.units * price / 1_000_000


def _rows(cells: Sequence[Cell]) -> list[tuple[str, ...]]:
    rows = []
    for cell in cells:
        for tally in cell.tallies:
            price = dollars(cell, tally)
            rows.append(
                (
                    schemes()[cell.scheme].name,
                    f"{cell.rate:g}",
                    tally.layout,
                    "" if price is None else f"{price:.2f}",
                    f"{tally.units / cell.cheapest:.3f}",
                    f"{100 * tally.read / tally.prompt:.1f} %",
                    f"{tally.stale / tally.requests:.2f}",
                    str(tally.stalest),
                    str(tally.illegal),
                )
            )
    return rows


def print_rows(rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table, with a line between providers and rates."""
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    before: tuple[str, ...] | None = None
    for row in (_HEADINGS, *rows):
        if before is not None and row[:2] != before:
            print()
        before = row[:2]
        cells = (cell.ljust(width) if place < 3 else cell.rjust(width)
                 for place, (cell, width) in enumerate(zip(row, widths, strict=True)))  # fmt: skip
        print("  ".join(cells).rstrip())


def panels(cells: Sequence[Cell]) -> list[Panel]:
    """What the chart shows: the cost of each layout against the cheapest that is not stale."""
    found = []
    for name in dict.fromkeys(cell.scheme for cell in cells):
        own = [cell for cell in cells if cell.scheme == name]
        lines = {
            tally.layout: [cell.of(tally.layout).units / cell.cheapest for cell in own] for tally in own[0].tallies
        }
        stale = frozenset(tally.layout for tally in own[0].tallies if tally.is_stale)
        found.append(Panel(schemes()[name].name, [cell.rate for cell in own], lines, stale))
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    known = schemes()
    parser.add_argument("--quick", action="store_true", help=f"only {_QUICK_RUNS} of the runs")
    parser.add_argument("--runs", metavar="N", type=int, help="only so many of the runs")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every row to this file")
    parser.add_argument("--svg", metavar="FILE", type=Path, help="also draw a chart into this file")
    parser.add_argument("--rates", metavar="R,...", default=",".join(f"{rate:g}" for rate in RATES))
    parser.add_argument("--schemes", metavar="NAME,...", default=",".join(known), help=f"of {', '.join(known)}")
    arguments = parser.parse_args()
    if not economics_trace.is_there():
        parser.error(f"needs tau-bench-airline.json and locomo10.json in {economics_trace.DATA}")
    arguments.schemes = arguments.schemes.split(",")
    if unknown := [name for name in arguments.schemes if name not in known]:
        parser.error(f"no scheme named {', '.join(unknown)}; choose from {', '.join(known)}")
    try:
        arguments.rates = [float(rate) for rate in arguments.rates.split(",")]
    except ValueError:
        parser.error("--rates takes numbers")
    if not all(0 <= rate <= 1 for rate in arguments.rates):
        parser.error("--rates takes numbers from 0 to 1")
    return arguments


def _content(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    return [
        {
            "provider": schemes()[cell.scheme].name,
            "writes_per_turn": cell.rate,
            **{name: value for name, value in attrs.asdict(tally).items() if name != "spent"},
            "dollars": dollars(cell, tally),
            "against_cheapest": tally.units / cell.cheapest,
        }
        for cell in cells
        for tally in cell.tallies
    ]


def main() -> None:
    """Replay and print."""
    arguments = _arguments()
    started = time.monotonic()
    runs = arguments.runs or (_QUICK_RUNS if arguments.quick else None)
    cells = measure_all(arguments.schemes, arguments.rates, runs)
    print_rows(_rows(cells))
    print()
    for name in arguments.schemes:
        ratios = [
            f"{cell.of(Ours.name).units / cell.of(Hindsight.name).units:.3f}" for cell in cells if cell.scheme == name
        ]
        print(f"{Ours.name} against the {Hindsight.name}, {schemes()[name].name}: {', '.join(ratios)}")
    requests = cells[0].tallies[0].requests
    dates = ", ".join(f"{schemes()[name].model} {schemes()[name].rules.as_of}" for name in arguments.schemes)
    print(f"{requests:,} requests for each row; prompts only; prices and rules as of: {dates}.")
    print(
        f"'x' is against the cheapest layout that is not stale; 'stale' is in turns. {time.monotonic() - started:.0f} s"
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(_content(cells), indent=2) + "\n")
    if arguments.svg is not None:
        svg, _, _ = chart("Cost of prompts against the cheapest layout that is not stale", panels(cells))
        arguments.svg.write_text(svg)


if __name__ == "__main__":
    main()
