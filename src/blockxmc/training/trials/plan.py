"""Which lambdas to try, and how many blocks to make at each of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from blockxmc.errors import BlockXMCError
from blockxmc.partition.choice import MIN_ROWS
from blockxmc.partition.walk import paper_blocks, steps_to
from blockxmc.training.trials.grid import F64, GRID_CAPTURED, GRID_CAPTURED_ANEW, MIDDLE, default_grid, grid_size
from blockxmc.training.trials.split import Pair, Task

Path = tuple[int, ...]
# Numbers of blocks that a joint search tries beside those of the paper's search. Not measured: a plain grid.
NUMBERS = (2, 4, 8, 16, 32)


@dataclass(frozen=True)
class BlockPlan:
    """Ascending lambdas, and paths along them: a path has a number of blocks for each lambda.

    >>> plan = BlockPlan((0.1, 0.2, 0.4), ((2, 2, 2), (3, 5, 8)), paper=(3, 5, 8)).thinned(2)
    >>> plan.paths, plan.pairs((3, 8))[1]
    (((2, 2), (3, 8)), Pair(n_blocks=8, steps=(0.1, 0.4), cut=None))
    """

    lams: tuple[float, ...]
    paths: tuple[Path, ...]
    paper: Path | None = None  # the path of the paper's search, where it was run
    unbounded: tuple[bool, ...] = ()  # at which lambdas that search met no pair that died
    letter: bool = False  # every lambda starts from k-means

    def thinned(self, step: int) -> BlockPlan:
        """Every ``step``-th lambda, for bases that take longer."""
        paths = tuple(path[::step] for path in self.paths)
        paper = None if self.paper is None else self.paper[::step]
        return BlockPlan(self.lams[::step], paths, paper, self.unbounded[::step], self.letter)

    def pairs(self, path: Path) -> list[Pair]:
        """The pairs along a path."""
        return [Pair(q, steps_to(self.lams, at, self.letter)) for at, q in enumerate(path)]

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
            bool(values["letter"]),
        )


def made_plan(
    task: Task, X: sparse.csr_array, Y: sparse.csr_array, n_blocks: int | str, lams: ArrayLike | None = None
) -> BlockPlan:
    """The plan for a number of blocks: one number, that of the paper's search at each lambda ("paper"), or several."""
    given, letter = None if lams is None else checked_lams(lams), bool(task.partitioner.letter)
    options = task.unfitted(n_blocks, "auto")
    options._check_params(X.shape[0])
    fixed_start = not isinstance(options.init, str)
    if n_blocks in ("auto", "paper") and not fixed_start:
        return _joint(task, X, Y, str(n_blocks), given)
    if isinstance(n_blocks, str) or fixed_start:
        whole = options.fit(X, Y)
        q = int(whole.choice_["n_blocks"]["start"])
        grid = default_grid(whole.path(), grid_size(task.learner)) if given is None else given
    else:
        q, grid = n_blocks, _grid(task, X, Y, n_blocks) if given is None else given
    return BlockPlan(tuple(grid.tolist()), ((q,) * grid.size,), letter=letter)


def _joint(task: Task, X: sparse.csr_array, Y: sparse.csr_array, n_blocks: str, given: F64 | None) -> BlockPlan:
    """The paper's search at each lambda, and for "auto" a plain grid of numbers beside it (not to the letter)."""
    most, letter = max(X.shape[0] // MIN_ROWS, 1), bool(task.partitioner.letter)
    grid = _grid(task, X, Y, min(MIDDLE, most), GRID_CAPTURED_ANEW) if given is None else given
    found = paper_blocks(task.unfitted("paper", "auto"), X, Y, grid.tolist(), task.reporter)
    paper = tuple(choice.n_blocks for choice in found)
    numbers = sorted({min(q, most) for q in NUMBERS}) if n_blocks == "auto" and not letter else []
    paths = dict.fromkeys([*((q,) * grid.size for q in numbers), paper])
    return BlockPlan(tuple(grid.tolist()), tuple(paths), paper, tuple(choice.unbounded for choice in found), letter)


def _grid(
    task: Task, X: sparse.csr_array, Y: sparse.csr_array, q: int, captured: tuple[float, float] = GRID_CAPTURED
) -> F64:
    """The default grid for this number of blocks."""
    with task.reporter.phase("partition all rows"):
        path = task.unfitted(q, "auto").fit(X, Y).path()
    return default_grid(path, grid_size(task.learner), captured=captured)


def checked_lams(lams: ArrayLike) -> F64:
    """Ascending, distinct, usable lambdas."""
    grid = np.unique(np.asarray(lams, dtype=np.float64))
    if not grid.size or not np.isfinite(grid).all() or grid[0] < 0:
        raise BlockXMCError(f"lams must be numbers of at least 0, got {lams!r}")
    return grid
