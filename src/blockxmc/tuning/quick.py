"""A cheap version of the paper's protocol: one split of a sample of the rows."""

from __future__ import annotations

from typing import Any

from blockxmc.training.trials.grid import FOLD_TOL
from blockxmc.training.trials.quick import TOLERANCE, sample_split
from blockxmc.tuning.plan import BlockPlan
from blockxmc.tuning.problem import Problem, TrialOptions
from blockxmc.tuning.protocol import tune_parts
from blockxmc.tuning.result import TuningResult


def quick_lambda(
    X: Any,
    Y: Any,
    base: Any = None,
    *,
    n_blocks: int | str | BlockPlan = "auto",
    tolerance: float = TOLERANCE,
    weights: str = "per-block",
    route: int = 1,
    options: TrialOptions | None = None,
) -> TuningResult:
    """A cheap version of :func:`tune_lambda`: a sample of the rows, a fifth of it held out, the base trained there too.

    Where there are many blocks, the sample has fewer, so that a block keeps its number of rows. ``n_blocks="auto"`` is
    "cost" here: one number, and no search over several.

    >>> from blockxmc import NaiveBayes
    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=300, n_test=10, n_features=60, n_labels=12, seed=0)
    >>> result = quick_lambda(train.X, train.Y, NaiveBayes(), n_blocks=2)
    >>> len(result.folds), len(result.lams)
    (1, 12)
    """
    problem = Problem.of(X, Y, base, options, fold_tol=FOLD_TOL)
    parts = [sample_split(problem.n_rows, problem.task.seed, problem.options.max_rows)]
    return tune_parts(
        problem, parts, "cost" if n_blocks == "auto" else n_blocks, None, tolerance, weights=weights, route=route
    )
