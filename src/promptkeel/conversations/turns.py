"""One turn of a conversation: which base it has, what changed since, and the request that says so.

The state in the store only says which bases there are and which requests were made. Everything else is found in the
messages that the caller really sends: the longest prefix of them that was sent before names the base, and own deltas
are known by their seals. So a turn that was regenerated, edited, forked, trimmed or taken by another worker is right by
the same rule as any other.

A base is left where it must be (it cannot be made again, or something that it or a delta shows was erased), or where
that costs less and nothing in the messages is bound to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, final

import attrs

from promptkeel.conversations.chains import NEW_CHAIN, Chain, chain_of, is_chained, unchained
from promptkeel.conversations.costs import Carrying, Prices, paid_after, should_rewrite
from promptkeel.conversations.deltas import AuthoredDelta, Delta
from promptkeel.conversations.differing import differences, shows_what_is_gone
from promptkeel.conversations.finding import Reading, Sealing, read_messages, without_deltas
from promptkeel.conversations.keeping import State, read_state, write_state
from promptkeel.conversations.messages import Message, characters_of, check_messages, prefix_hashes
from promptkeel.conversations.pinning import PINNED, Base, erasures_at, made_again, may_be_erased, pinned
from promptkeel.conversations.placing import SYSTEM_ROLES, DeltaPart, with_parts
from promptkeel.conversations.reasoning import REASONED, dropping, holds_reasoning, is_turn_open, without_reasoning
from promptkeel.conversations.records import BaseRecord, Place, TurnRecord, keyed_hash
from promptkeel.core import KeelCore
from promptkeel.errors import ConflictError, ConversationBoundError, InvalidInputError
from promptkeel.prompt import Prompt
from promptkeel.prompt.requests import Request
from promptkeel.providers.canonical import canonical_tools
from promptkeel.providers.rules import ModelRules, ProviderName, rules_for
from promptkeel.providers.segments import WIRE_FORMATS, WireFormat
from promptkeel.providers.wire import read_request
from promptkeel.resolver import Freshness
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Checkpoint, Steps
from promptkeel.store.base import Heads, fence_id

Reason = Literal["erased", "lost", "model", "tools", "expired", "cost", "authored"]
"""Why a base was left: something that was shown is erased; it cannot be made again; nothing of it is kept by the
provider (another model, other tools, too long ago); carrying changes has cost as much as a new one; an operator's
text changed, and this provider takes none among the messages."""

_ATTEMPTS: Final = 64
_SECOND: Final = 1_000_000
_CHARACTERS: Final = 4
"""So many characters of JSON count as one token, where costs are weighed."""
_PROVIDERS: Final[Mapping[WireFormat, ProviderName]] = {
    "anthropic": "anthropic",
    "openai-responses": "openai",
    "openai-chat": "openai",
    "gemini": "gemini",
    "bedrock": "bedrock",
}


@final
@attrs.frozen(eq=False, repr=False)
class TurnRequest:
    """One request of a conversation.

    Attributes:
        arguments: the keyword arguments of one call of the provider's SDK.
        history: the caller's messages with what changed; keep them, and append the answer to them.
        delta: the texts that say what changed since the conversation's last request, as they stand in the history.
        base: the pinned prompt.
        rewritten: why this request has another base than the one before; None where it has the same, or is the first.
        withdrawn: how many earlier deltas were taken out of the messages.
        waiting: the names of an operator's blocks whose change stands among the user's words until the base is left,
            since this model takes no operator's text among its messages and holds its reasoning to them.
        notes: what the operator should know.
        freshness: whether all that the request says was verified after the call began.
        request: the adapter's own answer, with what a handle could be made of.
    """

    arguments: dict[str, Any]
    history: Sequence[Any]
    delta: tuple[str, ...]
    base: Prompt
    rewritten: Reason | None
    withdrawn: int
    waiting: tuple[str, ...]
    notes: tuple[str, ...]
    freshness: Freshness
    request: Request

    def __repr__(self) -> str:
        said = f"{len(self.delta)} changes" if self.rewritten is None else f"rewritten: {self.rewritten}"
        return f"<TurnRequest: {len(self.history)} messages, {said}>"


@final
@attrs.frozen(kw_only=True, eq=False)
class _Asked:
    """What a turn is asked for.

    Attributes:
        messages: the caller's.
        format: how they are spelled.
        model: for which model.
        tools: the caller's.
        tail: what this request says beyond memory.
        overrides: what is known better of the provider's rules.
        settings: other arguments of the call.
    """

    messages: list[Message]
    format: WireFormat
    model: str
    tools: Sequence[Any] | None
    tail: Any
    overrides: tuple[Any, ...]
    settings: Mapping[str, Any]


@final
@attrs.frozen(kw_only=True, eq=False)
class _Situation:
    """What a turn finds.

    Attributes:
        prompt: what memory says now.
        heads: at which it holds.
        state: what the store keeps of the conversation.
        reading: what the caller's messages hold.
        hashes: of each prefix of the messages without own parts and reasoning.
        origins: the index, in the caller's messages, of each message that the hashes are of.
        parent: the request that went furthest along the same messages.
        rules: the provider's.
        tools: a hash of the tools.
        now: the present instant.
    """

    prompt: Prompt
    heads: Heads
    state: State
    reading: Reading
    hashes: list[str]
    origins: list[int]
    parent: TurnRecord | None
    rules: ModelRules
    tools: str
    now: int


@final
class ConversationCore:
    """A conversation, as steps.

    Args:
        keel: the open keel.
        scope: for whom it is.
        conversation_id: which of the scope's conversations.
        secret: the store's.
    """

    def __init__(self, keel: KeelCore, scope: TenantScope, conversation_id: str, secret: bytes) -> None:
        self._keel = keel
        self._secret = secret
        self._place = Place.of(secret, scope, conversation_id)
        self._sealing = Sealing(bytes.fromhex(keyed_hash(secret, "delta", scope.path)), fence_id(secret, scope.root))
        self.scope = scope
        self.id = conversation_id

    def turn(
        self,
        /,
        messages: Sequence[Any],
        *,
        format: WireFormat,  # noqa: A002 - the word that callers use
        model: str,
        tools: Sequence[Any] | None = None,
        tail: Any = None,
        overrides: Iterable[Any] = (),
        **settings: Any,
    ) -> Steps[TurnRequest]:
        """The next request of the conversation: its base as it was, and after the messages what changed since.

        Args:
            messages: the conversation so far, as the provider's format spells it: what ``history`` was, or the
                caller's own.
            format: ``anthropic``, ``openai-responses``, ``openai-chat``, ``gemini`` or ``bedrock``.
            model: the model.
            tools: tool definitions, in the provider's format.
            tail: what this request says beyond memory, as for ``Prompt.anthropic``; never kept.
            overrides: what is known better of the provider's rules; later ones win.
            settings: other arguments of the call, handed on as they are.

        Raises:
            InvalidInputError: names the message, tool or setting that cannot be taken.
            BlockResolutionError: a block's source could not be read.
            ConversationBoundError: what was erased cannot be taken out of this turn; says what to do.
            StoreUnavailableError: the store could not be read or written to.
        """
        given: object = format
        if given not in WIRE_FORMATS:
            raise InvalidInputError(f"must be one of {', '.join(WIRE_FORMATS)}, not {given!r:.40}", field="format")
        asked = _Asked(
            messages=check_messages(messages),
            format=format,
            model=model,
            tools=tools,
            tail=tail,
            overrides=tuple(overrides),
            settings=settings,
        )
        for _ in range(_ATTEMPTS):
            situation = yield from self._look(asked)
            try:
                return (yield from self._take(asked, situation))
            except ConflictError:
                # Another worker was quicker: what it wrote is what this turn goes on from.
                yield Checkpoint()
        raise ConflictError("others took turns of this conversation all the time; take this one again")

    # -- what is there

    def _look(self, asked: _Asked) -> Steps[_Situation]:
        keel = self._keel
        prompt = yield from keel.builder.build(self.scope)
        state = yield from read_state(keel.store, self._place)
        heads = prompt.heads
        if heads is None:
            heads = yield from keel.store.heads(self.scope)
        reading = read_messages(asked.messages, asked.format, self._sealing)
        bare, kept = reading.bare.messages, list(range(len(reading.bare.messages)))
        if asked.format in REASONED:
            bare, kept = without_reasoning(bare)
        hashes = prefix_hashes(bare, asked.format, keyed_hash(self._secret, "prefix", self._place.key))
        rules = rules_for(
            _PROVIDERS[asked.format], _checked_model(asked.model), overrides=(*prompt.rules, *asked.overrides)
        )
        return _Situation(
            prompt=prompt,
            heads=heads,
            state=state,
            reading=reading,
            hashes=hashes,
            origins=[reading.bare.origins[index] for index in kept],
            parent=next((state.turns[each] for each in reversed(hashes) if each in state.turns), None),
            rules=rules,
            tools=_tools_hash(asked),
            now=keel.clock(),
        )

    def _base_of(self, situation: _Situation) -> Steps[tuple[Base | None, Reason | None]]:
        """The base that the conversation has, and why it has it no more."""
        turns = situation.state.turns.values()
        last = situation.parent or max(turns, key=lambda turn: turn.at, default=None)
        if last is None:
            return None, None
        record = situation.state.bases.get(last.base)
        if record is None:
            return None, "lost"
        base = yield from self._verified(record, situation.prompt)
        if base is None:
            known: str = yield Call(erasures_at, self._keel.store.engine, self.scope, self._secret)
            return None, "lost" if known == record.erasures else "erased"
        if not base.is_clean and shows_what_is_gone(situation.reading.of(base.id), situation.prompt):
            return None, "erased"
        return base, None

    def _verified(self, record: BaseRecord, prompt: Prompt) -> Steps[Base | None]:
        """The base of a record, nothing of which has been erased; None where its bytes cannot be made again."""
        keel, name = self._keel, (self._place.key, record.id)
        base = keel.pinned.get(name)
        if base is None or base.record != record:
            base = yield from self._made_again(record, prompt)
        else:
            base = yield from self._still(base, prompt)
        if base is not None:
            keel.pinned.put(name, base)
        return base

    def _still(self, base: Base, prompt: Prompt) -> Steps[Base | None]:
        found = yield Call(may_be_erased, self._keel.store.engine, self.scope, base.verified)
        heads, suspects = found
        if suspects is not None and not suspects:
            return attrs.evolve(base, verified=heads)
        checked = yield from self._checked(base, heads)
        if checked.is_clean or (suspects is not None and not suspects & base.shown):
            return checked
        # Read again as of its heads, it has its seals only if nothing of it is gone.
        return (yield from self._made_again(base.record, prompt))

    def _made_again(self, record: BaseRecord, prompt: Prompt) -> Steps[Base | None]:
        heads = yield from self._keel.store.heads(self.scope)
        base = yield from made_again(record, self._keel.builder, prompt, secret=self._secret, key=self._place.key)
        return None if base is None else (yield from self._checked(base, heads))

    def _checked(self, base: Base, heads: Heads) -> Steps[Base]:
        known: str = yield Call(erasures_at, self._keel.store.engine, self.scope, self._secret)
        return attrs.evolve(base, verified=heads, is_clean=known == base.record.erasures)

    # -- what is made of it

    def _take(self, asked: _Asked, situation: _Situation) -> Steps[TurnRequest]:
        base, reason = yield from self._base_of(situation)
        rules, reading = situation.rules, situation.reading
        paid = 0.0
        if base is not None:
            reason, paid = _worth_leaving(asked, situation, base, self._sealing)
        is_new = base is None or reason is not None
        if base is None or reason is not None:
            base = yield from self._pin(situation)
        found = [] if reason is not None else reading.of(base.id)
        changed = differences(base, found, situation.prompt, self._sealing.of(base.id), rules.channels)
        withdrawn = len(reading.deltas) - len(found)
        said = self._hash_of(found)
        parent = situation.parent
        lost = parent is not None and (parent.said != said or parent.tools != situation.tools)
        settled = _with_reasoning_settled(
            asked, situation, is_changed=is_new or withdrawn > 0 or lost, is_forced=reason in ("erased", "lost")
        )
        kept = base.id if reason is None else None
        history = without_deltas(settled.messages, asked.format, self._sealing, keeping=kept)
        takes_system = _takes_system(history, rules, asked.format)
        parts = [
            DeltaPart(each.channel, each.delta.text, _short(each.delta.text), each.is_authored and takes_system)
            for each in changed
        ]
        if parts:
            history = with_parts(history, parts, asked.format, settled.settings)
        chain = self._chain(asked, situation, base, is_new=is_new, withdrawn=withdrawn)
        given, chained_settings, chain_notes = _chained(asked, history, settled.settings, chain)
        texts = tuple(each.delta.text for each in changed)
        said_now = [*found, *(each.delta for each in changed)]
        request = _request(asked, base.prompt, situation.prompt, given, chained_settings)
        counter = situation.prompt.counter
        turn = TurnRecord(
            prefix=situation.hashes[-1],
            base=base.id,
            at=situation.now,
            model=asked.model,
            format=asked.format,
            tools=situation.tools,
            marks=_marks(asked.format, request, rules),
            carried=sum(counter(text) for text in (*(delta.text for delta in found), *texts)),
            paid=0.0 if is_new else paid,
            said=self._hash_of(said_now),
            loose=settled.loose,
            tailed=settled.is_passing or asked.tail is not None or bool(situation.prompt.tail),
        )
        turn = _with_what_it_replaces(turn, situation.state)
        yield from write_state(self._keel.store, situation.state, turn, base.record if is_new else None)
        self._keel.pinned.put((self._place.key, base.id), base)
        return TurnRequest(
            arguments=request.arguments,
            history=history,
            delta=texts,
            base=base.prompt,
            rewritten=reason,
            withdrawn=withdrawn,
            waiting=() if takes_system else tuple(dict.fromkeys(each.block for each in said_now if _is_authored(each))),
            notes=(*request.notes, *settled.notes, *chain_notes),
            freshness=_freshness(situation.prompt),
            request=request,
        )

    def _chain(self, asked: _Asked, situation: _Situation, base: Base, *, is_new: bool, withdrawn: int) -> Chain | None:
        """What the caller's chain holds; None where there is none to go on from."""
        if is_new or withdrawn or not is_chained(asked.format, asked.settings):
            return None
        chain = chain_of(asked.messages, situation.hashes, situation.origins, situation.state.turns)
        if chain is None or chain.turn.base != base.id:
            return None
        held = read_messages(asked.messages[: chain.held], asked.format, self._sealing)
        return chain if chain.turn.said == self._hash_of(held.of(base.id)) else None

    def _pin(self, situation: _Situation) -> Steps[Base]:
        engine = self._keel.store.engine
        known: str = yield Call(erasures_at, engine, self.scope, self._secret)
        found = yield Call(may_be_erased, engine, self.scope, situation.heads)
        # What was erased between the prompt and this is not told apart from what was erased before.
        erasures = known if found[1] is not None and not found[1] else ""
        return pinned(
            situation.prompt,
            situation.heads,
            erasures=erasures,
            at=situation.now,
            secret=self._secret,
            key=self._place.key,
        )

    def _hash_of(self, deltas: Iterable[Delta]) -> str:
        return keyed_hash(self._secret, "said", *(delta.text for delta in deltas))[:32]


