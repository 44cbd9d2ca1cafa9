"""Why cached tokens are lost: every cause by its name, with one sentence and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, final

import attrs


@final
class Cause(enum.Enum):
    """One reason why a prefix that could have been read from the cache was not."""

    TOOLS_CHANGED = "tools-changed"
    TOOLS_REORDERED = "tools-reordered"
    TOOL_MARKS = "tool-marks"
    MODEL_CHANGED = "model-changed"
    SYSTEM_EDITED = "system-edited"
    SYSTEM_REORDERED = "system-reordered"
    TIMESTAMP = "timestamp"
    IDENTIFIER = "identifier"
    COUNTER = "counter"
    AGE = "age"
    HISTORY_EDITED = "history-edited"
    HISTORY_REORDERED = "history-reordered"
    HISTORY_TRIMMED = "history-trimmed"
    HISTORY_COMPACTED = "history-compacted"
    REASONING_REMOVED = "reasoning-removed"
    KEY_ORDER = "key-order"
    WHITE_SPACE = "white-space"
    NORMALISATION = "unicode-normalisation"
    MEDIA_REENCODED = "media-reencoded"
    TTL_OVER = "ttl-over"
    BELOW_MINIMUM = "below-minimum"
    LOOKBACK_EXCEEDED = "lookback-exceeded"
    MARKS_DROPPED = "marks-dropped"
    MARK_MISSING = "mark-missing"
    MARK_ON_CHANGING = "mark-on-changing-block"
    PARALLEL_START = "parallel-start"
    KEY_CHANGED = "cache-key-changed"
    SALT_CHANGED = "salt-changed"
    GATEWAY_CHANGED = "gateway-changed"
    RETENTION_CHANGED = "retention-changed"
    TOOL_CHOICE_CHANGED = "tool-choice-changed"
    REASONING_CHANGED = "reasoning-setting-changed"
    RESPONSE_FORMAT_CHANGED = "response-format-changed"
    SETTING_CHANGED = "setting-changed"
    HANDLE_CHANGED = "handle-changed"
    UNKNOWN = "unknown"

    @property
    def sentence(self) -> str:
        """What happened."""
        return _ABOUT[self].sentence

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return _ABOUT[self].remedy


@final
@attrs.frozen(order=False)
class _About:
    sentence: str
    remedy: str


_ABOUT: Final[Mapping[Cause, _About]] = {
    Cause.TOOLS_CHANGED: _About(
        "A tool was added, removed or defined in another way.",
        "Keep one set of tools for a conversation; defer rare ones to a tool search.",
    ),
    Cause.TOOLS_REORDERED: _About(
        "The same tools came in another order.",
        "Sort the tools by name before each request.",
    ),
    Cause.TOOL_MARKS: _About(
        "The tools stay the same behind changing text, and no mark keeps them by themselves.",
        "Set a mark on the last tool.",
    ),
    Cause.MODEL_CHANGED: _About(
        "The request went to another model, which has a cache of its own.",
        "Pin the model, with its date instead of an alias, for a conversation.",
    ),
    Cause.SYSTEM_EDITED: _About(
        "The text of a system block changed.",
        "Keep it for the conversation and send what changed behind the history.",
    ),
    Cause.SYSTEM_REORDERED: _About(
        "The same system blocks came in another order.",
        "Give the blocks one fixed order.",
    ),
    Cause.TIMESTAMP: _About(
        "A clock time or a date in the prefix moved.",
        "Move it into the newest message, or round it to what the model needs.",
    ),
    Cause.IDENTIFIER: _About(
        "A random identifier in the prefix differs in each request.",
        "Leave it out, or send it as metadata of the request.",
    ),
    Cause.COUNTER: _About(
        "A number in the prefix counts on.",
        "Leave it out, or move it into the newest message.",
    ),
    Cause.AGE: _About(
        "A text in the prefix says how old something is, against the clock.",
        "Write the absolute time instead.",
    ),
    Cause.HISTORY_EDITED: _About(
        "An earlier message says something else than before.",
        "Append a correction instead of editing what was sent.",
    ),
    Cause.HISTORY_REORDERED: _About(
        "Earlier messages or blocks came in another order.",
        "Keep messages as they were sent.",
    ),
    Cause.HISTORY_TRIMMED: _About(
        "Earlier messages were left out, and the later ones moved up.",
        "Trim seldom and much instead of a little at every turn.",
    ),
    Cause.HISTORY_COMPACTED: _About(
        "Earlier messages were replaced by a shorter text.",
        "Compact seldom; let the provider compact where it can.",
    ),
    Cause.REASONING_REMOVED: _About(
        "Reasoning of earlier turns was left out.",
        "Send reasoning back as it came, for as long as the provider asks for it.",
    ),
    Cause.KEY_ORDER: _About(
        "The same JSON object was spelled with its keys in another order.",
        "Send calls and results back byte for byte, or sort their keys always.",
    ),
    Cause.WHITE_SPACE: _About(
        "The same text came with other white space.",
        "Send text back byte for byte; do not strip or format it again.",
    ),
    Cause.NORMALISATION: _About(
        "The same text came in another Unicode normal form.",
        "Normalise once, where text comes in.",
    ),
    Cause.MEDIA_REENCODED: _About(
        "The data of a picture or a document differs.",
        "Encode it once and send the same bytes or the same file id.",
    ),
    Cause.TTL_OVER: _About(
        "What was kept had expired when the request came.",
        "Use the longer lifetime where pauses are longer than the default.",
    ),
    Cause.BELOW_MINIMUM: _About(
        "The prefix is shorter than the least that the model keeps.",
        "Put more of what stays the same before the mark, or do without it.",
    ),
    Cause.LOOKBACK_EXCEEDED: _About(
        "More blocks were added than a mark looks back over.",
        "Set a second mark in between, or send long turns in more requests.",
    ),
    Cause.MARKS_DROPPED: _About(
        "The request had more marks than the provider takes, and a needed one was dropped.",
        "Set at most as many marks as the model's rules allow.",
    ),
    Cause.MARK_MISSING: _About(
        "What stayed the same was not marked to be kept.",
        "Set a mark on the last block of the newest message.",
    ),
    Cause.MARK_ON_CHANGING: _About(
        "The mark stood on a block that the next request does not hold.",
        "Set the mark on the last block that stays.",
    ),
    Cause.PARALLEL_START: _About(
        "The request started before the one that wrote its prefix had begun to answer.",
        "Let one request begin to answer before its siblings start.",
    ),
    Cause.KEY_CHANGED: _About(
        "The cache key differs from that of the request before.",
        "Derive the key from what the prefix depends on, and from nothing else.",
    ),
    Cause.SALT_CHANGED: _About(
        "The cache salt differs from that of the request before.",
        "Derive the salt from the tenant, not from the request.",
    ),
    Cause.GATEWAY_CHANGED: _About(
        "The same bytes went through another gateway, region, workspace or key.",
        "Keep a conversation on one route.",
    ),
    Cause.RETENTION_CHANGED: _About(
        "The request asked for another retention of what is kept.",
        "Ask for the same retention throughout a conversation.",
    ),
    Cause.TOOL_CHOICE_CHANGED: _About(
        "The choice of tools was set in another way.",
        "Leave it alone; ask for the tool in the newest message.",
    ),
    Cause.REASONING_CHANGED: _About(
        "Reasoning or effort was set in another way.",
        "Keep one setting for a conversation.",
    ),
    Cause.RESPONSE_FORMAT_CHANGED: _About(
        "Another format of the answer was asked for.",
        "Keep one format for a conversation, or ask for it by a tool.",
    ),
    Cause.SETTING_CHANGED: _About(
        "Another setting of the request differs.",
        "Keep settings for a conversation.",
    ),
    Cause.HANDLE_CHANGED: _About(
        "The kept prefix or earlier response that the request named had expired or was made anew.",
        "Prolong the handle while it is in use, and make it anew only where its content changed.",
    ),
    Cause.UNKNOWN: _About(
        "The same bytes came in time and were not read: evicted, routed elsewhere, or not known.",
        "Compare with the provider's own diagnostics; send fewer requests per minute for one prefix, or a cache key.",
    ),
}

VOLATILE: Final = (Cause.TIMESTAMP, Cause.IDENTIFIER, Cause.COUNTER, Cause.AGE)
"""The causes that are bytes which differ in each request."""
CAUSES: Final = tuple(Cause)

_SPOKEN: Final[Mapping[str, frozenset[Cause]]] = {
    "model": frozenset({Cause.MODEL_CHANGED}),
    "tools": frozenset({Cause.TOOLS_CHANGED, Cause.TOOLS_REORDERED, Cause.KEY_ORDER, Cause.WHITE_SPACE, *VOLATILE,
                        Cause.NORMALISATION}),
    "system": frozenset({Cause.SYSTEM_EDITED, Cause.SYSTEM_REORDERED, Cause.WHITE_SPACE, Cause.NORMALISATION,
                         *VOLATILE}),
    "messages": frozenset({Cause.HISTORY_EDITED, Cause.HISTORY_REORDERED, Cause.HISTORY_TRIMMED,
                           Cause.HISTORY_COMPACTED, Cause.REASONING_REMOVED, Cause.KEY_ORDER, Cause.WHITE_SPACE,
                           Cause.NORMALISATION, Cause.MEDIA_REENCODED, Cause.MARK_ON_CHANGING, *VOLATILE,
                           Cause.TOOL_CHOICE_CHANGED, Cause.REASONING_CHANGED}),
}  # fmt: skip
_WORST: Final[Mapping[str, Cause]] = {
    "model": Cause.MODEL_CHANGED,
    "tools": Cause.TOOLS_CHANGED,
    "system": Cause.SYSTEM_EDITED,
    "messages": Cause.HISTORY_EDITED,
}


def contradicts(reason: str, cause: Cause) -> bool:
    """Whether a provider's reason for a miss names another part of the request than a cause does.

    A reason that says nothing of a part, as ``unavailable`` does, contradicts none.
    """
    part = _part(reason)
    return part is not None and cause not in _SPOKEN[part] and cause is not Cause.UNKNOWN


def cause_of_reason(reason: str) -> Cause:
    """The cause that a provider's reason for a miss comes to."""
    part = _part(reason)
    return Cause.UNKNOWN if part is None else _WORST[part]


def _part(reason: str) -> str | None:
    lowered = reason.lower()
    if "changed" not in lowered and "mismatch" not in lowered:
        return None
    return next((part for part in ("model", "tools", "system", "messages") if part.removesuffix("s") in lowered), None)
