"""The paper's protocol (section 3.3): lambda by cross-validation within a tolerance, through the router."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_array
from sklearn.utils.validation import check_consistent_length

from blockxmc._core.matrix import as_csr
from blockxmc._core.progress import Reporter, reporter_for, thread_count
from blockxmc._core.targets import Targets
from blockxmc.errors import BlockXMCError
from blockxmc.learners._learner import Learner
from blockxmc.learners.dismec import DiSMEC
from blockxmc.learners.sklearn_adapter import as_learner
from blockxmc.partition import Partitioner
from blockxmc.training.trials.grid import FOLD_TOL, blocks_of_sample, default_grid, grid_size, loosened
from blockxmc.training.trials.split import FixedBlocks, Split, Task
from blockxmc.tuning.cache import Notebook, digest
from blockxmc.tuning.result import TuningResult

F64 = NDArray[np.float64]
ASSIGNMENT = "fixed assignment at the smallest lambda"


@dataclass(frozen=True)
class Problem:
    """Checked input of a tuning run."""

    X: sparse.csr_array
    Y: sparse.csr_array
    base: Learner  # as given: what the final fit takes
    task: Task

    @classmethod
    def of(
        cls,
        X: Any,
        Y: Any,
        base: Any,
        ks: tuple[int, ...],
        partitioner: Partitioner | None,
        random_state: int | None,
        n_jobs: int | None,
        verbose: int,
        fold_tol: float | None = None,
    ) -> Problem:
        """Check and convert what the user gave."""
        matrix = as_csr(check_array(X, accept_sparse="csr", dtype=np.float32))
        Y01 = Targets.encode(Y)[1]
        check_consistent_length(matrix, Y01)
        if not ks or any(int(k) != k or k < 1 for k in ks):
            raise BlockXMCError(f"ks must be whole numbers of at least 1, got {ks!r}")
        learner = as_learner(base, DiSMEC)
        learner._check_params()
        options = Partitioner() if partitioner is None else clone(partitioner)
        threads, reporter = thread_count(n_jobs), reporter_for(verbose)
        task = Task(loosened(learner, fold_tol), options, tuple(ks), random_state or 0, threads, reporter)
        return cls(matrix, Y01, learner, task)

    @property
    def n_rows(self) -> int:
        """Rows of the full data."""
        return int(self.X.shape[0])

    @property
    def reporter(self) -> Reporter:
        """Where progress goes."""
        return self.task.reporter

    def partition(self, n_blocks: int | str, lam: float | str = "auto") -> Partitioner:
        """A partition of the full data; the task's seed and threads."""
        task = self.task
        partitioner: Partitioner = clone(task.partitioner).set_params(
            n_blocks=n_blocks, lam=lam, random_state=task.seed, n_jobs=task.threads, verbose=0
        )
        with self.reporter.phase("partition all rows"):
            return partitioner.fit(self.X, self.Y)

    def describe(self) -> dict[str, Any]:
        """What a result must say so that the final fit can be the same kind of model."""
        return {
            "base": described(self.base),
            "evaluated_base": described(self.task.learner),
            "partitioner": described(self.task.partitioner),
            "seed": self.task.seed,
            "n_rows": self.n_rows,
        }


def described(estimator: Any) -> str:
    """An estimator and its parameters, less those that do not change the model."""
    params = estimator.get_params(deep=False)
    shown = [
        f"{name}={_short(params[name])}" for name in sorted(params) if name not in ("n_jobs", "verbose", "random_state")
    ]
    return f"{type(estimator).__name__}({', '.join(shown)})"


def _short(value: Any) -> str:
    return f"<{value.size} blocks>" if isinstance(value, np.ndarray) else repr(value)


