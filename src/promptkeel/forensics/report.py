"""What a log comes to: lost tokens by cause, block, time, model and session, and the requests that lost most.

Findings are added one by one and only sums are kept, so that a report of any log is small.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, final

import attrs

from promptkeel.forensics.analysis import Finding
from promptkeel.forensics.attribution import Blame
from promptkeel.forensics.causes import Cause
from promptkeel.instants import format_instant
from promptkeel.providers.caches import input_units

Dimension = Literal["cause", "block", "time", "model", "session"]
DIMENSIONS: Final[tuple[Dimension, ...]] = ("cause", "block", "time", "model", "session")
WORST: Final = 10
"""So many requests are named."""
_WIDTHS: Final = (60, 300, 900, 3600, 21_600, 86_400, 604_800, 2_592_000)
_BUCKETS: Final = 1500
_OTHER: Final = "(others)"
_NAMES: Final = 10_000
"""So many sessions and blocks are told apart."""
_MICROSECONDS: Final = 1_000_000


@final
@attrs.define(eq=False)
class Lost:
    """Lost tokens, and what they cost beyond reading them, as far as prices are known."""

    tokens: int = 0
    dollars: float = 0.0
    requests: int = 0

    def add(self, tokens: int, dollars: float) -> None:
        """Count tokens of one more request in."""
        self.tokens += tokens
        self.dollars += dollars
        self.requests += 1


@final
@attrs.frozen(order=False)
class Worst:
    """A request that lost much.

    Attributes:
        line: its line in the log.
        continues: the line of the request that it continues.
        at: when it started, in seconds since the epoch; None where the log does not say.
        expected: the tokens that could have been read.
        read: the tokens that were.
        blames: who is to blame for the rest.
        excerpt: the text around the first change that cost something, before and after.
        reason: what the provider says of the miss.
        is_contradicted: whether that names another part of the request.
    """

    line: int
    continues: int | None
    at: float | None
    expected: int
    read: int
    blames: tuple[Blame, ...]
    excerpt: tuple[str, str] | None
    reason: str | None
    is_contradicted: bool


@final
@attrs.define(eq=False)
class Report:
    """What was found so far.

    Attributes:
        since: only requests from then on count, in seconds since the epoch.
        until: only requests before then count.
    """

    since: float | None = None
    until: float | None = None
    requests: int = 0
    unread_lines: int = 0
    without_usage: int = 0
    simulated: int = 0
    compared: int = 0
    prompt_tokens: int = 0
    read_tokens: int = 0
    expected_tokens: int = 0
    lost_tokens: int = 0
    lost_dollars: float = 0.0
    unpriced_tokens: int = 0
    contradicted: int = 0
    reasons: int = 0
    units: float = 0.0
    _sums: dict[tuple[str, str], Lost] = attrs.field(factory=lambda: defaultdict(Lost))
    _pairs: dict[tuple[str, str], Lost] = attrs.field(factory=lambda: defaultdict(Lost))
    _times: dict[int, Lost] = attrs.field(factory=lambda: defaultdict(Lost))
    _untimed: Lost = attrs.field(factory=Lost)
    _names: dict[str, int] = attrs.field(factory=lambda: defaultdict(int))
    _width: int = 0
    _worst: list[tuple[int, int, Worst]] = attrs.field(factory=list)

    def add(self, finding: Finding) -> None:
        """Count one request in, if it is of the time that is reported."""
        record = finding.record
        if (self.since is not None or self.until is not None) and record.at is None:
            return
        if record.at is not None and not (self.since or float("-inf")) <= record.at < (self.until or float("inf")):
            return
        self.requests += 1
        if finding.usage is None:
            self.without_usage += 1
            return
        self.simulated += finding.is_simulated
        self.compared += finding.continues is not None
        self.prompt_tokens += finding.usage.prompt
        self.read_tokens += finding.usage.read
        self.units += input_units(finding.usage, finding.rules)
        self.reasons += record.miss is not None
        found = finding.attribution
        if found is None:
            return
        self.expected_tokens += found.expected
        self.contradicted += found.is_contradicted
        if found.lost:
            self._add_lost(finding)

    @property
    def units_per_request(self) -> float:
        """What the prompt of a request costs on average, in tokens of input at the full price."""
        judged = self.requests - self.without_usage
        return self.units / judged if judged else 0.0

    def rows(self, dimension: Dimension) -> list[tuple[str, Lost]]:
        """Lost tokens by one thing: the most first; by time, the earliest first."""
        if dimension == "time":
            return list(self._by_time())
        rows = [(name, lost) for (each, name), lost in self._sums.items() if each == dimension]
        return sorted(rows, key=lambda row: (-row[1].tokens, row[0]))

    def pairs(self) -> list[tuple[str, str, Lost]]:
        """Lost tokens by cause and block, the most first."""
        rows = [(cause, block, lost) for (cause, block), lost in self._pairs.items()]
        return sorted(rows, key=lambda row: (-row[2].tokens, row[0], row[1]))

    def worst(self) -> list[Worst]:
        """The requests that lost most, the worst first."""
        return [worst for _, _, worst in sorted(self._worst, reverse=True)]

    def _add_lost(self, finding: Finding) -> None:
        found, record = finding.attribution, finding.record
        if found is None:
            return
        dollars = finding.lost_dollars
        self.lost_tokens += found.lost
        self.lost_dollars += dollars or 0.0
        self.unpriced_tokens += found.lost if dollars is None else 0
        each = (dollars or 0.0) / found.lost
        by_cause: Counter[str] = Counter()
        by_block: Counter[str] = Counter()
        for blame in found.blames:
            block = self._named("block", blame.block)
            by_cause[blame.cause.value] += blame.tokens
            by_block[block] += blame.tokens
            self._pairs[blame.cause.value, block].add(blame.tokens, blame.tokens * each)
        for name, tokens in by_cause.items():
            self._sums["cause", name].add(tokens, tokens * each)
        for name, tokens in by_block.items():
            self._sums["block", name].add(tokens, tokens * each)
        self._sums["model", record.request.model or "(none)"].add(found.lost, dollars or 0.0)
        session = self._named("session", record.session or "(none)")
        self._sums["session", session].add(found.lost, dollars or 0.0)
        self._add_time(record.at, found.lost, dollars or 0.0)
        worst = Worst(
            record.line, finding.continues, record.at, found.expected, found.read, found.blames, finding.excerpt,
            None if record.miss is None else record.miss.reason, found.is_contradicted,
        )  # fmt: skip
        heapq.heappush(self._worst, (found.lost, -record.line, worst))
        if len(self._worst) > WORST:
            heapq.heappop(self._worst)

    def _named(self, dimension: str, name: str) -> str:
        """The name under which something counts: of too many, the later ones count together."""
        if (dimension, name) in self._sums:
            return name
        if self._names[dimension] >= _NAMES:
            return _OTHER
        self._names[dimension] += 1
        return name

    def _add_time(self, at: float | None, tokens: int, dollars: float) -> None:
        if at is None:
            self._untimed.add(tokens, dollars)
            return
        self._times[int(at // _WIDTHS[self._width])].add(tokens, dollars)
        if len(self._times) > _BUCKETS and self._width + 1 < len(_WIDTHS):
            self._times = _coarser(self._times, self._width)
            self._width += 1

    def _by_time(self, most: int = 24) -> Iterator[tuple[str, Lost]]:
        times, width = self._times, self._width
        while len(times) > most and width + 1 < len(_WIDTHS):
            times = _coarser(times, width)
            width += 1
        for bucket in sorted(times):
            yield format_instant(bucket * _WIDTHS[width] * _MICROSECONDS), times[bucket]
        if self._untimed.tokens:
            yield "(no time)", self._untimed


def _coarser(times: Mapping[int, Lost], width: int) -> dict[int, Lost]:
    found: dict[int, Lost] = defaultdict(Lost)
    for bucket, lost in times.items():
        into = found[bucket * _WIDTHS[width] // _WIDTHS[width + 1]]
        into.tokens += lost.tokens
        into.dollars += lost.dollars
        into.requests += lost.requests
    return found


def document_of(report: Report) -> dict[str, Any]:
    """A report as ``--json`` prints it."""
    return {
        "requests": report.requests,
        "compared": report.compared,
        "simulated": report.simulated,
        "without_usage": report.without_usage,
        "unread_lines": report.unread_lines,
        "prompt_tokens": report.prompt_tokens,
        "read_tokens": report.read_tokens,
        "expected_tokens": report.expected_tokens,
        "lost_tokens": report.lost_tokens,
        "lost_dollars": round(report.lost_dollars, 6),
        "unpriced_tokens": report.unpriced_tokens,
        "units_per_request": round(report.units_per_request, 3),
        "provider_reasons": report.reasons,
        "contradicted_reasons": report.contradicted,
        "by": {each: [_row(name, lost) for name, lost in report.rows(each)] for each in DIMENSIONS},
        "by_cause_and_block": [{"cause": cause, **_row(block, lost)} for cause, block, lost in report.pairs()],
        "causes": {
            name: {"sentence": Cause(name).sentence, "remedy": Cause(name).remedy} for name, _ in report.rows("cause")
        },
        "worst": [_worst(each) for each in report.worst()],
    }


def _row(name: str, lost: Lost) -> dict[str, Any]:
    return {"name": name, "tokens": lost.tokens, "dollars": round(lost.dollars, 6), "requests": lost.requests}


def _worst(each: Worst) -> dict[str, Any]:
    return {
        "line": each.line,
        "continues": each.continues,
        "time": None if each.at is None else format_instant(int(each.at * _MICROSECONDS)),
        "expected": each.expected,
        "read": each.read,
        "blames": [{"cause": blame.cause.value, "block": blame.block, "tokens": blame.tokens} for blame in each.blames],
        "before": None if each.excerpt is None else each.excerpt[0],
        "after": None if each.excerpt is None else each.excerpt[1],
        "provider_reason": each.reason,
        "is_contradicted": each.is_contradicted,
    }


def first(rows: list[Any], count: int) -> tuple[list[Any], int]:
    """The first rows, and how many are left."""
    return list(itertools.islice(rows, count)), max(len(rows) - count, 0)
