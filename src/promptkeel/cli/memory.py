"""The commands that write: remember, correct, retract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from promptkeel.cli.declarations import describe_lanes, unseen
from promptkeel.cli.display import node_document, put_document, put_line, put_notice
from promptkeel.cli.failures import EXIT_CODES
from promptkeel.cli.options import (
    Session,
    provenance_options,
    read_property,
    scope_option,
    session_options,
    standard_input,
)
from promptkeel.model import MemoryNode, Trust
from promptkeel.scope import TenantScope
from promptkeel.steps import drive_blocking
from promptkeel.store.operations import Retract


def _put_node(
    session: Session,
    action: str,
    node: MemoryNode,
    *,
    not_taken: Mapping[str, Any] | None = None,
    warnings: Sequence[str] = (),
) -> None:
    if session.as_json:
        document = {"action": action, "node": node_document(node)}
        put_document({**document, "not_taken": dict(not_taken or {}), "warnings": list(warnings)})
        return
    put_line(f"{action} {node.id}: {node.label}")
    for warning in warnings:
        put_notice(warning)


def _read_text() -> str:
    """Standard input as one text, without its last line break."""
    try:
        text = standard_input().read().decode()
    except UnicodeDecodeError:
        raise click.UsageError("standard input is not UTF-8 text", click.get_current_context()) from None
    return text.removesuffix("\n").removesuffix("\r")


@click.command(epilog=f"{describe_lanes()}\n{EXIT_CODES}")
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
    """Keep a statement, or confirm it where the scope holds one that says the same; says which of both it was.

    TEXT of - is standard input; a text that begins with a dash stands last, after --.

    promptkeel remember --scope user:ada --block USER_PROFILE "prefers tea"
    """
    if (label is None) == (text is None) or (text is None) != (block is None):
        raise click.UsageError("give TEXT and --block, or --label", click.get_current_context())
    given = dict(properties)
    with session.open(create=True) as keel:
        outcome = drive_blocking(
            keel.core.remember_outcome(
                scope,
                _read_text() if text == "-" else text,
                block=block,
                label=label,
                properties=given,
                source=source,
                recorded_at=recorded_at,
                trust=trust,
                node_id=node_id,
            )
        )
    node = outcome.node
    assert node is not None  # noqa: S101 - what Remember answers
    held = node.own_properties
    not_taken = {name: value for name, value in given.items() if name not in held or held[name] != value}
    warnings = unseen(session.lanes, node.label, set(given) - set(not_taken))
    taken = [name for name in given if name not in not_taken]
    if outcome.kind == "updated":
        warnings.append(f"the statement was there; it has {', '.join(taken)} now")
    if not_taken:
        warnings.append(
            f"not taken: {', '.join(not_taken)}; other values stand, 'promptkeel correct {node.id}' changes them"
        )
    _put_node(session, outcome.kind, node, not_taken=not_taken, warnings=warnings)


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
    """Change what a node says; the old version stays in its history. Says whether it was updated.

    A correction that was recorded before what stands is outdated: it is kept in history and changes nothing.

    promptkeel correct ID --scope user:ada --text "prefers coffee" --source chat
    """
    if text is None and not given and not removed:
        raise click.UsageError("give --text, --set or --unset", click.get_current_context())
    with session.open() as keel:
        outcome = drive_blocking(
            keel.core.correct_outcome(
                scope,
                node_id,
                text=text,
                properties={**dict(given), **dict.fromkeys(removed)},
                source=source,
                recorded_at=recorded_at,
                trust=trust,
                expected=expected,
            )
        )
    node = outcome.node
    assert node is not None  # noqa: S101 - what Correct answers
    warnings = []
    if outcome.outdated:
        warnings.append(
            f"not taken: {', '.join(outcome.outdated)}; what stands was recorded later, the correction is in history"
        )
    if node.state != "live":
        warnings.append(f"{node.id} is {node.state} and stays so: no prompt shows it")
    came_too_late = outcome.outdated and outcome.kind == "unchanged"
    action = "outdated" if came_too_late else outcome.kind
    _put_node(session, action, node, not_taken=outcome.outdated, warnings=warnings)


@click.command
@click.argument("node_id", metavar="ID")
@click.option("--expected", metavar="VERSION", help="Refuse if the node has changed since this version.")
@scope_option()
@session_options()
def retract(session: Session, *, scope: TenantScope, node_id: str, expected: str | None) -> None:
    """Take a node out of every prompt and keep it in history."""
    with session.open() as keel:
        (outcome,) = keel.store.apply((Retract(scope, node_id, expected),))
    assert outcome.node is not None  # noqa: S101 - what Retract answers
    _put_node(session, outcome.kind, outcome.node)
