"""Ways to put a changing memory into the requests of a conversation, one class for each.

All show the same rendered text, the peer's with ages in it, and all but the peer's have their marks from the same
planner. What differs is where the text stands, and when it changes.
"""

from __future__ import annotations

import collections
import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Protocol

import attrs

import promptkeel as pk
from economics_trace import Message, Turn

Format = Literal["anthropic", "openai-chat"]
BLOCK: Final = "USER_PROFILE"


@attrs.frozen
class Fact:
    """A fact that holds.

    Attributes:
        text: what it says.
        since: the moment from which on a prompt can show it, in seconds.
    """

    text: str
    since: float


@attrs.frozen(kw_only=True)
class Moment:
    """What is there when a request is made.

    Attributes:
        turn: which request.
        now: the time.
        keel: the open store.
        scope: the user's.
        prompt: what memory says now.
        facts: the facts in it.
        messages: the conversation so far, in the format asked for.
        new: those of them that the request before this one did not have.
        format: the format.
        model: the model.
        server: of Chat Completions, whose.
        overrides: what is known better of the provider's rules.
    """

    turn: Turn
    now: dt.datetime
    keel: Any
    scope: pk.TenantScope
    prompt: Any
    facts: Sequence[Fact]
    messages: Sequence[Message]
    new: Sequence[Message]
    format: Format
    model: str
    server: Literal["openai", "vllm"]
    overrides: Sequence[Mapping[str, Any]] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """What every request says besides."""
        if self.format == "anthropic":
            return {"max_tokens": 4096}
        return {"server": self.server}

    def spelled(self, prompt: Any, messages: Sequence[Message]) -> dict[str, Any]:
        """The request that a prompt makes of messages."""
        asked = {"model": self.model, "messages": messages, "overrides": self.overrides, **self.settings}
        if self.format == "anthropic":
            return dict(prompt.anthropic(**asked))
        return dict(prompt.openai(**asked, api="chat"))


class Layout(Protocol):
    """A way to make the requests of conversations; keeps what it needs of each."""

    name: ClassVar[str]
    is_stale: ClassVar[bool]

    def request(self, moment: Moment) -> dict[str, Any]:
        """The keyword arguments of the request."""


class Timestamped:
    """The prompt made anew at every turn, under the time of day."""

    name: ClassVar = "rebuild, with the time"
    is_stale: ClassVar = False

    def request(self, moment: Moment) -> dict[str, Any]:
        """The keyword arguments of the request."""
        arguments = moment.spelled(moment.prompt, moment.messages)
        clock = f"The current time is {moment.now:%Y-%m-%d %H:%M:%S}.\n\n"
        name = "system" if moment.format == "anthropic" else "messages"
        first, *rest = arguments[name]
        text = "text" if moment.format == "anthropic" else "content"
        return {**arguments, name: [_headed(first, text, clock), *rest]}


def _headed(part: Message, text: str, head: str) -> Message:
    content = part[text]
    if isinstance(content, str):
        return {**part, text: head + content}
    return {**part, text: [{**content[0], "text": head + content[0]["text"]}, *content[1:]]}


class Rebuilt:
    """The prompt made anew at every turn."""

    name: ClassVar = "rebuild"
    is_stale: ClassVar = False

    def request(self, moment: Moment) -> dict[str, Any]:
        """The keyword arguments of the request."""
        return moment.spelled(moment.prompt, moment.messages)


class Peer:
    """symfonic-core's: marks at the first and the last section and at the last closed message, ages in the text."""

    name: ClassVar = "the peer's"
    is_stale: ClassVar = False
    _LEAST: ClassVar = 1100 * 4

    def request(self, moment: Moment) -> dict[str, Any]:
        """The keyword arguments of the request."""
        policy, *rest = (section.text for section in moment.prompt.layout().sections)
        memory = _DATE.sub(lambda found: f"{found[0]}, {_age(found[1], moment.now)}", "\n\n".join(rest))
        if moment.format != "anthropic":
            system = {"role": "system", "content": f"{policy}\n\n{memory}"}
            return {"model": moment.model, "messages": [system, *moment.messages]}
        mark = {"type": "ephemeral"}
        system_parts = [{"type": "text", "text": text, "cache_control": mark} for text in (policy, memory)]
        messages = list(moment.messages)
        place = self._closed(messages)
        if place is not None:
            messages[place] = _marked(messages[place], mark)
        return {"model": moment.model, "max_tokens": 4096, "system": system_parts, "messages": messages}

    def _closed(self, messages: Sequence[Message]) -> int | None:
        """The last message but the very last whose calls are all answered, if enough stands before it."""
        for place in range(len(messages) - 2, -1, -1):
            content = messages[place]["content"]
            if not (isinstance(content, list) and any(part["type"] == "tool_use" for part in content)):
                length = sum(len(str(each["content"])) for each in messages[: place + 1])
                return place if length >= self._LEAST else None
        return None


