"""What promptkeel costs, as ratios against the floor beneath it and against a peer doing the same work in the same run.

    python benchmarks/ratios.py [--quick] [--json FILE] [--rows NAME,...]

Nothing here asserts: a table is printed, with the goal of each row and whether it was met. What is counted rather than
timed (statements, threads, reads, renders) is asserted in ``tests/test_counted.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import apsw
import attrs

import peer
import promptkeel
from block_rows import GROUPS as BLOCK_GROUPS
from measured import GROUPS as MEMORY_GROUPS
from measured import Bench, Row
from table import print_table

GROUPS = {**MEMORY_GROUPS, **BLOCK_GROUPS}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer pairs and a smaller large lane; about a minute")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every row to this file")
    parser.add_argument("--rows", metavar="NAME,...", default=",".join(GROUPS), help=f"only these: {', '.join(GROUPS)}")
    arguments = parser.parse_args()
    arguments.rows = arguments.rows.split(",")
    unknown = [name for name in arguments.rows if name not in GROUPS]
    if unknown:
        parser.error(f"no rows named {', '.join(unknown)}; choose from {', '.join(GROUPS)}")
    return arguments


def _environment() -> dict[str, Any]:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "promptkeel": promptkeel.__version__,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "symfonic-core": peer.version(),
        "system": platform.system(),
        "processors": os.cpu_count(),
        "load": load,
    }


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    started = time.monotonic()
    environment = _environment()
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory(prefix="promptkeel-ratios-") as folder,
        Bench(Path(folder), quick=arguments.quick) as bench,
    ):
        for name in arguments.rows:
            for measure in GROUPS[name]:
                print(f"[{time.monotonic() - started:5.0f} s] {name}: {measure.__doc__}", file=sys.stderr, flush=True)
                rows.extend(measure(bench))
    print_table(rows)
    said = ", ".join(f"{name} {value}" for name, value in environment.items() if value is not None)
    print(f"{said}; {time.monotonic() - started:.0f} s")
    print("Ratios are medians of interleaved pairs; times are indicative. 'symfonic-core' has its nodes in RAM.")
    if arguments.json is not None:
        content = {"environment": environment, "rows": [{**attrs.asdict(row), "met": row.met} for row in rows]}
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
