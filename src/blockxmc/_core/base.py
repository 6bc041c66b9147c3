"""The shape every classifier of the library has: fit, predict_topk, predict, decision_function, save.

A subclass implements ``_fit``, ``_topk``, ``_scores`` and the pair ``_state`` / ``_restore``; validation, label
names, output conventions and scikit-learn's expectations live here once.
"""

from __future__ import annotations

import copy
import os
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from blockxmc._core import saving
from blockxmc._core.allowed import Mask, allowed_labels, best_allowed
from blockxmc._core.matrix import as_csr, check_not_lost, check_values, dense_scores, is_ready, row_parts, take_rows
from blockxmc._core.memory import check_memory_limit, check_training_memory
from blockxmc._core.params import check_k, check_random_state
from blockxmc._core.progress import Reporter, reporter_for, thread_count
from blockxmc._core.stored import require
from blockxmc._core.targets import Targets
from blockxmc._core.versions import of_one_version
from blockxmc.errors import BlockXMCError

# Labels that are looked at first where rows are cut at a threshold; many times as many where all of them exceed it.
FEW_LABELS = 32

# The dense score of a label that is no candidate: finite, because scikit-learn's scorers refuse infinite scores.
NOT_SCORED = np.float32(-1e30)

TopK = tuple[NDArray[np.int64], NDArray[np.float32]]


