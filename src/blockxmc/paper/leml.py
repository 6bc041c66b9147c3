"""LEML: all labels at once through a bottleneck of a few hundred dimensions, by alternating least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core import stored
from blockxmc._core.progress import Phase, Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Context, Learner
from blockxmc.linear.scorers import pack_scorer
from blockxmc.linear.weights import LinearWeights, LowRankWeights, Weights
from blockxmc.paper._bilinear import Bilinear, balance, decouple, design_for
from blockxmc.paper._tall import gram, one_blas_thread, times, transpose

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


class LEML(Learner):
    """Low-rank linear model: minimises ``|Y - X W H'|^2 / 2 + lam (|W|^2 + |H|^2) / 2`` over W (d x k) and H (m x k).

    Parameters
    ----------
    rank : k. More than min(rows, labels) cannot help and is cut down to that; ``rank_`` is what was used. At that rank
        there is no bottleneck, and from the ``"svd"`` start the model is ridge regression of every label, solved once.
    lam : strength of the regulariser, positive. The authors' program has 0.1; on rows of unit length that overfits.
    n_iter : outer iterations, each one W-step (conjugate gradients, or exact where rows or features are few) and one
        H-step (exact).
    bias : value of a constant feature added to every row, 0 for none (the published method has none). On held-out rows
        1 gains 2.5 points on delicious and none on bibtex (``bench/paper/choices.py``).
    init : ``"svd"`` starts H from the leading right singular vectors of Y, ``"random"`` from small random numbers, as
        published.
    n_jobs, random_state, verbose : as everywhere; the result does not depend on ``n_jobs``.

    After ``fit``, ``objective_trace_`` holds the objective after every half-step; it never rises (but for rounding).

    >>> X = np.array([[1, 0], [0, 1], [1, 1]], np.float32)
    >>> model = LEML(rank=2, lam=0.01, n_jobs=1).fit(X, np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0]]))
    >>> model.predict(X).tolist()
    [[1, 0, 0], [0, 1, 0], [1, 1, 0]]
    """

    _threshold = 0.5  # scores approximate the targets 0 and 1

    def __init__(
        self,
        rank: int = 500,
        lam: float = 1.0,
        n_iter: int = 5,
        bias: float = 1.0,
        init: str = "svd",
        n_jobs: int | None = None,
        random_state: int | None = 0,
        verbose: int = 0,
    ) -> None:
        self.rank = rank
        self.lam = lam
        self.n_iter = n_iter
        self.bias = bias
        self.init = init
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_params(self) -> None:
        if self.rank < 1:
            raise BlockXMCError(f"rank must be at least 1, got {self.rank}")
        if not (self.lam > 0 and np.isfinite(self.lam)):
            raise BlockXMCError(f"lam must be a positive number, got {self.lam}: without it the problem is ill-posed")
        if self.n_iter < 1:
            raise BlockXMCError(f"n_iter must be at least 1, got {self.n_iter}")
        if not np.isfinite(self.bias):
            raise BlockXMCError(f"bias must be a finite number, got {self.bias}")
        if self.init not in ("svd", "random"):
            raise BlockXMCError(f"init must be 'svd' or 'random', got {self.init!r}")

    def _fit(self, X: sparse.csr_array, Y: sparse.csr_array, reporter: Reporter) -> None:
        self._check_params()
        with reporter.phase(f"train {type(self).__name__}", Y.shape[1]) as phase:
            factors = self._factorise(X, Y, self._context(self._threads, phase))
            weights = factors.weights(self._threads)
        self.rank_ = factors.H.shape[1]
        self.objective_trace_ = factors.objective_trace
        self.scorer_ = pack_scorer([weights], [np.arange(Y.shape[1])], n_features=X.shape[1], n_labels=Y.shape[1])

    def _train(self, X: sparse.csr_array, Y: sparse.csr_array, job: Context) -> Weights:
        return self._factorise(X, Y, job).weights(job.threads)

    def _factorise(self, X: sparse.csr_array, Y: sparse.csr_array, job: Context) -> Factors:
        features = np.flatnonzero(np.bincount(X.indices, minlength=X.shape[1]))
        seen = _take_columns(X, features)
        seen = _with_constant(seen, self.bias) if self.bias else seen
        rank = min(self.rank, *Y.shape)
        # Without a bottleneck, and from orthonormal directions, the first W-step is ridge regression of every label.
        ridge = self.init == "svd" and rank == min(Y.shape)
        n_iter = 1 if ridge else self.n_iter
        with one_blas_thread():
            design = design_for(seen, rank, n_iter, job.threads)
            problem = Bilinear(design, Y, transpose(Y), self.lam, job.threads)
            W = np.zeros((design.width, rank), np.float32)
            H = problem.start(rank, self.init, np.random.default_rng(job.seed))
            W, H, s = decouple(W, H, job.threads)
            trace = []
            for iteration in range(n_iter):
                W = problem.w_step(W, H, s, _Part(job.phase, Y.shape[1], (iteration, n_iter), rank))
                view = problem.seen_through(W)
                trace.append(problem.objective(W, H, np.diag(s), view))
                if ridge:
                    break
                H = problem.h_step(view)
                gram_H = gram(H, job.threads)
                trace.append(problem.objective(W, H, gram_H, view))
                if iteration + 1 < n_iter:  # balancing leaves the product as it is
                    W, H, s = balance(W, H, gram_H, job.threads)
            W = design.on_features(W)
            bias = np.float32(self.bias) * (H @ W[-1]) if self.bias else np.zeros(Y.shape[1], np.float32)
        nnz_per_row = X.nnz / max(1, X.shape[0])
        return Factors(W[: features.size], H, bias, features, X.shape[1], nnz_per_row, np.array(trace))

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "rank": self.rank_, "objective_trace": self.objective_trace_}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self.rank_ = stored.whole(state["rank"], "rank")
        self.objective_trace_ = stored.array(state["objective_trace"], "objective_trace", np.float64, (None,))


@dataclass(frozen=True)
class Factors:
    """The outcome: W on the features that occur in training, H, and how it went."""

    W: F32
    H: F32
    bias: F32
    features: NDArray[np.intp]
    n_features: int
    nnz_per_row: float
    objective_trace: F64

    def weights(self, threads: int) -> Weights:
        """One vector per label where that makes scoring cheaper for less than twice the memory, else the two factors."""
        n_labels, rank = self.H.shape
        cheaper = self.nnz_per_row * n_labels < rank * (self.nnz_per_row + n_labels)
        small = self.features.size * n_labels <= 2 * rank * (self.features.size + n_labels)
        return self.folded(threads) if (cheaper and small) or rank == 0 else self.unfolded()

    def folded(self, threads: int) -> LinearWeights:
        """W H' as the linear model it is."""
        n_labels = self.H.shape[0]
        with one_blas_thread():
            dense = times(self.W, self.H.T, threads)
        sizes = np.zeros(self.n_features + 1, np.int64)
        sizes[self.features + 1] = n_labels
        columns = np.tile(np.arange(n_labels, dtype=np.int32), self.features.size)
        coef = sparse.csr_array((dense.ravel(), columns, np.cumsum(sizes)), shape=(self.n_features, n_labels))
        return LinearWeights(coef, self.bias)

    def unfolded(self) -> LowRankWeights:
        """W with rows of zeros for features that never occurred, and H."""
        W = np.zeros((self.n_features, self.W.shape[1]), np.float32)
        W[self.features] = self.W
        return LowRankWeights(W, self.H, self.bias if self.bias.any() else None)


