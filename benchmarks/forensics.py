"""How well forensics finds causes: faults injected into real agent runs, alone and in pairs, against simulated caches.

    python benchmarks/forensics.py [--runs 6] [--pairs 60]

Counted are tokens: the share that was given to the cause that cost them. The runs are tau-bench's (airline).
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from injected_traffic import DATA, FAULTS, MODELS, Fault, Outcome, Sent, can_meet, measure, real_runs, traffic
from promptkeel.forensics.causes import Cause


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=5)
    given = parser.parse_args(arguments)
    if not DATA.is_file():
        print(f"there is no {DATA.name} in the folder of shared data: nothing to measure")
        return 0
    runs = real_runs(given.runs, given.seed)
    bases = {wire_format: traffic(runs, wire_format, given.seed) for wire_format in MODELS}
    print(f"{given.runs} runs, {sum(map(len, bases.values()))} requests in {len(bases)} formats")
    for with_session in (True, False):
        print_singles(bases, with_session=with_session)
    print_pairs(bases, given.pairs, given.seed)
    return 0


def print_singles(bases: dict[str, list[Sent]], *, with_session: bool) -> None:
    print(f"\nOne fault at a time, {'with' if with_session else 'without'} session ids in the log")
    found = {
        (fault.cause, wire_format): measure(bases[wire_format], (fault,), with_session=with_session)
        for fault in FAULTS
        for wire_format in fault.formats
    }
    for (cause, wire_format), outcome in found.items():
        print(f"  {cause.value:28}{wire_format:13}{outcome.lost:>9,} lost{outcome.share:>8.1%} right")
    print_total(found.values())
    confusion: dict[Cause, Counter[Cause]] = defaultdict(Counter)
    for (cause, _), outcome in found.items():
        confusion[cause].update(outcome.given)
    print("  confusion: what was given to other causes, of each injected one")
    for cause, given in confusion.items():
        wrong = {other.value: tokens for other, tokens in given.most_common() if other is not cause and tokens}
        if wrong:
            print(f"    {cause.value:26}{given[cause]:>9,} right  {wrong}")


def print_pairs(bases: dict[str, list[Sent]], count: int, seed: int) -> None:
    pairs: list[tuple[str, Fault, Fault]] = [
        (wire_format, one, other)
        for wire_format in MODELS
        for one, other in itertools.combinations(FAULTS, 2)
        if can_meet(one, other, wire_format)
    ]
    chosen = random.Random(seed).sample(pairs, min(count, len(pairs)))
    print(f"\nTwo faults at the same request, {len(chosen)} of {len(pairs)} pairs")
    outcomes = []
    for wire_format, one, other in chosen:
        outcome = measure(bases[wire_format], (one, other))
        outcomes.append(outcome)
        if outcome.share < 0.95:
            given = {cause.value: tokens for cause, tokens in outcome.given.most_common() if tokens}
            names = " + ".join(fault.cause.value for fault in outcome.faults)
            print(f"  {names} ({wire_format}): {outcome.share:.1%} of {outcome.lost:,}, given {given}")
    print_total(outcomes)


def print_total(outcomes: Sequence[Outcome]) -> None:
    lost = sum(outcome.lost for outcome in outcomes)
    given = sum(sum(outcome.given.values()) for outcome in outcomes)
    right = sum(outcome.right for outcome in outcomes)
    mean = sum(outcome.share for outcome in outcomes) / len(outcomes)
    print(
        f"  all: {right / max(lost, given, 1):.2%} of {max(lost, given):,} tokens right, {mean:.2%} on average of each"
    )


if __name__ == "__main__":
    sys.exit(main())
