"""Sources that no store holds: begun together, each bounded in time, and known to be unmoved by one look a file.

What came of each is a value; what a failure means is decided by the block's policy, elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast, final

from promptkeel.blocks.computed import ComputedSource, check_computed, check_loaded
from promptkeel.blocks.files import FileReader, FileSource
from promptkeel.blocks.source import authored
from promptkeel.blocks.spec import PromptBlockSpec
from promptkeel.blocks.static import StaticSource
from promptkeel.errors import SourceTimeoutError
from promptkeel.model import BlockRevision
from promptkeel.resolver.asking import Asker, Question
from promptkeel.resolver.outcomes import Failed, Reading, reading_of
from promptkeel.resolver.rendering import Rendering
from promptkeel.resolver.values import Action, Counters
from promptkeel.scope import DEPLOYMENT, TenantScope
from promptkeel.steps import Checkpoint, Expired, Step, Steps, Together, Where


@final
class Loader:
    """Reads one block's source; made once a resolver.

    Args:
        spec: the declaration.
        tell: as for ``Bulkhead``.
    """

    def __init__(self, spec: PromptBlockSpec, tell: Callable[[int], object]) -> None:
        source: Any = spec.source
        self.spec = spec
        self.static = authored(source.text) if isinstance(source, StaticSource) else None
        self.file = FileReader(source) if isinstance(source, FileSource) else None
        self.asker: Asker | None = None
        self.action: Action = "computed"
        self._check: Callable[[Any], BlockRevision] = check_computed
        function: Any = source.function if isinstance(source, ComputedSource) else getattr(source, "load", None)
        if self.file is not None:
            self.action = "read"
            function, self._check = self.file.read, _as_it_is
        elif not isinstance(source, ComputedSource):
            self._check = partial(check_loaded, is_learned=spec.is_learned)
        if self.static is None:
            assert spec.timeout is not None  # noqa: S101 - every source that is waited for has one
            self.asker = Asker(f"block {spec.name}", function, spec.timeout, tell)

    @property
    def is_asked(self) -> bool:
        """Whether it is asked on every resolve."""
        return self.static is None and self.file is None

    def current(self) -> BlockRevision | None:
        """What needs no waiting."""
        return self.static if self.file is None else self.file.current()

    def begin(self, scope: TenantScope) -> Question:
        """Begin a read.

        Raises:
            SourceOverloadedError: too many reads were left behind.
        """
        assert self.asker is not None  # noqa: S101 - static text is never begun
        if self.file is not None:
            return self.asker.begin("")
        shown = _narrowed(scope, self.spec)
        return self.asker.begin(shown.path, shown)

    def reading(self, question: Question) -> Steps[Reading]:
        """What came of a read that was begun."""
        try:
            answer = yield from question.answer()
            return self._check(answer)
        except Expired:
            return Failed(SourceTimeoutError(f"did not answer within {self.spec.timeout:g} s"))
        except Exception as error:  # noqa: BLE001 - told apart there
            return reading_of(error)


def _as_it_is(revision: BlockRevision) -> BlockRevision:
    return revision


def _narrowed(scope: TenantScope, spec: PromptBlockSpec) -> TenantScope:
    """The scope that the source gets to see: what is shared more widely cannot depend on less."""
    if spec.shared == "scope":
        return scope
    return TenantScope(scope.levels[:1]) if spec.shared == "tenant" else DEPLOYMENT


@final
class SourceReader:
    """Reads the sources of some blocks, in the order of ``loaders``."""

    def __init__(self, loaders: tuple[Loader, ...], rendering: Rendering, counters: Counters) -> None:
        self.loaders = loaders
        self._rendering = rendering
        self._counters = counters
        texts = [loader.static for loader in loaders if loader.static is not None]
        self._all_static = tuple(texts) if len(texts) == len(loaders) else None
        self._files = tuple(
            (position, loader.file) for position, loader in enumerate(loaders) if loader.file is not None
        )
        self.has_asked = any(loader.is_asked for loader in loaders)

    @property
    def is_static(self) -> bool:
        """Whether nothing is ever waited for."""
        return self._all_static is not None

    def are_unmoved(self, sources: tuple[Reading, ...]) -> bool:
        """Whether every file is certainly what was read; what is asked on every resolve is not asked."""
        return all(reader.current() is sources[position] for position, reader in self._files)

    def read(self, scope: TenantScope, beside: Steps[Any]) -> Steps[tuple[tuple[Reading, ...], Any]]:
        """What came of every source now, and the answer of ``beside``, which is done meanwhile."""
        if self._all_static is not None:
            return self._all_static, (yield from beside)
        # What the store answers at once is asked before anything runs that competes for the interpreter.
        done, rest = yield from _advanced(beside)
        readings: list[Reading | None] = [loader.current() for loader in self.loaders]
        begun: dict[int, Question] = {}
        try:
            self._begin(scope, readings, begun)
            other = yield from self._await(scope, readings, begun, rest)
            for position, question in begun.items():
                if readings[position] is None:
                    readings[position] = yield from self._reading(position, question, scope)
        finally:
            for question in begun.values():
                question.drop()
        return tuple(cast("list[Reading]", readings)), done if rest is None else other

    def _begin(self, scope: TenantScope, readings: list[Reading | None], begun: dict[int, Question]) -> None:
        """Begin every read that is still to be made."""
        for position, loader in enumerate(self.loaders):
            if readings[position] is None:
                try:
                    begun[position] = loader.begin(scope)
                except OSError as error:
                    readings[position] = Failed(error)

    def _await(
        self,
        scope: TenantScope,
        readings: list[Reading | None],
        begun: dict[int, Question],
        rest: Steps[Any] | None,
    ) -> Steps[Any]:
        """Await what is asynchronous side by side with the rest of the store's steps, and answer what those do."""
        awaited = [position for position in begun if self._asker(position).is_awaited]
        branches = [self._reading(position, begun[position], scope) for position in awaited]
        others = [] if rest is None else [rest]
        if len(branches) + len(others) == 1:
            found = [(yield from (*branches, *others)[0])]
        else:
            found = (yield Together([*branches, *others])) if branches else []
        for position, reading in zip(awaited, found, strict=False):
            readings[position] = reading
        return found[-1] if others else None

    def _asker(self, position: int) -> Asker:
        asker = self.loaders[position].asker
        assert asker is not None  # noqa: S101 - only what has one is begun
        return asker

    def _reading(self, position: int, question: Question, scope: TenantScope) -> Steps[Reading]:
        loader = self.loaders[position]
        started = time.perf_counter_ns()
        reading = yield from loader.reading(question)
        if loader.file is not None:
            self._counters.file_reads += 1
        self._rendering.tell(loader.spec, scope.path, loader.action, started)
        return reading


def _advanced(steps: Steps[Any]) -> Steps[tuple[Any, Steps[Any] | None]]:
    """Do the steps up to the first that must be waited for: their answer, or None and the rest of them."""
    try:
        step = next(steps)
        while isinstance(step, Where | Checkpoint):
            step = steps.send((yield step))
    except StopIteration as stop:
        return stop.value, None
    except BaseException:
        steps.close()
        raise
    return None, _resumed(steps, step)


def _resumed(steps: Steps[Any], step: Step) -> Steps[Any]:
    """The rest of steps whose next step is known."""
    try:
        while True:
            try:
                answer = yield step
            except BaseException as error:  # noqa: BLE001 - thrown into the steps, cancellation included
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        return stop.value
    finally:
        steps.close()
