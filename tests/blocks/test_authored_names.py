"""The names of authored history, and both of its forms."""

from __future__ import annotations

import inspect

from promptkeel import blocks
from promptkeel.blocks import BlockHistory, BlockingBlockHistory


def test_the_names_of_authored_history_are_public():
    names = {
        "AuthoredRevision", "BlockHistory", "BlockingBlockHistory", "DiffPart", "NO_REVISION", "RevisionDiff",
        "StoredSource",
    }  # fmt: skip
    assert names <= set(blocks.__all__)


def test_both_forms_have_the_same_methods_and_arguments():
    for form in (BlockHistory, BlockingBlockHistory):
        methods = {name for name in vars(form) if not name.startswith("_")}
        assert methods == {"append", "head", "log", "show", "diff", "restore"}
    for name in ("append", "head", "log", "show", "diff", "restore"):
        one, other = (inspect.signature(getattr(form, name)) for form in (BlockHistory, BlockingBlockHistory))
        assert one.parameters.keys() == other.parameters.keys()
