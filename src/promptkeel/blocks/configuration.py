"""What an operator declares in ``promptkeel.toml``: store, scopes, blocks, policies, budget and providers.

The text is checked as strictly as the same values in a program: an unknown key is an error that names the nearest right
one. Paths are relative to the file. Functions are named as ``package.module:function`` and imported here; nothing else
is read, no store is opened.
"""

from __future__ import annotations

import difflib
import importlib
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import quote, unquote

import attrs

from promptkeel.blocks.computed import ComputedSource
from promptkeel.blocks.failures import FailurePolicy
from promptkeel.blocks.files import FileSource
from promptkeel.blocks.lanes import MemoryLane
from promptkeel.blocks.source import BlockSource
from promptkeel.blocks.spec import PromptBlockSpec
from promptkeel.blocks.static import StaticSource
from promptkeel.blocks.stored import StoredSource
from promptkeel.errors import InvalidDeclarationError, InvalidScopeError, SourceUnavailableError
from promptkeel.providers.rule_tables import KEYS, RuleTables, read_rules
from promptkeel.providers.rules import rules_for
from promptkeel.render import RenderPolicy
from promptkeel.scope import TenantScope

DEFAULT_NAME: Final = "promptkeel.toml"
PROVIDERS: Final = ("anthropic", "bedrock", "gemini", "openai")
"""The providers that a file may say something about."""

_FILE_URL: Final = "sqlite:///"
_SECTIONS: Final = ("store", "scopes", "blocks", "policies", "budget", "providers")
_SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("text",),
    "file": ("file", "max_bytes", "encoding"),
    "function": ("function",),
    "label_prefix": ("label_prefix", "profile_fields"),
    "stored": ("stored", "learned", "required"),
}
"""The keys that say where a block's content comes from, each with those that go with it."""
_RENDER: Final = ("max_facts", "max_fact_characters", "max_tokens", "block_form")
_POLICY: Final = ("on_failure", "max_age", "mark_text", "timeout", *_RENDER)
_PLACED: Final = ("tier", "shared", "layer", "order", "priority", "channel")
_PLAIN: Final = (*_PLACED, "inherit", "permissions", "gate_timeout", "timeout")
_BLOCK: Final = (*(key for keys in _SOURCES.values() for key in keys), *_PLAIN, "render_when", "policy", *_POLICY)


@final
@attrs.frozen(order=False)
class Budget:
    """How many tokens a prompt may have.

    Attributes:
        prompt_tokens: the most; None is no limit.
        token_counter: the name of what counts them.
    """

    prompt_tokens: int | None = None
    token_counter: str = "estimate"  # noqa: S105 - the name of a counter


@final
@attrs.frozen(order=False)
class Configuration:
    """Everything that a file declares.

    Attributes:
        path: the file.
        url: the store's address; None where the file names none.
        options: the store's own options.
        scope: who asks where nobody says so; None where the file does not say.
        levels: the kinds that a scope's levels have, root first; empty where any will do.
        blocks: the declared blocks.
        budget: of the whole prompt.
        models: the model of each declared provider, where the file names one.
        rules: what it says of the rules of providers, to be handed on as overrides.
    """

    path: Path
    url: str | None = None
    options: Mapping[str, Any] = attrs.field(factory=dict, hash=False)
    scope: TenantScope | None = None
    levels: tuple[str, ...] = ()
    blocks: tuple[PromptBlockSpec, ...] = ()
    budget: Budget = Budget()
    models: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    rules: tuple[RuleTables, ...] = ()

    def check_scope(self, scope: TenantScope) -> None:
        """Check that a scope has the declared levels.

        Raises:
            InvalidScopeError: it has others.
        """
        kinds = tuple(level.kind for level in scope.levels)
        if self.levels and kinds != self.levels[: len(kinds)]:
            raise InvalidScopeError(
                f"{scope.path!r} does not have the levels that {self.path.name} declares: {'/'.join(self.levels)}"
            )


def load_configuration(path: str | os.PathLike[str]) -> Configuration:
    """What a file declares.

    Raises:
        InvalidDeclarationError: it cannot mean anything; names the file, the table and the key.
        SourceUnavailableError: it cannot be read.
    """
    path = Path(path).absolute()
    try:
        content = path.read_bytes()
    except OSError as error:
        hint = "; 'promptkeel init' writes one" if isinstance(error, FileNotFoundError) else ""
        raise SourceUnavailableError(f"cannot read {path}: {error.strerror or error}{hint}") from error
    try:
        text = content.decode("utf-8-sig")
        tables = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise InvalidDeclarationError(f"is not UTF-8 at byte {error.start}", where=path.name) from None
    except RecursionError:
        raise InvalidDeclarationError("is nested too deeply", where=path.name) from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidDeclarationError(f"is no TOML: {error}", where=path.name) from None
    return read_configuration(tables, path)


