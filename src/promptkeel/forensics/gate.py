"""Whether a change makes the prefix dearer: what a log says, against another one or against a baseline of it.

Compared is what the prompt of a request costs on average, in tokens of input at the full price: it needs no prices in
dollars, and does not depend on how many requests there are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, final

import attrs

from promptkeel.errors import ExchangeError
from promptkeel.forensics.report import Report

_NAME: Final = "promptkeel_forensics_baseline"
_VERSION: Final = 1


@final
@attrs.frozen(order=False)
class Baseline:
    """What a log comes to, as far as a gate compares it.

    Attributes:
        requests: how many were judged.
        units: what the prompt of a request costs on average, in tokens of input at the full price.
        read_share: the share of the tokens that was read from the cache.
        lost: the tokens that a request loses on average, by cause and block.
    """

    requests: int
    units: float
    read_share: float
    lost: Mapping[tuple[str, str], float]


@final
@attrs.frozen(order=False)
class Verdict:
    """How two logs compare.

    Attributes:
        increase: how much dearer the later one is, as a share; less than 0 where it is cheaper.
        is_dearer: whether that is more than the threshold.
        blamed: cause, block, and how many tokens more a request loses to them on average; the most first.
    """

    increase: float
    is_dearer: bool
    blamed: tuple[tuple[str, str, float], ...]


def baseline_of(report: Report) -> Baseline:
    """The baseline of a log."""
    judged = report.requests - report.without_usage
    return Baseline(
        judged,
        report.units_per_request,
        report.read_tokens / report.prompt_tokens if report.prompt_tokens else 0.0,
        {(cause, block): lost.tokens / judged for cause, block, lost in report.pairs()} if judged else {},
    )


def compare(before: Baseline, after: Baseline, threshold: float) -> Verdict:
    """Whether the later one is dearer than the earlier one by more than a share."""
    increase = after.units / before.units - 1.0 if before.units else (1.0 if after.units else 0.0)
    more = [
        (cause, block, after.lost.get((cause, block), 0.0) - before.lost.get((cause, block), 0.0))
        for cause, block in {**before.lost, **after.lost}
    ]
    blamed = sorted((each for each in more if each[2] > 0), key=lambda each: (-each[2], each[0], each[1]))
    return Verdict(increase, increase > threshold, tuple(blamed))


def write_baseline(baseline: Baseline) -> bytes:
    """A baseline as the content of a file."""
    document = {
        _NAME: _VERSION,
        "requests": baseline.requests,
        "units_per_request": baseline.units,
        "read_share": baseline.read_share,
        "lost_per_request": [
            {"cause": cause, "block": block, "tokens": tokens} for (cause, block), tokens in baseline.lost.items()
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"


def read_baseline(content: bytes) -> Baseline | None:
    """The baseline that a file holds; None where it is something else.

    Raises:
        ExchangeError: it is a baseline and cannot be read.
    """
    try:
        document: Any = json.loads(content)
    except ValueError:
        return None
    if not isinstance(document, dict) or _NAME not in document:
        return None
    if document[_NAME] != _VERSION:
        raise ExchangeError(f"is a baseline of another version, {document[_NAME]!r:.20}; write it anew")
    try:
        return Baseline(
            int(document["requests"]),
            float(document["units_per_request"]),
            float(document["read_share"]),
            {(str(each["cause"]), str(each["block"])): float(each["tokens"]) for each in document["lost_per_request"]},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ExchangeError(f"is a baseline that cannot be read ({error!r:.80}); write it anew") from None
