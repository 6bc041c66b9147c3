"""What a score means: the chance that a label is right, given its score and its rank in the row.

The same score means more in the first place than in the tenth: there it was the best that a row had to offer, here it was
beaten nine times. And the hundreds of candidates behind the first ones are hardly ever right, however their scores look. A
curve of the score alone, fitted to the first labels of rows, gives the first too little and all others too much. Rows
differ, too: where the eighth label scores nearly as well as the first, a score means something else than elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit

from blockxmc import _kernels
from blockxmc._core import stored
from blockxmc._core.base import TopK
from blockxmc._core.matrix import csr_args

F64 = NDArray[np.float64]

# Between these the curve is a straight line: in the score, and in the logarithm of the rank (calibrate.hpp has them too).
SCORE_KNOTS = (-1.0, -0.5, 0.0, 1.0)
RANK_KNOTS = (1.0, 3.0, 10.0, 32.0)
# All labels of a row gain or lose alike by the score of the label at this rank, held within bounds. As many are reranked,
# so their scores are known anyway.
ROW_RANK = 8
ROW_BOUNDS = (-1.0, 1.0)
N_SLOPES, N_FALLS = len(SCORE_KNOTS) + 1, len(RANK_KNOTS)


@dataclass(frozen=True)
class Calibration:
    """``sigmoid(shift + slopes . parts of the score - falls . parts of the log rank + others * eighth score of the row)``.

    Slopes and falls are not negative.

    >>> curve = Calibration.of_score(scale=2.0)
    >>> curve.probabilities(np.array([[0.0, -1.0, -np.inf]])).round(3).tolist()
    [[0.5, 0.119, 0.0]]
    """

    shift: float  # at a score of -1 and the first rank
    slopes: tuple[float, ...]
    falls: tuple[float, ...]
    others: float = 0.0  # what the score at ROW_RANK counts for all labels of a row

    @classmethod
    def of_score(cls, scale: float) -> Self:
        """A curve of the score alone, with even odds at 0."""
        return cls(-scale, (scale,) * N_SLOPES, (0.0,) * N_FALLS)

    def probabilities(self, scores: NDArray[Any]) -> F64:
        """Of ranked scores (rows x ROW_RANK or more, or all; best first, -inf: none).

        In a served model, the kernel says it.
        """
        features = curve_features(scores, of_others(scores)[..., None])
        known = scores > _kernels.UNLISTED / 2
        return np.where(known, expit(self.shift + features @ self._numbers[1:]), 0.0)

    @cached_property
    def _numbers(self) -> F64:
        return np.array([self.shift, *self.slopes, *self.falls, self.others])

    def least_asked(self, k: int, n_labels: int) -> int:
        """How many labels of a row must be known to give the first k their probabilities."""
        return max(k, min(ROW_RANK, n_labels)) if self.others else k

    def apply_topk(self, answers: TopK, threads: int = 1) -> None:
        """Turn the scores of the best labels of rows (2-d), or of one row (1-d), into probabilities, in place.

        There must be ``least_asked`` of them.
        """
        width = answers[0].shape[-1]
        best = answers[0].reshape(-1, width), answers[1].reshape(-1, width)
        _kernels.calibrate_topk(*best, self._numbers, threads)

    def apply(self, scores: sparse.csr_array, threads: int) -> None:
        """Turn the scores of all candidates of rows into probabilities, in place."""
        indptr, labels, _ = csr_args(scores)
        _kernels.calibrate_scores(indptr, labels, scores.data, self._numbers, threads)

    def state(self) -> list[float]:
        """What the model directory keeps."""
        return [float(number) for number in self._numbers]

    @classmethod
    def from_state(cls, state: Any) -> Self:
        """Take back what ``state`` gave."""
        size = 1 + N_SLOPES + N_FALLS + 1
        stored.require(isinstance(state, list) and len(state) == size, f"the calibration must have {size} numbers")
        shift, *rest, others = (stored.real(value, "calibration") for value in state)
        stored.require(min(rest) >= 0, "the calibration must rise with the score and fall with the rank")
        return cls(shift, tuple(rest[:N_SLOPES]), tuple(rest[N_SLOPES:]), others)


def f1_thresholds(probabilities: NDArray[Any], size: float) -> F64:
    """The probability that a label must exceed to raise the F1 that its row can expect (n x 1).

    ``probabilities`` of the labels of each row come best first (-inf: none). The first k of them, which add up to S, can
    expect an F1 of about ``2 S / (k + size)`` in a row that is taken to have ``size`` labels. That rises with each label
    whose probability exceeds half of it: the best set has just the labels above half of its own F1. With enough of the
    first labels to reach below that, the others need not be known.

    >>> f1_thresholds(np.array([[0.9, 0.8, 0.1], [0.4, 0.3, 0.2]]), size=2.0).round(3).tolist()
    [[0.425], [0.18]]
    """
    return thresholds_of_sums(sums_of_first(probabilities), size)


def sums_of_first(probabilities: NDArray[Any]) -> F64:
    """Of the first label, the first two, ... of each row (-inf: no label)."""
    return np.cumsum(np.where(probabilities > 0, probabilities, 0.0).astype(np.float64), axis=-1)


def thresholds_of_sums(sums: F64, size: float) -> F64:
    """``f1_thresholds`` of rows whose ``sums_of_first`` are known."""
    expected = sums / (np.arange(1, sums.shape[-1] + 1) + size)
    return np.asarray(expected.max(axis=-1, keepdims=True, initial=0.0))


def of_others(scores: NDArray[Any]) -> F64:
    """What ranked scores (rows x few) say of their rows: the one at ROW_RANK, within bounds (none: the lowest)."""
    if scores.shape[-1] < ROW_RANK:
        return np.full(scores.shape[:-1], ROW_BOUNDS[0])
    return np.clip(scores[..., ROW_RANK - 1].astype(np.float64), *ROW_BOUNDS)


def curve_features(scores: NDArray[Any], others: NDArray[np.float64], ranks: NDArray[np.integer] | None = None) -> F64:
    """What the curve is linear in, for ranked scores (rows x few): parts of the score, of minus the log rank, ``others``.

    ``ranks`` are those of the columns, 1, 2, ... where nothing else is said.
    """
    ranks = np.arange(1, scores.shape[-1] + 1) if ranks is None else ranks
    held = np.where(scores > _kernels.UNLISTED / 2, scores, SCORE_KNOTS[0]).astype(np.float64)
    ends = [-np.inf, *SCORE_KNOTS, np.inf]
    of_score = [np.clip(held, low, high) - max(low, SCORE_KNOTS[0]) for low, high in pairwise(ends)]
    log_rank, starts = np.log(ranks), np.log([*RANK_KNOTS, np.inf])
    of_rank = [np.clip(log_rank, low, high) - low for low, high in pairwise(starts)]
    of_row = [*(-part for part in of_rank), others]
    return np.stack([*of_score, *(np.broadcast_to(part, scores.shape) for part in of_row)], axis=-1)
