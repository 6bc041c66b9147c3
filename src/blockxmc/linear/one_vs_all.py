"""One-vs-all training of linear classifiers on shared rows: the solver behind DiSMEC and the router."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import row_norms

from blockxmc import _kernels
from blockxmc._core.matrix import csr_args, csr_of, pattern_args
from blockxmc._core.needs import prune_level
from blockxmc._core.progress import Phase, watched
from blockxmc.errors import BlockXMCError
from blockxmc.linear.weights import F32, LinearWeights

_START = ("start_indptr", "start_indices", "start_data")
Loss = Literal["squared_hinge", "logistic"]
F64 = NDArray[np.float64]


@dataclass(frozen=True)
class OneVsAll:
    """Minimise 1/2 |w|^2 + C sum_i loss(s_i w.x_i) for every label, to LIBLINEAR's tolerance.

    ``bias`` is the value of an additional constant feature, regularised like any other. Weights smaller than ``prune``
    are dropped.
    """

    loss: Loss
    C: float
    tol: float
    bias: float | None
    prune: float

    def __post_init__(self) -> None:
        if self.loss not in get_args(Loss):
            raise BlockXMCError(f"loss must be 'logistic' or 'squared_hinge', got {self.loss!r}")
        if not (np.isfinite(self.C) and self.C > 0):
            raise BlockXMCError(f"C must be a positive number, got {self.C}")
        if not (np.isfinite(self.tol) and self.tol > 0):
            raise BlockXMCError(f"tol must be a positive number, got {self.tol}; 0.01 is usual")
        if not (np.isfinite(self.prune) and self.prune >= 0):
            raise BlockXMCError(f"prune must be 0 (keep every weight) or a positive number, got {self.prune}")
        if self.bias is not None and not (np.isfinite(self.bias) and self.bias >= 0):
            raise BlockXMCError(f"bias must be None (no bias), 0 or a positive number, got {self.bias}")


def typical_length(X: sparse.csr_array) -> float:
    """Median length of the rows that are not empty; exactly 1 where that is so but for rounding.

    >>> typical_length(sparse.csr_array(np.array([[3, 4], [0, 0], [0, 5.0]])))
    5.0
    """
    lengths = _lengths(X)
    length = float(np.median(lengths)) if lengths.size else 1.0
    return 1.0 if abs(length - 1) < 1e-3 else length


def unit_prune(prune: float, X: sparse.csr_array) -> float:
    """Where weights of these rows are dropped, if those of short rows of unit length are dropped at ``prune``.

    Zeros that X stores are no features.

    >>> unit_prune(0.1, sparse.csr_array(np.eye(3))), round(unit_prune(0.1, sparse.csr_array(np.full((2, 400), 0.05))), 6)
    (0.1, 0.07)
    """
    features = np.count_nonzero(X.data) / max(_lengths(X).size, 1)
    return prune * prune_level(features) / typical_length(X)


def longer_rows(X: sparse.csr_array) -> float:
    """How many times as long as the median row the longest hundredth of the rows is; empty rows do not count.

    >>> longer_rows(sparse.csr_array(np.array([[3, 4], [0, 0], [0, 5.0]])))
    1.0
    """
    lengths = _lengths(X)
    return float(np.quantile(lengths, 0.99) / np.median(lengths)) if lengths.size else 1.0


def _lengths(X: sparse.csr_array) -> F64:
    """Of the rows that are not empty."""
    lengths: F64 = row_norms(X)
    return lengths[lengths > 0]


@dataclass(frozen=True)
class Lessons:
    """New rows of each label and what they are to be, and old rows that hold what they are.

    ``rows`` is labels x rows; its entries are the signs (+1 and -1 of a new row, 0 of one that holds). ``products`` and
    ``costs`` have, for each entry, the score that the row has now (0 where it holds), and what it counts.
    """

    rows: sparse.csr_array
    products: F32
    costs: F32


def shift_one_vs_all(
    problem: OneVsAll, X: sparse.csr_array, old: LinearWeights, lessons: Lessons, *, threads: int, phase: Phase
) -> LinearWeights:
    """The solutions of old rows, a column per label, changed so as to learn from new rows; nearly what solving all gives.

    >>> from blockxmc._core.progress import Reporter
    >>> X = sparse.csr_array(np.eye(2, dtype=np.float32))
    >>> old = LinearWeights(sparse.csr_array(np.array([[1.0], [0]], np.float32)), np.zeros(1, np.float32))
    >>> to_be_1 = sparse.csr_array(np.array([[0, 1.0]], np.float32))
    >>> lessons = Lessons(to_be_1, np.zeros(1, np.float32), np.ones(1, np.float32))
    >>> problem = OneVsAll("squared_hinge", C=0.5, tol=0.01, bias=None, prune=0.0)
    >>> with Reporter().phase("") as phase:
    ...     shift_one_vs_all(problem, X, old, lessons, threads=1, phase=phase).coef.toarray().ravel().tolist()
    [1.0, 0.5]
    """
    rows, vectors = lessons.rows, sparse.csr_array(old.coef.T)
    vectors.sort_indices()
    indptr, indices, data, biases = watched(
        _kernels.shift_one_vs_all,
        *csr_args(X),
        X.shape[1],
        *csr_args(vectors),
        np.ascontiguousarray(old.bias, np.float32),
        *csr_args(rows),
        np.ascontiguousarray(lessons.products, np.float32),
        np.ascontiguousarray(lessons.costs, np.float32),
        phase=phase,
        C=float(problem.C),
        tol=float(problem.tol),
        bias=float(problem.bias or 0.0),
        prune=float(problem.prune),
        threads=threads,
    )
    return LinearWeights(csr_of(indptr, indices, data, vectors.shape).T, biases)


def train_one_vs_all(
    problem: OneVsAll,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    *,
    threads: int,
    phase: Phase,
    rows: sparse.csr_array | None = None,
    costs: F32 | None = None,
    start: sparse.csr_array | None = None,
) -> LinearWeights:
    """Solve the problem for every column of Y.

    ``rows`` (labels x n, a pattern) restricts each label to some of the rows, its positives among them. ``costs`` (n x 2)
    says what the loss of a row counts where the row is a positive of the label, and where it is not. ``start`` (labels x
    features, squared hinge) has vectors near the solutions, up to their lengths; an empty one says nothing, and so does any
    where rows are of very different length: these have a start of their own (lane_descent.hpp).
    """
    positives = sparse.csc_array(Y)
    positives.sort_indices()
    if rows is not None and rows.shape != (Y.shape[1], Y.shape[0]):
        raise BlockXMCError(f"rows must be labels x rows, {(Y.shape[1], Y.shape[0])}, got {rows.shape}")
    members = (None, None) if rows is None else pattern_args(rows)
    indptr, indices, data, biases = watched(
        _kernels.train_one_vs_all,
        *csr_args(X),
        X.shape[1],
        np.ascontiguousarray(positives.indptr, np.int64),
        np.ascontiguousarray(positives.indices, np.int32),
        *members,
        phase=phase,
        costs=costs,
        **({} if start is None else dict(zip(_START, csr_args(start), strict=True))),
        loss=problem.loss,
        C=float(problem.C),
        tol=float(problem.tol),
        bias=float(problem.bias or 0.0),
        prune=float(problem.prune),
        threads=threads,
    )
    return LinearWeights(csr_of(indptr, indices, data, (Y.shape[1], X.shape[1])).T, biases)
