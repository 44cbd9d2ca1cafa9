"""What each provider does with prompts, as dated data: limits, prices, and where text may stand.

Providers change their rules; what was looked up, when and where is in ``rules.toml`` beside this module. A caller
overrides any of it.
"""

from __future__ import annotations

import datetime as dt
import difflib
import fnmatch
import functools
import importlib.resources
import math
import os
import re
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, cast, final, get_args

import attrs

from promptkeel.errors import InvalidDeclarationError, SourceUnavailableError
from promptkeel.model import TRUST_LEVELS
from promptkeel.providers.segments import KINDS, Kind

ProviderName = Literal["anthropic", "openai", "gemini", "bedrock"]
PROVIDERS: Final[tuple[ProviderName, ...]] = ("anthropic", "openai", "gemini", "bedrock")
Scheme = Literal["marks", "automatic", "handle", "none"]
"""How a provider keeps prefixes: up to marks, the longest one by itself, under a handle, or not at all."""
SystemTurns = Literal["refused", "after-user", "anywhere"]
"""Where a system or developer message may stand among the messages."""
TRUSTS: Final = (*TRUST_LEVELS, "unrecorded")
"""The trusts of learned text, and "unrecorded" where none is recorded."""
CHANNELS: Final = ("system", "user", "tool_result")
"""Where learned text can stand."""


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
    channels: Mapping[str, str]


@final
@attrs.frozen(order=False)
class RuleTables:
    """What one file or mapping says of providers: a table for each provider, and in it one for each pattern of models.

    Attributes:
        where: what errors call it.
        providers: the keys of each provider, which speak for all of its models, and those of each pattern.
    """

    where: str
    providers: Mapping[str, ProviderTable]


@final
@attrs.frozen(order=False)
class ProviderTable:
    """What a file says of one provider.

    Attributes:
        keys: what it says of all models.
        models: what it says of the models that a pattern names.
    """

    keys: Mapping[str, Any]
    models: Mapping[str, Mapping[str, Any]]


def rules_for(provider: str, model: str, *, overrides: Iterable[RuleTables | Mapping[str, Any]] = ()) -> ModelRules:
    """What a provider does with the prompts of a model.

    A model that no pattern names gets the most careful rules that its provider has, and no prices. Later overrides win
    over earlier ones; within one, what names the model most closely wins, key by key.

    Args:
        provider: "anthropic", "openai", "gemini" or "bedrock".
        model: the model, as a request names it.
        overrides: what ``load_rules`` read, or a mapping of the same shape.

    Raises:
        InvalidDeclarationError: there is no such provider, or an override cannot mean anything.
    """
    if provider not in PROVIDERS:
        raise InvalidDeclarationError(f"{provider!r} is none; there are {', '.join(PROVIDERS)}", field="provider")
    if not isinstance(model, str):
        raise InvalidDeclarationError(f"must be text, not {type(model).__name__}", field="model")
    given = tuple(each if isinstance(each, RuleTables) else read_rules(each) for each in overrides)
    return _merged(provider, model, given) if given else _packaged_rules(provider, model)


