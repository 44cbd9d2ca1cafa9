"""The commands that write: remember, correct, retract."""

from __future__ import annotations

from typing import Any

import click

from promptkeel.cli.display import node_document, put_document, put_line
from promptkeel.cli.options import Session, provenance_options, read_property, scope_option, session_options
from promptkeel.model import MemoryNode, Trust
from promptkeel.scope import TenantScope


def _put_node(session: Session, action: str, node: MemoryNode) -> None:
    if session.as_json:
        put_document({"action": action, "node": node_document(node)})
    else:
        put_line(f"{action} {node.id}: {node.label}")


@click.command
@click.argument("text", required=False)
@click.option("--block", metavar="NAME", help="The memory block that shows it, as USER_PROFILE.")
@click.option("--label", help="Prefix and statement at once, in place of TEXT and --block.")
@click.option(
    "--set",
    "properties",
    type=read_property,
    multiple=True,
    metavar="NAME=VALUE",
    help="A property, as JSON or text; may be given again.",
)
@click.option("--id", "node_id", metavar="ID", help="A new id; left out, a random one.")
@provenance_options
@scope_option()
@session_options()
def remember(
    session: Session,
    *,
    scope: TenantScope,
    text: str | None,
    block: str | None,
    label: str | None,
    properties: tuple[tuple[str, Any], ...],
    node_id: str | None,
    source: str | None,
    recorded_at: Any,
    trust: Trust | None,
) -> None:
    """Keep a statement, or confirm it where the scope holds one that says the same.

    promptkeel remember --scope user:ada --block USER_PROFILE "prefers tea"
    """
    if (label is None) == (text is None) or (text is None) != (block is None):
        raise click.UsageError("give TEXT and --block, or --label", click.get_current_context())
    with session.open(create=True) as keel:
        node = keel.remember(
            scope,
            text,
            block=block,
            label=label,
            properties=dict(properties),
            source=source,
            recorded_at=recorded_at,
            trust=trust,
            id=node_id,
        )
    _put_node(session, "remembered", node)


@click.command
@click.argument("node_id", metavar="ID")
@click.option("--text", help="The new statement, without its label's prefix.")
@click.option(
    "--set",
    "given",
    type=read_property,
    multiple=True,
    metavar="NAME=VALUE",
    help="A declared field, as JSON or text; may be given again.",
)
@click.option("--unset", "removed", multiple=True, metavar="NAME", help="Take a declared field away.")
@click.option("--expected", metavar="VERSION", help="Refuse if the node has changed since this version.")
@provenance_options
@scope_option()
@session_options()
def correct(
    session: Session,
    *,
    scope: TenantScope,
    node_id: str,
    text: str | None,
    given: tuple[tuple[str, Any], ...],
    removed: tuple[str, ...],
    expected: str | None,
    source: str | None,
    recorded_at: Any,
    trust: Trust | None,
) -> None:
    """Change what a node says; the old version stays in its history.

    promptkeel correct ID --scope user:ada --text "prefers coffee" --source chat
    """
    if text is None and not given and not removed:
        raise click.UsageError("give --text, --set or --unset", click.get_current_context())
    with session.open() as keel:
        node = keel.correct(
            scope,
            node_id,
            text=text,
            properties={**dict(given), **dict.fromkeys(removed)},
            source=source,
            recorded_at=recorded_at,
            trust=trust,
            expected=expected,
        )
    _put_node(session, "corrected", node)


@click.command
@click.argument("node_id", metavar="ID")
@click.option("--expected", metavar="VERSION", help="Refuse if the node has changed since this version.")
@scope_option()
@session_options()
def retract(session: Session, *, scope: TenantScope, node_id: str, expected: str | None) -> None:
    """Take a node out of every prompt and keep it in history."""
    with session.open() as keel:
        node = keel.retract(scope, node_id, expected=expected)
    _put_node(session, "retracted", node)
