"""One-vs-all training of linear classifiers on shared rows: the solver behind DiSMEC and the router."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import row_norms

from blockxmc import _kernels
from blockxmc._core.matrix import csr_args, csr_of, pattern_args
from blockxmc._core.progress import Phase, watched
from blockxmc.errors import BlockXMCError
from blockxmc.linear.weights import F32, LinearWeights

_START = ("start_indptr", "start_indices", "start_data")
Loss = Literal["squared_hinge", "logistic"]


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
    lengths = row_norms(X)
    lengths = lengths[lengths > 0]
    length = float(np.median(lengths)) if lengths.size else 1.0
    return 1.0 if abs(length - 1) < 1e-3 else length


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
    features, squared hinge) has vectors near the solutions, up to their lengths; an empty one says nothing.
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
