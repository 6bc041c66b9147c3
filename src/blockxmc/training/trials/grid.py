"""Which lambdas to try, on which rows and with how many blocks, and how tightly to solve in a trial."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner
from blockxmc.partition import LambdaPath

F64 = NDArray[np.float64]
Rows = NDArray[np.intp]
# Lambdas of the default grid where one training serves all of them, and where each needs a training. Not measured.
GRID_ONE_VS_ALL, GRID_COUPLED = 12, 6
# The default grid goes from the lambda that captures 98 % of the positives to the lambda that captures 30 %. Smaller
# lambdas add labels that hardly ever occur: much work, no precision. Not measured here; docs/results/ablation.md compares
# 80 %, 90 % and all positives for shared weights.
GRID_CAPTURED = (0.98, 0.3)
# A grid for several numbers of blocks begins here: rows that are assigned anew at each lambda keep more. Not measured.
GRID_CAPTURED_ANEW = (0.95, 0.3)
# It is read off the path of this number of blocks.
MIDDLE = 8
# The default grid spans at least this factor. Not measured.
GRID_SPAN = 2.0
# Where the first step of the path loses too much, the grid starts at this share of that step. Not measured.
GRID_BELOW = 0.5
# Significant digits of a lambda of the default grid.
GRID_DIGITS = 4
# Trials are solved to this tolerance. A tighter one takes up to twice as long and moves precision by a tenth of a point;
# docs/results has no table of that.
FOLD_TOL = 0.1
# A sample keeps all blocks up to this number. Of more blocks it keeps as many as leave a block its number of rows. Not
# measured.
FEW_BLOCKS = 16
# A split holds out one row in this many. Not measured: the usual split.
PARTS = 5


def loosened(learner: Learner, tol: float | None) -> Learner:
    """The learner, solved no tighter than ``tol`` where it has a tolerance."""
    if tol is None or getattr(learner, "tol", tol) >= tol:
        return learner
    loose: Learner = clone(learner).set_params(tol=tol)
    return loose


def grid_size(learner: Learner) -> int:
    """Lambdas of the default grid: many where one training serves them all, few where each needs its own."""
    return GRID_ONE_VS_ALL if learner.one_vs_all else GRID_COUPLED


def lam_capturing(path: LambdaPath, share: float) -> float:
    """The largest lambda of the path that captures this share of what the smallest captures.

    >>> path = LambdaPath(np.array([0.0, 0.5, 1.0]), np.array([0.8, 0.72, 0.1]), np.array([9.0, 8.0, 1.0]))
    >>> lam_capturing(path, 0.8)
    0.5
    """
    return float(path.lam[np.flatnonzero(path.captured >= share * path.captured[0])[-1]])


def default_grid(path: LambdaPath, size: int, low: float = 0.0, captured: tuple[float, float] = GRID_CAPTURED) -> F64:
    """``size`` lambdas in geometric steps over the part of the path where precision changes, from ``low`` if given.

    >>> path = LambdaPath(np.array([0.0, 0.5, 1.0, 8.0]), np.array([1.0, 0.995, 0.9, 0.2]), np.array([9.0, 8.0, 5.0, 1.0]))
    >>> default_grid(path, 2).tolist()
    [0.5, 1.0]
    """
    start, high = (lam_capturing(path, share) for share in captured)
    low = low or start
    if low == 0:  # the first step of the path loses too much: start just below it
        low = GRID_BELOW * (float(path.lam[1]) if path.lam.size > 1 else 1.0)
    return rounded(np.geomspace(low, max(high, GRID_SPAN * low), size))


def rounded(lams: F64) -> F64:
    """Lambdas with so few digits that a command line can name them exactly.

    >>> rounded(np.array([0.123456, 7.0])).tolist()
    [0.1235, 7.0]
    """
    return np.array([float(f"{lam:.{GRID_DIGITS}g}") for lam in lams])


def blocks_of_sample(n_blocks: int, sample: int, n_rows: int) -> int:
    """Blocks for a sample of the rows: all of a few, else as many as leave a block its number of rows.

    >>> blocks_of_sample(8, 100, 1000), blocks_of_sample(400, 100, 1000), blocks_of_sample(400, 1000, 1000)
    (8, 40, 400)
    """
    return n_blocks if n_blocks <= FEW_BLOCKS else max(FEW_BLOCKS, round(n_blocks * sample / n_rows))


def one_split(n_rows: int, max_rows: int | None, *, seed: int, sample: bool) -> tuple[Rows, Rows]:
    """Training rows and a fifth held out; ``max_rows`` bounds both together (sample) or the held-out rows alone."""
    if n_rows < PARTS:
        raise BlockXMCError(f"tuning needs at least {PARTS} rows, but there are {n_rows}")
    order = np.random.default_rng(seed).permutation(n_rows)
    if sample:
        order = order[:max_rows]
    size = order.size // PARTS
    return np.sort(order[size:]), np.sort(order[:size][:max_rows])
