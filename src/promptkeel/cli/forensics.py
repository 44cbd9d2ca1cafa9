"""The commands that tell why cached tokens are lost in anyone's traffic, and whether a change makes that dearer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast, final

import click

from promptkeel.blocks.configuration import DEFAULT_NAME
from promptkeel.cli.display import Column, ProgressBar, counted, put_document, put_line, put_notice, put_table
from promptkeel.cli.failures import EXIT_CODES, FAILED, OK
from promptkeel.cli.options import FilePath, read_configuration, read_time, standard_input
from promptkeel.errors import ExchangeError
from promptkeel.files import replaced
from promptkeel.forensics.analysis import Analysis
from promptkeel.forensics.causes import Cause
from promptkeel.forensics.gate import Baseline, Verdict, baseline_of, compare, read_baseline, write_baseline
from promptkeel.forensics.reading import Unread, read_records
from promptkeel.forensics.report import DIMENSIONS, Dimension, Lost, Report, Worst, document_of, first
from promptkeel.instants import format_instant, parse_instant
from promptkeel.providers.rule_tables import RuleTables
from promptkeel.providers.rules import load_rules

_NAMED: Final = 10
"""As many unread lines, and rows of a table, are named on the screen."""
_BASELINE_BYTES: Final = 16 * 1024 * 1024
_GATE_CODES: Final = """\b
Exit codes:
  0    as dear as before, or cheaper
  1    dearer by more than the threshold, or a file cannot be read
  2    the command line is wrong, or a file holds no request to judge
"""


@final
class _WithReport(click.Group):
    """A group whose command may be left out: a file is what it reports on."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take what begins with no command for the arguments of ``report``."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["report", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_WithReport)
def forensics() -> None:
    """Tell why cached tokens are lost, from a log of requests and usage of any framework.

    'promptkeel forensics FILE' is 'promptkeel forensics report FILE'.
    """


def _rules_options(command: Callable[..., Any]) -> Callable[..., Any]:
    rules = click.option(
        "--rules",
        "rule_files",
        type=FilePath(exists=True),
        multiple=True,
        metavar="FILE",
        help="A file of rules of providers that go before the packaged ones; may be given again.",
    )
    configuration = click.option(
        "--config",
        "configuration",
        type=FilePath(exists=True),
        envvar="PROMPTKEEL_CONFIG",
        show_envvar=True,
        show_default=f"{DEFAULT_NAME}, if it is here",
        metavar="FILE",
        help="The file whose [providers] go before the packaged rules too.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON document.")
    return rules(configuration(as_json(command)))


_REPORT_HELP: Final = """Say how many cached tokens were lost, to which causes, in which blocks, and when.

FILE ('-' is standard input) has one JSON object on each line: the request's arguments under "request", or as the line
itself, and beside them what is known of

\b
usage or response   what the provider counted; without any, reads are simulated
time                when it started: ISO 8601, or seconds since 1970
session             which conversation it belongs to
response_id         the id of its answer
format              anthropic, openai-responses, openai-chat, gemini or bedrock
gateway             by what route it went
latency             seconds until its answer began

Lines that cannot be read are named and counted, and the rest is reported. What a lost token costs is its price beyond
reading it from the cache, by the dated prices of 'promptkeel providers'.
"""


@forensics.command(help=_REPORT_HELP, epilog=EXIT_CODES)
@click.argument("file", type=FilePath(exists=True, allow_dash=True))
@click.option(
    "--by",
    "tables",
    type=click.Choice([*DIMENSIONS, "worst"]),
    multiple=True,
    show_default="cause, block, time, worst",
    help="Which table to print; may be given again.",
)
@click.option("--since", type=read_time, metavar="TIME", help="Only requests from then on, in ISO 8601.")
@click.option("--until", type=read_time, metavar="TIME", help="Only requests before then, in ISO 8601.")
@click.option("--write-baseline", "baseline", type=FilePath(), metavar="FILE", help="Keep the result for the gate.")
@_rules_options
def report(
    *,
    file: str,
    tables: Sequence[str],
    since: str | None,
    until: str | None,
    baseline: str | None,
    rule_files: Sequence[str],
    configuration: str | None,
    as_json: bool,
) -> int:
    """Report on one log."""
    if baseline is not None and file != "-" and Path(baseline).resolve() == Path(file).resolve():
        raise click.UsageError("--write-baseline names the log itself", click.get_current_context())
    found = Report(_seconds(since), _seconds(until))
    unread = _read(file, found, _overrides(rule_files, configuration))
    if baseline is not None:
        with replaced(baseline) as path:
            path.write_bytes(write_baseline(baseline_of(found)))
    _put_unread(file, unread, found)
    if as_json:
        document = document_of(found)
        document["unread"] = [{"line": each.line, "reason": each.reason} for each in unread]
        put_document(document)
        return OK
    for line in _summary(found):
        put_line(line)
    chosen = tables or (("cause", "block", "time", "worst") if found.lost_tokens else ())
    for number, table in enumerate(chosen):
        if number or not tables:
            put_line("")
        _put_table(found, table)
    return OK


