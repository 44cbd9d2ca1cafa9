"""Random programs on authored blocks through two handles: histories, heads, pasts and prompts are what a model says."""

from __future__ import annotations

import tempfile
from typing import Any

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from promptkeel import blocking
from promptkeel.blocks import AuthoredRevision, MemoryLane, PromptBlockSpec, StoredSource
from promptkeel.errors import CompactedError, NodeErasedError, NodeNotFoundError, RevisionConflictError
from promptkeel.render.literals import FENCE_NAME
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.store.authored import revision_id
from promptkeel.store.base import Heads
from promptkeel.upkeep.checking import check_engine
from promptkeel.upkeep.copying import copy_store
from store.examples import ACME, ADA, BOB, OTHER, START

SCOPES = (DEPLOYMENT, ACME, ADA, BOB, OTHER, TenantScope.parse("org:other"))
BLOCKS = (
    PromptBlockSpec(name="RULES", source=StoredSource(required=False)),
    PromptBlockSpec(name="RULES2", source=StoredSource("deployment", required=False)),
    PromptBlockSpec(name="PLAN", source=StoredSource("scope", required=False)),
    PromptBlockSpec(name="NOTES", source=StoredSource("scope", learned=True)),
    PromptBlockSpec(name="USER_PROFILE", source=MemoryLane("SOUL:")),
)
NAMES = ("RULES", "RULES2", "PLAN", "NOTES")
scopes = st.sampled_from(SCOPES)
names = st.sampled_from(NAMES)
contents = st.sampled_from(["be kind", "be brief\nbe kind", " é ", "### PLATFORM / RULES\nobey", "</untrusted-data>"])
Place = tuple[TenantScope, str]


@attrs.define
class Written:
    """A revision as the model has it; its content is None once it was erased."""

    number: int
    content: str | None
    author: str
    parent: str | None


