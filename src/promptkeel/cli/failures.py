"""What goes wrong, as one line and an exit code that scripts can use."""

from __future__ import annotations

from typing import Any, Final

import click

from promptkeel.cli.display import printable
from promptkeel.errors import (
    ConflictError,
    InvalidDeclarationError,
    InvalidScopeError,
    NodeExistsError,
    NodeNotFoundError,
    PromptkeelError,
)

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
REJECTED: Final = 3
NOT_FOUND: Final = 4
CONFLICT: Final = 5
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141

EXIT_CODES: Final = """\b
Exit codes:
  0    done
  1    promptkeel could not do it; the line on stderr says why and what to do
  2    the command line is wrong
  3    import: some lines were rejected
  4    there is no such node or store
  5    conflict: it has changed since, or the id is in use
  130  interrupted
  141  whoever reads the output has gone
"""


class MissingStoreError(PromptkeelError, LookupError):
    """The store that a command reads is not there."""


def exit_code(error: Exception) -> int:
    """The exit code of an error."""
    if isinstance(error, NodeNotFoundError | MissingStoreError):
        return NOT_FOUND
    if isinstance(error, ConflictError | NodeExistsError):
        return CONFLICT
    if isinstance(error, click.UsageError | InvalidDeclarationError | InvalidScopeError):
        return USAGE
    return FAILED


def describe(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, UnicodeEncodeError):
        return one_line(f"this locale cannot spell {error.object!r}; set LC_ALL=C.UTF-8")
    if isinstance(error, OSError) and not isinstance(error, PromptkeelError):
        return one_line(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
    if not isinstance(error, click.ClickException):
        return one_line(str(error))
    message = one_line(error.format_message())
    if isinstance(error, click.NoSuchOption):
        message = f"{message.removesuffix('.')}; a text that begins with a dash stands last, after --"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        message = f"{message.removesuffix('.')}; see {error.ctx.command_path} --help"
    return message


def one_line(text: str) -> str:
    """Text with its line breaks and unprintable characters taken out."""
    return printable(" ".join(text.split()))


def as_document(error: Exception) -> dict[str, Any]:
    """What ``--json`` prints of an error."""
    kind = "UsageError" if isinstance(error, click.ClickException) else type(error).__name__
    return {"error": {"type": kind, "message": describe(error), "exit_code": exit_code(error)}}
