"""Warm starts along lambda for bases that train labels together: a larger lambda only removes labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from blockxmc.learners._learner import Context, Learner
from blockxmc.linear.weights import F32, LowRankWeights, Weights
from blockxmc.paper._bilinear import balance
from blockxmc.paper._tall import gram, one_blas_thread

# Outer rounds of a warm start: one round from balanced factors of a smaller lambda leads where five rounds from the usual
# start do, within noise. Measured on synthetic data in tests/tuning/test_tuning.py; bench/paper/choices.py (leml) compares
# one round and five from the usual start.
_ROUNDS = 1


def warm_start(weights: Weights, kept: NDArray[np.intp], threads: int) -> tuple[F32, F32] | None:
    """Factors (W, H) of the kept labels, or None where the rank is no limit for them: ridge regression needs no start.

    They are balanced, like the learner's own factors after each round. A label that was not there (-1) starts from zero.

    >>> weights = LowRankWeights(np.ones((2, 1), np.float32), np.full((3, 1), 4, np.float32))
    >>> [abs(factor).round(3).ravel().tolist() for factor in warm_start(weights, np.array([0, 2]), threads=1)]
    [[2.0, 2.0], [2.0, 2.0]]
    """
    if not isinstance(weights, LowRankWeights) or weights.H.shape[1] >= kept.size:
        return None
    H = np.where(kept[:, None] >= 0, weights.H[kept], np.float32(0))
    with one_blas_thread():
        W, H, _ = balance(weights.W, H, gram(H, threads), threads)
    return W, H


class WarmLearner:
    """Trains one block as its learner does, started from the weights of the block at a smaller lambda."""

    def __init__(self, learner: Learner, previous: Weights, kept: NDArray[np.intp], threads: int) -> None:
        self._learner: Any = clone(learner)
        self._start = warm_start(previous, kept, threads)
        if self._start is not None:
            self._learner.set_params(n_iter=min(self._learner.n_iter, _ROUNDS))

    def _train(self, X: sparse.csr_array, Y: sparse.csr_array, job: Context) -> Weights:
        weights: Weights = self._learner._train(X, Y, job, warm=self._start)
        return weights
