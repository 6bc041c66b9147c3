"""PPD-Sparse: one sparse binary classifier per label, trained on the rows that matter to it."""

from __future__ import annotations

from typing import ClassVar

from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import csr_args, pattern_args
from blockxmc._core.params import require_number, require_whole
from blockxmc._core.progress import watched
from blockxmc.learners._learner import Context, Learner
from blockxmc.linear.weights import LinearWeights


class PPDSparse(Learner):
    """One-vs-all with squared hinge, L2 and L1, solved in the dual on each label's positives and mined negatives.

    Minimises ``|w|^2 / 2 + lam |w|_1 + C sum_i max(0, 1 - s_i w.x_i)^2`` for every label. Rows outside a label's active
    set are searched exactly: a label is certified when no row outside violates its margin by more than ``tol``.

    Parameters
    ----------
    C : weight of the loss.
    lam : weight of the L1 norm; larger means sparser, 0 gives the objective of DiSMEC.
    bias : value of a constant feature (its weight is not subject to L1); 0 for none.
    tol : largest violation of optimality that is left, in units of the margin.
    max_iter : at most so many rounds of solving and searching per label.
    prune : weights below this are dropped at the end.
    n_jobs, random_state, verbose : as everywhere.

    Attributes
    ----------
    certified_ : share of the labels whose solution was proved optimal to ``tol``.
    n_iter_ : most rounds any label took.

    >>> import numpy as np
    >>> X = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]])
    >>> clf = PPDSparse().fit(X, [["a"], ["a"], ["b"], ["b", "c"]])
    >>> clf.predict_topk(X, k=1)[0].ravel().tolist()
    [0, 0, 1, 1]
    >>> clf.certified_
    1.0
    """

    one_vs_all: ClassVar[bool] = True

    def __init__(
        self,
        C: float = 1.0,
        lam: float = 0.01,
        bias: float = 1.0,
        *,
        tol: float = 0.1,
        max_iter: int = 50,
        prune: float = 0.01,
        n_jobs: int | None = None,
        random_state: int | None = 0,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.lam = lam
        self.bias = bias
        self.tol = tol
        self.max_iter = max_iter
        self.prune = prune
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_params(self) -> None:
        for name in ("C", "tol"):
            require_number(self, name)
        for name in ("lam", "bias", "prune"):
            require_number(self, name, zero=True)
        require_whole(self, "max_iter")

    def _train(
        self, X: sparse.csr_array, Y: sparse.csr_array, job: Context, rows: sparse.csr_array | None = None
    ) -> LinearWeights:
        """Weights of all columns of Y; with ``rows`` (labels x rows, sorted) label j learns from those rows only."""
        indptr, indices, values = csr_args(X)
        p_indptr, p_indices, _ = csr_args(sparse.csr_array(Y.T))
        r_indptr, r_indices = (None, None) if rows is None else pattern_args(rows)
        label_indptr, features, weights, bias, rounds, certified = watched(
            _kernels.dual_cd,
            indptr,
            indices,
            values,
            X.shape[1],
            p_indptr,
            p_indices,
            r_indptr,
            r_indices,
            C=float(self.C),
            lam=float(self.lam),
            bias=float(self.bias),
            tol=float(self.tol),
            max_rounds=int(self.max_iter),
            max_passes=200,
            prune=float(self.prune),
            seed=job.seed,
            threads=job.threads,
            phase=job.phase,
        )
        self.n_iter_ = int(rounds.max(initial=1))
        self.certified_ = float(certified.mean()) if certified.size else 1.0
        by_label = sparse.csc_array((weights, features, label_indptr), shape=(X.shape[1], Y.shape[1]))
        return LinearWeights(sparse.csr_array(by_label), bias)
