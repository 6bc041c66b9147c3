"""One row of numbers about a fitted model on a test set: what every table of the project is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blockxmc import metrics
from blockxmc.metrics.ranking import Ranking
from blockxmc.metrics.sets import LabelSets
from blockxmc.metrics.timing import prediction_times

if TYPE_CHECKING:
    from blockxmc._core.base import XMCEstimator
    from blockxmc.data import Dataset

# Suggestions of a row whose probabilities are judged: as many as are made where nothing else is said.
SUGGESTED = 5
COUNTS = ("candidates", "products", "speedup_paper", "speedup", "speedup_flops")


def measure(
    model: XMCEstimator,
    test: Dataset,
    *,
    ks: Sequence[int] = (1, 3, 5),
    a: float = 0.55,
    b: float = 1.5,
    time: bool = True,
) -> dict[str, Any]:
    """P, nDCG, R, F1, PSP and PSnDCG at ``ks`` and F1 of label sets in points, what probabilities are worth (as fractions),
    cost as the test rows are routed, and microseconds per row.

    >>> from blockxmc import DiSMEC
    >>> from blockxmc.data import make_synthetic
    >>> train, test = make_synthetic(n_train=60, n_test=10, n_features=40, n_labels=6, nnz_per_row=8)
    >>> measure(DiSMEC().fit(train.X, train.Y), test)["products"]
    6.0
    """
    labels = scored_labels(model, test, max(ks))
    weights = metrics.inverse_propensity_from_counts(model.label_counts_, model.n_train_rows_, a, b)
    result: dict[str, Any] = {"rows": test.X.shape[0], "labels": test.Y.shape[1]}
    result |= metrics.evaluate(test.Y, labels, ks, inverse_propensity=weights, percent=True)
    result |= measure_sets(model, test)
    result |= model.cost_on(test.X) | {"propensity_a": a, "propensity_b": b}
    if getattr(test, "unseen_labels", 0):
        result["unseen_label_occurrences"] = test.unseen_labels
    if time:
        result |= prediction_times(model, test.X)
    return result


def scored_labels(model: XMCEstimator, test: Dataset, k: int) -> NDArray[np.int64]:
    """The first k labels of each row, without those that the data leave out of scoring."""
    if test.left_out is None:
        return model.predict_topk(test.X, k)[0]
    most = int(np.diff(test.left_out.indptr).max(initial=0))
    labels, _ = model.predict_topk(test.X, min(k + most, test.n_labels))
    keys = np.arange(test.n_rows)[:, None] * np.int64(test.n_labels) + labels
    rows = np.repeat(np.arange(test.n_rows), np.diff(test.left_out.indptr))
    gone = rows * np.int64(test.n_labels) + test.left_out.indices
    dropped = np.isin(keys, gone) & (labels >= 0)
    order = np.argsort(dropped, axis=1, kind="stable")
    return np.where(np.take_along_axis(dropped, order, axis=1), -1, np.take_along_axis(labels, order, axis=1))[:, :k]


def measure_sets(model: XMCEstimator, test: Dataset) -> dict[str, float]:
    """F1 of label sets in points, and for models with probabilities their calibration error and what they add up to."""
    chosen = model._label_sets(model._validated(test.X))
    sets = LabelSets.of(test.Y, chosen)
    result = {
        "F1": 100 * sets.f1_samples(),
        "F1_micro": 100 * sets.f1_micro(),
        "F1_macro": 100 * sets.f1_macro(),
        "labels_per_row": test.Y.nnz / max(test.Y.shape[0], 1),
        "predicted_per_row": chosen.nnz / max(test.Y.shape[0], 1),
    }
    answers = suggestions(model, test)
    if answers is not None:
        right, p = answers
        result["calibration_error"] = metrics.calibration_error(right, p)
        result["probabilities_per_hit"] = float(p.sum() / max(right.sum(), 1))
    return result


def suggestions(
    model: XMCEstimator, test: Dataset, k: int = SUGGESTED
) -> tuple[NDArray[np.bool_], NDArray[np.float32]] | None:
    """Whether the first k suggestions of each row are right, and their probabilities; None where scores are margins."""
    if getattr(getattr(model, "model_", None), "calibration", None) is None:
        return None
    # By probability, whatever answers are ranked by.
    labels, scores = model._likeliest(model._validated(test.X), min(k, test.Y.shape[1]))
    there = labels >= 0
    return Ranking.of(test.Y, labels, labels.shape[1]).hits[there], scores[there]
