"""One fold of a tuning run: trial models by number of blocks and lambda, each made once and kept in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from blockxmc.training.trials.grid import Rows, blocks_of_sample
from blockxmc.training.trials.moving import MovingBlocks
from blockxmc.training.trials.split import FixedBlocks, Split
from blockxmc.tuning.notebook import Notebook
from blockxmc.tuning.problem import Problem

Lams = tuple[float, ...]
# What a trial is said to have cost.
COSTS = ("trainings", "warm_trainings", "pairs", "reused_pairs", "seconds", "setup_seconds")


@dataclass(frozen=True)
class How:
    """How trial models are trained and served."""

    weights: str = "per-block"
    route: int = 1
    sample: bool = False  # the rows are a sample, which may have fewer blocks


class Fold:
    """Training rows and held-out rows, and the trial models made of them. Lambdas are in the scale of the full data.

    Trials of different numbers of blocks may be made side by side.
    """

    def __init__(self, problem: Problem, parts: tuple[Rows, Rows], how: How, book: Notebook, threads: int) -> None:
        self.problem, self.how, self.book = problem, how, book
        self.split = Split(replace(problem.task, threads=threads), problem.X, problem.Y, *parts)
        # By the number of blocks that is asked for: a sample may have as many for several, tried side by side.
        self._moving: dict[int, MovingBlocks] = {}
        self._fixed: dict[tuple[int, float], FixedBlocks] = {}

    def found(self, n_blocks: int, steps: Lams) -> dict[str, Any]:
        """What held-out rows say of the last of these lambdas, reached by way of the others."""
        name = f"{n_blocks} blocks, lam {', '.join(f'{lam:.12g}' for lam in steps)}"
        return self.book.once(name, lambda: self._measured(n_blocks, steps))

    def base(self) -> dict[str, Any]:
        """The base without blocks."""
        return self.book.once("base", self._base)

    def loss(self, n_blocks: int, steps: Lams) -> float:
        """The largest loss over k at the last lambda, in points."""
        return float(np.max(np.subtract(self.base()["precision"], self.found(n_blocks, steps)["precision"])))

    def _measured(self, n_blocks: int, steps: Lams) -> dict[str, Any]:
        own, how = self._own_blocks(n_blocks), self.how
        share = (n_blocks / self.problem.n_rows) * (self.split.train_rows.size / own)
        scaled = tuple(lam * share for lam in steps)
        if self.problem.options.reassign:
            moving = self._moving.setdefault(n_blocks, MovingBlocks(self.split.twin(), own))
            before = moving.setup_seconds
            found = moving.measure(scaled, how.weights, how.route)
            return found | {"setup_seconds": moving.setup_seconds - before}
        fixed = self._fixed.setdefault((n_blocks, scaled[0]), FixedBlocks(self.split.twin(), own, scaled[0]))
        before = fixed.setup_seconds
        found = fixed.measure(scaled[-1], how.weights, how.route)
        return found | {"setup_seconds": fixed.setup_seconds - before}

    def _own_blocks(self, n_blocks: int) -> int:
        given = not isinstance(self.problem.task.partitioner.init, str)
        if given or not self.how.sample:
            return n_blocks
        return blocks_of_sample(n_blocks, self.split.train_rows.size, self.problem.n_rows)

    def _base(self) -> dict[str, Any]:
        split = self.split
        before = split.trainings, split.seconds
        precision = split.full_precision()
        costs = dict.fromkeys(COSTS, 0) | {"trainings": split.trainings - before[0]}
        return {"precision": precision} | costs | {"seconds": split.seconds - before[1]}
