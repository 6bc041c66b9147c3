"""One fold of a tuning run: trial models by number of blocks and lambda, each made once and kept in a notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from blockxmc.model.routed import RoutedModel
from blockxmc.training.trials.grid import Rows
from blockxmc.training.trials.split import Pair, Split
from blockxmc.tuning.notebook import Notebook
from blockxmc.tuning.problem import Problem


class Fold:
    """Training rows and held-out rows, and the trial models made of them. Lambdas are in the scale of the full data."""

    def __init__(self, problem: Problem, parts: tuple[Rows, Rows], book: Notebook) -> None:
        self.book = book
        self.split = Split(problem.task, problem.X, problem.Y, *parts)
        self.share = self.split.train_rows.size / problem.n_rows

    def expected_products(self, pair: Pair) -> float:
        """Products per row, told by the training rows before anything is trained."""
        name = f"products of {_named(pair)}"
        found = self.book.once(name, lambda: {"products": self.split.expected_products(self._own(pair))})
        return float(found["products"])

    def found(self, pair: Pair) -> dict[str, Any]:
        """What held-out rows say of a pair."""
        return self._measured(_named(pair), lambda: self.split.served(self._own(pair)))

    def base(self) -> list[float]:
        """P@k of the base without blocks."""
        precision: list[float] = self._measured("base", self.split.base_model)["precision"]
        return precision

    def base_seconds(self) -> float:
        """What the training of the base without blocks took, now or before the run was stopped."""
        return float(self._measured("base", self.split.base_model)["seconds"])

    def loss(self, pair: Pair) -> float:
        """The largest loss over k, in points."""
        return float(np.max(np.subtract(self.base(), self.found(pair)["precision"])))

    def _measured(self, name: str, model: Callable[[], RoutedModel | None]) -> dict[str, Any]:
        split = self.split

        def measured() -> dict[str, Any]:
            before = split.trainings, split.seconds
            found = split.measured(model())
            return found | {"trainings": split.trainings - before[0], "seconds": split.seconds - before[1]}

        return self.book.once(name, measured)

    def _own(self, pair: Pair) -> Pair:
        return Pair(pair.n_blocks, tuple(lam * self.share for lam in pair.steps))


def _named(pair: Pair) -> str:
    return f"{pair.n_blocks} blocks, lam {', '.join(f'{lam:.12g}' for lam in pair.steps)}"
