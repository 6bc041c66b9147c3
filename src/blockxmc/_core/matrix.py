"""Sparse matrices in the one shape the kernels take: float32 values, int32 indices, int64 row pointers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc.errors import BlockXMCError

# Kernels square what they get, in 32-bit floats: values beyond this would become infinite.
LARGEST_VALUE = 1e15
# ... and the squares of values below this would be lost: where all are smaller, nothing can be learnt of them.
SMALLEST_VALUE = 1e-15
_RESCALE = "rescale the features, for example with sklearn.preprocessing.normalize"
_DIGESTED_AT_A_TIME = 1 << 22

CsrArgs = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]


def as_csr(X: Any) -> sparse.csr_array:
    """Return X as float32 CSR with sorted indices and no duplicates; no copy where X is so already.

    >>> as_csr([[0, 2.0], [1.0, 0]]).toarray().tolist()
    [[0.0, 2.0], [1.0, 0.0]]
    """
    out = sparse.csr_array(X, dtype=np.float32)
    if not out.has_canonical_format:
        out = out.copy() if out is X or np.shares_memory(out.indices, getattr(X, "indices", out.data)) else out
        out.sum_duplicates()
    if out.indices.dtype != np.int32 and max(out.nnz, *out.shape) < 2**31:
        narrow = (out.data, out.indices.astype(np.int32), out.indptr.astype(np.int32))
        out = sparse.csr_array(narrow, shape=out.shape)  # foreign learners take no 64-bit indices
    return out


def is_ready(X: Any, n_features: int) -> bool:
    """Whether X can go to a kernel as it is: canonical float32 CSR of this width, with rows and usable values.

    >>> is_ready(as_csr([[0, 2.0]]), 2), is_ready(as_csr([[0, float("nan")]]), 2), is_ready([[0, 2.0]], 2)
    (True, False, False)
    """
    return bool(
        type(X) is sparse.csr_array
        and X.ndim == 2
        and X.shape[0] > 0
        and X.shape[1] == n_features
        and X.dtype == np.float32
        and X.indices.dtype == np.int32
        and X.has_canonical_format
        and has_usable_values(X)
    )


def has_usable_values(X: sparse.csr_array) -> bool:
    """Whether all values are finite, and small enough to be squared in 32-bit floats.

    >>> has_usable_values(as_csr([[1e14, -1e14]])), has_usable_values(as_csr([[1e30, 0.0]]))
    (True, False)
    """
    # Two passes without a copy; a NaN makes either comparison false.
    return bool(X.data.max(initial=0) <= LARGEST_VALUE and X.data.min(initial=0) >= -LARGEST_VALUE)


def check_values(X: sparse.csr_array, what: str = "X") -> None:
    """Refuse values that are not finite or too large to be squared."""
    if not has_usable_values(X):
        if not np.isfinite(X.data).all():
            raise BlockXMCError(f"{what} holds NaN or infinite values; every value must be a finite number")
        raise BlockXMCError(
            f"{what} holds values of up to {np.abs(X.data).max():.0e}, and {LARGEST_VALUE:.0e} is the most that can be"
            f" squared in 32-bit floats; {_RESCALE}"
        )


def check_not_lost(X: sparse.csr_array, what: str = "X") -> None:
    """Refuse values to learn from whose squares are all lost; where all are zero, this is meant."""
    largest = max(float(X.data.max(initial=0)), -float(X.data.min(initial=0)))
    if 0 < largest < SMALLEST_VALUE:
        raise BlockXMCError(
            f"no value of {what} is larger than {largest:.0e}, and below {SMALLEST_VALUE:.0e} nothing can be learnt in"
            f" 32-bit floats; {_RESCALE}"
        )


def as_indicator(Y: Any) -> sparse.csr_array:
    """Return a 0-1 label matrix as canonical CSR whose stored values are all one.

    >>> as_indicator([[0, 1], [1, 0]]).indices.tolist()
    [1, 0]
    """
    out = as_csr(Y)
    if out.nnz and not (out.data == 1).all():
        if not np.isin(out.data, (0, 1)).all():
            raise BlockXMCError("Y must be a 0-1 label matrix, but holds other values; pass label-name lists or 0/1")
        out = out.copy()
        out.eliminate_zeros()
    return out


def csr_args(X: sparse.csr_array) -> CsrArgs:
    """The three arrays of X as a kernel takes them (indices and values are not copied when they fit already)."""
    if X.shape[1] > np.iinfo(np.int32).max:
        raise BlockXMCError(f"{X.shape[1]} columns do not fit 32-bit column indices")
    return (
        np.ascontiguousarray(X.indptr, dtype=np.int64),
        np.ascontiguousarray(X.indices, dtype=np.int32),
        np.ascontiguousarray(X.data, dtype=np.float32),
    )


def pattern_args(X: sparse.csr_array) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Row pointers and columns of X as a kernel takes them; the values do not matter."""
    return np.ascontiguousarray(X.indptr, dtype=np.int64), np.ascontiguousarray(X.indices, dtype=np.int32)


def renumbered(numbers: NDArray[np.integer], size: int) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """The different numbers, all below ``size``, and where each stands among them: ``np.unique`` without sorting.

    >>> [found.tolist() for found in renumbered(np.array([7, 2, 7]), 9)]
    [[2, 7], [1, 0, 1]]
    """
    there = np.zeros(size, bool)
    there[numbers] = True
    different = np.flatnonzero(there)
    place = np.empty(size, np.int32)
    place[different] = np.arange(different.size, dtype=np.int32)
    return different, place[numbers]


