"""The commands that move memory in and out of files: import, export."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, final

import attrs
import click

from promptkeel.cli.declarations import missing_file
from promptkeel.cli.display import Column, ProgressBar, counted, put_bytes, put_document, put_notice, put_table
from promptkeel.cli.failures import OK, REJECTED
from promptkeel.cli.options import FilePath, Session, scope_option, session_options, standard_input
from promptkeel.errors import ExchangeError
from promptkeel.exchange import (
    ImportReport,
    ImportSettings,
    JsonLines,
    KnowledgeGraph,
    Rejected,
    export_steps,
    import_steps,
    rejects_all,
    replace_file,
)
from promptkeel.exchange.entries import LineFormat, rejected_text
from promptkeel.exchange.reading import LineReader
from promptkeel.model import TRUST_LEVELS, Trust
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.steps import drive_blocking

_NAMED: Final = 10
"""As many rejected lines are named on the screen."""
_IN_MEMORY: Final = 16 * 1024 * 1024
_COUNTS: Final = ("inserted", "updated", "confirmed", "linked", "unchanged", "rejected")

FormatName = Literal["jsonl", "mcp"]


_IMPORT_HELP: Final = """Take memory from FILE ('-' is standard input); taking it twice changes nothing.

\b
jsonl  {"scope", "label" or "block" and "text", "properties", "source",
       "recorded_at", "trust", "id"} or {"scope", "edge": {"start", "type",
       "end", "properties"}} on each line; --scope is for lines that name none
mcp    the knowledge-graph file of the MCP memory server, stored at --scope;
       the observation "works at Acme" of Ada becomes "Ada: works at Acme",
       and an export gives back what was there

