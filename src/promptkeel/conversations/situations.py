"""What a turn is asked for, and what it finds: values that its decisions are made of. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, final

import attrs

from promptkeel.conversations.finding import Reading
from promptkeel.conversations.keeping import State
from promptkeel.conversations.messages import Message
from promptkeel.conversations.records import TurnRecord
from promptkeel.errors import InvalidInputError
from promptkeel.prompt import Prompt
from promptkeel.providers.canonical import canonical_tools
from promptkeel.providers.rules import ModelRules
from promptkeel.providers.segments import WireFormat
from promptkeel.store.base import Heads


@final
@attrs.frozen(kw_only=True, eq=False)
class Asked:
    """What a turn is asked for.

    Attributes:
        messages: the caller's.
        format: how they are spelled.
        model: for which model.
        tools: the caller's.
        tail: what this request says beyond memory.
        overrides: what is known better of the provider's rules.
        settings: other arguments of the call.
    """

    messages: list[Message]
    format: WireFormat
    model: str
    tools: Sequence[Any] | None
    tail: Any
    overrides: tuple[Any, ...]
    settings: Mapping[str, Any]


@final
@attrs.frozen(kw_only=True, eq=False)
class Situation:
    """What a turn finds.

    Attributes:
        prompt: what memory says now.
        heads: at which it holds.
        state: what the store keeps of the conversation.
        reading: what the caller's messages hold.
        hashes: of each prefix of the messages without own parts and reasoning.
        origins: the index, in the caller's messages, of each message that the hashes are of.
        parent: the request that went furthest along the same messages.
        rules: the provider's.
        tools: a hash of the tools.
        now: the present instant.
    """

    prompt: Prompt
    heads: Heads
    state: State
    reading: Reading
    hashes: list[str]
    origins: list[int]
    parent: TurnRecord | None
    rules: ModelRules
    tools: str
    now: int


def tools_hash(asked: Asked) -> str:
    """A hash of the tools, as they are sent."""
    spelled = "" if asked.tools is None else json.dumps(canonical_tools(asked.format, asked.tools))
    return hashlib.sha256(spelled.encode()).hexdigest()[:32]


def checked_model(model: object) -> str:
    """The name of the model.

    Raises:
        InvalidInputError: it is no text, or blank.
    """
    if not isinstance(model, str) or not model.strip():
        raise InvalidInputError(f"must be the name of a model, not {model!r:.40}", field="model")
    return model
