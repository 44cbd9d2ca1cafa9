"""A text in the user's own editor: out to a temporary file, back as what was made of it, and never lost.

Whatever goes wrong once the editor has been opened, what was edited stays in the file, whose name is told.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

from promptkeel.cli.display import put_notice
from promptkeel.errors import PromptkeelError

_FALLBACK: Final = "vi"


class EditError(PromptkeelError):
    """What came out of an edit cannot be taken."""


@final
class Draft:
    """A text that is about to be written.

    Args:
        text: what it says.
        kept: the temporary file that holds it; None where it is in a file of the user's own.
    """

    def __init__(self, text: str, kept: Path | None) -> None:
        self.text = text
        self.kept = kept

    @contextmanager
    def held(self) -> Iterator[None]:
        """Around what is done with it: the file goes when that is done, and is named where it fails."""
        try:
            yield
        except BaseException:
            if self.kept is not None:
                _tell(self.kept)
            raise
        self.drop()

    def drop(self) -> None:
        """Remove the temporary file, if there is one."""
        if self.kept is not None:
            self.kept.unlink(missing_ok=True)


def edited(text: str, name: str) -> Draft:
    """What the user makes of a text in ``$VISUAL`` or ``$EDITOR``.

    Raises:
        EditError: the editor cannot be run or fails, or the file is not UTF-8 text afterwards.
    """
    # Editors end the last line; a text that does not end in one gets it for the time being.
    ended = text if not text or text.endswith("\n") else text + "\n"
    file = _write(ended, name)
    try:
        _run(file)
        found = _read(file)
    except BaseException:
        if _is_changed(file, ended):
            _tell(file)
        else:
            file.unlink(missing_ok=True)
        raise
    if ended != text:
        found = found.removesuffix("\n")
    return Draft(found, file)


def kept_draft(text: str, name: str) -> Draft:
    """A text that came from standard input, which nobody else has."""
    return Draft(text, _write(text, name))


def _write(text: str, name: str) -> Path:
    descriptor, path = tempfile.mkstemp(prefix=f"promptkeel-{name}-", suffix=".md")
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode())
    return Path(path)


@contextmanager
def _left_to_the_editor() -> Iterator[None]:
    """Interrupts from the keyboard are the editor's business while it is open."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except UnicodeDecodeError:
        raise EditError("the edited text is not UTF-8; let the editor save it so") from None


def _is_changed(file: Path, text: str) -> bool:
    try:
        return file.read_bytes() != text.encode()
    except OSError:
        return False


def _tell(file: Path) -> None:
    put_notice(f"your text is kept in {file}; 'promptkeel block edit --file' takes it")


def _run(file: Path) -> None:
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or _FALLBACK
    try:
        words = shlex.split(command)
        with subprocess.Popen([*words, str(file)]) as editor, _left_to_the_editor():  # noqa: S603 - the user's own
            code = editor.wait()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise EditError(f"cannot run the editor {command!r}: {reason}; set VISUAL or EDITOR, or give --file") from error
    if code:
        raise EditError(f"the editor {command!r} ended with {code}; nothing was written")
