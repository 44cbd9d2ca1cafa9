"""Traffic of agents with faults injected, and what each fault costs, told by simulated caches and by nothing else.

What a fault costs is the tokens that are paid in full with it and not without it. Of two at once, the one that is
earlier in the prefix costs what is paid with both and not with the other alone; the other costs the rest.
"""

from __future__ import annotations

import copy
import functools
import json
import random
import re
import unicodedata
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from promptkeel.errors import MissingExtraError
from promptkeel.forensics.analysis import Analysis
from promptkeel.forensics.causes import Cause
from promptkeel.forensics.reading import read_record
from promptkeel.providers.caches import cache_for
from promptkeel.providers.counting import tokens_of
from promptkeel.providers.rules import rules_for
from promptkeel.providers.segments import Segment, Usage
from promptkeel.providers.wire import read_request
from promptkeel.tokens import TokenCounter, token_counter

DATA: Final = Path(__file__).resolve().parents[2] / "shared" / "data" / "tau-bench-airline.json"
START: Final = 1_780_000_000.0
MODELS: Final = {"anthropic": "claude-sonnet-4-5", "openai-chat": "gpt-5.2"}

Message = dict[str, Any]
Arguments = dict[str, Any]


@attrs.define
class Sent:
    """One request of the traffic.

    Attributes:
        run: whose it is.
        turn: which of the run's requests.
        chosen: the turn of the run at which faults begin.
        at: when it starts.
        wire_format: how it is spelled.
        arguments: the request.
        gateway: by what route it goes.
        era: a cache is emptied where this changes.
    """

    run: int
    turn: int
    chosen: int
    at: float
    wire_format: str
    arguments: Arguments
    gateway: str = "main"
    era: int = 0

    @property
    def is_late(self) -> bool:
        """Whether faults have begun."""
        return self.turn >= self.chosen


@attrs.frozen(eq=False)
class Fault:
    """A fault to inject.

    Attributes:
        cause: its true cause.
        depth: where in the prefix it bites: what is less is earlier.
        formats: the formats that it is injected into.
        apply: changes all requests in place.
        prepare: changes the requests with and without it, so that there is something to spoil.
        without: rules of the cache that would not have had it.
    """

    cause: Cause
    depth: float
    formats: tuple[str, ...]
    apply: Callable[[list[Sent]], None]
    prepare: Callable[[list[Sent]], None] | None = None
    without: Mapping[str, Any] | None = None


# What agents say.


def real_runs(count: int, seed: int) -> list[list[Message]]:
    """Runs of tau-bench, long enough to lose something."""
    found = [run["traj"] for run in json.loads(DATA.read_text())]
    found = [run for run in found if 20 <= len(run) <= 44]
    return random.Random(seed).sample(found, count)


def made_runs(count: int, seed: int) -> list[list[Message]]:
    """Runs that look like them."""
    draw = random.Random(seed)
    words = ["flight", "cabin", "booking", "refund", "agent", "policy", "customer", "baggage", "delay", "seat",
             "change", "fare", "payment", "airport", "travel", "date", "confirm", "cancel", "upgrade",
             "insurance", "member", "certificate", "reservation", "passenger", "economy"]  # fmt: skip

    def prose(length: int) -> str:
        return " ".join(draw.choice(words) for _ in range(length)).capitalize() + "."

    policy = "\n\n".join(f"## Part {part}\n\n{prose(170)}" for part in range(9))
    runs = []
    for _ in range(count):
        run: list[Message] = [{"role": "system", "content": policy}]
        for turn in range(draw.randint(9, 14)):
            run.append({"role": "user", "content": prose(30)})
            if turn % 2:
                run += _call(draw, prose)
            run.append({"role": "assistant", "content": prose(40)})
        runs.append(run)
    return runs


