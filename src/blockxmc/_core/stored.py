"""Checks of what comes out of a model directory, before a kernel, NumPy or SciPy relies on it.

Each function returns the value it was given, or raises :class:`ModelFormatError` with one line. Numbers are compared,
never subtracted: a difference of two extreme integers can wrap around.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from blockxmc.errors import ModelFormatError

INT32_MAX = 2**31 - 1


def damaged(what: str) -> ModelFormatError:
    """The error of a model whose parts do not fit."""
    return ModelFormatError(f"the model is damaged: {what}; restore it or train again")


def require(holds: Any, what: str) -> None:
    """Refuse the model unless the statement holds.

    >>> require(1 < 2, "one is less than two")
    """
    if not holds:
        raise damaged(what)


def whole(value: Any, what: str, low: int = 0, high: int = INT32_MAX) -> int:
    """A whole number within bounds.

    >>> whole(3, "route", 1, 2)
    Traceback (most recent call last):
        ...
    blockxmc.errors.ModelFormatError: the model is damaged: route is 3, not within 1..2; restore it or train again
    """
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise damaged(f"{what} is not a whole number")
    if not low <= value <= high:
        raise damaged(f"{what} is {short(value)}, not within {low}..{high}")
    return int(value)


def real(value: Any, what: str) -> float:
    """A finite number.

    >>> real(2, "slope")
    2.0
    """
    if not _is_number(value) or not -1e300 < value < 1e300:
        raise damaged(f"{what} is not a finite number")
    return float(value)


def numbers(value: Any, what: str) -> dict[str, float]:
    """Named numbers, for people to read: any float will do."""
    if not isinstance(value, dict) or not all(_is_number(number) for number in value.values()):
        raise damaged(f"{what} is not a set of named numbers")
    return {str(name): math.inf if abs(number) > 1e300 else number for name, number in value.items()}


def mapping(value: Any, what: str) -> dict[str, Any]:
    """Named values."""
    if not isinstance(value, dict):
        raise damaged(f"{what} is missing")
    return value


def array(value: Any, what: str, dtype: DTypeLike, shape: tuple[int | None, ...]) -> NDArray[Any]:
    """An array of this type and shape (None: any length).

    >>> array(np.zeros(3), "bias", np.float64, (3,)).size
    3
    """
    if not isinstance(value, np.ndarray):
        raise damaged(f"{what} is not an array")
    if value.dtype != dtype:
        raise damaged(f"{what} has type {value.dtype}, not {np.dtype(dtype)}")
    fits = value.ndim == len(shape) and all(
        want is None or have == want for have, want in zip(value.shape, shape, strict=True)
    )
    if not fits:
        wanted = " x ".join("any" if want is None else str(want) for want in shape)
        raise damaged(f"{what} has shape {value.shape}, not {wanted}")
    return value


def narrowed(values: NDArray[np.int32]) -> NDArray[Any]:
    """Whole numbers from 0 in half the bytes, where they fit; ``widened`` takes them back.

    >>> narrowed(np.array([0, 65535], np.int32)).dtype, narrowed(np.array([65536], np.int32)).dtype
    (dtype('uint16'), dtype('int32'))
    """
    fits = values.min(initial=0) >= 0 and values.max(initial=0) <= np.iinfo(np.uint16).max
    return values.astype(np.uint16) if fits else values


def widened(value: Any, what: str, shape: tuple[int | None, ...]) -> NDArray[np.int32]:
    """What ``narrowed`` gave, or the wider form where numbers are larger."""
    narrow = getattr(value, "dtype", None) == np.uint16
    return array(value, what, np.uint16 if narrow else np.int32, shape).astype(np.int32, copy=False)


def finite(values: NDArray[Any], what: str) -> NDArray[Any]:
    """Numbers without NaN and infinities."""
    if not np.isfinite(values).all():
        raise damaged(f"{what} holds numbers that are not finite")
    return values


def ascending(ids: NDArray[Any], upper: int, what: str) -> NDArray[Any]:
    """Ids that rise strictly within 0..upper-1.

    >>> ascending(np.array([0, 4]), 5, "labels").size
    2
    """
    check_indices(ids, upper, what)
    if (ids[1:] <= ids[:-1]).any():
        raise damaged(f"{what} do not rise")
    return ids


def check_row_pointers(indptr: NDArray[Any], n_rows: int, n_entries: int, what: str) -> None:
    """Refuse row pointers that do not rise from 0 to the number of entries.

    >>> check_row_pointers(np.array([0, 2, 3]), 2, 3, "weights")
    """
    if indptr.ndim != 1 or indptr.dtype not in (np.int32, np.int64) or indptr.size != n_rows + 1:
        raise damaged(f"{what}: expected {n_rows + 1} integer row pointers")
    if indptr[0] != 0 or indptr[-1] != n_entries or (indptr[1:] < indptr[:-1]).any():
        raise damaged(f"{what}: row pointers do not rise from 0 to {n_entries}")


def check_indices(indices: NDArray[Any], upper: int, what: str) -> None:
    """Refuse indices outside 0..upper-1.

    >>> check_indices(np.array([0, 5]), 5, "labels of block 3")
    Traceback (most recent call last):
        ...
    blockxmc.errors.ModelFormatError: the model is damaged: labels of block 3: index 5 lies outside 0..4; restore it or...
    """
    if indices.ndim != 1 or indices.dtype.kind != "i":
        raise damaged(f"{what}: expected a list of whole numbers")
    if indices.size and (indices.min() < 0 or indices.max() >= upper):
        wrong = indices.min() if indices.min() < 0 else indices.max()
        raise damaged(f"{what}: index {wrong} lies outside 0..{upper - 1}")


def check_csr_parts(
    indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any], shape: tuple[int, int], what: str
) -> None:
    """Refuse the parts of a sparse matrix unless SciPy and the kernels may follow every index in them."""
    if data.ndim != 1 or indices.shape != data.shape or indices.dtype != indptr.dtype:
        raise damaged(f"{what}: the parts of a sparse matrix do not belong together")
    check_row_pointers(indptr, shape[0], data.size, what)
    check_indices(indices, shape[1], what)


def csr(value: Any, what: str, shape: tuple[int, int | None]) -> sparse.csr_array:
    """A float32 sparse matrix of this shape (None: any number of columns), all of whose indices may be followed."""
    if not isinstance(value, sparse.csr_array) or value.ndim != 2:
        raise damaged(f"{what} is not a sparse matrix")
    if value.dtype != np.float32:
        raise damaged(f"{what} has type {value.dtype}, not float32")
    if value.shape[0] != shape[0] or shape[1] not in (None, value.shape[1]):
        raise damaged(f"{what} has shape {value.shape}, not {shape[0]} x {'any' if shape[1] is None else shape[1]}")
    check_csr_parts(value.indptr, value.indices, value.data, value.shape, what)
    return value


@contextmanager
def translated() -> Iterator[None]:
    """Turn what a kernel says of arrays that do not fit into the error of a damaged model."""
    try:
        yield
    except ModelFormatError:
        raise
    except (TypeError, ValueError) as error:
        raise damaged(str(error).partition("\n")[0]) from None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def short(value: Any) -> str:
    """A value as one line of bounded length: a hostile number may have thousands of digits.

    >>> short([1, 2]), short(10**5000)
    ('[1, 2]', 'a huge number')
    """
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a huge number"
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    return text if len(text) <= 200 else text[:197] + "..."
