"""What every command takes: where the store is, who asks, which blocks are declared, and how to answer."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, final

import attrs
import click

from promptkeel import blocking
from promptkeel.blocks import MemoryLane, PromptBlockSpec
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


@final
@attrs.frozen(order=False)
class Session:
    """What a command was told about everything but itself."""

    store: str
    lanes: dict[str, MemoryLane]
    as_json: bool
    statics: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """The address of the store."""
        return store_url(self.store)

    @property
    def blocks(self) -> list[PromptBlockSpec]:
        """The declared blocks."""
        return declare_blocks(self.lanes, self.statics, self.files)

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
        return blocking.open(self.url, blocks=self.blocks)

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


def scope_option(*, required: bool = True) -> Callable[[Command], Command]:
    """The option ``--scope``."""
    return click.option(
        "--scope",
        type=read_scope,
        required=required,
        envvar="PROMPTKEEL_SCOPE",
        show_envvar=True,
        metavar="PATH",
        help="Who asks, as org:acme/user:ada; '' is the whole deployment.",
    )


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
            store: str,
            lanes: Sequence[str],
            as_json: bool,
            statics: Sequence[str] = (),
            files: Sequence[str] = (),
            **arguments: Any,
        ) -> Any:
            session = Session(store, declare_lanes(lanes), as_json, tuple(statics), tuple(files))
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
                default=DEFAULT_STORE,
                show_default=True,
                metavar="URL|FILE",
                help="Where memory is kept.",
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