_DATE: Final = re.compile(r"recorded (\d{4}-\d\d-\d\d)")


def _age(recorded: str, now: dt.datetime) -> str:
    days = (now.date() - dt.date.fromisoformat(recorded)).days
    return "today" if not days else "1 day ago" if days == 1 else f"{days} days ago"


def _marked(message: Message, mark: Message) -> Message:
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**message, "content": [*parts[:-1], {**parts[-1], "cache_control": mark}]}


class Frozen:
    """The prompt of the conversation's first request, until its end."""

    name: ClassVar = "freeze"
    is_stale: ClassVar = True

    def __init__(self) -> None:
        self._prompts: dict[int, Any] = {}

    def request(self, moment: Moment) -> dict[str, Any]:
        """The keyword arguments of the request."""
        return moment.spelled(self._prompts.setdefault(moment.turn.conversation, moment.prompt), moment.messages)


@attrs.define
class _Told:
    first: Any
    latest: Any
    history: list[Message]


class Appended:
    """The prompt of the first request, and what differs from it line by line behind the messages of each turn."""

    name: ClassVar = "append a diff"
    is_stale: ClassVar = False

    def __init__(self) -> None:
        self._told: dict[int, _Told] = {}

    def request(self, moment: Moment) -> dict[str, Any]:
        """The keyword arguments of the request."""
        told = self._told.get(moment.turn.conversation)
        if told is None:
            told = self._told[moment.turn.conversation] = _Told(moment.prompt, moment.prompt, [])
        told.history.extend(moment.new)
        if moment.prompt is not told.latest:
            diff = _diff(told.latest.block(BLOCK), moment.prompt.block(BLOCK))
            if diff:
                told.history[-1:] = followed(told.history[-1], diff, moment.format)
            told.latest = moment.prompt
        return moment.spelled(told.first, told.history)


def _diff(before: Any, after: Any) -> str:
    """What is gone and what is new, each new statement under where it comes from, in the frame of its block."""
    old, new = _statements(before), _statements(after)
    gone, came = (
        collections.Counter(old) - collections.Counter(new),
        collections.Counter(new) - collections.Counter(old),
    )
    if not gone and not came:
        return ""
    lines = [f"-{statement}" for _, statement in gone]
    origin = ""
    for origin_of, statement in came:
        lines += [f"+{origin_of}"] if origin_of != origin else []
        lines.append(f"+{statement}")
        origin = origin_of
    heading, opening, *_, closing = (after if new else before).text.splitlines()
    return "\n".join(["What has changed in this block (- is gone, + is new):", heading, opening, *lines, closing])


def _statements(block: Any) -> list[tuple[str, str]]:
    found, origin = [], ""
    for line in block.text.splitlines()[2:-1]:
        if line.startswith("["):
            origin = line
        else:
            found.append((origin, line))
    return found


def followed(message: Message, text: str, format_: Format) -> list[Message]:
    """A message with a text behind it."""
    if format_ != "anthropic":
        return [message, {"role": "developer", "content": text}]
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [{**message, "content": [*parts, {"type": "text", "text": text}]}]


class Ours:
    """``keel.conversation``: a pinned base, deltas behind the messages, and another base where that pays."""

    name: ClassVar = "promptkeel"
    is_stale: ClassVar = False

    def __init__(self) -> None:
        self._open: dict[int, tuple[Any, list[Message]]] = {}

    def request(self, moment: Moment) -> dict[str, Any]:
        """The keyword arguments of the request."""
        number = moment.turn.conversation
        if number not in self._open:
            self._open[number] = (moment.keel.conversation(moment.scope, f"run-{number}"), [])
        conversation, history = self._open[number]
        request = conversation.turn(
            [*history, *moment.new],
            format=moment.format,
            model=moment.model,
            overrides=moment.overrides,
            **moment.settings,
        )
        self._open[number] = (conversation, list(request.history))
        return dict(request.arguments)


LAYOUTS: Final[tuple[Callable[[], Layout], ...]] = (Timestamped, Rebuilt, Peer, Frozen, Appended, Ours)
