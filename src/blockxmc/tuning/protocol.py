"""The paper's protocol (section 3.3): lambda by cross-validation within a tolerance, through the router."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from blockxmc.errors import BlockXMCError
from blockxmc.training.trials.grid import FOLD_TOL, Rows, blocks_of_sample, default_grid, grid_size
from blockxmc.training.trials.split import FixedBlocks, Split
from blockxmc.tuning.cache import Notebook, digest
from blockxmc.tuning.problem import TOLERANCE, Problem, TrialOptions
from blockxmc.tuning.result import Tried, TuningResult

F64 = NDArray[np.float64]
# Folds of the cross-validation. Not measured.
FOLDS = 5
# How rows are assigned to blocks, as results and keys of caches say it.
ASSIGNMENT = "fixed assignment at the smallest lambda"


def tune_lambda(
    X: Any,
    Y: Any,
    base: Any = None,
    *,
    n_blocks: int | str = "auto",
    lams: ArrayLike | None = None,
    tolerance: float = TOLERANCE,
    folds: int = FOLDS,
    options: TrialOptions | None = None,
) -> TuningResult:
    """Choose lambda by cross-validation, as the paper does.

    In each fold the base is trained without blocks, and block-wise at every lambda; held-out rows go through the router.
    A lambda is feasible where no P@k of any fold falls more than ``tolerance`` points below the base. The speed-driven
    choice is the largest feasible lambda before the first gap, the accuracy-driven choice the best mean precision of
    the whole grid. ``lams`` and the result are in the scale of the full data (folds use lam * rows / all rows).
    ``options`` has what all tuners share, see :class:`TrialOptions`.

    >>> from blockxmc import NaiveBayes
    >>> from blockxmc.data import make_synthetic
    >>> train, _ = make_synthetic(n_train=300, n_test=10, n_features=60, n_labels=12, seed=0)
    >>> result = tune_lambda(train.X, train.Y, NaiveBayes(), n_blocks=2, folds=2, tolerance=100.0)
    >>> result.speed_driven.lam == max(result.lams), result.saving["trainings"] < result.saving["naive_trainings"]
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
    n_blocks: int | str,
    lams: ArrayLike | None,
    tolerance: float,
    *,
    weights: str = "per-block",
    route: int = 1,
) -> TuningResult:
    """The protocol on these pairs of training and held-out rows; a single pair may be a sample."""
    if not (np.isfinite(tolerance) and tolerance >= 0):
        raise BlockXMCError(f"tolerance must be zero or a positive number of points, got {tolerance!r}")
    sample = parts[0][0] if len(parts) == 1 else np.arange(problem.n_rows)
    q, given = _plan(problem, n_blocks, lams, sample)
    tried = Tried(given, given * q / problem.n_rows, q, int(problem.Y.shape[1]), problem.task.ks)
    setting = problem.describe() | {
        "assignment": ASSIGNMENT,
        "weights": weights,
        "route": route,
        "held_out_rows": [int(held_out.size) for _, held_out in parts],
    }
    books = _notebooks(problem, tried, setting, len(parts))
    records = []
    for fold, (train, held_out) in enumerate(parts):
        split = Split(problem.task, problem.X, problem.Y, train, held_out)
        given_blocks = not isinstance(problem.task.partitioner.init, str)
        own_q = q if len(parts) > 1 or given_blocks else blocks_of_sample(q, train.size, problem.n_rows)
        blocks = FixedBlocks(split, own_q, float(tried.lam_rel[0] * train.size / own_q))
        title = f"fold {fold + 1}/{len(parts)}"
        records.append(_fold(blocks, tried.lam_rel, books[fold], title, weights, route))
    names = ("trainings", "warm_trainings", "naive_trainings", "seconds", "naive_seconds_estimate")
    saving = {name: float(sum(record.pop(name) for record in records)) for name in names}
    saving["reused_from_cache"] = float(sum(book.reused for book in books))
    notes = tuple(note for book in books for note in book.notes)
    result = TuningResult.decide(
        records, tried, tolerance=float(tolerance), saving=saving, setting=setting, notes=notes
    )
    problem.reporter.say(result.explain())
    return result


def _notebooks(problem: Problem, tried: Tried, setting: dict[str, Any], folds: int) -> list[Notebook]:
    """A notebook for each fold, in the cache folder of the options where there is one."""
    cache = problem.options.cache
    details = {"q": tried.n_blocks, "lam_rel": tried.lam_rel.tolist(), "ks": tried.ks, "folds": folds}
    key = "" if cache is None else digest(problem.X, problem.Y, setting | details)
    books = [Notebook(cache, f"fold-{fold}", key) for fold in range(folds)]
    for book in books:
        for note in book.notes:
            problem.reporter.say(note)
    return books


def _plan(problem: Problem, n_blocks: int | str, lams: ArrayLike | None, sample: Rows) -> tuple[int, F64]:
    """The number of blocks, the same for all folds, and the lambdas, read off the path of ``sample`` if not given."""
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


def _fold(blocks: FixedBlocks, lam_rel: F64, book: Notebook, title: str, weights: str, route: int) -> dict[str, Any]:
    """One fold: every lambda, and the base. What the notebook has is not trained again."""
    split, found = blocks.split, []
    lams = [float(rel * split.train_rows.size / blocks.n_blocks) for rel in lam_rel]
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
    """An estimate: partition, router and training anew for each lambda, training in proportion to its labels."""
    first = found[0]
    rate: float = first["seconds"] / max(first["work"], 1.0)
    trainings = (
        entry["seconds"] if entry["trainings"] > entry["warm_trainings"] else rate * entry["work"] for entry in found
    )
    return float(len(found) * first["setup_seconds"] + sum(trainings))
