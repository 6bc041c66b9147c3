"""Arrays that are the change of others: what of them stands in an older file is not written again.

A spliced array has a ``base``, an older file of the same array, ``more``, its items that the base lacks, and ``pieces``:
stretches of the base, with those of ``more`` behind it, one after the other (from, to).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockxmc import _kernels

# Smaller arrays are written whole: a splice takes two files. So are larger ones, which then stay mapped: a spliced array
# is put together in memory whenever it is opened.
LEAST_BYTES, MOST_BYTES = 1 << 16, 1 << 26
# A splice may take one byte in so many of the whole array. With 4, the second ten rows of elife-keywords wrote two of the
# largest arrays whole, and 21 % of the model.
SHARE = 3
# ... which may be so many times as large as its base, where stretches of it come again.
MOST_TIMES = 2
_BYTES_OF_A_PIECE = 8
_ITEMS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def goes_on(before: dict[str, Any], history: list[dict[str, Any]]) -> bool:
    """Whether a model is the one of the manifest ``before``, with more rows learnt: only then may files stay as bases.

    Of rows that were forgotten, or that another training did not have, nothing may stay.

    >>> fit, update, forget = ({"what": what} for what in ("fit", "update", "forget"))
    >>> before = {"state": {"kept": {"history": [fit]}}}
    >>> goes_on(before, [fit, update]), goes_on(before, [fit, update, forget]), goes_on(before, [fit]), goes_on({}, [fit])
    (True, False, False, False)
    """
    known: Any = before
    for key in ("state", "kept", "history"):
        known = known.get(key) if isinstance(known, dict) else None
    if not isinstance(known, list) or not 0 < len(known) < len(history) or history[: len(known)] != known:
        return False
    return all(event["what"] == "update" for event in history[len(known) :])


def may_splice(base_bytes: int, made_bytes: int) -> bool:
    """Whether arrays of these sizes are neither too small nor too large, nor too different, for a splice.

    >>> may_splice(1 << 20, 1 << 20), may_splice(1 << 24, 1 << 20), may_splice(1, 1)
    (True, False, False)
    """
    sizes = base_bytes, made_bytes
    return max(sizes) <= min(MOST_BYTES, MOST_TIMES * min(sizes)) and made_bytes >= LEAST_BYTES


def spliced(base: NDArray[Any], made: NDArray[Any]) -> dict[str, NDArray[Any]] | None:
    """What to write in place of a flat array, given an older one; None where that is not worth it.

    >>> old = np.arange(20_000)
    >>> found = spliced(old, np.insert(old, 9, -1))
    >>> found["more"].tolist(), found["pieces"].tolist()
    ([-1], [[0, 9], [20000, 20001], [9, 20000]])
    """
    if base.dtype != made.dtype or not may_splice(base.nbytes, made.nbytes):
        return None
    most = made.nbytes // SHARE
    items = _ITEMS[made.itemsize]
    old, new = (np.ascontiguousarray(part).view(items) for part in (base, made))
    begin, sizes = _kernels.find_pieces(old, new, most_pieces=most // _BYTES_OF_A_PIECE, most_own=most // made.itemsize)
    own = begin < 0
    if not begin.size or _BYTES_OF_A_PIECE * begin.size + made.itemsize * sizes[own].sum() > most:
        return None
    behind = np.cumsum(np.where(own, sizes, 0)) - sizes  # of own stretches: where they begin among those
    begin = np.where(own, base.size + behind, begin)
    # Arrays of MOST_BYTES, at most: their places are small numbers.
    pieces = np.column_stack([begin, begin + sizes]).astype(np.int32)
    return {"more": made[np.repeat(own, sizes)], "pieces": pieces}


def put_together(base: NDArray[Any], more: NDArray[Any], pieces: NDArray[Any]) -> NDArray[Any]:
    """The flat array that was spliced; ``ValueError`` where the parts do not fit.

    >>> put_together(np.array([1, 2, 3]), np.array([9]), np.array([[0, 1], [3, 4], [1, 3]])).tolist()
    [1, 9, 2, 3]
    """
    if base.ndim != 1 or more.ndim != 1 or base.dtype != more.dtype:
        raise ValueError("base and more are not flat arrays of the same type")
    if pieces.dtype not in (np.int32, np.int64) or pieces.ndim != 2 or pieces.shape[1] != 2:
        raise ValueError("pieces are not pairs of whole numbers")
    pieces = pieces.astype(np.int64)
    begin, end = pieces.T
    whole = base.size + more.size
    if (begin < 0).any() or (end < begin).any() or (end > whole).any():
        raise ValueError("pieces lie outside of their arrays")
    # A stretch may come twice, but not so often that a small file makes a large array.
    total = float((end - begin).sum(dtype=np.float64))
    if total > MOST_TIMES * whole:
        raise ValueError("pieces are longer than their arrays")
    if max(total, base.size) * base.itemsize > MOST_BYTES or pieces.nbytes > max(total * base.itemsize, LEAST_BYTES):
        raise ValueError("arrays of this size are not spliced")
    in_more = begin >= base.size
    if (end[~in_more] > base.size).any():
        raise ValueError("a piece lies in two arrays")
    shift = np.where(in_more, base.size, 0)
    parts = [
        (more if own else base)[a:b]
        for own, a, b in zip(in_more.tolist(), (begin - shift).tolist(), (end - shift).tolist(), strict=True)
    ]
    found = np.concatenate([base[:0], *parts])
    found.flags.writeable = False
    return found
