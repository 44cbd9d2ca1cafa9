"""What providers' prefix caches read and write, simulated: the usage of one request after another, and its price.

A simulator knows what documentation says, not what a provider's machines do: nothing is lost to load or routing. It
answers for requests as they are; whether one is legal after the ones before it is ``automaton``'s to say.

Requests come in the order in which they start. What one writes can be read once its answer begins, so that requests
which start together all miss.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, final

import attrs

from promptkeel.errors import InvalidDeclarationError, InvalidInputError
from promptkeel.providers.prefix_tree import Key, PrefixTree
from promptkeel.providers.rules import ModelRules
from promptkeel.providers.segments import Segment, Usage, WireRequest

LATENCY: Final = 1.0
"""So many seconds after its start a request's answer begins, where nothing else is said."""
_PER: Final = 1_000_000
_MESSAGES_ONLY: Final = frozenset({"tool_choice", "toolChoice", "thinking", "output_config", "effort"})
"""Settings that void what is kept of the messages, and leave tools and system where they are, on caches with marks."""
_SALTS: Final = frozenset({"cache_salt"})
_RETENTIONS: Final = frozenset({"prompt_cache_retention", "prompt_cache_options"})


class PrefixCache(Protocol):
    """A provider's cache, for all who share it."""

    def send(self, request: WireRequest, tokens: Sequence[int], at: float) -> Usage:
        """What a request reads and writes; from then on it is kept.

        Args:
            request: the request.
            tokens: how many tokens each of its segments has.
            at: when it starts, in seconds; not before the last one.

        Raises:
            InvalidInputError: there are more or fewer counts than segments, one is negative, or the time goes back.
        """


def cache_for(rules: ModelRules, *, latency: float = LATENCY) -> PrefixCache:
    """An empty cache of a provider's, as its rules for a model say."""
    if rules.scheme == "marks":
        return MarkedCache(rules, latency=latency)
    if rules.scheme == "none":
        return NoCache()
    return SteppedCache(rules, latency=latency)


def cost(usage: Usage, rules: ModelRules) -> float:
    """What a request costs, in US dollars.

    Raises:
        InvalidDeclarationError: the rules hold no price.
    """
    if rules.input_price is None or (usage.output and rules.output_price is None):
        raise InvalidDeclarationError(
            f"is not known for {rules.model} of {rules.provider}: declare it in rules of your own",
            field="output_price" if rules.input_price is not None else "input_price",
        )
    return (input_units(usage, rules) * rules.input_price + usage.output * (rules.output_price or 0.0)) / _PER


def input_units(usage: Usage, rules: ModelRules) -> float:
    """What the prompt of a request costs, in tokens of input at the full price."""
    short = usage.written - usage.written_long
    written = short * rules.write_factors[0] + usage.written_long * rules.write_factors[-1]
    return usage.uncached + usage.read * rules.read_factor + written


@final
@attrs.define(eq=False)
class _Entry:
    ready: float
    expires: float
    ttl: int


