"""``lam="auto"`` of per-block and global weights: the paper's rule on one split of a sample of the rows."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.base import clone

from blockxmc._core.progress import Reporter
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner
from blockxmc.partition import Partitioner
from blockxmc.partition.walk import paper_blocks
from blockxmc.training.trials.grid import (
    FEW_BLOCKS,
    FOLD_TOL,
    GRID_CAPTURED_ANEW,
    MIDDLE,
    Rows,
    blocks_of_sample,
    default_grid,
    grid_size,
    loosened,
    one_split,
    rounded,
)
from blockxmc.training.trials.moving import MovingBlocks
from blockxmc.training.trials.selection import select
from blockxmc.training.trials.split import KS, FixedBlocks, Split, Task

# The sample has this share of the rows, within these bounds: two trainings on it, with blocks and without, cost less
# than one training on all rows. Not measured.
SHARE = 0.25
LEAST, MOST = 2000, 20000
# Points of precision that may be lost: half of what the paper allows, since rare labels count for less in a sample. Not
# measured.
TOLERANCE = 1.0
# With fewer rows than this, the held-out rows are too few to tell a point of precision. Not measured.
ENOUGH = 500


def sample_split(n_rows: int, seed: int, max_rows: int | None = None) -> tuple[Rows, Rows]:
    """Training rows and held-out rows of the sample, which has at most ``max_rows`` in all."""
    size = int(np.clip(n_rows * SHARE, LEAST, MOST))
    return one_split(n_rows, size if max_rows is None else min(size, max_rows), seed=seed, sample=True)


def partition_at_quick_lambda(
    X: sparse.csr_array, Y: sparse.csr_array, partitioner: Partitioner, task: Task, *, weights: str, route: int
) -> Partitioner:
    """Partition all rows, and cut the label clusters at the largest lambda that keeps precision on a sample.

    The partition keeps the lambda of its own path with few rows, with one block, and with the cost objective, whose
    lambda does not scale with the number of rows. With the paper's search the number of blocks belongs to lambda: both
    are chosen on the sample, where the search runs at every lambda.
    """
    searched = partitioner.n_blocks == "paper" and isinstance(partitioner.init, str)
    if searched and X.shape[0] >= ENOUGH and partitioner.objective == "quadratic":
        return _paper_pair(X, Y, partitioner, task, weights, route)
    whole = partitioner._fit(X, Y, task.reporter)
    if X.shape[0] < ENOUGH or whole.objective != "quadratic" or whole.n_blocks_ == 1:
        return whole
    try:
        chosen, text = _largest_lambda(X, Y, whole, task, weights, route)
    except BlockXMCError as error:  # a sample may be without labels, for instance
        task.reporter.say(f"lam is taken from the path, since a sample of the rows cannot be evaluated: {error}")
        return whole
    task.reporter.say(text)
    final = whole
    if chosen > whole.lam_:
        fixed = {"init": whole.assignment_, "max_iter": 0, "n_blocks": "auto", "lam": chosen}
        final = clone(partitioner).set_params(**fixed)._fit(X, Y, Reporter())
    final.choice_ = whole.choice_ | {
        "text": f"{whole.choice_['text']}. {text}",
        "lam": {
            "value": chosen,
            "rule": f"the largest that keeps precision within {TOLERANCE:g} point of the base on held-out rows",
        },
    }
    return final


def quick_task(learner: Learner, partitioner: Partitioner, *, seed: int, threads: int, reporter: Reporter) -> Task:
    """What trial models are made with: the learner, solved less tightly."""
    return Task(loosened(learner, FOLD_TOL), clone(partitioner), KS, seed, threads, reporter)


def _largest_lambda(
    X: sparse.csr_array, Y: sparse.csr_array, whole: Partitioner, task: Task, weights: str, route: int
) -> tuple[float, str]:
    """The speed-driven lambda (in the scale of all rows) by one split of a sample, and a sentence about it."""
    given = not isinstance(task.partitioner.init, str)
    if given:
        task.partitioner.set_params(init=whole.assignment_)
    n_rows, q = X.shape[0], whole.n_blocks_
    train, held_out = sample_split(n_rows, task.seed)
    split = Split(task, X, Y, train, held_out)
    own_q = q if given else blocks_of_sample(q, train.size, n_rows)
    lams = default_grid(whole.path(), grid_size(task.learner), low=whole.lam_)
    of_sample = lams * (q / n_rows) * (train.size / own_q)
    blocks, precision, candidates = FixedBlocks(split, own_q, float(of_sample[0])), [], []
    with task.reporter.phase("lambda on a sample", lams.size + 1) as phase:
        for done, lam in enumerate(of_sample):
            found = blocks.measure(float(lam), weights, route)
            precision.append(found["precision"])
            candidates.append(found["candidates"])
            phase.update(done + 1)
        base = split.full_precision()
    at, kept = _judged(base, precision)
    text = (
        f"On held-out rows of a sample of {train.size + held_out.size:,} rows, lam {lams[at]:.4g} {kept}, "
        f"with {candidates[at]:.1f} of {Y.shape[1]:,} labels scored per row"
    )
    return float(lams[at]), text


def _judged(base: list[float], precision: list[list[float]]) -> tuple[int, str]:
    """The place of the largest lambda within the tolerance, else of the least loss, and words about its loss."""
    chosen = select([base], [precision], TOLERANCE)
    at = chosen.least if chosen.speed is None else chosen.speed
    kept = f"loses {chosen.worst[at]:.2f} points of P@k at most"
    return at, kept if chosen.run is not None else f"{kept} (no lambda loses less than {TOLERANCE:g})"


def _paper_pair(
    X: sparse.csr_array, Y: sparse.csr_array, partitioner: Partitioner, task: Task, weights: str, route: int
) -> Partitioner:
    """Partition all rows into as many blocks, at the lambda, that keep precision on a sample."""
    train, held_out = sample_split(X.shape[0], task.seed)
    split = Split(task, X, Y, train, held_out)
    path = FixedBlocks(split, MIDDLE, "auto").partition.path()
    lams = default_grid(path, grid_size(task.learner), captured=GRID_CAPTURED_ANEW).tolist()
    found = paper_blocks(task.unfitted("paper", "auto"), split.X, split.Y, lams, task.reporter)
    by_number: dict[int, MovingBlocks] = {}
    measured = []
    with task.reporter.phase("lambda on a sample", len(lams) + 1) as phase:
        for step, choice in enumerate(found):
            blocks = by_number.setdefault(choice.n_blocks, MovingBlocks(split, choice.n_blocks))
            measured.append(blocks.measure(lams[: step + 1], weights, route))
            phase.update(step + 1)
        base = split.full_precision()
    at, kept = _judged(base, [one["precision"] for one in measured])
    own = found[at].n_blocks
    q = own if own <= FEW_BLOCKS else round(own * X.shape[0] / train.size)
    share = (own / train.size) * (X.shape[0] / q)
    steps = rounded(share * np.array(lams[: at + 1])).tolist()
    final: Partitioner = clone(partitioner).set_params(n_blocks=q, lam=steps[-1], assign_at=steps)
    final._fit(X, Y, task.reporter)
    text = (
        f"On held-out rows of a sample of {train.size + held_out.size:,} rows, lam {steps[-1]:.4g} with {q} blocks, found "
        f"by the paper's search at that lambda, {kept}, with {measured[at]['candidates']:.1f} of {Y.shape[1]:,} labels "
        "scored per row"
    )
    final.choice_["text"] = f"{final.choice_['text']}. {text}"
    final.choice_["n_blocks"] |= {"rule": found[at].rule, "tried": found[at].tried}
    final.choice_["lam"]["rule"] = f"the largest that keeps precision within {TOLERANCE:g} point on held-out rows"
    task.reporter.say(text)
    return final
