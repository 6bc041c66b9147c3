"""What a label's score is made of, and what it means: fitted on held-out rows.

    score = (margin + 1) * (1 + stretch / n ** 0.25) - 1 + likeness * cos + slope * log(p) + nearest * share

n is how many training rows carry the label, cos the cosine of the row to the mean of those rows, p the summed probability
of the visited blocks that list the label, share that of the row's neighbours which carry it. Regularisation holds back the
margins of labels with few positives, which stretching makes up for (a margin of -1, where the hinge says no, stays what it
is); the mean row knows words that too few positives could not teach the margin to tell apart. Both are linear in the row
and vanish in the weights that are served. Neighbours know what no one direction per label can say. The labels that score
best are then looked at a second time (second_look.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from blockxmc import _kernels
from blockxmc._matrix import flat_positions
from blockxmc.blocks import Blocks
from blockxmc.scoring import Scorer
from blockxmc.second_look import SecondLook, commonness_of
from blockxmc.weights import F32, LinearWeights

SLOPES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8)
STRETCHES = (0.0, 0.5, 1.0)
LIKENESSES = (0.0, 0.5, 1.0)
# Of a row's candidates those that this slope ranks highest are ranked by all settings.
MIDDLE_SLOPE, LOOKED_AT = 0.2, 32
# A difference in mean P@k (0..1) is taken for chance below this over the root of the number of rows.
NOISE = 0.05
# What is usual is left only for what makes held-out rows better by so many standard errors: less is mostly chance.
CLEARLY = 2.0
# Shares of the router's probability at which a row may stop to visit blocks.
MASSES = (0.5, 0.6, 0.7, 0.8, 0.9)
# Labels of a row, the best, that show what a score means.
CALIBRATED = 10
# Where nothing is held out, a margin of 0 means even odds.
UNCALIBRATED = (2.0, 0.0)


@dataclass(frozen=True)
class Mix:
    """How much counts beside a label's margin in its score."""

    slope: float = 0.0  # of the logarithm of the probability of its blocks
    stretch: float = 0.0  # for being rare
    likeness: float = 0.0  # to the mean of its positives
    nearest: float = 0.0  # for being carried by the training rows most like the row


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
    blocks: Blocks, means: Scorer, counted: sparse.csr_array, X: sparse.csr_array, Y: sparse.csr_array, threads: int
) -> tuple[Mix, SecondLook | None]:
    """What ranks the labels of these rows best, among the candidates that ``blocks`` finds for them.

    The rows must be new to router, scorer, neighbours and ``means``, which scores a label by its mean row; ``counted`` has
    the labels of all training rows. What neighbours weigh already does not matter.
    """
    commonness = commonness_of(counted)
    seen = _Candidates.of(blocks, means, rarity_of(counted), commonness, X, Y, threads)
    if blocks.neighbours is None:
        mix = _mix(seen)
        return mix, seen.second_look(mix, commonness)
    # Neighbours count as much as margins do, or where they clearly mislead not at all: there is little in between.
    mix = _mix(seen, nearest=1.0)
    look, alone = seen.second_look(mix, commonness), replace(mix, nearest=0.0)
    if _clearly_better(seen.hits(alone, seen.second_look(alone, commonness)), seen.hits(mix, look)):
        mix = _mix(seen)
        look = seen.second_look(mix, commonness)
    return mix, look


def enough_mass(blocks: Blocks, X: sparse.csr_array, Y: sparse.csr_array, threads: int) -> float:
    """The share of the router's probability that ranks the labels of new rows best; that of ``blocks`` if hardly better."""
    hits = {}
    for mass in sorted({*MASSES, blocks.mass}):
        labels, _ = replace(blocks, mass=mass).topk(X, 5, threads)
        rows = np.repeat(np.arange(X.shape[0]), labels.shape[1])
        right = _is_right(Y, rows, np.maximum(labels, 0).ravel()).reshape(labels.shape) & (labels >= 0)
        hits[mass] = _hits(right)
    best = max(hits, key=lambda mass: hits[mass].mean())
    return best if _clearly_better(hits[best], hits[blocks.mass]) else blocks.mass


def fit_calibration(blocks: Blocks, X: sparse.csr_array, Y: sparse.csr_array, threads: int) -> tuple[float, float]:
    """Scale and shift of the logistic curve from a label's score to the chance that it is right, for new rows.

    It is fitted to the first labels of each row: those that are answers, and near enough to the line between yes and no.
    """
    labels, scores = replace(blocks, calibration=None).topk(X, min(CALIBRATED, Y.shape[1]), threads)
    rows, places = np.nonzero((labels >= 0) & _listed(scores))
    right = _is_right(Y, rows, labels[rows, places])
    if right.all() or not right.any():
        return UNCALIBRATED
    curve = LogisticRegression(C=1e6).fit(scores[rows, places, None].astype(np.float64), right)
    return float(max(curve.coef_[0, 0], 1e-3)), float(curve.intercept_[0])


