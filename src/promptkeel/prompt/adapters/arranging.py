"""How a layout and a caller's messages become one list of messages, whatever the format.

What lasts stands before the caller's messages, what changes from turn to turn behind what a cache keeps of them. Text
that belongs into a tool's result is the result of a call that the host makes in the model's name. The caller's own
messages are handed on as they are; where something must stand inside of one, a copy gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, final

import attrs

from promptkeel.prompt.layout import Layout, TailPart

Message = dict[str, Any]

TOOL_NAME: Final = "standing_memory"
"""The name of the tool whose results hold text that third parties may have written."""
TOOL_DESCRIPTION: Final = (
    "Reads the memory that is kept for this conversation. The host calls it by itself, and its newest result is always "
    "in the conversation already: never call it."
)
BASE_CALL: Final = "standing_memory_base"
TAIL_CALL: Final = "standing_memory_now"
"""The ids of the calls that the host makes."""
REQUEST: Final = "Read the memory that is kept for this conversation."
"""What stands before a call that nobody asked for."""
ACKNOWLEDGEMENT: Final = "I have read it."
"""What the model is made to say after such a result, so that what follows is a turn of its own."""


class Spelling(Protocol):
    """The messages of one format."""

    @property
    def alternates(self) -> bool:
        """Whether a user's message must not follow another one."""

    def user(self, texts: Sequence[str]) -> Message:
        """A message of the user's, a part for each text."""

    def assistant(self, text: str) -> Message:
        """A message of the model's."""

    def call(self, call_id: str) -> Message:
        """A call of the tool in the model's name."""

    def results(self, call_id: str, results: Sequence[str], texts: Sequence[str]) -> list[Message]:
        """The messages that hold the results of a call, and texts of the user's behind them."""

    def with_texts(self, message: Any, texts: Sequence[str]) -> Message | None:
        """A copy of a user's message with texts at its end; None where they need a message of their own."""

    def is_user(self, message: Any) -> bool:
        """Whether this is a message of the user's, or holds results of tools."""

    def opens_turn(self, message: Any) -> bool:
        """Whether this is a message of the user's that is not only results of tools."""

    def answers(self, message: Any) -> bool:
        """Whether the model said this."""


@final
@attrs.frozen
class Arranged:
    """The caller's messages with a tail.

    Attributes:
        kept: how many of the caller's messages stand in front of the whole tail, so that a cache may keep them.
        after: what follows them.
        inside: whether the tail is inside the last of the kept ones: then the first of ``after`` is its copy, which
            stands in its place.
    """

    kept: int
    after: list[Any]
    inside: bool = False


def preamble(layout: Layout, spelling: Spelling) -> list[Message]:
    """What lasts and stands in front of the caller's messages."""
    user = [section.text for section in layout.of("user")]
    results = [section.text for section in layout.of("tool_result")]
    if results:
        first = spelling.user(user or [REQUEST])
        call, *answers = spelling.call(BASE_CALL), *spelling.results(BASE_CALL, results, ())
        return [first, call, *answers, spelling.assistant(ACKNOWLEDGEMENT)]
    if not user:
        return []
    return [spelling.user(user), *([spelling.assistant(ACKNOWLEDGEMENT)] if spelling.alternates else [])]


def with_tail(
    messages: Sequence[Any], tail: Sequence[TailPart], spelling: Spelling, *, in_turn: bool = True
) -> Arranged:
    """The caller's messages with a tail.

    Args:
        messages: the caller's.
        tail: what changes from turn to turn.
        spelling: the format's.
        in_turn: whether a call may stand within the turn that is going on; else it stands in front of that turn.
    """
    if not tail:
        return Arranged(len(messages), [])
    texts = [part.text for part in tail if part.channel != "tool_result"]
    results = [part.text for part in tail if part.channel == "tool_result"]
    last = _last(messages, spelling.is_user)
    # What the model has begun to say itself stays the last thing.
    end = len(messages) if last is None else last + 1
    if results and not in_turn:
        at = _last(messages[:end], spelling.opens_turn) or 0
        called = [
            spelling.user([REQUEST]),
            spelling.call(TAIL_CALL),
            *spelling.results(TAIL_CALL, results, ()),
            spelling.assistant(ACKNOWLEDGEMENT),
        ]
        rest = _with_texts(messages[at:end], texts, spelling) if texts else messages[at:end]
        return Arranged(at, [*called, *rest, *messages[end:]])
    if results:
        asked = [spelling.user([REQUEST])] if last is None else []
        called = [*asked, spelling.call(TAIL_CALL), *spelling.results(TAIL_CALL, results, texts)]
        return Arranged(end, [*called, *messages[end:]])
    *_, changed = _with_texts(messages[:end], texts, spelling)
    inside = last is not None and spelling.with_texts(messages[last], texts) is not None
    return Arranged(end, [changed, *messages[end:]], inside=inside)


def _with_texts(messages: Sequence[Any], texts: Sequence[str], spelling: Spelling) -> list[Any]:
    """Messages with texts of the user's behind them, in the last one where that is the user's and can hold them."""
    copied = spelling.with_texts(messages[-1], texts) if messages and spelling.is_user(messages[-1]) else None
    return [*messages, spelling.user(texts)] if copied is None else [*messages[:-1], copied]


def _last(messages: Sequence[Any], holds: Callable[[Any], bool]) -> int | None:
    """The position of the last message of which something holds."""
    for position in range(len(messages) - 1, -1, -1):
        if holds(messages[position]):
            return position
    return None
