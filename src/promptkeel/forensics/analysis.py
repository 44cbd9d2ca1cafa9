"""One log from beginning to end: each request held against the one that it continues. Explicit state, no I/O."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any, Final, final

import attrs

from promptkeel.errors import MissingExtraError
from promptkeel.forensics.attribution import Attribution, attribute, excerpts
from promptkeel.forensics.divergence import diverge, shared_places
from promptkeel.forensics.expected import Ledger
from promptkeel.forensics.reading import Record
from promptkeel.forensics.requests import Kept, Places, marks_of, names_of, sums_of
from promptkeel.forensics.threads import Threads
from promptkeel.providers.caches import LATENCY, PrefixCache, cache_for, input_units
from promptkeel.providers.rules import ModelRules, RuleTables, rules_for
from promptkeel.providers.segments import Usage, WireFormat
from promptkeel.tokens import TokenCounter, token_counter

_PROVIDERS: Final[Mapping[WireFormat, str]] = {
    "anthropic": "anthropic",
    "openai-responses": "openai",
    "openai-chat": "openai",
    "gemini": "gemini",
    "bedrock": "bedrock",
}


def _best_counter() -> TokenCounter:
    """An exact counter where there is one: it tells the sizes of blocks apart better than an estimate."""
    try:
        return token_counter("o200k_base")
    except MissingExtraError:
        return token_counter("estimate")


@final
@attrs.frozen(order=False)
class Finding:
    """What became of one request of a log.

    Attributes:
        record: the request, without its segments.
        rules: what its provider does with the prompts of its model.
        usage: what it used: as counted by the provider, or as simulated where the log has no usage at all.
        is_simulated: whether it is simulated.
        continues: the line of the request that it continues; None where it is the first of its kind.
        is_start: whether it shares only the beginning with that.
        attribution: what it lost, and to what; None where it cannot be judged: it lacks the usage that others have.
        excerpt: the text around the first change that cost something, before and after.
    """

    record: Record
    rules: ModelRules
    usage: Usage | None
    is_simulated: bool
    continues: int | None = None
    is_start: bool = False
    attribution: Attribution | None = None
    excerpt: tuple[str, str] | None = None

    @property
    def lost_dollars(self) -> float | None:
        """What the lost tokens cost beyond reading them from the cache; None where no price is known."""
        price = self.rules.input_price
        if price is None or self.usage is None or self.attribution is None:
            return None
        unread = self.usage.prompt - self.usage.read
        if not unread or not self.attribution.lost:
            return 0.0
        paid = input_units(attrs.evolve(self.usage, read=0), self.rules) / unread
        return self.attribution.lost * max(paid - self.rules.read_factor, 0.0) * price / 1_000_000


@final
class Analysis:
    """Takes the requests of a log one by one.

    Args:
        overrides: rules of providers that go before the packaged ones.
        counter: counts tokens where the provider's own count does not say; an exact one if it is installed, by default.
    """

    def __init__(
        self, *, overrides: Iterable[RuleTables | Mapping[str, Any]] = (), counter: TokenCounter | None = None
    ) -> None:
        self._overrides: Final = tuple(overrides)
        self._places: Final = Places(counter or _best_counter())
        self._threads: Final = Threads()
        self._ledger: Final = Ledger()
        self._caches: dict[object, PrefixCache] = {}
        self._times: dict[object, float] = {}
        self._latest = 0.0
        self._number = 0
        self._has_usage = False

    def take(self, record: Record) -> Finding:
        """Judge the next request."""
        self._number += 1
        request = record.request
        rules = rules_for(_PROVIDERS[request.format], request.model, overrides=self._overrides)
        places, fresh = self._places.of(request.segments)
        origin = self._threads.origin(places, record)
        before = None if origin is None else origin.request
        total = None if record.usage is None or request.handle is not None else record.usage.prompt
        shared = 0 if before is None else shared_places(before.places, places)
        begins = next((i for i, place in enumerate(places) if place.segment.section == "messages"), len(places))
        marks, dropped = marks_of(request, rules)
        kept = Kept(
            self._number,
            attrs.evolve(record, request=attrs.evolve(request, segments=())),
            rules,
            places,
            array("q", [segment.message for segment in request.segments]),
            sums_of(places, total, before, shared),
            names_of(record, places, begins),
            tuple(marks),
            tuple(dropped),
            begins,
            fresh,
        )
        usage, is_simulated = self._usage(record, kept)
        self._latest = max(self._latest, record.at or self._latest)
        finding = Finding(kept.record, rules, usage, is_simulated)
        if origin is not None and before is not None and usage is not None:
            divergence = diverge(before, kept, is_start=origin.is_start)
            found = attribute(before, kept, divergence, self._ledger, usage.read)
            excerpt = None if found.change is None else excerpts(before, kept, found.change)
            finding = attrs.evolve(
                finding,
                continues=before.record.line,
                is_start=origin.is_start,
                attribution=found,
                excerpt=excerpt,
            )
        elif usage is not None:
            finding = attrs.evolve(finding, attribution=Attribution(0, usage.read))
        at = self._latest if record.at is None else record.at
        self._ledger.write(kept, at, at + (LATENCY if record.latency is None else record.latency))
        self._threads.keep(kept)
        return finding

    def _usage(self, record: Record, kept: Kept) -> tuple[Usage | None, bool]:
        if record.usage is not None:
            self._has_usage = True
            return record.usage, False
        if self._has_usage or record.request.handle is not None:
            return None, False
        key = kept.rules, record.request.model, record.gateway
        cache = self._caches.get(key)
        if cache is None:
            cache = self._caches[key] = cache_for(kept.rules)
        counts = [after - before for before, after in zip(kept.sums, kept.sums[1:], strict=False)]
        # Without times, or where they go back, requests come after each other.
        latest = self._times.get(key, 0.0)
        at = latest + 2 * LATENCY if record.at is None or record.at < latest else record.at
        self._times[key] = at
        return cache.send(record.request, counts, at), True
