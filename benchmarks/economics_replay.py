"""One trace through all layouts side by side, each with a cache of its own at a simulated provider."""

from __future__ import annotations

import datetime as dt
import functools
import random
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal
from unittest import mock

import attrs

import promptkeel as pk
from economics_layouts import BLOCK, LAYOUTS, Fact, Format, Layout, Moment
from economics_trace import Message, Trace, Turn, Write, as_anthropic
from promptkeel import blocking
from promptkeel.providers.automaton import UNSENT, SentState, advance, check
from promptkeel.providers.caches import BlockCache, PrefixCache, cache_for, input_units
from promptkeel.providers.counting import tokens_of
from promptkeel.providers.rules import ModelRules, rules_for
from promptkeel.providers.segments import Segment, Usage, WireRequest
from promptkeel.providers.wire import read_request
from promptkeel.tokens import TokenCounter, token_counter

BEGIN: Final = dt.datetime(2026, 11, 30, 22, tzinfo=dt.UTC)
_CAPACITY: Final = 400_000
_OWN: Final = "gpt-oss-120b"
# On a server of one's own, what is read from blocks is not computed, and that is all that it costs.
_SERVER: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "openai": {
            "models": {
                _OWN: {
                    "minimum": 16,
                    "step": 16,
                    "ttls": [86400],
                    "write_factors": [1.0],
                    "read_factor": 0.0,
                    "system_turns": "anywhere",
                    "binds_reasoning": False,
                }
            }
        }
    },
)


@attrs.frozen
class Scheme:
    """A provider's way to keep prefixes.

    Attributes:
        name: what the table calls it.
        format: of its requests.
        model: the model.
        rules: what it does with prompts.
        server: of Chat Completions, whose.
        cache: makes an empty cache.
        overrides: what is known better of the provider's rules.
    """

    name: str
    format: Format
    model: str
    rules: ModelRules
    server: Literal["openai", "vllm"]
    cache: Callable[[], PrefixCache]
    overrides: tuple[Mapping[str, Any], ...] = ()


def _provider(name: str, provider: str, format_: Format, model: str) -> Scheme:
    rules = rules_for(provider, model)
    return Scheme(f"{name}, {model}", format_, model, rules, "openai", functools.partial(cache_for, rules))


def schemes() -> dict[str, Scheme]:
    """The schemes that are compared, by their short names."""
    own = rules_for("openai", _OWN, overrides=_SERVER)
    return {
        "marks": _provider("marks", "anthropic", "anthropic", "claude-opus-4-8"),
        "steps": _provider("128-token steps", "openai", "openai-chat", "gpt-5.4"),
        "blocks": Scheme(
            "16-token blocks, vLLM", "openai-chat", _OWN, own, "vllm", functools.partial(BlockCache, _CAPACITY), _SERVER
        ),
    }


@attrs.define
class Tally:
    """What the requests of one layout came to.

    Attributes:
        layout: its name.
        is_stale: whether it shows what memory said earlier.
        requests: how many there were.
        prompt: their tokens.
        read: those of them that were read from the cache.
        units: what they cost, in tokens of input at the full price.
        stale: the sum of turns by which each request lagged behind memory.
        stalest: the most turns that one did.
        illegal: how many requests broke a rule of the provider's.
        violations: which rules, each with how often.
        spent: what each conversation cost, in the same unit.
    """

    layout: str
    is_stale: bool
    requests: int = 0
    prompt: int = 0
    read: int = 0
    units: float = 0.0
    stale: int = 0
    stalest: int = 0
    illegal: int = 0
    violations: dict[str, int] = attrs.field(factory=dict)
    spent: dict[int, float] = attrs.field(factory=dict)

    def add(self, turn: Turn, usage: Usage, units: float, stale: int, violations: Iterable[str]) -> None:
        """Count one request."""
        self.requests += 1
        self.prompt += usage.prompt
        self.read += usage.read
        self.units += units
        self.stale += stale
        self.stalest = max(self.stalest, stale)
        broken = set(violations)
        self.illegal += bool(broken)
        for name in broken:
            self.violations[name] = self.violations.get(name, 0) + 1
        self.spent[turn.conversation] = self.spent.get(turn.conversation, 0.0) + units


Seen = Callable[[str, Turn, WireRequest, list[int], Usage], None]


def replay(
    trace: Trace,
    scheme: Scheme,
    *,
    layouts: Iterable[Callable[[], Layout]] = LAYOUTS,
    url: str = "ram:",
    seen: Seen | None = None,
) -> list[Tally]:
    """What each layout comes to on a trace.

    Args:
        trace: what happens.
        scheme: at which provider.
        layouts: the layouts.
        url: the store.
        seen: called with the layout's name and what was sent and counted, request by request.
    """
    lanes = [_Lane(make(), scheme) for make in layouts]
    for moment in moments(trace, scheme, url):
        for lane in lanes:
            lane.send(moment, seen)
    return [lane.tally for lane in lanes]


