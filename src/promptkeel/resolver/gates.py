"""Gates: asked before any read of their blocks, side by side, once a resolve, and bounded in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from promptkeel.blocks.spec import PromptBlockSpec
from promptkeel.errors import BlockGateError
from promptkeel.resolver.asking import Asker, Question
from promptkeel.resolver.outcomes import gate_defect
from promptkeel.scope import TenantScope
from promptkeel.steps import Expired, Steps, Together


@final
class GateKeeper:
    """Asks the gates of the blocks that have one.

    Args:
        specs: the declared blocks.
        tell: as for ``Bulkhead``.
    """

    def __init__(self, specs: Sequence[PromptBlockSpec], tell: Callable[[int], object]) -> None:
        self._askers = {
            spec.name: Asker(f"the gate of block {spec.name}", spec.render_when, spec.gate_timeout, tell)
            for spec in specs
            if spec.render_when is not None
        }

    def ask(self, specs: Sequence[PromptBlockSpec], scope: TenantScope) -> Steps[frozenset[str]]:
        """The names of the blocks that are switched off, of those that have a gate.

        Raises:
            BlockGateError: a gate raised, took too long, or answered no bool; the first in the order of ``specs``.
        """
        begun: list[tuple[PromptBlockSpec, Question]] = []
        try:
            for spec in specs:
                begun.append((spec, self._begin(spec, scope)))  # noqa: PERF401 - what has begun is dropped on an error
            awaited = [(spec, question) for spec, question in begun if self._askers[spec.name].is_awaited]
            answers: dict[str, bool | BlockGateError] = {}
            if len(awaited) == 1:
                answers[awaited[0][0].name] = yield from self._answer(*awaited[0], scope)
            elif awaited:
                found = yield Together([self._answer(spec, question, scope) for spec, question in awaited])
                answers.update(zip((spec.name for spec, _ in awaited), found, strict=True))
            for spec, question in begun:
                if spec.name not in answers:
                    answers[spec.name] = yield from self._answer(spec, question, scope)
        finally:
            for _, question in begun:
                question.drop()
        closed = []
        for spec in specs:
            answer = answers[spec.name]
            if isinstance(answer, BlockGateError):
                raise answer
            if not answer:
                closed.append(spec.name)
        return frozenset(closed)

    def _begin(self, spec: PromptBlockSpec, scope: TenantScope) -> Question:
        try:
            return self._askers[spec.name].begin(scope.path, scope)
        except OSError as error:
            raise BlockGateError(str(error), block=spec.name, scope=scope.path) from error

    def _answer(self, spec: PromptBlockSpec, question: Question, scope: TenantScope) -> Steps[bool | BlockGateError]:
        cause = None
        try:
            answer = yield from question.answer()
            reason = gate_defect(answer)
        except Expired:
            reason = f"its gate did not answer within {spec.gate_timeout:g} s"
        except Exception as error:  # noqa: BLE001 - any error of a caller's gate is this block's error
            cause = error
            reason = f"its gate raised {type(error).__name__}: {error}"
        if reason is None:
            return bool(answer)
        wrong = BlockGateError(reason, block=spec.name, scope=scope.path)
        wrong.__cause__ = cause
        return wrong
