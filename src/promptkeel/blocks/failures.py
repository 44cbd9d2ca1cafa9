"""What a block does when its source cannot be read: a declared value, and what each choice means.

Only failures to read are a matter of policy: an unavailable source or store, an ``OSError``, a timeout. Defects are
errors whatever was declared.
"""

from __future__ import annotations

from typing import Any, Final, Literal, final

import attrs

from promptkeel.errors import InvalidDeclarationError

FailureAction = Literal["fail_closed", "omit", "last_known_good"]
FAILURE_ACTIONS: Final[tuple[FailureAction, ...]] = ("fail_closed", "omit", "last_known_good")
_YEAR: Final = 31_622_400
"""Seconds; far more than the system's clocks take is no time to wait."""
DEFAULT_MAX_AGE: Final = 300.0
"""For how many seconds a last known good block is shown where nothing else is declared."""


@final
@attrs.frozen(order=False)
class FailurePolicy:
    """What a block does when its source cannot be read.

    ``fail_closed`` raises. ``omit`` leaves the block out, and a notice in the volatile tail says so.
    ``last_known_good`` shows what this process last read for this very scope, for at most ``max_age`` seconds since,
    and raises without it; an erasure in this process ends it at once, one elsewhere when the store is read again or
    ``max_age`` is over.

    Attributes:
        action: which of the three.
        max_age: seconds; 300 unless declared; for ``last_known_good`` only.
        mark_text: whether a line in front of the block's text says that it may be out of date.
    """

    action: FailureAction = attrs.field()
    max_age: float | None = attrs.field(default=None, kw_only=True)
    mark_text: bool = attrs.field(default=True, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if type(self.action) is not str or self.action not in FAILURE_ACTIONS:
            raise InvalidDeclarationError(f"must be one of {', '.join(FAILURE_ACTIONS)}", field="on_failure")
        if type(self.mark_text) is not bool:
            raise InvalidDeclarationError("must be True or False", field="on_failure.mark_text")
        if self.action != "last_known_good":
            if self.max_age is not None:
                raise InvalidDeclarationError(
                    f"goes with last_known_good only; leave it out of {self.action}", field="on_failure.max_age"
                )
        elif self.max_age is None:
            object.__setattr__(self, "max_age", DEFAULT_MAX_AGE)
        else:
            check_seconds(self.max_age, "on_failure.max_age")

    def __str__(self) -> str:
        return self.action


def check_seconds(seconds: Any, field: str) -> None:
    """Check a number of seconds.

    Raises:
        InvalidDeclarationError: it is no number above 0, or more than a year.
    """
    if type(seconds) not in (int, float) or not 0 < seconds <= _YEAR:
        raise InvalidDeclarationError(
            f"must be a number of seconds above 0 and at most {_YEAR}, not {seconds!r}", field=field
        )


def failure_policy(given: object) -> FailurePolicy:
    """The policy that was given, as a value or by its name.

    Raises:
        InvalidDeclarationError: it is neither.
    """
    if isinstance(given, FailurePolicy):
        return given
    if isinstance(given, str):
        return FailurePolicy(given)  # type: ignore[arg-type]  # checked there
    raise InvalidDeclarationError(
        f"must be a FailurePolicy, or one of {', '.join(FAILURE_ACTIONS)}", field="on_failure"
    )
