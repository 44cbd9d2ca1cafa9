"""Backups of a store in a file: taken while it is in use, and put back in one transaction.

A backup is a store of its own: one file, at one point in time, made beside its place and renamed into it whole. It is
audited before it takes its place, and again before it is put back.

What is put back is older than what was told since. Erasures are applied to it again, from the receipts of the store
that it replaces and from those kept outside, before anyone can read it. A head is drawn at random with every change,
so heads that were handed out after the backup are never met again, also where the store counts up to the same change:
whoever holds them reads in full.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, final, runtime_checkable
from urllib.parse import quote

import attrs

from promptkeel.errors import InvalidInputError, StoreBusyError, StoreDamagedError
from promptkeel.files import replaced
from promptkeel.instants import Clock, system_clock
from promptkeel.scope import DEPLOYMENT
from promptkeel.steps import Call, Steps, drive_blocking
from promptkeel.store.audit import Audit
from promptkeel.store.base import Engine, Receipt
from promptkeel.store.facade import StoreCore
from promptkeel.store.opening import open_engine
from promptkeel.upkeep.checking import check
from promptkeel.upkeep.erasing import reapply, receipt_steps
from promptkeel.upkeep.erasure import ErasureReceipt

_UNUSABLE: Final = frozenset({"corrupt", "schema_missing", "schema_changed", "schema_newer", "meta_wrong"})
_ATTEMPTS: Final = 5
_ENDLESS: Final = 1 << 60
_PREFIX: Final = "sqlite:///"

Progress = Callable[[int, int], object]
"""Called with how much is done, and how much there is."""


@runtime_checkable
class PagedEngine(Protocol):
    """An engine whose store is one file that can be copied whole."""

    def back_up(self, path: Path, on_progress: Progress) -> None:
        """Copy the store, as it is at one point in time, to a file that is not there yet."""

    def replace_by(self, path: Path) -> None:
        """Take the place of everything that is stored with what is in another store's file."""


@final
@attrs.frozen(order=False)
class Restored:
    """What a restore did.

    Attributes:
        reapplied: how many erasures the backup did not know.
        audit: what was found in the backup.
    """

    reapplied: int
    audit: Audit


def _nothing(done: int, total: int) -> None:
    """No progress to be shown."""


def back_up(engine: Engine, path: Path, *, on_progress: Progress = _nothing) -> Audit:
    """Copy a store to a file while others read and write it; what an audit of the copy found.

    Args:
        engine: an open engine whose store is a file.
        path: replaced whole, and only by a copy that can be used.
        on_progress: called as pages are copied.

    Raises:
        InvalidInputError: this kind of store is not in a file.
        ExchangeError: the file cannot be written.
        StoreDamagedError: the store is damaged, and so would be its copy; the file at ``path`` is as it was.
    """
    paged = _paged(engine)
    from promptkeel.store.sqlite import path_of

    if path.resolve() == path_of(engine.url).resolve():
        raise InvalidInputError("is the store itself; name another file", field="path")
    with replaced(path) as temporary:
        paged.back_up(temporary, on_progress)
        return _usable(temporary, "the copy")


def back_up_steps(store: StoreCore, path: Path, *, on_progress: Progress = _nothing) -> Steps[Audit]:
    """``back_up`` in a worker."""
    found: Audit = yield Call(lambda: back_up(store.engine, path, on_progress=on_progress))
    return found


def restore(
    backup: Path,
    url: str,
    *,
    receipts: Iterable[Receipt | ErasureReceipt] = (),
    clock: Clock = system_clock,
    busy_timeout: float = 5.0,
) -> Restored:
    """Put a backup in the place of a store, also one that others have open: they go on with what was put back.

    Args:
        backup: a file that ``back_up`` made.
        url: the store's address; made if nothing is there.
        receipts: of erasures since the backup that the present store does not know.
        clock: stamps the erasures that are applied again.
        busy_timeout: seconds to wait for another writer.

    Raises:
        NotAStoreError: the backup is no store, or the address names no file.
        StoreDamagedError: the backup is damaged, or the present store is: move it away with its -wal and -shm files.
        StoreBusyError: somebody writes all the time; nothing was changed.
    """
    from promptkeel.store.sqlite import path_of

    target = path_of(url).absolute()
    found = _usable(backup, str(backup))
    given = tuple(receipts)
    if not target.exists():
        with replaced(target) as prepared:
            return Restored(_prepare(backup, prepared, given, clock), found)
    engine = open_engine(url, clock=clock, busy_timeout=busy_timeout)
    try:
        for _ in range(_ATTEMPTS):
            known = engine.receipts(DEPLOYMENT, below=True)
            with _beside(target) as prepared:
                reapplied = _prepare(backup, prepared, (*_requests(engine, known), *given), clock)
                # An erasure that was told meanwhile must not be undone.
                if engine.receipts(DEPLOYMENT, below=True) == known:
                    _paged(engine).replace_by(prepared)
                    return Restored(reapplied, found)
        raise StoreBusyError(f"{target} is erased from all the time; stop its writers and restore again")
    finally:
        engine.close()


def _requests(engine: Engine, receipts: Iterable[Receipt]) -> list[Receipt | ErasureReceipt]:
    """The receipts, those of one request together."""
    core = StoreCore(engine)
    names = dict.fromkeys(receipt.request for receipt in receipts if receipt.request is not None)
    alone = [receipt for receipt in receipts if receipt.request is None]
    return [*alone, *(drive_blocking(receipt_steps(core, name)) for name in names)]


def _prepare(backup: Path, prepared: Path, receipts: tuple[Receipt | ErasureReceipt, ...], clock: Clock) -> int:
    """A copy of the backup, migrated, with what has been erased since erased again; how many receipts were new."""
    from promptkeel.store.sqlite_backup import copy_file

    copy_file(backup, prepared)
    # Its log is as long as it is: this is no time to trim it.
    engine = open_engine(f"{_PREFIX}{quote(str(prepared))}", clock=clock, log_limit=_ENDLESS)
    try:
        applied = reapply(engine, receipts) if receipts else 0
        if applied:
            engine.settle_receipts()
        return applied
    finally:
        engine.close()


def _usable(path: Path, name: str) -> Audit:
    found = check(f"{_PREFIX}{quote(str(path.absolute()))}")
    for finding in found.findings:
        if finding.kind in _UNUSABLE:
            raise StoreDamagedError(f"{name} cannot be used: {finding.where}: {finding.what}; {finding.remedy}")
    return found


def _paged(engine: Engine) -> PagedEngine:
    if not isinstance(engine, PagedEngine):
        raise InvalidInputError(
            f"{type(engine).__name__} keeps no file that could be copied; copy it into a SQLite store", field="store"
        )
    return engine


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A temporary file's path in the same folder, gone at the end."""
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
