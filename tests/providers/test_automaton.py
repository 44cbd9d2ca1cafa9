"""What may change from one request to the next: every rule by its name, and the automaton against plain models."""

from __future__ import annotations

import itertools

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from legal_requests import (
    FORMATS,
    PROVIDER_OF,
    call,
    conversations,
    marked,
    places,
    request,
    result,
    said,
    system,
    text,
    tool,
)
from promptkeel.providers.automaton import UNSENT, advance, check, check_history, prefix_digests
from promptkeel.providers.rules import ModelRules, rules_for
from promptkeel.providers.segments import Mark, Segment, WireRequest
from promptkeel.providers.violations import RULES, Violation
from strategies import pickled

OPUS = rules_for("anthropic", "claude-opus-4-8")
BINDING = rules_for("anthropic", "claude-opus-5-5")
BEDROCK = rules_for("bedrock", "anthropic.claude-opus-4-6")
NEW_OPENAI = rules_for("openai", "gpt-5.6-sol")
OLD_OPENAI = rules_for("openai", "gpt-5.1")
GEMINI = rules_for("gemini", "gemini-2.5-pro")
KNOWN = {
    "anthropic": OPUS,
    "bedrock": BEDROCK,
    "openai-responses": NEW_OPENAI,
    "openai-chat": NEW_OPENAI,
    "gemini": GEMINI,
}
HELLO = said("user")


def broken(found: WireRequest, rules: ModelRules, state=UNSENT, at: float = 0.0) -> list[tuple[str, int | None]]:
    return [(each.rule, each.position) for each in check(state, found, rules, at)]


def effects(found: WireRequest, rules: ModelRules) -> set[str]:
    return {each.effect for each in check(UNSENT, found, rules, 0.0)}


# Legal conversations.


@pytest.mark.parametrize("format_", FORMATS)
@given(st.data())
def test_a_legal_conversation_breaks_no_rule_and_neither_do_its_marks_in_legal_places(format_, data):
    rules = KNOWN[format_]
    found = data.draw(conversations(format_, system_turns=rules.system_turns != "refused"))
    assert broken(found, rules) == []
    assert broken(found, attrs.evolve(rules, binds_reasoning=True)) == []
    if rules.scheme != "marks":
        return
    kinds = ("text", "tool_result") if format_.startswith("openai") else ("text", "tool", "tool_result")
    chosen = sorted(data.draw(st.sets(st.sampled_from(places(found, kinds)), max_size=rules.marks)))
    ttls = sorted(data.draw(st.lists(st.sampled_from(rules.ttls), min_size=4, max_size=4)), reverse=True)
    for index, ttl in zip(chosen, ttls, strict=False):
        found = marked(found, index, ttl)
    assert broken(found, rules) == []


# Marks.


@given(st.data())
def test_marks_are_refused_exactly_where_they_are_too_many_or_their_ttls_increase(data):
    found = data.draw(conversations("anthropic"))
    chosen = sorted(data.draw(st.sets(st.sampled_from(places(found)))))
    ttls = [data.draw(st.sampled_from([None, 300, 3600])) for _ in chosen]
    for index, ttl in zip(chosen, ttls, strict=True):
        found = marked(found, index, ttl)
    automatic = data.draw(st.sampled_from([None, Mark(), Mark(300), Mark(3600)]))
    found = attrs.evolve(found, automatic=automatic)

    # The model: every mark with its seconds, in the order of the prefix.
    seconds = [300 if ttl is None else ttl for ttl in ttls]
    due = set()
    if automatic is not None:
        own = 300 if automatic.ttl is None else automatic.ttl
        if chosen and chosen[-1] == len(found.segments) - 1:
            due |= {"automatic-mark-conflict"} if seconds[-1] != own else set()
        else:
            seconds.append(own)
    due |= {"too-many-marks"} if len(seconds) > 4 else set()
    due |= {"ttl-increases"} if any(a < b for a, b in itertools.pairwise(seconds)) else set()
    violations = check(UNSENT, found, OPUS, 0.0)
    assert {each.rule for each in violations} == due
    assert all(each.refuses for each in violations)


