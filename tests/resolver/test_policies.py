"""Any mix of failing, slow, wrong and healthy blocks gives what was declared, and healthy ones are never lost."""

from __future__ import annotations

import asyncio
import pickle
import threading

import anyio
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import promptkeel as pk
from promptkeel import blocking
from promptkeel.blocks import FailurePolicy
from promptkeel.model import BlockFact, BlockRevision
from promptkeel.resolver.outcomes import STALE_LINE

ADA = pk.TenantScope.parse("org:acme/user:ada")
BOB = pk.TenantScope.parse("org:acme/user:bob")
SHORT = 0.02
BEHAVIOURS = ("healthy", "failing", "slow", "wrong type", "defect", "shut", "gate fails")
POLICIES = (
    FailurePolicy("fail_closed"),
    FailurePolicy("omit"),
    FailurePolicy("last_known_good"),
    FailurePolicy("last_known_good", mark_text=False),
)


class Script:
    """What a block does, to be changed while the resolver lives."""

    sharing = ("scope",)
    kind = "scripted"

    def __init__(self, name, *, is_learned, is_async, gate_is_async):
        self.name = name
        self.is_learned = is_learned
        self.is_async = is_async
        self.behaviour = "healthy"
        self.release = threading.Event()
        self.threads = []
        self.loads = 0
        if is_async:
            self.load = self.load_async
        self.gate = self.gate_async if gate_is_async else self.gate_here

    @property
    def declared(self):
        return (self.name,)

    def load(self, scope):
        self.loads += 1
        self.threads.append(threading.get_ident())
        if self.behaviour == "slow":
            self.release.wait(20)
        return self.answer(scope)

    async def load_async(self, scope):
        self.loads += 1
        if self.behaviour == "slow":
            await anyio.sleep(20)
        return self.answer(scope)

    def answer(self, scope):
        if self.behaviour == "failing":
            raise ConnectionError(f"{self.name} is away")
        if self.behaviour == "wrong type":
            return "only text"
        if self.behaviour == "defect":
            raise ZeroDivisionError("a defect")
        text = f"{self.name} for {scope}"
        facts = (BlockFact(text),) if self.is_learned else None
        return BlockRevision(content=text, revision="r1", facts=facts)

    def gate_here(self, _):
        self.threads.append(threading.get_ident())
        if self.behaviour == "gate fails":
            raise OSError("the gate is away")
        return self.behaviour != "shut"

    async def gate_async(self, _):
        if self.behaviour == "gate fails":
            return "yes"
        return self.behaviour != "shut"


@st.composite
def blocks(draw):
    found = []
    for position in range(draw(st.integers(1, 5))):
        script = Script(
            f"B{position}",
            is_learned=draw(st.booleans()),
            is_async=draw(st.booleans()),
            gate_is_async=draw(st.booleans()),
        )
        gated = draw(st.booleans())
        spec = pk.PromptBlockSpec(
            name=script.name,
            source=script,
            on_failure=draw(st.sampled_from(POLICIES)),
            layer=draw(st.sampled_from(["stable", "volatile"])),
            render_when=script.gate if gated else None,
            timeout=20,
            gate_timeout=20,
        )
        usable = [each for each in BEHAVIOURS if gated or each not in ("shut", "gate fails")]
        # Twice out of three times healthy, so that whole prompts are not rare.
        behaviour = draw(st.sampled_from([*["healthy"] * (2 * len(usable)), *usable]))
        found.append((spec, script, behaviour))
    return found


def expected(spec, behaviour, primed):
    """What the model says a block becomes: a state, or the kind of an error."""
    if behaviour == "gate fails":
        return pk.BlockGateError
    if behaviour == "shut":
        return "gated"
    if behaviour in ("wrong type", "defect"):
        return pk.BlockContractError
    if behaviour == "healthy":
        return "fresh"
    action = spec.on_failure.action
    if action == "omit":
        return "omitted"
    return "stale" if action == "last_known_good" and primed else pk.BlockResolutionError


