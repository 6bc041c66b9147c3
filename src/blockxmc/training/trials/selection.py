"""Which lambda to take, given what held-out rows say about each: pure functions of arrays, in points of precision."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

F64 = NDArray[np.float64]
# Two precisions that are equal on paper may differ in the last bit.
_SLACK = 1e-9


def feasible(base: ArrayLike, precision: ArrayLike, tolerance: float) -> NDArray[np.bool_]:
    """Where no P@k falls more than ``tolerance`` points below the base: folds x lambdas.

    ``base`` is folds x ks, ``precision`` is folds x lambdas x ks.

    >>> feasible([[60.0, 40.0]], [[[59.0, 39.0], [59.0, 37.0]]], tolerance=2.0).tolist()
    [[True, False]]
    """
    loss = np.asarray(base, np.float64)[:, None, :] - np.asarray(precision, np.float64)
    return np.asarray((loss <= tolerance + _SLACK).all(axis=2))


def first_run(mask: ArrayLike) -> tuple[int, int] | None:
    """First and last position of the unbroken run that holds the first True; None where there is no True.

    A lambda that is feasible by luck beyond a gap does not stretch the interval.

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
    """Position of the largest value; of equal ones the last, which is the cheapest lambda.

    >>> last_argmax([1.0, 3.0, 3.0, 2.0])
    2
    """
    array = np.asarray(values, np.float64)
    return int(np.flatnonzero(array >= array.max() - _SLACK)[-1])
