"""Every lost cached token to one cause: what a perfect prefix would have read, less what was read. Pure.

Expected is every token that the request before holds too, in the same or in another form. Faults are mended one after
another, the earliest in the prefix first, and each is given what mending it lets be read; so what several faults lose
together goes to the last of them, and the sum over causes is what was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, final

import attrs

from promptkeel.forensics.causes import Cause, cause_of_reason, contradicts
from promptkeel.forensics.divergence import Change, Divergence
from promptkeel.forensics.expected import Ledger, reaches
from promptkeel.forensics.requests import Kept, is_of_messages
from promptkeel.providers.caches import LATENCY
from promptkeel.providers.segments import SECTIONS

_SOON: Final = 10.0
"""So many seconds apart requests may be parallel, where the log does not say when an answer began."""
_SETTINGS: Final[Mapping[str, Cause]] = {
    **dict.fromkeys(("tool_choice", "toolChoice", "toolConfig", "parallel_tool_calls"), Cause.TOOL_CHOICE_CHANGED),
    **dict.fromkeys(
        ("thinking", "output_config", "effort", "reasoning", "reasoning_effort", "thinkingConfig", "verbosity"),
        Cause.REASONING_CHANGED,
    ),
    **dict.fromkeys(
        ("output_format", "response_format", "text", "responseSchema", "responseMimeType", "responseJsonSchema"),
        Cause.RESPONSE_FORMAT_CHANGED,
    ),
    "prompt_cache_key": Cause.KEY_CHANGED,
    "cache_salt": Cause.SALT_CHANGED,
    **dict.fromkeys(("prompt_cache_retention", "prompt_cache_options"), Cause.RETENTION_CHANGED),
}
_NOISE: Final = 0.3
_WHOLE: Final = -1


@final
@attrs.frozen(order=False)
class Blame:
    """Tokens lost to one cause.

    Attributes:
        cause: the cause.
        block: the block that is to blame; where none is, the section that was not read.
        tokens: how many.
    """

    cause: Cause
    block: str
    tokens: int


@final
@attrs.frozen(order=False)
class Attribution:
    """What a request lost.

    Attributes:
        expected: the tokens that could have been read.
        read: the tokens that were read.
        blames: who is to blame for the rest; together they have exactly ``lost`` tokens.
        change: the change of the prefix that cost most.
        is_contradicted: whether the provider gives a reason that names another part of the request.
    """

    expected: int
    read: int
    blames: tuple[Blame, ...] = ()
    change: Change | None = None
    is_contradicted: bool = False

    @property
    def lost(self) -> int:
        """The tokens that could have been read and were not."""
        return max(self.expected - self.read, 0)


@final
@attrs.frozen(order=False)
class _Fault:
    cause: Cause
    index: int
    tokens: int
    change: Change | None = None


def attribute(before: Kept, after: Kept, divergence: Divergence, ledger: Ledger, read: int) -> Attribution:
    """What a request lost of what the one before it left in the cache, and to which causes.

    Args:
        before: the request that it continues.
        after: the request.
        divergence: how they differ.
        ledger: what was written before it.
        read: the tokens that it read.
    """
    if after.record.request.handle is not None or before.record.request.handle is not None:
        return _by_handle(before, after, divergence, read)
    readable = _Readable(before, after, divergence, ledger)
    expected = readable.expected
    if expected <= read:
        return Attribution(expected, read)
    blames: list[Blame] = []
    change: Change | None = None
    worst = 0
    mended: set[Cause | int] = set()
    predicted = min(readable.tokens(mended), expected)
    reached = read
    if predicted > read and not _is_noise(predicted, read, after):
        blames += readable.blames(_unexplained(before, after, divergence), read, predicted)
        reached = predicted
    elif predicted == expected:
        # No more than sizes of places are wrong by: this is where the reading ended.
        return Attribution(read, read)
    for number, fault in enumerate(readable.faults):
        mended.add(fault.cause if fault.change is None and fault.index == _WHOLE else number)
        now = min(readable.tokens(mended), expected)
        if now > predicted:
            predicted = now
            if now > reached:
                if fault.change is not None and now - reached > worst:
                    change, worst = fault.change, now - reached
                blames += readable.blames(fault.cause, reached, now, fault.change)
                reached = now
    if reached < expected:
        blames += readable.blames(Cause.UNKNOWN, reached, expected)
    reason = after.record.miss
    main = max(blames, key=lambda blame: blame.tokens)
    is_contradicted = reason is not None and contradicts(reason.reason, main.cause)
    return Attribution(expected, read, tuple(_summed(blames)), change, is_contradicted)


def _is_noise(predicted: int, read: int, after: Kept) -> bool:
    """Whether what was read is less than foreseen only by as much as estimates of places are wrong."""
    if read == 0:
        return predicted <= (1 + _NOISE) * after.rules.minimum
    return predicted - read <= _NOISE * read


def setting_cause(name: str) -> Cause:
    """The cause that a changed setting is."""
    return _SETTINGS.get(name, Cause.SETTING_CHANGED)


@final
class _Readable:
    """What could have been read of a request, with some of its faults mended."""

    def __init__(self, before: Kept, after: Kept, divergence: Divergence, ledger: Ledger) -> None:
        self._before: Final = before
        self._after: Final = after
        self._pairs: Final = divergence.pairs
        self._has_answer: Final = divergence.has_answer
        self._ledger: Final = ledger
        self._rules: Final = after.rules
        # Only what both hold counts: what is new could not have been kept.
        self._sums = [0]
        for index in range(len(after.places)):
            count = after.sums[index + 1] - after.sums[index] if index in divergence.pairs else 0
            self._sums.append(self._sums[-1] + count)
        if self._is_held_whole() and self._sums[-1]:
            # What the provider counted of the request before is better known than any estimate of what is edited.
            known, estimated = min(before.total, after.total), self._sums[-1]
            self._sums = [tokens * known // estimated for tokens in self._sums]
        self.faults: Final = self._faults(divergence)

    @property
    def expected(self) -> int:
        """What a perfect prefix would have read."""
        return self._sums[-1] if self._rules.scheme == "marks" else self._stepped(self._sums[-1])

    def tokens(self, mended: AbstractSet[Cause | int]) -> int:
        """What could have been read with these faults mended: causes of the whole, and others by their number."""
        open_faults = [fault for number, fault in enumerate(self.faults) if number not in mended]
        if self._rules.scheme != "marks":
            if any(fault.cause in _LIFETIMES and fault.cause not in mended for fault in self.faults):
                return 0
            limits = [fault.tokens for fault in open_faults if fault.index != _WHOLE]
            found = self._stepped(min(limits, default=self._sums[-1]))
            return found if found >= self._rules.minimum or Cause.BELOW_MINIMUM in mended else 0
        limits = [fault.index for fault in open_faults if fault.index != _WHOLE]
        return self._marked(min(limits, default=len(self._after.places)), mended)

    def blames(self, cause: Cause, start: int, end: int, change: Change | None = None) -> Iterator[Blame]:
        """Tokens from one count to another, by the block that is to blame or by the sections that they are in."""
        if change is not None:
            yield Blame(cause, block_of(self._before, self._after, change), end - start)
            return
        done = start
        for section in SECTIONS:
            inside = [i for i, place in enumerate(self._after.places) if place.segment.section == section]
            stop = min(self._sums[inside[-1] + 1], end) if inside else done
            if stop > done:
                yield Blame(cause, section, stop - done)
                done = stop
        if end > done:
            yield Blame(cause, SECTIONS[-1], end - done)

    def _is_held_whole(self) -> bool:
        """Whether all of the request before is in this one, in some form, and the provider counted both."""
        is_counted = self._before.record.usage is not None and self._after.record.usage is not None
        return is_counted and len(set(self._pairs.values())) == len(self._before.places)

    def _faults(self, divergence: Divergence) -> list[_Fault]:
        before, after = self._before, self._after
        whole: list[_Fault] = []
        inner: list[_Fault] = []
        if before.record.request.model != after.record.request.model:
            whole.append(_Fault(Cause.MODEL_CHANGED, 0, 0))
        if before.record.gateway != after.record.gateway:
            whole.append(_Fault(Cause.GATEWAY_CHANGED, 0, 0))
        for name in changed_settings(before, after):
            if is_of_messages(name, self._rules):
                inner.append(_Fault(setting_cause(name), after.begins, self._sums[after.begins]))
            else:
                whole.append(_Fault(setting_cause(name), 0, 0))
        inner += [_Fault(change.cause, change.index, self._tokens_at(change), change) for change in divergence.changes]
        inner.sort(key=lambda fault: (fault.index, fault.tokens, fault.change is not None))
        return [*whole, *self._lifetimes(), *inner, *self._structure(divergence)]

    def _lifetimes(self) -> list[_Fault]:
        before, after = self._before.record.at, self._after.record.at
        if before is None or after is None:
            return []
        if self._rules.scheme == "marks":
            return [_Fault(cause, _WHOLE, 0) for cause in (Cause.PARALLEL_START, Cause.TTL_OVER)]
        found = []
        latency = LATENCY if self._before.record.latency is None else self._before.record.latency
        if not self._has_answer and after - before < latency:
            found.append(_Fault(Cause.PARALLEL_START, _WHOLE, 0))
        asked = [value for name, value in self._before.record.request.settings if "retention" in name]
        if after - before >= self._rules.ttls[-1 if any("24h" in value for value in asked) else 0]:
            found.append(_Fault(Cause.TTL_OVER, _WHOLE, 0))
        return found

    def _structure(self, divergence: Divergence) -> list[_Fault]:
        if self._rules.scheme != "marks":
            return [_Fault(Cause.BELOW_MINIMUM, _WHOLE, 0)]
        causes = [Cause.BELOW_MINIMUM, Cause.MARKS_DROPPED, Cause.LOOKBACK_EXCEEDED, self._unmarked(divergence)]
        return [_Fault(cause, _WHOLE, 0) for cause in causes]

    def _unmarked(self, divergence: Divergence) -> Cause:
        """What it is where nothing was written at the end of what both requests hold."""
        held = set(self._pairs.values())
        last = max(held, default=-1)
        if any(mark > last and mark not in held for mark, _ in self._before.marks) and divergence.replaces_end:
            is_in_tools = last >= 0 and self._before.places[last].segment.section == "tools"
            return Cause.TOOL_MARKS if is_in_tools else Cause.MARK_ON_CHANGING
        end = max(self._pairs, default=-1)
        if end >= 0 and self._after.places[end].segment.section == "tools":
            return Cause.TOOL_MARKS
        return Cause.MARK_MISSING

    def _tokens_at(self, change: Change) -> int:
        if change.index >= len(self._after.places):
            return self._sums[-1]
        start, end = self._sums[change.index], self._sums[change.index + 1]
        length = len(self._after.places[change.index].segment.content)
        return start + ((end - start) * change.offset // length if length else 0)

    def _stepped(self, tokens: int) -> int:
        return max(min(tokens, self._after.total - 1), 0) // self._rules.step * self._rules.step

    def _marked(self, limit: int, mended: AbstractSet[Cause | int]) -> int:
        before, after = self._before, self._after
        at = after.record.at
        lookback = None if Cause.LOOKBACK_EXCEEDED in mended else self._rules.lookback
        marks = [*after.dropped, *after.marks] if Cause.MARKS_DROPPED in mended else after.marks
        is_free = not mended.isdisjoint(_UNMARKED)
        written = dict(before.dropped) if Cause.MARKS_DROPPED in mended else {}
        if Cause.BELOW_MINIMUM in mended:
            written.update(each for each in before.marks if before.sums[each[0] + 1] < self._rules.minimum)
        for index in range(min(limit, len(after.places)) - 1, -1, -1):
            other = self._pairs.get(index)
            if other is None:
                continue
            if is_free:
                return self._sums[index + 1]
            entry = self._ledger.entry(before.names[other])
            if entry is None:
                is_kept = other in written
            else:
                is_ready = at is None or self._has_answer or entry.ready <= at or Cause.PARALLEL_START in mended
                is_kept = is_ready and (at is None or at < entry.expires or Cause.TTL_OVER in mended)
            if is_kept and reaches(marks, index, lookback):
                return self._sums[index + 1]
        return 0


_UNMARKED: Final = frozenset({Cause.MARK_MISSING, Cause.MARK_ON_CHANGING, Cause.TOOL_MARKS})
_LIFETIMES: Final = frozenset({Cause.PARALLEL_START, Cause.TTL_OVER})


def changed_settings(before: Kept, after: Kept) -> list[str]:
    """The names of the settings in which two requests differ."""
    old, new = dict(before.record.request.settings), dict(after.record.request.settings)
    return [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]


def block_of(before: Kept, after: Kept, change: Change) -> str:
    """The block that a change is in, as people name it: a tool, a system block, a kind of message."""
    if change.index < len(after.places):
        kept, index = after, change.index
    elif change.before is not None:
        kept, index = before, change.before
    else:
        return SECTIONS[-1]
    segment = kept.places[index].segment
    if segment.section == "tools":
        at = segment.content.find('"name":"')
        name = segment.content[at + 8 :].partition('"')[0] if at >= 0 else str(index)
        return f"tools: {name:.60}"
    if segment.section == "system":
        first = sum(place.segment.section == "tools" for place in kept.places)
        return f"system[{index - first}]"
    return f"messages: {segment.role} {segment.kind}"


def _unexplained(before: Kept, after: Kept, divergence: Divergence) -> Cause:
    """Why the same bytes were not read in time."""
    old, new = before.record, after.record
    may_be_parallel = not divergence.has_answer and old.latency is None and new.usage is not None
    if may_be_parallel and old.at is not None and new.at is not None and new.at - old.at < _SOON:
        return Cause.PARALLEL_START
    return Cause.UNKNOWN if new.miss is None else cause_of_reason(new.miss.reason)


def _by_handle(before: Kept, after: Kept, divergence: Divergence, read: int) -> Attribution:
    """The prefix is not in the request but under a name: all that is known of it is what was counted."""
    old, new = before.record, after.record
    if old.usage is None or new.usage is None:
        return Attribution(read, read)
    is_chain = new.request.handle is not None and new.request.handle == old.response_id
    kept = old.usage.prompt if is_chain else old.usage.read
    expected = min(kept, new.usage.prompt)
    if is_chain:
        expected = expected // after.rules.step * after.rules.step
    if expected <= read:
        return Attribution(expected, read)
    lead = [change for change in divergence.changes if _is_of_lead(after, change)]
    change = None
    if old.request.model != new.request.model:
        cause = Cause.MODEL_CHANGED
    elif not is_chain and old.request.handle != new.request.handle:
        cause = Cause.HANDLE_CHANGED
    elif lead:
        change, cause = lead[0], lead[0].cause
    elif old.at is not None and new.at is not None and new.at - old.at >= after.rules.ttls[0]:
        cause = Cause.TTL_OVER
    else:
        names = changed_settings(before, after)
        cause = setting_cause(names[0]) if names else Cause.UNKNOWN
    block = block_of(before, after, change) if change is not None else "handle"
    return Attribution(expected, read, (Blame(cause, block, expected - read),), change)


def _is_of_lead(after: Kept, change: Change) -> bool:
    return change.index < len(after.places) and after.places[change.index].segment.section != "messages"


def _summed(blames: Iterable[Blame]) -> list[Blame]:
    found: dict[tuple[Cause, str], int] = {}
    for blame in blames:
        found[blame.cause, blame.block] = found.get((blame.cause, blame.block), 0) + blame.tokens
    return [Blame(cause, block, tokens) for (cause, block), tokens in found.items()]


def excerpts(before: Kept, after: Kept, change: Change, *, around: int = 40) -> tuple[str, str]:
    """The text around a change, before and after it, with the place of the change marked."""
    return (
        _excerpt(before, change.before, change.before_offset, around),
        _excerpt(after, change.index, change.offset, around),
    )


def _excerpt(kept: Kept, index: int | None, offset: int, around: int) -> str:
    places: Sequence[object] = kept.places
    if index is None or index >= len(places):
        return ""
    content = kept.places[index].segment.content
    start, end = max(offset - around, 0), min(offset + around, len(content))
    lead, rest = content[start:offset], content[offset:end]
    return f"{'…' if start else ''}{lead}»{rest}{'…' if end < len(content) else ''}"