def tune_lambda(
    X: Any,
    Y: Any,
    base: Any = None,
    *,
    n_blocks: int | str = "auto",
    lams: ArrayLike | None = None,
    tolerance: float = 2.0,
    folds: int = 5,
    ks: tuple[int, ...] = (1, 3, 5),
    partitioner: Partitioner | None = None,
    random_state: int | None = 0,
    n_jobs: int | None = None,
    verbose: int = 0,
    cache: str | os.PathLike[str] | None = None,
    max_rows: int | None = 20000,
    fold_tol: float | None = FOLD_TOL,
) -> TuningResult:
    """Choose lambda by cross-validation, as the paper does.

    In each fold the base is trained without blocks, and block-wise at every lambda; held-out rows go through the router.
    A lambda is feasible where no P@k (k in ``ks``) of any fold falls more than ``tolerance`` points below the base.
    The speed-driven choice is the largest feasible lambda before the first gap, the accuracy-driven one the best mean
    precision of the whole grid. ``lams`` and the result are in the scale of the full data (folds use lam * rows / all
    rows). At most ``max_rows`` held-out rows are looked at in each fold. In the folds a base with a solver tolerance is
    solved to ``fold_tol`` only (None: to its own), which moves precision less than another fold would. With ``cache``
    (a folder) finished work is kept there, and a run that was interrupted goes on from it.

    >>> from blockxmc import NaiveBayes
    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=300, n_test=10, n_features=60, n_labels=12, seed=0)
    >>> result = tune_lambda(train.X, train.Y, NaiveBayes(), n_blocks=2, folds=2, tolerance=100.0)
    >>> result.speed_driven.lam == max(result.lams), result.saving["trainings"] < result.saving["naive_trainings"]
    (True, True)
    """
    if not folds >= 2:
        raise BlockXMCError(f"folds must be at least 2, got {folds}")
    problem = Problem.of(X, Y, base, ks, partitioner, random_state, n_jobs, verbose, fold_tol)
    if folds > problem.n_rows:
        raise BlockXMCError(f"{folds} folds need at least as many rows, but there are {problem.n_rows}")
    order = np.random.default_rng(problem.task.seed).permutation(problem.n_rows)
    parts = []
    for fold in range(folds):
        train = np.sort(np.concatenate([order[other::folds] for other in range(folds) if other != fold]))
        parts.append((train, np.sort(order[fold::folds][:max_rows])))
    return tune_parts(problem, parts, n_blocks, lams, tolerance, cache)


def tune_parts(
    problem: Problem,
    parts: list[tuple[NDArray[np.intp], NDArray[np.intp]]],
    n_blocks: int | str,
    lams: ArrayLike | None,
    tolerance: float,
    cache: str | os.PathLike[str] | None,
    *,
    weights: str = "per-block",
    route: int = 1,
) -> TuningResult:
    """The protocol on these pairs of training and held-out rows; a single pair may be a sample."""
    if not (np.isfinite(tolerance) and tolerance >= 0):
        raise BlockXMCError(f"tolerance must be zero or a positive number of points, got {tolerance!r}")
    sample = parts[0][0] if len(parts) == 1 else np.arange(problem.n_rows)
    q, given = _plan(problem, n_blocks, lams, sample)
    lam_rel = given * q / problem.n_rows
    setting = problem.describe() | {
        "assignment": ASSIGNMENT,
        "weights": weights,
        "route": route,
        "held_out_rows": [int(held_out.size) for _, held_out in parts],
    }
    details = setting | {"q": q, "lam_rel": lam_rel.tolist(), "ks": problem.task.ks, "folds": len(parts)}
    key = "" if cache is None else digest(problem.X, problem.Y, details)
    records, notes, reused = [], [], 0
    for fold, (train, held_out) in enumerate(parts):
        book = Notebook(cache, f"fold-{fold}", key)
        for note in book.notes:
            problem.reporter.say(note)
        title = f"fold {fold + 1}/{len(parts)}"
        split = Split(problem.task, problem.X, problem.Y, train, held_out)
        given_blocks = not isinstance(problem.task.partitioner.init, str)
        own_q = q if len(parts) > 1 or given_blocks else blocks_of_sample(q, train.size, problem.n_rows)
        records.append(_fold(split, own_q, lam_rel, book, title, weights, route))
        notes += book.notes
        reused += book.reused
    saving = {
        name: float(sum(record.pop(name) for record in records))
        for name in ("trainings", "warm_trainings", "naive_trainings", "seconds", "naive_seconds_estimate")
    }
    result = TuningResult.decide(
        records,
        lams=given,
        lam_rel=lam_rel,
        n_blocks=q,
        n_labels=int(problem.Y.shape[1]),
        ks=problem.task.ks,
        tolerance=float(tolerance),
        saving=saving | {"reused_from_cache": float(reused)},
        setting=setting,
        notes=tuple(notes),
    )
    problem.reporter.say(result.explain())
    return result


