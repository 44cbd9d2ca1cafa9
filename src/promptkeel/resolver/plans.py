"""Which blocks are read in what way: once for all scopes, for each set of gates that are shut.

A view is what a caller may ask for: all blocks for a scope, or without one what the whole deployment shares.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, final

import attrs

from promptkeel.blocks.spec import PromptBlockSpec
from promptkeel.resolver.lanes import LaneReader
from promptkeel.resolver.probing import SharedProbe
from promptkeel.resolver.scanning import LaneScanner
from promptkeel.resolver.sources import SourceReader
from promptkeel.scope import TenantScope

Place = tuple[Literal["stored", "loaded", "gated"], int]
"""By what a block is read, and at which position there."""


@final
@attrs.frozen(eq=False)
class View:
    """What a caller may ask for.

    Attributes:
        name: tells views apart.
        specs: the blocks, in prompt order.
        gated: those that have a gate.
        left_out: the names of the declared blocks that this view does not have.
        needed: those among them that must not be missing.
    """

    name: Literal["scoped", "scopeless"]
    specs: tuple[PromptBlockSpec, ...]
    gated: tuple[PromptBlockSpec, ...]
    left_out: tuple[str, ...] = ()
    needed: tuple[PromptBlockSpec, ...] = ()


def scoped(specs: Sequence[PromptBlockSpec]) -> View:
    """All blocks."""
    return View("scoped", tuple(specs), _gated(specs))


def scopeless(specs: Sequence[PromptBlockSpec]) -> View:
    """What the whole deployment shares."""
    shared = [spec for spec in specs if spec.shared == "deployment"]
    others = [spec for spec in specs if spec.shared != "deployment"]
    return View(
        "scopeless",
        tuple(shared),
        _gated(shared),
        tuple(spec.name for spec in others),
        tuple(spec for spec in others if spec.on_failure.action != "omit"),
    )


def _gated(specs: Sequence[PromptBlockSpec]) -> tuple[PromptBlockSpec, ...]:
    return tuple(spec for spec in specs if spec.render_when is not None)


@final
@attrs.frozen(eq=False)
class Plan:
    """How the blocks of a view are read while some of its gates are shut.

    Attributes:
        view: the view.
        closed: the names of the blocks that are switched off.
        stored: the others that the store holds, in the order of ``lanes``.
        lanes: reads them from a store with heads.
        probe: probes that store, once for all calls of one turn.
        scanner: reads them from other memory.
        sources: reads the rest.
        places: where each block of the view is found.
    """

    view: View
    closed: frozenset[str]
    stored: tuple[PromptBlockSpec, ...]
    lanes: LaneReader | None
    probe: SharedProbe | None
    scanner: LaneScanner | None
    sources: SourceReader
    places: tuple[Place, ...]

    def key(self, scope: TenantScope) -> Hashable:
        """Under what an answer of this plan is kept."""
        if self.view.name == "scoped" and not self.view.gated:
            return scope.path
        return scope.path, self.view.name, self.closed


def places_of(specs: Sequence[PromptBlockSpec], closed: frozenset[str]) -> tuple[Place, ...]:
    """Where each block is found."""
    places: list[Place] = []
    stored = loaded = 0
    for spec in specs:
        if spec.name in closed:
            places.append(("gated", 0))
        elif spec.is_stored:
            places.append(("stored", stored))
            stored += 1
        else:
            places.append(("loaded", loaded))
            loaded += 1
    return tuple(places)
