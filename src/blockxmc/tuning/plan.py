"""Which lambdas to try, and how many blocks to make at each of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from blockxmc.errors import BlockXMCError
from blockxmc.partition.choice import MIN_ROWS
from blockxmc.partition.walk import paper_blocks
from blockxmc.training.trials.grid import (
    F64,
    GRID_CAPTURED,
    GRID_CAPTURED_ANEW,
    MIDDLE,
    Rows,
    blocks_of_sample,
    default_grid,
    grid_size,
)
from blockxmc.training.trials.split import FixedBlocks, Split
from blockxmc.tuning.fold import Lams
from blockxmc.tuning.problem import Problem, TrialOptions

# Numbers of blocks that a joint search tries beside those of the paper's search. Not measured: a plain grid.
NUMBERS = (2, 4, 8, 16, 32)


@dataclass(frozen=True)
class BlockPlan:
    """Ascending lambdas, and paths along them: a path has a number of blocks for each lambda.

    >>> BlockPlan((0.1, 0.2, 0.4), ((2, 2, 2), (3, 5, 8)), paper=(3, 5, 8)).thinned(2).paths
    ((2, 2), (3, 8))
    """

    lams: Lams
    paths: tuple[tuple[int, ...], ...]
    paper: tuple[int, ...] | None = None  # the path of the paper's search, where it was run
    unbounded: tuple[bool, ...] = ()  # at which lambdas that search met no pair that died
    refine: bool = True  # look between the lambdas, too

    def thinned(self, step: int) -> BlockPlan:
        """Every ``step``-th lambda, for bases that take longer."""
        paths = tuple(path[::step] for path in self.paths)
        paper = None if self.paper is None else self.paper[::step]
        return BlockPlan(self.lams[::step], paths, paper, self.unbounded[::step], self.refine)

    def note(self) -> str | None:
        """What is to be said of the paper's search."""
        if not any(self.unbounded):
            return None
        count = sum(self.unbounded)
        return (
            f"the paper's search for the number of blocks met no pair that died at {count} of {len(self.lams)} lambdas: "
            "there it ended at its limit"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values only; see ``from_dict``."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> BlockPlan:
        """The inverse of ``to_dict``, also by way of JSON."""
        paper = values["paper"]
        return cls(
            tuple(values["lams"]),
            tuple(map(tuple, values["paths"])),
            None if paper is None else tuple(paper),
            tuple(values["unbounded"]),
            bool(values["refine"]),
        )


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
    return made_plan(problem, n_blocks, lams, np.arange(problem.n_rows))


def made_plan(problem: Problem, n_blocks: int | str, lams: ArrayLike | None, sample: Rows) -> BlockPlan:
    """The plan for a number of blocks: one number, that of the paper's search at each lambda, or all of these."""
    given = None if lams is None else checked_lams(lams)
    options = clone(problem.task.partitioner).set_params(n_blocks=n_blocks)
    options._check_params(problem.n_rows)
    fixed_start = not isinstance(options.init, str)
    if isinstance(n_blocks, str) and n_blocks != "cost" and not fixed_start:
        return _joint(problem, n_blocks, given)
    if isinstance(n_blocks, str) or fixed_start:
        whole = problem.partition("cost" if n_blocks == "auto" and not fixed_start else n_blocks)
        q = int(whole.choice_["n_blocks"]["start"])
        grid = default_grid(whole.path(), grid_size(problem.base)) if given is None else given
    else:
        q, grid = n_blocks, _grid(problem, n_blocks, sample) if given is None else given
    return BlockPlan(tuple(grid.tolist()), ((q,) * grid.size,), refine=given is None)


def _joint(problem: Problem, n_blocks: str, given: F64 | None) -> BlockPlan:
    """The paper's search at each lambda ("paper"), and a plain grid of numbers beside it ("auto")."""
    most = max(problem.n_rows // MIN_ROWS, 1)
    if given is None:
        grid = _grid(problem, min(MIDDLE, most), np.arange(problem.n_rows), GRID_CAPTURED_ANEW)
    else:
        grid = given
    options = problem.task.unfitted("paper", "auto")
    found = paper_blocks(options, problem.X, problem.Y, grid.tolist(), problem.reporter)
    paper = tuple(choice.n_blocks for choice in found)
    numbers = sorted({min(q, most) for q in NUMBERS}) if n_blocks == "auto" else []
    constant = tuple((q,) * grid.size for q in numbers)
    unbounded = tuple(choice.unbounded for choice in found)
    return BlockPlan(tuple(grid.tolist()), (*constant, paper), paper, unbounded, refine=given is None)


def _grid(problem: Problem, n_blocks: int, sample: Rows, captured: tuple[float, float] = GRID_CAPTURED) -> F64:
    """The default grid for this number of blocks, read off the path of the sample."""
    own_q = blocks_of_sample(n_blocks, sample.size, problem.n_rows)
    split = Split(problem.task, problem.X, problem.Y, sample, sample[:0])
    path = FixedBlocks(split, own_q, "auto").partition.path()
    scale = (own_q / sample.size) * (problem.n_rows / n_blocks)
    return default_grid(path, grid_size(problem.base), scale=scale, captured=captured)


def checked_lams(lams: ArrayLike) -> F64:
    """Ascending, distinct, usable lambdas."""
    grid = np.unique(np.asarray(lams, dtype=np.float64))
    if not grid.size or not np.isfinite(grid).all() or grid[0] < 0:
        raise BlockXMCError(f"lams must be numbers of at least 0, got {lams!r}")
    return grid