def _plan(problem: Problem, n_blocks: int | str, lams: ArrayLike | None, sample: NDArray[np.intp]) -> tuple[int, F64]:
    """The number of blocks, fixed once for all folds, and the lambdas; what must be read off a path is, on ``sample``."""
    given = None if lams is None else checked_lams(lams)
    size = grid_size(problem.base)
    options = clone(problem.task.partitioner).set_params(n_blocks=n_blocks)
    options._check_params(problem.n_rows)
    if isinstance(n_blocks, str) or not isinstance(options.init, str):
        whole = problem.partition(n_blocks)
        q = int(whole.choice_["n_blocks"]["start"])
        return q, default_grid(whole.path(), size) if given is None else given
    if given is None:
        own_q = blocks_of_sample(n_blocks, sample.size, problem.n_rows)
        split = Split(problem.task, problem.X, problem.Y, sample, sample[:0])
        partition = FixedBlocks(split, own_q, "auto").partition
        given = default_grid(partition.path(), size) * (own_q / sample.size) * (problem.n_rows / n_blocks)
    return n_blocks, given


def checked_lams(lams: ArrayLike) -> F64:
    """Ascending, distinct, usable lambdas."""
    grid = np.unique(np.asarray(lams, dtype=np.float64))
    if not grid.size or not np.isfinite(grid).all() or grid[0] < 0:
        raise BlockXMCError(f"lams must be numbers of at least 0, got {lams!r}")
    return grid


def _fold(split: Split, q: int, lam_rel: F64, book: Notebook, title: str, weights: str, route: int) -> dict[str, Any]:
    """One fold: every lambda, and the base. Nothing is trained for what the notebook has."""
    lams = [float(rel * split.train_rows.size / q) for rel in lam_rel]
    blocks, found = FixedBlocks(split, q, lams[0]), []
    with split.task.reporter.phase(title, len(lams) + 1) as phase:
        for i, lam in enumerate(lams):
            found.append(book.once(f"lam {i}", partial(_timed, blocks, lam, weights, route)))
            phase.update(i + 1)
        base = book.once("base", partial(_base, split))
    return {name: [entry[name] for entry in found] for name in ("precision", "candidates", "products", "recall")} | {
        "base": base["precision"],
        "trainings": sum(entry["trainings"] for entry in found) + base["trainings"],
        "warm_trainings": sum(entry["warm_trainings"] for entry in found),
        "naive_trainings": len(found) + 1,
        "seconds": sum(entry["seconds"] + entry["setup_seconds"] for entry in found) + base["seconds"],
        "naive_seconds_estimate": _naive_seconds(found) + base["seconds"],
    }


def _timed(blocks: FixedBlocks, lam: float, weights: str, route: int) -> dict[str, Any]:
    before = blocks.setup_seconds
    return blocks.measure(lam, weights, route) | {"setup_seconds": blocks.setup_seconds - before}


def _base(split: Split) -> dict[str, Any]:
    before = split.trainings, split.seconds
    precision = split.full_precision()
    return {"precision": precision, "trainings": split.trainings - before[0], "seconds": split.seconds - before[1]}


def _naive_seconds(found: list[dict[str, Any]]) -> float:
    """Partition, router and training anew for each lambda, training in proportion to the labels it has to train."""
    first = found[0]
    rate: float = first["seconds"] / max(first["work"], 1.0)
    trainings = (
        entry["seconds"] if entry["trainings"] > entry["warm_trainings"] else rate * entry["work"] for entry in found
    )
    return float(len(found) * first["setup_seconds"] + sum(trainings))