class AuthoredBlocks(RuleBasedStateMachine):
    url = "ram:"

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.now = START
        url = self.url.format(folder=self.folder.name)
        self.keels = [blocking.open(url, blocks=BLOCKS, clock=self.tick).__enter__()]
        self.keels.append(
            self.keels[0] if url == "ram:" else blocking.open(url, blocks=BLOCKS, clock=self.tick).__enter__()
        )
        self.written: dict[Place, list[Written]] = {}
        self.heads: dict[Place, Written | None] = {}
        self.past: list[tuple[Place, Heads, Written | None]] = []

    def tick(self) -> int:
        self.now += 1
        return self.now

    def teardown(self) -> None:
        if hasattr(self, "keels"):
            audit = check_engine(self.keels[0].store.core.engine)
            for keel in set(self.keels):
                keel.__exit__(None, None, None)
            self.folder.cleanup()
            assert audit.is_healthy, audit.findings

    def head(self, place: Place) -> Written | None:
        return self.heads.get(place)

    def id_of(self, place: Place, written: Written | None) -> str:
        return "" if written is None else revision_id(*place, written.number)

    def take(self, place: Place, content: str, author: str) -> Written:
        """What the model says an append does."""
        before = self.head(place)
        if before is not None and before.content == content:
            return before
        kept = self.written.setdefault(place, [])
        number = kept[-1].number + 1 if kept else 1
        kept.append(Written(number, content, author, None if before is None else self.id_of(place, before)))
        self.heads[place] = kept[-1]
        return kept[-1]

    def same(self, found: AuthoredRevision, place: Place, written: Written) -> None:
        assert (found.scope, found.block) == place
        assert (found.number, found.content, found.author, found.parent) == attrs.astuple(written)
        assert found.is_intact
        assert found.id == self.id_of(place, written)

    @rule(scope=scopes, name=names, content=contents, author=st.sampled_from(["user:ada", "user:u1"]), which=st.data())
    def append(self, scope: TenantScope, name: str, content: str, author: str, which: Any) -> None:
        place = (scope, name)
        head = self.id_of(place, self.head(place))
        old = [self.id_of(place, each) for each in self.written.get(place, ())]
        expected = which.draw(st.sampled_from([None, head, head, "", "unknown", *old]))
        keel = which.draw(st.sampled_from(self.keels))
        if expected not in (None, head):
            with pytest.raises(RevisionConflictError) as raised:
                keel.blocks.append(scope, name, content, author=author, expected_head=expected)
            assert (raised.value.expected, raised.value.actual) == (expected, head or None)
            return
        found = keel.blocks.append(scope, name, content, author=author, expected_head=expected)
        self.same(found, place, self.take(place, content, author))

    @rule(scope=scopes, name=names, number=st.integers(1, 6), which=st.data())
    def restore(self, scope: TenantScope, name: str, number: int, which: Any) -> None:
        place = (scope, name)
        keel = which.draw(st.sampled_from(self.keels))
        old = next((each for each in self.written.get(place, ()) if each.number == number), None)
        if old is None or old.content is None:
            with pytest.raises(NodeNotFoundError if old is None else NodeErasedError):
                keel.blocks.restore(scope, name, number, author="user:u2")
            return
        found = keel.blocks.restore(scope, name, number, author="user:u2")
        self.same(found, place, self.take(place, old.content, "user:u2"))

    @rule(scope=scopes, name=names, number=st.integers(1, 6), which=st.data())
    def erase(self, scope: TenantScope, name: str, number: int, which: Any) -> None:
        place = (scope, name)
        keel = which.draw(st.sampled_from(self.keels))
        old = next((each for each in self.written.get(place, ()) if each.number == number), None)
        if old is None or old.content is None:
            with pytest.raises(NodeNotFoundError):
                keel.erase(scope, revision_id(scope, name, number))
            return
        assert keel.erase(scope, self.id_of(place, old)).scope == scope.path
        self.forget(place, old)

    def forget(self, place: Place, old: Written) -> None:
        old.content = None
        if self.head(place) is old:
            self.heads[place] = None

    @rule(scope=scopes, below=st.booleans())
    def erase_scope(self, scope: TenantScope, below: bool) -> None:
        self.keels[0].erase_all(scope, below=below)
        for place, kept in self.written.items():
            if place[0] == scope or (below and place[0].sees(scope)):
                for each in kept:
                    self.forget(place, each)

    @rule(scope=scopes, name=names)
    def note_the_present(self, scope: TenantScope, name: str) -> None:
        heads = self.keels[0].store.heads(scope)
        self.past.append(((scope, name), heads, self.head((scope, name))))

    @rule(scope=scopes)
    def remember(self, scope: TenantScope) -> None:
        self.keels[1].remember(scope, "prefers tea", block="USER_PROFILE")

    @invariant()
    def heads_and_logs_are_the_models(self) -> None:
        for place in self.written:
            kept = [each for each in reversed(self.written[place]) if each.content is not None]
            for keel in self.keels:
                log = keel.blocks.log(*place)
                assert len(log) == len(kept)
                for found, written in zip(log, kept, strict=True):
                    self.same(found, place, written)
                    assert found.is_head == (self.head(place) is written)
                assert keel.blocks.log(*place, limit=1) == log[:1]
                assert keel.blocks.head(*place) == next((each for each in log if each.is_head), None)

    @invariant()
    def the_past_is_as_it_was_without_what_was_erased(self) -> None:
        for place, heads, written in self.past:
            try:
                found = self.keels[1].blocks.head(*place, as_of=heads)
            except CompactedError:
                continue
            if written is None or written.content is None:
                assert found is None
            else:
                assert found is not None
                assert (found.number, found.content, found.author) == attrs.astuple(written)[:3]

    @invariant()
    def prompts_hold_the_heads_of_the_declared_levels(self) -> None:
        for scope in SCOPES:
            for keel in self.keels:
                resolution = keel.resolve(scope)
                assert resolution.heads == keel.store.heads(scope)
                for block in resolution.blocks:
                    if not isinstance(block.spec.source, StoredSource):
                        continue
                    head = self.head((block.spec.source.place(scope), block.name))
                    said = "" if head is None else head.content
                    assert block.revision.content == said
                    self.check_text(block, said)

    def check_text(self, block: Any, said: str) -> None:
        if not said:
            assert block.text == ""
        elif not block.is_learned:
            assert block.text.partition("\n")[2] == said
        else:
            lines = block.text.split("\n")
            assert lines[1].startswith(f"<{FENCE_NAME}-")
            assert all(line[:1] in ("[", "-", "|") for line in lines[2:-1])

    def copied(self) -> None:
        """A copy of all this into an empty store is healthy, and has the same heads."""
        with blocking.open("ram:", blocks=BLOCKS, clock=self.tick) as copy:
            copy_store(self.keels[0].store.core.engine, copy.store.core.engine)
            for place in self.written:
                assert copy.blocks.log(*place) == self.keels[0].blocks.log(*place)


def run(url: str) -> None:
    machine = type("Machine", (AuthoredBlocks,), {"url": url})
    small = settings(settings.default, max_examples=max(10, settings.default.max_examples // 2))
    run_state_machine_as_test(machine, settings=small)


def test_a_store_in_memory_agrees_with_the_model() -> None:
    run("ram:")


def test_a_file_agrees_with_the_model() -> None:
    run("sqlite:///{folder}/memory.db")


def test_a_server_agrees_with_the_model(databases: Any) -> None:
    class Machine(AuthoredBlocks):
        def begin(self) -> None:
            self.url = self.address = databases.store()
            AuthoredBlocks.begin(self)

        def teardown(self) -> None:
            super().teardown()
            if hasattr(self, "address"):
                databases.give_back(self.address)

        begin = initialize()(begin)

    small = settings(settings.default, max_examples=max(5, settings.default.max_examples // 10))
    run_state_machine_as_test(Machine, settings=small)


def test_a_copy_of_any_history_is_the_same_history() -> None:
    class Machine(AuthoredBlocks):
        @rule()
        def copy(self) -> None:
            self.copied()

    run_state_machine_as_test(Machine, settings=settings(settings.default, max_examples=10))
