"""One or two statements that say whether a commit touched any of a scope's lanes.

Most commits are to other scopes: the heads alone tell that. Of the rest most touch none of the lanes that a prompt
shows. What tells it, heads, floors, nonces and the end of the log, is read in a single SELECT, which is one point in
time without a transaction. Where a lane was touched, or the end of the log is too long for a short read, the answer is
None and the caller reads in full.

Heads are read at one point in time and the log is numbered in the order of commits: whatever changed since then, at any
level, has a greater number than the newest of those heads.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

import apsw

from promptkeel.scope import TenantScope
from promptkeel.store.base import CatchUp, Head, Heads, LaneRequest, LaneUpdate
from promptkeel.store.history import check_chain, tells_difference

_HEAD, _ENDS, _KNOWN, _ENTRY = range(4)
_UNTOUCHED: Final = LaneUpdate([])

HEADS_SQL: Final = "SELECT scope, seq, nonce FROM heads WHERE scope IN (<LEVELS>)"
# Heads may move between the two statements, so that the second reads them again.
GLANCE_SQL: Final = """
SELECT 0, scope, seq, nonce, NULL, NULL FROM heads WHERE scope IN (<LEVELS>)
UNION ALL
SELECT 1, NULL, (SELECT value FROM meta WHERE key = 'delta_floor'), (SELECT max(seq) FROM changes), NULL, NULL
UNION ALL
SELECT 2, scope, seq, nonce, NULL, NULL FROM changes NOT INDEXED WHERE seq IN (<LEVELS>)
UNION ALL
SELECT 3, scope, seq, NULL, label_before, label_after FROM changes NOT INDEXED
WHERE seq > ? AND seq <= ? AND scope IN (<LEVELS>)
"""


@functools.cache
def glance_statements(levels: int) -> tuple[str, str]:
    """The two statements for a chain of so many levels."""
    placeholders = ", ".join("?" * levels)
    return HEADS_SQL.replace("<LEVELS>", placeholders), GLANCE_SQL.replace("<LEVELS>", placeholders)


def glance(
    connection: apsw.Connection,
    scope: TenantScope,
    requests: Sequence[LaneRequest],
    longest: int,
    schema: int = 0,
) -> CatchUp | None:
    """The present heads, where none of the lanes was touched since they were read; else None.

    Args:
        connection: in no transaction.
        scope: whose lanes.
        requests: the lanes, all read at the same heads.
        longest: how much of the log may be looked at.
        schema: what the present heads carry; read before this.
    """
    since = requests[0].since
    if since is None or any(request.since is not since for request in requests):
        return None
    check_chain(scope, since)
    chain, newest = scope.chain, since.seq
    heads_statement, statement = glance_statements(len(chain))
    if since.schema == schema and _is_unmoved(connection.execute(heads_statement, chain).fetchall(), since):
        return CatchUp(since, (_UNTOUCHED,) * len(requests))
    known = tuple(head.seq for head in since.levels)
    arguments = (*chain, *known, newest, newest + longest, *chain)
    try:
        rows: list[Any] = connection.execute(statement, arguments).fetchall()
    except UnicodeDecodeError:
        return None
    read: tuple[list[Any], ...] = ([], [], [], [])
    for row in rows:
        read[row[0]].append(row)
    heads = {row[1]: Head(*row[1:4]) for row in read[_HEAD]}
    present = Heads(tuple([heads.get(path) or Head(path) for path in chain]), schema)
    if present != since:
        ((_, _, floor, end, _, _),) = read[_ENDS]
        nonces = {(row[1], row[2]): row[3] for row in read[_KNOWN]}
        # A log without an end, or with a floor that is no number, is not the one that these heads came from.
        if type(end) is not int or type(floor) is not int or end - newest > longest:
            return None
        if not tells_difference(since, present, floor, lambda *key: nonces.get(key)):
            return None
        prefixes = tuple([request.prefix for request in requests])
        for row in read[_ENTRY]:
            if (row[4] or "").startswith(prefixes) or (row[5] or "").startswith(prefixes):
                return None
    return CatchUp(present, (_UNTOUCHED,) * len(requests))


def _is_unmoved(rows: list[Any], since: Heads) -> bool:
    """Whether these rows of heads are what was read before."""
    present = {row[0]: row for row in rows}
    for head in since.levels:
        row = present.get(head.scope, (head.scope, 0, 0))
        if row[1] != head.seq or row[2] != head.nonce:
            return False
    return True
