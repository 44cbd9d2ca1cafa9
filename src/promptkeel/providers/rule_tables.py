"""Reading rules of providers from TOML or from a mapping, and checking every key of them.

A file has a table for each provider, whose keys speak for all of its models, and in it ``models``: a table for each
pattern of names. What the tables come to for one model is left to ``rules``.
"""

from __future__ import annotations

import datetime as dt
import difflib
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, final, get_args

import attrs

from promptkeel.errors import InvalidDeclarationError, SourceUnavailableError
from promptkeel.providers.segments import KINDS
from promptkeel.providers.terms import CHANNELS, PROVIDERS, TRUSTS, Scheme, SystemTurns


@final
@attrs.frozen(order=False)
class ProviderTable:
    """What a file says of one provider.

    Attributes:
        where: the file and the table, as errors name them.
        keys: what it says of all models.
        models: what it says of the models that each pattern names.
    """

    where: str
    keys: Mapping[str, Any] = attrs.field(hash=False)
    models: Mapping[str, Mapping[str, Any]] = attrs.field(hash=False)


@final
@attrs.frozen(order=False)
class RuleTables:
    """What one file or mapping says of providers.

    Attributes:
        where: what errors call it.
        providers: a table for each provider that it speaks of.
    """

    where: str
    providers: Mapping[str, ProviderTable] = attrs.field(hash=False)


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
    return parse_rules(content, where=path.name)


def parse_rules(content: bytes, *, where: str) -> RuleTables:
    """The rules that the bytes of a TOML file declare; errors call it ``where``.

    Raises:
        InvalidDeclarationError: they cannot mean anything.
    """
    try:
        tables = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InvalidDeclarationError(f"is not UTF-8 at byte {error.start}", where=where) from None
    except RecursionError:
        raise InvalidDeclarationError("is nested too deeply", where=where) from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidDeclarationError(f"is no TOML: {error}", where=where) from None
    return read_rules(tables, where=where)


def read_rules(tables: Mapping[str, Any], *, where: str = "overrides", within: str = "") -> RuleTables:
    """The rules that a mapping declares, in the shape of ``rules.toml``.

    Args:
        tables: a table for each provider.
        where: what errors call the mapping.
        within: the table that the mapping is, where it is a part of a file.

    Raises:
        InvalidDeclarationError: they cannot mean anything; names the table and the key.
    """
    whole = _table(tables, where, within)
    for name in whole:
        if name not in PROVIDERS:
            raise _wrong(f"is no provider; {_hint(name, PROVIDERS)}", name, where, within)
    prefix = f"{within}." if within else ""
    return RuleTables(where, {name: _provider(table, where, prefix + name) for name, table in whole.items()})


def _provider(table: object, where: str, name: str) -> ProviderTable:
    keys = _table(table, where, name)
    models = _table(keys.get("models", {}), where, f"{name}.models")
    patterns = {pattern: (_table(each, where, path), path) for pattern, each, path in _patterns(models, name)}
    return ProviderTable(
        f"{where}, [{name}]",
        _checked({key: value for key, value in keys.items() if key != "models"}, where, name),
        {pattern: _checked(each, where, path) for pattern, (each, path) in patterns.items()},
    )


def _patterns(models: Mapping[str, Any], name: str) -> Iterable[tuple[str, object, str]]:
    return ((pattern, each, f'{name}.models."{pattern}"') for pattern, each in models.items())


def _table(value: object, where: str, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _wrong(f"must be a table, not {value!r}", None, where, name)
    return value


def _checked(keys: Mapping[str, Any], where: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in keys.items():
        if key not in KEYS:
            raise _wrong(f"is no key here; {_hint(key, sorted(KEYS))}", key, where, name)
        try:
            found[key] = KEYS[key](value)
        except (TypeError, ValueError) as error:
            raise _wrong(f"must be {error}, not {value!r}", key, where, name) from None
    return found


def _wrong(reason: str, key: str | None, where: str, name: str) -> InvalidDeclarationError:
    return InvalidDeclarationError(reason, field=key, where=f"{where}, [{name}]" if name else where)


def _hint(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"


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
    pairs = list(value.items()) if isinstance(value, Mapping) else [("", "")]
    if not all(trust in TRUSTS and isinstance(channel, str) and channel in CHANNELS for trust, channel in pairs):
        raise ValueError(f"a table from {', '.join(TRUSTS)} to {', '.join(CHANNELS)}")
    return dict(pairs)


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
    if value == "all":
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError('a whole number of at least 1, or "all"')
    return value


KEYS: Final[Mapping[str, Callable[[Any], Any]]] = {
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
