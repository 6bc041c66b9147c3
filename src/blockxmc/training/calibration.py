"""Fits what a score means, and where a label set is cut, on rows that the model has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blockxmc import _kernels
from blockxmc.linear.weights import F32
from blockxmc.model.calibration import (
    N_FALLS,
    N_SLOPES,
    Calibration,
    curve_features,
    of_others,
    sums_of_first,
    thresholds_of_sums,
)
from blockxmc.training.settings import NEWTON_TOLERANCE

Mask = NDArray[np.bool_]
F64 = NDArray[np.float64]

# Where nothing is held out, a margin of 0 means even odds.
UNCALIBRATED = Calibration.of_score(scale=2.0)
# From this rank on labels count a tenth: there are many of them, and what rows differ in counts most among the first.
LATER, LATER_COUNT = 10, 0.1
# Weight of the squares of the slopes, where features have unit spread: it only matters where rows say nothing.
SHRINKAGE = 1e-7
# The curve rises with the score at least so much: where it were flat, labels in order would become equal.
LEAST_SLOPE = 0.05
# What the eighth label counts, at most: where rows ask for more, it hardly differs between them and tells nothing.
MOST_OTHERS = 2.0
# What is tried for the number of labels that a row is taken to have, where its label set is cut.
SIZES = tuple(2.0 ** (step / 2) for step in range(-4, 13))


@dataclass(frozen=True)
class Cut:
    """Where the labels of a row are cut for the best mean F1 per row: at a probability, or after so many labels.

    Best is a threshold for each row, by ``f1_thresholds`` and the ``size`` that does best.
    """

    threshold: float = 0.5
    n_labels: int = 1
    f1: float = 0.0  # the mean F1 of held-out rows that are cut at the threshold
    size: float = 1.0
    f1_by_size: float = 0.0  # ... and of those that are cut by size


def fit_calibration(scores: F32, right: Mask, *, threads: int) -> Calibration:
    """The curve from the score and the rank of a label to the chance that it is right, for new rows.

    ``scores`` are those of the best labels of each row, best first (-inf: none). The curve rises with the score and falls
    with the rank, so that labels stay in order.
    """
    listed = scores > _kernels.UNLISTED / 2
    right = right & listed
    if not right.any() or not (listed & ~right).any():
        return UNCALIBRATED
    rows, columns = np.nonzero(listed)
    targets = right[rows, columns]
    features = curve_features(scores[rows, columns], of_others(scores)[rows], columns + 1)
    counts = np.where(columns < LATER, 1.0, LATER_COUNT)
    found = _fit_curve(features, targets, counts, threads)
    if abs(found.others) <= MOST_OTHERS:
        return found
    features[:, -1] = 0.0
    return _fit_curve(features, targets, counts, threads)


def _fit_curve(features: F64, targets: Mask, counts: F64, threads: int) -> Calibration:
    """The curve through these features (of ``curve_features``) that gives the targets their likeliest chances."""
    spread = features.std(axis=0)
    if spread[-1] == 0:  # what is the same for all rows is the shift's part
        features[:, -1] = 0.0
    spread[spread == 0] = 1.0
    start = np.array([-2.0] + [1.0] * N_SLOPES + [0.0] * (N_FALLS + 1))
    least = LEAST_SLOPE * spread * (np.arange(spread.size) < N_SLOPES)
    least[-1] = -np.inf  # what others say may count either way
    lower = np.concatenate([[-np.inf], least])
    how = SHRINKAGE, NEWTON_TOLERANCE, threads
    found = _kernels.logistic_weights(
        features / spread, targets.view(np.uint8), counts / counts.sum(), start, lower, *how
    )
    shift, *rest = found.tolist()
    weights = (np.array(rest) / spread).tolist()
    return Calibration(shift, tuple(weights[:N_SLOPES]), tuple(weights[N_SLOPES:-1]), weights[-1])


def best_cut(probabilities: F64, right: Mask, n_true: NDArray[np.integer], *, keep_first: bool = True) -> Cut:
    """Where the mean F1 of these rows is best, if all keep their first label or not; rows without labels are left out.

    ``probabilities`` of the best labels of each row come best first; ``n_true`` counts all labels of each row.

    >>> best_cut(np.array([[0.9, 0.2], [0.6, 0.1]]), np.array([[True, False], [True, False]]), np.array([1, 1]))
    Cut(threshold=0.6, n_labels=1, f1=1.0, size=0.25, f1_by_size=1.0)
    """
    some = n_true > 0
    if not some.any() or not right[some].any():
        return Cut()
    p, hits, n_true = probabilities[some].copy(), np.cumsum(right[some], axis=1), n_true[some, None]
    if keep_first:
        p[:, 0] = 1.0
    n_given = np.arange(1, p.shape[1] + 1)
    f1 = np.column_stack([np.zeros(p.shape[0]), 2 * hits / (n_given + n_true)])  # after no label, one, two, ...
    # From high to low, every probability is a threshold: each adds what its row gains by one more label.
    order = np.argsort(-p.ravel(), kind="stable")
    reached = np.cumsum(np.diff(f1, axis=1).ravel()[order])
    values = p.ravel()[order]
    last = np.append(values[1:] < values[:-1], True)  # of equal probabilities all are taken
    at = int(np.flatnonzero(last)[np.argmax(reached[last])])
    # Half-way to the next probability: new rows fall on either side of it.
    below = values[at + 1] if at + 1 < values.size else 0.0
    threshold = float(f"{(values[at] + below) / 2:.6g}")
    given, sums = probabilities[some], sums_of_first(probabilities[some])
    by_size = [_mean_f1(given, thresholds_of_sums(sums, size), f1) for size in SIZES]
    best = int(np.argmax(by_size))
    n_labels = int(f1[:, 1:].mean(axis=0).argmax()) + 1
    return Cut(threshold, n_labels, float(reached[at] / p.shape[0]), SIZES[best], by_size[best])


def _mean_f1(probabilities: F64, thresholds: F64, f1: F64) -> float:
    """Of rows that are cut at their thresholds; ``f1`` is theirs after no label, one, two, ..."""
    n_given = np.maximum((probabilities > thresholds).sum(axis=1), 1)
    return float(np.take_along_axis(f1, n_given[:, None], axis=1).mean())
