"""The commands that remove for good: one node, a lane, a scope with everything below it, all about a person."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from promptkeel.blocking import Keel
from promptkeel.cli.display import Column, counted, printable, put_document, put_line, put_notice, put_table
from promptkeel.cli.failures import FAILED, OK
from promptkeel.cli.options import FilePath, Session, read_property, scope_option, session_options
from promptkeel.exchange import replace_file
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.store.operations import Erase
from promptkeel.upkeep.erasure import EraseAll, EraseSubject, ErasurePlan, ErasureRequest
from promptkeel.upkeep.receipts import erasure_document, receipt_document

_COUNTS: Final = ("versions", "edges", "testimonies")

_HELP: Final = """Remove memory for good, with its history. Asks first; without a terminal to ask at, it needs --yes.

\b
ID                    one node of the scope
--prefix SOUL:        what is, or ever was, in a prefix at the scope
--below               everything at the scope and below, or with --prefix
--subject email=a@b   what holds, or ever held, this value at the scope and
                      below, what is about it, and what was derived from it

The receipt holds no text. It says 'unreadable' while somebody still reads an older state, and 'scrubbed' once no byte
is left in the file; 'promptkeel settle' brings it there later.
"""


@click.command(help=_HELP)
@click.argument("node_id", metavar="[ID]", required=False)
@click.option("--prefix", metavar="PREFIX", help="A label prefix, as SOUL:.")
@click.option("--below", is_flag=True, help="Everything below the scope too.")
@click.option(
    "--subject",
    type=read_property,
    multiple=True,
    metavar="NAME=VALUE",
    help="A property that names a person or a thing; may be given again.",
)
@click.option("--about", metavar="ID", help="The node that stands for a person or a thing.")
@click.option("--export", "export_path", type=FilePath(), help="Write it to a file first, as JSON Lines.")
@click.option("--dry-run", is_flag=True, help="List what would go, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@scope_option()
@session_options()
def erase(
    session: Session,
    *,
    scope: TenantScope,
    node_id: str | None,
    export_path: str | None,
    dry_run: bool,
    yes: bool,
    **asked: Any,
) -> int:
    """Remove a node, or all that a request takes."""
    session.check_output(export_path, "--export")
    if node_id is not None:
        if any(asked.values()) or export_path is not None:
            raise click.UsageError("give ID alone, or what to erase by options", click.get_current_context())
        _check_sure(yes=yes or dry_run)
        return _erase_node(session, scope, node_id, dry_run=dry_run, yes=yes)
    request = _request(scope, **asked)
    _check_sure(yes=yes or dry_run)
    with session.open() as keel:
        return _erase_request(session, keel, request, export_path, dry_run=dry_run, yes=yes)


def _request(
    scope: TenantScope, prefix: str | None, subject: tuple[tuple[str, Any], ...], about: str | None, *, below: bool
) -> ErasureRequest:
    context = click.get_current_context()
    if subject or about is not None:
        if prefix is not None or below:
            raise click.UsageError("a subject is erased in every prefix, at the scope and below", context)
        return EraseSubject(scope, properties=dict(subject), about=about)
    if prefix is None and not below:
        raise click.UsageError("give ID, --prefix, --below, --subject or --about", context)
    return EraseAll(scope, label_prefix=prefix, below=below)


def _check_sure(*, yes: bool) -> None:
    if not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise click.UsageError(
            "there is no terminal to ask at; look at it with --dry-run, then say --yes", click.get_current_context()
        )


def _is_sure(question: str, *, yes: bool) -> bool:
    if yes or click.confirm(question, err=True):
        return True
    put_notice("nothing was erased")
    return False


def _erase_node(session: Session, scope: TenantScope, node_id: str, *, dry_run: bool, yes: bool) -> int:
    with session.open() as keel:
        node = keel.get(scope, node_id)
        if dry_run:
            (outcome,) = keel.store.apply((Erase(scope, node_id),), dry_run=True)
            receipt = outcome.receipt
            assert receipt is not None  # noqa: S101 - what Erase answers
        else:
            question = f"Erase {printable(node_id)} and its history for good?"
            if not _is_sure(question, yes=yes):
                return FAILED
            receipt = keel.erase(scope, node_id)
    said = f"{counted(receipt.versions, 'old version')} and {counted(receipt.edges, 'edge')}"
    if session.as_json:
        put_document({"action": "would erase" if dry_run else "erased", "receipt": receipt_document(receipt)})
    elif dry_run:
        put_line(f"would erase {node.id}: {node.label}, with {said}")
    else:
        put_line(f"erased {node.id}: {receipt.state}, with {said}")
    return OK


def _erase_request(
    session: Session, keel: Keel, request: ErasureRequest, export_path: str | None, *, dry_run: bool, yes: bool
) -> int:
    plan, export = keel.export_erasure(request)
    if export_path is not None:
        with replace_file(export_path) as file:
            file.writelines(export.encoded())
        put_notice(
            f"wrote {counted(export.statements, 'statement')} and {counted(export.edges, 'edge')} to {export_path}"
        )
    if dry_run:
        _put_plan(session, plan)
        return OK
    where = ", ".join(printable(path) or "(deployment)" for path in plan.scopes[:3])
    more = f" and {counted(len(plan.scopes) - 3, 'more scope')}" if len(plan.scopes) > 3 else ""
    if not _is_sure(f"Erase {counted(len(plan.found), 'node')} at {where or 'no scope'}{more} for good?", yes=yes):
        return FAILED
    receipt = keel.perform_erasure(request, expected=plan)
    if session.as_json:
        put_document({"action": "erased", "receipt": erasure_document(receipt)})
    else:
        said = f"{counted(receipt.versions, 'old version')} and {counted(receipt.edges, 'edge')}"
        put_line(f"erased {counted(len(receipt.receipts), 'node')}: {receipt.state}, with {said}")
    return OK


def _put_plan(session: Session, plan: ErasurePlan) -> None:
    counts = {name: getattr(plan, name) for name in _COUNTS}
    if session.as_json:
        found = [
            {
                "id": each.node.id,
                "scope": each.node.scope.path,
                "label": each.node.label,
                "state": each.node.state,
                "reason": each.reason,
            }
            for each in plan.found
        ]
        put_document({"action": "would erase", "nodes": found, **counts})
        return
    columns = [Column("scope"), Column("id"), Column("label", wraps=True), Column("state"), Column("why")]
    rows = [
        (each.node.scope.path or "(deployment)", each.node.id, each.node.label, each.node.state, each.reason)
        for each in plan.found
    ]
    put_table(columns, rows)
    said = f"{counted(plan.versions, 'old version')} and {counted(plan.edges, 'edge')}"
    put_notice(f"this was a dry run: {counted(len(rows), 'node')} would go, with {said}")


@click.command
@session_options()
def settle(session: Session) -> int:
    """Rewrite the store so that no byte of what was erased is left, as far as nobody reads an older state."""
    with session.open() as keel:
        keel.settle_receipts()
        states = [receipt.state for receipt in keel.receipts(DEPLOYMENT, below=True)]
    waiting = states.count("unreadable")
    if session.as_json:
        put_document({"scrubbed": len(states) - waiting, "unreadable": waiting})
    else:
        put_line(f"{counted(len(states) - waiting, 'erased node')} scrubbed, {waiting} unreadable")
    if waiting:
        put_notice(
            "somebody reads an older state, or a table that is not promptkeel's holds a copy; settle again later"
        )
    return FAILED if waiting else OK
