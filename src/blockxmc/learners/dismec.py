"""DiSMEC: one linear support vector machine per label, pruned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from scipy import sparse

from blockxmc.learners._learner import Context, Learner
from blockxmc.linear.one_vs_all import (
    Lessons,
    OneVsAll,
    shift_one_vs_all,
    train_one_vs_all,
    typical_length,
    unit_prune,
)
from blockxmc.linear.weights import F32, LinearWeights


class DiSMEC(Learner):
    """One-vs-all linear classifiers with squared hinge loss; small weights are pruned after training.

    Each label minimises ``1/2 |w|^2 + C sum_i max(0, 1 - s_i w.x_i)^2`` over all rows (LIBLINEAR's ``-s 2``) until the
    gradient is ``tol * max(min(positives, negatives), 1) / n`` of what it is at ``w = 0``.

    Parameters
    ----------
    C : weight of the loss against the regulariser.
    bias : value of a constant feature added to every row (its weight is regularised like any other); None or 0: none.
    prune : weights of smaller magnitude become zero, biases included; 0 keeps them all.
    tol : relative accuracy of the solution, as LIBLINEAR's ``-e``.
    unit_rows : True takes C, bias and prune as meant for rows of unit length, and scales them to the rows at hand: the
        same model, whatever the rows are multiplied by. Prune is meant for rows of up to 100 features on average; with
        more it falls, down to 0.7 of it.
    n_jobs : threads; None means every core. The result does not depend on it.
    random_state : accepted for symmetry with other learners; training has no randomness.
    verbose : 1 shows progress.

    >>> import numpy as np
    >>> X = np.array([[1.0, 0], [0.9, 0.1], [0, 1.0], [0.1, 0.9]])
    >>> Y = np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> DiSMEC().fit(X, Y).predict_topk(X, k=1)[0].ravel().tolist()
    [0, 0, 1, 1]
    """

    one_vs_all: ClassVar[bool] = True
    takes_costs: ClassVar[bool] = True
    any_batch: ClassVar[bool] = True

    def __init__(
        self,
        C: float = 1.0,
        bias: float | None = 1.0,
        prune: float = 0.01,
        tol: float = 0.01,
        unit_rows: bool = False,
        n_jobs: int | None = None,
        random_state: int | None = 0,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.bias = bias
        self.prune = prune
        self.tol = tol
        self.unit_rows = unit_rows
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_params(self) -> None:
        OneVsAll("squared_hinge", self.C, self.tol, self.bias, self.prune)

    def _train(
        self,
        X: sparse.csr_array,
        Y: sparse.csr_array,
        job: Context,
        rows: sparse.csr_array | None = None,
        costs: F32 | None = None,
        start: sparse.csr_array | None = None,
    ) -> LinearWeights:
        """Weights of all labels.

        ``rows`` (labels x n, a pattern) restricts each label to some of the rows; ``costs`` (n x 2) says what a row counts
        as a positive, and as a negative; ``start`` (labels x features) has vectors near the solutions.
        """
        how: Any = {"rows": rows, "costs": costs, "start": start}
        return train_one_vs_all(self._problem(X), X, Y, threads=job.threads, phase=job.phase, **how)

    def _shift(
        self, X: sparse.csr_array, old: LinearWeights, lessons: Lessons, job: Context, tol: float
    ) -> LinearWeights:
        """The weights of old rows, changed so as to learn from new rows."""
        problem = replace(self._problem(X), tol=tol)
        return shift_one_vs_all(problem, X, old, lessons, threads=job.threads, phase=job.phase)

    def _problem(self, X: sparse.csr_array) -> OneVsAll:
        length = typical_length(X) if self.unit_rows else 1.0
        return OneVsAll(
            "squared_hinge",
            C=self.C / length**2,
            tol=self.tol,
            bias=None if self.bias is None else self.bias * length,
            prune=unit_prune(self.prune, X) if self.unit_rows else self.prune,
        )