def test_marks_that_tools_and_messages_bring_along_count_and_the_automatic_one_too():
    segments = [tool(mark=Mark()), system("A", Mark()), system("B", Mark()), said("user", mark=Mark())]
    assert broken(request(*segments), OPUS) == []
    assert broken(request(*segments, said("user", "More.")), OPUS) == []
    found = request(*segments, said("user", "More.", mark=Mark()))
    assert broken(found, OPUS) == [("too-many-marks", 4)]
    found = request(*segments, said("user", "More."), automatic=Mark())
    assert broken(found, OPUS) == [("too-many-marks", 3)]
    assert "the automatic one among them" in check(UNSENT, found, OPUS, 0.0)[0].reason


def test_the_automatic_mark_on_a_marked_end_is_one_mark_and_needs_its_ttl():
    segments = [*(system(str(each), Mark()) for each in range(3)), said("user", mark=Mark(300))]
    assert broken(request(*segments, automatic=Mark()), OPUS) == []
    found = request(*segments, automatic=Mark(3600))
    assert broken(found, OPUS) == [("automatic-mark-conflict", 3)]


def test_openai_passes_over_marks_beyond_its_four():
    found = request(*(said("user", str(each), mark=Mark()) for each in range(5)), format_="openai-responses")
    assert broken(found, NEW_OPENAI) == [("too-many-marks", 4)]
    assert effects(found, NEW_OPENAI) == {"uncached"}
    three = request(
        *(said("user", str(each), each, mark=Mark()) for each in range(3)),
        said("user", "end", 3),
        format_="openai-responses",
        automatic=Mark(),
    )
    assert broken(three, NEW_OPENAI) == []


def test_models_without_marks_refuse_them():
    found = request(said("user", mark=Mark()), format_="openai-responses")
    assert broken(found, OLD_OPENAI) == [("too-many-marks", 0)]
    assert effects(found, OLD_OPENAI) == {"refused"}
    assert broken(request(HELLO, format_="openai-responses", automatic=Mark()), OLD_OPENAI) == []


def test_a_bare_mark_is_of_the_shortest_ttl_so_a_longer_one_must_not_follow():
    found = request(tool(mark=Mark()), system(mark=Mark(3600)), HELLO)
    assert broken(found, OPUS) == [("ttl-increases", 1)]
    assert broken(request(tool(mark=Mark(3600)), system(mark=Mark()), HELLO), OPUS) == []
    assert broken(request(HELLO, said("user", "b", mark=Mark()), said("user", "c"), automatic=Mark(3600)), OPUS) == [
        ("ttl-increases", None)
    ]


def test_openais_marks_may_have_any_order_of_ttls():
    rules = attrs.evolve(NEW_OPENAI, ttls=(1800, 43200), write_factors=(1.25, 2.5))
    found = request(said("user", "a", mark=Mark(1800)), said("user", "b", mark=Mark(43200)), format_="openai-responses")
    assert broken(found, rules) == []


def test_a_ttl_that_the_model_does_not_have_is_refused():
    found = request(system(mark=Mark(3600)), HELLO, format_="bedrock")
    assert broken(found, rules_for("bedrock", "anthropic.claude-next")) == [("unknown-ttl", 0)]
    assert broken(found, BEDROCK) == []


@pytest.mark.parametrize("content", [text(""), text(" \n\t"), '""', '{"text":""}'])
def test_a_mark_on_empty_text_is_refused(content):
    found = request(Segment("system", "text", "system", content, mark=Mark()), HELLO)
    assert broken(found, OPUS) == [("mark-on-empty", 0)]
    assert broken(request(Segment("system", "text", "system", content), HELLO), OPUS) == []


@pytest.mark.parametrize(("format_", "rules"), [("anthropic", OPUS), ("bedrock", BEDROCK)])
def test_a_mark_after_reasoning_is_refused(format_, rules):
    thought = said("assistant", "Hm.", 1, kind="reasoning", mark=Mark())
    found = request(HELLO, thought, said("user", "More.", 2), format_=format_)
    assert broken(found, rules) == [("mark-after-reasoning", 1)]
    assert effects(found, rules) == {"refused"}


def test_kinds_that_openai_takes_no_mark_on_are_passed_over():
    found = request(tool(mark=Mark()), HELLO, format_="openai-responses")
    assert broken(found, NEW_OPENAI) == [("unmarkable", 0)]
    assert effects(found, NEW_OPENAI) == {"uncached"}


