"""How far block probabilities should speak in a label's score, and what a score means: both fitted on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from blockxmc import metrics
from blockxmc._matrix import take_rows
from blockxmc.blocks import Blocks
from blockxmc.routing import Router
from blockxmc.scoring import PackedScorer, Scorer

SLOPES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
# A difference in mean P@k (0..1) is taken for chance below this over the root of the number of rows.
NOISE = 0.05
# Where nothing is held out: margins count alone, and a margin of 0 means even odds.
UNFITTED = (0.0, (2.0, 0.0))
# Scored candidates that a curve with two parameters needs at most.
CALIBRATION_PAIRS = 500_000


@dataclass(frozen=True)
class Merging:
    """How many blocks a row visits, how much their probabilities count, and the curve from scores to probabilities."""

    route: int
    slope: float
    calibration: tuple[float, float]


def fit_merging(
    router: Router, scorer: Scorer, routes: Sequence[int], X: sparse.csr_array, Y: sparse.csr_array, threads: int
) -> Merging:
    """What ranks the labels of these rows best; a longer route has to pay for itself.

    The rows must be new to router and scorer.
    """
    chosen, best = Blocks(router, scorer, routes[0]), -np.inf
    for route in routes:
        model = Blocks(router, scorer, route, _slope(router, scorer, route, X, Y, threads))
        found = _quality(model, X, Y, threads)
        if found > best + NOISE / np.sqrt(X.shape[0]):
            chosen, best = model, found
    candidates = chosen.cost(take_rows(X, np.arange(min(64, X.shape[0]))), threads)["candidates"]
    some = np.arange(min(X.shape[0], 1 + int(CALIBRATION_PAIRS / max(candidates, 1))))
    calibration = _calibrate(chosen.scores(take_rows(X, some), threads), take_rows(Y, some))
    return Merging(chosen.route, chosen.slope, calibration)


def _slope(router: Router, scorer: Scorer, route: int, X: sparse.csr_array, Y: sparse.csr_array, threads: int) -> float:
    """A mean of the slopes tried, in which those that rank nearly as well as the best count nearly as much.

    A thousand rows tell two neighbouring slopes apart by chance as often as by merit; the mean is steadier than the best.
    """
    if not isinstance(scorer, PackedScorer) or router.scorer is None:
        return 0.0
    quality = np.array([_quality(Blocks(router, scorer, route, slope), X, Y, threads) for slope in SLOPES])
    votes = np.exp((quality - quality.max()) * np.sqrt(X.shape[0]) / NOISE)
    slope = float(votes @ np.array(SLOPES) / votes.sum())
    return slope if slope >= SLOPES[1] / 2 else 0.0


def _quality(model: Blocks, X: sparse.csr_array, Y: sparse.csr_array, threads: int) -> float:
    labels, _ = model.topk(X, 5, threads)
    return float(np.mean([metrics.precision_at_k(Y, labels, k) for k in (1, 3, 5)]))


def _calibrate(scores: sparse.csr_array, Y: sparse.csr_array) -> tuple[float, float]:
    """Scale and shift of the logistic curve from a candidate's score to the chance that it is right."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(scores.indptr))
    right = np.asarray(Y[rows, scores.indices]).ravel() > 0
    # Scores of labels that no visited block lists lie far below all others and say nothing about the curve.
    near = scores.data > np.median(scores.data) - 20 if scores.nnz else np.zeros(0, bool)
    if right[near].all() or not right[near].any():
        return UNFITTED[1]
    curve = LogisticRegression(C=1e6).fit(scores.data[near, None].astype(np.float64), right[near])
    return float(max(curve.coef_[0, 0], 1e-3)), float(curve.intercept_[0])