All in one transaction, unless --chunk. Good lines are taken also where others are rejected, unless --strict; rejected
lines are named with their reasons and go to FILE.rejected.jsonl. Mend the texts in that file and import it; it is
removed when FILE itself has been imported without a rejected line.
"""


@click.command(name="import", help=_IMPORT_HELP)
@click.argument("file", type=FilePath(exists=True, allow_dash=True))
@click.option("--format", "format_name", type=click.Choice(["jsonl", "mcp"]), default="jsonl", show_default=True)
@click.option("--prefix", default="SOUL:", show_default=True, help="mcp: the label prefix of observations.")
@click.option("--source", help="mcp: who or what said so; left out, not recorded.")
@click.option("--trust", type=click.Choice(TRUST_LEVELS), help="mcp: whose words these are.")
@click.option("--chunk", type=click.IntRange(min=1), metavar="N", help="Commit every N lines; resumable.")
@click.option("--replace", is_flag=True, help="Overwrite nodes and edges that say something else.")
@click.option("--force-erased", is_flag=True, help="Bring back nodes that were erased.")
@click.option("--authored", is_flag=True, help="Take revisions of authored blocks too: whoever wrote FILE is trusted.")
@click.option("--strict", is_flag=True, help="One rejected line rejects them all.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@click.option("--rejects", type=FilePath(), help="Where rejected lines go.", show_default="FILE.rejected.jsonl")
@scope_option(required=False)
@session_options()
def import_(
    session: Session,
    *,
    file: str,
    format_name: FormatName,
    prefix: str,
    source: str | None,
    trust: Trust | None,
    scope: TenantScope | None,
    rejects: str | None,
    **settings: Any,
) -> int:
    """Import a file and report what became of its lines."""
    line_format = _format(session, format_name, scope, prefix, source, trust)
    name = "-" if file == "-" else str(Path(file).resolve())
    reject_path = _reject_path(file, rejects)
    session.check_output(reject_path, "--rejects" if rejects is not None else "the file of rejected lines")
    rejected_lines = _RejectFile(reject_path, dry_run=settings["dry_run"])
    with _opened(file) as (stream, size), rejected_lines, ProgressBar("importing", size) as bar:
        report = _import(
            session,
            stream,
            line_format,
            ImportSettings(name=name, on_rejected=rejected_lines.add, on_progress=bar.advance_to, **settings),
        )
    if report.committed and not report.rejected:
        rejected_lines.remove_stale()
    _put_report(session, report, rejected_lines)
    return REJECTED if report.rejected else OK


def _import(session: Session, stream: BinaryIO, line_format: LineFormat, settings: ImportSettings) -> ImportReport:
    """Import into the store; where there is none, make one only for what is taken."""
    if missing_file(session.url) is not None:
        if settings.dry_run:
            with session.pretended() as keel:
                return drive_blocking(import_steps(keel.core.store, stream, line_format, settings))
        if settings.strict or rejects_all(stream, line_format, authored=settings.authored):
            with session.pretended() as keel:
                first = attrs.evolve(settings, dry_run=True)
                report = drive_blocking(import_steps(keel.core.store, stream, line_format, first))
            if report.rejected:
                return attrs.evolve(report, dry_run=False)
    with session.open(create=True) as keel:
        return drive_blocking(import_steps(keel.core.store, stream, line_format, settings))


def _format(
    session: Session,
    format_name: FormatName,
    scope: TenantScope | None,
    prefix: str,
    source: str | None,
    trust: Trust | None,
) -> LineFormat:
    if format_name == "mcp":
        if scope is None:
            raise click.UsageError("--format mcp needs --scope: the file names none", click.get_current_context())
        return KnowledgeGraph(scope, prefix=prefix, source=source, trust=trust)
    if source is not None or trust is not None:
        raise click.UsageError("--source and --trust go with --format mcp", click.get_current_context())
    return JsonLines({name: lane.label_prefix for name, lane in session.lanes.items()}, scope)


def _reject_path(file: str, rejects: str | None) -> Path | None:
    if rejects is None:
        # The whole name: files that differ in their suffix alone have reject files of their own.
        return None if file == "-" else Path(file).with_name(f"{Path(file).name}.rejected.jsonl")
    if file != "-" and Path(rejects).resolve() == Path(file).resolve():
        raise click.UsageError("--rejects names the imported file itself", click.get_current_context())
    return Path(rejects)


@contextmanager
def _opened(file: str) -> Iterator[tuple[BinaryIO, int]]:
    """The file, or standard input copied to a temporary file, and its size."""
    try:
        if file != "-":
            with Path(file).open("rb") as stream:
                yield stream, os.fstat(stream.fileno()).st_size
            return
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as spooled:
            shutil.copyfileobj(standard_input(), spooled)
            size = spooled.tell()
            spooled.seek(0)
            yield spooled, size  # type: ignore[misc]  # typeshed spells its buffer methods otherwise
    except (FileNotFoundError, PermissionError) as error:
        if error.filename is None:
            raise
        raise ExchangeError(f"cannot read {file}: {error.strerror}") from error


@final
class _RejectFile:
    """The file of rejected lines, begun with the first of them and replaced whole at the end."""

    def __init__(self, path: Path | None, *, dry_run: bool) -> None:
        self.path = None if dry_run else path
        self.written = False
        self._stack = ExitStack()
        self._file: BinaryIO | None = None

    def __enter__(self) -> None:
        self._stack.__enter__()

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]
        self.written = self._file is not None

    def add(self, rejected: Rejected) -> None:
        """Write one rejected line."""
        if self.path is None:
            return
        if self._file is None:
            self._file = self._stack.enter_context(replace_file(self.path))
        self._file.write(json.dumps(attrs.asdict(rejected), ensure_ascii=False).encode() + b"\n")

    def remove_stale(self) -> None:
        """Remove what an earlier import of the same file has left, if it is still nothing else."""
        if self.path is not None and not self.written and _holds_rejected_lines(self.path):
            self.path.unlink()
            put_notice(f"removed {self.path}, whose lines were rejected before")


def _holds_rejected_lines(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        reader = LineReader(file)
        try:
            while (line := reader.next()) is not None:
                if rejected_text(line.decode()) is None:
                    return False
        except ExchangeError:
            return False
    return reader.lines > 0


def _put_report(session: Session, report: ImportReport, rejects: _RejectFile) -> None:
    counts = {name: getattr(report, name) for name in _COUNTS}
    for rejected in report.first_rejected[:_NAMED]:
        put_notice(f"line {rejected.line}: {rejected.reason}")
    if report.rejected > _NAMED:
        put_notice(f"and {report.rejected - _NAMED} more")
    if report.rejected:
        written = f"; all of them are in {rejects.path}" if rejects.written else ""
        put_notice(f"{report.rejected} of {counted(report.lines, 'line')} rejected, {_what_of_others(report)}{written}")
    if any(report.would_have.values()):
        would = ", ".join(f"{name} {count}" for name, count in report.would_have.items() if count)
        put_notice(f"without the rejected lines it would have {would}")
    if session.as_json:
        put_document(
            {
                **counts,
                "would_have": dict(report.would_have),
                "lines": report.lines,
                "resumed": report.resumed,
                "committed": report.committed,
                "dry_run": report.dry_run,
                "rejects": str(rejects.path) if rejects.written else None,
                "rejected_lines": [{"line": each.line, "reason": each.reason} for each in report.first_rejected],
            }
        )
        return
    put_table((Column("outcome"), Column("count", justify="right")), list(counts.items()))
    if report.resumed:
        put_notice(f"resumed behind line {report.resumed}, where an interrupted import had come to")
    if report.dry_run:
        put_notice("this was a dry run: nothing was written")


def _what_of_others(report: ImportReport) -> str:
    others = report.resumed or any(getattr(report, name) for name in _COUNTS if name != "rejected")
    if not others:
        return "nothing was written"
    return "the other lines were taken" if report.committed else "the other lines would be taken"


@click.command
@click.option("--output", type=FilePath(), help="The file, replaced whole; left out, standard output.")
@click.option("--format", "format_name", type=click.Choice(["jsonl", "mcp"]), default="jsonl", show_default=True)
@click.option("--prefix", default="SOUL:", show_default=True, help="mcp: the label prefix of observations.")
@click.option("--all", "everything", is_flag=True, help="jsonl: retracted and superseded nodes too.")
@scope_option(required=False)
@session_options()
def export(
    session: Session,
    *,
    output: str | None,
    format_name: FormatName,
    prefix: str,
    everything: bool,
    scope: TenantScope | None,
) -> None:
    """Print what is stored at a scope and below it, or everything; an import takes it back.

    promptkeel export --scope org:acme --output acme.jsonl
    """
    if format_name == "mcp" and scope is None:
        raise click.UsageError("--format mcp needs --scope: it exports exactly one", click.get_current_context())
    session.check_output(output, "--output")
    with session.open() as keel:
        found = drive_blocking(
            export_steps(
                keel.core.store,
                DEPLOYMENT if scope is None else scope,
                format=format_name,
                everything=everything,
                prefix=prefix,
            )
        )
    if found.left_out:
        left = counted(found.left_out, "statement")
        put_notice(f"left out: {left} about no entity, which this format cannot say")
    if output is not None:
        with replace_file(output) as file:
            file.writelines(found.encoded())
    counts = {
        "statements": found.statements,
        "revisions": found.revisions,
        "edges": found.edges,
        "left_out": found.left_out,
        "output": output,
    }
    if session.as_json:
        put_document(counts if output is not None else {**counts, "lines": [json.loads(line) for line in found.lines]})
    elif output is None:
        buffer = io.BytesIO()
        buffer.writelines(found.encoded())
        put_bytes(buffer.getvalue())
    else:
        authored = f", {counted(found.revisions, 'revision')} of authored blocks" if found.revisions else ""
        put_notice(
            f"wrote {counted(found.statements, 'statement')}{authored} and {counted(found.edges, 'edge')} to {output}"
        )
