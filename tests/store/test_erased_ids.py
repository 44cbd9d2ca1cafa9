"""That something was erased is said where it was visible, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from promptkeel.errors import NodeErasedError, NodeNotFoundError
from promptkeel.scope import DEPLOYMENT
from promptkeel.store.operations import Correct
from store.examples import ACME, ADA, BOB, OTHER, node


def calls(store: Any, scope: Any) -> list[Any]:
    def get_in_snapshot() -> Any:
        with store.snapshot() as snapshot:
            return snapshot.get(scope, "n1")

    return [
        lambda: store.get(scope, "n1"),
        lambda: store.history(scope, "n1"),
        lambda: store.neighbours(scope, "n1"),
        lambda: store.retract(scope, "n1"),
        lambda: store.apply([Correct(scope=scope, node_id="n1", label="SOUL:x")]),
        get_in_snapshot,
    ]


@pytest.mark.parametrize(
    ("owner", "seeing", "others"),
    [(ADA, [ADA, ADA.child("task", "t")], [BOB, ACME, OTHER, DEPLOYMENT]), (DEPLOYMENT, [DEPLOYMENT, ADA, OTHER], [])],
)
def test_an_erasure_is_told_where_the_node_was_visible(store: Any, owner: Any, seeing: Any, others: Any) -> None:
    store.put(node(scope=owner))
    store.erase(owner, "n1")
    for scope in seeing:
        for call in calls(store, scope):
            with pytest.raises(NodeErasedError):
                call()
    for scope in others:
        for call in calls(store, scope):
            with pytest.raises(NodeNotFoundError) as found:
                call()
            assert type(found.value) is NodeNotFoundError, "not even that there was one"


def test_an_erased_id_is_not_handed_out_again_under_its_root(store: Any) -> None:
    store.put(node(scope=ADA))
    store.erase(ADA, "n1")
    for scope in (ADA, BOB, ACME):
        with pytest.raises(NodeErasedError):
            store.put(node(scope=scope))
    store.put(node(scope=OTHER))