def _call(draw: random.Random, prose: Callable[[int], str]) -> list[Message]:
    call = f"call_{draw.getrandbits(40):010x}"
    arguments = json.dumps({"reservation_id": prose(1), "user_id": prose(1), "cabin": prose(1)})
    function = {"name": "update_reservation", "arguments": arguments}
    return [
        {"role": "assistant", "content": None, "tool_calls": [{"id": call, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call, "name": "update_reservation", "content": prose(60)},
    ]


def _tools(runs: list[list[Message]]) -> list[tuple[str, dict[str, Any]]]:
    """Definitions of the tools that are called, which the runs do not hold."""
    names: dict[str, set[str]] = {}
    for run in runs:
        for message in run:
            for call in message.get("tool_calls") or ():
                function = call["function"]
                names.setdefault(function["name"], set()).update(json.loads(function["arguments"]))
    for name in (
        "get_user",
        "list_airports",
        "send_certificate",
        "transfer_to_human",
        "calculate",
        "search_flights",
        "cancel_reservation",
    ):
        names.setdefault(name, {"query", "reason", "language", "limit"})
    return [
        (
            name,
            {
                "type": "object",
                "properties": {
                    each: {
                        "type": "string",
                        "description": f"The {each} of what {name} is called for, as the customer or the policy has.",
                    }
                    for each in sorted(fields)
                },
                "required": sorted(fields)[:2],
            },
        )
        for name, fields in sorted(names.items())
    ]


# The same runs as requests.


def traffic(runs: list[list[Message]], wire_format: str, seed: int) -> list[Sent]:
    """The requests of all runs, without a fault, by time."""
    draw = random.Random(seed)
    tools = _tools(runs)
    sent: list[Sent] = []
    for number, run in enumerate(runs):
        places = [index for index, message in enumerate(run) if message["role"] == "assistant" and index > 1]
        chosen = draw.randint(len(places) // 2, len(places) - 2)
        at = START + number * 45.0
        for turn, place in enumerate(places):
            spell = _anthropic if wire_format == "anthropic" else _chat
            arguments = spell(run[:place], tools)
            sent.append(Sent(number, turn, chosen, at, wire_format, arguments))
            at += draw.uniform(4.0, 30.0)
    return sent


def _chat(messages: list[Message], tools: list[tuple[str, dict[str, Any]]]) -> Arguments:
    return {
        "model": MODELS["openai-chat"],
        "tools": [
            {"type": "function", "function": {"name": name, "description": f"Use {name}.", "parameters": schema}}
            for name, schema in tools
        ],
        "messages": copy.deepcopy(messages),
        "prompt_cache_key": "acme",
    }


def _anthropic(messages: list[Message], tools: list[tuple[str, dict[str, Any]]]) -> Arguments:
    policy = messages[0]["content"].split("\n\n")
    third = len(policy) // 3
    parts = [policy[:third], policy[third : 2 * third], policy[2 * third :]]
    sent: list[Message] = []
    for number, message in enumerate(messages[1:]):
        role, blocks = _blocks(message, number)
        if sent and sent[-1]["role"] == role:
            sent[-1]["content"] += blocks
        else:
            sent.append({"role": role, "content": blocks})
    arguments = {
        "model": MODELS["anthropic"],
        "tools": [
            {"name": name, "description": f"Use {name}.", "input_schema": copy.deepcopy(schema)}
            for name, schema in tools
        ],
        "system": [{"type": "text", "text": "\n\n".join(part)} for part in parts],
        "messages": sent,
    }
    mark(arguments["tools"][-1])
    mark(arguments["system"][-1])
    mark_last(arguments)
    return arguments


def _blocks(message: Message, number: int) -> tuple[str, list[Message]]:
    if message["role"] == "tool":
        content = {"type": "tool_result", "tool_use_id": f"toolu_{number - 1:04}", "content": message["content"]}
        return "user", [content]
    blocks: list[Message] = []
    if message["role"] == "assistant":
        blocks.append({"type": "thinking", "thinking": f"What to say at {number}?" * 6, "signature": f"s{number}"})
    if message.get("content"):
        blocks.append({"type": "text", "text": message["content"]})
    for call in message.get("tool_calls") or ():
        function = call["function"]
        given = json.loads(function["arguments"])
        blocks.append({"type": "tool_use", "id": f"toolu_{number:04}", "name": function["name"], "input": given})
    return message["role"], blocks


def mark(block: Message) -> None:
    block["cache_control"] = {"type": "ephemeral"}


def unmark(blocks: Iterable[Message]) -> None:
    for block in blocks:
        block.pop("cache_control", None)


def mark_last(arguments: Arguments) -> None:
    mark(arguments["messages"][-1]["content"][-1])


def unmark_messages(arguments: Arguments) -> None:
    for message in arguments["messages"]:
        unmark(message["content"])


# The faults.


def _prepared_only(sent: list[Sent]) -> None:
    """The rules of the cache are the fault: nothing is changed."""


def _late(change: Callable[[Sent], None]) -> Callable[[list[Sent]], None]:
    """Change every request from the chosen turn of its run on."""

    def apply(sent: list[Sent]) -> None:
        for each in sent:
            if each.is_late:
                change(each)

    return apply


def _always(change: Callable[[Sent], None]) -> Callable[[list[Sent]], None]:
    def apply(sent: list[Sent]) -> None:
        for each in sent:
            change(each)

    return apply


def _set(name: str, value: Any) -> Callable[[list[Sent]], None]:
    return _late(lambda each: each.arguments.update({name: value}))


def _describe_tool(each: Sent) -> None:
    tool = each.arguments["tools"][2]
    tool = tool.get("function", tool)
    tool["description"] = "Use this one with care, and only after the customer said so."


def _rotate_tools(each: Sent) -> None:
    tools = each.arguments["tools"]
    marked = [tool for tool in tools if "cache_control" in tool]
    unmark(tools)
    tools.append(tools.pop(0))
    if marked:
        mark(tools[-1])


def _system(each: Sent, change: Callable[[str], str]) -> None:
    if each.wire_format == "anthropic":
        block = each.arguments["system"][1]
        block["text"] = change(block["text"])
    else:
        message = each.arguments["messages"][0]
        message["content"] = change(message["content"])


def _edit(text: str) -> str:
    half = len(text) // 2
    return f"{text[:half]} Never promise what the policy does not say. {text[half:]}"


def _swap_system(each: Sent) -> None:
    blocks = each.arguments["system"]
    marked = "cache_control" in blocks[-1]
    unmark(blocks)
    blocks[0], blocks[1] = blocks[1], blocks[0]
    if marked:
        mark(blocks[-1])


def _volatile(spell: Callable[[Sent], str]) -> Callable[[list[Sent]], None]:
    return _always(lambda each: _system(each, lambda text: f"{spell(each)}\n\n{text}"))


def _clock(each: Sent) -> str:
    seconds = int(each.at - START)
    return f"Now: 2026-05-28T{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def _request_id(each: Sent) -> str:
    return f"Request: {uuid.UUID(int=random.Random(each.run * 1000 + each.turn).getrandbits(128), version=4)}"


def _old_text(each: Sent) -> Message:
    """An early message of the run that is in all its later requests."""
    place = 2 if each.wire_format == "anthropic" else 3
    return each.arguments["messages"][place]


def _edit_history(each: Sent) -> None:
    message = _old_text(each)
    if isinstance(message["content"], str):
        message["content"] = _edit(message["content"])
        return
    block = next(block for block in message["content"] if block["type"] in ("text", "tool_result"))
    name = "text" if block["type"] == "text" else "content"
    block[name] = _edit(block[name])


def _first_messages(each: Sent) -> int:
    return 0 if each.wire_format == "anthropic" else 1


def _reorder_history(each: Sent) -> None:
    messages, first = each.arguments["messages"], _first_messages(each)
    messages[first], messages[first + 2] = messages[first + 2], messages[first]


def _trim(each: Sent) -> None:
    first = _first_messages(each)
    del each.arguments["messages"][first : first + 4]


def _compact(each: Sent) -> None:
    first = _first_messages(each)
    text = "Before: the customer told what they want, and the agent looked it up."
    content: Any = [{"type": "text", "text": text}] if each.wire_format == "anthropic" else text
    each.arguments["messages"][first : first + 5] = [{"role": "user", "content": content}]


def _no_reasoning(each: Sent) -> None:
    for message in each.arguments["messages"]:
        message["content"] = [block for block in message["content"] if block["type"] != "thinking"]


def _say_accents(each: Sent) -> None:
    _say(each, "Zoë asks from the café in Málaga about the naïve résumé of her flights. ")


def _say(each: Sent, words: str) -> None:
    message = each.arguments["messages"][_first_messages(each)]
    if isinstance(message["content"], str):
        message["content"] = words + message["content"]
    else:
        message["content"][0]["text"] = words + message["content"][0]["text"]


def _decompose(each: Sent) -> None:
    message = each.arguments["messages"][_first_messages(each)]
    if isinstance(message["content"], str):
        message["content"] = unicodedata.normalize("NFD", message["content"])
    else:
        block = message["content"][0]
        block["text"] = unicodedata.normalize("NFD", block["text"])


def _picture(data: str) -> Callable[[Sent], None]:
    def change(each: Sent) -> None:
        source = {"type": "base64", "media_type": "image/png", "data": data * 200}
        content = each.arguments["messages"][0]["content"]
        content[:] = [block for block in content if block["type"] != "image"]
        content.append({"type": "image", "source": source})
        if len(each.arguments["messages"]) == 1:
            unmark(content)
            mark(content[-1])

    return change


def _respell_calls(each: Sent) -> None:
    for message in each.arguments["messages"]:
        for call in message.get("tool_calls") or ():
            given = json.loads(call["function"]["arguments"])
            reversed_keys = dict(reversed(given.items()))
            call["function"]["arguments"] = json.dumps(reversed_keys)


def _call_first(each: Sent) -> None:
    """Put a call with several arguments at the beginning of the history."""
    arguments = json.dumps({"user_id": "u1", "since": "2024", "limit": 20})
    call = {"id": "c0", "type": "function", "function": {"name": "get_user", "arguments": arguments}}
    each.arguments["messages"][2:2] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c0", "content": "known"},
    ]


def _strip(each: Sent) -> None:
    _system(each, lambda text: re.sub(r"\s+", " ", text))


def _pause(sent: list[Sent]) -> None:
    for each in sent:
        if each.is_late:
            each.at += 4000.0


def _many_blocks(each: Sent) -> None:
    """Many results in the message of the chosen turn."""
    if not each.is_late:
        return
    counts = [len(one["content"]) for one in each.arguments["messages"]]
    message = each.arguments["messages"][-1 - 2 * (each.turn - each.chosen)] if len(counts) > 1 else None
    if message is None or message["role"] != "user":
        return
    blocks = [{"type": "text", "text": f"Result {number} of the search."} for number in range(24)]
    marked = "cache_control" in message["content"][-1]
    unmark(message["content"])
    message["content"] += blocks
    if marked:
        mark(message["content"][-1])


def _personal(each: Sent) -> None:
    """A system of its own for each run."""
    each.arguments["system"][0]["text"] = f"Customer number {each.run} asks.\n\n{each.arguments['system'][0]['text']}"


def _no_tool_mark(each: Sent) -> None:
    unmark(each.arguments["tools"])


def _five_marks(each: Sent) -> None:
    for block in each.arguments["system"]:
        mark(block)


def _system_marks_only(each: Sent) -> None:
    unmark_messages(each.arguments)


def _tail(each: Sent) -> None:
    """A block behind the newest message that later requests do not hold."""
    content = each.arguments["messages"][-1]["content"]
    content.append({"type": "text", "text": f"Seen by the customer at step {each.turn}: {_request_id(each)} only now."})


def _mark_tail(each: Sent) -> None:
    unmark_messages(each.arguments)
    mark_last(each.arguments)


def _paired_system(each: Sent) -> None:
    """A system for every two runs; the second one starts well after the first."""
    pair = each.run // 2
    each.arguments["system"][0]["text"] = f"Desk number {pair} asks.\n\n{each.arguments['system'][0]['text']}"


def _together(sent: list[Sent]) -> None:
    starts = {each.run: each.at for each in sent if each.turn == 0}
    for each in sent:
        if each.run % 2:
            each.at += starts[each.run - 1] - starts[each.run] + 0.25


def _reroute(each: Sent) -> None:
    each.gateway = "other"


def _evict(sent: list[Sent]) -> None:
    times = sorted(each.at for each in sent)
    for each in sent:
        each.era = sum(each.at >= times[len(times) * part // 4] for part in (1, 2, 3))


_BOTH: Final = ("anthropic", "openai-chat")
_A: Final = ("anthropic",)
_O: Final = ("openai-chat",)
FAULTS: Final = (
    Fault(Cause.MODEL_CHANGED, 0.0, _A, _set("model", "claude-sonnet-4-6")),
    Fault(Cause.GATEWAY_CHANGED, 0.1, _BOTH, _late(_reroute)),
    Fault(Cause.KEY_CHANGED, 0.2, _O, _set("prompt_cache_key", "other")),
    Fault(Cause.SALT_CHANGED, 0.2, _O, _set("cache_salt", "s2")),
    Fault(Cause.RETENTION_CHANGED, 0.2, _O, _set("prompt_cache_retention", "24h")),
    Fault(Cause.RESPONSE_FORMAT_CHANGED, 0.2, _BOTH, lambda sent: _set(
        "output_format" if sent[0].wire_format == "anthropic" else "response_format", {"type": "json_object"})(sent)),
    Fault(Cause.SETTING_CHANGED, 0.2, _A, _set("betas", ["context-1m"])),
    Fault(Cause.TTL_OVER, 1.1, _BOTH, _pause),
    Fault(Cause.PARALLEL_START, 1.0, _A, _together, _always(_paired_system)),
    Fault(Cause.TOOLS_CHANGED, 2.1, _BOTH, _late(_describe_tool)),
    Fault(Cause.TOOLS_REORDERED, 2.0, _BOTH, _late(_rotate_tools)),
    Fault(Cause.SYSTEM_REORDERED, 3.0, _A, _late(_swap_system)),
    Fault(Cause.TIMESTAMP, 3.11, _BOTH, _volatile(_clock)),
    Fault(Cause.IDENTIFIER, 3.1, _BOTH, _volatile(_request_id)),
    Fault(Cause.COUNTER, 3.12, _BOTH, _volatile(lambda each: f"Messages so far: {each.turn + 1 + 100 * each.run}")),
    Fault(Cause.AGE, 3.13, _BOTH, _volatile(
        lambda each: f"Profile read {3 * each.turn + 100 * each.run + 2} minutes ago.")),
    Fault(Cause.WHITE_SPACE, 3.2, _BOTH, _late(_strip)),
    Fault(Cause.SYSTEM_EDITED, 3.3, _BOTH, _late(lambda each: _system(each, _edit))),
    Fault(Cause.TOOL_CHOICE_CHANGED, 4.0, _A, _set("tool_choice", {"type": "any"})),
    Fault(Cause.REASONING_CHANGED, 4.0, _A, _set("thinking", {"type": "enabled", "budget_tokens": 2048})),
    Fault(Cause.NORMALISATION, 5.0, _BOTH, _late(_decompose), _always(_say_accents)),
    Fault(Cause.MEDIA_REENCODED, 5.1, _A, _late(_picture("QUJE")), _always(_picture("QUJD"))),
    Fault(Cause.HISTORY_REORDERED, 4.9, _BOTH, _late(_reorder_history)),
    Fault(Cause.HISTORY_TRIMMED, 5.0, _BOTH, _late(_trim)),
    Fault(Cause.HISTORY_COMPACTED, 5.0, _BOTH, _late(_compact)),
    Fault(Cause.REASONING_REMOVED, 5.2, _A, _late(_no_reasoning)),
    Fault(Cause.KEY_ORDER, 5.2, _O, _late(_respell_calls), _always(_call_first)),
    Fault(Cause.HISTORY_EDITED, 5.3, _BOTH, _late(_edit_history)),
    Fault(Cause.BELOW_MINIMUM, 6.0, _A, _prepared_only,
          _always(lambda each: each.arguments.update(model="claude-opus-4-6")), {"minimum": 1}),
    Fault(Cause.MARKS_DROPPED, 6.1, _A, _always(_five_marks), _always(_personal)),
    Fault(Cause.LOOKBACK_EXCEEDED, 6.2, _A, _prepared_only, _always(_many_blocks), {"lookback": 10_000}),
    Fault(Cause.MARK_MISSING, 6.3, _A, _always(_system_marks_only)),
    Fault(Cause.MARK_ON_CHANGING, 6.3, _A, _always(_mark_tail), _always(_tail)),
    Fault(Cause.TOOL_MARKS, 6.3, _A, _always(_no_tool_mark), _always(_personal)),
    Fault(Cause.UNKNOWN, 0.5, _BOTH, _evict),
)  # fmt: skip


# What they cost.


@functools.cache
def counter() -> TokenCounter:
    """What the simulated providers count with: not what forensics counts with, where there is another."""
    try:
        return token_counter("cl100k_base")
    except MissingExtraError:
        return token_counter("estimate")


@functools.lru_cache(maxsize=200_000)
def _count(segment: Segment) -> int:
    return tokens_of(segment, counter())


_PROVIDERS: Final = {"anthropic": "anthropic", "openai-chat": "openai"}


def simulate(sent: list[Sent], without: Mapping[str, Any]) -> list[Usage]:
    """What each request uses, in the order of their list."""
    caches: dict[object, Any] = {}
    usages: dict[int, Usage] = {}
    for index in sorted(range(len(sent)), key=lambda index: sent[index].at):
        each = sent[index]
        request = read_request(each.wire_format, each.arguments)
        rules = attrs.evolve(rules_for(_PROVIDERS[each.wire_format], request.model), **without)
        key = each.gateway, each.era, request.model
        cache = caches.setdefault(key, cache_for(rules))
        counts = [_count(attrs.evolve(segment, mark=None, message=0)) for segment in request.segments]
        usages[index] = cache.send(request, counts, each.at)
    return [usages[index] for index in range(len(sent))]


def line_of(each: Sent, usage: Usage, *, with_session: bool = True) -> dict[str, Any]:
    """A request as a line of a log."""
    if each.wire_format == "anthropic":
        counts: dict[str, Any] = {
            "input_tokens": usage.uncached,
            "cache_read_input_tokens": usage.read,
            "cache_creation_input_tokens": usage.written,
        }
    else:
        counts = {"prompt_tokens": usage.prompt, "prompt_tokens_details": {"cached_tokens": usage.read}}
    line = {"request": each.arguments, "usage": counts, "time": each.at, "gateway": each.gateway}
    return {**line, "session": f"run-{each.run}"} if with_session else line


@attrs.frozen
class Outcome:
    """What a measurement found.

    Attributes:
        faults: what was injected.
        lost: the tokens that the faults cost.
        right: of these, the ones that were given to the fault that cost them.
        given: the tokens that were given to each cause.
    """

    faults: tuple[Fault, ...]
    lost: int
    right: int
    given: Counter[Cause]

    @property
    def share(self) -> float:
        """The share that is right, of what was lost and of what was said to be, whichever is more."""
        return self.right / max(self.lost, sum(self.given.values()), 1)


def inject(base: list[Sent], applied: Iterable[Fault], prepared: Iterable[Fault]) -> tuple[list[Sent], dict[str, Any]]:
    """The traffic with some faults, prepared for all of them; and the rules that the others would not have had."""
    sent = copy.deepcopy(base)
    applied, without = set(applied), {}
    ordered = sorted(prepared, key=lambda fault: -fault.depth)
    for fault in ordered:
        if fault.prepare is not None:
            fault.prepare(sent)
    for fault in ordered:
        if fault in applied:
            fault.apply(sent)
        elif fault.without is not None:
            without.update(fault.without)
    return sent, without


def measure(base: list[Sent], faults: tuple[Fault, ...], *, with_session: bool = True) -> Outcome:
    """Inject faults, and hold what forensics says of the log against what they cost."""
    faults = tuple(sorted(faults, key=lambda fault: fault.depth))
    sent, rules = inject(base, faults, faults)
    usages = simulate(sent, rules)
    paid = [usage.prompt - usage.read for usage in usages]
    # With the first mended, then with the first two, and so on: what is still paid.
    still = [paid]
    for number in range(1, len(faults) + 1):
        mended, rules = inject(base, faults[number:], faults)
        still.append([usage.prompt - usage.read for usage in simulate(mended, rules)])
    said = _analyse(sent, usages, with_session=with_session)
    lost = right = 0
    given: Counter[Cause] = Counter()
    for index, blamed in enumerate(said):
        given.update(blamed)
        left = Counter(blamed)
        for number, fault in enumerate(faults):
            true = max(still[number][index] - still[number + 1][index], 0)
            lost += true
            found = min(true, left[fault.cause])
            right += found
            left[fault.cause] -= found
    return Outcome(faults, lost, right, given)


def _analyse(sent: list[Sent], usages: list[Usage], *, with_session: bool) -> list[Counter[Cause]]:
    analysis = Analysis()
    said: dict[int, Counter[Cause]] = {}
    for index in sorted(range(len(sent)), key=lambda index: sent[index].at):
        line = json.loads(json.dumps(line_of(sent[index], usages[index], with_session=with_session)))
        found = analysis.take(read_record(index + 1, line)).attribution
        counts: Counter[Cause] = Counter()
        for blame in () if found is None else found.blames:
            counts[blame.cause] += blame.tokens
        said[index] = counts
    return [said[index] for index in range(len(sent))]


def can_meet(one: Fault, other: Fault, wire_format: str) -> bool:
    """Whether two faults can be injected together and told apart."""
    if wire_format not in one.formats or wire_format not in other.formats or one.cause is other.cause:
        return False
    return not any(one.cause in pair and other.cause in pair for pair in _ALONE)


_EARLY: Final = (
    Cause.HISTORY_TRIMMED, Cause.HISTORY_COMPACTED, Cause.HISTORY_EDITED, Cause.HISTORY_REORDERED,
    Cause.NORMALISATION, Cause.MEDIA_REENCODED, Cause.KEY_ORDER,
)  # fmt: skip
"""Faults of the first messages."""
_ALONE: Final = (
    # What is left out is not edited.
    *(frozenset({one, other}) for one in _EARLY[:2] for other in _EARLY if one is not other),
    # Both arrange the blocks of the newest message.
    frozenset({Cause.LOOKBACK_EXCEEDED, Cause.MARK_ON_CHANGING}),
    frozenset({Cause.HISTORY_REORDERED, Cause.MEDIA_REENCODED}),
)
"""Faults that undo each other, or each other's preparation."""