# -- whether a base is left


def _worth_leaving(asked: _Asked, situation: _Situation, base: Base, sealing: Sealing) -> tuple[Reason | None, float]:
    """Why a base that could be kept is left, None where it is kept; and what carrying deltas has cost if it is."""
    rules, prompt = situation.rules, situation.prompt
    found = situation.reading.of(base.id)
    changed = differences(base, found, prompt, sealing.of(base.id), rules.channels)
    if not found and not changed:
        return None, _turn_of(situation, base).paid
    seconds = _kept_for(_turn_of(situation, base), rules)
    prices = Prices.of(rules, seconds if seconds in rules.ttls else None)
    cold = _coldness(asked, situation, base)
    change = sum(prompt.counter(each.delta.text) for each in changed)
    carrying = _carrying(asked, situation, base, found, change)
    # What is too short to be kept is paid whole each time, and so is every delta behind it.
    is_kept = rules.scheme != "none" and carrying.prefix >= rules.minimum
    carrying = attrs.evolve(carrying, is_warm=cold is None and is_kept)
    paid = paid_after(carrying, prices)
    if rules.binds_reasoning and holds_reasoning(asked.messages, asked.format):
        return None, paid
    authored = any(_is_authored(each) for each in (*found, *(each.delta for each in changed)))
    if authored and not _takes_system(asked.messages, rules, asked.format):
        return "authored", paid
    if should_rewrite(carrying, prices):
        return ("cost" if cold is None else cold), paid
    return None, paid