def _mix(seen: _Candidates, nearest: float = 0.0) -> Mix:
    """How much blocks, rarity and likeness count, if neighbours count so much.

    A mean of the mixes tried, in which those that rank nearly as well as the best count nearly as much: a thousand
    rows tell neighbouring mixes apart by chance as often as by merit, and the mean is steadier than the best.
    """
    tried = np.array(list(product(SLOPES, STRETCHES, LIKENESSES)))
    quality = np.array([seen.precision(replace(Mix(*each), nearest=nearest)).mean() for each in tried])
    votes = np.exp((quality - quality.max()) / _chance(seen.right.shape[0]))
    slope, stretch, likeness = (votes @ tried / votes.sum()).tolist()
    return Mix(slope if slope >= SLOPES[1] / 2 else 0.0, stretch, likeness, nearest)


def _chance(n_rows: int) -> float:
    """Differences in mean P@k (0..1) that so many rows show by chance."""
    return float(NOISE / np.sqrt(n_rows))


@dataclass(frozen=True)
class _Terms:
    """What makes up the scores of some pairs of row and label."""

    margin: F32
    rarity: F32
    likeness: F32
    block: F32
    nearest: F32
    commonness: F32

    def own(self, mix: Mix) -> F32:
        """What the label's weights will say."""
        out: F32 = (self.margin + 1) * (1 + np.float32(mix.stretch) * self.rarity) - 1
        out += np.float32(mix.likeness) * self.likeness
        return out

    def scores(self, mix: Mix) -> F32:
        out: F32 = self.own(mix) + np.float32(mix.slope) * self.block
        out += np.float32(mix.nearest) * self.nearest
        return out

    def looked_at(self, mix: Mix) -> F32:
        """What a second look sees: ... x N_TERMS."""
        return np.stack([self.own(mix), self.block, np.float32(mix.nearest) * self.nearest, self.commonness], axis=-1)


@dataclass(frozen=True)
class _Candidates:
    """The few candidates of each row that may be its best."""

    terms: _Terms  # rows x few; margin -inf where a row has no so many candidates
    right: NDArray[np.bool_]  # rows x few

    @classmethod
    def of(
        cls,
        blocks: Blocks,
        means: Scorer,
        rarity: F32,
        commonness: F32,
        X: sparse.csr_array,
        Y: sparse.csr_array,
        threads: int,
    ) -> _Candidates:
        alone = replace(blocks, neighbours=None)
        margins = alone.scores(X, threads)
        labels, _ = replace(alone, slope=MIDDLE_SLOPE).topk(X, min(LOOKED_AT, Y.shape[1]), threads)
        rows, there = np.arange(X.shape[0]), labels >= 0
        places = np.searchsorted(flat_positions(margins), (rows[:, None] * Y.shape[1] + labels)[there])

        def of_few(values: F32, elsewhere: float = 0.0) -> F32:
            out = np.full(labels.shape, elsewhere, np.float32)
            out[there] = values[places]
            return out

        terms = _Terms(
            margin=of_few(margins.data, -np.inf),
            rarity=of_few(rarity[margins.indices]),
            likeness=of_few(replace(alone, scorer=means).scores(X, threads).data),
            block=of_few(replace(alone, slope=1.0).scores(X, threads).data - margins.data),
            nearest=of_few(blocks.gains(X, margins, threads)),
            commonness=of_few(commonness[margins.indices]),
        )
        right = np.zeros(labels.shape, bool)
        right[there] = _is_right(Y, np.nonzero(there)[0], labels[there])
        return cls(terms, right)

    def second_look(self, mix: Mix, commonness: F32) -> SecondLook | None:
        """What puts the best of them in order if scores are made up like this."""
        scores = self.terms.scores(mix)
        seen = self.terms.looked_at(mix)
        return SecondLook.fit(seen, np.where(_listed(scores), scores, -np.inf), self.right, commonness)

    def hits(self, mix: Mix, look: SecondLook | None = None) -> NDArray[np.float64]:
        """P@1, P@3 and P@5 of each row if scores are made up like this and, with a look, the best are looked at again."""
        scores = self.terms.scores(mix)
        best = np.argsort(-scores, axis=1)[:, : 5 if look is None else look.first]
        if look is not None:
            terms = np.take_along_axis(self.terms.looked_at(mix), best[..., None], axis=1)
            again = np.take_along_axis(scores, best, axis=1) + look.gains(terms)
            best = np.take_along_axis(best, np.argsort(-again, axis=1)[:, :5], axis=1)
        return _hits(np.take_along_axis(self.right, best, axis=1))

    def precision(self, mix: Mix) -> NDArray[np.float64]:
        """P@1, P@3 and P@5 of all rows."""
        return np.asarray(self.hits(mix).mean(axis=0))


def _hits(right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """P@1, P@3 and P@5 of each row, of whose best five ``right`` says which are its labels."""
    return np.stack([right[:, :k].sum(axis=1) / k for k in (1, 3, 5)], axis=1)


def _clearly_better(some: NDArray[np.float64], others: NDArray[np.float64]) -> bool:
    """Whether rows are served better by some answers than by others, by more than chance; by the mean of their hits."""
    change = (some - others).mean(axis=1)
    return bool(change.mean() > CLEARLY * change.std() / np.sqrt(change.size))


def _listed(scores: F32) -> NDArray[np.bool_]:
    """Not those of labels that no visited block lists: they lie far below all others and say nothing."""
    return scores > _kernels.UNLISTED / 2


def _is_right(Y: sparse.csr_array, rows: NDArray[np.intp], labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    return np.asarray(Y[rows, labels]).ravel() > 0
