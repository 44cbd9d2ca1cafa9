"""The names of ``promptkeel.upkeep`` that callers rely on."""

from __future__ import annotations

from promptkeel import upkeep

PINNED = {
    "EraseAll", "EraseSubject", "ErasurePlan", "ErasureReceipt", "ErasureRequest", "Found", "read_receipts",
    "receipt_lines", "reapply",
}  # fmt: skip


def test_what_erasures_need_is_there() -> None:
    assert set(upkeep.__all__) >= PINNED
    for name in upkeep.__all__:
        assert getattr(upkeep, name) is not None
