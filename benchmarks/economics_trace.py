"""Real agent runs with real facts arriving as writes between their turns: what the economics benchmark replays.

The runs are tau-bench's (airline), which hold no tool definitions; the facts are LoCoMo's. When something happens is
drawn from a seed: LoCoMo's turns and tau-bench's carry no times.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import attrs

DATA: Final = Path(__file__).resolve().parents[2] / "shared" / "data"
KNOWN: Final = 20
"""So many facts are known of each user before the first conversation."""
_START_EVERY: Final = 60.0
_TOOL_SECONDS: Final = (2.0, 6.0)
_USER_SECONDS: Final = (10.0, 60.0)
_AWAY: Final = 0.03
_AWAY_SECONDS: Final = (320.0, 1500.0)
_CORRECTED: Final = 0.2
_RETRACTED: Final = 0.1

Message = dict[str, Any]


@attrs.frozen
class Turn:
    """One request of an agent.

    Attributes:
        at: when it starts, in seconds.
        conversation: the number of its conversation.
        number: which of the conversation's requests it is.
        user: whose conversation it is.
        messages: how many of the conversation's messages are before it.
        is_last: whether no other follows.
    """

    at: float
    conversation: int
    number: int
    user: int
    messages: int
    is_last: bool


@attrs.frozen
class Write:
    """Something that memory learns.

    Attributes:
        at: when, in seconds.
        user: of whom.
        kind: a new fact, another text for an earlier one, or the end of one.
        fact: the number of the fact among those of the user.
        text: what it says; empty where it ends.
    """

    at: float
    user: int
    kind: Literal["add", "correct", "retract"]
    fact: int
    text: str


@attrs.frozen
class Trace:
    """Everything that happens, in order.

    Attributes:
        policy: the system prompt of all conversations.
        conversations: the messages of each, as Chat Completions spells them.
        known: what is known of each user at first.
        events: turns and writes, by time.
    """

    policy: str
    conversations: tuple[tuple[Message, ...], ...]
    known: Mapping[int, tuple[str, ...]]
    events: tuple[Turn | Write, ...]

    @property
    def turns(self) -> list[Turn]:
        """The requests."""
        return [event for event in self.events if isinstance(event, Turn)]


def is_there() -> bool:
    """Whether the data is."""
    return all((DATA / name).is_file() for name in ("tau-bench-airline.json", "locomo10.json"))


def read_trace(rate: float, *, runs: int | None = None, seed: int = 5) -> Trace:
    """The trace at a rate of writes.

    Args:
        rate: how many writes there are for each turn, at most one before each.
        runs: how many of the runs; None: all of them.
        seed: of all that is drawn. Times are the same at every rate.
    """
    found = json.loads((DATA / "tau-bench-airline.json").read_text())[:runs]
    users = {name: number for number, name in enumerate(dict.fromkeys(run["info"]["task"]["user_id"] for run in found))}
    facts = _facts(seed)
    # A text may be said of two users.
    pool, numbers = itertools.cycle(facts), itertools.count(KNOWN)
    known = {user: tuple(itertools.islice(pool, KNOWN)) for user in users.values()}
    times, writing = random.Random(seed), random.Random(seed + 1)
    turns: list[Turn] = []
    for number, run in enumerate(found):
        turns.extend(_turns(number, users[run["info"]["task"]["user_id"]], run["traj"], times))
    live = {user: dict(enumerate(texts)) for user, texts in known.items()}
    latest: dict[int, float] = {}
    events: list[Turn | Write] = []
    for turn in sorted(turns, key=lambda turn: (turn.at, turn.conversation)):
        before = latest.get(turn.conversation)
        if before is not None and writing.random() < rate:
            at = max((before + turn.at) / 2, events[-1].at)
            events.append(_write(at, turn.user, live[turn.user], pool, numbers, writing))
        events.append(turn)
        latest[turn.conversation] = turn.at
    return Trace(
        found[0]["traj"][0]["content"],
        tuple(tuple(_chat(message) for message in run["traj"][1:]) for run in found),
        known,
        tuple(events),
    )


def _facts(seed: int) -> list[str]:
    conversations = json.loads((DATA / "locomo10.json").read_text())
    facts = [
        text
        for conversation in conversations
        for session in conversation["observation"].values()
        for said in session.values()
        for text, _ in said
    ]
    facts = list(dict.fromkeys(facts))
    random.Random(seed).shuffle(facts)
    return facts


def _turns(number: int, user: int, messages: list[Message], times: random.Random) -> Iterator[Turn]:
    at = number * _START_EVERY
    places = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    for count, place in enumerate(places):
        before = messages[place - 1]["role"]
        if count:
            pause = _TOOL_SECONDS if before == "tool" else _AWAY_SECONDS if times.random() < _AWAY else _USER_SECONDS
            at += times.uniform(*pause)
        yield Turn(round(at, 3), number, count, user, place - 1, place == places[-1])


def _write(
    at: float,
    user: int,
    live: dict[int, str],
    pool: Iterator[str],
    numbers: Iterator[int],
    writing: random.Random,
) -> Write:
    drawn = writing.random()
    if drawn < _RETRACTED and len(live) > 1:
        fact = writing.choice(sorted(live))
        del live[fact]
        return Write(at, user, "retract", fact, "")
    said = set(live.values())
    text = next(text for text in pool if text not in said)
    if drawn < _RETRACTED + _CORRECTED:
        fact = writing.choice(sorted(live))
        live[fact] = text
        return Write(at, user, "correct", fact, text)
    fact = next(numbers)
    live[fact] = text
    return Write(at, user, "add", fact, text)


def _chat(message: Message) -> Message:
    kept = ("role", "content", "tool_calls", "tool_call_id")
    said = {name: message[name] for name in kept if name in message}
    return {**said, "content": ""} if said.get("content") is None and "tool_calls" not in said else said


def as_anthropic(messages: tuple[Message, ...]) -> tuple[list[Message], list[int]]:
    """The messages as Anthropic spells them, and how many of them the first so many of the given ones have become."""
    spelled: list[Message] = []
    counts = [0]
    for message in messages:
        if message["role"] == "tool":
            result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            spelled.append({"role": "user", "content": [result]})
        elif message.get("tool_calls"):
            text = [{"type": "text", "text": message["content"]}] if message["content"] else []
            calls = [
                {
                    "type": "tool_use",
                    "id": call["id"],
                    "name": call["function"]["name"],
                    "input": json.loads(call["function"]["arguments"]),
                }
                for call in message["tool_calls"]
            ]
            spelled.append({"role": "assistant", "content": [*text, *calls]})
        else:
            spelled.append({"role": message["role"], "content": message["content"]})
        counts.append(len(spelled))
    return spelled, counts