@forensics.command(epilog=_GATE_CODES)
@click.argument("before", type=FilePath(exists=True))
@click.argument("after", type=FilePath(exists=True))
@click.option(
    "--threshold",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="PERCENT",
    help="So much dearer is still taken.",
)
@_rules_options
def gate(
    *,
    before: str,
    after: str,
    threshold: float,
    rule_files: Sequence[str],
    configuration: str | None,
    as_json: bool,
) -> int:
    """Fail where the prompts of AFTER cost more than those of BEFORE.

    Each is a log, or what 'promptkeel forensics FILE --write-baseline' wrote of one. Compared is what the prompt of a
    request costs on average, in tokens of input at the full price.
    """
    overrides = _overrides(rule_files, configuration)
    old, new = (_baseline(each, overrides) for each in (before, after))
    verdict = compare(old, new, threshold / 100)
    if as_json:
        put_document(_verdict_document(old, new, verdict))
    else:
        change = f"{abs(verdict.increase):.1%}".replace("%", " %")
        put_line(
            f"{'dearer' if verdict.increase > 0 else 'cheaper'} by {change}: {old.units:,.0f} -> {new.units:,.0f} "
            f"full-price tokens a request, {old.read_share:.0%} -> {new.read_share:.0%} read from the cache"
        )
        if verdict.is_dearer and verdict.blamed:
            columns = (
                Column("cause"),
                Column("block"),
                Column("lost a request", "right"),
                Column("remedy", wraps=True),
            )
            rows, _ = first(list(verdict.blamed), _NAMED)
            put_table(columns, [(cause, block, f"{more:+,.0f}", _remedy(cause)) for cause, block, more in rows])
        elif verdict.is_dearer:
            put_line(
                "no more tokens are lost than before: what is sent has grown, or less of it is kept from the start"
            )
    return FAILED if verdict.is_dearer else OK


@contextmanager
def _opened(file: str) -> Iterator[tuple[BinaryIO, int | None]]:
    if file == "-":
        yield standard_input(), None
        return
    try:
        with Path(file).open("rb") as stream:
            yield stream, os.fstat(stream.fileno()).st_size
    except (FileNotFoundError, PermissionError) as error:
        raise ExchangeError(f"cannot read {file}: {error.strerror}") from error


def _read(file: str, into: Report, overrides: Sequence[RuleTables]) -> list[Unread]:
    """Add a log to a report; the first of the lines that could not be read."""
    named: list[Unread] = []

    def on_unread(unread: Unread) -> None:
        into.unread_lines += 1
        if len(named) < _NAMED:
            named.append(unread)

    analysis = Analysis(overrides=overrides)
    with _opened(file) as (stream, size), ProgressBar("reading", size) as bar:
        for record in read_records(stream, on_unread=on_unread, on_progress=bar.advance_to):
            into.add(analysis.take(record))
    return named


def _baseline(file: str, overrides: Sequence[RuleTables]) -> Baseline:
    found = None
    if Path(file).stat().st_size <= _BASELINE_BYTES:
        try:
            found = read_baseline(Path(file).read_bytes())
        except ExchangeError as error:
            raise ExchangeError(f"{file} {error}") from None
    if found is None:
        into = Report()
        _put_unread(file, _read(file, into, overrides), into)
        found = baseline_of(into)
    if not found.requests:
        raise click.UsageError(f"{file} holds no request to judge", click.get_current_context())
    return found


def _overrides(rule_files: Sequence[str], configuration: str | None) -> tuple[RuleTables, ...]:
    declared = read_configuration(configuration)
    return (*(() if declared is None else declared.rules), *map(load_rules, rule_files))


