"""Authored blocks: read once a call, and known to be unmoved by one look a file."""

from __future__ import annotations

import time
from typing import final

from promptkeel.blocks.computed import ComputedSource, check_computed
from promptkeel.blocks.files import FileReader, FileSource
from promptkeel.blocks.source import authored
from promptkeel.blocks.spec import PromptBlockSpec
from promptkeel.blocks.static import StaticSource
from promptkeel.model import BlockRevision
from promptkeel.resolver.rendering import Rendering
from promptkeel.resolver.values import Counters, failed
from promptkeel.scope import TenantScope
from promptkeel.steps import Call, Obtain, Steps


@final
class SourceReader:
    """Reads the sources of the authored blocks, in the order of ``specs``."""

    def __init__(self, specs: tuple[PromptBlockSpec, ...], rendering: Rendering, counters: Counters) -> None:
        self.specs = specs
        self._rendering = rendering
        self._counters = counters
        self._readers = tuple(
            FileReader(spec.source) if isinstance(spec.source, FileSource) else None for spec in specs
        )
        self._static = tuple(
            authored(spec.source.text) if isinstance(spec.source, StaticSource) else None for spec in specs
        )
        texts = [text for text in self._static if text is not None]
        self._all_static = tuple(texts) if len(texts) == len(specs) else None
        self._files = tuple((position, reader) for position, reader in enumerate(self._readers) if reader is not None)
        self.has_computed = any(isinstance(spec.source, ComputedSource) for spec in specs)

    def are_unmoved(self, sources: tuple[BlockRevision, ...]) -> bool:
        """Whether every file is certainly what was read; computed sources are not asked."""
        return all(reader.current() is sources[position] for position, reader in self._files)

    def read(self, scope: TenantScope) -> Steps[tuple[BlockRevision, ...]]:
        """Every source now.

        Raises:
            BlockResolutionError: one could not be read.
        """
        if self._all_static is not None:
            return self._all_static
        found = []
        for position, spec in enumerate(self.specs):
            try:
                found.append((yield from self._read_one(position, spec, scope)))
            except OSError as error:
                raise failed(spec, scope, error) from error
        return tuple(found)

    def _read_one(self, position: int, spec: PromptBlockSpec, scope: TenantScope) -> Steps[BlockRevision]:
        static = self._static[position]
        if static is not None:
            return static
        reader = self._readers[position]
        started = time.perf_counter_ns()
        if reader is not None:
            current = reader.current()
            if current is None:
                self._counters.file_reads += 1
                current = yield Call(reader.read)
                self._rendering.tell(spec, scope.path, "read", started)
            return current
        assert isinstance(spec.source, ComputedSource)  # noqa: S101 - nothing else is left
        answer = yield Obtain(spec.source.function, scope)
        revision = check_computed(answer)
        self._rendering.tell(spec, scope.path, "computed", started)
        return revision
