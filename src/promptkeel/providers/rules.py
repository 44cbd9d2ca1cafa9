"""What each provider does with prompts, as dated data: limits, prices, and where text may stand.

Providers change their rules; what was looked up, when and where is in ``rules.toml`` beside this module. A caller
overrides any of it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final, Literal, final

import attrs

from promptkeel.providers.segments import Kind

ProviderName = Literal["anthropic", "openai", "gemini", "bedrock"]
PROVIDERS: Final[tuple[ProviderName, ...]] = ("anthropic", "openai", "gemini", "bedrock")
Scheme = Literal["marks", "automatic", "handle", "none"]
"""How a provider keeps prefixes: up to marks, the longest one by itself, under a handle, or not at all."""
SystemTurns = Literal["refused", "after-user", "anywhere"]
"""Where a system or developer message may stand among the messages."""


@final
@attrs.frozen(order=False, kw_only=True)
class ModelRules:
    """What one provider does with the prompts of one model.

    Attributes:
        provider: the provider.
        model: the pattern of model names that these rules are for.
        as_of: when they were looked up.
        source: the address of the documentation.
        scheme: how it keeps prefixes.
        marks: the most marks that a request may hold; 0 where there are none.
        minimum: the tokens that a prefix must have to be kept.
        step: prefixes are matched in steps of so many tokens; 1 where they are matched by position.
        lookback: at how many positions a mark looks for what was kept, itself the first; None for all of them.
        ttls: for how many seconds a prefix can be kept, shortest first; the first is the default.
        write_factors: the price of writing against the price of input, one for each TTL.
        read_factor: the price of reading against the price of input.
        input_price: US dollars for a million tokens of input.
        output_price: US dollars for a million tokens of output.
        unmarkable: kinds of segments that no mark may follow.
        system_turns: where system messages may stand among the messages.
        binds_reasoning: whether reasoning in the messages is refused once anything before it has changed.
        drops_reasoning: whether a setting of the request lets the provider drop such reasoning instead.
        channels: where learned text of each trust stands by default; "unrecorded" is for a trust that is not recorded.
    """

    provider: ProviderName
    model: str
    as_of: dt.date
    source: str
    scheme: Scheme
    marks: int
    minimum: int
    step: int
    lookback: int | None
    ttls: tuple[int, ...]
    write_factors: tuple[float, ...]
    read_factor: float
    input_price: float
    output_price: float
    unmarkable: frozenset[Kind]
    system_turns: SystemTurns
    binds_reasoning: bool
    drops_reasoning: bool
    channels: Mapping[str, str]
