"""Reasoning that a model has signed together with everything before it, once something there is not what it was.

A prompt changes with its memory, and a tail is gone with the next request: where a model holds its reasoning against
what stands before it, either the provider is told to drop what does not fit, or the operator is told what may happen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from promptkeel.prompt.adapters.places import Place
from promptkeel.providers.rules import ModelRules

_BINDING: Final = "block_binding"
_DROP: Final = {"prefix_mismatch_behavior": "drop_block"}
_NOTE: Final = (
    "the messages hold reasoning that this model binds to everything before it: once memory has changed, or a tail has "
    "gone, the provider may refuse it; leave it out, or keep a conversation"
)


def with_binding(
    thinking: object, places: Sequence[Place], rules: ModelRules
) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """What the request is to say of thinking in place of what the caller said, if anything, and what to note.

    Args:
        thinking: what the caller said of it; None where nothing.
        places: the positions of the request.
        rules: of the model.
    """
    if not rules.binds_reasoning or not any(place.kind == "reasoning" for place in places):
        return None, ()
    if not rules.drops_reasoning:
        return None, (_NOTE,)
    given = {"type": "adaptive"} if thinking is None else thinking
    if not isinstance(given, Mapping) or _BINDING in given or given.get("type") == "disabled":
        return None, ()
    return {**given, _BINDING: dict(_DROP)}, ()
