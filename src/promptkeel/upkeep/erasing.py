"""Erasures carried out on a store: listed, done in one transaction, settled, and applied again to a restored one."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable

import attrs

from promptkeel.errors import NodeNotFoundError, StoreUnavailableError
from promptkeel.scope import DEPLOYMENT
from promptkeel.steps import Call, Steps
from promptkeel.store.base import Engine, Receipt
from promptkeel.store.facade import StoreCore
from promptkeel.store.operations import Decide
from promptkeel.upkeep.erasure import (
    Erasing,
    ErasurePlan,
    ErasureReceipt,
    ErasureRequest,
    Reapplying,
    mark_key,
)


def _random_name() -> str:
    return uuid.uuid4().hex


def plan_steps(store: StoreCore, request: ErasureRequest) -> Steps[ErasurePlan]:
    """What an erasure would take; nothing is written."""
    erasing = Erasing(request, "planned")
    yield from store.apply((Decide(erasing, repeatable=True),), dry_run=True)
    return erasing.plan


def erase_steps(
    store: StoreCore,
    request: ErasureRequest,
    *,
    expected: ErasurePlan | None = None,
    settle: bool = True,
    new_name: Callable[[], str] = _random_name,
) -> Steps[ErasureReceipt]:
    """Erase all that a request takes, in one transaction.

    Args:
        store: the core of an open store.
        request: what is asked for.
        expected: what was listed before; refused where something else would go now.
        settle: whether the store is rewritten at once where that is what it takes to be scrubbed.
        new_name: answers the name of the erasure.

    Raises:
        ConflictError: it is not what was expected; nothing was erased.
    """
    erasing = Erasing(request, new_name(), expected=expected)
    yield from store.apply((Decide(erasing, repeatable=True),))
    receipt = attrs.evolve(erasing.receipt, not_covered=store.engine.not_covered)
    receipt = yield from _present(store, receipt)
    if settle and receipt.state != "scrubbed":
        try:
            yield from store.settle_receipts()
        except StoreUnavailableError:
            # The erasure is committed, and the receipt says how far it has come.
            return receipt
        receipt = yield from _present(store, receipt)
    return receipt


def _present(store: StoreCore, receipt: ErasureReceipt) -> Steps[ErasureReceipt]:
    """A receipt with its nodes' receipts as they are now."""
    if not receipt.receipts:
        return receipt
    own = yield from _of_request(store, receipt.request)
    return attrs.evolve(receipt, receipts=own)


def _of_request(store: StoreCore, name: str) -> Steps[tuple[Receipt, ...]]:
    receipts = yield from store.receipts(DEPLOYMENT, below=True)
    return tuple(each for each in receipts if each.request == name)


def receipt_steps(store: StoreCore, name: str) -> Steps[ErasureReceipt]:
    """The receipt of an erasure, as it is now.

    Raises:
        NodeNotFoundError: the store knows no erasure of this name.
    """
    mark: str | None = yield Call(store.engine.mark, mark_key(name))
    if mark is None:
        raise NodeNotFoundError(f"no erasure {name!r} is known here")
    receipts = yield from _of_request(store, name)
    return ErasureReceipt(request=name, receipts=receipts, not_covered=store.engine.not_covered, **json.loads(mark))


def reapply_steps(store: StoreCore, receipts: Iterable[Receipt | ErasureReceipt]) -> Steps[int]:
    """Apply receipts to a store that was restored from an older backup; how many were new to it.

    Applying a receipt again does nothing.
    """
    reapplying = Reapplying(receipts)
    yield from store.apply((Decide(reapplying, repeatable=True),))
    return reapplying.applied


def reapply(engine: Engine, receipts: Iterable[Receipt | ErasureReceipt]) -> int:
    """As ``reapply_steps``, on an engine and blocking."""
    reapplying = Reapplying(receipts)
    engine.apply((Decide(reapplying, repeatable=True),))
    return reapplying.applied
