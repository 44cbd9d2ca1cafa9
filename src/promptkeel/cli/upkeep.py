"""The commands that keep a store: check, compact, backup, restore, copy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import attrs
import click

from promptkeel import blocking
from promptkeel.cli.declarations import missing_file, store_file, store_url
from promptkeel.cli.display import Column, ProgressBar, put_document, put_line, put_notice, put_table
from promptkeel.cli.failures import FAILED, OK, MissingStoreError
from promptkeel.cli.options import Session, session_options
from promptkeel.errors import ExchangeError
from promptkeel.store.audit import Audit
from promptkeel.upkeep.backup import back_up
from promptkeel.upkeep.backup import restore as restore_backup
from promptkeel.upkeep.checking import check as check_url
from promptkeel.upkeep.compaction import CompactionProgress, Retention, retention_of, set_retention
from promptkeel.upkeep.compaction import compact as compact_engine
from promptkeel.upkeep.copying import copy_store
from promptkeel.upkeep.receipts import read_receipts

_UNITS: Final = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
_AGE: Final = re.compile(r"([1-9][0-9]{0,8})([mhdw])", re.ASCII)


def read_age(value: Any) -> Any:
    """The microseconds of a number with its unit."""
    if value is None or isinstance(value, int):
        return value
    found = _AGE.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value!r} must be a number and one of m, h, d, w, as 30d")
    return int(found[1]) * _UNITS[found[2]] * 1_000_000


def _check_there(url: str) -> None:
    missing = missing_file(url)
    if missing is not None:
        raise MissingStoreError(f"there is no store at {missing}; --store or PROMPTKEEL_STORE names another")


def _document(audit: Audit) -> dict[str, Any]:
    return {
        "healthy": audit.is_healthy,
        "findings": [attrs.asdict(finding) for finding in audit.findings],
        "unnamed": dict(audit.unnamed),
        "counts": dict(audit.counts),
    }


@click.command
@session_options()
def check(session: Session) -> int:
    """Audit the store: heads against log, versions against rows, triggers, orphans, unreadable values.

    Nothing is changed. What is found is listed with what to do; the exit code is 1 where anything is.
    """
    _check_there(session.url)
    found = check_url(session.url)
    if session.as_json:
        put_document(_document(found))
    elif found.is_healthy:
        put_line("healthy: " + ", ".join(f"{count} {name}" for name, count in found.counts.items()))
    else:
        columns = (Column("kind"), Column("where"), Column("what"), Column("remedy"))
        put_table(columns, [(each.kind, each.where, each.what, each.remedy) for each in found.findings])
        for kind, count in found.unnamed.items():
            put_notice(f"{count} more are {kind}")
    return OK if found.is_healthy else FAILED


@click.command
@click.option("--keep-changes", type=click.IntRange(min=1), metavar="N", help="Keep the newest N changes.")
@click.option("--keep-age", type=read_age, metavar="AGE", help="Keep the changes of so long: 12h, 30d, 8w.")
@click.option("--remember", is_flag=True, help="Keep this as the store's own retention, for later runs without one.")
@click.option("--step", type=click.IntRange(min=1), default=1000, show_default=True, help="Changes in one transaction.")
@session_options()
def compact(session: Session, *, keep_changes: int | None, keep_age: int | None, remember: bool, step: int) -> None:
    """Forget changes and old versions beyond the retention, in small steps; others go on reading and writing.

    A change's age is known to the nearest run: compact daily to keep days.
    """
    given = Retention(changes=keep_changes, age=keep_age)
    has_given = given != Retention()
    if remember and not has_given:
        raise click.UsageError("--remember needs --keep-changes or --keep-age", click.get_current_context())
    with session.open() as keel:
        engine = keel.store.core.engine
        if not has_given and retention_of(engine) is None:
            raise click.UsageError(
                "give --keep-changes or --keep-age: the store has no retention of its own", click.get_current_context()
            )
        if remember:
            set_retention(engine, given)
        progress = CompactionProgress(0, 0)
        with ProgressBar("compacting", None) as bar:
            for progress in compact_engine(engine, given if has_given else None, step=step):
                bar.advance_to(progress.done)
    if session.as_json:
        put_document({"forgotten": progress.done})
    else:
        put_line(f"forgot {progress.done} changes and the versions that they ended")


@click.command
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@session_options()
def backup(session: Session, *, file: Path) -> None:
    """Copy the store to FILE, at one point in time, while others use it; FILE is replaced whole."""
    session.check_output(file, "FILE")
    with session.open() as keel, ProgressBar("copying", 100) as bar:
        found = back_up(
            keel.store.core.engine, file, on_progress=lambda done, total: bar.advance_to(100 * done // max(total, 1))
        )
    if session.as_json:
        put_document({"file": str(file), **_document(found)})
        return
    if not found.is_healthy:
        put_notice(f"{len(found.findings)} things are wrong in the store, and so in its backup; see promptkeel check")
    put_line(f"wrote {found.counts['nodes']} nodes and their history to {file}")


@click.command
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--receipts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Receipts of erasures since the backup, one JSON object on each line.",
)
@click.option("--yes", is_flag=True, help="Replace what the store holds now without asking.")
@session_options()
def restore(session: Session, *, file: Path, receipts: Path | None, yes: bool) -> None:
    """Put the backup FILE in the place of the store, in one transaction.

    What was erased since the backup is erased from it again: the store's own receipts are applied, and those of
    --receipts.
    """
    is_there = missing_file(session.url) is None
    if is_there and not yes:
        click.confirm(f"Replace everything in {session.url} by {file}?", abort=True, err=True)
    given = [] if receipts is None else _read_receipts(receipts)
    done = restore_backup(file, session.url, receipts=given)
    if session.as_json:
        put_document({"reapplied": done.reapplied, **_document(done.audit)})
    else:
        put_line(f"restored {done.audit.counts['nodes']} nodes; applied {done.reapplied} erasures again")


def _read_receipts(path: Path) -> list[Any]:
    try:
        with path.open(encoding="utf-8") as lines:
            return list(read_receipts(lines))
    except (OSError, UnicodeDecodeError) as error:
        raise ExchangeError(f"cannot read {path}: {error}") from error


@click.command
@click.argument("target", metavar="TARGET")
@session_options()
def copy(session: Session, *, target: str) -> None:
    """Copy everything into the empty store TARGET, an address or a file, of any kind.

    Nodes in every state, their versions, testimonies, edges and receipts are taken along; every lane is then read on
    both sides and compared.
    """
    url = store_url(target)
    session.check_output(store_file(url), "TARGET")
    with (
        session.open() as keel,
        blocking.open_store(url) as copied,
        ProgressBar("copying", 100) as bar,
    ):
        report = copy_store(
            keel.store.core.engine,
            copied.core.engine,
            on_progress=lambda done, total: bar.advance_to(100 * done // max(total, 1)),
        )
    for line in report.left_out:
        put_notice(f"left out: {line}")
    counts = {name: count for name, count in attrs.asdict(report).items() if name != "left_out"}
    if session.as_json:
        put_document({"target": url, **counts, "left_out": list(report.left_out)})
        return
    put_table((Column("what"), Column("count", justify="right")), list(counts.items()))
