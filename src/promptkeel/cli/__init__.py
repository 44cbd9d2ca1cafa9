"""The command line. It needs the extra ``cli``; without it there is one line that says how to install it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from promptkeel.errors import MissingExtraError

_LIBRARIES = ("click", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    try:
        from promptkeel.cli.application import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _LIBRARIES:
            raise
        sys.stderr.write(f"promptkeel: {MissingExtraError('cli')}\n")
        return 1
    return run(sys.argv[1:] if arguments is None else list(arguments))
