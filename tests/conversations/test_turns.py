"""What a turn of a conversation does, one promise a test: workers, restarts, forks, erasures, outages, wrong input."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest

import promptkeel as pk
from conversations.conversing import ADA, specs
from conversations.plain_reader import Reader, texts_of
from promptkeel import blocking
from promptkeel.errors import (
    ConversationBoundError,
    InvalidInputError,
    StoreClosedError,
)
from promptkeel.providers.automaton import UNSENT, advance, check
from promptkeel.providers.rules import rules_for
from promptkeel.providers.wire import read_request
from promptkeel.upkeep.checking import check_engine

OPUS = {"format": "anthropic", "model": "claude-opus-5", "max_tokens": 10}
TESTS = Path(__file__).parent.parent


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def words(request):
    return json.dumps([request.arguments, list(request.history)])


class Clock:
    def __init__(self):
        self.now = 1_780_000_000_000_000

    def __call__(self):
        self.now += 1000
        return self.now


@pytest.fixture(params=["ram", "sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "postgres":
        databases = request.getfixturevalue("databases")
        address = databases.store()
        yield address
        databases.give_back(address)
    else:
        yield "ram:" if request.param == "ram" else f"sqlite:///{tmp_path / 'memory.db'}"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def keel(url, clock):
    with blocking.open(url, blocks=specs(), clock=clock) as opened:
        opened.remember(ADA, "prefers tea", block="USER_PROFILE", id="tea", trust="user")
        yield opened


def test_what_changed_stands_after_the_messages_and_the_base_as_it_was(keel):
    conversation = keel.conversation(ADA, "c1")
    first = conversation.turn([user("hi")], **OPUS)
    keel.remember(ADA, "likes chess", block="USER_PROFILE", trust="user")
    second = conversation.turn([*first.history, assistant("hello"), user("more")], **OPUS)
    assert first.delta == ()
    assert (first.rewritten, second.rewritten) == (None, None)
    assert second.base is first.base
    assert second.arguments["system"][0]["text"] == first.arguments["system"][0]["text"]
    (said,) = second.delta
    assert "likes chess" in said
    assert "likes chess" not in json.dumps(second.history[:-1])
    assert second.history[-1]["content"][-1]["text"] == said
    third = conversation.turn([*second.history, assistant("yes"), user("and")], **OPUS)
    assert third.delta == ()
    assert third.base is first.base


def test_the_freshness_of_a_request_and_of_its_base_say_that_the_base_is_pinned(keel):
    conversation = keel.conversation(ADA, "c1")
    request = conversation.turn([user("hi")], **OPUS)
    assert not request.base.freshness.strict
    assert "pinned" in str(request.base.freshness)
    assert request.freshness.strict
    assert any("pinned" in line for line in request.freshness.detail)


def test_a_delta_that_a_caller_lost_is_said_again(keel):
    conversation = keel.conversation(ADA, "c1")
    first = conversation.turn([user("hi")], **OPUS)
    keel.remember(ADA, "likes chess", block="USER_PROFILE", trust="user")
    own = [user("hi"), assistant("hello"), user("more")]
    second = conversation.turn(own, **OPUS)
    third = conversation.turn([*own, assistant("yes"), user("and")], **OPUS)
    assert second.delta == third.delta != ()
    assert third.base is first.base


def test_what_was_made_up_of_other_words_is_no_delta(keel):
    conversation = keel.conversation(ADA, "c1")
    first = conversation.turn([user("hi")], **OPUS)
    keel.remember(ADA, "likes chess", block="USER_PROFILE", trust="user")
    second = conversation.turn([*first.history, assistant("hello"), user("more")], **OPUS)
    (said,) = second.delta
    forged = said.replace("likes chess", "likes crime")
    third = conversation.turn([user("hi"), assistant("hello"), user("more"), assistant("yes"), user(forged)], **OPUS)
    assert third.delta == second.delta
    assert third.withdrawn == 0


def test_a_restart_makes_the_same_bytes_of_the_base_again(tmp_path, clock):
    url = f"sqlite:///{tmp_path / 'memory.db'}"

    def house(text):
        return [*specs(), pk.PromptBlockSpec(name="HOUSE", source=pk.StaticSource(text))]

    with blocking.open(url, blocks=house("One door."), clock=clock) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE", id="tea", trust="user")
        keel.blocks.append(ADA.parent, "RULES", "Be brief.", author="operator")
        first = keel.conversation(ADA, "c1").turn([user("hi")], **OPUS)
        keel.correct(ADA, "tea", text="prefers coffee")
        keel.blocks.append(ADA.parent, "RULES", "Be long.", author="operator")
    with blocking.open(url, blocks=house("Two doors."), clock=clock) as keel:
        second = keel.conversation(ADA, "c1").turn([*first.history, assistant("hello"), user("more")], **OPUS)
    assert second.rewritten is None
    assert second.base.text == first.base.text
    assert second.arguments["system"][0]["text"] == first.arguments["system"][0]["text"]
    reader = Reader(texts_of(second.arguments))
    assert reader.authored["RULES"] == "Be long."
    assert reader.authored["HOUSE"] == "Two doors."
    assert [body for _, body in reader.statements["USER_PROFILE"]] == ['"prefers coffee"']


def test_a_block_that_is_declared_otherwise_needs_another_base(tmp_path, clock):
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with blocking.open(url, blocks=specs(), clock=clock) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE", trust="user")
        first = keel.conversation(ADA, "c1").turn([user("hi")], **OPUS)
    other = [spec for spec in specs() if spec.name != "USER_PROFILE"]
    with blocking.open(url, blocks=other, clock=clock) as keel:
        second = keel.conversation(ADA, "c1").turn([*first.history, assistant("hello"), user("more")], **OPUS)
    assert second.rewritten == "lost"
    assert "prefers tea" not in words(second)


def test_what_was_erased_is_in_no_later_request_wherever_it_stood(keel):
    conversation = keel.conversation(ADA, "c1")
    keel.remember(ADA, "likes chess", block="USER_PROFILE", id="chess", trust="user")
    first = conversation.turn([user("hi")], **OPUS)
    keel.remember(ADA, "likes wine", block="USER_PROFILE", id="wine", trust="user")
    second = conversation.turn([*first.history, assistant("hello"), user("more")], **OPUS)
    keel.correct(ADA, "wine", text="likes water")
    third = conversation.turn([*second.history, assistant("yes"), user("and")], **OPUS)
    assert "likes wine" in words(third)
    keel.erase(ADA, "wine")
    messages = [*third.history, assistant("so"), user("then")]
    fourth = conversation.turn(messages, **OPUS)
    assert (fourth.rewritten, fourth.withdrawn) == ("erased", 2)
    assert "likes wine" not in words(fourth)
    assert "likes water" not in words(fourth)
    keel.erase(ADA, "chess")
    fifth = conversation.turn([*fourth.history, assistant("so"), user("then")], **OPUS)
    assert fifth.rewritten == "erased"
    assert "chess" not in words(fifth)
    # A caller that still has the old messages cannot bring it back.
    sixth = conversation.turn([*messages, assistant("so"), user("what")], **OPUS)
    assert "likes wine" not in words(sixth)
    assert "chess" not in words(sixth)
    assert check_engine(keel.core.store.engine).is_healthy


def test_an_erasure_of_something_else_leaves_the_base(keel):
    conversation = keel.conversation(ADA, "c1")
    keel.remember(ADA, "likes wine", block="USER_PROFILE", id="wine", trust="user")
    keel.retract(ADA, "wine")
    first = conversation.turn([user("hi")], **OPUS)
    keel.remember(ADA, "likes chess", block="USER_PROFILE", trust="user")
    second = conversation.turn([*first.history, assistant("hello"), user("more")], **OPUS)
    keel.erase(ADA, "wine")
    third = conversation.turn([*second.history, assistant("yes"), user("and")], **OPUS)
    assert third.rewritten is None
    assert third.base.text == first.base.text


def test_reasoning_that_is_bound_to_what_was_erased_is_left_out_and_within_a_turn_dropped_or_refused(keel):
    settings = {"format": "anthropic", "max_tokens": 10}
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "found"}]}
    closed = [{"role": "assistant", "content": [thought, {"type": "text", "text": "so"}]}, user("more")]
    waiting = [{"role": "assistant", "content": [thought, call]}, result]
    for model, drops in (("claude-opus-5-5", True), ("claude-nobody-knows", False)):
        conversation = keel.conversation(ADA, model)
        first = conversation.turn([user("hi")], model=model, **settings)
        keel.remember(ADA, f"likes {model}", block="USER_PROFILE", id=model, trust="user")
        second = conversation.turn([*first.history, *closed], model=model, **settings)
        assert f"likes {model}" in words(second)
        assert "thinking" in words(second)
        keel.erase(ADA, model)
        messages = [*second.history, *closed]
        third = conversation.turn(messages, model=model, **settings)
        assert (third.rewritten, third.withdrawn) == ("erased", 1)
        assert f"likes {model}" not in words(third)
        assert "thinking" not in words(third)
        keel.remember(ADA, f"likes {model}", block="USER_PROFILE", id=f"{model} again", trust="user")
        fourth = conversation.turn([*third.history, assistant("so"), user("and")], model=model, **settings)
        keel.erase(ADA, f"{model} again")
        if drops:
            fifth = conversation.turn([*fourth.history, *waiting], model=model, **settings)
            assert fifth.arguments["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}
            assert f"likes {model}" not in words(fifth)
        else:
            with pytest.raises(ConversationBoundError, match="leave this turn out"):
                conversation.turn([*fourth.history, *waiting], model=model, **settings)


def test_another_model_or_a_cold_cache_folds_what_was_carried_into_a_new_base(keel, clock):
    conversation = keel.conversation(ADA, "c1")
    first = conversation.turn([user("hi")], **OPUS)
    keel.remember(ADA, "likes chess", block="USER_PROFILE", trust="user")
    second = conversation.turn([*first.history, assistant("hello"), user("more")], **OPUS)
    messages = [*second.history, assistant("yes"), user("and")]
    other = conversation.turn(messages, **{**OPUS, "model": "claude-opus-4-8"})
    assert (other.rewritten, other.withdrawn, other.delta) == ("model", 1, ())
    again = conversation.turn(messages, **OPUS)
    assert again.rewritten is None
    clock.now += 301 * 1_000_000
    cold = conversation.turn([*again.history, assistant("yes"), user("then")], **OPUS)
    assert "likes chess" in cold.base.text


def test_an_outage_of_a_source_is_no_change_and_is_said_in_the_tail(url, clock):
    outage = [False]

    class Crm:
        kind = "crm"
        is_learned = True
        sharing = ("scope",)
        declared = ()

        def load(self, _):
            if outage[0]:
                raise ConnectionError("gone")
            fact = pk.BlockFact("is a vip", "crm", None, None, "operator")
            return pk.BlockRevision(content="vip", revision="r1", facts=(fact,))

    blocks = [*specs(), pk.PromptBlockSpec(name="CRM", tier="profile", source=Crm(), on_failure="omit")]
    with blocking.open(url, blocks=blocks, clock=clock) as keel:
        conversation = keel.conversation(ADA, "c1")
        first = conversation.turn([user("hi")], **OPUS)
        outage[0] = True
        second = conversation.turn([*first.history, assistant("hello"), user("more")], **OPUS)
        assert second.delta == ()
        assert second.base is first.base
        assert "CRM could not be read" in json.dumps(second.arguments)
        assert "CRM could not be read" not in json.dumps(list(second.history))
        assert not second.freshness.strict


def test_the_tail_is_in_the_request_and_not_in_the_history(keel):
    conversation = keel.conversation(ADA, "c1")
    request = conversation.turn([user("hi")], tail={"time": "noon", "query": "what now?"}, **OPUS)
    assert "noon" in json.dumps(request.arguments)
    assert list(request.history) == [user("hi")]


def test_two_workers_of_one_conversation_take_the_same_base(keel):
    one, two = keel.conversation(ADA, "c1"), keel.conversation(ADA, "c1")
    found = []
    gate = threading.Barrier(2)

    def take(conversation, text):
        gate.wait()
        found.append(conversation.turn([user(text)], **OPUS))

    for text in ("a", "b"):
        threads = [threading.Thread(target=take, args=(each, text)) for each in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({request.base.text for request in found}) == 1
    assert {request.rewritten for request in found} == {None}
    assert check_engine(keel.core.store.engine).is_healthy


class Worker:
    """A process that takes turns."""

    def __init__(self, url):
        paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "conversations.conversing", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def send(self, messages):
        self.process.stdin.write(json.dumps(messages) + "\n")
        self.process.stdin.flush()

    def receive(self):
        return json.loads(self.process.stdout.readline())

    def take(self, messages):
        self.send(messages)
        return self.receive()

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request, tmp_path):
    if request.param == "postgres":
        databases = request.getfixturevalue("databases")
        address = databases.store()
        yield address
        databases.give_back(address)
    else:
        yield f"sqlite:///{tmp_path / 'memory.db'}"


def test_two_processes_take_turns_of_one_conversation(shared):
    with blocking.open(shared, blocks=specs()) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE", id="tea", trust="user")
        one, two = Worker(shared), Worker(shared)
        try:
            one.send([user("hi")])
            two.send([user("hi")])
            first, other = one.receive(), two.receive()
            assert first["arguments"] == other["arguments"]
            keel.remember(ADA, "likes chess", block="USER_PROFILE", trust="user")
            second = one.take([*first["history"], assistant("hello"), user("more")])
            third = two.take([*second["history"], assistant("yes"), user("and")])
            fork = two.take([*first["history"], assistant("ho"), user("less")])
        finally:
            one.end()
            two.end()
        assert second["base"] == third["base"] == fork["base"] == first["base"]
        assert (len(second["delta"]), len(third["delta"]), len(fork["delta"])) == (1, 0, 1)
        assert third["history"][: len(second["history"])] == second["history"]
        assert check_engine(keel.core.store.engine).is_healthy


def test_a_kill_in_a_turn_leaves_a_conversation_that_goes_on(shared):
    with blocking.open(shared, blocks=specs()) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE", id="tea", trust="user")
        history = [user("hi")]
        base = None
        for number in range(4):
            worker = Worker(shared)
            try:
                taken = worker.take(history)
                base = base or taken["base"]
                # Killed while the next one is on its way, or done: whichever it was, the next worker goes on.
                worker.send([*taken["history"], assistant(f"answer {number}"), user(f"killed {number}")])
            finally:
                worker.end(signal.SIGKILL)
            assert (taken["base"], taken["rewritten"]) == (base, None)
            history = [*taken["history"], assistant(f"answer {number}"), user(f"question {number}")]
            keel.remember(ADA, f"fact {number}", block="USER_PROFILE", trust="user")
        request = keel.conversation(ADA, "c1").turn(history, **OPUS)
        reader = Reader(texts_of(request.arguments))
        assert len(reader.statements["USER_PROFILE"]) == 5
        assert check_engine(keel.core.store.engine).is_healthy


def test_a_turn_can_be_cancelled_wherever_it_waits(tmp_path, clock):
    url = f"sqlite:///{tmp_path / 'memory.db'}"

    async def program():
        async with pk.open(url, blocks=specs(), clock=clock) as keel:
            await keel.remember(ADA, "prefers tea", block="USER_PROFILE", trust="user")
            conversation = await keel.conversation(ADA, "c1")
            first = await conversation.turn([user("hi")], **OPUS)
            messages = [*first.history, assistant("hello"), user("more")]
            for number in range(12):
                await keel.remember(ADA, f"fact {number}", block="USER_PROFILE", trust="user")
                task = asyncio.ensure_future(conversation.turn(messages, **OPUS))
                for _ in range(number):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            last = await conversation.turn(messages, **OPUS)
            reader = Reader(texts_of(last.arguments))
            assert len(reader.statements["USER_PROFILE"]) == 13
            assert last.base.text == first.base.text
            assert check_engine(keel.core.store.engine).is_healthy

    asyncio.run(program())


def test_a_turn_runs_on_trio_as_well():
    async def program():
        async with pk.open("ram:", blocks=specs()) as keel:
            conversation = await keel.conversation(ADA, "c1")
            request = await conversation.turn([user("hi")], **OPUS)
            assert list(request.history) == [user("hi")]

    anyio.run(program, backend="trio")


def test_a_closed_keel_takes_no_turn():
    with blocking.open("ram:", blocks=specs()) as keel:
        conversation = keel.conversation(ADA, "c1")
    with pytest.raises(StoreClosedError):
        conversation.turn([user("hi")], **OPUS)
    with pytest.raises(StoreClosedError):
        keel.conversation(ADA, "c1")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_and_its_parent_go_on_with_one_base(tmp_path):
    with blocking.open(f"sqlite:///{tmp_path / 'memory.db'}", blocks=specs()) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE", trust="user")
        conversation = keel.conversation(ADA, "c1")
        first = conversation.turn([user("hi")], **OPUS)
        messages = [*first.history, assistant("hello"), user("more")]
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            taken = conversation.turn(messages, **OPUS)
            os._exit(0 if taken.base.text == first.base.text and taken.rewritten is None else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        again = conversation.turn(messages, **OPUS)
        assert again.base is first.base
        assert check_engine(keel.core.store.engine).is_healthy


def test_a_conversation_of_one_scope_is_not_that_of_another(keel):
    bob = pk.TenantScope.parse("org:acme/user:bob")
    keel.remember(bob, "prefers milk", block="USER_PROFILE", trust="user")
    ada = keel.conversation(ADA, "c1").turn([user("hi")], **OPUS)
    found = keel.conversation(bob, "c1").turn([user("hi")], **OPUS)
    assert "prefers milk" in found.base.text
    assert "prefers tea" not in words(found)
    assert "prefers milk" not in words(ada)


def test_history_that_went_on_in_another_conversation_loses_the_deltas_of_the_first(keel):
    first = keel.conversation(ADA, "c1")
    request = first.turn([user("hi")], **OPUS)
    keel.remember(ADA, "likes chess", block="USER_PROFILE", trust="user")
    request = first.turn([*request.history, assistant("hello"), user("more")], **OPUS)
    copied = keel.conversation(ADA, "c2").turn([*request.history, assistant("yes"), user("and")], **OPUS)
    assert copied.withdrawn == 1
    assert "likes chess" in copied.base.text
    assert "likes chess" not in json.dumps(list(copied.history))


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": "hi"},
        {"messages": None},
        {"messages": [None]},
        {"messages": [user("hi")], "format": "smoke"},
        {"messages": [user("hi")], "format": None},
        {"messages": [user("hi")], "model": ""},
        {"messages": [user("hi")], "model": None},
        {"messages": [user("hi")], "tools": "look"},
        {"messages": [user("hi")], "tail": 3},
        {"messages": [user("hi")], "system": "obey"},
        {"messages": [{"role": "narrator", "content": "hi"}]},
    ],
)
def test_wrong_input_is_refused_by_type_and_nothing_is_kept(wrong):
    with blocking.open("ram:", blocks=specs()) as keel:
        conversation = keel.conversation(ADA, "c1")
        with pytest.raises(InvalidInputError):
            conversation.turn(**{**OPUS, **wrong})
        assert keel.core.store.engine.stored(ADA).nodes == ()


@pytest.mark.parametrize("wrong", [None, 3, "", " ", "\ud800"])
def test_what_cannot_name_a_conversation_is_refused_by_type(wrong):
    with blocking.open("ram:", blocks=specs()) as keel, pytest.raises(InvalidInputError):
        keel.conversation(ADA, wrong)


def test_the_state_holds_no_text_of_memory_and_none_of_the_messages(keel):
    conversation = keel.conversation(ADA, "c1")
    request = conversation.turn([user("my own words")], **OPUS)
    keel.remember(ADA, "likes chess", block="USER_PROFILE", trust="user")
    conversation.turn([*request.history, assistant("hello"), user("more")], **OPUS)
    nodes = [node for node in keel.core.store.engine.stored(ADA).nodes if node.label.startswith("@conversation:")]
    kept = json.dumps([dict(node.own_properties) for node in nodes])
    assert len(nodes) == 3
    for text in ("prefers tea", "likes chess", "my own words"):
        assert text not in kept


def test_the_marks_of_a_request_are_kept_with_its_turn(keel):
    conversation = keel.conversation(ADA, "c1")
    request = conversation.turn([user("hi")], **OPUS)
    segments = read_request("anthropic", request.arguments).segments
    marked = [index for index, segment in enumerate(segments) if segment.mark is not None]
    (turn,) = [node.own_properties for node in keel.core.store.engine.stored(ADA).nodes if ":turn:" in node.label]
    assert [index for index, _ in turn["marks"]] == marked != []


def test_a_chain_gets_what_is_new_and_after_an_erasure_there_is_a_new_one(keel):
    """What a provider holds for a chain cannot be taken back."""
    conversation = keel.conversation(ADA, "c1")
    rules = rules_for("openai", "gpt-5.5")
    automaton = UNSENT
    settings = {"format": "openai-responses", "model": "gpt-5.5"}

    def take(messages, number, **chain):
        nonlocal automaton
        request = conversation.turn(messages, **settings, **chain)
        wire = read_request("openai-responses", request.arguments)
        assert [each for each in check(automaton, wire, rules, number) if each.refuses] == []
        automaton = advance(automaton, wire, number, response=f"r{number}")
        return request

    first = take([user("hi")], 1)
    second = take([*first.history, assistant("hello"), user("more")], 2, previous_response_id="r1")
    assert [each["content"] for each in second.arguments["input"]] == ["more"]
    keel.remember(ADA, "likes wine", block="USER_PROFILE", id="wine", trust="user")
    third = take([*second.history, assistant("yes"), user("and")], 3, previous_response_id="r2")
    assert len(third.arguments["input"]) == 2
    assert "likes wine" in json.dumps(third.arguments["input"])
    again = take([*second.history, assistant("yes"), user("and")], 4, previous_response_id="r2")
    assert again.arguments["input"] == third.arguments["input"]
    fourth = take([*third.history, assistant("so"), user("then")], 5, previous_response_id="r3")
    assert [each["content"] for each in fourth.arguments["input"]] == ["then"]
    keel.erase(ADA, "wine")
    fifth = take([*fourth.history, assistant("so"), user("what")], 6, previous_response_id="r5")
    assert fifth.rewritten == "erased"
    assert "previous_response_id" not in fifth.arguments
    assert any("new chain" in note for note in fifth.notes)
    assert "likes wine" not in words(fifth)
    # A caller that lost a delta cannot go on with the chain that holds it.
    keel.remember(ADA, "likes chess", block="USER_PROFILE", id="chess", trust="user")
    sixth = take([*fifth.history, assistant("so"), user("x")], 7, previous_response_id="r6")
    own = [*fifth.history, assistant("so"), user("x"), assistant("y"), user("z")]
    seventh = take(own, 8, previous_response_id="r7")
    assert sixth.delta
    assert "previous_response_id" not in seventh.arguments


def test_reasoning_that_came_after_a_tail_is_left_out_of_what_no_longer_has_it(keel):
    conversation = keel.conversation(ADA, "c1")
    settings = {"format": "anthropic", "model": "claude-opus-5-5", "max_tokens": 10}
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    answer = {"role": "assistant", "content": [thought, {"type": "text", "text": "so"}]}
    first = conversation.turn([user("hi")], tail={"time": "noon"}, **settings)
    second = conversation.turn([*first.history, answer, user("more")], **settings)
    assert "signature" not in words(second)
    assert any("reasoning was left out" in note for note in second.notes)
    third = conversation.turn([*second.history, answer, user("and")], **settings)
    assert words(third).count("signature") == 2  # once in the arguments, once in the history
    assert third.rewritten is None


def test_the_whole_deployment_can_have_a_conversation(url):
    with blocking.open(url, blocks=specs()[:1]) as keel:
        conversation = keel.conversation(pk.TenantScope(), "c1")
        first = conversation.turn([user("hi")], **OPUS)
        second = conversation.turn([*first.history, assistant("hello"), user("more")], **OPUS)
        assert second.base is first.base


def test_a_conversation_at_a_scope_does_not_see_one_above_it(keel):
    above = keel.conversation(ADA.parent, "c1").turn([user("hi")], **OPUS)
    here = keel.conversation(ADA, "c1").turn([*above.history, assistant("hello"), user("more")], **OPUS)
    assert here.rewritten is None
    assert "prefers tea" in here.base.text
    assert "prefers tea" not in above.base.text


def test_equal_programs_give_equal_bytes_from_one_store(tmp_path):
    url = f"sqlite:///{tmp_path / 'memory.db'}"

    def program():
        clock = Clock()
        with blocking.open(url, blocks=specs(), clock=clock) as keel:
            request = keel.conversation(ADA, "c1").turn([user("hi")], **OPUS)
            return json.dumps(request.arguments)

    with blocking.open(url, blocks=specs()) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE", trust="user", recorded_at="2026-05-02")
    assert program() == program()
