"""Multinomial naive Bayes, one label against the rest: one pass over the data, weights as sparse as co-occurrence."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import Tags

from blockxmc._core import stored
from blockxmc._core.allowed import Mask
from blockxmc._core.base import TopK
from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Context, Learner
from blockxmc.linear.weights import LinearWeights
from blockxmc.model.routed import RoutedModel

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

_CHUNK = 1024  # labels counted at a time: bounds the float64 counts held at once


class NaiveBayes(Learner):
    """Log-odds of each label under multinomial naive Bayes; features are counts (TF-IDF works as a heuristic).

    With c the mass of a feature over the rows of a label, c' over its other rows, C and C' their totals::

        score = ln((N + 1/2) / (n - N + 1/2))
                + sum_f x_f [ln((c_f + alpha) / (C + alpha d)) - ln((c'_f + alpha) / (C' + alpha d))]

    Parameters
    ----------
    alpha : smoothing, positive.
    n_jobs, random_state, verbose : as everywhere; nothing here is random.

    A feature that never occurs with a label still weighs against it, by the same amount for all labels trained
    together: ``offset_term``. It is kept beside the sparse weights and added to the scores of a row once. Per-block models
    of several visited blocks cannot be compared that way: visit one block, or use shared or global weights.

    >>> X = np.array([[2, 0, 1], [0, 3, 1], [1, 0, 0]])
    >>> model = NaiveBayes(n_jobs=1).fit(X, [["tea"], ["coffee"], ["tea"]])
    >>> model.predict([[0, 2, 0]])
    [['coffee']]
    """

    one_vs_all = True

    def __init__(
        self, alpha: float = 1.0, n_jobs: int | None = None, random_state: int | None = 0, verbose: int = 0
    ) -> None:
        self.alpha = alpha
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_params(self) -> None:
        if not (self.alpha > 0 and np.isfinite(self.alpha)):
            raise BlockXMCError(f"alpha must be a positive number, got {self.alpha}")

    def _fit(self, X: sparse.csr_array, Y: sparse.csr_array, reporter: Reporter) -> None:
        super()._fit(X, Y, reporter)
        self.offset_term_ = offset_term(X, self.alpha)

    def _train(
        self, X: sparse.csr_array, Y: sparse.csr_array, job: Context, rows: sparse.csr_array | None = None
    ) -> LinearWeights:
        """``rows`` (labels x rows, 0-1): label j sees these rows only; its weights are then complete, and less sparse."""
        if X.nnz and X.data.min() < 0:
            raise BlockXMCError("Negative values in data passed to NaiveBayes: it needs counts or other non-negative X")
        counts = _Counts(X, Y, self.alpha, rows)
        n_labels = Y.shape[1]
        chunks = [slice(start, min(start + _CHUNK, n_labels)) for start in range(0, n_labels, _CHUNK)]
        with ThreadPoolExecutor(job.threads) as pool:
            parts = []
            for chunk, part in zip(chunks, pool.map(counts.log_odds, chunks), strict=True):
                parts.append(part)
                job.phase.update(chunk.stop)
        if not parts:
            return LinearWeights(X[:0].T.tocsr(), np.zeros(0, np.float32))
        coef = sparse.csr_array(sparse.vstack([part[0] for part in parts], format="csr").T)
        bias, mass = (np.concatenate([part[i] for part in parts]).astype(np.float32) for i in (1, 2))
        return LinearWeights(coef, bias, mass, offset=offset_term(X, self.alpha) if rows is None else None)

    # ---- the offset that all labels share, on top of the packed weights ----
    def _topk(self, X: sparse.csr_array, k: int, allowed: Mask | None = None) -> TopK:
        labels, scores = super()._topk(X, k, allowed)
        return labels, scores + (X @ self.offset_term_)[:, None]

    def _scores(self, X: sparse.csr_array) -> sparse.csr_array:
        scores = super()._scores(X)
        data = scores.data + np.repeat(X @ self.offset_term_, np.diff(scores.indptr))
        return sparse.csr_array((data, scores.indices, scores.indptr), shape=scores.shape)

    def predict_one(
        self, indices: ArrayLike, values: ArrayLike, k: int = 5, allow: Any = None, deny: Any = None
    ) -> TopK:
        """Best k labels of one sparse row (sorted indices): no validation, no threads, the latency path."""
        labels, scores = super().predict_one(indices, values, k, allow, deny)
        return labels, scores + np.float32(
            np.dot(np.asarray(values, np.float32), self.offset_term_[np.asarray(indices)])
        )

    def _served(self) -> RoutedModel:
        return replace(super()._served(), offset=sparse.csr_array(self.offset_term_[:, None]))

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "offset_term": self.offset_term_}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self.offset_term_ = stored.array(state["offset_term"], "offset_term", np.float32, (self.n_features_in_,))

    def __sklearn_tags__(self) -> Tags:
        """As every classifier, but for counts: features must not be negative, and other data are served poorly."""
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.classifier_tags.poor_score = True
        return tags


def offset_term(X: sparse.csr_array, alpha: float) -> F32:
    """Per feature, what a label that never met it has against it: -ln((c_f + alpha) / alpha), c_f its mass in X.

    >>> offset_term(sparse.csr_array([[1.0, 0.0]]), alpha=1.0).tolist()
    [-0.693..., 0.0]
    """
    return (0 - np.log1p(_feature_mass(X) / alpha)).astype(np.float32)


def _feature_mass(X: sparse.csr_array) -> F64:
    return np.bincount(X.indices, weights=X.data, minlength=X.shape[1]).astype(np.float64)


class _Counts:
    """Feature masses of labels, and the log-odds that follow from them; everything in float64."""

    def __init__(self, X: sparse.csr_array, Y: sparse.csr_array, alpha: float, rows: sparse.csr_array | None) -> None:
        self.X, self.alpha, self.rows = X.astype(np.float64), alpha, rows
        self.positives = Y.T.tocsr() if rows is None else Y.T.tocsr().multiply(rows).tocsr()
        self.feature_mass = _feature_mass(X)

    def log_odds(self, labels: slice) -> tuple[sparse.csr_array, F64, F64]:
        """Weights (labels x features, float32), prior log-odds and coefficient of |x|_1 of a stretch of labels."""
        positives = self.positives[labels]
        mass = positives @ self.X
        n_positive, total = np.diff(positives.indptr), mass.sum(axis=1)
        if self.rows is None:
            coef = mass.copy()
            seen = self.feature_mass[mass.indices]
            # The offset of these features is taken back here: it is added for every feature of a row elsewhere.
            coef.data = self._log1p(mass.data) - self._log1p(np.maximum(seen - mass.data, 0)) + self._log1p(seen)
            n_rest, total_rest = self.X.shape[0] - n_positive, self.feature_mass.sum() - total
        else:
            rest = (self.rows[labels] - positives) @ self.X
            n_rest, total_rest = np.diff(self.rows[labels].indptr) - n_positive, rest.sum(axis=1)
            coef = mass.copy()
            coef.data, rest.data = self._log1p(mass.data), self._log1p(rest.data)
            coef = coef - rest
        smoothing = self.alpha * self.X.shape[1]
        prior = np.log(n_positive + 0.5) - np.log(n_rest + 0.5)
        return coef.astype(np.float32), prior, np.log(total_rest + smoothing) - np.log(total + smoothing)

    def _log1p(self, mass: F64) -> F64:
        return np.log1p(mass / self.alpha)