def test_mode_explicit_without_a_mark_turns_caching_off():
    settings = [("prompt_cache_options", '{"mode":"explicit","ttl":"30m"}')]
    found = request(HELLO, format_="openai-responses", settings=settings)
    assert broken(found, NEW_OPENAI) == [("caching-off", None)]
    assert effects(found, NEW_OPENAI) == {"uncached"}
    assert broken(marked(found, 0), NEW_OPENAI) == []
    implicit = [("prompt_cache_options", '{"mode":"implicit"}'), ("other", '{"mode":"explicit"}')]
    assert broken(request(HELLO, format_="openai-responses", settings=implicit), NEW_OPENAI) == []


# Bedrock's cache points.


def point(message: int = 0, section: str = "messages") -> Segment:
    return Segment(section, "other", "user" if section == "messages" else "system", "", message, Mark())


def test_adjacent_cache_points_are_refused():
    found = request(said("user", mark=Mark()), point(), format_="bedrock")
    assert broken(found, BEDROCK) == [("adjacent-cache-points", 1)]
    found = request(system(mark=Mark()), said("user", mark=Mark()), format_="bedrock")
    assert broken(found, BEDROCK) == []


def test_a_cache_point_with_nothing_before_it_is_refused():
    assert broken(request(point(), said("user"), format_="bedrock"), BEDROCK) == [("mark-on-empty", 0)]
    found = request(
        said("user", mark=Mark()), said("assistant", "a", 1), point(2), said("user", "b", 2), format_="bedrock"
    )
    assert broken(found, BEDROCK) == [("mark-on-empty", 2)]


def test_a_cache_point_among_nothing_but_documents_is_refused():
    document = said("user", "…", kind="document", mark=Mark())
    found = request(attrs.evolve(document, mark=None), document, format_="bedrock")
    assert broken(found, BEDROCK) == [("cache-point-after-document", 1)]
    assert broken(request(said("user"), document, format_="bedrock"), BEDROCK) == []
    assert broken(request(attrs.evolve(document, mark=None), format_="bedrock"), BEDROCK) == []
    assert broken(request(document), OPUS) == []


# System messages among the messages.

ANSWER = said("assistant", "Yes.", 1)


@pytest.mark.parametrize(
    ("roles", "position"),
    [
        (["user", "system"], None),
        (["user", "system", "assistant", "user"], None),
        (["user", "assistant", "user", "system"], None),
        (["user", "user", "system", "assistant", "user", "system"], None),
        (["system", "user"], 0),
        (["user", "assistant", "system"], 2),
        (["user", "assistant", "system", "user"], 2),
        (["user", "system", "user"], 1),
        (["user", "system", "system"], 1),
        (["user", "developer", "user"], 1),
    ],
)
def test_a_system_message_stands_right_after_the_users_latest_and_before_the_answer(roles, position):
    found = request(*(said(role, f"{index}", index) for index, role in enumerate(roles)))
    where = [each for rule, each in broken(found, OPUS) if rule == "system-turn"]
    assert where[:1] == ([] if position is None else [position])
    assert {rule for rule, _ in broken(found, OPUS)} <= {"system-turn"}
    refused = rules_for("anthropic", "claude-opus-4-7")
    assert [each for _, each in broken(found, refused)] == [
        index for index, role in enumerate(roles) if role in ("system", "developer")
    ]
    assert broken(attrs.evolve(found, format="openai-responses"), NEW_OPENAI) == []


# Calls of tools and their results.


@pytest.mark.parametrize("format_", ["anthropic", "bedrock"])
def test_results_come_first_in_the_users_turn(format_):
    asked = (said("user"), call(format_, "c", 1))
    late = request(*asked, said("user", "Also:", 2), result(format_, "c", 2), format_=format_)
    assert broken(late, KNOWN[format_]) == [("tool-result-not-first", 3)]
    apart = request(*asked, said("user", "Also:", 2), result(format_, "c", 3), format_=format_)
    assert broken(apart, KNOWN[format_]) == [("tool-result-not-first", 3)]
    first = request(*asked, result(format_, "c", 2), said("user", "Also:", 2), format_=format_)
    assert broken(first, KNOWN[format_]) == []


