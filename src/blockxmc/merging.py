"""What a label's score is made of, and what it means: fitted on held-out rows.

    score = (margin + 1) * (1 + stretch / n ** 0.25) - 1 + likeness * cos + slope * log(p) + nearest * share

n is how many training rows carry the label, cos the cosine of the row to the mean of those rows, p the summed probability
of the visited blocks that list the label, share that of the row's neighbours which carry it. Regularisation holds back the
margins of labels with few positives, which stretching makes up for (a margin of -1, where the hinge says no, stays what it
is); the mean row knows words that too few positives could not teach the margin to tell apart. Both are linear in the row
and vanish in the weights that are served. Neighbours know what no one direction per label can say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from blockxmc.blocks import Blocks
from blockxmc.scoring import Scorer
from blockxmc.weights import F32, LinearWeights

SLOPES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8)
STRETCHES = (0.0, 0.5, 1.0)
LIKENESSES = (0.0, 0.5, 1.0)
NEARNESSES = (0.0, 0.25, 0.5, 0.75, 1.0)
# Of a row's candidates those that this slope ranks highest are ranked by all settings.
MIDDLE_SLOPE, LOOKED_AT = 0.2, 32
# A difference in mean P@k (0..1) is taken for chance below this over the root of the number of rows.
NOISE = 0.05
# Scored candidates that a curve with two parameters needs at most.
CALIBRATION_PAIRS = 500_000


@dataclass(frozen=True)
class Mix:
    """How much counts beside a label's margin in its score."""

    slope: float = 0.0  # of the logarithm of the probability of its blocks
    stretch: float = 0.0  # for being rare
    likeness: float = 0.0  # to the mean of its positives
    nearest: float = 0.0  # for being carried by the training rows most like the row


@dataclass(frozen=True)
class Merging:
    """What makes up a score, and the curve from scores to probabilities."""

    mix: Mix = Mix()
    # Where nothing is held out, a margin of 0 means even odds.
    calibration: tuple[float, float] = (2.0, 0.0)


def rarity_of(Y: sparse.csr_array) -> F32:
    """How much stretch each label gets: ``n ** -0.25`` for n positives.

    >>> rarity_of(sparse.csr_array([[1, 0], [0, 0]])).tolist()
    [1.0, 1.0]
    """
    return np.asarray(np.maximum(np.bincount(Y.indices, minlength=Y.shape[1]), 1) ** -0.25, np.float32)


def mixed(weights: LinearWeights, means: LinearWeights, rarity: F32, mix: Mix) -> LinearWeights:
    """Weights whose scores are those of the mix, but for the blocks' part in it."""
    return weights.adjusted(1 + np.float32(mix.stretch) * rarity, means, mix.likeness)


def fit_merging(
    blocks: Blocks, means: Scorer | None, rarity: F32, X: sparse.csr_array, Y: sparse.csr_array, threads: int
) -> Merging:
    """What ranks the labels of these rows best, among the candidates that ``blocks`` finds for them.

    The rows must be new to router, scorer, neighbours and ``means``, which scores a label by its mean row (None: no
    likeness, and margins count alone); ``rarity`` is that of each label. What neighbours weigh already does not matter.
    """
    seen = _Candidates.of(blocks, means, rarity, X, Y, threads)
    mix = Mix() if means is None else _mix(seen)
    if blocks.neighbours is not None:
        mix = replace(mix, nearest=_nearest(seen, mix))
    return Merging(mix, seen.calibration(mix, Y))


def _mix(seen: _Candidates) -> Mix:
    """How much blocks, rarity and likeness count."""
    tried = np.array(list(product(SLOPES, STRETCHES, LIKENESSES)))
    slope, stretch, likeness = _steady_best(tried, seen, [Mix(*each) for each in tried]).tolist()
    return Mix(_or_nothing(slope, SLOPES[1]), stretch, likeness)


def _nearest(seen: _Candidates, mix: Mix) -> float:
    """How much neighbours count on top of that."""
    tried = np.array(NEARNESSES)[:, None]
    found = _steady_best(tried, seen, [replace(mix, nearest=weight) for weight in NEARNESSES])
    return _or_nothing(float(found[0]), NEARNESSES[1])