def as_pattern(indptr: NDArray[Any], indices: NDArray[Any], shape: tuple[int, int]) -> sparse.csr_array:
    """A matrix of ones at these places; the ones take no memory.

    >>> as_pattern(np.array([0, 1]), np.array([1]), (1, 2)).toarray().tolist()
    [[0.0, 1.0]]
    """
    ones = np.broadcast_to(np.ones(1, np.float32), indices.shape)
    return csr_of(indptr, indices, ones, shape)


def csr_of(
    indptr: NDArray[Any], indices: NDArray[np.int32], data: NDArray[Any], shape: tuple[int, int]
) -> sparse.csr_array:
    """A CSR array of what a kernel has written, without a copy of the large parts.

    SciPy gives both index arrays one dtype: 32-bit row pointers, where they fit, keep the indices from being widened.

    >>> csr_of(np.array([0, 1]), np.array([1], np.int32), np.ones(1), (1, 2)).indices.dtype
    dtype('int32')
    """
    narrow = indptr.astype(np.int32) if max(indices.size, *shape) <= np.iinfo(np.int32).max else indptr
    return sparse.csr_array((data, indices, narrow), shape=shape)


def take_rows(X: sparse.csr_array, rows: NDArray[np.intp]) -> sparse.csr_array:
    """The given rows of X, in that order."""
    return sparse.csr_array(X[rows])


def copy_rows(X: sparse.csr_array, rows: NDArray[np.integer], threads: int = 1) -> sparse.csr_array:
    """``take_rows`` of a large part of a float matrix, on several threads.

    >>> copy_rows(sparse.csr_array(np.eye(3, dtype=np.float32)), np.array([2, 0])).toarray().tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    arrays = _kernels.copy_rows(*csr_args(X), np.ascontiguousarray(rows, np.int64), threads)
    return csr_of(*arrays, (len(rows), X.shape[1]))


def without_rows(X: sparse.csr_array, rows: NDArray[np.bool_]) -> sparse.csr_array:
    """X with nothing in these rows.

    >>> without_rows(sparse.csr_array(np.ones((2, 2), np.float32)), np.array([True, False])).toarray().tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """
    sizes = np.diff(X.indptr)
    kept = np.repeat(~rows, sizes)
    indptr = np.concatenate([[0], np.cumsum(np.where(rows, 0, sizes))])
    return csr_of(indptr, X.indices[kept], X.data[kept], X.shape)


def row_parts(X: sparse.csr_array, at_a_time: int = 4096) -> Iterator[sparse.csr_array]:
    """Stretches of rows, at least one (it may be empty): what is made of a stretch is all that memory holds.

    >>> [part.shape for part in row_parts(sparse.csr_array((5, 2)), 3)]
    [(3, 2), (2, 2)]
    """
    for start in range(0, max(X.shape[0], 1), at_a_time):
        yield sparse.csr_array(X[start : start + at_a_time])


def dense_scores(scores: sparse.csr_array, absent: float) -> NDArray[np.float32]:
    """Stored entries in a dense array; ``absent`` where there is none.

    >>> dense_scores(sparse.csr_array(([2.0], [1], [0, 1]), shape=(1, 2)), -np.inf).tolist()
    [[-inf, 2.0]]
    """
    dense = np.full(scores.shape, absent, dtype=np.float32)
    dense[np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr)), scores.indices] = scores.data
    return dense


def flat_positions(matrix: sparse.csr_array) -> NDArray[np.int64]:
    """Where the entries of a matrix would stand if its rows stood in one line.

    >>> flat_positions(sparse.csr_array([[0, 1], [1, 0]])).tolist()
    [1, 2]
    """
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    return np.asarray(rows * matrix.shape[1] + matrix.indices)


def matrix_digest(*matrices: sparse.csr_array) -> str:
    """SHA-256 over shapes and arrays: equal matrices have an equal digest, however they were stored.

    >>> matrix_digest(as_csr([[1, 0]])) == matrix_digest(as_csr([[1.0, 0.0]])) != matrix_digest(as_csr([[1], [0]]))
    True
    """
    state = hashlib.sha256()
    for matrix in matrices:
        state.update(np.array(matrix.shape, dtype="<i8").tobytes())
        parts = (matrix.indptr, "<i8"), (matrix.indices, "<i4"), (matrix.data, "<f4")
        for part, dtype in parts:  # piece by piece: what is mapped, or a constant, is not copied whole
            for start in range(0, part.size, _DIGESTED_AT_A_TIME):
                state.update(np.ascontiguousarray(part[start : start + _DIGESTED_AT_A_TIME], dtype=dtype).data)
    return state.hexdigest()


def unit_rows(X: sparse.csr_array) -> sparse.csr_array:
    """Rows divided by their Euclidean length; empty ones stay empty.

    >>> unit_rows(sparse.csr_array([[3.0, 4.0], [0.0, 0.0]])).toarray().tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    lengths = np.sqrt(np.bincount(rows, weights=X.data.astype(np.float64) ** 2, minlength=X.shape[0]))
    scaled = (X.data / lengths[rows]).astype(X.data.dtype)
    return sparse.csr_array((scaled, X.indices, X.indptr), shape=X.shape)
