"""The paper's protocol (section 3.3): lambda by cross-validation within a tolerance, through the router."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from blockxmc.errors import BlockXMCError
from blockxmc.training.job import Form, Job
from blockxmc.training.trials.grid import FOLD_TOL, Rows
from blockxmc.tuning.fold import Fold, How
from blockxmc.tuning.joint import Search
from blockxmc.tuning.notebook import Notebook, opened_job
from blockxmc.tuning.plan import BlockPlan, made_plan
from blockxmc.tuning.problem import TOLERANCE, Problem, TrialOptions
from blockxmc.tuning.result import TuningResult

# Folds of the cross-validation. Not measured.
FOLDS = 5
# How rows are assigned to blocks, as results and kept work say it.
ANEW = "rows assigned anew at each lambda, from the assignment at the lambda before"
ONCE = "fixed assignment at the smallest lambda"


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
    """Choose lambda and the number of blocks by cross-validation, as the paper does.

    In each fold the base is trained without blocks, and block-wise at every lambda; held-out rows go through the router.
    A lambda is feasible where no P@k of any fold falls more than ``tolerance`` points below the base. The speed-driven
    choice is the largest feasible lambda before the first gap, the accuracy-driven choice the best mean precision of
    the whole grid. ``lams`` and the result are in the scale of the full data (folds use lam * rows / all rows).

    ``n_blocks="paper"`` searches the number of blocks at each lambda, as the paper does; ``"auto"`` tries 2, 4, 8, 16 and
    32 blocks at every lambda, too, and takes the pair with the fewest products; a number or ``"cost"`` stays the same
    along lambda; :func:`plan_blocks` makes a plan that serves several bases. ``options`` has what all tuners share, see
    :class:`TrialOptions`.

    >>> from blockxmc import NaiveBayes
    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=300, n_test=10, n_features=60, n_labels=12, seed=0)
    >>> result = tune_lambda(train.X, train.Y, NaiveBayes(), n_blocks=2, folds=2, tolerance=100.0)
    >>> result.speed_driven.lam == max(result.lams), result.saving["pairs"] > 0
    (True, True)
    """
    if not folds >= 2:
        raise BlockXMCError(f"folds must be at least 2, got {folds}")
    problem = Problem.of(X, Y, base, options, fold_tol=FOLD_TOL)
    if folds > problem.n_rows:
        raise BlockXMCError(f"{folds} folds need at least as many rows, but there are {problem.n_rows}")
    order = np.random.default_rng(problem.task.seed).permutation(problem.n_rows)
    parts = []
    for fold in range(folds):
        train = np.sort(np.concatenate([order[other::folds] for other in range(folds) if other != fold]))
        parts.append((train, np.sort(order[fold::folds][: problem.options.max_rows])))
    return tune_parts(problem, parts, n_blocks, lams, tolerance)


def tune_parts(
    problem: Problem,
    parts: list[tuple[Rows, Rows]],
    n_blocks: int | str | BlockPlan,
    lams: ArrayLike | None,
    tolerance: float,
    *,
    weights: str = "per-block",
    route: int = 1,
) -> TuningResult:
    """The protocol on these pairs of training and held-out rows; a single pair may be a sample."""
    if not (np.isfinite(tolerance) and tolerance >= 0):
        raise BlockXMCError(f"tolerance must be zero or a positive number of points, got {tolerance!r}")
    setting = problem.describe() | {
        "assignment": ANEW if problem.options.reassign else ONCE,
        "weights": weights,
        "route": route,
        "held_out_rows": [int(held_out.size) for _, held_out in parts],
    }
    how = How(weights, route, sample=len(parts) == 1)
    with opened_job(problem, setting) as job:
        sample = parts[0][0] if len(parts) == 1 else np.arange(problem.n_rows)
        plan = n_blocks if isinstance(n_blocks, BlockPlan) else _planned(problem, n_blocks, lams, sample, job)
        books = [Notebook(job.within(f"fold {number + 1}:"), problem.options.stop_at) for number in range(len(parts))]
        # Folds are worked on side by side, and share the threads.
        threads = max(1, problem.task.threads // min(problem.task.threads, len(parts)))
        folds = [Fold(problem, part, how, book, threads) for part, book in zip(parts, books, strict=True)]
        result = Search(problem, folds, plan, float(tolerance), setting).run()
        result = replace(
            result, saving=result.saving | {"reused": float(job.n_reused)}, notes=(*result.notes, *job.notes)
        )
    problem.reporter.say(result.explain())
    return result


def _planned(problem: Problem, n_blocks: int | str, lams: ArrayLike | None, sample: Rows, job: Job) -> BlockPlan:
    name = f"plan for {n_blocks}, lam {'open' if lams is None else ', '.join(map(repr, np.asarray(lams).tolist()))}"
    return job.stage(name, lambda: made_plan(problem, n_blocks, lams, sample), _PLAN)


_PLAN = Form(BlockPlan.to_dict, BlockPlan.from_dict)
