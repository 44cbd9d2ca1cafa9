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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, final

import attrs

from promptkeel.conversations.chains import Chain, chain_of, is_chained
from promptkeel.conversations.deltas import Delta
from promptkeel.conversations.differing import differences, shows_what_is_gone
from promptkeel.conversations.finding import Sealing, read_messages, without_deltas
from promptkeel.conversations.keeping import State, read_state, write_state
from promptkeel.conversations.leaving import Reason, is_authored, takes_system, worth_leaving
from promptkeel.conversations.messages import check_messages, prefix_hashes
from promptkeel.conversations.pinning import PINNED, Base, Erasures, erasures_at, made_again, may_be_erased, pinned
from promptkeel.conversations.placing import DeltaPart, with_parts
from promptkeel.conversations.reasoning import REASONED, without_reasoning
from promptkeel.conversations.records import BaseRecord, Place, TurnRecord, keyed_hash
from promptkeel.conversations.sending import Watch, chained, marks_of, request_of
from promptkeel.conversations.settling import with_reasoning_settled
from promptkeel.conversations.situations import Asked, Situation, checked_model, tools_hash
from promptkeel.core import KeelCore
from promptkeel.errors import ConflictError, InvalidInputError
from promptkeel.prompt import Prompt
from promptkeel.prompt.requests import Request
from promptkeel.providers.rules import ProviderName, rules_for
from promptkeel.providers.segments import WIRE_FORMATS, WireFormat
from promptkeel.providers.wire import read_request
from promptkeel.resolver import Freshness
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Checkpoint, Steps
from promptkeel.store.base import fence_id