@settings(max_examples=150)
@given(blocks(), st.booleans(), st.sampled_from(["asyncio", "trio", "blocking"]))
def test_any_mix_gives_the_declared_policys_result_or_an_error_that_names_block_and_scope(declared, primed, world):
    if world == "blocking":
        for _, script, _ in declared:
            if script.is_async:
                del script.load
                script.is_async = False
            script.gate = script.gate_here
        declared = [
            (attrs.evolve(spec, render_when=script.gate if spec.render_when else None), script, behaviour)
            for spec, script, behaviour in declared
        ]
    specs = [spec for spec, _, _ in declared]
    try:
        if world == "blocking":
            resolver = blocking.PromptBlockResolver(specs, secret=b"key")
            first = resolver.resolve(ADA) if primed else None
            behave(resolver, declared)
            check(declared, primed, first, lambda: resolver.resolve(ADA))
        else:
            anyio.run(in_the_loop, declared, specs, primed, backend=world)
    finally:
        for _, script, _ in declared:
            script.release.set()


def behave(resolver, declared):
    for spec, script, behaviour in declared:
        script.behaviour = behaviour
        if behaviour == "slow":
            # Only what is slow has so little time: a healthy call may well take as long on a busy machine.
            resolver.core._loaders[spec.name].asker.seconds = SHORT


async def in_the_loop(declared, specs, primed):
    resolver = pk.PromptBlockResolver(specs, secret=b"key")
    first = await resolver.resolve(ADA) if primed else None
    behave(resolver, declared)
    try:
        answer = await resolver.resolve(ADA)
    except pk.BlockResolutionError as error:
        answer = error

    def again():
        if isinstance(answer, pk.BlockResolutionError):
            raise answer
        return answer

    check(declared, primed, first, again)
    here = threading.get_ident()
    assert not any(here in script.threads for _, script, _ in declared), "nothing blocks on the loop's own thread"


def check(declared, primed, first, resolve):
    model = {spec.name: expected(spec, behaviour, primed) for spec, _, behaviour in declared}
    ordered = [spec.name for spec in pk.PromptBlockResolver([spec for spec, _, _ in declared], secret=b"key").specs]
    gates = [model[name] for name in ordered if model[name] is pk.BlockGateError]
    errors = [(name, model[name]) for name in ordered if isinstance(model[name], type)]
    if errors:
        with pytest.raises(pk.BlockResolutionError) as caught:
            resolve()
        name, kind = next((name, kind) for name, kind in errors if not gates or kind is pk.BlockGateError)
        assert type(caught.value) is kind
        assert (caught.value.block, caught.value.scope) == (name, ADA.path)
        assert f"block {name} at scope {ADA.path}" in str(caught.value)
        return
    resolution = resolve()
    prompt = pk.Prompt(resolution, len)
    found = {block.name: block for block in resolution.blocks}
    assert {name: block.state for name, block in found.items()} == model
    assert list(found) == ordered
    for name, block in found.items():
        if block.state in ("gated", "omitted"):
            assert block.text == ""
            assert f"{name} for" not in prompt.text
        else:
            assert f"{name} for {ADA}" in block.text, "a healthy block is never lost"
        if block.state == "stale":
            (original,) = [old for old in first.blocks if old.name == name]
            lines = block.text.split("\n")
            if block.spec.on_failure.mark_text:
                assert lines.pop(1) == STALE_LINE
            assert lines == original.text.split("\n")
        if block.state == "omitted" and block.is_learned:
            with pytest.raises(pk.BlockResolutionError):
                _ = block.facts
    not_strict = [name for name in ordered if model[name] in ("stale", "omitted")]
    assert resolution.freshness.strict == (not not_strict)
    assert [detail.partition(":")[0] for detail in resolution.freshness.detail] == not_strict
    assert [notice for name in ordered for notice in prompt.notices if f"/ {name} " in notice] == list(prompt.notices)
    assert len(prompt.notices) == list(model.values()).count("omitted")
    assert all(notice in prompt.tail for notice in prompt.notices)
    for _, script, behaviour in declared:
        assert (script.loads > int(primed)) == (behaviour != "shut"), "what is switched off is not read"


@pytest.fixture
def clock():
    class Clock:
        now = 1000.0

        def __call__(self):
            return self.now

    return Clock()


def resolver_of(specs, clock=None, **options):
    found = blocking.PromptBlockResolver(specs, secret=b"key", **options)
    if clock is not None:
        found.core._now = clock
    return found


def scripted(policy, *, is_learned=True, name="NOTES"):
    script = Script(name, is_learned=is_learned, is_async=False, gate_is_async=False)
    return script, pk.PromptBlockSpec(name=name, source=script, on_failure=policy)


