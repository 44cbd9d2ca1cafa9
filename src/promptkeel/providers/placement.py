"""What is wrong with one request whatever came before it: where its marks, its system messages and its tools stand.

Pure. What depends on earlier requests is in ``automaton``, which also puts both together.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from promptkeel.providers.rules import ModelRules
from promptkeel.providers.segments import Mark, Segment, WireRequest
from promptkeel.providers.violations import Violation

_STRICT: Final = ("anthropic", "bedrock")
"""The formats whose tool results must come first, right after their calls, and whose TTLs must not increase."""
_SYSTEM_ROLES: Final = ("system", "developer")
ANSWERING_ROLES: Final = ("assistant", "model")
"""The roles of what a model has said."""


def check_placement(request: WireRequest, rules: ModelRules) -> Iterator[Violation]:
    """Every breach that the request shows by itself."""
    yield from _marks(request, rules)
    yield from _cache_points(request)
    yield from _system_turns(request, rules)
    yield from _tools(request)
    yield from _handle(request)
    yield from _contents(request)


def _marks(request: WireRequest, rules: ModelRules) -> Iterator[Violation]:
    marked = [(index, each, each.mark) for index, each in enumerate(request.segments) if each.mark is not None]
    yield from _count(request, [index for index, _, _ in marked], rules)
    for index, segment, mark in marked:
        if mark.ttl is not None and mark.ttl not in rules.ttls:
            yield Violation(
                "unknown-ttl", "refused", f"{mark.ttl} s is none of {', '.join(map(str, rules.ttls))} s", index
            )
        if segment.kind == "text" and is_blank(segment):
            yield Violation("mark-on-empty", "refused", "a mark stands on text that is empty; drop the text", index)
        if segment.kind in rules.unmarkable:
            # OpenAI passes over a mark where none belongs; the others refuse the request.
            effect: Any = "uncached" if rules.provider == "openai" else "refused"
            rule: Any = "mark-after-reasoning" if segment.kind == "reasoning" else "unmarkable"
            yield Violation(rule, effect, f"no mark may follow {segment.kind}; put it earlier", index)
    if request.format in _STRICT:
        yield from _order(request, [(index, mark) for index, _, mark in marked], rules)
    if not marked and request.automatic is None and _is_explicit(request):
        yield Violation("caching-off", "uncached", "mode explicit without a mark turns caching off; set a mark")


def _count(request: WireRequest, marked: list[int], rules: ModelRules) -> Iterator[Violation]:
    automatic = request.automatic is not None and not _doubles(request, marked)
    count = len(marked) + automatic
    if count > rules.marks and (marked or rules.scheme == "marks"):
        # The latest of OpenAI's marks win, and nothing is said.
        effect: Any = "uncached" if rules.provider == "openai" and rules.marks else "refused"
        own = ", the automatic one among them" if automatic else ""
        position = marked[-1] if marked else None
        yield Violation("too-many-marks", effect, f"{count} marks{own}; at most {rules.marks}", position)


def _doubles(request: WireRequest, marked: list[int]) -> bool:
    """Whether the automatic mark falls on the last segment, where there is one already: they count as one."""
    return bool(marked) and marked[-1] == len(request.segments) - 1


def _order(request: WireRequest, marked: list[tuple[int, Mark]], rules: ModelRules) -> Iterator[Violation]:
    """TTLs never increase along the prefix."""
    default = rules.ttls[0]
    shortest: int | None = None
    for index, mark in marked:
        ttl = mark.ttl if mark.ttl is not None else default
        if shortest is not None and ttl > shortest:
            yield Violation("ttl-increases", "refused", f"{ttl} s after {shortest} s; longer ones come first", index)
        shortest = ttl if shortest is None else min(shortest, ttl)
    if request.automatic is None:
        return
    ttl = request.automatic.ttl if request.automatic.ttl is not None else default
    if _doubles(request, [index for index, _ in marked]):
        own = marked[-1][1].ttl
        if (default if own is None else own) != ttl:
            yield Violation(
                "automatic-mark-conflict",
                "refused",
                "the automatic mark falls on a mark with another TTL; leave one of them out",
                marked[-1][0],
            )
    elif shortest is not None and ttl > shortest:
        yield Violation("ttl-increases", "refused", f"the automatic mark's {ttl} s after {shortest} s")


def _is_explicit(request: WireRequest) -> bool:
    return any(
        name == "prompt_cache_options" and _parsed(value).get("mode") == "explicit" for name, value in request.settings
    )


def _cache_points(request: WireRequest) -> Iterator[Violation]:
    if request.format != "bedrock":
        return
    for index, segment in enumerate(request.segments):
        if segment.mark is None or segment.content:
            continue
        before = request.segments[index - 1] if index else None
        if before is not None and before.mark is not None and _place(before) == _place(segment):
            yield Violation("adjacent-cache-points", "refused", "two cache points in a row; leave one out", index)
        else:
            yield Violation("mark-on-empty", "refused", "a cache point with nothing before it; leave it out", index)
    for message, indexes in _messages(request):
        held = [request.segments[index] for index in indexes]
        points = [index for index in indexes if request.segments[index].mark is not None]
        kinds = {each.kind for each in held if each.content}
        if points and kinds == {"document"} and held[0].role == "user":
            reason = f"message {message} holds documents only, where no cache point may stand; add text before it"
            yield Violation("cache-point-after-document", "refused", reason, points[0])


def _place(segment: Segment) -> tuple[str, int]:
    return (segment.section, segment.message)


def _messages(request: WireRequest) -> Iterator[tuple[int, list[int]]]:
    """Each message with the indexes of its segments."""
    indexed = [(each.message, index) for index, each in enumerate(request.segments) if each.section == "messages"]
    for message, group in itertools.groupby(indexed, key=lambda each: each[0]):
        yield message, [index for _, index in group]


def _turns(request: WireRequest) -> list[tuple[str, list[int]]]:
    """The messages with neighbours of one role taken together, as providers read them: each role with its segments."""
    turns: list[tuple[str, list[int]]] = []
    for _, indexes in _messages(request):
        role = request.segments[indexes[0]].role
        role = "user" if role == "tool" else role
        if turns and turns[-1][0] == role and role not in _SYSTEM_ROLES:
            turns[-1][1].extend(indexes)
        else:
            turns.append((role, indexes))
    return turns


def _system_turns(request: WireRequest, rules: ModelRules) -> Iterator[Violation]:
    if rules.system_turns == "anywhere":
        return
    turns = _turns(request)
    for place, (role, indexes) in enumerate(turns):
        if role not in _SYSTEM_ROLES:
            continue
        if rules.system_turns == "refused":
            reason = f"a {role} message among the messages, where {rules.provider} takes none from this model"
            yield Violation("system-turn", "refused", reason, indexes[0])
            continue
        before = turns[place - 1][0] if place else None
        after = turns[place + 1][0] if place + 1 < len(turns) else None
        if before != "user" or (after is not None and after not in ANSWERING_ROLES):
            reason = f"a {role} message stands right after the user's latest and before the answer, nowhere else"
            yield Violation("system-turn", "refused", reason, indexes[0])


def _tools(request: WireRequest) -> Iterator[Violation]:
    turns = _turns(request)
    called: set[str] = set()
    for place, (role, indexes) in enumerate(turns):
        segments = [(index, request.segments[index]) for index in indexes]
        calls = {identity for _, each in segments if (identity := call_identity(each)) is not None}
        if request.format in _STRICT:
            yield from _first(segments)
            answered = _following(request, turns, place)
            missing = calls - answered if role in ANSWERING_ROLES and place + 1 < len(turns) else set()
            if missing:
                reason = f"no result right after the call of {', '.join(sorted(missing))}"
                yield Violation("tool-call-unanswered", "refused", reason, indexes[-1])
            called = set()
            if place and turns[place - 1][0] in ANSWERING_ROLES:
                called = {
                    identity
                    for index in turns[place - 1][1]
                    if (identity := call_identity(request.segments[index])) is not None
                }
        else:
            called |= calls
        for index, each in segments:
            answer = result_identity(each)
            # In a stateful API the call may be in what the handle stands for.
            if answer is not None and answer not in called and request.handle is None:
                yield Violation("tool-result-unmatched", "refused", f"no call {answer} comes before its result", index)


def _first(segments: list[tuple[int, Segment]]) -> Iterator[Violation]:
    other = False
    for index, each in segments:
        if each.kind != "tool_result":
            other = other or bool(each.content)
        elif other and result_identity(each) is not None:
            reason = "a tool result after other content of the user's; results come first"
            yield Violation("tool-result-not-first", "refused", reason, index)


def _following(request: WireRequest, turns: list[tuple[str, list[int]]], place: int) -> set[str]:
    if place + 1 >= len(turns):
        return set()
    results = (result_identity(request.segments[index]) for index in turns[place + 1][1])
    return {identity for identity in results if identity is not None}


def _handle(request: WireRequest) -> Iterator[Violation]:
    if request.format != "gemini" or request.handle is None:
        return
    beside: list[str] = sorted({each.section for each in request.segments if each.section != "messages"})
    beside += [name for name, _ in request.settings if name in ("toolConfig", "tool_config")]
    if beside:
        reason = f"{', '.join(beside)} beside the handle {request.handle!r}; they are what it stands for"
        yield Violation("handle-with-prefix", "refused", reason)


def _contents(request: WireRequest) -> Iterator[Violation]:
    sections = {each.section for each in request.segments if each.content}
    # OpenAI takes a system message for a message, and a continued response without anything new.
    needed = {"messages", "system"} if request.format.startswith("openai") else {"messages"}
    continued = request.format == "openai-responses" and request.handle is not None
    if not sections & needed and not continued:
        yield Violation("empty-contents", "refused", "the request has no messages; leave it, or send one")


def is_blank(segment: Segment) -> bool:
    """Whether a segment of text holds nothing but white space."""
    if not segment.content:
        return True
    parsed = _loaded(segment.content)
    text = parsed.get("text") if isinstance(parsed, Mapping) else parsed
    return isinstance(text, str) and not text.strip()


def call_identity(segment: Segment) -> str | None:
    """What a result names to answer this call; None where it is no call of a tool of the caller's."""
    if segment.kind != "tool_use":
        return None
    parsed = _parsed(segment.content)
    if str(parsed.get("type", "")).startswith(("server_", "mcp_")):
        return None  # answered in the same message, by the provider
    return _named(parsed, ("toolUse", "functionCall", "function_call"), ("toolUseId", "call_id", "id"))


def result_identity(segment: Segment) -> str | None:
    """The call that this result answers; None where it is no result, or answers no call of the caller's."""
    if segment.kind != "tool_result" or segment.role in ANSWERING_ROLES:
        return None
    keys = ("toolUseId", "tool_use_id", "call_id", "tool_call_id")
    return _named(_parsed(segment.content), ("toolResult", "functionResponse", "function_response"), keys)


def _named(parsed: Mapping[str, Any], wrappers: Iterable[str], keys: Iterable[str]) -> str | None:
    for wrapper in wrappers:
        inner = parsed.get(wrapper)
        if isinstance(inner, Mapping):
            # Gemini's calls need no identity: their results name the function.
            parsed, keys = inner, keys if wrapper.startswith("tool") else ("name",)
            break
    found = (parsed.get(key) for key in keys)
    return next((value for value in found if isinstance(value, str) and value), None)


def _parsed(content: str) -> Mapping[str, Any]:
    parsed = _loaded(content)
    return parsed if isinstance(parsed, Mapping) else {}


def _loaded(content: str) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None