def moments(trace: Trace, scheme: Scheme, url: str = "ram:") -> Iterator[Moment]:
    """What is there at each request of a trace, while the store is at that point."""
    clock = _Clock()
    blocks = [
        pk.PromptBlockSpec(name="BOUNDARIES", source=pk.StaticSource(trace.policy)),
        pk.PromptBlockSpec(name=BLOCK, source=pk.MemoryLane("SOUL:")),
    ]
    drawn = random.Random(1)
    # A new store's secret is in the texts that are sealed with it: with the same one, a run gives the same figures.
    repeated = mock.patch.multiple(secrets, token_bytes=drawn.randbytes, randbits=drawn.getrandbits)
    with repeated, blocking.open(url, blocks=blocks, clock=clock) as keel:
        memory = _Memory(keel)
        for user, texts in trace.known.items():
            for number, text in enumerate(texts):
                memory.write(Write(0.0, user, "add", number, text), BEGIN - dt.timedelta(days=1 + number // 5))
        spelled = _Spelled(trace, scheme.format)
        latest: dict[int, int] = {}
        for event in trace.events:
            now = clock.set(event.at)
            if isinstance(event, Write):
                memory.write(event, now)
                continue
            messages = spelled.until(event)
            yield Moment(
                turn=event,
                now=now,
                keel=keel,
                scope=scope_of(event.user),
                prompt=keel.prompt(scope_of(event.user)),
                facts=list(memory.facts[event.user].values()),
                messages=messages,
                new=messages[latest.get(event.conversation, 0) :],
                format=scheme.format,
                model=scheme.model,
                server=scheme.server,
                overrides=scheme.overrides,
            )
            latest[event.conversation] = len(messages)


def scope_of(user: int) -> pk.TenantScope:
    """The scope of a user."""
    return pk.TenantScope.parse(f"org:airline/user:u{user}")


class _Clock:
    def __init__(self) -> None:
        self.set(0.0)

    def set(self, at: float) -> dt.datetime:
        self.now = BEGIN + dt.timedelta(seconds=at)
        return self.now

    def __call__(self) -> int:
        return int(self.now.timestamp() * 1_000_000)


class _Memory:
    """The store, and what a reader of it must find there."""

    def __init__(self, keel: Any) -> None:
        self._keel = keel
        self._ids: dict[tuple[int, int], str] = {}
        self.facts: dict[int, dict[int, Fact]] = {}

    def write(self, write: Write, now: dt.datetime) -> None:
        scope, said = scope_of(write.user), {"source": "user", "recorded_at": now, "trust": "user"}
        facts = self.facts.setdefault(write.user, {})
        if write.kind == "add":
            node = self._keel.remember(scope, write.text, block=BLOCK, **said)
            self._ids[write.user, write.fact] = node.id
        elif write.kind == "correct":
            self._keel.correct(scope, self._ids[write.user, write.fact], text=write.text, **said)
        else:
            self._keel.retract(scope, self._ids[write.user, write.fact])
            del facts[write.fact]
            return
        facts[write.fact] = Fact(write.text, write.at)


class _Spelled:
    """The conversations as a format spells them, each message one object for good."""

    def __init__(self, trace: Trace, format_: Format) -> None:
        self._found: list[tuple[list[Message], list[int]]] = [
            as_anthropic(messages) if format_ == "anthropic" else (list(messages), list(range(len(messages) + 1)))
            for messages in trace.conversations
        ]

    def until(self, turn: Turn) -> list[Message]:
        messages, counts = self._found[turn.conversation]
        return messages[: counts[turn.messages]]


class _Lane:
    """One layout at the provider."""

    def __init__(self, layout: Layout, scheme: Scheme) -> None:
        self._layout = layout
        self._scheme = scheme
        self._cache = scheme.cache()
        self._sent: dict[int, SentState] = {}
        self._times: dict[int, list[float]] = {}
        self.tally = Tally(layout.name, layout.is_stale)

    def send(self, moment: Moment, seen: Seen | None) -> None:
        turn, rules = moment.turn, self._scheme.rules
        arguments = self._layout.request(moment)
        request = read_request(self._scheme.format, arguments)
        tokens = [_tokens(segment.kind, segment.content) for segment in request.segments]
        usage = self._cache.send(request, tokens, turn.at)
        before = self._sent.get(turn.conversation, UNSENT)
        broken = [violation.rule for violation in check(before, request, rules, turn.at)]
        self._sent[turn.conversation] = advance(before, request, turn.at)
        if turn.is_last:
            del self._sent[turn.conversation]
        times = self._times.setdefault(turn.conversation, [])
        times.append(turn.at)
        self.tally.add(turn, usage, input_units(usage, rules), _lag(moment, request, times), broken)
        if seen is not None:
            seen(self.tally.layout, turn, request, tokens, usage)


def _lag(moment: Moment, request: WireRequest, times: list[float]) -> int:
    """For how many turns of its conversation a fact that a request does not show has been there to be shown."""
    shown = "".join([_bare(segment.content) for segment in request.segments])
    missing = [fact.since for fact in moment.facts if _bare(fact.text) not in shown]
    # A fact that was there before the conversation counts from its first turn.
    return sum(at >= min(missing) for at in times) if missing else 0


@functools.lru_cache(maxsize=65536)
def _bare(text: str) -> str:
    # Quotes are escaped as often as texts are quoted.
    return text.replace("\\", "").replace('"', "")


@functools.lru_cache(maxsize=65536)
def _tokens(kind: Any, content: str) -> int:
    return tokens_of(Segment("messages", kind, "", content), _counter())


def count(text: str) -> int:
    """The tokens of a text, exactly as o200k has them."""
    return _counter()(text)


@functools.cache
def _counter() -> TokenCounter:
    return token_counter("o200k_base")
