"""Which lambdas to try, on how many rows and blocks, and how tightly to solve meanwhile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner
from blockxmc.partition import LambdaPath

F64 = NDArray[np.float64]
GRID_ONE_VS_ALL, GRID_COUPLED = 12, 6
# The default grid reaches from where 2 % of the positives are cut to where most are: below, labels that hardly ever
# occur multiply the work and move no precision.
GRID_CAPTURED = (0.98, 0.3)
# Folds are solved to this tolerance: tighter costs up to twice as much and moves precision by a tenth of a point.
FOLD_TOL = 0.1
# With this few blocks a sample keeps them all; else it keeps the rows per block.
_FEW_BLOCKS = 16


def loosened(learner: Learner, tol: float | None) -> Learner:
    """The learner, solved no tighter than ``tol`` where it has a tolerance."""
    if tol is None or getattr(learner, "tol", tol) >= tol:
        return learner
    loosened: Learner = clone(learner).set_params(tol=tol)
    return loosened


def grid_size(learner: Learner) -> int:
    """Lambdas of the default grid: one training serves them all, or each needs its own."""
    return GRID_ONE_VS_ALL if learner.one_vs_all else GRID_COUPLED


def default_grid(path: LambdaPath, size: int, low: float = 0.0) -> F64:
    """``size`` lambdas in geometric steps, from ``low`` if that is given, over where something happens on the path.

    >>> path = LambdaPath(np.array([0.0, 0.5, 1.0, 8.0]), np.array([1.0, 0.995, 0.9, 0.2]), np.array([9.0, 8.0, 5.0, 1.0]))
    >>> default_grid(path, 2).tolist()
    [0.5, 1.0]
    """
    most, least = (share * path.captured[0] for share in GRID_CAPTURED)
    start, high = (float(path.lam[np.flatnonzero(path.captured >= share)[-1]]) for share in (most, least))
    low = low or start
    if low == 0:  # the first cut takes too much already: begin just below it
        low = 0.5 * float(path.lam[1]) if path.lam.size > 1 else 0.5
    high = max(high, 2 * low)
    return np.geomspace(low, high, size)


def blocks_of_sample(n_blocks: int, sample: int, n_rows: int) -> int:
    """Blocks for a sample of the rows: all of few, else as many as leave a block the rows it has in the full data.

    >>> blocks_of_sample(8, 100, 1000), blocks_of_sample(400, 100, 1000), blocks_of_sample(400, 1000, 1000)
    (8, 40, 400)
    """
    return n_blocks if n_blocks <= _FEW_BLOCKS else max(_FEW_BLOCKS, round(n_blocks * sample / n_rows))


def one_split(n_rows: int, max_rows: int, *, seed: int, sample: bool) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Training rows and a fifth held out; ``max_rows`` bounds both together (sample) or the held-out rows alone."""
    if n_rows < 5:
        raise BlockXMCError(f"tuning needs at least 5 rows, but there are {n_rows}")
    order = np.random.default_rng(seed).permutation(n_rows)
    if sample:
        order = order[:max_rows]
    size = order.size // 5
    return np.sort(order[size:]), np.sort(order[: min(size, max_rows)])