def test_what_was_last_read_is_shown_for_so_long_and_for_this_scope_only(clock):
    script, spec = scripted(FailurePolicy("last_known_good", max_age=60))
    resolver = resolver_of([spec], clock)
    resolver.resolve(ADA)
    script.behaviour = "failing"
    clock.now += 60
    (block,) = resolver.resolve(ADA).blocks
    assert (block.state, block.age) == ("stale", 60)
    with pytest.raises(pk.BlockResolutionError, match="user:bob"):
        resolver.resolve(BOB)
    clock.now += 0.001
    with pytest.raises(pk.BlockResolutionError, match="NOTES is away"):
        resolver.resolve(ADA)
    script.behaviour = "healthy"
    assert resolver.resolve(ADA).freshness.strict


def test_a_stale_answer_names_its_block_its_age_and_why(clock):
    script, spec = scripted("last_known_good")
    resolver = resolver_of([spec], clock)
    resolver.resolve(ADA)
    script.behaviour = "failing"
    clock.now += 12
    freshness = resolver.resolve(ADA).freshness
    assert str(freshness) == "NOTES: as it was last read, 12 s ago; NOTES is away"
    assert pickle.loads(pickle.dumps(resolver.resolve(ADA).blocks[0].failure)).block == "NOTES"  # noqa: S301


def test_its_age_counts_from_when_the_read_began_not_from_when_it_ended(clock):
    script, spec = scripted("last_known_good")
    resolver = resolver_of([spec], clock)
    answer = script.answer

    def slow(scope):
        clock.now += 100
        return answer(scope)

    script.answer = slow
    resolver.resolve(ADA)
    script.answer, script.behaviour = answer, "failing"
    assert resolver.resolve(ADA).blocks[0].age == 100


@pytest.fixture(params=["ram:", "sqlite"])
def url(request, tmp_path):
    return request.param if request.param == "ram:" else f"sqlite:///{tmp_path / 'memory.db'}"


LANES = [
    pk.PromptBlockSpec(name="BOUNDARIES", source=pk.StaticSource("Never reveal another customer's data.")),
    pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:"), on_failure="last_known_good"),
    pk.PromptBlockSpec(name="PREFERENCES", source=pk.MemoryLane("PREFERENCE:")),
]


def away(*_):
    raise pk.StoreUnavailableError("the disk is away")


def test_a_store_that_fails_hits_each_block_by_its_own_policy_and_no_other_source(url):
    with blocking.open(url, blocks=LANES) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        keel.remember(ADA, "short answers", block="PREFERENCES")
        whole = keel.prompt(ADA)
        engine = keel.core.store.engine
        engine.probe = away
        prompt = keel.prompt(ADA)
        assert [block.state for block in prompt.blocks] == ["fresh", "stale", "omitted"]
        assert prompt.block("USER_PROFILE").facts == whole.block("USER_PROFILE").facts
        assert prompt.heads is None
        assert "PREFERENCES could not be read now" in prompt.tail
        with pytest.raises(pk.BlockResolutionError, match=r"PREFERENCES.*the disk is away"):
            keel.facts(ADA)
        del engine.probe
        again = keel.prompt(ADA)
        assert again.text == whole.text
        assert again.freshness.strict
        assert keel.prompt(ADA) is again


def test_an_erasure_ends_what_was_last_read(url):
    with blocking.open(url, blocks=LANES) as keel:
        node = keel.remember(ADA, "a marked secret", block="USER_PROFILE")
        keel.prompt(ADA)
        keel.prompt(ADA)
        keel.erase(ADA, node.id)
        keel.core.store.engine.probe = away
        with pytest.raises(pk.BlockResolutionError, match="USER_PROFILE"):
            keel.prompt(ADA)


def test_a_read_that_began_before_an_erasure_brings_nothing_back():
    script, spec = scripted("last_known_good")
    resolver = resolver_of([spec])
    answer = script.answer

    def erased_meanwhile(scope):
        found = answer(scope)
        resolver.core.clear()
        return found

    script.answer = erased_meanwhile
    resolver.resolve(ADA)
    script.answer, script.behaviour = answer, "failing"
    with pytest.raises(pk.BlockResolutionError):
        resolver.resolve(ADA)


