"""Receipts of erasures as JSON, to be kept outside the store that they are about. Pure.

A receipt that lives only in its store is lost with it, and with it the knowledge of what a restored backup must not
bring back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from promptkeel.errors import ExchangeError, PromptkeelError
from promptkeel.instants import format_instant, parse_instant
from promptkeel.scope import TenantScope
from promptkeel.store.base import Receipt
from promptkeel.upkeep.erasure import ErasureReceipt

_COUNTS = ("versions", "edges", "testimonies")


def receipt_document(receipt: Receipt) -> dict[str, Any]:
    """A node's receipt as a JSON object."""
    return {
        "node_id": receipt.node_id,
        "scope": receipt.scope,
        "at": format_instant(receipt.at),
        "state": receipt.state,
        **{name: getattr(receipt, name) for name in _COUNTS},
        **({} if receipt.request is None else {"request": receipt.request}),
    }


def erasure_document(receipt: ErasureReceipt) -> dict[str, Any]:
    """A request's receipt as a JSON object, with those of the nodes in it."""
    return {
        "request": receipt.request,
        "kind": receipt.kind,
        "scope": receipt.scope,
        "at": format_instant(receipt.at),
        "state": receipt.state,
        "nodes": len(receipt.receipts),
        **{name: getattr(receipt, name) for name in _COUNTS},
        "not_covered": list(receipt.not_covered),
        "receipts": [receipt_document(each) for each in receipt.receipts],
    }


def receipt_lines(receipts: Iterable[Receipt | ErasureReceipt]) -> Iterable[str]:
    """One line of JSON for each receipt, without line breaks."""
    for receipt in receipts:
        document = erasure_document(receipt) if isinstance(receipt, ErasureReceipt) else receipt_document(receipt)
        yield json.dumps(document, ensure_ascii=False)


def read_receipts(lines: Iterable[str]) -> list[Receipt | ErasureReceipt]:
    """The receipts of lines of JSON.

    Raises:
        ExchangeError: names the first line that holds none.
    """
    found: list[Receipt | ErasureReceipt] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found.append(_receipt_of(json.loads(line)))
            except (ValueError, TypeError, KeyError, RecursionError, PromptkeelError) as error:
                raise ExchangeError(f"line {number}: is no receipt of an erasure: {error!r}") from error
    return found


def _receipt_of(document: dict[str, Any]) -> Receipt | ErasureReceipt:
    scope = TenantScope.parse(document["scope"]).path
    at = parse_instant(document["at"], field="at")
    if "receipts" in document:
        if document["kind"] not in ("scope", "prefix", "subject"):
            raise ValueError(f"{document['kind']!r} is no kind of erasure")
        inner = [_receipt_of(each) for each in document["receipts"]]
        return ErasureReceipt(
            request=str(document["request"]),
            kind=document["kind"],
            scope=scope,
            at=at,
            receipts=tuple(each for each in inner if isinstance(each, Receipt)),
            not_covered=tuple(str(each) for each in document.get("not_covered", ())),
        )
    if document["state"] not in ("unreadable", "scrubbed"):
        raise ValueError(f"{document['state']!r} is no state of an erasure")
    return Receipt(
        node_id=str(document["node_id"]),
        scope=scope,
        at=at,
        state=document["state"],
        request=document.get("request"),
        **{name: int(document[name]) for name in _COUNTS},
    )
