"""The protocol in cheap: one split of a sample instead of folds of everything."""

from __future__ import annotations

from typing import Any

from blockxmc.partition import Partitioner
from blockxmc.training.trials.grid import FOLD_TOL
from blockxmc.training.trials.quick import TOLERANCE, sample_split
from blockxmc.tuning.protocol import Problem, tune_parts
from blockxmc.tuning.result import TuningResult


def quick_lambda(
    X: Any,
    Y: Any,
    base: Any = None,
    *,
    n_blocks: int | str = "auto",
    tolerance: float = TOLERANCE,
    weights: str = "per-block",
    route: int = 1,
    partitioner: Partitioner | None = None,
    random_state: int | None = 0,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> TuningResult:
    """A cheap version of :func:`tune_lambda`: a sample of the rows, a fifth of it held out, the base trained there too.

    A sample of many blocks is cut into fewer, so that a block has as many rows as in the full data.

    >>> from blockxmc import NaiveBayes
    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=300, n_test=10, n_features=60, n_labels=12, seed=0)
    >>> result = quick_lambda(train.X, train.Y, NaiveBayes(), n_blocks=2)
    >>> len(result.folds), result.saving["trainings"]
    (1, 2.0)
    """
    problem = Problem.of(X, Y, base, (1, 3, 5), partitioner, random_state, n_jobs, verbose, FOLD_TOL)
    return tune_parts(
        problem,
        [sample_split(problem.n_rows, problem.task.seed)],
        n_blocks,
        None,
        tolerance,
        None,
        weights=weights,
        route=route,
    )