def _coldness(asked: _Asked, situation: _Situation, base: Base) -> Reason | None:
    """Why nothing of a base is kept by the provider; None where it may be."""
    turns = [turn for turn in situation.state.turns.values() if turn.base == base.id]
    same_model = [turn for turn in turns if (turn.model, turn.format) == (asked.model, asked.format)]
    if not same_model:
        return "model"
    same = [turn for turn in same_model if turn.tools == situation.tools]
    if not same:
        return "tools"
    last = max(same, key=lambda turn: turn.at)
    return None if situation.now < last.at + _kept_for(last, situation.rules) * _SECOND else "expired"


def _kept_for(turn: TurnRecord, rules: ModelRules) -> int:
    """For how many seconds the provider keeps what a request wrote."""
    return max((seconds for _, seconds in turn.marks), default=rules.ttls[0])


def _carrying(asked: _Asked, situation: _Situation, base: Base, found: Sequence[Delta], change: int) -> Carrying:
    counter = situation.prompt.counter
    characters = len(situation.prompt.prefix) + characters_of(situation.reading.bare.messages)
    characters += 0 if asked.tools is None else characters_of(asked.tools)
    return Carrying(
        prefix=characters // _CHARACTERS,
        carried=sum(counter(delta.text) for delta in found),
        change=change,
        paid=_turn_of(situation, base).paid,
        is_warm=True,
    )