@pytest.mark.parametrize("format_", FORMATS)
def test_a_result_needs_its_call_before_it(format_):
    found = request(said("user"), result(format_, "c", 1), format_=format_)
    assert ("tool-result-unmatched", 1) in broken(found, KNOWN[format_])
    answering = "model" if format_ == "gemini" else "assistant"
    other = request(
        said("user"), call(format_, "d", 1), result(format_, "c", 2), said(answering, "a", 3), format_=format_
    )
    assert ("tool-result-unmatched", 2) in broken(other, KNOWN[format_])


@pytest.mark.parametrize("format_", ["anthropic", "bedrock"])
def test_a_call_is_answered_in_the_very_next_turn(format_):
    unanswered = request(said("user"), call(format_, "c", 1), said("user", "Never mind.", 2), format_=format_)
    assert broken(unanswered, KNOWN[format_]) == [("tool-call-unanswered", 1)]
    late = request(
        said("user"), call(format_, "c", 1), said("user", "a", 2), said("assistant", "b", 3), result(format_, "c", 4),
        format_=format_,
    )  # fmt: skip
    assert broken(late, KNOWN[format_]) == [("tool-call-unanswered", 1), ("tool-result-unmatched", 4)]
    assert broken(request(said("user"), call(format_, "c", 1), format_=format_), KNOWN[format_]) == []


def test_what_the_provider_calls_it_answers_itself():
    searched = Segment("messages", "tool_use", "assistant", '{"id":"s","type":"server_tool_use"}', 1)
    page = Segment("messages", "tool_result", "assistant", '{"tool_use_id":"s","type":"web_search_tool_result"}', 1)
    assert broken(request(said("user"), searched, page, said("user", "Thanks.", 2)), OPUS) == []


def test_the_call_of_a_result_may_be_in_what_the_handle_holds():
    found = request(result("openai-responses", "c", 0), format_="openai-responses", handle="resp_1")
    assert broken(found, NEW_OPENAI) == []


@pytest.mark.parametrize("content", ["", "3", "[]", "nothing", '{"tool_use_id":3}', '{"toolResult":3}', '"x"'])
def test_content_of_any_shape_is_read(content):
    segments = [Segment("messages", kind, "user", content, 0, Mark()) for kind in ("text", "tool_use", "tool_result")]
    check(UNSENT, request(*segments), OPUS, 0.0)


# Handles and empty requests.


def test_a_handle_stands_for_system_and_tools_which_must_not_come_beside_it():
    found = request(HELLO, format_="gemini", handle="cachedContents/a")
    assert broken(found, GEMINI) == []
    for beside in (request(system(), HELLO), request(tool(), HELLO), request(HELLO, settings=[("toolConfig", "{}")])):
        with_handle = attrs.evolve(beside, format="gemini", handle="cachedContents/a")
        assert broken(with_handle, GEMINI) == [("handle-with-prefix", None)]
        assert broken(attrs.evolve(with_handle, handle=None), GEMINI) == []


def test_a_handle_that_is_no_longer_kept_is_refused():
    state = advance(UNSENT, request(system(), HELLO, format_="gemini"), 100.0, response="cachedContents/a")
    short = advance(state, request(HELLO, format_="gemini", automatic=Mark(60)), 100.0, response="cachedContents/b")
    for state_, handle, until in ((state, "cachedContents/a", 3700.0), (short, "cachedContents/b", 160.0)):
        found = request(HELLO, format_="gemini", handle=handle)
        assert broken(found, GEMINI, state_, until - 0.1) == []
        assert broken(found, GEMINI, state_, until) == [("expired-handle", None)]
    assert broken(request(HELLO, format_="gemini", handle="cachedContents/other"), GEMINI, state, 1e9) == []


@pytest.mark.parametrize("format_", FORMATS)
def test_a_request_without_messages_is_refused(format_):
    assert broken(request(tool(), format_=format_), KNOWN[format_]) == [("empty-contents", None)]
    assert broken(request(format_=format_), KNOWN[format_]) == [("empty-contents", None)]


def test_openai_takes_a_system_message_for_a_message_and_a_continued_response_without_any():
    assert broken(request(system(), format_="openai-chat"), NEW_OPENAI) == []
    assert broken(request(system()), OPUS) == [("empty-contents", None)]
    assert broken(request(format_="openai-responses", handle="resp_1"), NEW_OPENAI) == []


# Chains of stateful APIs.


