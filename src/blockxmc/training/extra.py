"""How much extra columns count beside words: a small trial on held-out rows says."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc._core.matrix import take_rows
from blockxmc._core.progress import Reporter
from blockxmc.data.extra import beside, large_values
from blockxmc.linear.one_vs_all import OneVsAll, train_one_vs_all, typical_length
from blockxmc.linear.weights import F32
from blockxmc.metrics.ranking import Ranking
from blockxmc.training.labels import shared_costs
from blockxmc.training.mix import clearly_better
from blockxmc.training.settings import SETTINGS, Settings


def best_extra_weight(
    words: sparse.csr_array,
    columns: F32,
    Y: sparse.csr_array,
    *,
    seed: int = 0,
    threads: int = 1,
    settings: Settings = SETTINGS,
) -> float:
    """The weight of columns of unit length that ranks the labels of held-out rows best; 0 unless one is clearly better.

    One-vs-all classifiers of the most frequent labels learn from some rows and rank these labels for others. With too few
    rows to tell, it is the smallest weight.
    """
    most = max(settings.extra_rows, Y.shape[0] // settings.extra_one_in)
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(np.diff(Y.indptr)))[:most]
    if rows.size < settings.least_rows:
        return min(settings.extra_weights)
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    labels = np.argsort(-counts, kind="stable")[: settings.extra_labels]
    held_out = min(rows.size // 5, settings.held_out_most)
    targets = sparse.csr_array(take_rows(Y, rows)[:, labels])
    own_words, own_columns = take_rows(words, rows), large_values(columns[rows])

    def hits(weight: float) -> NDArray[np.float64]:
        X = beside(own_words, own_columns * np.float32(weight)) if weight else own_words
        return _hits(X, targets, held_out, threads, settings)

    usual, found = hits(0.0), {weight: hits(weight) for weight in settings.extra_weights}
    best = max(found, key=lambda weight: found[weight].mean())
    return best if clearly_better(found[best], usual, settings) else 0.0


def _hits(
    X: sparse.csr_array, Y: sparse.csr_array, held_out: int, threads: int, settings: Settings
) -> NDArray[np.float64]:
    """P@1, P@3 and P@5 of the first rows by classifiers that have learnt from all others."""
    learn = np.arange(held_out, X.shape[0])
    length = typical_length(X)
    problem = OneVsAll("squared_hinge", C=0.5 / length**2, tol=0.05, bias=length, prune=0.0)
    costs = shared_costs(take_rows(Y, learn), settings.shared_positive)
    with Reporter().phase("") as silent:
        options = {"threads": threads, "phase": silent, "costs": costs}
        weights = train_one_vs_all(problem, take_rows(X, learn), take_rows(Y, learn), **options)  # type: ignore[arg-type]
    judges = np.arange(held_out)
    scores = np.asarray((take_rows(X, judges) @ weights.coef).toarray()) + weights.bias
    best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    right = Ranking.of(take_rows(Y, judges), best, best.shape[1]).hits
    return np.stack([right[:, :k].sum(axis=1) / k for k in (1, 3, 5)], axis=1)
