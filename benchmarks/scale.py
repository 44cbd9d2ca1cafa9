"""What a store costs when there is much of it: many writers, many scopes, a standby, a million facts.

    python benchmarks/scale.py [--rows writers,scopes,replica,import] [--stores sqlite,postgres] [--json FILE]
        [--scopes N] [--facts N] [--seconds S]

Each row stands beside the bare driver doing the same SQL on the same rows. PostgreSQL is started as for the tests, but
with fsync. Nothing here asserts: a table is printed, with the goal of each row and whether it was met.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from scale_rows import GROUPS, Scale, Side, postgres_side, sqlite_side
from servers import own_postgres
from table import print_table


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", metavar="NAME,...", default=",".join(GROUPS), help=f"only these: {', '.join(GROUPS)}")
    parser.add_argument("--stores", metavar="NAME,...", default="sqlite,postgres", help="sqlite, postgres or both")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every row to this file")
    parser.add_argument("--few", type=int, default=1_000, help="scopes of the small store")
    parser.add_argument("--scopes", type=int, default=100_000, help="scopes of the large store, of 50 nodes each")
    parser.add_argument("--facts", type=int, default=1_000_000, help="how many facts are imported")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each set of writers goes on")
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    for name, known in (("rows", tuple(GROUPS)), ("stores", ("sqlite", "postgres"))):
        given = getattr(arguments, name).split(",")
        setattr(arguments, name, given)
        unknown = [each for each in given if each not in known]
        if unknown:
            parser.error(f"no {name} named {', '.join(unknown)}; choose from {', '.join(known)}")
    return arguments


@contextlib.contextmanager
def _sides(names: list[str], folder: Path) -> Iterator[list[Side]]:
    with contextlib.ExitStack() as stack:
        found = []
        if "sqlite" in names:
            found.append(sqlite_side(folder))
        if "postgres" in names:
            server = stack.enter_context(own_postgres(fsync="on", full_page_writes="on", autovacuum="on"))
            found.append(postgres_side(server, folder))
        yield found


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    started = time.monotonic()
    rows = []
    with tempfile.TemporaryDirectory(prefix="promptkeel-scale-") as name:
        folder = Path(name)
        with _sides(arguments.stores, folder) as sides:
            scale = Scale(
                few=arguments.few,
                many=arguments.scopes,
                facts=arguments.facts,
                seconds=arguments.seconds,
                pairs=arguments.pairs,
                say=lambda text: print(f"[{time.monotonic() - started:5.0f} s] {text}", file=sys.stderr, flush=True),
            )
            for group in arguments.rows:
                for side in sides:
                    scale.say(f"{group}, {side.name}: {GROUPS[group].__doc__}")
                    rows.extend(GROUPS[group](side, scale))
    print_table(rows)
    print(
        f"{time.monotonic() - started:.0f} s. Ratios are medians of interleaved pairs; absolute figures are indicative."
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([{**attrs.asdict(row), "met": row.met} for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
