"""The protocol in cheap: one split of a sample instead of folds of everything. What ``fit`` does with ``lam="auto"``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner
from blockxmc.partition import Partitioner
from blockxmc.progress import Reporter
from blockxmc.tuning.evaluation import Task
from blockxmc.tuning.protocol import FOLD_TOL, Problem, default_grid, grid_size, loosened, one_split, tune_parts
from blockxmc.tuning.result import TuningResult

# A sample of this share of the rows, within these bounds: it is trained with and without blocks for less than what one
# training on all rows costs.
SHARE = 0.25
LEAST, MOST = 2000, 20000
# Points that may be lost: half of what the paper allows, since in a sample rare labels count for less than they will.
TOLERANCE = 1.0
# Fewer rows say too little about a point of precision.
ENOUGH = 500


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
    return tune_parts(problem, [_sample(problem)], n_blocks, None, tolerance, None, weights=weights, route=route)


def partition_at_quick_lambda(
    X: sparse.csr_array,
    Y: sparse.csr_array,
    learner: Learner,
    partitioner: Partitioner,
    reporter: Reporter,
    *,
    weights: str,
    route: int,
    seed: int,
    threads: int,
) -> Partitioner:
    """Partition all rows, and cut the label clusters at the speed-driven lambda of a sample.

    With few rows, with the cost objective (whose lambda does not scale as the paper's) or where one block is all there
    is, the partition stays at the lambda it read off its own path.
    """
    whole = partitioner._fit(X, Y, reporter)
    if X.shape[0] < ENOUGH or whole.objective != "quadratic" or whole.n_blocks_ == 1:
        return whole
    options = clone(partitioner)
    if not isinstance(options.init, str):
        options.set_params(init=whole.assignment_)
    task = Task(loosened(learner, FOLD_TOL), options, (1, 3, 5), seed, threads, reporter)
    problem = Problem(X, Y, learner, task)
    lams = default_grid(whole.path(), grid_size(learner), low=whole.lam_)
    served: Any = {"weights": weights, "route": route}
    try:
        result = tune_parts(problem, [_sample(problem)], whole.n_blocks_, lams, TOLERANCE, None, **served)
    except BlockXMCError as error:  # a sample may lack what all rows have, labels to begin with
        reporter.say(f"lam stays where the path puts it: a sample of the rows cannot be evaluated ({error})")
        return whole
    chosen = result.speed_driven.lam
    final = whole
    if chosen > whole.lam_:
        fixed = {"init": whole.assignment_, "max_iter": 0, "n_blocks": "auto", "lam": chosen}
        final = clone(partitioner).set_params(**fixed)._fit(X, Y, Reporter())
    final.choice_ = whole.choice_ | {
        "text": f"{whole.choice_['text']}. On held-out rows of a sample: {result.explain()}",
        "lam": {
            "value": chosen,
            "rule": f"the largest that keeps precision within {TOLERANCE:g} point of the base on held-out rows",
        },
    }
    return final


def _sample(problem: Problem) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return one_split(problem, int(np.clip(problem.n_rows * SHARE, LEAST, MOST)), sample=True)
