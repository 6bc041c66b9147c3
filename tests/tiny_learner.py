"""A base classifier small enough to live in the tests: ridge regression on -1/+1 targets."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from blockxmc.learners._learner import Context, Learner
from blockxmc.linear.weights import LinearWeights, LowRankWeights


class TinyRidge(Learner):
    one_vs_all = True

    def __init__(self, alpha=1.0, low_rank=False, n_jobs=None, random_state=0, verbose=0):
        self.alpha = alpha
        self.low_rank = low_rank
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _train(self, X, Y, job: Context):
        A = np.column_stack([X.toarray(), np.ones(X.shape[0])]).astype(np.float64)
        B = 2 * Y.toarray().astype(np.float64) - 1
        w = np.linalg.solve(A.T @ A + self.alpha * np.eye(A.shape[1]), A.T @ B).astype(np.float32)
        job.phase.update(Y.shape[1])
        if self.low_rank:
            return LowRankWeights(w[:-1], np.eye(Y.shape[1], dtype=np.float32))
        return LinearWeights(sparse.csr_array(w[:-1]), w[-1])
