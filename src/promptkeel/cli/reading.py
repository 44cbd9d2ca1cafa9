"""The commands that read: facts, prompt, why, history."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console
from rich.text import Text

from promptkeel.cli.declarations import describe_lanes
from promptkeel.cli.display import (
    Column,
    counted,
    date_of,
    is_terminal,
    node_document,
    printable,
    put_bytes,
    put_document,
    put_line,
    put_table,
    time_of,
)
from promptkeel.cli.failures import EXIT_CODES
from promptkeel.cli.options import Session, scope_option, session_options
from promptkeel.core import Why
from promptkeel.errors import InvalidInputError
from promptkeel.model import BlockFact, MemoryNode
from promptkeel.prompt import Prompt
from promptkeel.render.facts import newest_last
from promptkeel.resolver import ResolvedBlock
from promptkeel.scope import TenantScope
from promptkeel.store.base import History, Testimony

_FACTS = (
    Column("block"),
    Column("fact", wraps=True),
    Column("source", wraps=True),
    Column("recorded"),
    Column("trust"),
    Column("id"),
)
_FACTS_ON_TERMINAL = (Column("fact", wraps=True), Column("id"))
_VERSIONS = (
    Column("updated"),
    Column("state"),
    Column("label", wraps=True),
    Column("properties", wraps=True),
    Column("source", wraps=True),
    Column("recorded"),
    Column("trust"),
)


def fact_document(fact: BlockFact) -> dict[str, Any]:
    """A fact as ``--json`` prints it."""
    return {
        "value": fact.value,
        "field": fact.field,
        "source": fact.source,
        "recorded_at": time_of(fact.recorded),
        "trust": fact.trust,
        "node_id": fact.node_id,
    }


@click.command(epilog=f"{describe_lanes()}\n{EXIT_CODES}")
@click.option("--block", metavar="NAME", help="Only this memory block.")
@scope_option()
@session_options()
def facts(session: Session, *, scope: TenantScope, block: str | None) -> None:
    """Show every fact that the memory blocks hold at a scope, with its provenance, in the order of the prompt."""
    if block is not None and block not in session.lanes:
        declared = ", ".join(session.lanes)
        raise InvalidInputError(f"{block!r} is no declared memory block (declared: {declared})", field="--block")
    with session.open() as keel:
        found = [each for each in keel.resolve(scope).blocks if each.is_learned and block in (None, each.name)]
    if session.as_json:
        put_document({"scope": scope.path, "blocks": [_lane_document(each) for each in found]})
        return
    if is_terminal():
        for each in found:
            if not each.facts:
                put_line(f"{each.name}: no facts")
                continue
            title = f"{each.name}: {counted(len(each.facts), 'fact')} at {short_revision(each.revision_id)}"
            rows = [(_fact_with_provenance(fact), fact.node_id) for fact in newest_last(each.facts)]
            put_table(_FACTS_ON_TERMINAL, rows, title=title)
        return
    lines = [
        (each.name, fact.value, fact.source, date_of(fact.recorded), fact.trust, fact.node_id)
        for each in found
        for fact in newest_last(each.facts)
    ]
    put_table(_FACTS, lines)


def _fact_with_provenance(fact: BlockFact) -> Text:
    provenance = ", ".join(filter(None, (fact.source, date_of(fact.recorded), fact.trust))) or "not recorded"
    return Text.assemble(printable(fact.value), "\n", (printable(provenance), "dim"))


def short_revision(revision: str) -> str:
    """A revision short enough for a table: its count, and the end of its digest."""
    kind, _, rest = revision.partition(":")
    if rest.endswith(":empty"):
        return revision
    count = rest.partition(":")[0] + ":" if kind == "mem" else ""
    return f"{kind}:{count}…{revision[-6:]}"


def _lane_document(block: ResolvedBlock) -> dict[str, Any]:
    return {
        "name": block.name,
        "revision": block.revision_id,
        "facts": [fact_document(fact) for fact in newest_last(block.facts)],
        "unreadable": [
            {"node_id": each.node_id, "field": each.field, "reason": each.reason} for each in block.revision.unreadable
        ],
    }


def prompt_document(prompt: Prompt) -> dict[str, Any]:
    """A prompt as ``--json`` prints it."""
    return {
        "scope": prompt.scope.path,
        "fingerprint": prompt.fingerprint,
        "tokens": prompt.tokens,
        "freshness": str(prompt.freshness),
        "heads": None if prompt.heads is None else prompt.heads.to_json(),
        "blocks": [
            {
                "name": block.name,
                "tier": block.spec.tier,
                "layer": block.spec.layer,
                "facts": len(block.facts) if block.is_learned and block.state != "omitted" else None,
                "tokens": prompt.block_tokens[block.name],
                "revision": block.revision_id,
                "omitted": len(block.omitted),
                "text": block.text,
                "statements": [fact_document(fact) for fact in newest_last(block.facts)],
            }
            for block in prompt.blocks
        ],
        "text": prompt.text,
    }


@click.command(epilog=f"{describe_lanes()}\n{EXIT_CODES}")
@scope_option()
@session_options(authored=True)
def prompt(session: Session, *, scope: TenantScope) -> None:
    """Print the prompt of a scope, byte for byte as a model gets it.

    promptkeel prompt --scope user:ada --file RULES=rules.md
    """
    with session.open() as keel:
        found = keel.prompt(scope)
    if session.as_json:
        put_document(prompt_document(found))
        return
    end = b"\n" if is_terminal() and not found.text.endswith("\n") else b""
    put_bytes(found.text.encode() + end)


@click.command
@click.argument("node_id", metavar="ID")
@scope_option()
@session_options()
def why(session: Session, *, scope: TenantScope, node_id: str) -> None:
    """Show why a statement stands where it stands: its blocks, versions, testimonies and lineage."""
    with session.open() as keel:
        found = keel.why(scope, node_id)
    if session.as_json:
        put_document(_why_document(found))
        return
    put_line(f"{found.node.label}")
    put_line(f"  stored at {found.node.scope.path or '(deployment)'}, {found.node.state}, id {found.node.id}")
    put_line(f"  shown in  {', '.join(found.blocks) or 'no block'}")
    _put_versions(found.history)
    for neighbour in found.lineage:
        put_line(f"{neighbour.edge.type} {neighbour.node.id}: {neighbour.node.label}")


def _why_document(found: Why) -> dict[str, Any]:
    return {
        "node": node_document(found.node),
        "blocks": list(found.blocks),
        **_history_document(found.history),
        "lineage": [
            {"type": each.edge.type, "from": each.edge.start, "node": node_document(each.node)}
            for each in found.lineage
        ],
    }


@click.command
@click.argument("node_id", metavar="ID")
@scope_option()
@session_options()
def history(session: Session, *, scope: TenantScope, node_id: str) -> None:
    """Show every kept version of a node, oldest first, and what else was said about it."""
    with session.open() as keel:
        found = keel.history(scope, node_id)
    if session.as_json:
        put_document({"id": node_id, **_history_document(found)})
        return
    _put_versions(found)


def _history_document(found: History) -> dict[str, Any]:
    return {
        "versions": [node_document(version) for version in found.versions],
        "testimonies": [
            {
                "kind": each.kind,
                "source": each.source,
                "recorded_at": time_of(each.recorded),
                "trust": each.trust,
                "at": time_of(each.at),
                "properties": dict(each.properties),
            }
            for each in found.testimonies
        ],
    }


def _put_versions(found: History) -> None:
    used = [
        column
        for position, column in enumerate(_VERSIONS)
        if any(_version_row(version)[position] for version in found.versions) or not is_terminal()
    ]
    keep = [_VERSIONS.index(column) for column in used]
    rows = [[_version_row(version)[position] for position in keep] for version in found.versions]
    put_table(used, rows)
    for each in found.testimonies:
        put_line(_testimony_line(each))


def _version_row(version: MemoryNode) -> tuple[str, ...]:
    properties = ", ".join(
        f"{name}: {value}" for name, value in version.own_properties.items() if not name.startswith("_")
    )
    return (
        _second_of(version.updated),
        version.state,
        version.label,
        properties,
        version.source or "",
        date_of(version.recorded),
        version.trust or "",
    )


def _second_of(instant: object) -> str:
    text = time_of(instant)
    return "" if text is None else text[:19] + "Z"


def _testimony_line(testimony: Testimony) -> str:
    said = f"{testimony.kind} by {testimony.source or '(not recorded)'}"
    when = date_of(testimony.recorded)
    values = ", ".join(f"{name}: {value}" for name, value in testimony.properties.items())
    return said + (f" on {when}" if when else "") + (f" (not taken: {values})" if values else "")


def print_prompt(console: Console, text: str) -> None:
    """A prompt on a terminal, its structure told apart from its text by colour."""
    shown = Text(text)
    shown.highlight_regex(r"(?m)^##.*$", "bold")
    shown.highlight_regex(r"(?m)^</?untrusted-data.*$", "dim")
    shown.highlight_regex(r"(?m)^\[.*\]$", "cyan")
    console.print(shown)
