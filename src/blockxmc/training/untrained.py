"""Labels that no training row has: how much less they count than labels with rows.

Held-out rows know: a label that they alone have is such a label to a model that has not seen them. Their names, and those
of all other labels without rows, compete for the held-out rows; what all of these gain or lose alike is set so that as many
of them are right as their calibrated probabilities say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import F32
from blockxmc.model.calibration import Calibration
from blockxmc.model.routed import RoutedModel
from blockxmc.routing import Router
from blockxmc.training.labels import pack_shared
from blockxmc.training.mix import Fitted
from blockxmc.training.names import Names

# Scores are lowered by so much at most: below, no label comes up.
LOWEST, STEPS = 8.0, 24


@dataclass(frozen=True)
class Trial:
    """A model that does not know the held-out rows, what labels are called, and what it learnt from."""

    model: RoutedModel
    router: Router
    weights: LabelVectors
    names: Names
    clusters: list[NDArray[np.int64]]
    shown: sparse.csr_array  # the labels of the rows that it has learnt from


def set_back(
    trial: Trial, fitted: Fitted, held_out: tuple[sparse.csr_array, sparse.csr_array], bits: int, threads: int
) -> Fitted:
    """What is fitted, and how much less labels without rows count."""
    X, Y = held_out
    positives = np.bincount(trial.shown.indices, minlength=Y.shape[1])
    names = replace(trial.names, positives=positives)
    listed = names.listed(trial.clusters, trial.router, threads)
    named = names.added(trial.weights, fitted.mix.name, threads)
    settings = names.settings
    scorer = pack_shared(named, listed, n_features=X.shape[1], bits=bits, threads=threads, settings=settings)
    model = replace(trial.model, scorer=scorer, slope=fitted.mix.slope, neighbors=None)
    labels, scores = model.topk(X, settings.candidates, threads)
    right = np.empty(labels.shape, bool)
    _kernels.right_labels(Y.indptr.astype(np.int64), Y.indices, Y.shape[1], labels, right.view(np.uint8), threads)
    untrained = (labels >= 0) & (positives[np.maximum(labels, 0)] == 0)
    shift = shift_of(scores, untrained, right, fitted.calibration)
    return replace(fitted, mix=replace(fitted.mix, untrained=shift))


def shift_of(scores: F32, untrained: NDArray[np.bool_], right: NDArray[np.bool_], calibration: Calibration) -> float:
    """What untrained labels must lose for as many to be right as their probabilities say; ``scores`` come best first.

    One more is taken to be right than is: of few rows, none says that no label ever is.
    """
    wanted, low, high = (right & untrained).sum() + 1, -LOWEST, 0.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        shifted = np.where(untrained, scores + np.float32(middle), scores)
        order = np.argsort(-shifted, axis=1, kind="stable")
        chances = calibration.probabilities(np.take_along_axis(shifted, order, 1))
        expected = chances[np.take_along_axis(untrained, order, 1)].sum()
        low, high = (middle, high) if expected < wanted else (low, middle)
    return float(low)