_ATTEMPTS: Final = 64
_SECOND: Final = 1_000_000
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
        notes: what the operator should know: marks that could not be set, and rules of the provider that the request
            breaks after what this conversation has sent before.
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
        self._watch = Watch()

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
        asked = Asked(
            messages=check_messages(messages),
            format=format,
            model=model,
            tools=tools,
            tail=tail,
            overrides=tuple(overrides),
            settings=settings,
        )
        for _ in range(_ATTEMPTS):
            try:
                situation = yield from self._look(asked)
                return (yield from self._take(asked, situation))
            except ConflictError:
                # Another worker was quicker: what it wrote is what this turn goes on from.
                yield Checkpoint()
            except RecursionError:
                raise InvalidInputError("are nested too deeply", field="messages") from None
        raise ConflictError("others took turns of this conversation all the time; take this one again")

    # -- what is there

    def _look(self, asked: Asked) -> Steps[Situation]:
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
            _PROVIDERS[asked.format], checked_model(asked.model), overrides=(*prompt.rules, *asked.overrides)
        )
        return Situation(
            prompt=prompt,
            heads=heads,
            state=state,
            reading=reading,
            hashes=hashes,
            origins=[reading.bare.origins[index] for index in kept],
            parent=next((state.turns[each] for each in reversed(hashes) if each in state.turns), None),
            rules=rules,
            tools=tools_hash(asked),
            now=keel.clock(),
        )

    def _base_of(self, situation: Situation) -> Steps[tuple[Base | None, Reason | None]]:
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
            known: Erasures = yield Call(erasures_at, self._keel.store.engine, self.scope, self._secret)
            return None, "lost" if known.seal == record.erasures else "erased"
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
        known: Erasures = yield Call(erasures_at, self._keel.store.engine, self.scope, self._secret)
        checked = attrs.evolve(base, verified=heads, is_clean=known.seal == base.record.erasures)
        if checked.is_clean or not known.nodes & base.shown:
            return checked
        # Read again as of its heads, it has its seals only if nothing of it is gone.
        return (yield from self._made_again(base.record, prompt))

    def _made_again(self, record: BaseRecord, prompt: Prompt) -> Steps[Base | None]:
        heads = yield from self._keel.store.heads(self.scope)
        base = yield from made_again(record, self._keel.builder, prompt, secret=self._secret, key=self._place.key)
        if base is None:
            return None
        known: Erasures = yield Call(erasures_at, self._keel.store.engine, self.scope, self._secret)
        return attrs.evolve(base, verified=heads, is_clean=known.seal == base.record.erasures)

    # -- what is made of it

    def _take(self, asked: Asked, situation: Situation) -> Steps[TurnRequest]:
        base, reason = yield from self._base_of(situation)
        rules, reading = situation.rules, situation.reading
        paid = 0.0
        if base is not None:
            reason, paid = worth_leaving(asked, situation, base, self._sealing)
        is_new = base is None or reason is not None
        if base is None or reason is not None:
            base = yield from self._pin(situation)
        found = [] if reason is not None else reading.of(base.id)
        changed = differences(base, found, situation.prompt, self._sealing.of(base.id), rules.channels)
        withdrawn = len(reading.deltas) - len(found)
        said = self._hash_of(found)
        parent = situation.parent
        lost = parent is not None and (parent.said != said or parent.tools != situation.tools)
        settled = with_reasoning_settled(
            asked, situation, is_changed=is_new or withdrawn > 0 or lost, is_forced=reason in ("erased", "lost")
        )
        kept = base.id if reason is None else None
        history = without_deltas(settled.messages, asked.format, self._sealing, keeping=kept)
        in_system = takes_system(history, rules, asked.format)
        parts = [
            DeltaPart(each.channel, each.delta.text, _short(each.delta.text), each.is_authored and in_system)
            for each in changed
        ]
        if parts:
            history = with_parts(history, parts, asked.format, settled.settings)
        is_moved = is_new or withdrawn > 0 or settled.messages is not asked.messages
        chain = None if is_moved else self._chain(asked, situation, base)
        given, chained_settings, chain_notes = chained(asked, history, settled.settings, chain)
        texts = tuple(each.delta.text for each in changed)
        said_now = [*found, *(each.delta for each in changed)]
        request = request_of(asked, base.prompt, situation.prompt, given, chained_settings)
        wire, at = read_request(asked.format, request.arguments), situation.now / _SECOND
        counter = situation.prompt.counter
        turn = TurnRecord(
            prefix=situation.hashes[-1],
            base=base.id,
            at=situation.now,
            model=asked.model,
            format=asked.format,
            tools=situation.tools,
            marks=marks_of(wire, rules),
            carried=sum(counter(text) for text in (*(delta.text for delta in found), *texts)),
            paid=0.0 if is_new else paid,
            said=self._hash_of(said_now),
            loose=settled.loose,
            tailed=settled.is_passing or asked.tail is not None or bool(situation.prompt.tail),
        )
        turn = _with_what_it_replaces(turn, situation.state)
        yield from write_state(self._keel.store, situation.state, turn, base.record if is_new else None)
        self._keel.pinned.put((self._place.key, base.id), base)
        broken = self._watch.notes(wire, rules, at)
        self._watch.sent(wire, at)
        return TurnRequest(
            arguments=request.arguments,
            history=history,
            delta=texts,
            base=base.prompt,
            rewritten=reason,
            withdrawn=withdrawn,
            waiting=() if in_system else tuple(dict.fromkeys(each.block for each in said_now if is_authored(each))),
            notes=(*request.notes, *settled.notes, *chain_notes, *broken),
            freshness=_freshness(situation.prompt),
            request=request,
        )

    def _chain(self, asked: Asked, situation: Situation, base: Base) -> Chain | None:
        """What the caller's chain holds; None where there is none to go on from."""
        if not is_chained(asked.format, asked.settings):
            return None
        chain = chain_of(asked.messages, situation.hashes, situation.origins, situation.state.turns)
        if chain is None or chain.turn.base != base.id:
            return None
        held = read_messages(asked.messages[: chain.held], asked.format, self._sealing)
        return chain if chain.turn.said == self._hash_of(held.of(base.id)) else None

    def _pin(self, situation: Situation) -> Steps[Base]:
        engine = self._keel.store.engine
        known: Erasures = yield Call(erasures_at, engine, self.scope, self._secret)
        found = yield Call(may_be_erased, engine, self.scope, situation.heads)
        # What was erased between the prompt and this is not told apart from what was erased before.
        erasures = known.seal if found[1] is not None and not found[1] else ""
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


def _with_what_it_replaces(turn: TurnRecord, state: State) -> TurnRecord:
    """The record of a request; where its messages were sent before otherwise, nobody can tell whose an answer is."""
    before = state.turns.get(turn.prefix)
    if before is None:
        return turn
    sent = [(each.base, each.said, each.loose, each.tools) for each in (before, turn)]
    return attrs.evolve(turn, tailed=turn.tailed or before.tailed or sent[0] != sent[1])


def _freshness(prompt: Prompt) -> Freshness:
    return attrs.evolve(prompt.freshness, detail=(*prompt.freshness.detail, PINNED))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
