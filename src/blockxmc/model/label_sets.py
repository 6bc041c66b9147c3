"""Estimators whose answers are probabilities: label sets, and the order of answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blockxmc._core import stored
from blockxmc._core.allowed import Mask
from blockxmc._core.base import NOT_SCORED, TopK
from blockxmc._core.matrix import dense_scores, take_rows
from blockxmc._core.versions import of_one_version
from blockxmc.errors import BlockXMCError
from blockxmc.metrics import inverse_propensity_from_counts
from blockxmc.model.calibration import f1_thresholds
from blockxmc.model.estimator import RoutedEstimator
from blockxmc.model.weighed import topk_by_weight

NO_TOP_K = 'threshold="top-k" needs shared weights and at least 200 training rows: use "f1"'


class LabelSetEstimator(RoutedEstimator):
    """A routed estimator that cuts label sets at ``threshold`` and ranks by probability or by propensity."""

    threshold: float | str
    rank_by: str
    f1_threshold_: float  # of one threshold for all rows, what gives held-out rows the best mean F1
    f1_labels_: int  # as many labels for every row do so; 0: no rows were held out
    f1_size_: float  # labels that rows are taken to have, where each has its own threshold; 0: all have the same

    # ---- order of answers ----
    def _topk(self, X: sparse.csr_array, k: int, allowed: Mask | None = None) -> TopK:
        if not self._by_propensity:
            return super()._topk(X, k, allowed)
        return topk_by_weight(lambda rows, k: self.model_.topk(rows, k, self._threads, allowed), X, k, self._worth)

    def _worth_of_labels(self) -> NDArray[np.float32] | None:
        return self._worth if self._by_propensity else None

    def _likeliest(self, X: sparse.csr_array, k: int) -> TopK:
        return self.model_.topk(X, k, self._threads)

    def _scores(self, X: sparse.csr_array) -> sparse.csr_array:
        found = super()._scores(X)
        if self._by_propensity:
            found.data *= self._worth[found.indices]
        return found

    @of_one_version
    def predict_one(
        self, indices: ArrayLike, values: ArrayLike, k: int = 5, allow: Any = None, deny: Any = None
    ) -> TopK:
        """Best k labels of one sparse row (sorted indices): no validation, no threads, the latency path."""
        if self._by_propensity:
            return self._one_among(indices, values, k, allow, deny)
        return super().predict_one(indices, values, k, allow, deny)

    @property
    def _by_propensity(self) -> bool:
        if self.rank_by not in ("probability", "propensity"):
            raise BlockXMCError(f'rank_by must be "probability" or "propensity", got {self.rank_by!r}')
        if self.rank_by == "propensity" and self.model_.calibration is None:
            raise BlockXMCError('rank_by="propensity" needs probabilities: use weights="shared"')
        return self.rank_by == "propensity"

    @property
    def _worth(self) -> NDArray[np.float32]:
        """What a hit of each label is worth in PSP."""
        return inverse_propensity_from_counts(self.label_counts_, self.n_train_rows_).astype(np.float32)

    # ---- label sets ----
    @of_one_version
    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities of the candidates of each row, as CSR where Y was sparse or names (absent: 0).

        When Y was dense: a dense array; with one class per row: the chance of each class, adding up to 1.

        >>> from blockxmc import BlockwiseClassifier
        >>> X, Y = [[1.0, 0], [0.9, 0.1], [0, 1.0], [0.1, 0.9]], [["red"], ["red"], ["blue"], ["blue"]]
        >>> BlockwiseClassifier(n_blocks=1).fit(X, Y).predict_proba([[1.0, 0]]).toarray().argmax().item()
        1
        """
        X = self._validated(X)
        if self.model_.calibration is None:
            raise BlockXMCError('scores are margins here, not probabilities: predict_proba needs weights="shared"')
        found = self.model_.scores(X, self._threads)
        if self.targets_.kind == "csr_matrix":
            return sparse.csr_matrix(found)
        if self.targets_.kind not in ("dense", "classes"):
            return found
        dense = dense_scores(found, absent=0.0)
        return dense if self.targets_.kind == "dense" else _of_classes(dense, int(self.label_counts_.argmax()))

    @property
    def _threshold(self) -> float:  # type: ignore[override]
        """What a score must exceed; nothing where rows get their first labels anyway."""
        if isinstance(self.threshold, str):
            return self.f1_threshold_ if self.threshold == "f1" else -np.inf
        return float(self.threshold)

    def _least(self, scores: NDArray[np.float32], *, ranked: bool = True) -> Any:
        if not (isinstance(self.threshold, str) and self.threshold == "f1" and self.f1_size_):
            return self._threshold
        return self.f1_least(scores if ranked else -np.sort(-scores, axis=1))

    def f1_least(self, ranked: NDArray[np.float32]) -> Any:
        """What probabilities must exceed for the best F1, where rows have these, best first."""
        return f1_thresholds(ranked, self.f1_size_) if self.f1_size_ else self.f1_threshold_

    def _label_sets(self, X: sparse.csr_array) -> sparse.csr_array:
        self._check_threshold()
        if self.threshold != "top-k":
            chosen = super()._label_sets(X)
            return self._with_first(X, chosen) if self._keeps_first else chosen
        if not self.f1_labels_:
            raise BlockXMCError(NO_TOP_K)
        labels, _ = self._likeliest(X, min(self.f1_labels_, self.targets_.n_labels))
        rows, _ = np.nonzero(labels >= 0)
        ones = np.ones(rows.size, np.float32)
        return sparse.csr_array((ones, (rows, labels[labels >= 0])), shape=(X.shape[0], self.targets_.n_labels))

    @property
    def _keeps_first(self) -> bool:
        """Whether a row without a label above the threshold gets its first: models of version 0.2 were cut so."""
        return isinstance(self.threshold, str) and self.threshold == "f1" and self.f1_labels_ > 0 and not self.f1_size_

    def _with_first(self, X: sparse.csr_array, chosen: sparse.csr_array) -> sparse.csr_array:
        rows = np.flatnonzero(np.diff(chosen.indptr) == 0)
        if not rows.size or not chosen.shape[1]:
            return chosen
        labels = self._likeliest(take_rows(X, rows), 1)[0][:, 0]
        there = labels >= 0
        ones = np.ones(int(there.sum()), np.float32)
        return sparse.csr_array(chosen + sparse.csr_array((ones, (rows[there], labels[there])), shape=chosen.shape))

    @of_one_version
    def decision_function(self, X: Any) -> Any:
        """As in every estimator; where Y was dense, the label that a row always keeps is positive, too."""
        found = super().decision_function(X)
        if self.targets_.kind == "dense" and self._keeps_first and found.size:
            rows, best = np.arange(found.shape[0]), found.argmax(axis=1)
            first = found[rows, best]
            found[rows, best] = np.where(first > NOT_SCORED, np.maximum(first, np.finfo(np.float32).tiny), first)
        return found

    # ---- where label sets are cut ----
    def _take_cut(self, found: dict[str, float], usual: float) -> None:
        """Take what held-out rows have found out of a dict; else ``usual`` is the threshold."""
        self.f1_threshold_ = float(found.pop("f1_threshold", usual))
        self.f1_labels_ = round(found.pop("f1_labels", 0))
        self.f1_size_ = float(found.pop("f1_size", 0.0))

    def _cut_state(self) -> dict[str, float]:
        return {"f1_threshold": self.f1_threshold_, "f1_labels": self.f1_labels_, "f1_size": self.f1_size_}

    def _restore_cut(self, state: dict[str, Any]) -> None:
        self.f1_threshold_ = stored.real(state["f1_threshold"], "f1_threshold")
        self.f1_labels_ = stored.whole(state["f1_labels"], "f1_labels")
        self.f1_size_ = stored.real(state["f1_size"], "f1_size")
        stored.require(self.f1_size_ >= 0, "f1_size must not be negative")
        self._check_threshold()
        stored.require(self.rank_by in ("probability", "propensity"), "labels are ranked in an unknown way")

    def _check_threshold(self) -> None:
        given: Any = self.threshold
        number = type(given) in (int, float) or isinstance(given, (np.integer, np.floating))
        if not (number and given == given) and not (isinstance(given, str) and given in ("f1", "top-k")):
            raise BlockXMCError(f'threshold must be "f1", "top-k" or a number, got {given!r}')


def _of_classes(chances: NDArray[np.float32], usual: int) -> NDArray[np.float64]:
    """Chances of classes of which each row has one; rows without any candidate are of the usual class."""
    p = chances.astype(np.float64)
    p[~p.any(axis=1), usual] = 1.0
    if p.shape[1] == 2:  # in the order of decision_function, which is their difference
        second = (1 + p[:, 1] - p[:, 0]) / 2
        return np.column_stack([1 - second, second])
    return np.asarray(p / p.sum(axis=1, keepdims=True))
