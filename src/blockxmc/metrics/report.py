"""One row of numbers about a fitted model on a test set: what every table of the project is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blockxmc import metrics
from blockxmc.metrics.timing import prediction_times

if TYPE_CHECKING:
    from blockxmc._core.base import XMCEstimator
    from blockxmc.data import Dataset

COUNTS = ("candidates", "products", "speedup_paper", "speedup", "speedup_flops")


def measure(
    model: XMCEstimator, test: Dataset, *, a: float = 0.55, b: float = 1.5, time: bool = True
) -> dict[str, Any]:
    """P, nDCG, R, PSP and PSnDCG at 1, 3, 5 in points, cost as the test rows are routed, and microseconds per row.

    >>> from blockxmc import DiSMEC
    >>> from blockxmc.data import make_synthetic
    >>> train, test = make_synthetic(n_train=60, n_test=10, n_features=40, n_labels=6, nnz_per_row=8)
    >>> measure(DiSMEC().fit(train.X, train.Y), test)["products"]
    6.0
    """
    labels, _ = model.predict_topk(test.X, 5)
    weights = metrics.inverse_propensity_from_counts(model.label_counts_, model.n_train_rows_, a, b)
    result: dict[str, Any] = {"rows": test.X.shape[0], "labels": test.Y.shape[1]}
    result |= metrics.evaluate(test.Y, labels, inverse_propensity=weights, percent=True)
    result |= model.cost_on(test.X) | {"propensity_a": a, "propensity_b": b}
    if getattr(test, "unseen_labels", 0):
        result["unseen_label_occurrences"] = test.unseen_labels
    if time:
        result |= prediction_times(model, test.X)
    return result
