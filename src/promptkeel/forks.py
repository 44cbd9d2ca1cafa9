"""What an object does in a forked child: threads do not come along, so locks that they held are made anew."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_watched: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def after_fork(watched: T, forget: Callable[[T], None]) -> None:
    """Call ``forget(watched)`` in every child that is forked while ``watched`` lives; it is held weakly."""
    _watched[watched] = forget


def _in_child() -> None:
    for watched, forget in list(_watched.items()):
        forget(watched)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