def turn(words: str, handle: str | None = None, *, answers: bool = False) -> WireRequest:
    answer = [said("assistant", "Yes.", 1)] if answers else []
    return request(said("user", words), *answer, format_="openai-responses", handle=handle)


def test_a_chain_takes_what_is_new_and_nothing_that_it_holds():
    state = advance(UNSENT, turn("a"), 0.0, response="resp_1")
    state = advance(state, turn("b", "resp_1"), 1.0, response="resp_2")
    assert broken(turn("c", "resp_2"), NEW_OPENAI, state) == []
    assert broken(turn("a", "resp_2"), NEW_OPENAI, state) == [], "the user may say the same again"
    history = [said("user", "a", 0), said("assistant", "x", 1), said("user", "b", 2)]
    whole = request(*history, said("user", "c", 3), format_="openai-responses", handle="resp_2")
    assert broken(whole, NEW_OPENAI, state) == [("repeated-history", 0)]
    changed = request(said("user", "A"), *history[1:], format_="openai-responses", handle="resp_2")
    assert broken(changed, NEW_OPENAI, state) == [("changed-history", 0)]
    assert {each.effect for each in check(state, changed, NEW_OPENAI, 2.0)} == {"misread"}
    assert not any(each.refuses for each in check(state, changed, NEW_OPENAI, 2.0))
    assert broken(attrs.evolve(changed, handle=None), NEW_OPENAI, state) == []
    assert broken(attrs.evolve(changed, handle="resp_9"), NEW_OPENAI, state) == []


WORDS = st.sampled_from("abc")
PROGRAMS = st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.lists(WORDS, min_size=1, max_size=2)), max_size=8)


@given(PROGRAMS, st.lists(WORDS, max_size=6))
def test_a_history_goes_on_in_a_chain_exactly_when_it_begins_with_all_that_the_chain_holds(program, history):
    state, held, number = UNSENT, {}, itertools.count()
    for named, which, words in program:
        names = list(held)
        handle = names[which % len(names)] if names and which < 8 else None
        response = f"resp_{next(number)}" if named else None
        if response is None and handle is None:
            handle = f"conv_{next(number)}"
        news = request(*(said("user", each, place) for place, each in enumerate(words)), format_="openai-responses",
                       handle=handle)  # fmt: skip
        state = advance(state, news, 0.0, response=response)
        held[response or handle] = held.get(handle, []) + words
    segments = []
    for place, each in enumerate(history):
        segments += [said("user", each, 2 * place), said("assistant", "Yes.", 2 * place + 1)]
    for handle, words in held.items():
        found = check_history(state, handle, segments)
        assert (found == ()) == (history[: len(words)] == words)
        assert {each.rule for each in found} <= {"changed-history"}


# Reasoning that is bound to what came before it.


def test_reasoning_is_bound_to_system_tools_and_messages_before_it():
    first = request(tool(), system(), said("user", "a"))
    state = advance(UNSENT, first, 0.0)
    thought = said("assistant", "Hm.", 1, kind="reasoning")
    rest = (thought, said("assistant", "Yes.", 1), said("user", "b", 2))
    kept = request(*first.segments, *rest)
    assert broken(kept, BINDING, state) == []
    for changed in (
        request(tool("other"), *first.segments[1:], *rest),
        request(first.segments[0], system("Be long."), first.segments[2], *rest),
        request(*first.segments[:2], said("user", "A"), *rest),
        request(*first.segments[1:], *rest),
        request(*first.segments, said("user", "delta"), *rest),
    ):
        places_ = [index for index, each in enumerate(changed.segments) if each.kind == "reasoning"]
        assert broken(changed, BINDING, state) == [("bound-reasoning", places_[0])]
        assert broken(changed, BINDING, advance(state, kept, 1.0)) == [("bound-reasoning", places_[0])]
        assert broken(changed, OPUS, state) == [], "this model does not check"
        without = request(*(each for each in changed.segments if each.kind != "reasoning"))
        assert broken(without, BINDING, state) == []
        settings = [("thinking", '{"block_binding":{"prefix_mismatch_behavior":"drop_block"},"type":"adaptive"}')]
        dropped = attrs.evolve(changed, settings=tuple(settings))
        assert broken(dropped, BINDING, state) == []
        assert broken(dropped, attrs.evolve(BINDING, drops_reasoning=False), state) == [("bound-reasoning", places_[0])]
    remarked = request(*(attrs.evolve(each, mark=Mark()) for each in first.segments), *rest)
    assert broken(remarked, BINDING, state) == [], "marks are no part of what is compared"
    renumbered = request(*first.segments, *(attrs.evolve(each, message=each.message + 3) for each in rest))
    assert broken(renumbered, BINDING, state) == []


