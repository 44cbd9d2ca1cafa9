"""Lets the tests import the benchmark, whose program stands beside the package and not in it."""

from __future__ import annotations

import sys
from pathlib import Path

# At the end, so that no module of the benchmarks stands in front of another one of its name.
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
