"""A real terminal for a command: a pseudo-terminal of 80 columns."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import unicodedata

_STYLES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def on_terminal(*arguments, columns=80, keys="", module="promptkeel.cli"):
    """The exit code of a command on a terminal, and everything that it showed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    running = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    if keys:
        os.write(ours, keys.encode())
    shown = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:
            break
        if not block:
            break
        shown += block
    os.close(ours)
    return running.wait(), shown.decode()


def without_styles(shown):
    """The text without colours."""
    return _STYLES.sub("", shown).replace("\r\n", "\n")


def width(line):
    """The columns that a line takes."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line)
