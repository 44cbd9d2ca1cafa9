"""Keeping a store: erasing what has to be gone.

What an erasure takes is a value, ``EraseAll`` or ``EraseSubject``; a keel lists, exports and performs it. ``reapply``
brings the receipts of erasures to a store that was restored from an older backup.
"""

from promptkeel.upkeep.erasing import reapply
from promptkeel.upkeep.erasure import EraseAll, EraseSubject, ErasurePlan, ErasureReceipt, ErasureRequest, Found
from promptkeel.upkeep.receipts import read_receipts, receipt_lines

__all__ = [
    "EraseAll",
    "EraseSubject",
    "ErasurePlan",
    "ErasureReceipt",
    "ErasureRequest",
    "Found",
    "read_receipts",
    "reapply",
    "receipt_lines",
]
