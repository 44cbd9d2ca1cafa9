"""Simulated prefix caches agree with a model that goes through all earlier requests each time, and do what is said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkeel.errors import InvalidDeclarationError, InvalidInputError
from promptkeel.providers.caches import BlockCache, MarkedCache, NoCache, SteppedCache, cache_for, cost
from promptkeel.providers.rules import ModelRules, rules_for
from promptkeel.providers.segments import Mark, Segment, Usage, WireRequest

MARKS = attrs.evolve(
    rules_for("anthropic", "claude-opus-4-8"),
    minimum=300,
    lookback=3,
    ttls=(300, 3600),
    write_factors=(1.25, 2.0),
    read_factor=0.1,
    input_price=5.0,
    output_price=25.0,
)
STEPS = attrs.evolve(MARKS, scheme="automatic", marks=0, lookback=None, step=128, write_factors=(1.0, 1.0))


def text(content: str, *, message: int = -1, mark: Mark | None = None, kind: str = "text") -> Segment:
    section = "system" if message < 0 else "messages"
    return Segment(section, kind, "user", content, message, mark)  # type: ignore[arg-type] # drawn from the kinds


def request(*segments: Segment, **given_: Any) -> WireRequest:
    return attrs.evolve(WireRequest("anthropic", "test", segments), **given_)


def tokens_of(sent: WireRequest) -> list[int]:
    return [100 * len(segment.content) for segment in sent.segments]


# A few requests that often begin alike.

_contents = st.text("ab", min_size=1, max_size=5)
_marks = st.one_of(st.none(), st.none(), st.sampled_from([Mark(), Mark(300), Mark(3600)]))


@st.composite
def _requests(draw: st.DrawFn) -> WireRequest:
    system = [text(draw(_contents), mark=draw(_marks)) for _ in range(draw(st.integers(0, 2)))]
    kinds = st.sampled_from(["text", "text", "text", "reasoning"])
    count = draw(st.integers(1, 5))
    messages = [text(draw(_contents), message=at, mark=draw(_marks), kind=draw(kinds)) for at in range(count)]
    settings = draw(st.sampled_from([(), (("cache_salt", '"x"'),), (("tool_choice", '"any"'),)]))
    return request(*system, *messages, settings=settings, automatic=draw(st.sampled_from([None, None, Mark()])))


_gaps = st.sampled_from([0.0, 0.0, 1.0, 100.0, 299.0, 300.0, 3599.0, 3600.0])


@st.composite
def _traffic(draw: st.DrawFn) -> list[tuple[WireRequest, float]]:
    at = 0.0
    found: list[tuple[WireRequest, float]] = []
    for _ in range(draw(st.integers(1, 12))):
        again = draw(st.integers(0, 3))
        before = found[draw(st.integers(0, len(found) - 1))][0] if found and again else None
        sent = draw(_requests()) if before is None else draw(_later(before))
        found.append((sent, at := at + draw(_gaps)))
    return found


@st.composite
def _later(draw: st.DrawFn, before: WireRequest) -> WireRequest:
    """A request again, perhaps longer, perhaps marked otherwise."""
    segments = [attrs.evolve(each, mark=draw(_marks)) for each in before.segments]
    start = max(each.message for each in segments) + 1
    more = [text(draw(_contents), message=start + at, mark=draw(_marks)) for at in range(draw(st.integers(0, 3)))]
    return attrs.evolve(before, segments=(*segments, *more))


# The models


def _path(sent: WireRequest, late: Sequence[str] = ("tool_choice",)) -> list[Any]:
    """What a prefix cache compares, one thing for each segment."""
    early = tuple(each for each in sent.settings if each[0] not in late)
    rest = tuple(each for each in sent.settings if each[0] in late)
    return [
        (each.section, each.kind, each.role, each.content, each.message, early, rest if each.message >= 0 else ())
        for each in sent.segments
    ]


def marked_model(traffic: Sequence[tuple[WireRequest, float]], rules: ModelRules) -> list[Usage]:
    """By a log of everything that was ever written or read, gone through from the start for each mark."""
    log: list[tuple[list[object], float, float, int]] = []
    usages = []
    for sent, at in traffic:
        path, counts = _path(sent), tokens_of(sent)
        marks = [
            (place, 300 if each.mark.ttl is None else each.mark.ttl)
            for place, each in enumerate(sent.segments)
            if each.mark and each.kind != "reasoning"
        ]
        can_bear = [place for place, each in enumerate(sent.segments) if each.kind != "reasoning"]
        if sent.automatic and can_bear and can_bear[-1] not in dict(marks):
            marks = [*marks, (can_bear[-1], 300)]
        marks = [each for each in sorted(marks)[-4:] if sum(counts[: each[0] + 1]) >= rules.minimum]
        assert rules.lookback is not None
        found, touched = -1, []
        for place, _ in marks:
            for place_back in [place - back for back in range(rules.lookback) if place >= back]:
                alive = [
                    ttl
                    for prefix, start, ready, ttl in log
                    if prefix == path[: place_back + 1] and ready <= at < start + ttl
                ]
                if alive:
                    touched.append((path[: place_back + 1], at, at, max(alive)))
                    found = max(found, place_back)
                    break
        new = [(place, ttl) for place, ttl in marks if place > found]
        log += [*touched, *((path[: place + 1], at, at + 1, ttl) for place, ttl in new)]
        read = sum(counts[: found + 1])
        written = max([sum(counts[: place + 1]) - read for place, _ in new], default=0)
        written_long = max([sum(counts[: place + 1]) - read for place, ttl in new if ttl > 300], default=0)
        usages.append(Usage(sum(counts) - read - written, read, written, written_long))
    return usages


def shared_model(traffic: Sequence[tuple[list[object], WireRequest, float]], ttl: float) -> list[int]:
    """By asking of every earlier request whether it still holds a prefix."""

    def holds(number: int, path: list[object]) -> bool:
        at = traffic[number][2]
        return any(
            earlier[: len(path)] == path and at < start + ttl and (start + 1 <= at or holds(index, path))
            for index, (earlier, _, start) in enumerate(traffic[:number])
        )

    found = []
    for number, (path, sent, _) in enumerate(traffic):
        whole = 0
        while whole < len(path) and holds(number, path[: whole + 1]):
            whole += 1
        shared = sum(tokens_of(sent)[:whole])
        begun = 0
        if whole < len(path):
            content = sent.segments[whole].content
            for earlier, other, _ in traffic[:number]:
                if len(earlier) > whole and earlier[:whole] == path[:whole] and holds(number, earlier[: whole + 1]):
                    same = attrs.evolve(other.segments[whole], content="") == attrs.evolve(
                        sent.segments[whole], content="", mark=other.segments[whole].mark
                    )
                    if same and other.settings == sent.settings:
                        pairs = zip(other.segments[whole].content, content, strict=False)
                        alike = [one == two for one, two in pairs]
                        begun = max(begun, [*alike, False].index(False))
        found.append(shared + 100 * begun)
    return found


@given(_traffic())
def test_marks_read_and_write_what_a_model_over_the_whole_log_says(traffic: list[tuple[WireRequest, float]]) -> None:
    cache = MarkedCache(MARKS)
    usages = [cache.send(sent, tokens_of(sent), at) for sent, at in traffic]
    assert usages == marked_model(traffic, MARKS)


@given(_traffic())
def test_steps_read_what_some_earlier_request_still_holds(traffic: list[tuple[WireRequest, float]]) -> None:
    cache = SteppedCache(STEPS)
    kept = [(_path(sent, ()), sent, at) for sent, at in traffic if sum(tokens_of(sent)) >= 300]
    expected = []
    for shared, (_, sent, _) in zip(shared_model(kept, 300), kept, strict=True):
        total = sum(tokens_of(sent))
        read = min(shared, total - 1) // 128 * 128
        read = read if read >= 300 else 0
        written = total // 128 * 128 - read
        expected.append(Usage(total - read - written, read, written))
    small = [Usage(sum(tokens_of(sent))) for sent, _ in traffic if sum(tokens_of(sent)) < 300]
    usages = [cache.send(sent, tokens_of(sent), at) for sent, at in traffic]
    assert [usage for usage in usages if usage.prompt >= 300] == expected
    assert [usage for usage in usages if usage.prompt < 300] == small


@given(_traffic(), st.sampled_from([0, 500, 1500, 3000]))
def test_blocks_make_room_from_the_end_of_what_was_used_longest_ago(
    traffic: list[tuple[WireRequest, float]], capacity: int
) -> None:
    cache = BlockCache(capacity, latency=0.0)
    kept: list[tuple[list[Any], int]] = []
    for sent, at in traffic:
        salt = [each for each in sent.settings if each[0] == "cache_salt"]
        path: list[Any] = [(salt, attrs.evolve(each, mark=None)) for each in sent.segments]
        counts = tokens_of(sent)
        paths = [held for held, _ in kept]
        whole = 0
        while whole < len(path) and path[: whole + 1] in paths:
            whole += 1
        begun = 0
        for held in paths:
            if whole < len(path) and len(held) == whole + 1 and held[:whole] == path[:whole]:
                (its_salt, other), ours = held[whole], attrs.evolve(sent.segments[whole], mark=None)
                if its_salt == salt and attrs.evolve(other, content=ours.content) == ours:
                    alike = [one == two for one, two in zip(other.content, ours.content, strict=False)]
                    begun = max(begun, [*alike, False].index(False))
        expected = min(sum(counts[:whole]) + 100 * begun, sum(counts) - 1) // 16 * 16
        assert cache.send(sent, counts, at) == Usage(sum(counts) - expected, expected)
        ours_ = [path[: length + 1] for length in range(len(path))]
        kept = [each for each in kept if each[0] not in ours_]
        # The most recently used last, of one request the first segment last.
        kept += [(ours_[length], counts[length]) for length in reversed(range(len(path)))]
        while sum(count for _, count in kept) > capacity:
            oldest = next(
                each
                for each in kept
                if not any(other[: len(each[0])] == each[0] and other != each[0] for other, _ in kept)
            )
            kept.remove(oldest)


# What is documented, by examples


def _marked(*contents: str, mark: int | None = None) -> WireRequest:
    place = len(contents) - 1 if mark is None else mark
    return request(*(text(each, message=at, mark=Mark() if at == place else None) for at, each in enumerate(contents)))


def test_a_prefix_is_written_at_a_mark_and_read_by_the_next_request_that_reaches_it() -> None:
    cache = MarkedCache(MARKS)
    assert cache.send(_marked("aaaa"), [400], 0.0) == Usage(written=400)
    assert cache.send(_marked("aaaa", "b"), [400, 100], 1.0) == Usage(read=400, written=100)


def test_without_a_mark_nothing_is_kept() -> None:
    cache = MarkedCache(MARKS)
    for at in (0.0, 10.0):
        assert cache.send(request(text("aaaa", message=0)), [400], at) == Usage(400)


def test_requests_that_start_together_all_write() -> None:
    cache = MarkedCache(MARKS)
    assert [cache.send(_marked("aaaa"), [400], 0.0) for _ in range(3)] == [Usage(written=400)] * 3
    assert cache.send(_marked("aaaa"), [400], 1.0) == Usage(read=400)


def test_a_mark_sees_only_so_many_positions_back() -> None:
    near, far = MarkedCache(MARKS), MarkedCache(MARKS)
    for cache in (near, far):
        cache.send(_marked("aaaa"), [400], 0.0)
    assert near.send(_marked("aaaa", "b", "c"), [400, 1, 1], 1.0).read == 400
    assert far.send(_marked("aaaa", "b", "c", "d"), [400, 1, 1, 1], 1.0).read == 0


@pytest.mark.parametrize(("pauses", "read"), [((299.0,), 400), ((300.0,), 0), ((200.0, 200.0), 400)])
def test_the_time_is_counted_from_the_start_of_the_last_use(pauses: tuple[float, ...], read: int) -> None:
    cache = MarkedCache(MARKS)
    usage = cache.send(_marked("aaaa"), [400], at := 0.0)
    for pause in pauses:
        usage = cache.send(_marked("aaaa"), [400], at := at + pause)
    assert usage.read == read


def test_what_is_kept_for_longer_is_counted_apart_and_costs_what_its_time_costs() -> None:
    sent = request(text("aaaa", mark=Mark(3600)), text("bb", message=0, mark=Mark()), text("c", message=1))
    usage = MarkedCache(MARKS).send(sent, [400, 200, 100], 0.0)
    assert usage == Usage(100, 0, 600, 400)
    assert cost(attrs.evolve(usage, output=10), MARKS) == pytest.approx(
        (100 * 5 + 200 * 6.25 + 400 * 10 + 10 * 25) / 1e6
    )


@pytest.mark.parametrize(
    ("setting", "read"), [(("tool_choice", '"any"'), 400), (("tools_version", "1"), 0), (("prompt_cache_key", "k"), 0)]
)
def test_a_setting_voids_the_messages_or_all_of_it(setting: tuple[str, str], read: int) -> None:
    cache = MarkedCache(MARKS)
    sent = request(text("aaaa", mark=Mark()), text("b", message=0, mark=Mark()))
    cache.send(sent, [400, 100], 0.0)
    assert cache.send(attrs.evolve(sent, settings=(setting,)), [400, 100], 1.0).read == read


def test_another_model_reads_nothing() -> None:
    for cache in (MarkedCache(MARKS), SteppedCache(STEPS), BlockCache()):
        cache.send(_marked("aaaa"), [400], 0.0)
        assert cache.send(attrs.evolve(_marked("aaaa"), model="other"), [400], 1.0).read == 0


def test_steps_round_down_and_share_the_beginning_of_a_segment() -> None:
    cache = SteppedCache(STEPS)
    cache.send(request(text("a" * 10)), [1000], 0.0)
    assert cache.send(request(text("a" * 9 + "b")), [1000], 1.0) == Usage(1000 - 896, 896)


def test_steps_do_without_what_is_shorter_than_the_least() -> None:
    cache = SteppedCache(STEPS)
    for at in (0.0, 1.0):
        assert cache.send(request(text("aa")), [200], at) == Usage(200)


def test_longer_retention_keeps_for_longer() -> None:
    rules = attrs.evolve(STEPS, ttls=(300, 86400))
    cache = SteppedCache(rules)
    sent = request(text("aaaa"), settings=(("prompt_cache_retention", '"24h"'),))
    cache.send(sent, [400], 0.0)
    assert cache.send(sent, [400], 80000.0).read == 384


def test_a_salt_keeps_users_of_blocks_apart_and_other_settings_do_not() -> None:
    cache = BlockCache()
    cache.send(request(text("aaaa")), [400], 0.0)
    assert cache.send(request(text("aaaa"), settings=(("temperature", "1"),)), [400], 1.0).read == 384
    assert cache.send(request(text("aaaa"), settings=(("cache_salt", '"x"'),)), [400], 2.0).read == 0


@pytest.mark.parametrize("cache", [MarkedCache(MARKS), SteppedCache(STEPS), BlockCache(), NoCache()])
def test_what_cannot_be_is_refused_and_changes_nothing(cache: MarkedCache) -> None:
    sent = _marked("aaaa")
    cache.send(sent, [400], 10.0)
    for tokens, at in (([400, 1], 11.0), ([-1], 11.0), ([400], 9.0), ([400], float("nan"))):
        with pytest.raises(InvalidInputError):
            cache.send(sent, tokens, at)
    assert cache.send(sent, [400], 10.0).read == 0


def test_a_price_that_is_not_known_is_said() -> None:
    with pytest.raises(InvalidDeclarationError, match="input_price"):
        cost(Usage(1), attrs.evolve(MARKS, input_price=None))
    with pytest.raises(InvalidDeclarationError, match="output_price"):
        cost(Usage(1, output=1), attrs.evolve(MARKS, output_price=None))


def test_each_scheme_has_its_simulator() -> None:
    assert isinstance(cache_for(rules_for("anthropic", "claude-opus-4-8")), MarkedCache)
    assert isinstance(cache_for(rules_for("openai", "gpt-5.4")), SteppedCache)
    assert isinstance(cache_for(attrs.evolve(MARKS, scheme="none")), NoCache)


def test_where_a_provider_looks_at_all_positions_a_mark_finds_what_was_written_far_before() -> None:
    cache = MarkedCache(attrs.evolve(rules_for("openai", "gpt-5.6-sol"), minimum=300))
    cache.send(_marked("aaaa"), [400], 0.0)
    sent = request(*_marked("aaaa", *"b" * 60).segments)
    assert cache.send(sent, [400, *[1] * 60], 1.0).read == 400


def test_of_more_marks_than_are_taken_the_last_ones_count() -> None:
    cache = MarkedCache(MARKS)
    marked = [text("aaa", message=at, mark=Mark()) for at in range(5)]
    cache.send(request(*marked), [300] * 5, 0.0)
    first = request(marked[0], text("b", message=1))
    second = request(*marked[:2], text("b", message=2))
    assert cache.send(first, [300, 100], 1.0).read == 0
    assert cache.send(second, [300, 300, 100], 2.0).read == 600


@pytest.mark.parametrize(("last", "written"), [("text", 500), ("reasoning", 400)])
def test_a_mark_that_the_provider_sets_stands_on_the_last_position_that_can_bear_one(last: str, written: int) -> None:
    sent = request(text("aaaa", message=0), text("b", message=1, kind=last), automatic=Mark())
    assert MarkedCache(MARKS).send(sent, [400, 100], 0.0).written == written


def test_a_cache_point_on_its_own_is_no_part_of_what_is_compared() -> None:
    cache = MarkedCache(MARKS)
    point = attrs.evolve(text("", message=1, mark=Mark()), kind="other")
    cache.send(request(text("aaaa", message=0), point), [400, 0], 0.0)
    assert cache.send(_marked("aaaa"), [400], 1.0) == Usage(read=400)
