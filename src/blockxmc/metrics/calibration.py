"""Whether a probability means what it says."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def calibration_error(right: ArrayLike, probabilities: ArrayLike, bins: int = 10) -> float:
    """Expected calibration error: the mean distance between the probability and the share that is right.

    Answers are sorted by probability and cut into ``bins`` of equal numbers; 0 is perfect.

    >>> calibration_error([True, False, True, False], [0.5, 0.5, 0.5, 0.5], bins=1)
    0.0
    """
    p, correct = np.asarray(probabilities, np.float64).ravel(), np.asarray(right, np.float64).ravel()
    if not p.size:
        return 0.0
    order = np.argsort(p, kind="stable")
    parts = np.array_split(order, min(bins, p.size))
    return float(sum(abs(p[part].sum() - correct[part].sum()) for part in parts) / p.size)