@final
class MarkedCache:
    """A cache that keeps prefixes up to marks, and looks back from marks for what it keeps.

    Args:
        rules: what the provider says of it.
        latency: how many seconds after its start a request's answer begins.
    """

    def __init__(self, rules: ModelRules, *, latency: float = LATENCY) -> None:
        self._rules: Final = rules
        self._clock: Final = _Clock(latency)
        self._entries: dict[bytes, _Entry] = {}
        self._tidy_at = 1024

    def send(self, request: WireRequest, tokens: Sequence[int], at: float) -> Usage:
        """As ``PrefixCache.send``."""
        ready = self._clock.start(request, tokens, at)
        sums = list(itertools.accumulate(tokens))
        total = sums[-1] if sums else 0
        marks = {place: ttl for place, ttl in self._marks(request) if sums[place] >= self._rules.minimum}
        names = _names(request.segments, *_split(request.settings, request.model))
        found = -1
        for place in marks:
            for position in range(place, self._first(place) - 1, -1):
                entry = self._usable(names[position], at)
                if entry is not None:
                    entry.expires = at + entry.ttl
                    found = max(found, position)
                    break
        for place, ttl in marks.items():
            if place > found:
                self._write(names[place], at, ready, ttl)
        self._tidy(at)
        read = sums[found] if found >= 0 else 0
        written = max((sums[place] for place in marks), default=0)
        written_long = max((sums[place] for place, ttl in marks.items() if ttl != self._rules.ttls[0]), default=0)
        written, written_long = max(written - read, 0), max(written_long - read, 0)
        return Usage(total - read - written, read, written, written_long)

    def _marks(self, request: WireRequest) -> list[tuple[int, int]]:
        """The positions that are marked, each with its seconds; of too many, the last ones."""
        rules = self._rules
        default = rules.ttls[0]
        marks = {
            place: default if segment.mark.ttl is None else segment.mark.ttl
            for place, segment in enumerate(request.segments)
            if segment.mark is not None and segment.kind not in rules.unmarkable
        }
        if request.automatic is not None:
            places = range(len(request.segments) - 1, -1, -1)
            last = next((each for each in places if request.segments[each].kind not in rules.unmarkable), None)
            if last is not None:
                marks.setdefault(last, default if request.automatic.ttl is None else request.automatic.ttl)
        return sorted(marks.items())[-rules.marks :] if rules.marks else []

    def _first(self, place: int) -> int:
        return 0 if self._rules.lookback is None else max(0, place - self._rules.lookback + 1)

    def _usable(self, name: bytes, at: float) -> _Entry | None:
        entry = self._entries.get(name)
        return entry if entry is not None and entry.ready <= at < entry.expires else None

    def _write(self, name: bytes, at: float, ready: float, ttl: int) -> None:
        entry, before = _Entry(ready, at + ttl, ttl), self._entries.get(name)
        if before is not None and at < before.expires:
            # Of requests that start together, each writes: what comes of that is ready first, and kept longest.
            entry = _Entry(min(ready, before.ready), max(entry.expires, before.expires), max(ttl, before.ttl))
        self._entries[name] = entry

    def _tidy(self, at: float) -> None:
        if len(self._entries) >= self._tidy_at:
            self._entries = {name: entry for name, entry in self._entries.items() if at < entry.expires}
            self._tidy_at = 2 * len(self._entries) + 1024