def _with_what_it_replaces(turn: TurnRecord, state: State) -> TurnRecord:
    """The record of a request; where its messages were sent before otherwise, nobody can tell whose an answer is."""
    before = state.turns.get(turn.prefix)
    if before is None:
        return turn
    sent = [(each.base, each.said, each.loose, each.tools) for each in (before, turn)]
    return attrs.evolve(turn, tailed=turn.tailed or before.tailed or sent[0] != sent[1])


def _turn_of(situation: _Situation, base: Base) -> TurnRecord:
    """The last request with this base, along the messages where there is one."""
    if situation.parent is not None and situation.parent.base == base.id:
        return situation.parent
    turns = [turn for turn in situation.state.turns.values() if turn.base == base.id]
    return max(turns, key=lambda turn: turn.at)


# -- reasoning


@final
@attrs.frozen(eq=False)
class _Settled:
    """Messages and settings in which no reasoning is held against what is no longer before it.

    Attributes:
        messages: the caller's.
        settings: other arguments of the call.
        loose: so many messages may hold reasoning that does not fit.
        notes: what was done.
        is_passing: whether reasoning is there that will not be once the turn is over.
    """

    messages: list[Message]
    settings: Mapping[str, Any]
    loose: int
    notes: tuple[str, ...] = ()
    is_passing: bool = False


