"""What a resolver reads, keeps and renders: counted, on both stores."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import threading

import anyio
import attrs
import pytest

import promptkeel as pk
from promptkeel import blocking
from promptkeel.steps import drive

ADA = pk.TenantScope.parse("org:acme/user:ada")
BOB = pk.TenantScope.parse("org:acme/user:bob")
ORG = pk.TenantScope.parse("org:acme")
BLOCKS = [
    pk.PromptBlockSpec(name="BOUNDARIES", source=pk.StaticSource("Never reveal another customer's data.")),
    pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:", profile_fields={"role"})),
    pk.PromptBlockSpec(name="PREFERENCES", source=pk.MemoryLane("PREFERENCE:")),
]


@pytest.fixture(params=["ram:", "sqlite"])
def url(request, tmp_path):
    return request.param if request.param == "ram:" else f"sqlite:///{tmp_path / 'memory.db'}"


@pytest.fixture
def keel(url):
    with blocking.open(url, blocks=BLOCKS) as opened:
        opened.remember(ADA, "prefers tea", block="USER_PROFILE", source="onboarding", recorded_at="2026-05-02T10:00Z")
        opened.remember(ADA, "short answers", block="PREFERENCES", recorded_at="2026-05-03")
        yield opened


def work(counters):
    return {name: getattr(counters, name) for name in ("deltas", "scans", "renders")}


def test_an_unchanged_memory_answers_the_very_same_prompt_for_one_probe(keel):
    first = keel.prompt(ADA)
    before, probes = work(keel.counters), keel.counters.probes
    assert keel.prompt(ADA) is first
    assert work(keel.counters) == before
    assert keel.counters.probes == probes + 1


def test_a_write_in_another_scope_reads_and_renders_nothing(keel):
    first = keel.prompt(ADA)
    before = work(keel.counters)
    keel.remember(BOB, "prefers coffee", block="USER_PROFILE")
    again = keel.prompt(ADA)
    assert work(keel.counters) == before
    assert again.text is first.text
    assert all(new is old for new, old in zip(again.blocks, first.blocks, strict=True))


def test_a_write_in_one_lane_renders_that_block_alone(keel):
    first = keel.prompt(ADA)
    before = work(keel.counters)
    keel.remember(ADA, "lives by the sea", block="USER_PROFILE")
    again = keel.prompt(ADA)
    after = work(keel.counters)
    assert {name: after[name] - before[name] for name in after} == {"deltas": 1, "scans": 0, "renders": 1}
    assert "lives by the sea" in again.text
    assert again.block("PREFERENCES") is first.block("PREFERENCES")
    assert again.block("BOUNDARIES") is first.block("BOUNDARIES")
    assert again.heads != first.heads


def test_a_write_outside_the_declared_lanes_moves_the_heads_and_no_byte(keel):
    first = keel.prompt(ADA)
    before = keel.counters.renders
    keel.remember(ADA, label="EVENT:met the auditor")
    again = keel.prompt(ADA)
    assert again.heads != first.heads
    assert again.text is first.text
    assert keel.counters.renders == before


def test_a_write_at_an_ancestor_is_seen_below_and_one_at_a_sibling_is_not(keel):
    keel.prompt(ADA)
    keel.remember(ORG, "closed on Fridays", block="USER_PROFILE")
    keel.remember(BOB, "a secret of another", block="USER_PROFILE")
    text = keel.prompt(ADA).text
    assert "closed on Fridays" in text
    assert "a secret of another" not in text


def test_what_goes_back_to_an_earlier_revision_is_not_rendered_again(keel):
    first = keel.prompt(ADA)
    node = keel.remember(ADA, "passing", block="PREFERENCES")
    keel.prompt(ADA)
    renders = keel.counters.renders
    keel.retract(ADA, node.id)
    again = keel.prompt(ADA)
    assert again.block("PREFERENCES").text == first.block("PREFERENCES").text
    assert keel.counters.renders == renders


def test_a_label_that_spells_a_field_and_the_declared_field_stay_apart(keel):
    keel.remember(ADA, "role: CTO", block="USER_PROFILE")
    forged = keel.prompt(ADA)
    assert '- "role: CTO"' in forged.text
    node = keel.remember(ADA, "works at the harbour", block="USER_PROFILE")
    keel.correct(ADA, node.id, properties={"role": "CTO"}, source="user-correction")
    text = keel.prompt(ADA).text
    assert '- role: "CTO"' in text
    assert '- "role: CTO"' in text


@pytest.mark.parametrize("when", [1_760_000_000, 1.5, True, "2026-05", "yesterday"])
def test_a_time_that_is_no_datetime_and_no_iso_text_is_refused_and_nothing_is_written(keel, when):
    heads = keel.store.heads(ADA)
    node = keel.facts(ADA)[0].node_id
    with pytest.raises(pk.InvalidInstantError, match="recorded_at"):
        keel.remember(ADA, "x", block="USER_PROFILE", recorded_at=when)
    with pytest.raises(pk.InvalidInstantError, match="recorded_at"):
        keel.correct(ADA, node, text="x", recorded_at=when)
    assert keel.store.heads(ADA) == heads


def test_a_prompt_is_pickled_and_copied_and_keeps_no_store_alive(keel):
    prompt = keel.prompt(ADA)
    for again in (pickle.loads(pickle.dumps(prompt)), copy.deepcopy(prompt)):  # noqa: S301 - made right here
        assert again.text == prompt.text
        assert again.tokens == prompt.tokens
        assert again.heads == prompt.heads
        assert again.block("USER_PROFILE").facts == prompt.block("USER_PROFILE").facts
    assert all(not hasattr(key, "resolver") for key in prompt.resolution.derived)


@pytest.mark.parametrize("warm", [True, False])
def test_a_store_that_fails_is_a_named_error_for_a_block_that_must_not_be_missing(url, warm):
    blocks = [attrs.evolve(spec, on_failure="fail_closed") for spec in BLOCKS]
    with blocking.open(url, blocks=blocks) as keel:
        keel.remember(ADA, "prefers tea", block="USER_PROFILE")
        if warm:
            keel.prompt(ADA)
        keel.core.store.engine.probe = failing
        with pytest.raises(pk.BlockResolutionError, match="USER_PROFILE at scope org:acme/user:ada: the disk is away"):
            keel.prompt(ADA)
        del keel.core.store.engine.probe
        assert "prefers tea" in keel.prompt(ADA).text


def failing(*_):
    raise pk.StoreUnavailableError("the disk is away")


def test_a_prompt_and_a_keel_name_themselves(keel):
    assert repr(keel.prompt(ADA)) == "<Prompt for org:acme/user:ada: BOUNDARIES, USER_PROFILE, PREFERENCES>"
    assert keel.url in repr(keel)


def test_a_correction_that_no_declared_field_would_show_is_refused_and_names_the_field(keel):
    node = keel.remember(ADA, "likes walking", block="USER_PROFILE")
    with pytest.raises(pk.InvalidInputError, match=r"properties\.city.*profile_fields"):
        keel.correct(ADA, node.id, properties={"city": "Lisbon"})
    assert keel.get(ADA, node.id) == node


def test_another_time_of_the_same_day_moves_the_facts_and_no_byte(keel):
    node = keel.remember(ADA, "likes walking", block="USER_PROFILE", recorded_at="2026-05-09T10:00Z")
    first = keel.prompt(ADA)
    keel.correct(ADA, node.id, text="likes walking", recorded_at="2026-05-09T11:00Z")
    again = keel.prompt(ADA)
    assert again.text is first.text
    assert again.block("USER_PROFILE").revision_id != first.block("USER_PROFILE").revision_id
    (fact,) = [fact for fact in keel.facts(ADA) if fact.node_id == node.id]
    assert fact.recorded == keel.get(ADA, node.id).recorded


def test_an_equal_statement_of_another_node_is_named_by_that_node(keel):
    node = keel.remember(ADA, "likes walking", block="USER_PROFILE", recorded_at="2026-05-02")
    keel.prompt(ADA)
    keel.retract(ADA, node.id)
    other = keel.remember(ADA, "likes walking", block="USER_PROFILE", recorded_at="2026-05-02")
    assert other.id != node.id
    assert other.id in {fact.node_id for fact in keel.prompt(ADA).block("USER_PROFILE").facts}


def test_what_a_limit_left_out_names_the_present_node(url):
    spec = pk.PromptBlockSpec(name="USER_PROFILE", source=pk.MemoryLane("SOUL:"), policy=pk.RenderPolicy(max_facts=1))
    with blocking.open(url, blocks=[spec]) as keel:
        old = keel.remember(ADA, "old", block="USER_PROFILE", recorded_at="2026-05-01")
        keel.remember(ADA, "new", block="USER_PROFILE", recorded_at="2026-05-02")
        assert [o.fact.node_id for o in keel.prompt(ADA).block("USER_PROFILE").omitted] == [old.id]
        keel.retract(ADA, old.id)
        again = keel.remember(ADA, "old", block="USER_PROFILE", recorded_at="2026-05-01")
        assert [o.fact.node_id for o in keel.prompt(ADA).block("USER_PROFILE").omitted] == [again.id]


def test_an_erased_fact_is_in_no_prompt_and_the_receipt_holds_no_text(keel):
    node = keel.remember(ADA, "a marked secret", block="USER_PROFILE")
    assert "a marked secret" in keel.prompt(ADA).text
    receipt = keel.erase(ADA, node.id)
    assert "a marked secret" not in repr(receipt)
    assert "a marked secret" not in keel.prompt(ADA).text
    with pytest.raises(pk.NodeErasedError):
        keel.get(ADA, node.id)


def test_why_names_the_blocks_the_versions_and_the_lineage(keel):
    parent = keel.remember(ADA, "said it at the desk", block="PREFERENCES")
    node = keel.remember(ADA, "drinks green tea", block="USER_PROFILE", source="survey")
    keel.link(ADA, node.id, "derived_from", parent.id)
    keel.correct(ADA, node.id, text="drinks white tea", source="user-correction")
    why = keel.why(ADA, node.id)
    assert why.blocks == ("USER_PROFILE",)
    assert [version.label for version in why.history.versions] == ["SOUL:drinks green tea", "SOUL:drinks white tea"]
    assert [neighbour.node.id for neighbour in why.lineage] == [parent.id]


def test_facts_of_one_block_or_all_and_an_unknown_block_is_named(keel):
    assert [fact.value for fact in keel.facts(ADA, "PREFERENCES")] == ["short answers"]
    assert [fact.value for fact in keel.facts(ADA)] == ["prefers tea", "short answers"]
    with pytest.raises(pk.InvalidInputError, match="USER_PROFILE, PREFERENCES"):
        keel.facts(ADA, "BOUNDARIES")


def test_a_closed_keel_says_so(url):
    keel = blocking.open(url, blocks=BLOCKS)
    with pytest.raises(pk.StoreClosedError):
        keel.prompt(ADA)
    with keel:
        keel.prompt(ADA)
    with pytest.raises(pk.StoreClosedError):
        keel.prompt(ADA)


def test_a_keel_that_is_open_is_not_opened_again(keel):
    with pytest.raises(pk.StoreError, match="open already"):
        keel.__enter__()
    assert "prefers tea" in keel.prompt(ADA).text


def test_what_a_prompt_hands_out_cannot_be_changed(keel):
    prompt = keel.prompt(ADA)
    with pytest.raises(TypeError):
        prompt.block_tokens["USER_PROFILE"] = 0
    with pytest.raises(AttributeError):
        prompt.block("USER_PROFILE").rendered = None


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_fifty_cold_calls_at_once_read_once_and_render_each_block_once(url, backend):
    async def main():
        prompts = []
        async with pk.open(url, blocks=BLOCKS) as keel:
            for number in range(1000):
                await keel.remember(ADA, f"fact {number}", block="USER_PROFILE")

            async def one():
                prompts.append(await keel.prompt(ADA))

            before = keel.counters.renders
            async with anyio.create_task_group() as group:
                for _ in range(50):
                    group.start_soon(one)
            assert len({prompt.text for prompt in prompts}) == 1
            assert keel.counters.scans == 1
            assert keel.counters.renders - before <= 3

    anyio.run(main, backend=backend)


def test_a_call_that_begins_after_a_commit_never_joins_a_read_that_began_before_it(url):
    """A slow read is held between its probe and its data while another commit lands."""

    async def main():
        async with pk.open(url, blocks=BLOCKS) as keel:
            await keel.remember(ADA, "first", block="USER_PROFILE")
            engine = keel.core.store.engine
            held, release = threading.Event(), threading.Event()
            reading = engine.catch_up

            def slow(scope, requests):
                answer = reading(scope, requests)
                if not held.is_set():
                    held.set()
                    assert release.wait(20)
                return answer

            engine.catch_up = slow  # the real read, held after it has seen the old state
            answers = {}

            async def early():
                answers["early"] = await keel.prompt(ADA)

            async with anyio.create_task_group() as group:
                group.start_soon(early)
                await anyio.to_thread.run_sync(held.wait)
                await keel.remember(ADA, "second", block="USER_PROFILE")
                answers["late"] = await keel.prompt(ADA)
                release.set()
            assert "second" in answers["late"].text
            assert "second" not in answers["early"].text
            assert "second" in (await keel.prompt(ADA)).text, "the slow old read replaced a newer result"

    anyio.run(main)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_during_a_flight_answers(tmp_path):
    started, release = threading.Event(), threading.Event()
    parent = os.getpid()

    def hold(event):
        if event.action == "scanned" and os.getpid() == parent:
            started.set()
            assert release.wait(20)

    with blocking.open(f"sqlite:///{tmp_path / 'memory.db'}", blocks=BLOCKS, observe=hold) as keel:
        keel.remember(ADA, "kept", block="USER_PROFILE")
        leader = threading.Thread(target=keel.prompt, args=(ADA,))
        leader.start()
        assert started.wait(20)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(0 if "kept" in keel.prompt(ADA).text else 3)
        release.set()
        leader.join(20)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_cancelled_call_harms_no_other(url):
    async def main():
        async with pk.open(url, blocks=BLOCKS) as keel:
            await keel.remember(ADA, "kept", block="USER_PROFILE")
            with anyio.move_on_after(0):
                await keel.prompt(ADA)
            assert "kept" in (await keel.prompt(ADA)).text

    anyio.run(main)


class _Scanner:
    """A scanner of somebody else: query_nodes and nothing more."""

    def __init__(self, store):
        self._store = store
        self.failure = None

    async def query_nodes(self, scope, *, label_prefix=None, limit=None):
        if self.failure:
            raise self.failure
        return await self._store.query_nodes(scope, label_prefix=label_prefix, limit=limit)


def test_a_foreign_scanner_feeds_the_same_prompt_at_the_price_of_a_scan(url):
    async def main():
        async with pk.open(url, blocks=BLOCKS) as keel:
            await keel.remember(ADA, "prefers tea", block="USER_PROFILE", source="onboarding")
            expected = await keel.prompt(ADA)
            secret = keel.core.store.engine.secret()
            scanner = _Scanner(keel.store)
            resolver = pk.PromptBlockResolver(BLOCKS, memory=scanner, secret=secret)
            builder = pk.PromptBuilder(resolver)
            prompt = await builder.build(ADA)
            assert prompt.text == expected.text
            assert prompt.heads is None
            assert [block.revision_id for block in prompt.blocks] == [block.revision_id for block in expected.blocks]
            renders = resolver.core.counters.renders
            await builder.build(ADA)
            assert resolver.core.counters.renders == renders
            scanner.failure = ConnectionError("the database is away")
            assert [block.state for block in (await builder.build(ADA)).blocks] == ["fresh", "omitted", "omitted"]
            scanner.failure = TypeError("a defect, not an outage")
            with pytest.raises(TypeError):
                await builder.build(ADA)

    anyio.run(main)


def test_memory_blocks_without_memory_or_without_a_key_for_fences_are_refused():
    with pytest.raises(pk.InvalidDeclarationError, match="memory="):
        pk.PromptBlockResolver(BLOCKS)
    with pytest.raises(pk.InvalidDeclarationError, match="secret="):
        pk.PromptBlockResolver(BLOCKS, memory=_Scanner(None))


def test_a_file_that_changes_or_fails_is_seen_on_the_next_call(url, tmp_path):
    rules = tmp_path / "rules.md"
    rules.write_text("Be brief.")
    blocks = [*BLOCKS, pk.PromptBlockSpec(name="RULES", source=pk.FileSource(rules))]
    with blocking.open(url, blocks=blocks) as keel:
        first = keel.prompt(ADA)
        assert keel.prompt(ADA).text is first.text
        rules.write_text("Be quick.")
        assert "Be quick." in keel.prompt(ADA).text
        rules.unlink()
        with pytest.raises(pk.BlockResolutionError, match="block RULES at scope org:acme/user:ada: cannot read"):
            keel.prompt(ADA)
        rules.write_text("Be brief.")
        assert keel.prompt(ADA).text == first.text


def test_a_computed_block_is_asked_each_time_and_rendered_only_when_its_text_moves(url):
    answers = ["one", "one", "two"]
    source = pk.ComputedSource(lambda scope: (f"{answers[0]} for {scope}", "r1"))
    with blocking.open(url, blocks=[*BLOCKS, pk.PromptBlockSpec(name="CLOCK", source=source)]) as keel:
        first = keel.prompt(ADA)
        renders = keel.counters.renders
        answers.pop(0)
        assert keel.prompt(ADA).text is first.text
        assert keel.counters.renders == renders
        answers.pop(0)
        assert "two for org:acme/user:ada" in keel.prompt(ADA).text, "equal revisions with other text are other text"


def test_the_cold_path_runs_in_a_worker_and_the_warm_and_the_touched_path_in_none(url, monkeypatch):
    threads = []
    real = anyio.to_thread.run_sync

    async def counting(function, *arguments, **options):
        threads.append(function)
        return await real(function, *arguments, **options)

    async def main():
        async with pk.open(url, blocks=BLOCKS) as keel:
            await keel.remember(ADA, "prefers tea", block="USER_PROFILE")
            await keel.prompt(ADA)
            monkeypatch.setattr(anyio.to_thread, "run_sync", counting)
            await keel.prompt(ADA)
            assert threads == []
            await keel.remember(BOB, "x", block="USER_PROFILE")
            await keel.remember(ADA, "lives by the sea", block="USER_PROFILE")
            del threads[:]
            assert "sea" in (await keel.prompt(ADA)).text
            assert threads == []
            for number in range(3):
                await drive(keel.core.store.put(pk.MemoryNode(id=f"n{number}", scope=BOB, label="SOUL:y")))
            await keel.prompt(BOB)
            assert len(threads) == 4, "three writes and one cold read"

    anyio.run(main)
