"""How far block probabilities should speak in a label's score, and what a score means: both fitted on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from blockxmc import metrics
from blockxmc._matrix import take_rows
from blockxmc.blocks import Blocks
from blockxmc.learners._learner import Learner
from blockxmc.progress import Reporter
from blockxmc.scoring import PackedScorer
from blockxmc.shared import I32, make_router, pack_shared, train_shared
from blockxmc.weights import Ids

SLOPES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
# With fewer rows nothing is held out: margins count alone, and a margin of 0 means even odds.
MIN_ROWS = 200
UNFITTED = (0.0, (2.0, 0.0))
# Rows that teach the labels of the trial model (a third of all rows, but at least this many), and rows held out.
TRIAL_ROWS = 4096
HELD_OUT_ROWS = 4096
# Scored candidates that a curve with two parameters needs at most.
CALIBRATION_PAIRS = 500_000


@dataclass(frozen=True)
class Merging:
    """The slope on block probabilities, the map from scores to probabilities, and what held-out rows say."""

    slope: float
    calibration: tuple[float, float]
    held_out: dict[str, float]


def fit_merging(
    learner: Learner,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    assignment: I32,
    label_clusters: Sequence[Ids],
    route: int,
    reporter: Reporter,
    *,
    threads: int,
    seed: int,
) -> Merging:
    """Train a trial model without some rows and see on them how to merge and what to expect."""
    n = X.shape[0]
    order = np.random.default_rng(seed).permutation(n)
    size = min(max(1, n // 5), HELD_OUT_ROWS)
    test, rest = np.sort(order[:size]), np.sort(order[size:])
    if rest.size == 0:
        test = rest = order
    router = make_router().fit(
        take_rows(X, rest), assignment[rest], n_blocks=len(label_clusters), threads=threads, reporter=reporter
    )
    held_out = _expectations(
        router.blocks(take_rows(X, test), route, threads=threads), Y, test, assignment, label_clusters
    )
    if n < MIN_ROWS:
        return Merging(*UNFITTED, held_out)
    trial = np.sort(order[size : size + max(n // 3, TRIAL_ROWS)])
    own_X, own_Y = take_rows(X, trial), take_rows(Y, trial)
    routed = router.blocks(own_X, route, threads=threads)
    options = {"threads": threads, "seed": seed}
    shared = train_shared(learner, own_X, own_Y, assignment[trial], routed, label_clusters, reporter, **options)
    scorer = pack_shared(shared.weights, label_clusters, n_features=X.shape[1], n_labels=Y.shape[1])
    slopes = SLOPES if isinstance(scorer, PackedScorer) and router.scorer is not None else SLOPES[:1]
    models = [Blocks(router, scorer, route, slope) for slope in slopes]
    quality = [_quality(model, take_rows(X, test), take_rows(Y, test), threads) for model in models]
    best = models[int(np.argmax(quality))]
    some = test[: 1 + int(CALIBRATION_PAIRS / max(best.cost(take_rows(X, test[:64]), threads)["candidates"], 1))]
    calibration = _calibrate(best.scores(take_rows(X, some), threads), take_rows(Y, some))
    return Merging(best.slope, calibration, held_out)


def _quality(model: Blocks, X: sparse.csr_array, Y: sparse.csr_array, threads: int) -> float:
    labels, _ = model.topk(X, 5, threads)
    return float(np.mean([metrics.precision_at_k(Y, labels, k) for k in (1, 3, 5)]))


def _expectations(
    visited: I32, Y: sparse.csr_array, rows: NDArray[np.intp], assignment: I32, label_clusters: Sequence[Ids]
) -> dict[str, float]:
    """Candidate recall and router accuracy on rows that the router has not seen."""
    candidates = (visited, list(label_clusters))
    return {
        "candidate_recall": metrics.candidate_recall(take_rows(Y, rows), candidates),
        "router_accuracy": float((visited[:, 0] == assignment[rows]).mean()),
    }


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
