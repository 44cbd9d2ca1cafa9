"""One probe for all calls that begin in the same turn of an event loop.

A probe lets go of the interpreter. While a source computes in another thread, getting it back takes as long as the
interpreter's switch interval: twenty probes in a row would hold up the loop for a tenth of a second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import final

from promptkeel.forks import after_fork
from promptkeel.steps import Checkpoint, Signal, Steps, Wait, Where


class _Coming:
    """A probe that has not begun."""

    __slots__ = ("error", "signal", "token", "was_made")

    def __init__(self) -> None:
        self.signal = Signal()
        self.was_made = False
        self.token: object = None
        self.error: Exception | None = None


@final
class SharedProbe:
    """Probes, once for all who wait.

    Args:
        probe: one short statement of the store.
    """

    def __init__(self, probe: Callable[[], object]) -> None:
        self._probe = probe
        self._forget()
        after_fork(self, SharedProbe._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._coming: dict[object, _Coming] = {}

    def token(self) -> Steps[object]:
        """What a probe answers that begins after this call; raises what it raises."""
        where = yield Where()
        while True:
            with self._lock:
                coming = self._coming.get(where)
                leads = coming is None
                if coming is None:
                    coming = self._coming[where] = _Coming()
            if leads:
                yield from self._make(where, coming)
            else:
                yield Wait(coming.signal)
            if coming.error is not None:
                raise coming.error
            if coming.was_made:
                return coming.token

    def _make(self, where: object, coming: _Coming) -> Steps[None]:
        try:
            try:
                yield Checkpoint()
            finally:
                # From here on it has begun, and whoever calls now needs another.
                with self._lock:
                    del self._coming[where]
            try:
                coming.token = self._probe()
                coming.was_made = True
            except Exception as error:  # noqa: BLE001 - raised by everyone who waits
                coming.error = error
        finally:
            coming.signal.set()
