"""What every command takes: where the store is, who asks, which blocks are declared, and how to answer."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar, final

import attrs
import click

from promptkeel import blocking
from promptkeel.blocks import MemoryLane, PromptBlockSpec
from promptkeel.blocks.configuration import DEFAULT_NAME, Budget, Configuration, load_configuration
from promptkeel.cli.declarations import (
    DEFAULT_STORE,
    declare_blocks,
    declare_lanes,
    decoded,
    encoded,
    is_of_store,
    missing_file,
    store_url,
)
from promptkeel.cli.failures import MissingStoreError
from promptkeel.errors import InvalidInstantError, InvalidScopeError
from promptkeel.instants import parse_instant
from promptkeel.model import NOT_GIVEN, TRUST_LEVELS
from promptkeel.scope import TenantScope

Command = TypeVar("Command", bound=Callable[..., Any])

_NEEDS_SCOPE: Final = "needs_scope"
"""Marks a command that cannot do without a scope."""


@final
@attrs.frozen(order=False)
class Session:
    """What a command was told about everything but itself.

    Attributes:
        store: the store as the command line or the environment names it; None where they do not.
        given_lanes: the memory blocks of ``--lane``.
        as_json: whether one JSON document is printed.
        configuration: what the file of declarations says; None where there is none.
        statics: the blocks of ``--static``.
        files: the blocks of ``--file``.
    """

    store: str | None
    given_lanes: tuple[str, ...]
    as_json: bool
    configuration: Configuration | None = None
    statics: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """The address of the store."""
        declared = None if self.configuration is None else self.configuration.url
        return store_url(self.store) if self.store is not None else declared or DEFAULT_STORE

    @property
    def lanes(self) -> dict[str, MemoryLane]:
        """The memory blocks by name."""
        return declare_lanes(self.given_lanes, None if self.configuration is None else self.configuration.blocks)

    @property
    def blocks(self) -> list[PromptBlockSpec]:
        """The declared blocks: those of the file, and those of the command line in the place of equal names."""
        declared = () if self.configuration is None else self.configuration.blocks
        lanes = self.lanes if self.configuration is None else declare_lanes(self.given_lanes, ())
        given = declare_blocks(lanes, self.statics, self.files)
        names = {spec.name for spec in given}
        return [spec for spec in declared if spec.name not in names] + given

    def scope(self, given: TenantScope | None, *, needed: bool) -> TenantScope | None:
        """The scope of the command line, else, where the command needs one, that of the file of declarations.

        Raises:
            click.UsageError: nobody says which.
            InvalidScopeError: it does not have the levels that the file declares.
        """
        configuration = self.configuration
        if given is None and needed:
            given = None if configuration is None else configuration.scope
            if given is None:
                raise click.UsageError(
                    "Missing option '--scope' (env var: 'PROMPTKEEL_SCOPE').", click.get_current_context()
                )
        if given is not None and configuration is not None:
            configuration.check_scope(given)
        return given

    @property
    def counting(self) -> dict[str, Any]:
        """How many tokens a prompt may have, and what counts them, as the file of declarations says."""
        budget = Budget() if self.configuration is None else self.configuration.budget
        return {"token_counter": budget.token_counter, "prompt_tokens": budget.prompt_tokens}

    @property
    def options(self) -> dict[str, Any]:
        """The store's own options, where the file of declarations names the store."""
        return {} if self.configuration is None or self.store is not None else dict(self.configuration.options)

    def open(self, *, create: bool = False) -> blocking.Keel:
        """The keel, to be entered.

        Args:
            create: whether the command makes a store where there is none.

        Raises:
            MissingStoreError: there is no store, and the command would not make one.
        """
        missing = missing_file(self.url)
        if missing is not None and not create:
            raise MissingStoreError(
                f"there is no store at {missing}; 'promptkeel remember' or 'promptkeel import' makes one, "
                "--store or PROMPTKEEL_STORE names another"
            )
        return blocking.open(self.url, blocks=self.blocks, **self.counting, **self.options)

    def open_or_empty(self) -> blocking.Keel:
        """The keel, to be entered; over an empty store in memory where there is none yet."""
        if missing_file(self.url) is not None:
            return blocking.open("ram:", blocks=self.blocks, **self.counting)
        return self.open()

    def check_output(self, path: str | Path | None, name: str) -> None:
        """Refuse to write a file in the place of the store, before anything is done.

        Args:
            path: where the file would be; None is nowhere.
            name: what the command line calls it.

        Raises:
            click.UsageError: it is the store's own file, or one that belongs to it.
        """
        if path is not None and is_of_store(path, self.url):
            raise click.UsageError(
                f"{name} would replace {path}, which belongs to the store; name another file",
                click.get_current_context(),
            )

    @contextmanager
    def pretended(self) -> Iterator[blocking.Keel]:
        """An open keel over an empty store that is gone again; in a file, since memory would hold all of it."""
        with (
            tempfile.TemporaryDirectory(prefix="promptkeel-") as folder,
            blocking.open(store_url(str(Path(folder) / "pretended.db")), blocks=self.blocks) as keel,
        ):
            yield keel