def load_rules(path: str | os.PathLike[str]) -> RuleTables:
    """The rules that a TOML file declares, in the shape of the packaged ``rules.toml``; any part may be left out.

    Raises:
        InvalidDeclarationError: it cannot mean anything; names the file, the table and the key.
        SourceUnavailableError: it cannot be read.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SourceUnavailableError(f"cannot read {path}: {error.strerror or error}") from error
    return _parsed(content, path.name)


def read_rules(tables: Mapping[str, Any], *, where: str = "overrides") -> RuleTables:
    """The rules that a mapping declares, in the shape of ``rules.toml``.

    Raises:
        InvalidDeclarationError: they cannot mean anything; names the table and the key.
    """
    return RuleTables(where, {name: _provider(name, table, where) for name, table in _items(tables, where)})


def known_models(provider: str) -> tuple[str, ...]:
    """The patterns of models that the packaged data has rules of their own for, in its order.

    Raises:
        InvalidDeclarationError: there is no such provider.
    """
    if provider not in PROVIDERS:
        raise InvalidDeclarationError(f"{provider!r} is none; there are {', '.join(PROVIDERS)}", field="provider")
    return tuple(_packaged().providers[provider].models)


def _parsed(content: bytes, where: str) -> RuleTables:
    try:
        tables = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InvalidDeclarationError(f"is not UTF-8 at byte {error.start}", where=where) from None
    except RecursionError:
        raise InvalidDeclarationError("is nested too deeply", where=where) from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidDeclarationError(f"is no TOML: {error}", where=where) from None
    return read_rules(tables, where=where)


def _items(tables: object, where: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(tables, Mapping):
        raise InvalidDeclarationError(f"must be a mapping of providers, not {type(tables).__name__}", where=where)
    for name, table in tables.items():
        if name not in PROVIDERS:
            raise InvalidDeclarationError(f"is no provider; {_hint(name, PROVIDERS)}", field=str(name), where=where)
        yield name, table


def _provider(name: str, table: object, file: str) -> ProviderTable:
    keys = _table(table, file, name)
    models = _table(keys.get("models", {}), file, f"{name}.models")
    plain = {key: value for key, value in keys.items() if key != "models"}
    return ProviderTable(
        _checked(plain, file, name),
        {
            pattern: _checked(_table(each, file, f"{name}.models.{pattern!r}"), file, f"{name}.models.{pattern!r}")
            for pattern, each in models.items()
        },
    )


def _table(value: object, file: str, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidDeclarationError("must be a table", where=f"{file}, [{name}]")
    return value


def _checked(keys: Mapping[str, Any], file: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in keys.items():
        where = f"{file}, [{name}]"
        if key not in _KEYS:
            raise InvalidDeclarationError(f"is no key here; {_hint(key, sorted(_KEYS))}", field=key, where=where)
        try:
            found[key] = _KEYS[key](value)
        except (TypeError, ValueError) as error:
            raise InvalidDeclarationError(f"must be {error}, not {value!r}", field=key, where=where) from None
    return found


def _hint(name: object, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), known := list(known), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"


def _number(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"a whole number of at least {least}")
        return value

    return read


def _rate(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError("a number of at least 0")
    return float(value)


def _each(read: Callable[[Any], Any], what: str) -> Callable[[Any], tuple[Any, ...]]:
    def read_all(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or not value:
            raise ValueError(f"a list of {what}")
        try:
            return tuple(read(each) for each in value)
        except ValueError:
            raise ValueError(f"a list of {what}") from None

    return read_all


def _ascending(value: Any) -> tuple[int, ...]:
    found: tuple[int, ...] = _each(_number(1), "seconds, shortest first")(value)
    if list(found) != sorted(set(found)):
        raise ValueError("a list of seconds, shortest first")
    return found


def _one_of(known: Iterable[str]) -> Callable[[Any], str]:
    names = tuple(known)

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return value

    return read


def _kinds(value: Any) -> frozenset[str]:
    if not isinstance(value, list | tuple | set | frozenset):
        raise TypeError(f"a list of kinds: {', '.join(KINDS)}")
    return frozenset(_one_of(KINDS)(each) for each in value)


def _channels(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not set(value) <= set(TRUSTS) or not set(value.values()) <= set(CHANNELS):
        raise ValueError(f"a table from {', '.join(TRUSTS)} to {', '.join(CHANNELS)}")
    return dict(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004 - one error says what the key must be
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("text in quotes")
    return value


def _date(value: Any) -> dt.date:
    if type(value) is not dt.date:
        raise ValueError("a date, as 2026-12-01")
    return value


def _lookback(value: Any) -> int | None:
    return None if value == "all" else _number(1)(value)


_KEYS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "as_of": _date,
    "source": _text,
    "scheme": _one_of(get_args(Scheme)),
    "marks": _number(0),
    "minimum": _number(0),
    "step": _number(1),
    "lookback": _lookback,
    "ttls": _ascending,
    "write_factors": _each(_rate, "numbers of at least 0, one for each TTL"),
    "read_factor": _rate,
    "input_price": _rate,
    "output_price": _rate,
    "unmarkable": _kinds,
    "system_turns": _one_of(get_args(SystemTurns)),
    "binds_reasoning": _truth,
    "drops_reasoning": _truth,
    "channels": _channels,
}
"""What each key of a table must be."""
_DEFAULTS: Final[Mapping[str, Any]] = {"input_price": None, "output_price": None}


@functools.cache
def _packaged() -> RuleTables:
    return _parsed(importlib.resources.files(__package__).joinpath("rules.toml").read_bytes(), "rules.toml")


@functools.lru_cache(maxsize=256)
def _packaged_rules(provider: str, model: str) -> ModelRules:
    return _merged(provider, model, ())


def _merged(provider: str, model: str, overrides: tuple[RuleTables, ...]) -> ModelRules:
    values: dict[str, Any] = dict(_DEFAULTS)
    matched = "*"
    where = ""
    for tables in (_packaged(), *overrides):
        table = tables.providers.get(provider)
        if table is None:
            continue
        where = f"{tables.where}, [{provider}]"
        for keys in (table.keys, *(table.models[each] for each in _matching(provider, model, table.models))):
            channels = {**values.get("channels", {}), **keys.get("channels", {})}
            values.update(keys)
            values["channels"] = channels
        matched = next(reversed(_matching(provider, model, table.models)), matched)
    if len(values["ttls"]) != len(values["write_factors"]):
        raise InvalidDeclarationError(
            f"must have one for each of the TTLs {list(values['ttls'])}, not {list(values['write_factors'])}",
            field="write_factors",
            where=where,
        )
    values["channels"] = types.MappingProxyType(values["channels"])
    return ModelRules(provider=cast(ProviderName, provider), model=matched, **values)


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
