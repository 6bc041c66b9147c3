"""Any scikit-learn classifier as a base: one copy of it per label.

Linear ones (those with ``coef_``) become arrays like our own learners; others are kept as they are and cannot be
saved, because that would need a pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, clone, is_classifier

from blockxmc._core.params import as_seed
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Context, Learner
from blockxmc.linear.weights import F32, I32, Ids, LinearWeights, Weights


class OneVsRest(Learner):
    """Wraps a scikit-learn classifier so that it can be the base of any system of the library.

    Bases are wrapped on their own where they are used: ``BlockwiseClassifier(base=LogisticRegression())``.

    >>> from sklearn.linear_model import LogisticRegression
    >>> clf = OneVsRest(LogisticRegression()).fit([[0.0, 1], [1, 0], [1, 1]], [[1, 0], [0, 1], [1, 1]])
    >>> clf.predict_topk([[0.0, 2]], k=1)[0].tolist()
    [[0]]
    """

    one_vs_all = True

    def __init__(
        self, estimator: Any = None, n_jobs: int | None = None, random_state: int | None = 0, verbose: int = 0
    ) -> None:
        self.estimator = estimator
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_params(self) -> None:
        if not isinstance(self.estimator, BaseEstimator) or not is_classifier(self.estimator):
            raise BlockXMCError(f"base must be a classifier of blockxmc or scikit-learn, got {self.estimator!r}")

    def _train(
        self, X: sparse.csr_array, Y: sparse.csr_array, job: Context, rows: sparse.csr_array | None = None
    ) -> Weights:
        by_label = sparse.csc_array(Y)
        models: list[Any] = []
        for j in range(Y.shape[1]):
            target = np.zeros(X.shape[0], dtype=np.int64)
            target[by_label.indices[by_label.indptr[j] : by_label.indptr[j + 1]]] = 1
            used = slice(None) if rows is None else rows.indices[rows.indptr[j] : rows.indptr[j + 1]]
            models.append(self._train_label(X if rows is None else X[used], target[used], job.seed))
            job.phase.update(j + 1)
        if all(isinstance(model, _Constant) or hasattr(model, "coef_") for model in models):
            return _as_linear(models, X.shape[1])
        return OpaqueWeights(tuple(models))

    def _train_label(self, X: sparse.csr_array, target: NDArray[np.int64], seed: int) -> Any:
        if target.size == 0 or target.min() == target.max():
            return _Constant(1.0 if target.size and target[0] else -1.0)
        model = clone(self.estimator)
        if "random_state" in model.get_params() and model.get_params()["random_state"] is None:
            model.set_params(random_state=seed)
        return model.fit(X, target)


@dataclass(frozen=True)
class _Constant:
    """The score of a label that every training row has, or none."""

    value: float


def constants(values: F32) -> list[_Constant]:
    """Models that always answer these values."""
    return [_Constant(float(value)) for value in values]


@dataclass(frozen=True)
class OpaqueWeights:
    """Fitted scikit-learn models that are not linear: they score, but cannot be written as arrays."""

    models: tuple[Any, ...]
    features: I32 | None = None

    @property
    def n_labels(self) -> int:
        """Number of labels scored."""
        return len(self.models)

    def scores(self, X: sparse.csr_array) -> F32:
        """Dense scores, rows x labels: margins, or probabilities minus one half."""
        seen = X if self.features is None else X[:, self.features]
        out = np.empty((X.shape[0], len(self.models)), dtype=np.float32)
        for j, model in enumerate(self.models):
            if isinstance(model, _Constant):
                out[:, j] = model.value
            elif hasattr(model, "decision_function"):
                out[:, j] = model.decision_function(seen)
            elif hasattr(model, "predict_proba"):
                out[:, j] = model.predict_proba(seen)[:, 1] - 0.5
            else:
                out[:, j] = model.predict(seen) - 0.5
        return out

    def on_features(self, features: I32) -> OpaqueWeights:
        """The same weights, trained on these columns of X only, as weights on all columns."""
        return replace(self, features=features if self.features is None else features[self.features])

    def split(self, label_sets: Iterable[Ids]) -> Iterator[OpaqueWeights]:
        """The models of each label set."""
        for labels in label_sets:
            yield OpaqueWeights(tuple(self.models[int(j)] for j in labels), self.features)


def _as_linear(models: list[Any], n_features: int) -> LinearWeights:
    columns = np.zeros((n_features, len(models)), dtype=np.float32)
    bias = np.zeros(len(models), dtype=np.float32)
    for j, model in enumerate(models):
        if isinstance(model, _Constant):
            bias[j] = model.value
        else:
            columns[:, j] = np.ravel(model.coef_.toarray() if hasattr(model.coef_, "toarray") else model.coef_)
            bias[j] = np.ravel(model.intercept_)[0]
    return LinearWeights(sparse.csr_array(columns), bias)


def as_learner(base: Any, default: Callable[[], Learner]) -> Learner:
    """A fresh, unfitted learner for what the user gave as ``base`` (None: the default)."""
    if base is None:
        return default()
    if isinstance(base, type):
        raise BlockXMCError(f"base must be an estimator, not a class: write {base.__name__}()")
    learner = clone(base) if isinstance(base, BaseEstimator) else base
    if not isinstance(learner, Learner):
        return OneVsRest(learner)
    if not isinstance(getattr(learner, "random_state", 0), Integral):
        learner.set_params(random_state=as_seed(learner.random_state))  # drawn once, not once per block
    return learner