def _seconds(time: str | None) -> float | None:
    return None if time is None else parse_instant(time) / 1_000_000


def _put_unread(file: str, named: Sequence[Unread], found: Report) -> None:
    for each in named:
        put_notice(f"{file} line {each.line}: {each.reason}")
    if found.unread_lines > len(named):
        put_notice(f"{file}: {counted(found.unread_lines - len(named), 'more line')} could not be read")


def _summary(found: Report) -> Iterator[str]:
    unread = f"; {counted(found.unread_lines, 'line')} could not be read" if found.unread_lines else ""
    if not found.requests:
        yield f"no request to judge{unread}"
        return
    share = found.read_tokens / found.prompt_tokens if found.prompt_tokens else 0.0
    yield (
        f"{counted(found.requests, 'request')}, {found.prompt_tokens:,} prompt tokens, {share:.0%} read from the "
        f"cache{unread}"
    )
    if found.simulated:
        yield "the log has no usage: reads are simulated by what providers document"
    if found.without_usage:
        yield f"{counted(found.without_usage, 'request')} without usage are not judged"
    if not found.compared:
        yield "nothing was sent before that a request continues: nothing could be lost"
    elif not found.lost_tokens:
        yield "no cached token was lost"
    else:
        unpriced = f", and {found.unpriced_tokens:,} tokens without a known price" if found.unpriced_tokens else ""
        yield (
            f"{found.lost_tokens:,} of {found.expected_tokens:,} tokens that could have been read were not: "
            f"{_dollars(found.lost_dollars)} more than reading them{unpriced}"
        )
    if found.contradicted:
        yield f"the provider names another reason for {counted(found.contradicted, 'miss')}: see 'worst'"


def _put_table(found: Report, table: str) -> None:
    if table == "worst":
        _put_worst(found.worst())
        return
    dimension = cast("Dimension", table)
    rows = found.rows(dimension)
    shown, left = (rows, 0) if dimension in ("cause", "time") else first(rows, 2 * _NAMED)
    columns = [Column(dimension, wraps=dimension == "block"), Column("tokens", "right"), Column("share", "right"),
               Column("dollars", "right"), Column("requests", "right")]  # fmt: skip
    if dimension == "cause":
        columns.append(Column("what to do", wraps=True))
    put_table(columns, [_row(found, dimension, name, lost) for name, lost in shown])
    if left:
        put_notice(f"{counted(left, 'more row')}; --json has them all")


def _row(found: Report, dimension: Dimension, name: str, lost: Lost) -> tuple[object, ...]:
    share = lost.tokens / found.lost_tokens if found.lost_tokens else 0.0
    row = (name, f"{lost.tokens:,}", f"{share:.1%}", _dollars(lost.dollars), lost.requests)
    return (*row, _remedy(name)) if dimension == "cause" else row


def _put_worst(worst: Sequence[Worst]) -> None:
    columns = (
        Column("line", "right"), Column("continues", "right"), Column("time"), Column("lost", "right"),
        Column("cause"), Column("block", wraps=True), Column("before", wraps=True), Column("after", wraps=True),
        Column("provider says"),
    )  # fmt: skip
    put_table(columns, [_worst_row(each) for each in worst])


def _worst_row(each: Worst) -> tuple[object, ...]:
    main = max(each.blames, key=lambda blame: blame.tokens)
    before, after = each.excerpt or ("", "")
    said = "" if each.reason is None else each.reason + (" (contradicts)" if each.is_contradicted else "")
    at = "" if each.at is None else format_instant(int(each.at * 1_000_000))
    lost = f"{each.expected - each.read:,}"
    return each.line, each.continues, at, lost, main.cause.value, main.block, before, after, said


def _verdict_document(old: Baseline, new: Baseline, verdict: Verdict) -> dict[str, Any]:
    return {
        "is_dearer": verdict.is_dearer,
        "increase": round(verdict.increase, 6),
        "before": {"requests": old.requests, "units_per_request": old.units, "read_share": old.read_share},
        "after": {"requests": new.requests, "units_per_request": new.units, "read_share": new.read_share},
        "blamed": [{"cause": cause, "block": block, "tokens": more} for cause, block, more in verdict.blamed],
    }


def _remedy(cause: str) -> str:
    return Cause(cause).remedy


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 0.1 else f"${amount:.4f}"