def read_configuration(tables: Mapping[str, Any], path: Path) -> Configuration:
    """What the tables of a file at ``path`` declare.

    Raises:
        InvalidDeclarationError: they cannot mean anything.
    """
    top = _Table(tables, "", path.name)
    top.check_keys(_SECTIONS)
    store = top.table("store")
    scopes = top.table("scopes")
    policies = top.table("policies")
    named = {name: _policy(policies.table(name)) for name in policies.keys}
    declared = top.table("blocks")
    url, options = _store(store, path.parent)
    return Configuration(
        path=path,
        url=url,
        options=options,
        scope=_default_scope(scopes),
        levels=_levels(scopes),
        blocks=tuple(_block(declared.table(name), name, named, path.parent) for name in declared.keys),
        budget=_budget(top.table("budget")),
        models=_models(top.table("providers")),
        rules=_rules(top.table("providers"), path.name),
    )


class _Table:
    """One table of the file, which knows its own name for errors."""

    def __init__(self, content: Mapping[str, Any], name: str, file: str) -> None:
        self._content = content
        self._name = name
        self._file = file

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._content)

    def wrong(self, key: str | None, reason: str) -> InvalidDeclarationError:
        where = f"{self._file}, [{self._name}]" if self._name else self._file
        return InvalidDeclarationError(reason, field=key, where=where)

    def check_keys(self, known: Iterable[str]) -> None:
        names = sorted(set(known))
        for key in self._content:
            if key not in names:
                near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
                raise self.wrong(key, f"is no key here; {hint}")

    def table(self, key: str) -> _Table:
        content = self._content.get(key, {})
        name = f"{self._name}.{key}" if self._name else key
        if not isinstance(content, Mapping):
            raise self.wrong(key, f"must be a table: write [{name}] above its keys")
        return _Table(content, name, self._file)

    def has(self, key: str) -> bool:
        return key in self._content

    def take(self, key: str, kind: type | tuple[type, ...], what: str) -> Any:
        """The value of a key; None where it is left out."""
        value = self._content.get(key)
        # A TOML true is a Python bool, which is an int too.
        if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            raise self.wrong(key, f"must be {what}, not {value!r}")
        return value

    def text(self, key: str) -> str | None:
        found: str | None = self.take(key, str, "text in quotes")
        return found

    def names(self, key: str) -> tuple[str, ...] | None:
        found = self.take(key, list, 'a list of names, as ["role", "language"]')
        if found is not None and not all(isinstance(each, str) for each in found):
            raise self.wrong(key, 'must be a list of names, as ["role", "language"]')
        return None if found is None else tuple(found)

    def subset(self, keys: Iterable[str]) -> dict[str, Any]:
        return {key: self._content[key] for key in keys if key in self._content}

    def built(self, build: Callable[[], Any]) -> Any:
        """What ``build`` makes; its errors name this table."""
        try:
            return build()
        except InvalidDeclarationError as error:
            raise self.wrong(error.field, error.reason) from None


def _store(table: _Table, folder: Path) -> tuple[str | None, dict[str, Any]]:
    url = table.text("url")
    options = {key: value for key, value in table.subset(table.keys).items() if key != "url"}
    if url is None and options:
        raise table.wrong("url", "is missing: the store's address, as sqlite:///memory.db")
    if url is not None and url.startswith(_FILE_URL):
        rest, mark, query = url[len(_FILE_URL) :].partition("?")
        if rest and not rest.startswith("/"):
            url = _FILE_URL + quote(str(folder / unquote(rest)), safe="/\\: ") + mark + query
    return url, options


def _default_scope(table: _Table) -> TenantScope | None:
    table.check_keys(("default", "levels"))
    path = table.text("default")
    try:
        return None if path is None else TenantScope.parse(path)
    except InvalidScopeError as error:
        raise table.wrong("default", error.reason) from None


def _levels(table: _Table) -> tuple[str, ...]:
    return table.names("levels") or ()


def _budget(table: _Table) -> Budget:
    table.check_keys(("prompt_tokens", "token_counter"))
    limit = table.take("prompt_tokens", int, "a whole number of tokens")
    if limit is not None and limit < 1:
        raise table.wrong("prompt_tokens", f"must be at least 1, not {limit}")
    counter = table.text("token_counter") or "estimate"
    table.built(lambda: RenderPolicy(token_counter=counter))
    return Budget(limit, counter)


