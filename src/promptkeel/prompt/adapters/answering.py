"""The answer of an adapter, whatever the provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from promptkeel.prompt.adapters.asked import Asked
from promptkeel.prompt.breakpoints import MarkPlan
from promptkeel.prompt.requests import CachedPrefix, Request


def answered(
    asked: Asked,
    arguments: dict[str, Any],
    messages: Sequence[Any],
    plan: MarkPlan | None = None,
    notes: Sequence[str] = (),
    prefix: CachedPrefix | None = None,
    superseded: str | None = None,
) -> Request:
    """The request, with everything that the operator should know."""
    planned = () if plan is None else [note.text for note in plan.notes]
    return Request(
        arguments=arguments,
        history=list(messages),
        notes=(*asked.layout.notes, *planned, *notes),
        layout=asked.layout,
        counter=asked.counter,
        plan=plan,
        prefix=prefix,
        superseded=superseded,
    )
