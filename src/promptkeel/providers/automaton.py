"""What may change from one request to the next: a provider's rules for a model, as an automaton over requests.

The state is what was sent before, as positions and moments and without its text; ``check`` says which rules a request
breaks after it, and ``advance`` what the state is once the provider has taken the request. Both are pure. A state is
one conversation's with all its branches: requests may come in any order that a tree of turns allows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, final

import attrs

from promptkeel.providers.placement import ANSWERING_ROLES, check_placement
from promptkeel.providers.rules import ModelRules
from promptkeel.providers.segments import Segment, WireRequest
from promptkeel.providers.violations import Violation

_DROPS: Final = '"prefix_mismatch_behavior":"drop_block"'


@final
@attrs.frozen(order=False)
class Written:
    """One prefix that a provider was asked to keep.

    Attributes:
        prefix: the digest of the prefix.
        ttl: for how many seconds it was asked to; None is the default.
        at: when, in seconds.
    """

    prefix: bytes
    ttl: int | None
    at: float

    def is_kept(self, rules: ModelRules, at: float) -> bool:
        """Whether its time is not over."""
        return at < self.at + (rules.ttls[0] if self.ttl is None else self.ttl)


@final
@attrs.frozen(order=False, kw_only=True)
class SentState:
    """What was sent so far.

    Attributes:
        ends: the digest of each whole request, with the moment it was last sent.
        written: the places of marks, newest last.
        bound: the digest of each reasoning segment, with the digest of the prefix that it was produced after. Segments
            are told apart by what they hold, which the provider has signed.
        chains: what the caller has sent into each handle, as the digests of its messages in order.
        handles: the kept prefix that each handle was made for.
        at: the moment of the last request; None before the first.
    """

    ends: Mapping[bytes, float] = attrs.field(factory=dict, hash=False)
    written: tuple[Written, ...] = ()
    bound: Mapping[bytes, bytes] = attrs.field(factory=dict, hash=False)
    chains: Mapping[str, tuple[bytes, ...]] = attrs.field(factory=dict, hash=False)
    handles: Mapping[str, Written] = attrs.field(factory=dict, hash=False)
    at: float | None = None

    def is_warm(self, rules: ModelRules, at: float) -> bool:
        """Whether a provider may still keep anything of what was sent."""
        if any(each.is_kept(rules, at) for each in (*self.written, *self.handles.values())):
            return True
        return rules.scheme != "marks" and self.at is not None and self.at + rules.ttls[0] > at


UNSENT: Final = SentState()
"""The state before the first request."""


def check(state: SentState, request: WireRequest, rules: ModelRules, at: float) -> tuple[Violation, ...]:
    """Every rule that a request breaks after what was sent before, those of its own placement first.

    Args:
        state: what was sent before.
        request: what is to be sent.
        rules: of its provider and model.
        at: when, in seconds on the caller's clock.
    """
    found = [*check_placement(request, rules), *_handle(state, request, rules, at)]
    if rules.binds_reasoning and not (rules.drops_reasoning and drops_reasoning(request)):
        found += _reasoning(state, request)
    return tuple(found)


def check_history(state: SentState, handle: str, history: Sequence[Segment]) -> tuple[Violation, ...]:
    """Whether a whole history can go on under the handle of a stateful API: what the handle holds cannot be withdrawn.

    Args:
        state: what was sent before.
        handle: the response or the conversation that is to be continued.
        history: every message that the model is to read, the answers among them.
    """
    held = state.chains.get(handle, ())
    asked = _asked(history)
    if asked[: len(held)] == held:
        return ()
    reason = f"this history differs from what {handle!r} holds; begin a new chain"
    return (Violation("changed-history", "misread", reason),)


def advance(
    state: SentState, request: WireRequest, at: float, *, response: str | None = None, answer: Sequence[Segment] = ()
) -> SentState:
    """The state after the provider has taken a request.

    Args:
        state: what was sent before.
        request: what was taken.
        at: when, in seconds on the caller's clock.
        response: the name under which what was sent can be continued: of the response, or of the kept prefix that the
            request made. Without one, a handle that the request continues names a conversation, which grows.
        answer: what the model answered, where that is known. Reasoning that was not told is taken for the answer of any
            request that it comes back right after, so that a turn asked again after another base can hide a breach.
    """
    prefixes = prefix_digests(request.segments)
    bound = dict(state.bound)
    for index, digest in _reasoning_of(request):
        if digest not in bound and _was_asked(state, request, prefixes, index):
            bound[digest] = prefixes[index]
    if answer:
        whole = prefix_digests([*request.segments, *answer])[len(prefixes) - 1 :]
        for each, prefix in zip(answer, whole, strict=False):
            if each.kind == "reasoning":
                bound.setdefault(prefix_digests([each])[1], prefix)
    chains, handles = state.chains, state.handles
    name = response if response is not None else request.handle
    if request.format == "gemini":
        if response is not None:
            ttl = None if request.automatic is None else request.automatic.ttl
            handles = {**handles, response: Written(prefixes[-1], ttl, at)}
    elif name is not None:
        chains = {**chains, name: (*chains.get(request.handle or "", ()), *_asked(request.segments))}
    return SentState(
        ends={**state.ends, prefixes[-1]: at},
        written=_written(state, request, prefixes, at),
        bound=bound,
        chains=chains,
        handles=handles,
        at=at,
    )


def prefix_digests(segments: Sequence[Segment]) -> list[bytes]:
    """The digest of each prefix of the segments, the empty one first; marks and the numbers of messages are no part."""
    digests = [b""]
    running = hashlib.blake2b(digest_size=16)
    for each in segments:
        if not each.content:  # a cache point on its own
            digests.append(digests[-1])
            continue
        for part in (each.section, each.kind, each.role, each.content):
            encoded = part.encode("utf-8", "surrogatepass")
            running.update(len(encoded).to_bytes(8, "big"))
            running.update(encoded)
        digests.append(running.digest())
    return digests


def drops_reasoning(request: WireRequest) -> bool:
    """Whether a request lets the provider drop reasoning whose prefix has changed."""
    return any(_DROPS in value for _, value in request.settings)


def _written(state: SentState, request: WireRequest, prefixes: Sequence[bytes], at: float) -> tuple[Written, ...]:
    written = {each.prefix: each for each in state.written}
    marks = [(prefixes[index + 1], each.mark) for index, each in enumerate(request.segments)]
    if request.automatic is not None and not (marks and marks[-1][1] is not None):
        marks.append((prefixes[-1], request.automatic))
    for prefix, mark in marks:
        if mark is not None:
            written.pop(prefix, None)
            written[prefix] = Written(prefix, mark.ttl, at)
    return tuple(written.values())


def _reasoning_of(request: WireRequest) -> Iterator[tuple[int, bytes]]:
    for index, each in enumerate(request.segments):
        if each.kind == "reasoning" and each.section == "messages":
            yield index, prefix_digests([each])[1]


def _reasoning(state: SentState, request: WireRequest) -> Iterator[Violation]:
    prefixes = prefix_digests(request.segments)
    for index, digest in _reasoning_of(request):
        if digest in state.bound:
            fits = state.bound[digest] == prefixes[index]
        else:
            fits = _was_asked(state, request, prefixes, index)
        if not fits:
            reason = "something before this reasoning is not what it was produced after; restore it, or leave it out"
            yield Violation("bound-reasoning", "refused", reason, index)


def _was_asked(state: SentState, request: WireRequest, prefixes: Sequence[bytes], index: int) -> bool:
    """Whether what stands before a segment was sent as a request, with nothing but its answer in between."""
    if not state.ends:
        return True  # nothing is known of what came before
    for end in range(index, -1, -1):
        if prefixes[end] in state.ends:
            return True
        if end == 0 or request.segments[end - 1].role not in ANSWERING_ROLES:
            return False
    return False


def _asked(segments: Sequence[Segment]) -> tuple[bytes, ...]:
    """The digest of each segment of the messages that is no answer."""
    return tuple(
        prefix_digests([each])[1]
        for each in segments
        if each.section == "messages" and each.content and each.role not in ANSWERING_ROLES
    )


def _handle(state: SentState, request: WireRequest, rules: ModelRules, at: float) -> Iterator[Violation]:
    if request.handle is None:
        return
    if request.format == "gemini":
        made = state.handles.get(request.handle)
        if made is not None and not made.is_kept(rules, at):
            reason = f"{request.handle!r} is {at - made.at:.0f} s old and no longer kept; make a new one"
            yield Violation("expired-handle", "refused", reason)
        return
    held = state.chains.get(request.handle, ())
    messages = [(index, each) for index, each in enumerate(request.segments) if each.section == "messages"]
    # What is new holds no answers: this is a whole history, sent once more.
    if not held or not any(each.role in ANSWERING_ROLES for _, each in messages):
        return
    first = messages[0][0]
    if check_history(state, request.handle, request.segments):
        reason = f"this history differs from what {request.handle!r} holds, and is read after it; begin a new chain"
        yield Violation("changed-history", "misread", reason, first)
    else:
        reason = f"{request.handle!r} holds these messages already; send only what is new"
        yield Violation("repeated-history", "misread", reason, first)