def test_reasoning_left_out_between_others_unbinds_what_comes_after():
    first = request(said("user", "a"))
    thoughts = [said("assistant", f"Hm {each}.", 2 * each + 1, kind="reasoning") for each in range(2)]
    second = request(*first.segments, thoughts[0], said("assistant", "Yes.", 1), said("user", "b", 2))
    state = advance(advance(UNSENT, first, 0.0), second, 1.0)
    third = request(*second.segments, thoughts[1], said("user", "c", 4))
    assert broken(third, BINDING, state) == []
    without = request(*(each for each in third.segments if each != thoughts[0]))
    assert broken(without, BINDING, state) == [("bound-reasoning", 3)]
    last_left_out = request(*second.segments, said("user", "c", 4))
    assert broken(last_left_out, BINDING, state) == []


def test_what_was_sent_in_another_life_is_taken_as_it_is():
    found = request(said("user", "a"), said("assistant", "Hm.", 1, kind="reasoning"), said("user", "b", 2))
    assert broken(found, BINDING) == []
    state = advance(UNSENT, found, 0.0)
    assert broken(request(system(), *found.segments), BINDING, state) == [("bound-reasoning", 2)]


class Conversations(RuleBasedStateMachine):
    """A tree of conversations on a model that binds reasoning, against lists of what stood before each thought."""

    @initialize(tells=st.booleans())
    def begin(self, tells):
        self.tells = tells  # whether the automaton is told the answers, or finds them in later requests
        self.state = UNSENT
        self.at = 0.0
        self.base = ["base 0"]
        self.branches = [[("user", "text", "words 0")]]
        self.before = {}  # each thought: the contents before it in the request that it answered, and the answer so far
        self.taken = []
        self.numbers = itertools.count(1)

    def wire(self, messages):
        segments = [system(each) for each in self.base]
        segments += [said(role, words, place, kind=kind) for place, (role, kind, words) in enumerate(messages)]
        return request(*segments)

    def is_right(self, messages):
        content = [*self.base, *(words for _, _, words in messages)]
        thoughts = [(place, words) for place, (_, kind, words) in enumerate(messages) if kind == "reasoning"]
        return all(self.before[words] == content[: len(self.base) + place] for place, words in thoughts)

    def was_asked_again(self, messages):
        """Whether a request was taken that could have had one of the thoughts for its answer, and had not."""
        content = [*self.base, *(words for _, _, words in messages)]
        return any(content[: len(taken)] == taken for taken in self.taken)

    @rule(which=st.integers(0, 99), thinks=st.integers(0, 2), answers=st.booleans())
    def turn(self, which, thinks, answers):
        """Send a branch; where it is taken, the model answers, and the user goes on from it."""
        messages = self.branches[which % len(self.branches)]
        found = self.wire(messages)
        self.at += 10
        violations = check(self.state, found, BINDING, self.at)
        assert {each.rule for each in violations} <= {"bound-reasoning"}
        if violations:
            assert not self.is_right(messages)
            return
        assert self.is_right(messages) or (not self.tells and self.was_asked_again(messages))
        grown = list(messages)
        for _ in range(thinks):
            thought = f"thought {next(self.numbers)}"
            self.before[thought] = [*self.base, *(words for _, _, words in grown)]
            grown.append(("assistant", "reasoning", thought))
        if answers or not thinks:
            grown.append(("assistant", "text", f"answer {next(self.numbers)}"))
        answer = [said(role, words, kind=kind) for role, kind, words in grown[len(messages) :]] if self.tells else []
        self.state = advance(self.state, found, self.at, answer=answer)
        self.taken.append([*self.base, *(words for _, _, words in messages)])
        self.branches.append([*grown, ("user", "text", f"words {next(self.numbers)}")])

    @rule(which=st.integers(0, 99), where=st.integers(0, 99))
    def edit(self, which, where):
        """Another branch with other words of the user's at one place, and nothing after it."""
        messages = self.branches[which % len(self.branches)]
        places_ = [index for index, (role, _, _) in enumerate(messages) if role == "user"]
        cut = places_[where % len(places_)]
        self.branches.append([*messages[:cut], ("user", "text", f"edit {next(self.numbers)}")])

    @rule(which=st.integers(0, 99), where=st.integers(0, 99))
    def trim(self, which, where):
        """Another branch without one message of any kind."""
        messages = self.branches[which % len(self.branches)]
        cut = where % len(messages)
        if len(messages) > 1 and messages[-1 if cut != len(messages) - 1 else -2][0] == "user":
            self.branches.append([*messages[:cut], *messages[cut + 1 :]])

    @rule(which=st.integers(0, 99))
    def strip(self, which):
        """Another branch without any reasoning."""
        messages = self.branches[which % len(self.branches)]
        self.branches.append([each for each in messages if each[1] != "reasoning"])

    @precondition(lambda self: len(self.before) > 0)
    @rule(again=st.booleans())
    def rewrite(self, again):
        """Another base, or an earlier one once more."""
        self.base = ["base 0"] if again else [f"base {next(self.numbers)}"]


