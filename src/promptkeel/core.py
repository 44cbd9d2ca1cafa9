"""Everything that a keel does, written once as steps: remembering, correcting, erasing, and answering prompts.

``keel`` and ``blocking`` give it its two public forms.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

import attrs

from promptkeel.blocks import PromptBlockSpec, in_prompt_order
from promptkeel.blocks.history import HistoryCore
from promptkeel.blocks.labels import BlockLabels
from promptkeel.errors import InvalidDeclarationError, InvalidInputError, StoreClosedError, StoreError
from promptkeel.exchange.exporting import Export, export_request_steps
from promptkeel.instants import Clock, parse_instant
from promptkeel.model import NOT_GIVEN, BlockFact, MemoryEdge, MemoryNode, Trust
from promptkeel.prompt import BuilderCore, Prompt, UnprovenBuilder
from promptkeel.prompt.explaining import Explanation, explain_steps
from promptkeel.properties import check_properties
from promptkeel.providers.rule_tables import RuleTables
from promptkeel.providers.rules import ModelRules
from promptkeel.resolver import BlockEvent, Resolution, ResolverCore
from promptkeel.resolver.cache import BoundedCache
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Steps
from promptkeel.store.arguments import check_flag, check_size
from promptkeel.store.base import Engine, History, Neighbour, Receipt, Replicated
from promptkeel.store.facade import Store, StoreCore
from promptkeel.store.opening import open_engine
from promptkeel.store.operations import LINEAGE, Correct, Outcome, Remember
from promptkeel.upkeep.erasing import erase_steps, plan_steps
from promptkeel.upkeep.erasure import EraseAll, EraseSubject, ErasurePlan, ErasureReceipt, ErasureRequest


@final
@attrs.frozen(order=False)
class Why:
    """Why a statement stands where it stands.

    Attributes:
        node: the node as it is now.
        blocks: the names of the blocks that show it.
        history: every kept version, oldest first, and what else was said about it.
        lineage: the nodes that it was derived from or supersedes, nearest first, each with its edge.
    """

    node: MemoryNode
    blocks: tuple[str, ...]
    history: History
    lineage: tuple[Neighbour, ...]


@final
class KeelCore:
    """Everything that a keel does, as steps. Arguments as ``open``."""

    def __init__(
        self,
        url: str,
        blocks: Sequence[PromptBlockSpec],
        *,
        clock: Clock,
        new_id: Callable[[], str],
        token_counter: str,
        observe: Callable[[BlockEvent], object] | None,
        cache_bytes: int,
        cache_facts: int,
        options: Mapping[str, Any],
        admit: Callable[[TenantScope], object] | None = None,
        prompt_tokens: int | None = None,
        rules: tuple[RuleTables, ...] = (),
    ) -> None:
        given: object = blocks
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise InvalidDeclarationError("must be a list of PromptBlockSpec", field="blocks")
        self.url = url
        self.specs = in_prompt_order(tuple(blocks))
        self.labels = BlockLabels(self.specs)
        self._clock = clock
        self._new_id = new_id
        self._counting = token_counter, prompt_tokens, rules
        self._observe = observe
        self._kept: dict[str, Any] = {
            "cache_bytes": check_size(cache_bytes, field="cache_bytes"),
            "cache_facts": check_size(cache_facts, field="cache_facts"),
        }
        self._options = dict(options)
        self._admit = admit
        self.authored = HistoryCore(lambda: self.store)
        self._store: StoreCore | None = None
        self._builder: BuilderCore | None = None
        self._unproven: UnprovenBuilder | None = None
        self._inherited: BuilderCore | None = None
        self.pinned: BoundedCache[tuple[str, str], Any] = BoundedCache(self._kept["cache_bytes"], _pinned_bytes)

    # -- life

    def start(self) -> Steps[None]:
        """Open the store.

        Raises:
            StoreError: it is open already.
        """
        if self._store is not None:
            raise StoreError(f"{self.url} is open already; open another keel")
        engine = yield Call(lambda: open_engine(self.url, clock=self._clock, **self._options))
        try:
            store = Store(engine)
            resolver = yield Call(self._resolver, store)
            if isinstance(engine, Replicated):
                unproven = yield Call(self._resolver, Store(engine.standby), engine)
                self._unproven = UnprovenBuilder(unproven, *self._counting)
            self._builder = BuilderCore(resolver, *self._counting)
            self._store = store.core
        except BaseException:
            engine.close()
            raise

    def _resolver(
        self, memory: Store, primary: Engine | None = None, specs: Sequence[PromptBlockSpec] | None = None
    ) -> ResolverCore:
        # A replica need not be there for its resolver to be made.
        secret = None if primary is None else primary.secret()
        blocks = self.specs if specs is None else specs
        return ResolverCore(
            blocks, memory=memory, secret=secret, observe=self._observe, admit=self._admit, **self._kept
        )

    def stop(self) -> Steps[None]:
        """Close the store and forget what is kept."""
        store, self._store = self._store, None
        self.pinned.clear()
        builder, self._builder = self._builder, None
        if builder is not None:
            builder.resolver.clear()
        inherited, self._inherited = self._inherited, None
        if inherited is not None:
            inherited.resolver.clear()
        unproven, self._unproven = self._unproven, None
        if unproven is not None:
            unproven.resolver.clear()
        if store is not None:
            yield from store.close()

    @property
    def clock(self) -> Clock:
        """Answers the present instant."""
        return self._clock

    @property
    def store(self) -> StoreCore:
        """The open store."""
        if self._store is None:
            raise StoreClosedError(f"{self.url} is not open; use 'with' or 'async with'")
        return self._store

    @property
    def builder(self) -> BuilderCore:
        """The open prompt builder."""
        if self._builder is None:
            raise StoreClosedError(f"{self.url} is not open; use 'with' or 'async with'")
        return self._builder

    def inherited(self) -> Steps[BuilderCore]:
        """What builds prompts of the blocks that a delegated agent inherits; the others are not read for it."""
        builder = self.builder
        specs = [spec for spec in self.specs if spec.inherit]
        if len(specs) == len(self.specs):
            return builder
        if self._inherited is None:
            resolver = yield Call(self._resolver, Store(self.store.engine), None, specs)
            self._inherited = BuilderCore(resolver, *self._counting)
        return self._inherited

    def reader(self, *, strict: bool) -> BuilderCore | UnprovenBuilder:
        """What builds prompts: strictly, or from the replica alone where there is one and that is enough."""
        builder = self.builder
        return builder if check_flag(strict, field="strict") or self._unproven is None else self._unproven

    def forget_kept(self) -> None:
        """Let go of every text that is kept."""
        self.pinned.clear()
        self.builder.resolver.clear()
        if self._inherited is not None:
            self._inherited.resolver.clear()
        if self._unproven is not None:
            self._unproven.resolver.clear()

    def over(self, engine: Engine, *, resolves: bool) -> Steps[KeelCore]:
        """The same keel over another engine of the same store, keeping nothing; ``resolves`` says whether it reads."""
        other = copy.copy(self)
        other.authored = HistoryCore(lambda: other.store)
        store = Store(engine)
        other._store = store.core  # noqa: SLF001 - its own class
        other._builder = other._inherited = other._unproven = None  # noqa: SLF001
        if resolves:
            resolver = yield Call(self._resolver, store, self.store.engine)
            other._builder = BuilderCore(resolver, *self._counting)  # noqa: SLF001
        return other

    # -- writing

    def remember(
        self,
        scope: TenantScope,
        text: str | None = None,
        *,
        block: str | None = None,
        label: str | None = None,
        properties: Mapping[str, Any] | None = None,
        source: str | None = None,
        recorded_at: Any = NOT_GIVEN,
        trust: Trust | None = None,
        id: str | None = None,  # noqa: A002 - the field's own name
    ) -> Steps[MemoryNode]:
        """Keep a statement, or confirm it where the scope already holds one of equal label.

        Args:
            scope: where it is stored; it is visible there and below.
            text: the statement, without a label prefix; goes with ``block``.
            block: the name of the declared block that will show it.
            label: prefix and statement at once, in place of ``text`` and ``block``.
            properties: a JSON object; fields that the block declares become facts of their own.
            source: who or what said so.
            recorded_at: when it was said: a datetime or ISO 8601 text; left out, now; None is "not recorded".
            trust: whose words these are.
            id: a new id, unique under the scope's root; left out, a random one.

        Raises:
            InvalidInputError: names the field that no store can take; nothing was written.
        """
        outcome = yield from self.remember_outcome(
            scope,
            text,
            block=block,
            label=label,
            properties={} if properties is None else properties,
            source=source,
            recorded_at=recorded_at,
            trust=trust,
            node_id=id,
        )
        return _node_of(outcome)

    def remember_outcome(
        self,
        scope: TenantScope,
        text: str | None,
        *,
        block: str | None,
        label: str | None,
        properties: Mapping[str, Any],
        source: str | None,
        recorded_at: Any,
        trust: Trust | None,
        node_id: str | None,
    ) -> Steps[Outcome]:
        """What ``remember`` did: whether the statement is new."""
        if self._admit is not None and isinstance(scope, TenantScope):
            self._admit(scope)
        node = MemoryNode(
            id=self._new_id() if node_id is None else node_id,
            scope=scope,
            label=self._label(text, block, label),
            properties=properties,
            source=source,
            recorded_at=_said_at(recorded_at),
            trust=trust,
        )
        return (yield from self._write(Remember(node)))

    def correct(
        self,
        scope: TenantScope,
        node_id: str,
        *,
        text: str | None = None,
        properties: Mapping[str, Any] | None = None,
        source: str | None = None,
        recorded_at: Any = NOT_GIVEN,
        trust: Trust | None = None,
        expected: MemoryNode | str | None = None,
    ) -> Steps[MemoryNode]:
        """Change what a node says, with the provenance of the correction; the old version stays in history.

        The newest correction by ``recorded_at`` wins, whatever the order of arrival.

        Args:
            scope: the node's own scope.
            node_id: which node.
            text: a new statement, without the label's prefix.
            properties: values of fields that a block declares; None takes one away.
            source: who corrects.
            recorded_at: when the correction was said.
            trust: whose words these are.
            expected: the node as it was read, or its ``version``: refused if it has changed since.

        Raises:
            InvalidInputError: no declared block would show it.
            ReadOnlyNodeError: the node belongs to an ancestor.
            ConflictError: it has changed since ``expected``.
        """
        outcome = yield from self.correct_outcome(
            scope,
            node_id,
            text=text,
            properties={} if properties is None else properties,
            source=source,
            recorded_at=recorded_at,
            trust=trust,
            expected=expected,
        )
        return _node_of(outcome)

    def correct_outcome(
        self,
        scope: TenantScope,
        node_id: str,
        *,
        text: str | None,
        properties: Mapping[str, Any],
        source: str | None,
        recorded_at: Any,
        trust: Trust | None,
        expected: MemoryNode | str | None,
    ) -> Steps[Outcome]:
        """What ``correct`` did: whether it came in time."""
        node = yield from self.store.get(scope, node_id)
        where = f"node {node_id!r}"
        self.labels.check_fields(node.label, check_properties(properties, where=where), where=where)
        label = None if text is None else self.labels.corrected(node.label, text, where=where)
        correction = Correct(
            scope=scope,
            node_id=node_id,
            label=label,
            properties=properties,
            source=source,
            recorded=_said_at(recorded_at),
            trust=trust,
            expected=expected,
        )
        return (yield from self._write(correction))

    def retract(
        self, scope: TenantScope, node_id: str, *, expected: MemoryNode | str | None = None
    ) -> Steps[MemoryNode]:
        """Take a node out of every prompt and keep it in history."""
        return (yield from self.store.retract(scope, node_id, expected=expected))

    def erase(self, scope: TenantScope, node_id: str) -> Steps[Receipt]:
        """Remove a node and all that was kept of it; the receipt holds no text."""
        receipt = yield from self.store.erase(scope, node_id)
        if self._builder is not None:
            self.forget_kept()
        return receipt

    def erase_all(
        self, scope: TenantScope, *, label_prefix: str | None = None, below: bool = False
    ) -> Steps[ErasureReceipt]:
        """Remove everything at a scope, or what is in one label prefix there, with all that was kept of it.

        Args:
            scope: where; ancestors and siblings are never touched.
            label_prefix: only nodes that are, or ever were, in this prefix.
            below: whether everything below the scope goes too.
        """
        return (yield from self.perform_erasure(EraseAll(scope, label_prefix=label_prefix, below=below)))

    def erase_subject(
        self, scope: TenantScope, *, properties: Mapping[str, Any] | None = None, about: str | None = None
    ) -> Steps[ErasureReceipt]:
        """Remove all that is known of a person or a thing at a scope and below, and what was derived from it.

        Args:
            scope: where, and everything below.
            properties: identifying values by name; one of them is enough.
            about: the id of the node that stands for the subject.
        """
        request = EraseSubject(scope, properties={} if properties is None else properties, about=about)
        return (yield from self.perform_erasure(request))

    def plan_erasure(self, request: ErasureRequest) -> Steps[ErasurePlan]:
        """What an ``EraseAll`` or an ``EraseSubject`` would remove; nothing is written."""
        return (yield from plan_steps(self.store, request))

    def export_erasure(self, request: ErasureRequest) -> Steps[tuple[ErasurePlan, Export]]:
        """What an erasure would remove, and the JSON Lines of it, to be handed over before it goes."""
        return (yield from export_request_steps(self.store, request))

    def perform_erasure(self, request: ErasureRequest, *, expected: ErasurePlan | None = None) -> Steps[ErasureReceipt]:
        """Remove what an ``EraseAll`` or an ``EraseSubject`` asks for; the receipt holds no text.

        Raises:
            ConflictError: something else than ``expected`` would go now; nothing was erased.
        """
        receipt = yield from erase_steps(self.store, request, expected=expected)
        self.forget_kept()
        return receipt

    def receipts(self, scope: TenantScope, *, below: bool = False) -> Steps[Sequence[Receipt]]:
        """The erasures at exactly this scope, or at it and below, oldest first."""
        return (yield from self.store.receipts(scope, below=below))

    def settle_receipts(self) -> Steps[None]:
        """Rewrite the store so that no byte of what was erased is left, and note it on the receipts.

        A receipt stays ``unreadable`` while somebody reads an older state, and on a store in memory.
        """
        yield from self.store.settle_receipts()

    def link(self, scope: TenantScope, start: str, type: str, end: str) -> Steps[MemoryEdge]:  # noqa: A002
        """Add a typed edge from one node to another, as ``derived_from`` or ``about``."""
        return (yield from self.store.link(MemoryEdge(scope=scope, start=start, type=type, end=end)))

    # -- reading

    def prompt(self, scope: TenantScope | None = None, *, strict: bool = True) -> Steps[Prompt]:
        """The prompt of a scope, verified after this call began.

        Args:
            scope: who asks; left out, only what the whole deployment shares is in the prompt, which names the rest.
            strict: where False, a replica may answer alone, as far behind as it is; ``freshness`` then says so.

        Raises:
            BlockResolutionError: a block's source could not be read; names the block and the scope.
        """
        return (yield from self.reader(strict=strict).build(scope))

    def resolve(self, scope: TenantScope | None = None, *, strict: bool = True) -> Steps[Resolution]:
        """The blocks of a scope, verified after this call began unless not ``strict``, as for ``prompt``."""
        return (yield from self.reader(strict=strict).resolve(scope))

    def facts(
        self, scope: TenantScope, block: str | None = None, *, strict: bool = True
    ) -> Steps[tuple[BlockFact, ...]]:
        """What the memory blocks say at a scope: all of them, or one; ``strict`` as for ``prompt``.

        Raises:
            InvalidInputError: no memory block has this name.
        """
        if block is not None:
            self.labels.check_learned(block)
        resolution = yield from self.resolve(scope, strict=strict)
        return tuple(
            fact
            for found in resolution.blocks
            if block in (None, found.name) and found.is_learned
            for fact in found.facts
        )

    def get(self, scope: TenantScope, node_id: str) -> Steps[MemoryNode]:
        """The node of this id visible at the scope, in whatever state."""
        return (yield from self.store.get(scope, node_id))

    def history(self, scope: TenantScope, node_id: str) -> Steps[History]:
        """Every kept version of a node, oldest first, and what else was said about it."""
        return (yield from self.store.history(scope, node_id))

    def why(self, scope: TenantScope, node_id: str) -> Steps[Why]:
        """Why a statement stands where it stands: its versions, its provenance and what it came from."""
        history = yield from self.store.history(scope, node_id)
        node = history.versions[-1]
        lineage: list[Neighbour] = []
        seen = {node_id}
        waiting = [node_id]
        while waiting:
            for neighbour in (yield from self.store.neighbours(scope, waiting.pop(0))):
                if neighbour.edge.type in LINEAGE and neighbour.node.id not in seen:
                    seen.add(neighbour.node.id)
                    lineage.append(neighbour)
                    waiting.append(neighbour.node.id)
        shown = [*self.labels.showing(node.label), *self.labels.stored_as(scope, node)] if node.state == "live" else []
        return Why(node, tuple(spec.name for spec in shown), history, tuple(lineage))

    def explain(
        self, before: Prompt, after: Prompt, *, rules: ModelRules | None = None, kept_behind: int = 0
    ) -> Steps[Explanation | None]:
        """Why a prompt is not what it was: the first byte that differs, its block and facts, and who wrote them.

        Args:
            before: the earlier prompt.
            after: the later one, of the same scope.
            rules: of the model, for prices, as ``rules_for`` answers them.
            kept_behind: tokens that a cache kept behind the earlier prompt, as the history of a conversation.
        """
        return (yield from explain_steps(self.store, before, after, rules=rules, kept_behind=kept_behind))

    # -- what the declared blocks say

    def _write(self, operation: Remember | Correct) -> Steps[Outcome]:
        (outcome,) = yield from self.store.apply((operation,))
        return outcome

    def _label(self, text: str | None, block: str | None, label: str | None) -> str:
        if label is not None:
            if text is not None or block is not None:
                raise InvalidInputError("give either a label, or a text and a block", field="label")
            return label
        if text is None or block is None:
            raise InvalidInputError("give a text and the block that shows it, or a label", field="text")
        return self.labels.label(text, block)


def _pinned_bytes(base: Any) -> int:
    """The bytes of a pinned prompt's text."""
    return sum(len(block.text.encode()) for block in base.prompt.blocks)


def _said_at(recorded_at: Any) -> Any:
    # A bare number might be seconds, milliseconds or microseconds; a guess would date a statement wrongly for good.
    if recorded_at is None or recorded_at is NOT_GIVEN:
        return recorded_at
    return parse_instant(recorded_at, field="recorded_at")


def _node_of(outcome: Outcome) -> MemoryNode:
    assert outcome.node is not None  # noqa: S101 - every operation on a node answers with it
    return outcome.node
