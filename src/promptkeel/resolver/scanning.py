"""Lanes of memory without heads: scanned whole on every call, each on its own and bounded in time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, final

from promptkeel.blocks.spec import PromptBlockSpec
from promptkeel.errors import SourceTimeoutError
from promptkeel.lane import scan_steps
from promptkeel.model import BlockRevision
from promptkeel.render import RenderedBlock
from promptkeel.resolver.asking import Asker
from promptkeel.resolver.outcomes import Failed, Wrong, reading_of
from promptkeel.resolver.rendering import Rendering
from promptkeel.resolver.values import Counters
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Expired, Obtain, Steps, Together

SCAN_TIMEOUT: Final = 5.0
"""For how many seconds a scan of a caller's own memory is waited for, where nothing else is declared."""

Scanned = tuple[BlockRevision, RenderedBlock] | Failed | Wrong
"""A lane and its block, or what came of its scan instead."""


@final
class LaneScanner:
    """Scans the lanes of memory without heads, whole on every call.

    Args:
        memory: anything with ``query_nodes``.
        specs: the learned blocks, in the order of every answer here.
        rendering: renders them.
        counters: where work is counted.
        seconds: how long a scan may take.
        tell: as for ``Bulkhead``.
    """

    def __init__(
        self,
        memory: Any,
        specs: tuple[PromptBlockSpec, ...],
        rendering: Rendering,
        counters: Counters,
        *,
        seconds: float,
        tell: Callable[[int], object],
    ) -> None:
        self._memory = memory
        self._specs = specs
        self._rendering = rendering
        self._counters = counters
        query_nodes: Any = getattr(memory, "query_nodes", None)
        self._askers = tuple(Asker(f"the scan of block {spec.name}", query_nodes, seconds, tell) for spec in specs)

    def scan(self, scope: TenantScope) -> Steps[tuple[Scanned, ...]]:
        """What came of every lane of the scope now."""
        scans = [self._scanned(position, scope) for position in range(len(self._specs))]
        if len(scans) == 1:
            return ((yield from scans[0]),)
        found: list[Scanned] = yield Together(scans)
        return tuple(found)

    def _scanned(self, position: int, scope: TenantScope) -> Steps[Scanned]:
        spec, asker = self._specs[position], self._askers[position]
        source: Any = spec.source
        started = time.perf_counter_ns()
        self._counters.scans += 1
        try:
            steps = scan_steps(self._memory, scope, source.label_prefix, source.profile_fields)
            revision = yield from _bounded(steps, asker, scope)
        except Expired:
            return Failed(SourceTimeoutError(f"did not answer within {asker.seconds:g} s"))
        except Exception as error:  # noqa: BLE001 - told apart there
            return reading_of(error)
        self._rendering.tell(spec, scope.path, "scanned", started)
        rendered = self._rendering.kept(spec, scope, revision.revision)
        if rendered is None:
            rendered = yield Call(self._rendering.learned, spec, scope, revision)
        return revision, rendered


def _bounded(steps: Steps[BlockRevision], asker: Asker, scope: TenantScope) -> Steps[BlockRevision]:
    """The steps, but what they obtain from the caller's memory bounded in time and off the event loop's thread."""
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, Obtain):
                    question = asker.begin_with(scope.path, step.function, *step.arguments)
                    try:
                        answer = yield from question.answer()
                    finally:
                        question.drop()
                else:
                    answer = yield step
            except BaseException as error:  # noqa: BLE001 - thrown into the steps, cancellation included
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        found: BlockRevision = stop.value
        return found