class _Part:
    """Progress of one outer iteration, columns of W done, told as labels done of all."""

    def __init__(self, phase: Phase, n_labels: int, place: tuple[int, int], n_columns: int) -> None:
        self._phase, self._n_labels, self._place, self._n_columns = phase, n_labels, place, max(1, n_columns)

    def update(self, done: int) -> None:
        iteration, n_iter = self._place
        self._phase.update(int(self._n_labels * (iteration + done / self._n_columns) / n_iter))


def _take_columns(X: sparse.csr_array, columns: NDArray[np.intp]) -> sparse.csr_array:
    """X without its empty columns: the cost of a block follows the block."""
    if columns.size == X.shape[1]:
        return X
    place = np.zeros(X.shape[1], np.int32)
    place[columns] = np.arange(columns.size)
    return sparse.csr_array((X.data, place[X.indices], X.indptr), shape=(X.shape[0], columns.size))


def _with_constant(X: sparse.csr_array, value: float) -> sparse.csr_array:
    """X with one more column, the same in every row."""
    n, d = X.shape
    ends = X.indptr[1:]
    data, indices = np.insert(X.data, ends, np.float32(value)), np.insert(X.indices, ends, d)
    return sparse.csr_array((data, indices, X.indptr + np.arange(n + 1)), shape=(n, d + 1))
