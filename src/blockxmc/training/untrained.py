"""Labels that no training row has: how much less they count than labels with rows.

Held-out rows know: a label that they alone have is such a label to a model that has not seen them. Their names, and those
of all other labels without rows, compete for the held-out rows; what all of these gain or lose alike is set so that as many
of them are right as their calibrated probabilities say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blockxmc import _kernels
from blockxmc._core.matrix import pattern_args
from blockxmc.linear.vectors import LabelVectors
from blockxmc.linear.weights import F32
from blockxmc.model.calibration import Calibration
from blockxmc.model.routed import RoutedModel
from blockxmc.routing import Router
from blockxmc.training.labels import SharedWeights, pack_shared
from blockxmc.training.mix import Fitted
from blockxmc.training.names import Names
from blockxmc.training.settings import Settings

# Scores are lowered by so much at most: below, no label comes up.
LOWEST, STEPS = 8.0, 24


@dataclass(frozen=True)
class Untrained:
    """What it takes to set labels without rows back."""

    names: Names | None
    shown: sparse.csr_array  # labels of the rows that are not held out
    router: Router
    settings: Settings
    threads: int

    def set_back(
        self,
        fitted: Fitted,
        trial: RoutedModel,
        weights: SharedWeights,
        clusters: list[NDArray[np.int64]],
        held_out: tuple[sparse.csr_array, sparse.csr_array],
    ) -> Fitted:
        """What is fitted, and how much less labels without rows count, where there are such labels.

        ``clusters`` know nothing of the held-out rows.
        """
        names, mix = self.names, fitted.mix
        if names is None or not mix.name or names.positives.all() or not isinstance(weights, LabelVectors):
            return fitted
        (X, Y), threads = held_out, self.threads
        positives = np.bincount(self.shown.indices, minlength=Y.shape[1])
        names = replace(names, positives=positives)
        listed = names.listed(clusters, self.router, threads)
        how: Any = {"n_features": X.shape[1], "bits": 16, "threads": threads, "settings": self.settings}
        scorer = pack_shared(names.added(weights, mix.name, threads), listed, **how)
        model = replace(trial, scorer=scorer, slope=mix.slope, top_p=fitted.top_p, neighbors=None)
        labels, scores = model.topk(X, self.settings.judged, threads)
        right = np.empty(labels.shape, bool)
        _kernels.right_labels(*pattern_args(Y), Y.shape[1], labels, right.view(np.uint8), threads)
        untrained = (labels >= 0) & (positives[np.maximum(labels, 0)] == 0)
        shift = shift_of(scores, untrained, right, fitted.calibration)
        return replace(fitted, mix=replace(mix, untrained=shift))


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