TestConversations = Conversations.TestCase


# The values.

SEGMENTS = st.builds(
    Segment,
    st.sampled_from(["tools", "system", "messages"]),
    st.sampled_from(["text", "reasoning"]),
    st.sampled_from(["user", "use", ""]),
    st.text("ab\ud800", max_size=3),
    st.integers(-1, 2),
    st.none() | st.just(Mark()),
)


@given(st.lists(SEGMENTS, max_size=5), st.lists(SEGMENTS, max_size=5))
def test_prefixes_are_equal_exactly_when_their_contents_are(one, other):
    def compared(segments):
        return [(each.section, each.kind, each.role, each.content) for each in segments if each.content]

    first, second = prefix_digests(one), prefix_digests(other)
    assert len(first) == len(one) + 1
    for index, digest in enumerate(first):
        for place, against in enumerate(second):
            assert (digest == against) == (compared(one[:index]) == compared(other[:place]))


@given(st.data())
def test_a_state_never_changes_and_is_a_value(data):
    found = data.draw(conversations("anthropic"))
    state = advance(UNSENT, marked(found, len(found.segments) - 1), 1.0, response="msg_1")
    copied = pickled(state)
    longer = request(*found.segments, said("assistant", "x", 90, kind="reasoning"), said("user", "y", 91))
    after = advance(state, longer, 2.0)
    assert (state, UNSENT) == (copied, pickled(UNSENT))
    assert after != state
    assert pickled(after) == after


def test_nothing_is_warm_once_every_time_is_over():
    found = request(system(mark=Mark(3600)), said("user", mark=Mark()))
    state = advance(UNSENT, found, 1000.0)
    assert not UNSENT.is_warm(OPUS, 0.0)
    assert [state.is_warm(OPUS, at) for at in (1000.0, 4599.9, 4600.0)] == [True, True, False]
    short = advance(UNSENT, request(system(), HELLO, automatic=Mark()), 1000.0)
    assert [short.is_warm(OPUS, at) for at in (1299.9, 1300.0)] == [True, False]
    unmarked = advance(UNSENT, request(system(), HELLO), 1000.0)
    assert not unmarked.is_warm(OPUS, 1000.0)
    assert [unmarked.is_warm(OLD_OPENAI, at) for at in (1299.9, 1300.0)] == [True, False]
    again = advance(state, request(system(mark=Mark(3600)), said("user", "b", mark=Mark())), 4000.0)
    assert [again.is_warm(OPUS, at) for at in (7599.9, 7600.0)] == [True, False]
    assert len(again.written) == 3
    handle = advance(UNSENT, request(HELLO, format_="gemini"), 0.0, response="cachedContents/a")
    assert [handle.is_warm(GEMINI, at) for at in (3599.9, 3600.0)] == [True, False]


def test_every_rule_has_a_test_that_names_it():
    from pathlib import Path

    source = Path(__file__).read_text(encoding="utf-8")
    assert [rule for rule in RULES if f'"{rule}"' not in source] == []
    assert PROVIDER_OF.keys() == set(FORMATS)
    violation = Violation("system-turn", "refused", "because", 3)
    assert pickled(violation) == violation
    assert violation.refuses
