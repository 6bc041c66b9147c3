"""Where lambda is open: the pair of blocks and lambda with the fewest products that one split of the rows allows."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.base import clone

from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner
from blockxmc.partition import Partitioner
from blockxmc.training.trials.grid import (
    FEW_BLOCKS,
    FOLD_TOL,
    Rows,
    blocks_of_sample,
    default_grid,
    grid_size,
    loosened,
    one_split,
    rounded,
)
from blockxmc.training.trials.plan import BlockPlan, made_plan
from blockxmc.training.trials.selection import SLACK
from blockxmc.training.trials.split import KS, Pair, Split, Task

# Where the number of blocks is open, too, rare labels must be there: all rows, up to so many. Not measured.
ALL_ROWS = 50_000
# Else the sample has this share of the rows, within these bounds: two trainings on it, with blocks and without, cost less
# than one training on all rows. Not measured.
SHARE = 0.25
LEAST, MOST = 2000, 20000
# Points of precision that may be lost, a standard error included: less than the paper allows, since one split tells less
# than five, and test rows may be harder than held-out ones: of 6,000 rows of debian-small they lose 1.8 (with 2.0: 3.1).
TOLERANCE = 1.5
# With fewer rows than this, the held-out rows are too few to tell a point of precision. Not measured.
ENOUGH = 500


def quick_task(learner: Learner, partitioner: Partitioner, *, seed: int, threads: int, reporter: Reporter) -> Task:
    """What trial models are made with: the learner, solved less tightly."""
    return Task(loosened(learner, FOLD_TOL), clone(partitioner), KS, seed, threads, reporter)


def sample_split(n_rows: int, seed: int, share: float = SHARE, most: int = MOST) -> tuple[Rows, Rows]:
    """Training rows and held-out rows of a sample."""
    return one_split(n_rows, int(np.clip(n_rows * share, LEAST, most)), seed=seed, sample=True)


def partition_at_quick_lambda(
    X: sparse.csr_array, Y: sparse.csr_array, partitioner: Partitioner, task: Task, *, weights: str, route: int
) -> Partitioner:
    """Partition all rows at the pair with the fewest products that keeps precision on held-out rows.

    Where the number of blocks is set, only lambda is open. With n_blocks="paper" both are: several numbers are compared
    with that of the paper's search at each lambda. The partition keeps the lambda of its own path with few rows, with one
    block, and with the cost objective, whose lambda does not scale with the number of rows.
    """
    searched = partitioner.n_blocks == "paper" and isinstance(partitioner.init, str)
    apart = X.shape[0] < ENOUGH or partitioner.objective != "quadratic"
    whole = None if searched and not apart else partitioner._fit(X, Y, task.reporter)
    if apart or (whole is not None and whole.n_blocks_ == 1):
        return partitioner
    try:
        final, text = _by_trial(X, Y, partitioner, whole, task, weights, route)
    except BlockXMCError as error:  # a sample may be without labels, for instance
        task.reporter.say(f"lam is taken from the path, since a sample of the rows cannot be evaluated: {error}")
        return partitioner._fit(X, Y, task.reporter) if whole is None else whole
    task.reporter.say(text)
    final.choice_["text"] = f"{final.choice_['text']}. {text}"
    final.choice_["lam"]["rule"] = f"the fewest products within {TOLERANCE:g} points of the base on held-out rows"
    return final


def _by_trial(
    X: sparse.csr_array,
    Y: sparse.csr_array,
    partitioner: Partitioner,
    whole: Partitioner | None,
    task: Task,
    weights: str,
    route: int,
) -> tuple[Partitioner, str]:
    """The partition of the chosen pair on all rows, and what is to be said of it."""
    n_rows = X.shape[0]
    if whole is None:
        split = Split(task, X, Y, *sample_split(n_rows, task.seed, 1.0, ALL_ROWS))
        plan = made_plan(task, split.X, split.Y, "paper" if partitioner.letter else "auto").thinned(2)
        sampled = split.train_rows.size < n_rows / 2
    else:
        given = not isinstance(partitioner.init, str)
        if given:
            task.partitioner.set_params(init=whole.assignment_)
        split = Split(task, X, Y, *sample_split(n_rows, task.seed))
        q, sampled = whole.n_blocks_, not given
        own = blocks_of_sample(q, split.train_rows.size, n_rows) if sampled else q
        lams = default_grid(whole.path(), grid_size(task.learner), low=whole.lam_)
        lams = lams * (q / n_rows) * (split.train_rows.size / own)
        plan = BlockPlan(tuple(lams.tolist()), ((own,) * lams.size,))
    pair, said = _cheapest(split, plan, weights, route)
    if whole is not None:
        q = whole.n_blocks_
    else:
        q = round(pair.n_blocks * n_rows / split.train_rows.size) if sampled else pair.n_blocks
        q = pair.n_blocks if pair.n_blocks <= FEW_BLOCKS else q
    steps = rounded(np.array(pair.steps) * (pair.n_blocks / split.train_rows.size) * (n_rows / q)).tolist()
    final: Partitioner = clone(partitioner).set_params(n_blocks=q, lam=steps[-1], assign_at=steps)
    final._fit(X, Y, task.reporter)
    return final, said


def _cheapest(split: Split, plan: BlockPlan, weights: str, route: int) -> tuple[Pair, str]:
    """The first pair, from the fewest expected products on, that is within the tolerance; else that of the least loss."""
    base, n_labels = split.precision(split.base_model()), split.Y.shape[1]
    pairs = {pair: split.expected_products(pair) for path in plan.paths for pair in plan.pairs(path)}
    least: tuple[float, Pair, str] | None = None
    with split.task.reporter.phase("pairs of blocks and lambda on held-out rows", len(pairs)) as phase:
        for done, pair in enumerate(sorted(pairs, key=lambda pair: pairs[pair])):
            model = split.served(pair, weights, route)
            if model is None or (least is not None and pairs[pair] >= n_labels):
                continue
            lost = base - split.precision(model)
            error = lost.std(axis=0, ddof=1) / np.sqrt(lost.shape[0])
            at = int(np.argmax(lost.mean(axis=0) + error))
            loss = float(lost.mean(axis=0)[at] + error[at])
            found = split.measured(model)
            text = (
                f"On {lost.shape[0]:,} held-out rows of {lost.shape[0] + split.X.shape[0]:,} it loses "
                f"{lost.mean(axis=0)[at]:.2f} ± {error[at]:.2f} points of P@{split.task.ks[at]} against all labels"
                f" and scores {found['candidates']:,.1f} of {n_labels:,} labels per row"
            )
            phase.update(done + 1)
            if loss <= TOLERANCE + SLACK:
                return pair, text
            if least is None or loss < least[0]:
                least = loss, pair, f"{text}; no pair that was tried loses less than {TOLERANCE:g} points"
    if least is None:
        raise BlockXMCError("no lambda leaves a label")
    return least[1], least[2]
