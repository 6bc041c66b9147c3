"""The paper's protocol (section 3.3): lambda by cross-validation within a tolerance, through the router."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from blockxmc.errors import BlockXMCError
from blockxmc.training.job import Form, Job
from blockxmc.training.trials.grid import FOLD_TOL
from blockxmc.training.trials.plan import BlockPlan, made_plan
from blockxmc.tuning.fold import Fold
from blockxmc.tuning.notebook import Notebook, opened_job
from blockxmc.tuning.problem import TOLERANCE, Problem, TrialOptions
from blockxmc.tuning.result import TuningResult
from blockxmc.tuning.search import Search

# Folds of the cross-validation, as in the paper.
FOLDS = 5
# How rows are assigned to blocks, as results say it.
ANEW = "rows assigned anew at each lambda, from the assignment at the lambda before"
LETTER = "rows assigned at each lambda from k-means, to the letter"


def tune_lambda(
    X: Any,
    Y: Any,
    base: Any = None,
    *,
    n_blocks: int | str | BlockPlan = "auto",
    lams: ArrayLike | None = None,
    tolerance: float = TOLERANCE,
    folds: int = FOLDS,
    options: TrialOptions | None = None,
) -> TuningResult:
    """Choose lambda and the number of blocks by cross-validation within a tolerance.

    In each fold the base is trained without blocks, and block-wise at every lambda; held-out rows go through the router.
    A lambda is feasible where no P@k of any fold falls more than ``tolerance`` points below the base. Of the feasible
    ones the speed-driven choice has the fewest products, the accuracy-driven choice the best mean precision. ``lams`` and
    the result are in the scale of the full data (folds use lam * rows / all rows).

    ``n_blocks="auto"`` tries 2, 4, 8, 16 and 32 blocks at every lambda, and the number that the paper's search finds
    there; ``"paper"`` only that search; a number or ``"cost"`` stays the same along lambda; :func:`plan_blocks` makes a
    plan that serves several bases. ``options``: see :class:`TrialOptions`; ``Partitioner(letter=True)`` there starts every
    lambda from k-means, and its search for the number of blocks has no limits of ours.

    >>> from blockxmc import NaiveBayes
    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=300, n_test=10, n_features=60, n_labels=12, seed=0)
    >>> result = tune_lambda(train.X, train.Y, NaiveBayes(), n_blocks=2, folds=2, tolerance=100.0)
    >>> result.speed_driven.products <= result.accuracy_driven.products
    True
    """
    if not folds >= 2:
        raise BlockXMCError(f"folds must be at least 2, got {folds}")
    if not (np.isfinite(tolerance) and tolerance >= 0):
        raise BlockXMCError(f"tolerance must be zero or a positive number of points, got {tolerance!r}")
    problem = Problem.of(X, Y, base, options, fold_tol=FOLD_TOL)
    if folds > problem.n_rows:
        raise BlockXMCError(f"{folds} folds need at least as many rows, but there are {problem.n_rows}")
    order = np.random.default_rng(problem.task.seed).permutation(problem.n_rows)
    parts = []
    for fold in range(folds):
        train = np.sort(np.concatenate([order[other::folds] for other in range(folds) if other != fold]))
        parts.append((train, np.sort(order[fold::folds][: problem.options.max_rows])))
    letter = bool(problem.task.partitioner.letter)
    setting = problem.describe() | {
        "assignment": LETTER if letter else ANEW,
        "weights": "per-block",
        "route": 1,
        "held_out_rows": [int(held_out.size) for _, held_out in parts],
    }
    with opened_job(problem, setting) as job:
        plan = n_blocks if isinstance(n_blocks, BlockPlan) else _planned(problem, n_blocks, lams, job)
        books = [Notebook(job.within(f"fold {number + 1}:"), problem.options.stop_at) for number in range(folds)]
        made = [Fold(problem, part, book) for part, book in zip(parts, books, strict=True)]
        result = Search(problem, made, plan, float(tolerance)).run(setting, (note,) if (note := plan.note()) else ())
        entries = [entry for book in books for entry in book.entries]
        trainings, seconds = (sum(entry.get(name, 0) for entry in entries) for name in ("trainings", "seconds"))
        notes = (*result.notes, *job.notes)
        result = replace(result, notes=notes, trainings=trainings, seconds=seconds)
    problem.reporter.say(result.explain())
    return result


def _planned(problem: Problem, n_blocks: int | str, lams: ArrayLike | None, job: Job) -> BlockPlan:
    name = f"plan for {n_blocks}, lam {'open' if lams is None else np.asarray(lams).tolist()}"
    return job.stage(name, lambda: made_plan(problem.task, problem.X, problem.Y, n_blocks, lams), _PLAN)


def plan_blocks(
    X: Any, Y: Any, *, n_blocks: int | str = "auto", lams: ArrayLike | None = None, options: TrialOptions | None = None
) -> BlockPlan:
    """What :func:`tune_lambda` would try for these data: the same plan can serve several bases.

    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=300, n_test=10, n_features=60, n_labels=12, seed=0)
    >>> [path[0] for path in plan_blocks(train.X, train.Y, n_blocks=3, lams=[1.0, 2.0]).paths]
    [3]
    """
    problem = Problem.of(X, Y, None, options)
    return made_plan(problem.task, problem.X, problem.Y, n_blocks, lams)


_PLAN = Form(BlockPlan.to_dict, BlockPlan.from_dict)
