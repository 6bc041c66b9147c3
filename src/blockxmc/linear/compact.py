"""Arrays of packed weights as a model directory keeps them: in half or a quarter of the bytes that a kernel takes.

Where rows are short, what says where weights stand is as large as the weights. Nothing is rounded: the arrays come back as
they were. They come back in memory, though, and not as a map of the file that processes share; so large ones stay as they
are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockxmc._core import stored
from blockxmc._core.stored import INT32_MAX

# Bytes, in memory, above which an array is written as it is, and stays mapped.
MOST_BYTES = 1 << 26
# A feature number of two bytes that means none: -1 in memory.
_NO_FEATURE = np.iinfo(np.uint16).max


def steps(values: NDArray[Any], ends: NDArray[np.int64]) -> NDArray[Any]:
    """Numbers that rise within each part as what each adds to the one before it; as they are where that is not less.

    ``ends`` has the beginning of each part, and the end of the last.

    >>> steps(np.array([0, 4, 9, 1, 301], np.uint32), np.array([0, 3, 5])).tolist()
    [0, 4, 5, 1, 300]
    """
    if values.nbytes > MOST_BYTES:
        return values
    out = values.astype(np.uint32)
    out[1:] -= out[:-1].copy()
    first = ends[:-1][np.diff(ends) > 0]
    out[first] = values[first]
    most = int(out.max(initial=0))
    narrow = np.uint8 if most < 2**8 else np.uint16
    return values if most >= 2**16 else out.astype(narrow)


def from_steps(value: NDArray[Any], ends: NDArray[np.int64], what: str) -> NDArray[np.uint32]:
    """What ``steps`` was given. Sums may wrap around, in a damaged model only: who takes them checks them.

    >>> from_steps(np.array([0, 4, 5, 1, 44], np.uint8), np.array([0, 3, 5]), "rows").tolist()
    [0, 4, 9, 1, 45]
    """
    _few(value, 4, what)
    fits = ends.size and ends[0] == 0 and ends[-1] == value.size and (ends[1:] >= ends[:-1]).all()
    stored.require(fits, f"the parts of {what} are out of order")
    out = np.zeros(value.size + 1, np.uint32)
    np.cumsum(value, dtype=np.uint32, out=out[1:])
    found = out[1:] - np.repeat(out[ends[:-1]], np.diff(ends))
    found.flags.writeable = False  # as if it were mapped
    return found


def _few(value: NDArray[Any], width: int, what: str) -> None:
    """Refuse a short form that nobody writes: a small file, holes in it, could become a large array."""
    stored.require(value.size * width <= MOST_BYTES, f"{what} is too large for its short form")


def are_steps(value: Any) -> bool:
    """Whether an array of a model has been written as steps."""
    return getattr(value, "dtype", None) in (np.uint8, np.uint16)


def short_features(keys: NDArray[np.int32], n_features: int) -> NDArray[Any]:
    """Feature numbers, -1 among them, in two bytes where they fit.

    >>> short_features(np.array([7, -1], np.int32), 8), short_features(np.array([7, -1], np.int32), 70_000)
    (array([    7, 65535], dtype=uint16), array([ 7, -1], dtype=int32))
    """
    fit = n_features <= _NO_FEATURE and keys.nbytes <= MOST_BYTES
    # A damaged model may hold others, which nobody has looked at yet: they must not become right ones.
    fit = fit and keys.min(initial=0) >= -1 and keys.max(initial=0) < n_features
    return keys.astype(np.uint16) if fit else keys


def long_features(keys: NDArray[np.uint16]) -> NDArray[np.int32]:
    """What ``short_features`` was given.

    >>> long_features(np.array([7, 65535], np.uint16))
    array([ 7, -1], dtype=int32)
    """
    _few(keys, 4, "the array 'keys'")
    out = keys.astype(np.int32)
    out[out == _NO_FEATURE] = -1
    out.flags.writeable = False
    return out


def narrowed(values: NDArray[np.int32]) -> NDArray[Any]:
    """Numbers from 0 in two bytes where they fit, unless they are many; ``stored.widened`` takes them back."""
    return stored.narrowed(values) if values.nbytes <= MOST_BYTES else values


def short_pointers(indptr: NDArray[np.int64]) -> NDArray[Any]:
    """Row pointers in fewer bytes: how many each row has, or as int32.

    >>> short_pointers(np.array([0, 3, 5])).tolist(), short_pointers(np.array([0, 70_000])).dtype
    ([0, 3, 2], dtype('int32'))
    """
    if indptr[-1] > INT32_MAX:
        return indptr
    found = steps(indptr, np.array([0, indptr.size]))
    return found if are_steps(found) else indptr.astype(np.int32)


def long_pointers(value: Any, what: str, n_rows: int) -> NDArray[np.int64]:
    """What ``short_pointers`` was given; int64 stays as it is.

    >>> long_pointers(np.array([0, 3, 2], np.uint8), "indptr", 2).tolist()
    [0, 3, 5]
    """
    if are_steps(value):
        _few(value, 8, what)
        return np.cumsum(stored.array(value, what, value.dtype, (n_rows + 1,)), dtype=np.int64)
    width = np.int32 if getattr(value, "dtype", None) == np.int32 else np.int64
    return stored.array(value, what, width, (n_rows + 1,)).astype(np.int64, copy=False)
