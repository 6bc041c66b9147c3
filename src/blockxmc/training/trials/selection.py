"""Which lambda to take, given the precision of each on held-out rows: pure functions of arrays, in points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

F64 = NDArray[np.float64]
# Equal precisions may differ in their last bits: differences below this count as none.
SLACK = 1e-9


@dataclass(frozen=True)
class Selection:
    """What the paper's rule makes of the precision of each lambda. Positions are those of the grid."""

    by_fold: NDArray[np.bool_]  # folds x lambdas: within the tolerance
    run: tuple[int, int] | None  # first and last position of the lambdas that are feasible in all folds
    worst: F64  # the largest loss over folds and ks at each lambda
    speed: int | None  # the speed-driven choice; None where no lambda is feasible
    least: int  # the smallest loss in the worst fold
    accuracy: int  # the accuracy-driven choice

    @property
    def feasible(self) -> list[bool]:
        """Whether each lambda is within the tolerance in every fold."""
        return [bool(mask.all()) for mask in self.by_fold.T]


def select(base: ArrayLike, precision: ArrayLike, tolerance: float) -> Selection:
    """Choose by the paper's rule, from folds x ks and folds x lambdas x ks.

    Speed-driven: the largest feasible lambda before the first gap; None where no lambda is feasible.
    Accuracy-driven: the best mean precision.

    >>> chosen = select([[60.0]], [[[61.0], [59.0], [50.0]]], tolerance=2.0)
    >>> chosen.speed, chosen.accuracy, chosen.run
    (1, 0, (0, 1))
    """
    by_fold, worst = feasible(base, precision, tolerance), largest_loss(base, precision)
    run = first_run(by_fold.all(axis=0))
    accuracy = last_argmax(np.asarray(precision, np.float64).mean(axis=(0, 2)))
    return Selection(by_fold, run, worst, None if run is None else run[1], last_argmax(-worst), accuracy)


def feasible(base: ArrayLike, precision: ArrayLike, tolerance: float) -> NDArray[np.bool_]:
    """Where no P@k falls more than ``tolerance`` points below the base: folds x lambdas.

    ``base`` is folds x ks, ``precision`` is folds x lambdas x ks.

    >>> feasible([[60.0, 40.0]], [[[59.0, 39.0], [59.0, 37.0]]], tolerance=2.0).tolist()
    [[True, False]]
    """
    loss = np.asarray(base, np.float64)[:, None, :] - np.asarray(precision, np.float64)
    return np.asarray((loss <= tolerance + SLACK).all(axis=2))


def first_run(mask: ArrayLike) -> tuple[int, int] | None:
    """First and last position of the unbroken run that holds the first True; None where there is no True.

    A lambda that is feasible by luck beyond a gap is not part of the run.

    >>> first_run([False, True, True, False, True])
    (1, 2)
    """
    places = np.flatnonzero(np.asarray(mask, bool))
    if not places.size:
        return None
    broken = np.flatnonzero(np.diff(places) > 1)
    return int(places[0]), int(places[broken[0] if broken.size else -1])


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