@final
class SteppedCache:
    """A cache that keeps the longest prefix by itself, in steps, as OpenAI's older models and Gemini's implicit one do.

    Args:
        rules: what the provider says of it.
        latency: how many seconds after its start a request's answer begins.
    """

    def __init__(self, rules: ModelRules, *, latency: float = LATENCY) -> None:
        self._rules: Final = rules
        self._clock: Final = _Clock(latency)
        # Requests that ask for another retention do not share what they keep: no documentation says that they do.
        self._trees: dict[int, PrefixTree] = {}

    def send(self, request: WireRequest, tokens: Sequence[int], at: float) -> Usage:
        """As ``PrefixCache.send``."""
        ready = self._clock.start(request, tokens, at)
        total = sum(tokens)
        if total < self._rules.minimum:
            return Usage(total)
        ttl = self._ttl(request)
        tree = self._trees.setdefault(ttl, PrefixTree(ttl, None))
        settings = (setting for setting in request.settings if setting[0] not in _RETENTIONS)
        keys = _keys(request.segments, (("model", request.model), *settings))
        step = self._rules.step
        read = min(tree.shared(keys, request.segments, tokens, at), max(total - 1, 0)) // step * step
        read = read if read >= self._rules.minimum else 0
        tree.keep(keys, request.segments, tokens, at, ready)
        written = max(total // step * step - read, 0)
        return Usage(total - read - written, read, written)

    def _ttl(self, request: WireRequest) -> int:
        asked = [value for name, value in request.settings if name in _RETENTIONS]
        return self._rules.ttls[-1 if any("24h" in value for value in asked) else 0]


@final
class BlockCache:
    """A server's own cache in blocks of tokens, as vLLM has it: shared by all requests of equal salt, without a TTL.

    Args:
        capacity: the tokens that it has room for; None: no bound.
        block: the tokens of a block.
        latency: how many seconds after its start a request's answer begins.
    """

    def __init__(self, capacity: int | None = None, *, block: int = 16, latency: float = LATENCY) -> None:
        self._block: Final = block
        self._clock: Final = _Clock(latency)
        self._tree: Final = PrefixTree(None, capacity)

    def send(self, request: WireRequest, tokens: Sequence[int], at: float) -> Usage:
        """As ``PrefixCache.send``; writing costs nothing, so that nothing counts as written."""
        ready = self._clock.start(request, tokens, at)
        total = sum(tokens)
        salts = (setting for setting in request.settings if setting[0] in _SALTS)
        keys = _keys(request.segments, (("model", request.model), *salts))
        # The last token is always computed: the answer begins from it.
        shared = min(self._tree.shared(keys, request.segments, tokens, at), max(total - 1, 0))
        read = shared // self._block * self._block
        self._tree.keep(keys, request.segments, tokens, at, ready)
        return Usage(total - read, read)


@final
class NoCache:
    """No cache at all."""

    def __init__(self) -> None:
        self._clock: Final = _Clock(0.0)

    def send(self, request: WireRequest, tokens: Sequence[int], at: float) -> Usage:
        """As ``PrefixCache.send``."""
        self._clock.start(request, tokens, at)
        return Usage(sum(tokens))


@final
class _Clock:
    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._last = float("-inf")

    def start(self, request: WireRequest, tokens: Sequence[int], at: float) -> float:
        """When the answer begins."""
        if len(tokens) != len(request.segments):
            raise InvalidInputError(
                f"must be one for each of the {len(request.segments)} segments, not {len(tokens)}", field="tokens"
            )
        if any(count < 0 for count in tokens):
            raise InvalidInputError("must not be negative", field="tokens")
        if not at >= self._last:
            raise InvalidInputError(f"must not be before {self._last}, when the last request started", field="at")
        self._last = at
        return at + self._latency


def _split(settings: Iterable[tuple[str, str]], model: str) -> tuple[bytes, bytes]:
    """What a whole prefix depends on, and what only the messages do."""
    rest = sorted(settings)
    whole = [("model", model), *(setting for setting in rest if setting[0] not in _MESSAGES_ONLY)]
    return _digest(repr(whole)), _digest(repr([setting for setting in rest if setting[0] in _MESSAGES_ONLY]))


def _names(segments: Sequence[Segment], whole: bytes, messages: bytes) -> list[bytes]:
    """A name for the prefix that ends at each segment: no other prefix has it."""
    names = []
    name, in_messages = whole, False
    for segment in segments:
        if segment.section == "messages" and not in_messages:
            name, in_messages = _joined(name, messages), True
        if not segment.content:
            # A cache point on its own adds nothing to the prefix.
            names.append(name)
            continue
        name = _joined(_joined(name, _head(segment)), _digest(segment.content))
        names.append(name)
    return names


def _keys(segments: Sequence[Segment], settings: Iterable[tuple[str, str]]) -> list[Key]:
    before = _digest(repr(sorted(settings)))
    keys: list[Key] = []
    for segment in segments:
        keys.append((before, segment.section, segment.kind, segment.role, segment.message))
        before = _joined(_joined(before, _head(segment)), _digest(segment.content))
    return keys


@functools.lru_cache(maxsize=8192)
def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def _head(segment: Segment) -> bytes:
    return _digest(f"{segment.section}\0{segment.kind}\0{segment.role}\0{segment.message}")


def _joined(before: bytes, after: bytes) -> bytes:
    return hashlib.blake2b(before + after, digest_size=16).digest()
