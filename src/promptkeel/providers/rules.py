"""What each provider does with prompts, as dated data: limits, prices, and where text may stand.

Providers change their rules; what was looked up, when and where is in ``rules.toml`` beside this module. A caller
overrides any of it.
"""

from __future__ import annotations

import datetime as dt
import fnmatch
import functools
import importlib.resources
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast, final

import attrs

from promptkeel.errors import InvalidDeclarationError
from promptkeel.providers.rule_tables import RuleTables, load_rules, parse_rules, read_rules
from promptkeel.providers.segments import Kind
from promptkeel.providers.terms import PROVIDERS, ProviderName, Scheme, SystemTurns

__all__ = [
    "PROVIDERS", "Channels", "ModelRules", "ProviderName", "RuleTables", "Scheme", "SystemTurns", "base_name",
    "known_models", "load_rules", "read_rules", "rules_for", "rules_table",
]  # fmt: skip


@final
@attrs.frozen(order=False)
class Channels(Mapping[str, str]):
    """Where learned text of each trust stands by default: "system", "user" or "tool_result".

    Attributes:
        pairs: each trust with its channel; "unrecorded" is for a trust that is not recorded.
    """

    pairs: tuple[tuple[str, str], ...]

    def __getitem__(self, trust: str) -> str:
        for each, channel in self.pairs:
            if each == trust:
                return channel
        raise KeyError(trust)

    def __iter__(self) -> Iterator[str]:
        return (trust for trust, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


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
        input_price: US dollars for a million tokens of input; None where it is not known.
        output_price: US dollars for a million tokens of output; None where it is not known.
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
    input_price: float | None
    output_price: float | None
    unmarkable: frozenset[Kind]
    system_turns: SystemTurns
    binds_reasoning: bool
    drops_reasoning: bool
    channels: Channels


def rules_for(provider: str, model: str, *, overrides: Iterable[RuleTables | Mapping[str, Any]] = ()) -> ModelRules:
    """What a provider does with the prompts of a model.

    A model that no pattern names gets the most careful rules that its provider has, and no prices. Of overrides, later
    ones win over earlier ones; within one, what names the model most closely wins, key by key.

    Args:
        provider: "anthropic", "openai", "gemini" or "bedrock".
        model: the model, as a request names it.
        overrides: what ``load_rules`` read, or mappings of the same shape.

    Raises:
        InvalidDeclarationError: there is no such provider, or an override cannot mean anything.
    """
    _check_provider(provider)
    if not isinstance(model, str):
        raise InvalidDeclarationError(f"must be text, not {type(model).__name__}", field="model")
    given = tuple(each if isinstance(each, RuleTables) else read_rules(each) for each in overrides)
    return _merged(provider, model, given)


def known_models(provider: str) -> tuple[str, ...]:
    """The patterns of models that the packaged data has rules of their own for, in its order.

    Raises:
        InvalidDeclarationError: there is no such provider.
    """
    _check_provider(provider)
    return tuple(_packaged().providers[provider].models)


def rules_table(*, overrides: Iterable[RuleTables | Mapping[str, Any]] = ()) -> tuple[ModelRules, ...]:
    """The rules of every pattern of models that the packaged data or an override names, those of all others first.

    Raises:
        InvalidDeclarationError: an override cannot mean anything.
    """
    given = tuple(each if isinstance(each, RuleTables) else read_rules(each) for each in overrides)
    found = []
    for provider in PROVIDERS:
        tables = [each.providers[provider] for each in (_packaged(), *given) if provider in each.providers]
        patterns = dict.fromkeys(pattern for table in tables for pattern in table.models)
        found += [rules_for(provider, pattern, overrides=given) for pattern in ("*", *patterns)]
    return tuple(dict.fromkeys(found))


def _check_provider(provider: object) -> None:
    if provider not in PROVIDERS:
        raise InvalidDeclarationError(f"there is no {provider!r}; there are {', '.join(PROVIDERS)}", field="provider")


@functools.cache
def _packaged() -> RuleTables:
    file = importlib.resources.files("promptkeel.providers").joinpath("rules.toml")
    return parse_rules(file.read_bytes(), where="rules.toml")


@functools.lru_cache(maxsize=256)
def _merged(provider: str, model: str, overrides: tuple[RuleTables, ...]) -> ModelRules:
    values: dict[str, Any] = {"input_price": None, "output_price": None}
    channels: dict[str, str] = {}
    matched = "*"
    for tables in (_packaged(), *overrides):
        table = tables.providers.get(provider)
        if table is None:
            continue
        patterns = _matching(provider, model, table.models)
        for keys in (table.keys, *(table.models[each] for each in patterns)):
            values.update(keys)
            channels.update(keys.get("channels", {}))
        matched = patterns[-1] if patterns else matched
        _check_together(values, table.where)
    values["channels"] = Channels(tuple(channels.items()))
    return ModelRules(provider=cast("ProviderName", provider), model=matched, **values)


def _check_together(values: Mapping[str, Any], where: str) -> None:
    ttls, factors = list(values["ttls"]), list(values["write_factors"])
    if len(ttls) != len(factors):
        raise InvalidDeclarationError(
            f"must have one for each of the TTLs {ttls}, not {factors}", field="write_factors", where=where
        )
    if (values["scheme"] == "marks") != (values["marks"] > 0):
        due = "above 0" if values["scheme"] == "marks" else "0"
        raise InvalidDeclarationError(
            f"must be {due} with scheme {values['scheme']!r}, not {values['marks']}", field="marks", where=where
        )


def _matching(provider: str, model: str, patterns: Iterable[str]) -> list[str]:
    """The patterns that name a model, the most specific last."""
    names = {model, base_name(provider, model)}
    found = [each for each in patterns if any(fnmatch.fnmatchcase(name, each) for name in names)]
    return sorted(found, key=lambda pattern: (sum(each not in "*?[]" for each in pattern), "*" not in pattern, pattern))


_DATE: Final = re.compile(r"[-@](20\d{6}|20\d\d-\d\d-\d\d|latest)$")
_BEDROCK_VERSION: Final = re.compile(r"-v\d+(:\d+)?(:\w+)?$")
_VENDOR: Final = re.compile(r"^(.*[/.])?((anthropic|amazon)\.)")


def base_name(provider: str, model: str) -> str:
    """A model's name without what says only where it runs or when it was cut: path, region, version, date.

    ``us.anthropic.claude-opus-4-5-20251101-v1:0`` is ``anthropic.claude-opus-4-5``.
    """
    name = model
    if provider == "bedrock":
        name = _VENDOR.sub(r"\2", _BEDROCK_VERSION.sub("", name))
    elif provider == "gemini":
        name = name.rpartition("/")[2]
    return _DATE.sub("", name)
