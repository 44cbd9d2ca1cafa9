"""At every turn of any program a request says what memory says, breaks no rule, and shows nothing that was erased.

Programs write, correct, retract, erase, branch, regenerate, edit, trim, summarise, lose deltas, restart, compact, let
time pass and change models, in every format. What a request says is read by ``plain_reader``, which knows nothing of
how it was made.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections import Counter
from pathlib import Path

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule

import promptkeel as pk
from conversations.plain_reader import Reader, texts_of
from conversations.spelled import MODELS, PROVIDERS, called, said, thought, tools
from promptkeel import blocking
from promptkeel.blocks import StoredSource
from promptkeel.errors import ConversationBoundError
from promptkeel.providers.automaton import UNSENT, advance, check
from promptkeel.providers.rules import rules_for
from promptkeel.providers.wire import read_request
from promptkeel.store.operations import Erase
from promptkeel.upkeep.checking import check_engine
from promptkeel.upkeep.compaction import Retention, compact

ACME = pk.TenantScope.parse("org:acme")
ADA = pk.TenantScope.parse("org:acme/user:ada")
BLOCKS = {"USER_PROFILE": "SOUL:", "NOTES": "NOTE:"}
TRUSTS = ("operator", "user", "third-party", "inferred", None)


@attrs.define(eq=False)
class Branch:
    """A conversation as one caller has it.

    Attributes:
        messages: what it sends next.
        is_open: whether the turn waits for the answer to a tool's result.
        is_cut: whether messages in front were left out.
        tools: of the turn that waits: nobody changes them in the middle of one.
        sent: the arguments of the request that led here, where nothing has happened since.
    """

    messages: list
    is_open: bool = False
    tools: tuple = ()
    is_cut: bool = False
    sent: object = None


WRITES = st.sampled_from(["remember", "remember", "correct", "retract", "erase", "rules"])
# Marks and handles for short prompts too.
OVERRIDES = [{provider: {"minimum": 40} for provider in ("anthropic", "openai", "gemini", "bedrock")}]
ENDINGS = st.sampled_from(["answer", "thought", "call"])


class Conversations(RuleBasedStateMachine):
    branches = Bundle("branches")
    kind = "ram"
    workers = 1
    formats = ("anthropic",)

    @initialize(
        data=st.data(),
        words=st.sampled_from([200, 3]),
        reasons=st.booleans(),
        target=branches,
    )
    def begin(self, data, words, reasons):
        self.format = data.draw(st.sampled_from(self.formats))
        self.reasons = reasons
        self.model = data.draw(st.sampled_from(MODELS[self.format]))
        self.tools = ("look",)
        self.folder = tempfile.TemporaryDirectory()
        self.url = "ram:" if self.kind == "ram" else f"sqlite:///{Path(self.folder.name) / 'memory.db'}"
        self.now = 1_780_000_000_000_000
        self.number = 0
        self.live = {}
        self.tokens = {}
        self.rules = "Be brief."
        self.erased = set()
        self.writes = 0
        self.waits = 0
        self.automaton = UNSENT
        self.specs = [
            pk.PromptBlockSpec(name="BOUNDARIES", source=pk.StaticSource("Never guess. " * words)),
            pk.PromptBlockSpec(name="RULES", source=StoredSource("tenant")),
            pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:", profile_fields={"role"})),
            pk.PromptBlockSpec(name="NOTES", tier="session", source=pk.MemoryLane("NOTE:")),
        ]
        self.open()
        self.keel.blocks.append(ACME, "RULES", self.rules, author="operator")
        return Branch([])

    def open(self):
        self.keels = []
        for _ in range(self.workers):
            keel = blocking.open(self.url, blocks=self.specs, clock=lambda: self.now)
            keel.__enter__()
            self.keels.append(keel)
        self.keel = self.keels[0]
        self.meet()

    def meet(self):
        self.conversations = [keel.conversation(ADA, "c1") for keel in self.keels]

    def teardown(self):
        if hasattr(self, "keel"):
            assert check_engine(self.keel.core.store.engine).is_healthy
            self.close()
            self.folder.cleanup()

    def close(self):
        for keel in self.keels:
            keel.__exit__()

    def next(self):
        self.number += 1
        self.now += 1_000_000
        return self.number

    # -- memory

    @rule(data=st.data(), what=WRITES)
    def write_something(self, data, what):
        self.write(data, what)

    def write(self, data, what):
        if what == "rules":
            self.rewrite_rules()
        elif what == "erase" and self.tokens:
            self.erase(data.draw(st.sampled_from(sorted(self.tokens))), many=data.draw(st.booleans()))
        elif what in ("correct", "retract") and self.live:
            node = data.draw(st.sampled_from(sorted(self.live)))
            self.correct(node) if what == "correct" else self.retract(node)
        else:
            block, trust = data.draw(st.sampled_from(sorted(BLOCKS))), data.draw(st.sampled_from(TRUSTS))
            self.remember(block, trust, role=data.draw(st.booleans()))

    def remember(self, block, trust, *, role):
        number = self.next()
        word = f"fact{number:04d}zq"
        properties = {"role": f"role{number:04d}zq"} if role and block == "USER_PROFILE" else {}
        self.keel.remember(ADA, word, block=block, trust=trust, id=f"n{number}", properties=properties, source="test")
        self.live[f"n{number}"] = (block, word)
        self.tokens[f"n{number}"] = {word, *properties.values()}
        self.writes += 1

    def correct(self, node):
        number = self.next()
        word = f"fact{number:04d}zq"
        self.keel.correct(ADA, node, text=word, source="test")
        self.live[node] = (self.live[node][0], word)
        self.tokens[node].add(word)
        self.writes += 1

    def retract(self, node):
        self.next()
        self.keel.retract(ADA, node)
        del self.live[node]
        self.writes += 1

    def erase(self, node, *, many):
        self.next()
        if many:
            self.keel.erase_all(ADA, label_prefix="NOTE:")
            kept = {each.id for each in self.keel.core.store.engine.stored(ADA).nodes}
            gone = [each for each in self.tokens if each not in kept]
        else:
            # Past the keel, as another process does it, nothing that is kept is forgotten.
            self.keel.store.apply([Erase(ADA, node)])
            gone = [node]
        for each in gone:
            self.erased |= self.tokens.pop(each)
            self.live.pop(each, None)
        self.writes += 1

    def rewrite_rules(self):
        number = self.next()
        self.rules = f"Be brief in rule{number:04d}zq."
        self.keel.blocks.append(ACME, "RULES", self.rules, author="operator")
        self.writes += 1

    # -- the host

    @rule(data=st.data(), what=st.sampled_from(["wait", "wait", "restart", "compact", "model", "tools"]))
    def go_on(self, data, what):
        self.waits += 1
        if what == "wait":
            self.now += data.draw(st.sampled_from([30, 400, 4000])) * 1_000_000
        elif what == "restart":
            self.restart()
        elif what == "compact":
            list(compact(self.keel.core.store.engine, Retention(changes=1)))
        elif what == "model":
            self.model = data.draw(st.sampled_from(MODELS[self.format]))
        else:
            self.changed_tools = data.draw(st.sampled_from([("look",), ("look", "other"), ("other", "look")]))

    def restart(self):
        if self.kind == "ram":
            self.keel.core.forget_kept()
            self.meet()
        else:
            self.close()
            self.open()

    # -- callers

    @rule(branch=branches, ending=ENDINGS, target=branches)
    def ask_keeping_the_history(self, branch, ending):
        return self.ask(branch, keeps=True, ending=ending)

    @rule(branch=branches, ending=ENDINGS, data=st.data(), target=branches)
    def write_and_ask(self, branch, ending, data):
        self.write(data, data.draw(WRITES))
        return self.ask(branch, keeps=True, ending=ending)

    @rule(branch=branches, block=st.sampled_from(sorted(BLOCKS)), keeps=st.booleans(), target=branches)
    def ask_while_something_comes_and_goes(self, branch, block, keeps):
        """A statement is made, corrected and erased, and each time the user asks something."""
        self.remember(block, "user", role=False)
        node = f"n{self.number}"
        for change in (lambda: None, lambda: self.correct(node), lambda: self.erase(node, many=False)):
            change()
            found = self.ask(branch, keeps=keeps, ending="answer")
            if not isinstance(found, Branch):
                return found
            branch = found
        return branch

    @rule(branch=branches, ending=ENDINGS, target=branches)
    def ask_keeping_own_messages(self, branch, ending):
        return self.ask(branch, keeps=False, ending=ending)

    @rule(branch=branches, endings=st.lists(ENDINGS, min_size=2, max_size=4), target=branches)
    def ask_several_times(self, branch, endings):
        for ending in endings:
            found = self.ask(branch, keeps=True, ending=ending)
            if not isinstance(found, Branch):
                return found
            branch = found
        return branch

    def ask(self, branch, *, keeps, ending):
        """The user says something, or a tool has answered; the model answers, or calls a tool."""
        number = self.next()
        messages = list(branch.messages)
        if not branch.is_open:
            messages.append(said(self.format, "user", f"question {number}"))
            self.tools = getattr(self, "changed_tools", self.tools)
        else:
            self.tools = branch.tools
        request = self.turn(messages, branch)
        if request is None:
            return multiple()
        # In the middle of a turn a caller hands on what it has.
        keeps = keeps or ending == "call" or branch.is_open
        kept = list(request.history) if keeps else messages
        reasons = ending == "thought" and self.reasons
        if ending == "call":
            kept += called(self.format, number, reasoned=self.reasons)
            return Branch(
                kept,
                is_open=True,
                is_cut=branch.is_cut,
                tools=self.tools,
                sent=(request, *self.situation()) if keeps else None,
            )
        answer = f"answer {number}"
        kept.append(thought(self.format, answer, number) if reasons else said(self.format, "assistant", answer))
        return Branch(kept, is_cut=branch.is_cut, sent=(request, *self.situation()) if keeps else None)

    @rule(branch=branches)
    def regenerate(self, branch):
        # Of a history that was cut, the host could not know which answer was the model's to this.
        if branch.messages and not branch.is_open and not branch.is_cut:
            users = [index for index, each in enumerate(branch.messages) if each.get("role") == "user"]
            cut = branch.messages[: users[-1] + 1]
            if not self.is_in_call(cut):
                self.turn(cut, None)

    @rule(branch=branches, target=branches)
    def edit(self, branch):
        """An earlier question is asked otherwise, and what followed it is gone."""
        asked = [index for index, each in enumerate(branch.messages) if "question" in json.dumps(each)]
        if not asked or branch.is_open:
            return multiple()
        number = self.next()
        place = asked[len(asked) // 2]
        messages = [*branch.messages[:place], said(self.format, "user", f"question {number}")]
        request = self.turn(messages, None)
        if request is None:
            return multiple()
        return Branch([*request.history, said(self.format, "assistant", f"answer {number}")])

    @rule(branch=branches, target=branches)
    def trim(self, branch):
        """The first half is cut off, from a question on."""
        asked = [index for index, each in enumerate(branch.messages) if "question" in json.dumps(each)]
        if len(asked) < 2 or branch.is_open:
            return multiple()
        return Branch(branch.messages[asked[len(asked) // 2] :], is_cut=True)

    @rule(branch=branches, target=branches)
    def summarise(self, branch):
        if branch.is_open or len(branch.messages) < 3:
            return multiple()
        return Branch([said(self.format, "user", "summary"), said(self.format, "assistant", "noted")])

    @rule(branch=branches, data=st.data(), target=branches)
    def lose_deltas(self, branch, data):
        """A framework drops parts that it does not know."""
        if branch.is_open:
            return multiple()
        messages = [self.without_some(each, data) for each in copy.deepcopy(branch.messages)]
        return Branch(messages, is_cut=True)

    def without_some(self, message, data):
        name = "parts" if self.format == "gemini" else "content"
        content = message.get(name)
        if isinstance(content, list) and len(content) > 1:
            left = [part for part in content if "seal=" not in json.dumps(part) or data.draw(st.booleans())]
            if len(left) < len(content) and left:
                return {**message, name: left}
        return message

    def is_in_call(self, messages):
        return "call" in json.dumps(messages[-1]) and "question" not in json.dumps(messages[-1])

    # -- what must hold

    def turn(self, messages, branch):
        settings = {"max_tokens": 100} if self.format == "anthropic" else {}
        if self.format == "bedrock":
            settings = {"inferenceConfig": {"maxTokens": 100}}
        before = copy.deepcopy(messages)
        rules = rules_for(PROVIDERS[self.format], self.model, overrides=OVERRIDES)
        spelled = tools(self.format, *self.tools)
        try:
            # The workers take turns.
            request = self.conversations[self.number % self.workers].turn(
                messages, format=self.format, model=self.model, tools=spelled, overrides=OVERRIDES, **settings
            )
        except ConversationBoundError:
            assert branch is not None
            assert branch.is_open
            assert rules.binds_reasoning
            assert not rules.drops_reasoning
            return None
        assert messages == before
        self.says_what_memory_says(request)
        self.shows_nothing_erased(request)
        self.breaks_no_rule(request, rules)
        if branch is not None and branch.sent is not None:
            self.extends(request, *branch.sent)
        return request

    def says_what_memory_says(self, request):
        reader = Reader(texts_of(request.arguments))
        prompt = Reader([self.keel.prompt(ADA).text])
        assert reader.statements == prompt.statements
        assert reader.authored["RULES"] == self.rules
        assert len(reader.bases) <= 1
        shown = Counter(
            body.strip('"') for name in BLOCKS for _, body in reader.statements.get(name, Counter()).elements()
        )
        words = Counter(word for _, word in self.live.values())
        assert {word: count for word, count in shown.items() if word.startswith("fact")} == words
        kept = Reader(texts_of({"messages": list(request.history)})).words
        assert all(text in kept for text in request.delta)

    def shows_nothing_erased(self, request):
        sent = json.dumps([request.arguments, list(request.history)])
        assert not [word for word in self.erased if word in sent]

    def breaks_no_rule(self, request, rules):
        wire = read_request(self.format, request.arguments)
        at = self.now / 1_000_000
        broken = [each for each in check(self.automaton, wire, rules, at) if each.refuses]
        assert not broken, (broken, request.notes, request.rewritten)
        self.automaton = advance(self.automaton, wire, at)
        told = [note for note in request.notes if note.startswith("may be refused by")]
        # Whose answer reasoning was, a worker that was not told cannot always know.
        assert all("bound-reasoning" in note for note in told), told

    def situation(self):
        """What decides about a request beside its messages."""
        return self.writes, self.waits, self.model, self.tools

    def extends(self, request, previous, *situation):
        if situation != self.situation():
            return
        assert request.delta == ()
        if request.rewritten == "cost" or (previous.waiting and request.rewritten == "authored"):
            return  # what was carried since has cost as much as a new base, or what waited for one gets it
        if self.workers > 1 and request.rewritten in ("erased", "lost"):
            return  # the other worker has to make the base again, which an erasure or a compaction may forbid
        assert request.rewritten is None
        if any("reasoning was left out" in note for note in request.notes):
            return  # what it was bound to has changed before, and the turn that needed it is over
        old = read_request(self.format, previous.arguments).segments
        new = read_request(self.format, request.arguments).segments
        marked = [index for index, each in enumerate(old) if each.mark is not None]
        end = marked[-1] + 1 if marked else len(old)
        plain = [attrs.evolve(each, mark=None) for each in old[:end]]
        assert plain == [attrs.evolve(each, mark=None) for each in new[:end]]


class ConversationsOnSqlite(Conversations):
    kind = "sqlite"
    workers = 2


class ConversationsWithBedrock(Conversations):
    formats = ("bedrock",)


class ConversationsWithOthers(Conversations):
    formats = ("openai-responses", "openai-chat", "gemini")


TestConversations = Conversations.TestCase
TestConversationsOnSqlite = ConversationsOnSqlite.TestCase
TestConversationsWithBedrock = ConversationsWithBedrock.TestCase
TestConversationsWithOthers = ConversationsWithOthers.TestCase
