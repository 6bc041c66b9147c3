"""The paper's rule for lambda, given the precision of each on held-out rows: pure functions of arrays, in points.

In each fold some lambdas keep the loss within the tolerance; the smallest and the largest are the fold's interval. Feasible
are the lambdas that do so in every fold. Of these, the speed-driven choice has the fewest products and the accuracy-driven
choice the best mean precision, so that the first is never slower than the second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

F64 = NDArray[np.float64]
# Equal precisions may differ in their last bits: differences below this count as none.
SLACK = 1e-9


@dataclass(frozen=True)
class Selection:
    """What the rule makes of the precision of each lambda. Positions are those of the grid."""

    by_fold: NDArray[np.bool_]  # folds x lambdas: within the tolerance
    worst: F64  # the largest loss over folds and ks at each lambda
    speed: int | None  # the speed-driven choice; None where no lambda is feasible
    least: int  # the smallest loss in the worst fold
    accuracy: int  # the accuracy-driven choice; of all lambdas where none is feasible

    @property
    def feasible(self) -> NDArray[np.bool_]:
        """Whether each lambda is within the tolerance in every fold."""
        return np.asarray(self.by_fold.all(axis=0))


def select(base: ArrayLike, precision: ArrayLike, products: ArrayLike, tolerance: float) -> Selection:
    """Choose from folds x ks, folds x lambdas x ks and the products of each lambda.

    The second fold is noisy at the second lambda, which does not hide the third:

    >>> chosen = select([[60.0], [60.0]], [[[61.0], [59.0], [59.0]], [[60.0], [57.0], [59.0]]], [9, 5, 3], tolerance=2.0)
    >>> chosen.speed, chosen.accuracy, chosen.feasible.tolist()
    (2, 0, [True, False, True])
    """
    by_fold, worst = feasible(base, precision, tolerance), largest_loss(base, precision)
    kept = by_fold.all(axis=0)
    work = np.where(kept, np.asarray(products, np.float64), np.inf)
    mean = np.asarray(precision, np.float64).mean(axis=(0, 2))
    accuracy = last_argmax(np.where(kept, mean, -np.inf) if kept.any() else mean)
    return Selection(by_fold, worst, last_argmax(-work) if kept.any() else None, last_argmax(-worst), accuracy)


def feasible(base: ArrayLike, precision: ArrayLike, tolerance: float) -> NDArray[np.bool_]:
    """Where no P@k falls more than ``tolerance`` points below the base: folds x lambdas.

    ``base`` is folds x ks, ``precision`` is folds x lambdas x ks.

    >>> feasible([[60.0, 40.0]], [[[59.0, 39.0], [59.0, 37.0]]], tolerance=2.0).tolist()
    [[True, False]]
    """
    loss = np.asarray(base, np.float64)[:, None, :] - np.asarray(precision, np.float64)
    return np.asarray((loss <= tolerance + SLACK).all(axis=2))


def interval(lams: ArrayLike, kept: ArrayLike) -> tuple[float, float] | None:
    """The smallest and the largest of the lambdas that are kept; None where none is.

    >>> interval([0.1, 0.2, 0.4, 0.8], [True, False, True, False])
    (0.1, 0.4)
    """
    inside = np.asarray(lams, np.float64)[np.asarray(kept, bool)]
    return (float(inside.min()), float(inside.max())) if inside.size else None


def largest_loss(base: ArrayLike, precision: ArrayLike) -> F64:
    """The loss of the worst fold and k at each lambda.

    >>> largest_loss([[60.0], [50.0]], [[[59.0]], [[46.0]]]).tolist()
    [4.0]
    """
    loss = np.asarray(base, np.float64)[:, None, :] - np.asarray(precision, np.float64)
    return np.asarray(loss.max(axis=(0, 2)))


def last_argmax(values: ArrayLike) -> int:
    """Position of the largest value, and of equal values the last: the cheapest lambda.

    >>> last_argmax([1.0, 3.0, 3.0, 2.0])
    2
    """
    array = np.asarray(values, np.float64)
    return int(np.flatnonzero(array >= array.max() - SLACK)[-1])
