"""The rows about governed blocks: gates, sources of five kinds, and a source that computes.

As in ``measured``: both sides of a row work on the same data in the same process.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import promptkeel as pk
from measured import FLOOR, Bench, Opened, Row, longest_stall, median, text_of
from memories import ADA, PREFIXES, Elsewhere, floor, memory_specs, static_specs
from pairs import awaited, awaited_after, compare, repeated
from promptkeel.blocks.stored import StoredSource

_LANE: Final = PREFIXES[0]
_CALLS: Final = 20
_BUSY: Final = 0.03
"""Seconds for which the computing source computes."""


def _open(_: object) -> bool:
    return True


async def _open_later(_: object) -> bool:
    return True


def _answer(_: object) -> tuple[str, str]:
    return "It is a working day.", "day-1"


async def _answer_later(_: object) -> tuple[str, str]:
    return "It is a working day.", "day-1"


def _gated(specs: list[pk.PromptBlockSpec], gate: Any, number: int) -> list[pk.PromptBlockSpec]:
    """The specs, the last so many of them with a gate."""
    free = specs[: len(specs) - number]
    return [*free, *(pk.PromptBlockSpec(name=s.name, source=s.source, render_when=gate) for s in specs[-number:])]


def gates(bench: Bench) -> Iterator[Row]:
    """The warm prompt with gates, which are asked each time."""
    path = bench.store(bench.small)
    base = repeated(floor(path))
    for number, gate, kind in ((1, _open, "ordinary"), (4, _open, "ordinary"), (1, _open_later, "async"),
                               (4, _open_later, "async")):  # fmt: skip
        specs = [*static_specs(), *_gated(memory_specs(), gate, number)]
        with Opened(bench, path, specs) as keel:
            found = compare(awaited(bench.runner, text_of(keel)), base, bench.pairs)
        yield bench.row(f"warm prompt, 8 blocks, {number} {kind} gate{'s' * (number > 1)}", FLOOR, found, peer="")


def kinds(bench: Bench) -> Iterator[Row]:
    """The warm and the touched prompt of 8 blocks of 5 kinds."""
    path = bench.store(bench.small)
    base = repeated(floor(path))
    boundaries, identity, *_ = static_specs()
    files = bench.files()
    for function, how in ((None, "none computed"), (_answer_later, "1 computed async"), (_answer, "1 computed")):
        specs = [
            boundaries,
            identity if function is None else pk.PromptBlockSpec(name="TODAY", source=pk.ComputedSource(function)),
            pk.PromptBlockSpec(name="RULES", source=pk.FileSource(files["RULES"])),
            pk.PromptBlockSpec(name="ENVIRONMENT", source=StoredSource("deployment", required=False)),
            *memory_specs(),
        ]
        with Opened(bench, path, specs) as keel:
            call = text_of(keel)
            found = compare(awaited(bench.runner, call), base, bench.pairs)
            yield bench.row(f"warm prompt, static, file, stored, 4 lanes, {how}", FLOOR, found, peer="")
            other = Elsewhere(path)

            def commit(other: Elsewhere = other) -> None:
                other.touch(_LANE, bench.small)

            found = compare(awaited_after(bench.runner, commit, call, number=5), base, bench.pairs)
            other.close()
        yield bench.row("the same after 1 change in the lane of 200", FLOOR, found, peer="")


def _compute(_: object) -> tuple[str, str]:
    """Computes for some time without letting go of the interpreter."""
    digest, until = b"", time.perf_counter() + _BUSY
    while time.perf_counter() < until:
        digest = hashlib.sha256(digest).digest()
    return "It is a working day.", "day-1"


def busy(bench: Bench) -> Iterator[Row]:
    """How long an event loop stands still while 20 prompts wait for a source that computes."""
    path = bench.store(bench.medium)
    specs = [*memory_specs()[:1], pk.PromptBlockSpec(name="TODAY", source=pk.ComputedSource(_compute), timeout=60)]
    scopes = [ADA.child("task", str(number)) for number in range(_CALLS)]
    for work, is_cold, asking in (
        ("20 cold prompts at once", True, [ADA]),
        ("20 warm prompts at once", False, [ADA]),
        ("20 warm prompts at once of 20 scopes", False, scopes),
    ):
        with Opened(bench, path, specs) as keel:
            for scope in asking:
                bench.runner.run(longest_stall(partial(keel.prompt, scope), 1))

            def run(
                keel: pk.Keel = keel, *, is_cold: bool = is_cold, asking: Sequence[pk.TenantScope] = asking
            ) -> float:
                if is_cold:
                    keel.core.builder.resolver.clear()
                turns = itertools.cycle(asking)
                return bench.runner.run(longest_stall(lambda: keel.prompt(next(turns)), _CALLS))

            measured = median([run() for _ in range(bench.few)])
        yield Row(
            work=f"{work}, lane of {bench.medium:,}, a source that computes 30 ms",
            against="longest stall",
            measured=measured,
            goal=20,
            unit="ms",
            peer_note="",
        )


GROUPS: Final[dict[str, tuple[Callable[[Bench], Iterator[Row]], ...]]] = {
    "gates": (gates,),
    "kinds": (kinds,),
    "busy": (busy,),
}
"""The rows by the names that ``--rows`` takes."""
