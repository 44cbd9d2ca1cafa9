"""Importing and exporting in a test, in one call each."""

from __future__ import annotations

import io
import json

from promptkeel.exchange import ImportSettings, JsonLines, export_steps, import_steps
from promptkeel.scope import DEPLOYMENT
from promptkeel.steps import drive_blocking

PREFIXES = {"USER_PROFILE": "SOUL:", "PREFERENCES": "PREFERENCE:"}


def spelled(lines):
    """The bytes of a file whose lines are given as text or as JSON values."""
    return "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines).encode()


def import_bytes(store, content, line_format=None, **settings):
    """The report of an import."""
    line_format = line_format or JsonLines(PREFIXES)
    return drive_blocking(import_steps(store.core, io.BytesIO(content), line_format, ImportSettings(**settings)))


def import_lines(store, *lines, **settings):
    """The report of an import of lines."""
    return import_bytes(store, spelled(lines), **settings)


def export_lines(store, scope=DEPLOYMENT, **options):
    """The lines of an export."""
    return list(drive_blocking(export_steps(store.core, scope, **options)).lines)


def counts(report):
    """What happened, without what did not."""
    names = ("inserted", "updated", "confirmed", "linked", "unchanged", "rejected")
    return {name: getattr(report, name) for name in names if getattr(report, name)}