def _steady_best(tried: NDArray[np.float64], seen: _Candidates, mixes: list[Mix]) -> NDArray[np.float64]:
    """A mean of the settings tried, in which those that rank nearly as well as the best count nearly as much.

    A thousand rows tell neighbouring mixes apart by chance as often as by merit; the mean is steadier than the best.
    """
    quality = np.array([seen.precision(mix).mean() for mix in mixes])
    votes = np.exp((quality - quality.max()) * np.sqrt(seen.right.shape[0]) / NOISE)
    return np.asarray(votes @ tried / votes.sum())


def _or_nothing(weight: float, least: float) -> float:
    """What counts next to nothing is not worth its time."""
    return weight if weight >= least / 2 else 0.0


@dataclass(frozen=True)
class _Terms:
    """What makes up the scores of some pairs of row and label."""

    margin: F32
    rarity: F32
    likeness: F32
    block: F32
    nearest: F32

    def scores(self, mix: Mix) -> F32:
        out: F32 = (self.margin + 1) * (1 + np.float32(mix.stretch) * self.rarity) - 1
        out += np.float32(mix.likeness) * self.likeness + np.float32(mix.slope) * self.block
        out += np.float32(mix.nearest) * self.nearest
        return out


@dataclass(frozen=True)
class _Candidates:
    """All candidates of some rows, and the few of each row that may be its best."""

    pattern: sparse.csr_array  # rows x labels: the pairs that ``all`` is about
    all: _Terms
    few: _Terms  # rows x few; margin -inf where a row has no so many candidates
    right: NDArray[np.bool_]  # rows x few

    @classmethod
    def of(
        cls, blocks: Blocks, means: Scorer | None, rarity: F32, X: sparse.csr_array, Y: sparse.csr_array, threads: int
    ) -> _Candidates:
        with_all, blocks = blocks, replace(blocks, neighbours=None)
        margins = blocks.scores(X, threads)
        nearest = with_all.gains(X, margins, threads)
        likeness = block = np.zeros_like(margins.data)
        if means is not None:
            likeness = replace(blocks, scorer=means).scores(X, threads).data
            block = replace(blocks, slope=1.0).scores(X, threads).data - margins.data
            blocks = replace(blocks, slope=MIDDLE_SLOPE)
        labels, _ = blocks.topk(X, min(LOOKED_AT, Y.shape[1]), threads)
        rows, there = np.arange(X.shape[0]), labels >= 0
        keys = np.repeat(rows, np.diff(margins.indptr)) * Y.shape[1] + margins.indices
        places = np.searchsorted(keys, (rows[:, None] * Y.shape[1] + labels)[there])

        def of_few(values: F32, elsewhere: float = 0.0) -> F32:
            out = np.full(labels.shape, elsewhere, np.float32)
            out[there] = values[places]
            return out

        of_all = _Terms(margins.data, rarity[margins.indices], likeness, block, nearest)
        others = (of_few(values) for values in (of_all.rarity, likeness, block, nearest))
        few = _Terms(of_few(of_all.margin, -np.inf), *others)
        right = np.zeros(labels.shape, bool)
        right[there] = _is_right(Y, np.nonzero(there)[0], labels[there])
        return cls(margins, of_all, few, right)

    def precision(self, mix: Mix) -> NDArray[np.float64]:
        """P@1, P@3 and P@5 if scores are made up like this."""
        right = np.take_along_axis(self.right, np.argsort(-self.few.scores(mix), axis=1)[:, :5], axis=1)
        return np.array([right[:, :k].sum() / (k * len(right)) for k in (1, 3, 5)])

    def calibration(self, mix: Mix, Y: sparse.csr_array) -> tuple[float, float]:
        """Scale and shift of the logistic curve from a candidate's score to the chance that it is right."""
        rows = np.repeat(np.arange(Y.shape[0]), np.diff(self.pattern.indptr))
        scores = self.all.scores(mix)[:CALIBRATION_PAIRS]
        right = _is_right(Y, rows[:CALIBRATION_PAIRS], self.pattern.indices[:CALIBRATION_PAIRS])
        # Scores of labels that no visited block lists lie far below all others and say nothing about the curve.
        near = scores > -5e5
        if right[near].all() or not right[near].any():
            return Merging.calibration
        curve = LogisticRegression(C=1e6).fit(scores[near, None].astype(np.float64), right[near])
        return float(max(curve.coef_[0, 0], 1e-3)), float(curve.intercept_[0])


def _is_right(Y: sparse.csr_array, rows: NDArray[np.intp], labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    return np.asarray(Y[rows, labels]).ravel() > 0