class XMCEstimator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of every classifier: what users call, in terms of what a subclass computes."""

    n_jobs: int | None
    random_state: Any
    verbose: int
    # A label is predicted when its score exceeds this (margins: 0).
    _threshold: float = 0.0

    # ---- what a subclass provides ----
    def _fit(self, X: sparse.csr_array, Y: sparse.csr_array, reporter: Reporter) -> None:
        raise NotImplementedError

    def _topk(self, X: sparse.csr_array, k: int, allowed: Mask | None = None) -> TopK:
        """Best k <= m allowed labels per row: best first, ties to the lower id, padded with -1 / -inf."""
        raise NotImplementedError

    def _scores(self, X: sparse.csr_array) -> sparse.csr_array:
        """Scores of every candidate of every row (explicit zeros are kept: absent means not scored)."""
        raise NotImplementedError

    def _state(self) -> dict[str, Any]:
        """Fitted attributes as a nested dict of JSON values, NumPy arrays and CSR arrays."""
        raise NotImplementedError

    def _restore(self, state: dict[str, Any]) -> None:
        """Take back what ``_state`` gave (arrays may be read-only memory maps)."""
        raise NotImplementedError

    def _check_all(self) -> None:
        """Look at what ``_restore`` leaves unread because answers do not need it."""

    def _check_sizes(self, n_labels: int, n_features: int) -> None:
        """Refuse restored weights that belong to other labels or features than the model has."""
        require(n_labels == self.targets_.n_labels, f"weights of {n_labels} labels, not {self.targets_.n_labels}")
        require(n_features == self.n_features_in_, f"weights of {n_features} features, not {self.n_features_in_}")

    def cost_on(self, X: Any) -> dict[str, float]:
        """Mean work per row on these rows: candidates, vector products and the three speed-ups over scoring all labels."""
        n_labels = float(self.targets_.n_labels)
        return {
            "candidates": n_labels,
            "products": n_labels,
            "speedup_paper": 1.0,
            "speedup": 1.0,
            "speedup_flops": 1.0,
        }

    # ---- what users call ----
    def fit(self, X: Any, y: Any, *, max_memory_gb: float | None = None) -> Self:
        """Learn from X (n x d, sparse or dense) and y: a 0-1 matrix, lists of labels, or one class per row.

        A sparse matrix, a 2-d array or a DataFrame is a 0-1 matrix; a list (or Series) of lists or sets holds the labels
        of each row, as text or whole numbers; a list, Series or 1-d array of text or numbers holds one class per row.
        A plain list of equally long lists of 0 and 1 is refused where it may be either of the first two. A training that
        would take more memory than ``max_memory_gb`` is refused before it begins.
        """
        X, Y = self._training_data(X, y, max_memory_gb)
        self._fit(X, Y, reporter_for(self.verbose))
        return self

    def _training_data(self, X: Any, Y: Any, max_memory_gb: float | None) -> tuple[sparse.csr_array, sparse.csr_array]:
        """X and Y as kernels want them, checked; what they say about labels is remembered."""
        check_random_state(self.random_state)
        X = self._checked(X, reset=True)
        check_not_lost(X)
        targets, Y01 = Targets.encode(Y)
        if X.shape[0] != Y01.shape[0]:
            raise BlockXMCError(f"X has {X.shape[0]} rows but Y has {Y01.shape[0]}: the numbers of samples must agree")
        check_training_memory(X, Y01)
        check_memory_limit(X, Y01, max_memory_gb, threads=self._threads)
        self.__dict__.pop("sources_", None)  # of another fit
        self.targets_ = targets
        self.classes_ = np.arange(targets.n_labels) if targets.names is None else targets.names
        self.label_counts_ = np.bincount(Y01.indices, minlength=targets.n_labels).astype(np.int64)
        self.n_train_rows_ = int(X.shape[0])
        return X, Y01

    @cached_property
    def classes_(self) -> NDArray[Any]:
        """What a label id stands for; ``fit`` sets it, a loaded model makes it (and decodes names) when asked."""
        return np.arange(self.targets_.n_labels) if self.targets_.names is None else self.targets_.names

    @property
    def label_names_(self) -> NDArray[Any] | None:
        """Names of the labels by id, or None where labels are numbers."""
        check_is_fitted(self)
        return self.targets_.names

    @of_one_version
    def predict_topk(self, X: Any, k: int = 5, allow: Any = None, deny: Any = None) -> TopK:
        """Labels (int64, n x k) and scores (float32): best first, ties to the lower id, padded with -1 / -inf.

        ``allow`` and ``deny`` (ids, names or a mask of labels) say which labels may be answered. The answer is the exact
        top k of the allowed candidates, with the scores that they have among all. A mask is the fastest form.
        """
        X = self._validated(X)
        check_k(k, X.shape[0])
        if self.targets_.n_labels == 0:
            return np.full((X.shape[0], k), -1, np.int64), np.full((X.shape[0], k), -np.inf, np.float32)
        allowed = allowed_labels(self.targets_, allow, deny)
        labels, scores = self._topk(X, min(k, self.targets_.n_labels), allowed)
        if labels.shape[1] < k:
            pad = ((0, 0), (0, k - labels.shape[1]))
            labels = np.pad(labels, pad, constant_values=-1)
            scores = np.pad(scores, pad, constant_values=-np.inf)
        return labels, scores

    @of_one_version
    def predict(self, X: Any) -> Any:
        """The label set of each row, in the form Y had in ``fit``; with one class per row, the best class."""
        X = self._validated(X)
        if self.targets_.kind == "classes":
            best = self._topk(X, 1)[0][:, 0]
            # A row without any candidate gets the most frequent class.
            return self.classes_[np.where(best < 0, int(self.label_counts_.argmax()), best)]
        return self.targets_.decode(self._label_sets(X))

    def _likeliest(self, X: sparse.csr_array, k: int) -> TopK:
        """The labels among which a threshold cuts, with the scores that it is compared with."""
        return self._topk(X, k)

    def _least(self, scores: NDArray[np.float32], *, ranked: bool = True) -> Any:
        """What scores must exceed in rows that have these, best first if ``ranked``: a number, or one per row (n x 1)."""
        return self._threshold

    def _label_sets(self, X: sparse.csr_array) -> sparse.csr_array:
        """The labels of each row as a 0-1 matrix: those whose scores exceed the threshold."""
        shape = (X.shape[0], self.targets_.n_labels)
        found = [(np.zeros(0, np.intp), np.zeros(0, np.int64))]
        rows, k = np.arange(X.shape[0]), min(FEW_LABELS, shape[1])
        while rows.size and k:
            labels, scores = self._likeliest(X if rows.size == X.shape[0] else take_rows(X, rows), k)
            keep = (labels >= 0) & (scores > self._least(scores))
            done = ~keep[:, -1] if k < shape[1] else np.ones(rows.size, bool)
            at, _ = np.nonzero(keep & done[:, None])
            found.append((rows[at], labels[keep & done[:, None]]))
            rows, k = rows[~done], min(FEW_LABELS * k, shape[1])
        which, chosen = (np.concatenate(part) for part in zip(*found, strict=True))
        return sparse.csr_array((np.ones(which.size, np.float32), (which, chosen)), shape=shape)

    @of_one_version
    def decision_function(self, X: Any) -> Any:
        """Scores of the candidates: those of ``predict_topk`` as CSR when Y was sparse or names (absent: not scored).

        When Y was dense or one class per row: dense, positive where ``predict`` says yes, and ``NOT_SCORED`` (-1e30) for
        labels that are no candidates, as scikit-learn's ranking scorers want it.
        """
        scores = self._scores(self._validated(X))
        if self.targets_.kind not in ("dense", "classes"):
            return sparse.csr_matrix(scores) if self.targets_.kind == "csr_matrix" else scores
        dense = dense_scores(scores, absent=-np.inf)
        # Of classes the best is predicted: they need no threshold of the row, whose rounding could make two of them equal.
        least = self._least(dense, ranked=False) if self.targets_.kind == "dense" else np.float32(self._threshold)
        dense = np.maximum(dense - least, NOT_SCORED, dtype=np.float32)
        return dense[:, 1] - dense[:, 0] if self.targets_.kind == "classes" and dense.shape[1] == 2 else dense

    @of_one_version
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Precision at 1 (for one class per row: accuracy).

        scikit-learn's own score of several labels is the share of rows whose whole label set is right; with thousands of
        labels it is near 0 for every model. ``scoring="accuracy"`` gives it.
        """
        best = self.predict_topk(X, 1)[0][:, 0]
        Y01, _ = self.targets_.encode_more(y)
        if Y01.shape[0] != best.size:
            raise BlockXMCError(f"X has {best.size} rows but y has {Y01.shape[0]}: the numbers of samples must agree")
        rows = np.arange(best.size)
        hit = np.asarray(Y01[rows, np.maximum(best, 0)]).ravel() * (best >= 0)
        return float(np.average(hit, weights=sample_weight))

    @of_one_version
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a directory (manifest + arrays, no pickle); see :func:`blockxmc.load`."""
        check_is_fitted(self)
        saving.save(self._savable(), path)

    def _savable(self) -> Self:
        """This estimator; with a random number generator as ``random_state``, which is no data, a copy without it."""
        if isinstance(getattr(self, "random_state", None), (int, np.integer, type(None))):
            return self
        bare = copy.copy(self)
        bare.random_state = None
        return bare

    # ---- shared inner workings ----
    def _topk_of_scores(self, X: sparse.csr_array, k: int, allowed: Mask) -> TopK:
        """``_topk`` of an estimator without a faster way: the best allowed of all scores."""
        found = [best_allowed(self._scores(some), k, allowed) for some in row_parts(X)]
        return np.concatenate([labels for labels, _ in found]), np.concatenate([scores for _, scores in found])

    def _one_among(self, indices: ArrayLike, values: ArrayLike, k: int, allow: Any, deny: Any) -> TopK:
        """``predict_one`` among some labels, of an estimator without a faster way."""
        row = np.asarray(values, np.float32), np.asarray(indices, np.int32), np.array([0, np.size(indices)])
        labels, scores = self.predict_topk(sparse.csr_array(row, shape=(1, self.n_features_in_)), k, allow, deny)
        return labels[0], scores[0]

    @property
    def _threads(self) -> int:
        return thread_count(self.n_jobs)

    def _validated(self, X: Any) -> sparse.csr_array:
        if "targets_" in vars(self) and not hasattr(self, "feature_names_in_") and is_ready(X, self.n_features_in_):
            ready: sparse.csr_array = X  # checked like scikit-learn, ten times faster: this counts for single rows
            return ready
        check_is_fitted(self)
        return self._checked(X, reset=False)

    def _checked(self, X: Any, *, reset: bool) -> sparse.csr_array:
        """X as scikit-learn and the kernels want it, or one clear line."""
        if reset and isinstance(X, sparse.csr_array) and X.ndim == 2 and X.shape[1] and is_ready(X, X.shape[1]):
            # What scikit-learn would say of it, which takes longer to find out that it is no data frame.
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            self.n_features_in_ = int(X.shape[1])
            return as_csr(X)
        try:
            with np.errstate(over="ignore"):  # a 64-bit value that no 32-bit float holds is found as infinite below
                checked = as_csr(validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=reset))
        except ValueError as error:
            raise BlockXMCError(" ".join(str(error).split())) from error
        check_values(checked)
        return checked

    def __sklearn_tags__(self) -> Tags:
        """Sparse input, several outputs, several labels per row."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        return tags