def _with_reasoning_settled(asked: _Asked, situation: _Situation, *, is_changed: bool, is_forced: bool) -> _Settled:
    """What is sent instead of reasoning whose prefix has changed.

    Args:
        asked: the turn.
        situation: what it finds.
        is_changed: whether something before reasoning in the messages is not what it was.
        is_forced: whether that cannot be undone.

    Raises:
        ConversationBoundError: it cannot, and the turn that goes on needs its reasoning.
    """
    parent, rules, messages = situation.parent, situation.rules, asked.messages
    count = len(situation.origins)
    loose = count if is_changed or parent is None or parent.tailed else parent.loose
    until = situation.origins[loose] if loose < count else len(messages)
    if not rules.binds_reasoning or not holds_reasoning(messages[:until], asked.format):
        return _Settled(messages, asked.settings, loose)
    if not (until == len(messages) and is_turn_open(messages)):
        left, _ = without_reasoning(messages, until)
        note = "reasoning was left out: this model holds it against what stood before it, which has changed"
        return _Settled(left, asked.settings, loose, (note,))
    if rules.drops_reasoning:
        note = "the provider drops reasoning that does not fit any more: it is bound to what stood before it"
        return _Settled(messages, dropping(asked.settings, asked.format), loose, (note,), is_passing=True)
    if is_forced:
        raise ConversationBoundError(
            "a turn that goes on holds reasoning, this model binds it to what stood before it, and that cannot be "
            "shown again: leave this turn out, and send the messages up to the user's last one"
        )
    note = "this model may refuse the reasoning of the turn that goes on: something before it has changed"
    return _Settled(messages, asked.settings, loose, (note,), is_passing=True)