@final
class FilePath(click.Path):
    """A file that the command line names."""

    def __init__(self, *, exists: bool = False, allow_dash: bool = False) -> None:
        super().__init__(exists=exists, dir_okay=False, allow_dash=allow_dash)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path as this process names it to the system."""
        return super().convert(encoded(value), param, ctx)


def standard_input() -> BinaryIO:
    """Standard input as bytes.

    Raises:
        click.UsageError: it is closed.
    """
    if sys.stdin is None:
        raise click.UsageError(
            "standard input is closed; name a file or send it something", click.get_current_context()
        )
    return sys.stdin.buffer


def read_scope(value: str | TenantScope) -> TenantScope:
    """The scope of a path."""
    if isinstance(value, TenantScope):
        return value
    try:
        return TenantScope.parse(decoded(value))
    except InvalidScopeError as error:
        raise click.BadParameter(str(error)) from None


def read_time(value: Any) -> Any:
    """The ISO 8601 text of an instant; None for ``none``, which is "not recorded"."""
    if value is NOT_GIVEN or value == "none":
        return NOT_GIVEN if value is NOT_GIVEN else None
    try:
        parse_instant(value)
    except InvalidInstantError as error:
        raise click.BadParameter(str(error)) from None
    return value


def read_property(value: Any) -> tuple[str, Any]:
    """The sides of ``NAME=VALUE``; a value that is JSON is read as JSON, any other as text."""
    name, equals, text = value.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{value!r} must be NAME=VALUE")
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text


def read_configuration(path: str | None) -> Configuration | None:
    """The file of declarations: the named one, else the one in this folder, if there is one.

    Functions that it names are looked up in its own folder too.
    """
    if path is None and not Path(DEFAULT_NAME).is_file():
        return None
    file = Path(DEFAULT_NAME if path is None else path).absolute()
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    return load_configuration(file)


def scope_option(*, required: bool = True) -> Callable[[Command], Command]:
    """The option ``--scope``; where it is required, the file of declarations may give it."""

    def decorate(command: Command) -> Command:
        if required:
            vars(command)[_NEEDS_SCOPE] = True
        return click.option(
            "--scope",
            type=read_scope,
            envvar="PROMPTKEEL_SCOPE",
            show_envvar=True,
            metavar="PATH",
            help="Who asks, as org:acme/user:ada; '' is the whole deployment." + ("  [required]" if required else ""),
        )(command)

    return decorate


def provenance_options(command: Command) -> Command:
    """The options that say who said something, when, and whose words they are."""
    trust = click.option("--trust", type=click.Choice(TRUST_LEVELS), help="Whose words these are.")
    recorded = click.option(
        "--recorded-at",
        type=read_time,
        default=NOT_GIVEN,
        show_default="now",
        metavar="TIME",
        help="When it was said, in ISO 8601; 'none' is not recorded.",
    )
    return click.option("--source", help="Who or what said so.")(recorded(trust(command)))


def session_options(*, authored: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of every command; the command gets them as one ``Session``, its first argument."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def call(
            *,
            store: str | None,
            lanes: Sequence[str],
            as_json: bool,
            configuration: str | None,
            statics: Sequence[str] = (),
            files: Sequence[str] = (),
            **arguments: Any,
        ) -> Any:
            session = Session(
                store, tuple(lanes), as_json, read_configuration(configuration), tuple(statics), tuple(files)
            )
            if "scope" in arguments:
                arguments["scope"] = session.scope(arguments["scope"], needed=_NEEDS_SCOPE in vars(call))
            return command(session, **arguments)

        options = [
            click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON document."),
            click.option(
                "--lane",
                "lanes",
                multiple=True,
                metavar="NAME=PREFIX:[FIELDS]",
                help="Declare a memory block, as USER_PROFILE=SOUL:role,language; may be given again.",
            ),
            click.option(
                "--store",
                envvar="PROMPTKEEL_STORE",
                show_envvar=True,
                show_default=DEFAULT_STORE,
                metavar="URL|FILE",
                help="Where memory is kept; the file of declarations may say so too.",
            ),
            click.option(
                "--config",
                "configuration",
                type=FilePath(exists=True),
                envvar="PROMPTKEEL_CONFIG",
                show_envvar=True,
                show_default=f"{DEFAULT_NAME}, if it is here",
                metavar="FILE",
                help="The file that declares store and blocks.",
            ),
        ]
        if authored:
            options += [
                click.option(
                    "--file", "files", multiple=True, metavar="NAME=PATH", help="Declare a block with a file's text."
                ),
                click.option(
                    "--static", "statics", multiple=True, metavar="NAME=TEXT", help="Declare a block with this text."
                ),
            ]
        decorated: Callable[..., Any] = call
        for option in options:
            decorated = option(decorated)
        return decorated

    return decorate
