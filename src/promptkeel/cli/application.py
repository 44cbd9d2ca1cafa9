"""The group of commands, and what becomes of everything that goes wrong in one."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from promptkeel.cli import (
    blocks,
    comparing,
    configuring,
    erasing,
    exchanging,
    forensics,
    linting,
    memory,
    providers,
    reading,
    upkeep,
)
from promptkeel.cli.declarations import decoded
from promptkeel.cli.demo import demo
from promptkeel.cli.display import OutputError, put_document, put_notice, writing
from promptkeel.cli.failures import BROKEN_PIPE, EXIT_CODES, FAILED, INTERRUPTED, OK, as_document, describe, exit_code
from promptkeel.errors import PromptkeelError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=CONTEXT, epilog=EXIT_CODES, invoke_without_command=True)
@click.version_option(package_name="promptkeel", prog_name="promptkeel")
@click.pass_context
def application(context: click.Context) -> None:
    """The standing context of LLM agents: memory in, a complete, attributed, byte-stable prompt out.

    Try it: promptkeel demo
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (
    demo,
    configuring.init,
    configuring.doctor,
    memory.remember,
    memory.correct,
    memory.retract,
    blocks.block,
    erasing.erase,
    erasing.settle,
    reading.facts,
    reading.prompt,
    reading.why,
    reading.history,
    comparing.diff,
    linting.lint_command,
    providers.providers,
    forensics.forensics,
    exchanging.import_,
    exchanging.export,
    upkeep.check,
    upkeep.compact,
    upkeep.backup,
    upkeep.restore,
    upkeep.copy,
):
    command.epilog = command.epilog or EXIT_CODES
    application.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    if sys.stdout is None:
        # Before anything is done: the next file that is opened would get its number.
        put_notice("standard output is closed, nothing was done; send it somewhere, as to /dev/null")
        return FAILED
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a screen that lacks a letter is no reason to fail
    words = [decoded(argument) for argument in arguments]
    try:
        code = _invoke(words)
        with writing():
            sys.stdout.flush()
    except BrokenPipeError:
        _finish_output()
        return BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        put_notice("interrupted; what was not committed is not there")
        return INTERRUPTED
    except (click.ClickException, PromptkeelError, OSError, UnicodeEncodeError) as error:
        put_notice(describe(error))
        with suppress(OSError, OutputError):
            if "--json" in words:
                put_document(as_document(error))
        _finish_output()
        return exit_code(error)
    return code


def _invoke(words: list[str]) -> int:
    # Not application.main: it answers a closed pipe and an interrupt in ways of its own.
    try:
        with application.make_context("promptkeel", words) as context:
            code = application.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return code if isinstance(code, int) else OK


def _finish_output() -> None:
    """Flush what is still to be said, or drop it: the interpreter would fail at it once more at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