# -- what is sent


def _takes_system(messages: Sequence[Message], rules: ModelRules, wire_format: WireFormat) -> bool:
    """Whether an operator's text may stand behind the messages."""
    if rules.system_turns == "refused" or wire_format not in SYSTEM_ROLES:
        return False
    return rules.system_turns == "anywhere" or any(message.get("role") == "user" for message in messages)


def _is_authored(delta: Delta) -> bool:
    return isinstance(delta, AuthoredDelta)


def _chained(
    asked: _Asked, history: Sequence[Message], settings: Mapping[str, Any], chain: Chain | None
) -> tuple[Sequence[Message], Mapping[str, Any], tuple[str, ...]]:
    """The messages that are sent, the settings, and what was done about a chain."""
    if not is_chained(asked.format, settings):
        return history, settings, ()
    if chain is None:
        return history, unchained(settings), (NEW_CHAIN,)
    return history[chain.held :], settings, ()


def _request(
    asked: _Asked, base: Prompt, current: Prompt, history: Sequence[Message], settings: Mapping[str, Any]
) -> Request:
    given: dict[str, Any] = {
        "model": asked.model,
        "messages": history,
        "tools": asked.tools,
        "tail": asked.tail,
        "current": current,
        "overrides": asked.overrides,
        **settings,
    }
    match asked.format:
        case "anthropic":
            return base.anthropic(**given)
        case "bedrock":
            return base.bedrock(**given)
        case "gemini":
            return base.gemini(**given)
        case "openai-chat":
            return base.openai(api="chat", **given)
        case "openai-responses":
            return base.openai(api="responses", **given)


def _marks(wire_format: WireFormat, request: Request, rules: ModelRules) -> tuple[tuple[int, int], ...]:
    if rules.scheme != "marks":
        return ()
    segments = read_request(wire_format, request.arguments).segments
    default = rules.ttls[0]
    return tuple(
        (index, default if segment.mark.ttl is None else segment.mark.ttl)
        for index, segment in enumerate(segments)
        if segment.mark is not None
    )


def _freshness(prompt: Prompt) -> Freshness:
    return attrs.evolve(prompt.freshness, detail=(*prompt.freshness.detail, PINNED))


def _tools_hash(asked: _Asked) -> str:
    spelled = "" if asked.tools is None else json.dumps(canonical_tools(asked.format, asked.tools))
    return hashlib.sha256(spelled.encode()).hexdigest()[:32]


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _checked_model(model: object) -> str:
    if not isinstance(model, str) or not model.strip():
        raise InvalidInputError(f"must be the name of a model, not {model!r:.40}", field="model")
    return model