def _models(table: _Table) -> dict[str, str]:
    table.check_keys(PROVIDERS)
    models = {}
    for name in table.keys:
        provider = table.table(name)
        provider.check_keys(("model", "models", *KEYS))
        model = provider.text("model")
        if model:
            models[name] = model
        elif provider.has("model") or not provider.keys:
            raise provider.wrong("model", "is missing: the model's name as the provider spells it")
    return models


def _rules(table: _Table, file: str) -> tuple[RuleTables, ...]:
    """What the tables of providers say besides the model, checked against what is packaged."""
    said = {name: table.table(name) for name in table.keys}
    rules = {name: each.subset(key for key in each.keys if key != "model") for name, each in said.items()}
    rules = {name: each for name, each in rules.items() if each}
    if not rules:
        return ()
    tables = read_rules(rules, where=file, within="providers")
    for name, provider in tables.providers.items():
        for model in ("", *provider.models):
            rules_for(name, model, overrides=(tables,))
    return (tables,)


def _policy(table: _Table) -> dict[str, Any]:
    """A named set of keys that blocks share."""
    table.check_keys(_POLICY)
    return table.subset(_POLICY)


def _block(table: _Table, name: str, policies: Mapping[str, Mapping[str, Any]], folder: Path) -> PromptBlockSpec:
    table.check_keys(_BLOCK)
    shared = table.text("policy")
    if shared is not None and shared not in policies:
        known = ", ".join(policies) or "none"
        raise table.wrong("policy", f"{shared!r} is no table of [policies]; there are: {known}")
    values = {**({} if shared is None else policies[shared]), **table.subset(_POLICY)}
    fields: dict[str, Any] = table.subset(_PLAIN)
    fields.update({key: values[key] for key in ("timeout",) if key in values})
    gate = table.text("render_when")
    if gate is not None:
        fields["render_when"] = _function(table, "render_when", gate)
    failure = _failure(table, values)
    if failure is not None:
        fields["on_failure"] = failure
    render = {key: values[key] for key in _RENDER if key in values}
    if render:
        fields["policy"] = table.built(lambda: RenderPolicy(**render))
    source = _source(table, folder)
    spec: PromptBlockSpec = table.built(lambda: PromptBlockSpec(name=name, source=source, **fields))
    return spec


def _failure(table: _Table, values: Mapping[str, Any]) -> FailurePolicy | None:
    details = {key: values[key] for key in ("max_age", "mark_text") if key in values}
    action = values.get("on_failure")
    if action is None:
        if details:
            raise table.wrong(next(iter(details)), "goes with on_failure = 'last_known_good'")
        return None
    policy: FailurePolicy = table.built(lambda: FailurePolicy(action, **details))
    return policy


def _source(table: _Table, folder: Path) -> BlockSource:
    given = [key for key in _SOURCES if table.has(key)]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise table.wrong(None, f"needs exactly one of {', '.join(_SOURCES)}; it has {found}")
    key = given[0]
    foreign = [each for other, keys in _SOURCES.items() if other != key for each in keys if table.has(each)]
    if foreign:
        raise table.wrong(foreign[0], f"does not go with {key}; leave it out")
    source: BlockSource = table.built(lambda: _SOURCE_OF[key](table, folder))
    return source


def _file(table: _Table, folder: Path) -> FileSource:
    name = table.text("file") or ""
    return FileSource(folder / name if name else name, **table.subset(("max_bytes", "encoding")))


def _lane(table: _Table, _: Path) -> MemoryLane:
    return MemoryLane(table.text("label_prefix") or "", frozenset(table.names("profile_fields") or ()))


def _computed(table: _Table, _: Path) -> ComputedSource:
    return ComputedSource(_function(table, "function", table.text("function") or ""))


def _stored(table: _Table, _: Path) -> StoredSource:
    level: Any = table.text("stored")
    return StoredSource(level=level, **table.subset(("learned", "required")))


_SOURCE_OF: Final[Mapping[str, Callable[[_Table, Path], BlockSource]]] = {
    "text": lambda table, _: StaticSource(table.text("text") or ""),
    "file": _file,
    "function": _computed,
    "label_prefix": _lane,
    "stored": _stored,
}


def _function(table: _Table, key: str, name: str) -> Callable[..., Any]:
    """The function that ``package.module:function`` names."""
    module, colon, path = name.partition(":")
    if not module or not colon or not path:
        raise table.wrong(key, f"must be 'package.module:function', not {name!r}")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise table.wrong(key, f"cannot import {module}: {error}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise table.wrong(key, f"{module} has no {path}")
        found = getattr(found, part)
    if not callable(found):
        raise table.wrong(key, f"{name} is not callable")
    function: Callable[..., Any] = found
    return function
