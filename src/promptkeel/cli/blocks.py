"""The commands for authored blocks that the store keeps: edit, log, show, diff, restore."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
from rich.text import Text

from promptkeel.blocking import Keel
from promptkeel.blocks import AuthoredRevision, RevisionDiff, StoredSource
from promptkeel.cli.declarations import missing_file
from promptkeel.cli.display import (
    Column,
    Screen,
    is_terminal,
    printable,
    put_bytes,
    put_document,
    put_line,
    put_notice,
    put_table,
    time_of,
    writing,
)
from promptkeel.cli.editing import Draft, EditError, edited, kept_draft
from promptkeel.cli.failures import EXIT_CODES
from promptkeel.cli.options import FilePath, Session, scope_option, session_options, standard_input
from promptkeel.errors import NodeNotFoundError
from promptkeel.scope import TenantScope
from promptkeel.store.authored import NO_REVISION, check_block_name
from promptkeel.text import trim

_LOG: Final = (
    Column("number", "right"),
    Column("at"),
    Column("author", wraps=True),
    Column("message", wraps=True),
    Column("id"),
)
_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def _read_revision(value: str) -> str | int:
    return int(value) if value.isascii() and value.isdigit() and len(value) < 18 else value


def _author(value: str | None) -> str:
    if value is not None:
        return value
    try:
        return f"user:{getpass.getuser()}"
    except (KeyError, OSError, ImportError):
        raise click.UsageError(
            "give --author: this system does not say who you are", click.get_current_context()
        ) from None


def _provenance_options(command: Callable[..., Any]) -> Callable[..., Any]:
    author = click.option(
        "--author",
        envvar="PROMPTKEEL_AUTHOR",
        show_envvar=True,
        show_default="user: and the login name",
        help="Who writes it.",
    )
    message = click.option("-m", "--message", help="Why.")
    expected = click.option(
        "--expected", metavar="ID", help="Refuse if this revision is the head no more; '' is that there is none yet."
    )
    return author(message(expected(command)))


@click.group(epilog=EXIT_CODES)
def block() -> None:
    """Edit and compare the authored blocks that the store keeps, each with its whole history.

    A block is stored at the scope given, or, where the file of declarations says at which level it is kept, at that
    level of it.
    """


def _place(session: Session, name: str, scope: TenantScope) -> TenantScope:
    """Where a block is stored for a scope: at its declared level, else right there."""
    check_block_name(name)
    for spec in session.blocks:
        if spec.name == name and isinstance(spec.source, StoredSource):
            return spec.source.place(scope)
    return scope


def _shown(scope: TenantScope) -> str:
    return scope.path or "(deployment)"


def _head(keel: Keel, scope: TenantScope, name: str) -> AuthoredRevision:
    head = keel.blocks.head(scope, name)
    if head is None:
        raise NodeNotFoundError(
            f"block {name} has no revision at scope {_shown(scope)}; 'promptkeel block edit' writes one"
        )
    return head


def revision_document(revision: AuthoredRevision, *, whole: bool = True) -> dict[str, Any]:
    """A revision as ``--json`` prints it."""
    return {
        "id": revision.id,
        "block": revision.block,
        "scope": revision.scope.path,
        "number": revision.number,
        "is_head": revision.is_head,
        "author": revision.author,
        "message": revision.message,
        "at": time_of(revision.recorded),
        "trust": revision.trust,
        "parent": revision.parent,
        "restored": revision.restored,
        "content_hash": revision.content_hash,
        "is_intact": revision.is_intact,
        **({"content": revision.content} if whole else {}),
    }


def _put_written(session: Session, action: str, revision: AuthoredRevision) -> None:
    if session.as_json:
        put_document({"action": action, "revision": revision_document(revision)})
    else:
        put_line(f"{action} {revision.block} revision {revision.number} at {_shown(revision.scope)}: {revision.id}")


@block.command(epilog=EXIT_CODES)
@click.argument("name")
@click.option(
    "--file",
    "file",
    type=FilePath(exists=True, allow_dash=True),
    help="Take the text from this file ('-' is standard input); a text that is there already is no change.",
)
@_provenance_options
@scope_option()
@session_options()
def edit(
    session: Session,
    *,
    name: str,
    scope: TenantScope,
    file: str | None,
    author: str | None,
    message: str | None,
    expected: str | None,
) -> None:
    """Append a revision: the newest one, as you change it in $VISUAL or $EDITOR.

    Where somebody else has appended one meanwhile, it is a conflict, and your text is kept in a file.

    promptkeel block edit RULES --scope org:acme -m "be brief"
    """
    place, writer = _place(session, name, scope), _author(author)
    head = None
    if missing_file(session.url) is None:
        with session.open() as keel:
            head = keel.blocks.head(place, name)
    before = "" if head is None else head.content
    draft = edited(before, name) if file is None else _given(file, name)
    if file is None and draft.text == before:
        draft.drop()
        raise EditError("nothing was changed, so nothing was written")
    if not trim(draft.text):
        draft.drop()
        raise EditError("the text is empty, so nothing was written; a block that nobody needs is left undeclared")
    read = NO_REVISION if head is None else head.id
    with draft.held(), session.open(create=True) as keel:
        revision = keel.blocks.append(
            place,
            name,
            draft.text,
            author=writer,
            message=message,
            expected_head=read if expected is None else expected,
        )
    action = "unchanged" if head is not None and revision.id == head.id else "appended"
    _put_written(session, action, revision)
    if action == "unchanged":
        put_notice("the newest revision says exactly this already")


def _given(file: str, name: str) -> Draft:
    content = standard_input().read() if file == "-" else Path(file).read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise click.UsageError(f"{file} is not UTF-8 text", click.get_current_context()) from None
    return kept_draft(text, name) if file == "-" else Draft(text, None)


@block.command(epilog=EXIT_CODES)
@click.argument("name")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@scope_option()
@session_options()
def log(session: Session, *, name: str, scope: TenantScope, limit: int | None) -> None:
    """List the revisions of a block, newest first."""
    place = _place(session, name, scope)
    with session.open() as keel:
        found = keel.blocks.log(place, name, limit=limit)
    if session.as_json:
        revisions = [revision_document(each, whole=False) for each in found]
        put_document({"block": name, "scope": place.path, "revisions": revisions})
        return
    rows = [(each.number, _second_of(each), each.author, _about(each), each.id) for each in found]
    if is_terminal():
        put_table(_LOG[:-1], [row[:-1] for row in rows], title=f"{name} at {_shown(place)}")
    else:
        put_table(_LOG, rows)


def _second_of(revision: AuthoredRevision) -> str:
    text = time_of(revision.recorded)
    return "" if text is None else text[:19] + "Z"


def _about(revision: AuthoredRevision) -> str:
    parts = [revision.message or ""]
    if revision.restored is not None:
        parts.append(f"(restored revision {revision.restored.rpartition(':')[2]})")
    if not revision.is_intact:
        parts.append("(changed past promptkeel: see 'promptkeel check')")
    return " ".join(filter(None, parts))


@block.command(epilog=EXIT_CODES)
@click.argument("name")
@click.argument("revision", required=False, type=_read_revision)
@scope_option()
@session_options()
def show(session: Session, *, name: str, revision: str | int | None, scope: TenantScope) -> None:
    """Print a revision, byte for byte; without REVISION, a number or an id, the newest."""
    place = _place(session, name, scope)
    with session.open() as keel:
        asked = _head(keel, place, name).id if revision is None else revision
        found = keel.blocks.show(place, name, asked)
    if session.as_json:
        put_document({"revision": revision_document(found)})
    elif is_terminal():
        for line in found.content.removesuffix("\n").split("\n"):
            put_line(line)
    else:
        put_bytes(found.content.encode())


@block.command(epilog=EXIT_CODES)
@click.argument("name")
@click.argument("old", required=False, type=_read_revision)
@click.argument("new", required=False, type=_read_revision)
@scope_option()
@session_options()
def diff(session: Session, *, name: str, old: str | int | None, new: str | int | None, scope: TenantScope) -> None:
    """Show what differs between two revisions: OLD and the newest, or the last change.

    promptkeel block diff RULES 3 5 --scope org:acme
    """
    place = _place(session, name, scope)
    with session.open() as keel:
        last = _head(keel, place, name) if new is None else keel.blocks.show(place, name, new)
        first = last.parent if old is None else old
        if first is None:
            raise NodeNotFoundError(
                f"revision {last.number} of block {name} replaced none, so there is nothing to compare"
            )
        found = keel.blocks.diff(place, name, first, last)
    if session.as_json:
        put_document(_diff_document(found))
        return
    _put_diff(found.unified())


def _diff_document(found: RevisionDiff) -> dict[str, Any]:
    return {
        "old": revision_document(found.old, whole=False),
        "new": revision_document(found.new, whole=False),
        "unified": found.unified(),
        "parts": [
            {
                "kind": part.kind,
                "old": list(part.old),
                "new": list(part.new),
                "old_line": part.old_line,
                "new_line": part.new_line,
            }
            for part in found.parts
        ],
    }


def _put_diff(unified: str) -> None:
    if not is_terminal():
        put_bytes(unified.encode())
        return
    screen = Screen()
    with writing():
        for line in unified.removesuffix("\n").split("\n") if unified else ():
            screen.print(Text(printable(line), style=_STYLES.get(line[:1], ""), overflow="fold"))


@block.command(epilog=EXIT_CODES)
@click.argument("name")
@click.argument("revision", type=_read_revision)
@_provenance_options
@scope_option()
@session_options()
def restore(
    session: Session,
    *,
    name: str,
    revision: str | int,
    scope: TenantScope,
    author: str | None,
    message: str | None,
    expected: str | None,
) -> None:
    """Append what an older revision says once more; REVISION is its number or id.

    promptkeel block restore RULES 3 --scope org:acme -m "the new ones were too strict"
    """
    place, writer = _place(session, name, scope), _author(author)
    with session.open() as keel:
        head = keel.blocks.head(place, name)
        found = keel.blocks.restore(place, name, revision, author=writer, message=message, expected_head=expected)
    unchanged = head is not None and head.id == found.id
    _put_written(session, "unchanged" if unchanged else "restored", found)
    if unchanged:
        put_notice("the newest revision says exactly this already")
