"""How much an agent may write, and how often."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, final

import attrs

from promptkeel.errors import InvalidDeclarationError, ToolRateError
from promptkeel.forks import after_fork


def _check_count(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if type(value) is not int or value < 1:
        raise InvalidDeclarationError(f"must be a whole number from 1, not {value!r}", field=attribute.name)


def _check_seconds(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise InvalidDeclarationError(f"must be a number of seconds above 0, not {value!r}", field=attribute.name)


@final
@attrs.frozen(kw_only=True, order=False)
class ToolLimits:
    """The bounds of one agent's tools.

    Attributes:
        text_characters: of one statement, or of one piece of text that is given.
        block_characters: of the whole text of a block that the agent writes.
        block_facts: statements that the scope's own lane of a block may hold for the agent to add one.
        calls: how many calls are taken in any ``seconds``, refused ones too; counted in this process.
        seconds: of that window.
    """

    text_characters: int = attrs.field(default=500, validator=_check_count)
    block_characters: int = attrs.field(default=8_000, validator=_check_count)
    block_facts: int = attrs.field(default=500, validator=_check_count)
    calls: int = attrs.field(default=30, validator=_check_count)
    seconds: float = attrs.field(default=60.0, validator=_check_seconds)


@final
class Rate:
    """Counts calls in a sliding window. Safe from any thread.

    Args:
        limits: how many in how long.
        now: answers seconds that never run back.
    """

    def __init__(self, limits: ToolLimits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._lock = threading.Lock()
        self._calls: deque[float] = deque()
        after_fork(self, Rate._unlock)

    def _unlock(self) -> None:
        self._lock = threading.Lock()

    def take(self) -> None:
        """Count one call.

        Raises:
            ToolRateError: there were too many; says in how many seconds the next one is taken.
        """
        with self._lock:
            now = self._now()
            while self._calls and self._calls[0] <= now - self._limits.seconds:
                self._calls.popleft()
            if len(self._calls) >= self._limits.calls:
                raise ToolRateError(self._calls[0] + self._limits.seconds - now)
            self._calls.append(now)
