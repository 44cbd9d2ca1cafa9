"""The command that looks for bytes in authored text that would not be the same next time."""

from __future__ import annotations

import click

from promptkeel.cli.display import Column, counted, put_document, put_line, put_table
from promptkeel.cli.failures import FAILED, OK
from promptkeel.cli.options import Session, scope_option, session_options
from promptkeel.prompt.linting import Finding, lint, lint_readings
from promptkeel.resolver import Resolution
from promptkeel.scope import TenantScope

_COLUMNS = (
    Column("block"),
    Column("line", "right"),
    Column("column", "right"),
    Column("level"),
    Column("kind"),
    Column("text", wraps=True),
    Column("what to do", wraps=True),
)


@click.command("lint")
@scope_option(required=False)
@click.option("--strict", is_flag=True, help="Take warnings for errors, as dates and hashes that may be meant.")
@session_options(authored=True)
def lint_command(session: Session, *, scope: TenantScope | None, strict: bool) -> int:
    """Look for volatile bytes in authored text: clock times, UUIDs, counters, ages, temporary paths.

    Every such byte costs the cache of all that stands behind it. The authored blocks are read twice, so that what
    changes by itself is found whatever it looks like. The exit code is 1 where anything is found.
    """
    if scope is None and session.configuration is not None:
        scope = session.configuration.scope
    with session.open_or_empty() as keel:
        first, second = keel.resolve(scope), keel.resolve(scope)
    found = [finding for each in _authored(first) for finding in _findings(*each, _texts(second))]
    failed = [finding for finding in found if strict or finding.level == "error"]
    if session.as_json:
        put_document({"findings": [_document(each) for each in found], "failed": bool(failed)})
    elif found:
        rows = [(f.block, f.line, f.column, f.level, f.kind, f.text, f.advice) for f in found]
        put_table(_COLUMNS, rows)
    else:
        put_line(f"nothing volatile in {counted(len(_authored(first)), 'authored block')}")
    return FAILED if failed else OK


def _authored(resolution: Resolution) -> list[tuple[str, str]]:
    return [(block.name, block.text) for block in resolution.blocks if not block.is_learned and block.text]


def _texts(resolution: Resolution) -> dict[str, str]:
    return {block.name: block.text for block in resolution.blocks}


def _findings(name: str, text: str, second: dict[str, str]) -> list[Finding]:
    # The first line is the block's heading, which is not the author's.
    content, again = (each.partition("\n")[2] for each in (text, second.get(name, "")))
    certain = lint_readings(name, content, again)
    lines = {finding.line for finding in certain}
    return [*certain, *(finding for finding in lint(name, content) if finding.line not in lines)]


def _document(finding: Finding) -> dict[str, object]:
    return {
        "block": finding.block,
        "line": finding.line,
        "column": finding.column,
        "level": finding.level,
        "kind": finding.kind,
        "text": finding.text,
        "advice": finding.advice,
    }
