"""The group of commands, and what becomes of everything that goes wrong in one."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

import click

from promptkeel.cli import erasing, exchanging, memory, reading, upkeep
from promptkeel.cli.demo import demo
from promptkeel.cli.display import put_document, put_notice
from promptkeel.cli.failures import BROKEN_PIPE, EXIT_CODES, INTERRUPTED, OK, as_document, describe, exit_code
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
    memory.remember,
    memory.correct,
    memory.retract,
    erasing.erase,
    erasing.settle,
    reading.facts,
    reading.prompt,
    reading.why,
    reading.history,
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a screen that lacks a letter is no reason to fail
    try:
        # Not application.main: it answers a closed pipe and an interrupt in ways of its own.
        with application.make_context("promptkeel", list(arguments)) as context:
            code = application.invoke(context)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes standard output once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        put_notice("interrupted; what was not committed is not there")
        return INTERRUPTED
    except click.exceptions.Exit as end:
        return end.exit_code
    except (click.ClickException, PromptkeelError) as error:
        put_notice(describe(error))
        if "--json" in arguments:
            put_document(as_document(error))
        return exit_code(error)
    return code if isinstance(code, int) else OK