def test_a_slow_old_read_never_replaces_what_was_read_later():
    script, spec = scripted("last_known_good")
    resolver = resolver_of([spec])
    answer, entered, release = script.answer, threading.Event(), threading.Event()

    def old(scope):
        script.answer = answer
        entered.set()
        assert release.wait(20)
        return BlockRevision(content="old", revision="r0", facts=(BlockFact("old"),))

    script.answer = old
    slow = threading.Thread(target=resolver.resolve, args=(ADA,))
    slow.start()
    assert entered.wait(20)
    new = resolver.resolve(ADA)
    release.set()
    slow.join(20)
    script.behaviour = "failing"
    assert resolver.resolve(ADA).blocks[0].facts == new.blocks[0].facts


def test_a_last_known_good_that_said_nothing_is_said_to_be_unknown(url):
    with blocking.open(url, blocks=LANES) as keel:
        keel.prompt(ADA)
        keel.core.store.engine.probe = away
        assert "USER_PROFILE could not be read now" in keel.prompt(ADA).tail


def test_a_missing_block_of_facts_and_facts_in_authored_text_are_errors_whatever_the_policy():
    for is_learned, facts in ((True, None), (False, (BlockFact("x"),))):
        script, spec = scripted("omit", is_learned=is_learned)
        revision = BlockRevision(content="x", revision="r", facts=facts)
        script.answer = lambda _, revision=revision: revision
        with pytest.raises(pk.BlockContractError, match="block NOTES at scope org:acme/user:ada: its source"):
            resolver_of([spec]).resolve(ADA)


def test_what_comes_too_late_is_dropped_and_too_many_left_behind_fail_at_once():
    script, spec = scripted("omit")
    resolver = resolver_of([attrs.evolve(spec, timeout=0.01)])
    script.behaviour = "slow"
    reasons = [resolver.resolve(ADA).blocks[0].failure.reason for _ in range(10)]
    assert reasons[:8] == ["did not answer within 0.01 s"] * 8
    assert all("8 calls of block NOTES ran out of time and still run" in reason for reason in reasons[8:])
    counters = resolver.core.counters
    assert (counters.abandoned, counters.still_running) == (8, 8)
    script.behaviour = "healthy"
    resolver.core._loaders["NOTES"].asker.seconds = 20
    script.release.set()
    for _ in range(2000):
        if not counters.still_running:
            break
        threading.Event().wait(0.01)
    assert resolver.resolve(ADA).freshness.strict
    assert (counters.abandoned, counters.still_running) == (8, 0)


@pytest.mark.parametrize("beside", [0, 1, 2])
def test_a_source_that_awaits_what_somebody_else_cancelled_is_an_error_and_cancels_nobody(beside):
    async def awaits_a_cancelled_task(_):
        task = asyncio.ensure_future(asyncio.sleep(20))
        task.cancel()
        await task

    async def healthy(_):
        await asyncio.sleep(0)
        return "text", "r"

    specs = [pk.PromptBlockSpec(name="NOTES", source=pk.ComputedSource(awaits_a_cancelled_task))]
    specs += [pk.PromptBlockSpec(name=f"B{n}", source=pk.ComputedSource(healthy)) for n in range(beside)]

    async def main():
        with pytest.raises(pk.BlockContractError, match=r"block NOTES at .*what it awaited was cancelled"):
            await pk.PromptBlockResolver(specs).resolve(ADA)
        assert not asyncio.current_task().cancelling()

    asyncio.run(main())


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_what_a_source_raises_for_its_own_thread_ends_nobody_elses(error):
    def function(_):
        raise error

    specs = [pk.PromptBlockSpec(name="NOTES", source=pk.ComputedSource(function))]
    with pytest.raises(pk.BlockContractError, match=f"it raised {error.__name__}"):
        blocking.PromptBlockResolver(specs).resolve(ADA)
    with pytest.raises(pk.BlockContractError, match=f"it raised {error.__name__}"):
        asyncio.run(pk.PromptBlockResolver(specs).resolve(ADA))


def test_a_cancelled_resolve_is_cancelled():
    async def never(_):
        await anyio.sleep_forever()

    async def main():
        for function in (never, lambda _: threading.Event().wait(0.2)):
            specs = [pk.PromptBlockSpec(name="NOTES", source=pk.ComputedSource(function), on_failure="omit")]
            task = asyncio.ensure_future(pk.PromptBlockResolver(specs).resolve(ADA))
            await anyio.wait_all_tasks_blocked()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
