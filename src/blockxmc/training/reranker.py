"""Fits the reranker on held-out rows, so that right labels come before wrong ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from blockxmc import _kernels
from blockxmc.model.reranker import N_TERMS, PRODUCTS, Reranker
from blockxmc.training.settings import NEWTON_TOLERANCE, Settings

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


def fit_reranker(
    terms: F32, scores: F32, right: NDArray[np.bool_], log_positives: F32, settings: Settings, threads: int
) -> Reranker | None:
    """What puts the labels of these rows in the best order; None where there are too few rows to tell.

    ``terms`` (rows x candidates x N_TERMS) make up the ``scores`` (rows x candidates, -inf where there is none), and
    ``right`` says which candidates are labels of the row.
    """
    best = np.argsort(-scores, axis=1, kind="stable")[:, : settings.reranked]
    scores, right = np.take_along_axis(scores, best, 1), np.take_along_axis(right, best, 1)
    seen = np.take_along_axis(terms, best[..., None], 1).astype(np.float64)
    there = scores > -np.inf
    telling = telling_rows(right, there)
    if telling.sum() < settings.reranker_least_rows:
        return None
    seen, scores, right, there = seen[telling], scores[telling], right[telling], there[telling]
    outermost = settings.reranker_outermost
    low, high = np.quantile(seen[there], [outermost, 1 - outermost], axis=0)
    seen = np.clip(seen, low, high)
    centre, spread = seen[there].mean(axis=0), spread_of(seen[there])
    unit = (seen - centre) / spread
    products = unit[..., PRODUCTS[0]] * unit[..., PRODUCTS[1]]
    of_products = spread_of(products[there])
    features = np.concatenate([unit, products / of_products, scores[..., None]], axis=-1)
    weights = order_of(np.where(there[..., None], features, 0.0), right, there, settings, threads)
    linear, squares = np.split(weights[:-1] / weights[-1], [N_TERMS])
    # In the terms as they come, not centred and scaled.
    linear, squares = linear / spread, squares / of_products / (spread[PRODUCTS[0]] * spread[PRODUCTS[1]])
    np.subtract.at(linear, PRODUCTS[0], squares * centre[PRODUCTS[1]])
    np.subtract.at(linear, PRODUCTS[1], squares * centre[PRODUCTS[0]])
    curve = np.concatenate([low, high, linear, squares]).astype(np.float32)
    return Reranker(curve, log_positives, settings.reranked)


def telling_rows(right: NDArray[np.bool_], there: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Rows that have both a right and a wrong candidate."""
    return np.asarray((right & there).any(axis=1) & (~right & there).any(axis=1))


def spread_of(values: F64) -> F64:
    """Standard deviation of each column, 1 for one that does not vary."""
    spread = values.std(axis=0)
    return np.where(spread > 0, spread, 1.0)


def order_of(
    features: F64, right: NDArray[np.bool_], there: NDArray[np.bool_], settings: Settings, threads: int
) -> F64:
    """Weights of the features, the last of which is the score so far, that put right candidates before wrong ones.

    Each right candidate of a row competes with all its wrong ones: ``log(1 + sum of exp(wrong - right))``, and a row with
    n right ones counts by the root of n.
    """
    n_features = features.shape[-1]
    usual, lower = np.zeros(n_features), np.full(n_features, -np.inf)
    usual[-1], lower[-1] = settings.reranker_score_weight, 1.0
    side = np.where(there, np.where(right, 1, -1), 0).astype(np.int8)
    how = settings.reranker_pull, NEWTON_TOLERANCE, threads
    return _kernels.order_weights(features.reshape(-1, n_features), side, usual, lower, *how)
