"""Tall dense matrices (many rows, up to a few hundred columns): products whose bits do not depend on the thread count.

BLAS sums in an order that depends on how many threads it uses. Here BLAS is held to one thread, and rows are cut
into chunks of fixed size that our own threads work through; sums over chunks are taken in order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import csr_args

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
T = TypeVar("T")

_lock = threading.Lock()
_inside = 0
_outer_limit: Any = None


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread; may be nested and used from several threads at once (the last one out restores)."""
    global _inside, _outer_limit
    with _lock:
        if _inside == 0:
            _outer_limit = _controller().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _outer_limit.restore_original_limits()


def spmm(X: sparse.csr_array, B: F32, threads: int) -> F32:
    """X @ B.

    >>> spmm(sparse.csr_array(np.eye(2, dtype=np.float32)), np.ones((2, 1), np.float32), threads=1).tolist()
    [[1.0], [1.0]]
    """
    out = np.empty((X.shape[0], B.shape[1]), np.float32)
    _kernels.spmm(*csr_args(X), B, out, threads)
    return out


def transpose(X: sparse.csr_array) -> sparse.csr_array:
    """The transpose, stored by rows as well."""
    return sparse.csr_array(X.T)


def times(A: F32, M: NDArray[Any], threads: int) -> F32:
    """A @ M for a small square-ish M."""
    small = np.ascontiguousarray(M, np.float32)
    out = np.empty((A.shape[0], small.shape[1]), np.float32)
    _over_chunks(lambda rows: np.matmul(A[rows], small, out=out[rows]), A.shape[0], threads)
    return out


def gram(A: F32, threads: int) -> F64:
    """A.T @ A, in float64."""

    def one(rows: slice) -> F64:
        chunk = A[rows].astype(np.float64)
        return chunk.T @ chunk

    total = np.zeros((A.shape[1], A.shape[1]))
    for part in _over_chunks(one, A.shape[0], threads):
        total += part
    return total


def inner(A: F32, B: F32) -> float:
    """Sum of the products of corresponding entries, in float64."""
    return sum(float(np.einsum("ij,ij->", A[r], B[r], dtype=np.float64)) for r in _chunks(A.shape[0]))


def solve_rows(A: F32, M: F64, threads: int) -> F32:
    """A @ inv(M) for a positive definite M."""
    factor = scipy.linalg.cho_factor(M)
    out = np.empty_like(A)

    def one(rows: slice) -> None:
        out[rows] = scipy.linalg.cho_solve(factor, A[rows].T.astype(np.float64)).T

    _over_chunks(one, A.shape[0], threads)
    return out


def orthonormal(A: F32, threads: int) -> F32:
    """Orthonormal columns spanning what A spans; where A is rank-deficient, some columns are zero."""
    return times(A, half(gram(A, threads))[1], threads)


def half(G: F64) -> tuple[F64, F64]:
    """R and S with G = R R' for a positive semidefinite G = A'A, such that A S has orthonormal (or zero) columns.

    >>> R, S = half(np.array([[4.0, 0.0], [0.0, 0.0]]))
    >>> (R @ R.T).tolist(), float(abs(S).sum())
    ([[4.0, 0.0], [0.0, 0.0]], 0.5)
    """
    try:
        lower = scipy.linalg.cholesky(G, lower=True)
        if lower.shape[0] and np.diag(lower).min() > 1e-5 * np.diag(lower).max():
            return lower, scipy.linalg.solve_triangular(lower, np.eye(G.shape[0]), lower=True).T
    except scipy.linalg.LinAlgError:
        pass  # not of full rank: the slower way knows what to do
    values, vectors = scipy.linalg.eigh(G)
    return vectors * np.sqrt(np.maximum(values, 0)), vectors * inverse_root(values)


def inverse_root(values: F64) -> F64:
    """``values ** -0.5``, and zero where a value is nothing but rounding beside the largest."""
    floor = values.max(initial=0.0) * 1e-12
    return np.where(values > floor, 1 / np.sqrt(np.maximum(values, max(floor, 1e-300))), 0.0)


def _chunks(n_rows: int) -> list[slice]:
    """At most 64 stretches of rows, a function of the number of rows alone."""
    size = max(4096, -(-n_rows // 64))
    return [slice(start, start + size) for start in range(0, n_rows, size)]


def _over_chunks(work: Callable[[slice], T], n_rows: int, threads: int) -> list[T]:
    """Results of ``work`` on each chunk of rows, in order; the caller holds BLAS to one thread."""
    chunks = _chunks(n_rows)
    if threads == 1 or len(chunks) < 2:
        return [work(rows) for rows in chunks]
    with ThreadPoolExecutor(min(threads, len(chunks))) as pool:
        return list(pool.map(work, chunks))
